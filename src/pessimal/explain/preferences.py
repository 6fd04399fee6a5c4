"""Perturbations as preference pairs to train on, in the format of Hugging Face's TRL.

Knows tables of outcomes and comparisons. Does not know models, nor how anything is trained.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import pandas as pd

from pessimal.errors import ConfigError, TableError
from pessimal.explain.attribute import PLACEBO, Direction
from pessimal.explain.comparison import Comparison

_COLUMNS = (
    *("model", "comparison", "response", "side", "attribute", "direction", "seed", "perturber", "original"),
    *("edited", "reward", "new_reward", "margin", "new_margin", "outcome", "complied"),
)


class Which(Enum):
    """Perturbations that become pairs."""

    counterfactuals = "counterfactuals"
    """Those that flip the preference. The model already scores the better text higher: that is what flipped it."""
    against = "against"
    """Those by which the reward went the wrong way: up for a worse text, down for a better one."""
    both = "both"
    """Both of these."""


@dataclass(frozen=True)
class Preferences:
    """Pairs, and what was left out."""

    pairs: tuple[dict, ...]
    """In the order of the table; each is a row for TRL (see `preference_pairs`)."""
    not_complied: int
    """Perturbations left out because the judge found that the edit did not do what was asked, or has not said."""
    duplicates: int
    """Perturbations left out because an earlier pair has the same two texts for the same conversation."""


def preference_pairs(
    outcomes: pd.DataFrame,
    comparisons: Sequence[Comparison],
    *,
    which: Which = Which.counterfactuals,
    complied_only: bool = True,
    model: str | None = None,
) -> Preferences:
    """Each perturbation as a pair of the response as it stood and as it was edited.

    The label is the edit's direction, not any reward: of an edit that makes a response better, the edited text is
    "chosen"; of one that makes it worse, the original. Only the attribute distinguishes the two texts, so that a model
    learns the value of the attribute, with the rest of the response held still. The original pair of responses is no
    such pair, nor is (y+′, y−): whether a worsened response is still the better of two, nobody has said.

    A counterfactual never contradicts the model (Δm < 0 means that the reward moved with the direction), so training
    on `counterfactuals` strengthens or keeps what it has: these are for another model that lacks it, or to keep it
    while something else is trained. A bias (longer is better, a refusal is safe) shows as rewards that go against the
    direction; `against` is what corrects it. `model_agrees` says which is which. Labels are no better than the edits:
    `complied_only` leaves out those that the judge does not confirm.

    A pair's fields: prompt, chosen and rejected (lists of messages, TRL's conversational format with an explicit prompt);
    key; model, comparison, response, side, attribute, direction, seed, perturber as in the table; reward_original,
    reward_edited; margin_before (m), margin_after (m′); outcome; complied; model_agrees (null for equal rewards). None is
    called "margin": TRL's RewardTrainer would subtract it in its loss.

    Args:
        outcomes: the table of outcomes; placebos and perturbations without a text are passed over.
        comparisons: those that the table is about.
        model: whose outcomes; may be left out where the table holds one model.

    Raises:
        ConfigError: no such model, several without a choice, or `complied_only` where nothing was judged.
        TableError: columns are missing, or a row is about an unknown comparison.

    Source: TRL 1.16, "Dataset formats and types" (preference, conversational) and `RewardTrainer`.
    """
    if missing := [column for column in _COLUMNS if column not in outcomes]:
        raise TableError(f"the table of outcomes lacks the columns {', '.join(missing)}")
    rows = outcomes[outcomes["model"] == _model(outcomes, model)]
    rows = rows[rows["edited"].notna() & rows["outcome"].notna() & (rows["attribute"] != PLACEBO)]
    if complied_only and len(rows) and rows["complied"].isna().all():
        raise ConfigError(
            "only pairs whose edit complied were asked for, but no judge has said which did; run with a judge, or ask for all"
        )
    by_key = {comparison.key: comparison for comparison in comparisons}
    pairs, not_complied, duplicates = {}, 0, 0
    for row in rows.to_dict("records"):
        gain = _gain(row)
        if not _wanted(which, flipped=row["outcome"] == "CF", against=gain < 0):
            continue
        complied = None if pd.isna(row["complied"]) else bool(row["complied"])
        if complied_only and not complied:
            not_complied += 1
            continue
        if row["comparison"] not in by_key:
            raise TableError(f"the outcomes name a comparison {row['comparison']!r} that was not given")
        pair = _pair(row, by_key[row["comparison"]], gain=gain, complied=complied)
        content = json.dumps([pair["prompt"], pair["chosen"], pair["rejected"]])
        duplicates += content in pairs
        pairs.setdefault(content, pair)
    return Preferences(tuple(pairs.values()), not_complied=not_complied, duplicates=duplicates)


def as_lines(pairs: Iterable[Mapping]) -> str:
    """One pair a line, in ASCII: whatever a text holds (U+2028, null bytes, lone surrogates) is escaped, as JSON has it."""
    return "".join(json.dumps(pair, allow_nan=False) + "\n" for pair in pairs)


def _model(outcomes: pd.DataFrame, model: str | None) -> str | None:
    models = list(outcomes["model"].unique())
    if model is None and len(models) < 2:
        return models[0] if models else None
    if model not in models:
        given = "several models" if model is None else f"no model {model!r}"
        raise ConfigError(f"the table of outcomes holds {given}; name one of {', '.join(models)}")
    return model


def _gain(row: Mapping) -> float:
    """By how much the model scores the better of the two texts above the other."""
    rise = row["new_reward"] - row["reward"]
    return rise if Direction(row["direction"]) is Direction.better else -rise


def _wanted(which: Which, *, flipped: bool, against: bool) -> bool:
    return (flipped and which is not Which.against) or (against and which is not Which.counterfactuals)


def _pair(row: Mapping, comparison: Comparison, *, gain: float, complied: bool | None) -> dict:
    texts = [[{"role": "assistant", "content": row[column]}] for column in ("original", "edited")]
    better = Direction(row["direction"]) is Direction.better
    labels = {
        "model": row["model"],
        "comparison": row["comparison"],
        "response": int(row["response"]),
        "side": row["side"],
        "attribute": row["attribute"],
        "direction": row["direction"],
        "seed": int(row["seed"]),
        "perturber": row["perturber"],
    }
    return {
        "key": "/".join(str(value) for name, value in labels.items() if name not in ("model", "side")),
        "prompt": [{"role": turn.role, "content": turn.content} for turn in comparison.turns],
        "chosen": texts[better],
        "rejected": texts[not better],
        **labels,
        "reward_original": float(row["reward"]),
        "reward_edited": float(row["new_reward"]),
        "margin_before": float(row["margin"]),
        "margin_after": float(row["new_margin"]),
        "outcome": row["outcome"],
        "complied": complied,
        "model_agrees": None if gain == 0 else bool(gain > 0),
    }
