"""Which score tables carry people's Elo of the items, and whether they carry the same.

Knows score tables; knows no statistic of agreement.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from pessimal.config.schema import Join
from pessimal.errors import TableError
from pessimal.report.contents import Entry
from pessimal.tables import ScoreTable
from pessimal.tasks.findings.factorial import some
from pessimal.tasks.findings.group import Group, Scene

PEOPLE = ["elo", "elo_matches"]
"""What a table says of people."""


def only_rated(scene: Scene) -> Scene:
    """The scene with those models only whose tables have Elo; an entry names the others, if there are any."""
    group = scene.group
    rated = [table for table in group.tables if table.has_elo]
    if len(rated) == len(group.tables):
        return scene
    labels = group.labels()
    bare = [labels[table.identity.model] for table in group.tables if not table.has_elo]
    scene.section.entries.append(
        Entry(
            "Not compared with people",
            f"{some(bare)}: of {len(group.tables)} score tables {len(bare)} {'has' if len(bare) == 1 else 'have'} no Elo of "
            f"the items, so nothing is said of how far {'this model agrees' if len(bare) == 1 else 'these models agree'} with "
            "people. Score the items again from a file that has it: candidates=items with a column elo_score, or "
            "pessimal import format=eloeverything.",
        )
    )
    kept = [table.identity.model for table in rated]
    return replace(scene, group=replace(group, tables=rated), rewards=scene.rewards[kept])


def people_of(scene: Scene) -> pd.DataFrame:
    """Elo and match counts of the items compared, index as the rewards', columns elo and elo_matches (NaN if not there).

    Raises TableError where two tables do not give the items the same: one order of people is compared with all.
    """
    first, *others = scene.group.tables
    stripped = scene.config.join is Join.stripped
    people = _people(first, stripped=stripped).reindex(scene.rewards.index)
    for other in others:
        found = _people(other, stripped=stripped).reindex(scene.rewards.index)
        differs = ~np.isclose(people, found, rtol=0, atol=0, equal_nan=True).all(axis=1)
        if differs.any():
            at = int(np.argmax(differs))
            told = " and ".join(
                f"{rated['elo'].iloc[at]:g} ({rated['elo_matches'].iloc[at]:g} matches)"
                for rated in (people, found)
            )
            a, b = first.identity.model, other.identity.model
            raise TableError(
                f"score tables {first.name!r} and {other.name!r} cannot be put beside people together: they give "
                f"{int(differs.sum()):,} of {len(people):,} items another Elo or number of matches (first: "
                f"{people.index[at]!r}, {told}). Score or import one of them again from the other's file of items, or "
                f"compare the two apart: models=[{a}], then models=[{b}]"
            )
    return people


def other_people(members: Mapping[str, Group]) -> list[str]:
    """Prompts whose tables do not give the items the Elo that those of the first prompt do."""
    elo = {
        prompt: _people(table, stripped=False)["elo"]
        for prompt, group in members.items()
        if (table := next((table for table in group.tables if table.has_elo), None))
    }
    if not elo:
        return []
    first = next(iter(elo.values()))
    # Of items that are not in both lists nothing is known to differ.
    return [prompt for prompt, other in elo.items() if (first - other).abs().max() > 0]


def _people(table: ScoreTable, *, stripped: bool) -> pd.DataFrame:
    """What one table says of people, by text, for the texts that a reward matrix can hold."""
    rows = table.rows.drop_duplicates("text", keep=False)
    if stripped:
        # As the reward matrix does: of texts that differ in outer white space only, the barest.
        barest = rows.loc[rows["text"].str.len().sort_values(kind="stable").index]
        rows = barest.assign(text=barest["text"].str.strip()).drop_duplicates("text")
    return rows.set_index("text").reindex(columns=PEOPLE).astype(float)
