"""Candidates that a model proposes: answers that a policy writes, and tokens that the gradient says
to add most where each takes a forward of a whole answer.

Knows engines and frames. Chooses; the rewards are the scan's.
"""

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import torch
from transformers import PreTrainedModel

from pessimal.conversation import Asked, Prompt
from pessimal.errors import WorkError
from pessimal.progress import counted
from pessimal.rewards.base import NetworkReward
from pessimal.rewards.frame import slot_frame
from pessimal.rewards.language import set_sampling
from pessimal.rewards.log_probability import LogProbability
from pessimal.scoring.candidates import Candidates, item_candidates
from pessimal.scoring.common_prefix import CommonPrefixScorer
from pessimal.scoring.scorer import FrameScorer
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
    counts: Counter[str] = Counter()
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
                counts.update(map(storable, texts))
                counter.advance(some)
    if empty := counts.pop("", 0):
        log.warning("%d of %d answers of %s were empty: they are left out", empty, n, policy.name)
    if len(counts) < 3:
        raise WorkError(
            f"{policy.name} wrote {len(counts)} different answers: a forecast needs 3. Type more: "
            f"answers={10 * n} answer_tokens={2 * tokens}"
        )
    candidates = item_candidates(list(counts), name=drawn_from(policy.name))
    draws = np.array(list(counts.values()), dtype=np.int32)
    return Candidates(candidates.name, candidates.rows.assign(drawn=draws))


RANDOM, ROUNDS, BEST = 32, 4, 8
"""Tokens at which rewards and slopes are taken: random ones, and in so many rounds the best by what
is known then."""


SHARPNESS = 8.0
"""Rate at which a slope counts for less with the squared distance of embeddings, in units of its
median."""


def screened(
    model: NetworkReward,
    contexts: Iterable[Asked],
    candidates: Candidates,
    *,
    n: int,
    device: torch.device,
    progress: bool = True,
) -> Candidates:
    """The `n` ordinary tokens of a vocabulary that are predicted to add most to the rewards of the
    contexts, on average, and all special ones; the whole vocabulary where it has no more.

    A prediction is the mean of the straight lines through the rewards of some tokens along their
    gradients, each line weighted by how near its token is.
    """
    ids, kind = candidates.rows["candidate_id"].to_numpy(), candidates.rows["kind"]
    ordinary = np.flatnonzero(~kind.isin(["special", "unused"]))
    if n >= len(ordinary):
        return candidates
    scorers = []
    for part in model.parts:
        network = model.network(which=part.network).to(device)
        for context in contexts:
            frame = slot_frame(part.conversations, context, model.tokenizer)
            engine = FrameScorer(network, frame, device=device).engines[0]
            prefix, suffix = (
                torch.tensor(side, dtype=torch.long, device=device)
                for side in (frame.prefix, frame.suffix)
            )
            scorer = CommonPrefixScorer(network, engine, prefix=prefix, suffix=suffix)
            scorers.append((part.weight, scorer))
    embedding: Any = network.get_input_embeddings()
    rows = embedding.weight.detach()[torch.tensor(ids, device=device)]  # (V, hidden)
    squares = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float32) ** 2
    fresh = np.random.default_rng(0).choice(ordinary, size=min(RANDOM, n), replace=False)
    points, lines = fresh[:0], []
    with counted("slopes", unit="tokens", total=RANDOM + ROUNDS * BEST, bar=progress) as counter:
        for _ in range(ROUNDS + 1):
            for point in fresh:
                line, token = np.zeros(len(ids)), torch.tensor([ids[point]])
                for weight, scorer in scorers:
                    slope = scorer.gradient(token)[0].double().cpu().numpy()[ids]
                    line += weight * (slope - slope[point] + scorer.rewards(token[None]).item())
                lines.append(line)
                counter.advance(1)
            points = np.concatenate([points, fresh])
            products = (rows[points] @ rows.T).float()  # (points, V)
            apart = squares[points, None] + squares - 2 * products
            near = torch.softmax(-SHARPNESS * apart / apart.median(), dim=0).cpu().numpy()
            predicted = (near * np.array(lines)).sum(axis=0)
            order = ordinary[np.argsort(-predicted[ordinary], kind="stable")]
            fresh = order[~np.isin(order, points)][:BEST]
    mask = kind.eq("special") | candidates.rows.index.isin(order[:n])
    return Candidates(f"screened{n}", candidates.rows[mask].reset_index(drop=True))
