"""The steps of an explanation, from two responses to the table of what each change did to the preference.

Knows perturbers, judges and rewards, handed in. Does not know configurations, models or registries.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from pessimal.explain.attribute import PLACEBO, Amount, Attribute, Direction
from pessimal.explain.comparison import Comparison
from pessimal.explain.distances import locality, semantic, syntactic
from pessimal.explain.grow import Grown, Semifactual, grow
from pessimal.explain.judge import RuleJudge
from pessimal.explain.outcomes import (
    CHOSEN,
    COUNTERFACTUAL,
    SEMIFACTUAL,
    Outcomes,
    outcomes,
    requests_for,
)
from pessimal.explain.perturbation import Perturbation, Perturber, Status
from pessimal.explain.perturbers.placebo import PLACEBO as NEUTRAL
from pessimal.explain.shrink import Shrunk, shrink
from pessimal.explain.slopes import MOVED
from pessimal.scoring.kept_rewards import KeptRewards


@dataclass(frozen=True)
class Preferences:
    """What a model thinks of the responses as they stand."""

    comparisons: tuple[Comparison, ...]
    """Those it can read."""
    rewards: dict[str, tuple[float, float]]
    """Of both responses, by the comparison's key."""
    too_long: tuple[str, ...]
    """Keys of those that are longer than the model is made for, and left out."""


def preferences(scorer: KeptRewards, comparisons: Sequence[Comparison]) -> Preferences:
    """Rewards of all responses as they stand."""
    asked = [comparison.conversation(text) for comparison in comparisons for text in comparison.responses]
    found = scorer.rewards(asked).reshape(-1, 2)  # (comparisons, 2)
    read = np.isfinite(found).all(axis=1)
    kept = tuple(c for c, fits in zip(comparisons, read, strict=True) if fits)
    return Preferences(
        comparisons=kept,
        rewards={c.key: (float(a), float(b)) for c, (a, b) in zip(kept, found[read], strict=True)},
        too_long=tuple(c.key for c, fits in zip(comparisons, read, strict=True) if not fits),
    )


def perturb(
    name: str,
    scorer: KeptRewards,
    known: Preferences,
    perturber: Perturber,
    placebo: Perturber | None,
    attributes: Sequence[Attribute],
    *,
    seeds: int,
    placebos: int,
    tie: float,
) -> Outcomes:
    """What the changes along every attribute, and the placebo's, do to the preferences of the model `name`."""
    rewards = known.rewards
    wanted = requests_for(known.comparisons, rewards, attributes, range(seeds), tie)
    made = [(perturber.name, perturber.perturb(wanted))]
    if placebo is not None:
        null = requests_for(known.comparisons, rewards, [NEUTRAL], range(placebos), tie)
        made.append((placebo.name, placebo.perturb(null)))
    found = []
    for who, perturbations in made:
        perturbations, new = _rewarded(scorer, perturbations)
        found.append(outcomes(name, known.comparisons, rewards, perturbations, new, perturber=who, tie=tie))
    return replace(found[0], table=pd.concat([each.table for each in found], ignore_index=True))


def _rewarded(
    scorer: KeptRewards, perturbations: Sequence[Perturbation]
) -> tuple[list[Perturbation], list[float | None]]:
    """The rewards of changed texts; a text that has become too long for the model counts as failed."""
    changed = [p for p in perturbations if p.text is not None]
    rewards = iter(scorer.rewards([p.request.comparison.conversation(p.text) for p in changed]).tolist())
    kept, new = [], []
    for perturbation in perturbations:
        reward = next(rewards) if perturbation.text is not None else None
        if reward is not None and np.isnan(reward):
            perturbation = replace(
                perturbation, status=Status.failed, text=None, note="longer than the model reads"
            )
            reward = None
        kept.append(perturbation)
        new.append(reward)
    return kept, new


def measure(
    table: pd.DataFrame, comparisons: Mapping[str, Comparison], attributes: Mapping[str, Attribute], judge
) -> pd.DataFrame:
    """The table with the distances of each edit, the share of it inside the words identified, and whether it did what was
    asked: `syntactic`, `semantic`, `locality`, `complied`."""
    table = table.copy()
    made = table["edited"].notna().to_numpy()
    rows = table[made]
    pairs = list(zip(rows["original"], rows["edited"], strict=True))
    for column in ("syntactic", "semantic", "locality"):
        table[column] = np.nan
    table.loc[made, "syntactic"] = [syntactic(a, b) for a, b in pairs]
    table.loc[made, "semantic"] = semantic(pairs)
    table.loc[made, "locality"] = [
        locality(original, edited, None if spans is None else [tuple(span) for span in json.loads(spans)])
        for (original, edited), spans in zip(pairs, rows["spans"], strict=True)
    ]
    table["complied"] = pd.Series([None] * len(table), dtype=object)
    judged = rows[rows["attribute"] != PLACEBO]
    items = [
        (
            comparisons[row.comparison].prompt,
            row.original,
            row.edited,
            attributes[row.attribute],
            _amount(row, attributes),
        )
        for row in judged.itertuples()
    ]
    table.loc[judged.index, "complied"] = pd.Series(judge.judge(items), index=judged.index, dtype=object)
    return table


def detected(
    table: pd.DataFrame, comparisons: Mapping[str, Comparison], attributes: Mapping[str, Attribute]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What the detectors find in every original and in every edited text, rows labelled as the table, a column an attribute;
    an LLM judge counts nothing, so these are always pessimal's own."""
    made = table[table["edited"].notna()]
    prompts = [comparisons[key].prompt for key in made["comparison"]]
    judge, asked = RuleJudge(), list(attributes.values())
    before, after = (
        judge.amounts(made[column].tolist(), prompts, asked).set_axis(made.index).reindex(table.index)
        for column in ("original", "edited")
    )
    return before, after


def with_moves(table: pd.DataFrame, before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """The table with a column `moved/NAME` a detector: by how many of its standard deviations, over the different responses as
    they stand, an edit moved it; NaN without a text or an opinion."""
    first = before[~table.duplicated(["comparison", "response"]) & before.notna().any(axis=1)]
    spread = first.std(ddof=1)
    moves = (after - before) / spread.where(spread > 0)
    return table.join(moves.add_prefix(MOVED))


def _amount(row, attributes: Mapping[str, Attribute]) -> Amount:
    return attributes[row.attribute].amount(Direction(row.direction))


def smallest_flips(
    table: pd.DataFrame, known: Preferences, scorer: KeptRewards, *, tie: float, exact_hunks: int
) -> pd.DataFrame:
    """The least of each counterfactual that still flips: a row each, with the columns that name it in the table, and
    smallest, hunks, kept, tokens, tokens_before, new_margin, queries, exact, minimal."""
    rows = table[(table["outcome"] == COUNTERFACTUAL) & (table["attribute"] != PLACEBO)]
    pairs = list(zip(rows["original"], rows["edited"], strict=True))
    found = shrink(pairs, _margins(rows, known, scorer), tie=tie, exact_hunks=exact_hunks)
    return _named(rows, [_of_shrunk(one) for one in found])


def largest_holds(
    table: pd.DataFrame, known: Preferences, scorer: KeptRewards, *, tie: float
) -> pd.DataFrame:
    """The most of each response that may be changed with the preference as it was, begun at the semifactual that changes
    most and grown with the other edits of the same response: a row a response, with the columns that name the semifactual,
    and largest, tokens, tokens_before, added, attributes, new_margin, queries, maximal."""
    edits = table[table["edited"].notna() & (table["attribute"] != PLACEBO)]
    same = edits.groupby(["perturber", "comparison", "response", "direction"], sort=False)
    starts, semifactuals, sources = [], [], []
    for _, group in same:
        held = group[group["outcome"] == SEMIFACTUAL]
        if held.empty:
            continue
        start = held["syntactic"].idxmax()
        others = group.drop(index=start)
        starts.append(start)
        sources.append(others["attribute"].tolist())
        semifactuals.append(
            Semifactual(group.at[start, "original"], group.at[start, "edited"], tuple(others["edited"]))
        )
    rows = table.loc[starts]
    found = grow(semifactuals, _margins(rows, known, scorer), tie=tie)
    return _named(rows, [_of_grown(one, names) for one, names in zip(found, sources, strict=True)])


NAMED = [
    "model",
    "perturber",
    "comparison",
    "response",
    "side",
    "attribute",
    "direction",
    "seed",
    "original",
    "margin",
]


def _named(rows: pd.DataFrame, found: list[dict]) -> pd.DataFrame:
    return pd.concat(
        [rows[NAMED].reset_index(drop=True), pd.DataFrame(found, index=range(len(found)))], axis=1
    )


def _margins(rows: pd.DataFrame, known: Preferences, scorer: KeptRewards):
    """m′ of texts that stand in the place of the rows' responses, as `shrink` and `grow` ask for it."""
    by_key = {comparison.key: comparison for comparison in known.comparisons}
    places = [
        (
            by_key[row.comparison],
            known.rewards[row.comparison][1 - row.response],
            1 if row.side == CHOSEN else -1,
        )
        for row in rows.itertuples()
    ]

    def margins(asked: list[tuple[int, str]]) -> np.ndarray:
        rewards = scorer.rewards([places[number][0].conversation(text) for number, text in asked])
        others, signs = (np.array([places[number][i] for number, _ in asked]) for i in (1, 2))
        found = signs * (rewards - others)
        return np.where(np.isnan(found), 0.0, found)  # what the model cannot read neither flips nor holds

    return margins


def _of_shrunk(one: Shrunk) -> dict:
    return {
        "smallest": one.text,
        "hunks": len(one.hunks),
        "kept": len(one.kept),
        "tokens": one.tokens,
        "tokens_before": sum(hunk.tokens for hunk in one.hunks),
        "new_margin": one.margin,
        "queries": one.queries,
        "exact": one.exact,
        "minimal": one.minimal,
    }


def _of_grown(one: Grown, names: list[str]) -> dict:
    return {
        "largest": one.text,
        "tokens": one.tokens,
        "tokens_before": sum(hunk.tokens for hunk in one.own),
        "added": len(one.added),
        "attributes": ", ".join(sorted({names[source] for source in one.sources})),
        "new_margin": one.margin,
        "queries": one.queries,
        "maximal": one.maximal,
    }
