"""What each change of a response does to one model's preference: margins before and after, and whether it flips.

Knows comparisons, perturbations, and rewards as numbers. Does not know what gave the rewards, nor how far a text was
changed: distances, locality and compliance are joined to the table by whoever measured them.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pessimal.errors import ConfigError, TableError
from pessimal.explain.attribute import Attribute, Direction
from pessimal.explain.comparison import Comparison
from pessimal.explain.perturbation import Perturbation, Request, Status

CHOSEN, REJECTED = "chosen", "rejected"
COUNTERFACTUAL, SEMIFACTUAL, TIE = "CF", "SF", "tie"
WANTED = {CHOSEN: Direction.worse, REJECTED: Direction.better}
"""What is asked of each side: a change that speaks against the preference."""
KEY = ["model", "perturber", "comparison", "response", "attribute", "direction", "seed"]
"""Names a row of the table."""
ORDER = ["model", "comparison", "response", "side", "attribute", "direction", "seed", "perturber", "status"]
ORDER += ["original", "edited", "spans", "note", "reward", "new_reward", "margin", "new_margin", "change"]
ORDER += ["change_in_sd", "outcome"]
KINDS = dict.fromkeys(["response", "seed"], "int64") | dict.fromkeys(ORDER[13:19], "float64")
COLUMNS = {name: KINDS.get(name, object) for name in ORDER}
"""With their types. Texts are Python objects, not pandas strings: a lone surrogate cannot be put into those."""


@dataclass(frozen=True)
class Outcomes:
    """What one perturber's changes do to one model."""

    table: pd.DataFrame
    """One row a perturbation of a decided comparison, in the order given; columns as in `COLUMNS`."""
    decided: tuple[str, ...]
    """Keys of the comparisons in which the model prefers one response, in their order."""
    undecided: tuple[str, ...]
    """Keys of those whose two rewards differ by no more than the numerical noise: no side is chosen, so they are left out."""
    reward_sd: float
    """Standard deviation (divisor n − 1) of the rewards of all original responses, those of undecided comparisons too."""
    not_needed: int
    """Perturbations left out as they speak for this model's preference; they were made for another model."""


def chosen_response(rewards: tuple[float, float], *, tie: float) -> int | None:
    """Which response (0 or 1) a model scores higher; None where they differ by no more than `tie`, in reward."""
    margin = float(rewards[0]) - float(rewards[1])  # as in the table: never in single precision
    if abs(margin) <= tie:
        return None
    return 0 if margin > 0 else 1


def requests_for(
    comparisons: Sequence[Comparison],
    rewards: Mapping[str, tuple[float, float]],
    attributes: Sequence[Attribute],
    seeds: Sequence[int],
    tie: float,
) -> list[Request]:
    """The changes one model needs: of each decided comparison the chosen response made worse, the rejected better.

    Args:
        comparisons: each key once.
        rewards: by key, of the two responses as they stand.
        attributes: along each of which both responses are changed; the placebo may be one.
        seeds: of so many changes of each kind.
        tie: the largest difference of two rewards that is numerical noise, in reward.

    Returns:
        Requests by comparison, side (chosen first), attribute and seed, in the orders given.

    Raises:
        TableError: a key twice, or a reward that is missing or not finite.
        ConfigError: a tie that is negative or not finite; an attribute or seed given twice.
    """
    check_rewards(comparisons, rewards, tie=tie)
    for what, given in (("attribute", [attribute.name for attribute in attributes]), ("seed", list(seeds))):
        if twice := sorted({name for name in given if given.count(name) > 1}):
            raise ConfigError(f"The {what} {twice[0]!r} is asked for more than once; give each {what} once.")
    found = []
    for comparison in comparisons:
        chosen = chosen_response(rewards[comparison.key], tie=tie)
        if chosen is None:
            continue
        for response, direction in ((chosen, WANTED[CHOSEN]), (1 - chosen, WANTED[REJECTED])):
            found += [
                Request(comparison, response, attribute, direction, seed)
                for attribute in attributes
                for seed in seeds
            ]
    return found


def outcomes(
    model: str,
    comparisons: Sequence[Comparison],
    rewards: Mapping[str, tuple[float, float]],
    perturbations: Sequence[Perturbation],
    new_rewards: Sequence[float | None],
    *,
    perturber: str,
    tie: float,
) -> Outcomes:
    """The table of outcomes of one model and one perturber.

    The margin m ≥ 0 is the chosen response's reward less the rejected one's; m′ is the same with the changed text in the
    place of one of them. Counterfactual (CF): m′ < −tie. Semifactual (SF): m′ > tie. Else a tie. Perturbations are made once
    for all models, so some are of the wrong direction for this one (its rejected response made worse): they are left out
    and counted. The change Δm = m′ − m comes in rewards and in standard deviations of this model's rewards.

    Args:
        model: its name.
        comparisons: all of the set, each key once; the standard deviation is theirs.
        rewards: by key, of the two responses as they stand.
        perturbations: of these comparisons, each request once.
        new_rewards: of their texts, in their order; None or NaN where there is no text.
        perturber: its name.
        tie: the largest difference of two rewards that is numerical noise, in reward.

    Raises:
        TableError: a key twice; a reward missing, not finite, or given for no text; a perturbation of an unknown
            comparison, made twice, or said to have changed a text that it did not.
        ConfigError: a tie that is negative or not finite.

    Source: Jiang et al. 2025 (counterfactuals and semifactuals); Δm beside the flip is ours.
    """
    check_rewards(comparisons, rewards, tie=tie)
    if len(perturbations) != len(new_rewards):
        raise TableError(
            f"{len(perturbations)} perturbations came with {len(new_rewards)} rewards of {model}; give one a perturbation, "
            "None where there is no text."
        )
    known = {comparison.key: comparison for comparison in comparisons}
    chosen = {key: chosen_response(rewards[key], tie=tie) for key in known}
    scale = float(np.std([reward for key in known for reward in rewards[key]], ddof=1))
    rows, not_needed = [], 0
    for perturbation, new_reward in zip(perturbations, new_rewards, strict=True):
        request = perturbation.request
        key = request.comparison.key
        if known.get(key) != request.comparison:
            raise TableError(f"A perturbation is of comparison {key!r}, which is not among those given.")
        if chosen[key] is None:
            continue
        side = CHOSEN if request.response == chosen[key] else REJECTED
        if request.direction is not WANTED[side]:
            not_needed += 1
            continue
        _check_text(perturbation, new_reward, model=model)
        own, other = (float(rewards[key][place]) for place in (request.response, 1 - request.response))
        sign = 1 if side == CHOSEN else -1
        margin = sign * (own - other)
        new_reward = math.nan if new_reward is None else float(new_reward)
        new_margin = sign * (new_reward - other)
        rows.append(
            {
                "model": model,
                "comparison": key,
                "response": request.response,
                "side": side,
                "attribute": request.attribute.name,
                "direction": request.direction.value,
                "seed": request.seed,
                "perturber": perturber,
                "status": perturbation.status.value,
                "original": request.text,
                "edited": perturbation.text,
                "spans": None if perturbation.spans is None else json.dumps(perturbation.spans),
                "note": perturbation.note,
                "reward": own,
                "new_reward": new_reward,
                "margin": margin,
                "new_margin": new_margin,
                "change": new_margin - margin,
                "change_in_sd": (new_margin - margin) / scale,
                "outcome": outcome_of(new_margin, tie=tie),
            }
        )
    table = pd.DataFrame(
        {name: pd.Series([row[name] for row in rows], dtype=kind) for name, kind in COLUMNS.items()}
    )
    check_outcomes(table)
    return Outcomes(
        table=table,
        decided=tuple(key for key in known if chosen[key] is not None),
        undecided=tuple(key for key in known if chosen[key] is None),
        reward_sd=scale,
        not_needed=not_needed,
    )


def outcome_of(new_margin: float, *, tie: float) -> str | None:
    """CF, SF or tie; None for a margin that is not a number, where there is no text."""
    if math.isnan(new_margin):
        return None
    return COUNTERFACTUAL if new_margin < -tie else SEMIFACTUAL if new_margin > tie else TIE


def relative_change(table: pd.DataFrame) -> pd.Series:
    """Δm / m of each row: −1 takes the whole margin away, below −1 flips the preference (but for ties).

    Every margin in the table is above the noise, so this is always defined where there is a text; small margins make it
    very large, so means of it are ruled by the closest comparisons. Medians are the safer summary.
    """
    return table["change"] / table["margin"]


def groups(table: pd.DataFrame, names: Sequence[str]) -> Iterator[tuple[tuple, pd.DataFrame]]:
    """As `groupby`, in order of appearance. That one (as sorting) makes pandas strings, which hold no lone surrogate."""
    found: dict[tuple, list[int]] = {}
    for number, key in enumerate(zip(*(table[name].tolist() for name in names), strict=True)):
        found.setdefault(key, []).append(number)
    for key, numbers in found.items():
        yield key, table.iloc[numbers]


def in_order(table: pd.DataFrame) -> pd.DataFrame:
    """Rows by `KEY`: sums over them are the same to the bit in whatever order they came."""
    keys = list(zip(*(table[name].tolist() for name in KEY), strict=True))
    return table.iloc[sorted(range(len(keys)), key=keys.__getitem__)]


def as_table(rows: Sequence[Mapping], columns: Sequence[str]) -> pd.DataFrame:
    """Rows as a table whose texts are Python objects, as in `COLUMNS`."""
    whole = {name: [row[name] for row in rows] for name in columns}
    return pd.DataFrame(
        {
            name: pd.Series(values, dtype=object if any(isinstance(value, str) for value in values) else None)
            for name, values in whole.items()
        }
    )


def check_outcomes(table: pd.DataFrame, *, columns: Sequence[str] = tuple(COLUMNS)) -> None:
    """Refuse a table that lacks columns or counts a perturbation twice.

    Raises:
        TableError: says which column or row.
    """
    if missing := [name for name in columns if name not in table]:
        raise TableError(
            f"The table of outcomes lacks {', '.join(missing)}; it has {', '.join(map(str, table.columns))}. Make it with "
            "`outcomes`."
        )
    twice = table.duplicated(KEY)
    if twice.any():
        row = table.loc[twice, KEY].iloc[0].to_dict()
        raise TableError(
            f"The table of outcomes holds a perturbation more than once ({int(twice.sum())} rows too many), such as {row}. Every "
            "one counts once: drop the others."
        )


def check_rewards(
    comparisons: Sequence[Comparison], rewards: Mapping[str, tuple[float, float]], *, tie: float
) -> None:
    """Refuse comparisons and rewards of which no margin can be computed; see `outcomes` for what is raised."""
    if not (math.isfinite(tie) and tie >= 0):
        raise ConfigError(f"tie={tie} is no numerical noise; give a finite reward of at least 0 (0: none).")
    if not comparisons:
        raise TableError("There are no comparisons to explain; give at least one.")
    for key, times in Counter(comparison.key for comparison in comparisons).items():
        if times > 1:
            raise TableError(f"The comparison {key!r} is given more than once; keys must differ in a set.")
        if key not in rewards:
            raise TableError(f"Comparison {key!r} has no rewards; score both of its responses first.")
        if len(rewards[key]) != 2 or not all(math.isfinite(reward) for reward in rewards[key]):
            raise TableError(
                f"Comparison {key!r} needs two finite rewards, one a response; given were {tuple(rewards[key])}."
            )


def _check_text(perturbation: Perturbation, new_reward: float | None, *, model: str) -> None:
    """Refuse a perturbation whose status, text and reward contradict one another."""
    request = perturbation.request
    where = f"{request.attribute.name}, response {request.response} of comparison {request.comparison.key!r}"
    has = perturbation.text is not None
    text = "that has a text" if has else "without a text"
    if (perturbation.status is Status.changed) != has:
        raise TableError(
            f"A perturbation ({where}) {text} is {perturbation.status.value!r}; changed ones have a text, others none."
        )
    if perturbation.text == request.text:
        raise TableError(
            f"A perturbation ({where}) is said to be changed but has the text of the response itself; it has failed."
        )
    scored = new_reward is not None and not math.isnan(new_reward)
    if scored != has or (scored and not math.isfinite(new_reward)):
        raise TableError(
            f"{model} gives {new_reward} to a perturbation ({where}) {text}; texts have finite rewards, all else has None."
        )
