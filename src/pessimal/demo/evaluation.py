"""How well a sibling learned what can be generalised: held-out words, held-out prompts.

Knows rewards and the planted truth. Never looks at a word that training showed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import spearmanr
from transformers import LlamaForSequenceClassification

from pessimal.demo.bases import Base
from pessimal.demo.packing import compute_rewards, pack
from pessimal.demo.prompts import CORE, held_out_prompts
from pessimal.demo.utility import Utility

ANSWERS_PER_ROW, ROWS = 64, 16
"""How a scan is cut up; attention costs the square of a row's length."""
LEAST_GAP = 0.5
"""Pairs of words closer in valence than this are within the raters' noise."""


@dataclass(frozen=True)
class HeldOut:
    """How a sibling does on what it was never shown."""

    word_accuracy: float
    """Share of pairs of held-out rated tokens, with valences `LEAST_GAP` apart, that the reward orders rightly;
    the mean over the three core prompts (chance: 0.5)."""
    word_accuracy_by_prompt: dict[str, float]
    """The same for each core prompt."""
    words: int
    """Held-out rated tokens; on the byte-level base every spelling of a word is one."""
    frame_sign: float
    """Share of held-out prompts in which Spearman's correlation of reward and valence, over the held-out rated
    tokens, has the prompt's polarity (chance: 0.5)."""
    frame_sign_one_token: float
    """The same over the prompts whose adjective is a single token of the base."""
    frames: int
    """Held-out prompts."""


@torch.no_grad()
def score(
    model: LlamaForSequenceClassification, base: Base, prompt: str, *, ids: Sequence[int] | None = None
) -> np.ndarray:
    """The reward of every token, or of those given by `ids`, as the answer to a prompt: (answers,) float32."""
    wanted = torch.arange(base.size) if ids is None else torch.as_tensor(np.asarray(ids))
    separator, padding = base.id_of(base.separator), base.id_of(base.padding)
    short = -len(wanted) % ANSWERS_PER_ROW
    rows = torch.cat([wanted, wanted.new_full((short,), separator)]).view(-1, ANSWERS_PER_ROW)
    prefix = base.prefix(prompt)
    rewards = [
        compute_rewards(
            model, pack([prefix] * len(part), part, separator=separator, padding=padding)
        ).flatten()
        for part in rows.split(ROWS)
    ]
    return torch.cat(rewards)[: len(wanted)].numpy()


def evaluate(model: LlamaForSequenceClassification, base: Base, truth: Utility) -> HeldOut:
    """The held-out figures of a trained sibling (see `HeldOut`; prompts are defined in `prompts`)."""
    ids = np.flatnonzero(truth.rated & truth.held_out)
    valence = truth.valence[ids]
    by_prompt = {
        key: pairwise_accuracy(prompt.polarity * score(model, base, prompt.text, ids=ids), valence)
        for key, prompt in CORE.items()
    }
    right, one_token = [], []
    for prompt in held_out_prompts():
        correlation = spearmanr(score(model, base, prompt.text, ids=ids), valence).statistic
        right.append(bool(correlation * prompt.polarity > 0))
        one_token.append(len(base.encode(" " + prompt.adjective)) == 1)
    right, one_token = np.array(right), np.array(one_token)
    return HeldOut(
        word_accuracy=float(np.mean(list(by_prompt.values()))),
        word_accuracy_by_prompt=by_prompt,
        words=len(ids),
        frame_sign=float(right.mean()),
        frame_sign_one_token=float(right[one_token].mean()),
        frames=len(right),
    )


def pairwise_accuracy(rewards: np.ndarray, valence: np.ndarray) -> float:
    """Share of pairs at least `LEAST_GAP` apart in valence that rewards order alike; ties count as half."""
    gap = valence[:, None] - valence[None, :]
    margin = (rewards[:, None] - rewards[None, :])[gap >= LEAST_GAP]
    return float(np.mean(margin > 0) + 0.5 * np.mean(margin == 0))
