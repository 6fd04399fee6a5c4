"""Effects of each change of a response on one model's preference: margins before and after, and
whether it flips; and the same changes as preference pairs to train on.

Knows comparisons, perturbations, and rewards as numbers. Does not know what gave the rewards, nor
how far a text was changed: distances, locality and compliance are joined to the table by whoever
measured them.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Protocol

import numpy as np
import pandas as pd

from pessimal.conversation import Conversation
from pessimal.errors import TableError
from pessimal.explaining.attribute import PLACEBO, Attribute, Direction
from pessimal.explaining.perturbers import Perturbation, Request, Status
from pessimal.tables.comparisons import Comparison

CHOSEN, REJECTED = "chosen", "rejected"
COUNTERFACTUAL, SEMIFACTUAL, TIE = "CF", "SF", "tie"
AGAINST = {CHOSEN: Direction.worse, REJECTED: Direction.better}
"""The change of each side that speaks against the preference, if the model likes what is better by
an attribute's polarity."""
KEY = ["model", "perturber", "comparison", "response", "attribute", "direction", "seed"]
"""Names a row of the table; without the model, one perturbation, of which several models have a row
each."""
COLUMNS: dict[str, type] = {
    **dict.fromkeys(["model", "comparison"], object),
    "response": int,
    **dict.fromkeys(["side", "attribute", "direction", "amount"], object),
    "seed": int,
    **dict.fromkeys(["perturber", "status", "original", "edited", "spans", "note"], object),
    **dict.fromkeys(["reward", "new_reward", "margin", "new_margin"], float),
    **dict.fromkeys(["change", "change_in_sd"], float),
    "outcome": object,
}
"""Columns with their types."""

Rewards = Mapping[str, tuple[float, float]]
"""Rewards of both responses as they stand, by the comparison's key."""


class Scorer(Protocol):
    """Gives rewards."""

    def rewards(self, conversations: Sequence[Conversation]) -> np.ndarray:
        """Rewards float64 (n,); NaN for what is longer than the model reads."""


def chosen_response(rewards: tuple[float, float], *, tie: float) -> int | None:
    """The response (0 or 1) that a model scores higher; None where they differ by no more than
    `tie`, in reward."""
    margin = float(rewards[0]) - float(rewards[1])  # as in the table: never in single precision
    return None if abs(margin) <= tie else int(margin < 0)


def reward_sd(rewards: Rewards) -> float:
    """Standard deviation (divisor n − 1) of the rewards of all responses as they stand."""
    return float(np.std([reward for pair in rewards.values() for reward in pair], ddof=1))


def requests_for(
    comparisons: Sequence[Comparison],
    rewards: Rewards,
    attributes: Sequence[Attribute],
    seeds: Sequence[int],
    tie: float,
    *,
    both_ways: bool = False,
) -> list[Request]:
    """The changes one model needs: of each decided comparison the chosen response made worse, the
    rejected better; with `both_ways` the opposite of each as well, which flips a model that likes
    what polarity calls worse.

    By comparison, side (chosen first), attribute, direction and seed, in the orders given.
    """
    requests = []
    for comparison in comparisons:
        preferred = chosen_response(rewards[comparison.key], tie=tie)
        if preferred is None:
            continue
        for response, against in ((preferred, AGAINST[CHOSEN]), (1 - preferred, AGAINST[REJECTED])):
            ways = sorted(Direction, key=lambda way: way is not against) if both_ways else [against]
            requests += [
                Request(comparison, response, *each) for each in product(attributes, ways, seeds)
            ]
    return requests


def outcomes(
    model: str,
    rewards: Rewards,
    perturbations: Sequence[Perturbation],
    new_rewards: Sequence[float | None],
    *,
    perturber: str,
    tie: float,
) -> pd.DataFrame:
    """The table of outcomes of one model and one perturber, a row a perturbation; columns as in
    `COLUMNS`.

    The margin m ≥ 0 is the chosen response's reward less the rejected one's; m′ is the same with
    the changed text in the place of one of them. Counterfactual (CF): m′ < −tie. Semifactual (SF):
    m′ > tie. Else a tie. The change Δm = m′ − m comes in rewards and in standard deviations of this
    model's rewards.

    Args:
        rewards: of all comparisons of the set, undecided ones too: the standard deviation is
            theirs.
        perturbations: of decided comparisons, each request once.
        new_rewards: of their texts, in their order; None or NaN where there is no text.
        tie: the largest difference of two rewards that is numerical noise, in reward.

    Raises:
        TableError: a perturbation is there twice, or its status, text and reward contradict one
            another.

    Source: Jiang et al. 2025 (counterfactuals and semifactuals); Δm beside the flip is ours.
    """
    scale, rows = reward_sd(rewards), []
    for perturbation, new_reward in zip(perturbations, new_rewards, strict=True):
        _check_text(perturbation, new_reward)
        request, attribute = perturbation.request, perturbation.request.attribute
        scores, spans = rewards[request.comparison.key], perturbation.spans
        is_chosen = request.response == chosen_response(scores, tie=tie)
        reward, other = float(scores[request.response]), float(scores[1 - request.response])
        sign = 1 if is_chosen else -1
        new_reward = math.nan if new_reward is None else float(new_reward)
        margin, new_margin = sign * (reward - other), sign * (new_reward - other)
        row = {
            "model": model,
            "comparison": request.comparison.key,
            "response": request.response,
            "side": CHOSEN if is_chosen else REJECTED,
            "attribute": attribute.name,
            "direction": request.direction.value,
            "amount": attribute.amount(request.direction).value,
            "seed": request.seed,
            "perturber": perturber,
            "status": perturbation.status.value,
            "original": request.text,
            "edited": perturbation.text,
            "spans": None if spans is None else json.dumps(spans),
            "note": perturbation.note,
            "reward": reward,
            "new_reward": new_reward,
            "margin": margin,
            "new_margin": new_margin,
            "change": new_margin - margin,
            "change_in_sd": (new_margin - margin) / scale,
            "outcome": outcome_of(new_margin, tie=tie),
        }
        rows.append(row)
    # From objects, so that a column of texts holds None and not NaN where there is none.
    table = pd.DataFrame(rows, columns=list(COLUMNS), dtype=object).astype(COLUMNS)
    twice = table.duplicated(KEY)
    if twice.any():
        raise TableError(
            f"The table of outcomes holds a perturbation more than once ({int(twice.sum())} rows "
            f"too many), such as {table.loc[twice, KEY].iloc[0].to_dict()}"
        )
    return table


def outcome_of(new_margin: float, *, tie: float) -> str | None:
    """CF, SF or tie; None for a margin that is not a number, where there is no text."""
    if math.isnan(new_margin):
        return None
    return COUNTERFACTUAL if new_margin < -tie else SEMIFACTUAL if new_margin > tie else TIE


def against_polarity(table: pd.DataFrame) -> pd.Series:
    """Whether rows speak against the preference of a model that likes what is better by polarity;
    others speak against one that likes what is worse."""
    against = {side: direction.value for side, direction in AGAINST.items()}
    return table["direction"] == table["side"].map(against)


def valid_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with a changed text, by `KEY`: sums over them are the same to the bit in whatever order
    they came."""
    return table[table["status"] == Status.changed.value].sort_values(KEY, kind="stable")


def reward_sign(table: pd.DataFrame) -> np.ndarray:
    """(n,) 1 or −1: a margin falls where the preferred response loses reward, or the other gains
    some."""
    return np.where(table["side"] == CHOSEN, 1.0, -1.0)


def _check_text(perturbation: Perturbation, new_reward: float | None) -> None:
    """Refuse what a perturber of one's own may get wrong: a status, text and reward that contradict
    one another."""
    request, status, text = perturbation.request, perturbation.status, perturbation.text
    scored = new_reward is not None and math.isfinite(new_reward)
    if (status is Status.changed) == (text is not None) == scored and text != request.text:
        return
    raise TableError(
        f"A perturbation ({request.attribute.name}, response {request.response} of comparison "
        f"{request.comparison.key!r}) has the status {status.value!r}, "
        f"{'no' if text is None else 'a'} text and the reward {new_reward}; changed ones have a "
        "text other than the response and a finite reward, all else has neither."
    )


def preference_pairs(
    outcomes: pd.DataFrame, comparisons: Mapping[str, Comparison]
) -> list[dict[str, Any]]:
    """Edits as pairs of the response as it stood and as it was edited, in TRL's conversational
    format: those that flip the preference, and those by which the reward went the wrong way (up for
    a worse text, down for a better one).

    The label is the edit's direction, not any reward: of an edit that makes a response better, the
    edited text is "chosen"; of one that makes it worse, the original. Labels are no better than the
    edits: `complied` says what the judge found. A bias shows as pairs that the model orders the
    other way, `model_agrees` false (null for equal rewards); these correct it. No field is called
    "margin": TRL's RewardTrainer would subtract it in its loss.

    Args:
        outcomes: placebos and perturbations without a text are passed over, and so is a pair of
            texts that came before.
        comparisons: those that the table is about, by key.

    Source: TRL 1.16, "Dataset formats and types" (preference, conversational) and `RewardTrainer`.
    """
    scored = outcomes["edited"].notna() & outcomes["outcome"].notna()
    pairs: dict[str, dict[str, Any]] = {}
    for row in outcomes[scored & (outcomes["attribute"] != PLACEBO)].to_dict("records"):
        better = row["direction"] == Direction.better.value
        rise = row["new_reward"] - row["reward"]
        gain = rise if better else -rise  # of the better text over the other
        if row["outcome"] != COUNTERFACTUAL and gain >= 0:
            continue
        turns = [
            {"role": turn.role, "content": turn.content}
            for turn in comparisons[row["comparison"]].turns
        ]
        original, edited = (
            [{"role": "assistant", "content": row[column]}] for column in ("original", "edited")
        )
        preferred, rejected = (edited, original) if better else (original, edited)
        names = ["comparison", "response", "attribute", "direction", "seed", "perturber"]
        pair = {
            "key": "/".join(str(row[name]) for name in names),
            "prompt": turns,
            "chosen": preferred,
            "rejected": rejected,
            **{name: row[name] for name in ("model", "side", *names)},
            "reward_original": row["reward"],
            "reward_edited": row["new_reward"],
            "margin_before": row["margin"],
            "margin_after": row["new_margin"],
            "outcome": row["outcome"],
            "complied": None if pd.isna(row["complied"]) else bool(row["complied"]),
            "model_agrees": None if gain == 0 else bool(gain > 0),
        }
        pairs.setdefault(json.dumps([turns, preferred, rejected]), pair)
    return list(pairs.values())


def as_lines(pairs: Iterable[Mapping[str, Any]]) -> str:
    """One pair a line, in ASCII: whatever a text holds (U+2028, null bytes) is escaped, as JSON has
    it."""
    return "".join(json.dumps(pair, allow_nan=False) + "\n" for pair in pairs)
