"""What a scan's table records beside the rewards: how they were read and asked, what the answer
around a slot gets untouched, what was left out.

Knows rewards that are scored. Scores nothing.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from pessimal.conversation import Context, Conversation
from pessimal.errors import ModelError
from pessimal.rewards.base import NetworkReward, Reward
from pessimal.rewards.formats import Continued
from pessimal.rewards.spec import Dtype
from pessimal.scoring.candidates import Candidates, Inputs
from pessimal.scoring.certify import Certified
from pessimal.scoring.trust import Trust
from pessimal.tables import ScoreProvenance, ScoreTable
from pessimal.tables.score_table import LOG_PROBABILITY
from pessimal.texts import storable

log = logging.getLogger(__name__)

SLOT = ("untouched", "rejected")
"""Of a context's table: the rewards of the answer as it is, and of the rejected one."""


def of_language_model(
    model: NetworkReward,
    provenance: ScoreProvenance,
    candidates: Candidates,
    scored: Inputs,
    values: np.ndarray,
) -> dict[str, Any]:
    """What the table of a language model records besides: how it was asked, and of what its numbers
    are."""
    conversations = model.parts[0].conversations
    if not isinstance(conversations, Continued):
        return {}
    context = str(model.tokenizer.decode(list(scored.prefix), clean_up_tokenization_spaces=False))
    measured: dict[str, Any] = {
        "asked": "chat template" if conversations.chat else "plain text",
        "context": storable(context),
    }
    if not candidates.is_vocabulary:
        texts = candidates.rows["text"].tolist()
        apart: list[str] = []
        if not isinstance(provenance.asked, Context):
            _, apart = conversations.continued(provenance.asked, texts)
        lengths = scored.lengths - len(conversations.closing)
        measured["tokens_per_item"] = {
            "least": int(lengths.min()),
            "median": float(np.median(lengths)),
            "most": int(lengths.max()),
        }
        measured["tokenised_apart"] = len(apart)
        measured["tokenised_apart_examples"] = [storable(answer) for answer in apart[:5]]
    elif provenance.score == LOG_PROBABILITY:
        measured["total_probability"] = float(np.exp(values).sum())
    return measured


def score_table(
    model: Reward,
    provenance: ScoreProvenance,
    candidates: Candidates,
    result: Certified,
    *,
    trust: Trust,
    noise: float | None,
    attention: str,
    survives: np.ndarray | None = None,
    **measured: Any,
) -> ScoreTable:
    """The table of these rewards, with what was measured beside them. `attention` is the path that
    scored, `survives` bool (n,) which tokens make the round trip."""
    columns = {"survives": survives, "reward": result.rewards, "certified": result.certified}
    rows = candidates.rows.assign(**columns).astype({"survives": "boolean"})
    checks = {
        "trust": asdict(trust),
        "noise": noise,
        "rescored_in_float32": 0 if model.spec.dtype is Dtype.float32 else int(result.exact.sum()),
        "largest_low_precision_error": result.largest_error,
        "certified": int(result.certified.sum()),
    }
    provenance = replace(provenance, attention=attention)
    return ScoreTable(provenance, rows, model.description, checks | measured)


def gate(columns: np.ndarray, coefficients: np.ndarray, labels: Sequence[str]) -> dict[str, Any]:
    """Which objective decides in a mixture: of each, by the label, the gate's `coefficients`
    (objectives,) and its share in the variance of the reward over the candidates.

    `columns` (n, 1 + objectives) are the mixture and the objectives. A share is the covariance of
    coefficient times objective with the mixture over the mixture's variance; they add up to 1.
    """
    columns = columns.astype(np.float64)
    mixed = columns[:, 0] - columns[:, 0].mean()
    parts = coefficients * (columns[:, 1:] - columns[:, 1:].mean(axis=0))
    shares = parts.T @ mixed / max(float(mixed @ mixed), np.finfo(np.float64).tiny)
    return {
        "decides": labels[int(shares.argmax())],
        "share": dict(zip(labels, shares.tolist(), strict=True)),
        "coefficient": dict(zip(labels, coefficients.tolist(), strict=True)),
    }


def both_answers(context: Context) -> list[Conversation | None]:
    """The conversation as it is, and with the rejected answer."""
    *before, answer = context.turns
    rejected = context.rejected
    return [
        context.turns,
        None if rejected is None else (*before, replace(answer, content=rejected)),
    ]


def of_slot(rewards: np.ndarray, end: int | None = None) -> dict[str, Any]:
    """What a context's table records: the rewards of its answers (2,), and which token ends a turn.
    ModelError where the reward of the
    answer itself is not a number."""
    if not np.isfinite(rewards[0]):
        raise ModelError(
            "the reward of the answer as it is, with nothing in the slot, is not a number: leave "
            "this context out, or try model.dtype=float32"
        )
    values = [float(one) if np.isfinite(one) else None for one in rewards]
    return {"slot": dict(zip(SLOT, values, strict=True)) | {"end_of_turn": end}}


def answered(
    model: Reward, candidates: Candidates, rewards: np.ndarray
) -> tuple[Candidates, np.ndarray, dict[str, Any]]:
    """The candidates that have a reward, their rows, and what a table records of the others, to
    which a function does not apply.

    Raises:
        ModelError: it applies to none.
    """
    known = np.flatnonzero(np.isfinite(rewards))
    missing = candidates.rows["text"][~np.isfinite(rewards)].tolist()
    if not missing:
        return candidates, known, {}
    said = f"{model.name} does not apply (None) to {len(missing)} of {len(rewards)} candidates"
    if not len(known):
        raise ModelError(f"{said}: there is nothing to compare. Give candidates that it rewards")
    log.warning("%s, the first %r: they are left out", said, missing[0][:60])
    rows = candidates.rows.iloc[known].reset_index(drop=True)
    counted = {"missing": len(missing), "missing_examples": missing[:5]}
    return Candidates(candidates.name, rows), known, counted
