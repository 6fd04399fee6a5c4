"""Answers that a language model writes, as candidates."""

import logging
from collections import Counter
from typing import Any, cast

import numpy as np
import torch
from transformers import PreTrainedModel

from pessimal.conversation import Prompt
from pessimal.errors import WorkError
from pessimal.progress import counted
from pessimal.rewards.language import set_sampling
from pessimal.rewards.log_probability import LogProbability
from pessimal.scoring.candidates import Candidates, listed
from pessimal.tables.score_table import drawn_from
from pessimal.texts import storable

log = logging.getLogger(__name__)

BATCH = 64


def answers_of(
    policy: LogProbability,
    causal: PreTrainedModel,
    prompt: Prompt,
    *,
    n: int,
    tokens: int,
    seed: int,
    progress: bool = True,
) -> Candidates:
    """`n` answers drawn from a policy, each of at most `tokens` tokens, at temperature 1 with
    nothing cut off; as texts without special tokens, those that are one text together, with how
    often they were `drawn`. Empty ones are left out, and counted in the log.

    Raises:
        WorkError: fewer than 3 different texts were written.
    """
    context = policy.conversations.context(prompt)
    tokenizer = policy.conversations.tokenizer
    inputs = torch.tensor([context], device=causal.device)
    found: Counter[str] = Counter()
    devices = [causal.device] if causal.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.inference_mode():
        torch.manual_seed(seed)
        label = f"{policy.name} writes"
        with counted(label, unit="answers", total=n, bar=progress) as counter:
            for start in range(0, n, BATCH):
                some = min(BATCH, n - start)
                set_sampling(causal, tokenizer, tokens=tokens, num_return_sequences=some)
                written = cast(Any, causal).generate(inputs)
                texts = tokenizer.batch_decode(written[:, len(context) :], skip_special_tokens=True)
                found.update(map(storable, texts))
                counter.advance(some)
    if empty := found.pop("", 0):
        log.warning("%d of %d answers of %s were empty: they are left out", empty, n, policy.name)
    if len(found) < 3:
        raise WorkError(
            f"{policy.name} wrote {len(found)} different answers: a forecast needs 3. Type more: "
            f"answers={10 * n} answer_tokens={2 * tokens}"
        )
    candidates = listed(list(found), name=drawn_from(policy.name))
    drawn = np.array(list(found.values()), dtype=np.int32)
    return Candidates(candidates.name, candidates.rows.assign(drawn=drawn))
