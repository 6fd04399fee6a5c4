"""Putting score tables side by side: the vocabulary that several models share.

Knows texts and tables. Does not know any statistic.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pessimal.errors import TableError
from pessimal.tables.score_table import ScoreTable


def reward_matrix(
    tables: Sequence[ScoreTable], *, paper: bool = False, stripped: bool = False
) -> pd.DataFrame:
    """Rewards of the texts that every table holds exactly once, sorted; the *shared vocabulary* of
    the paper: index = text, one column per table, named by its model.

    A text that two tokens of one model decode to (byte tokens, duplicates) is left out for all
    models, since it has no single reward. Texts are compared as they decode: ' love' and 'love' are
    two. Special and unused tokens take part only where every model has them. (Christian et al.
    2025, Fig. 2)

    Where a table's tokens were scored as text, ' love' and 'love' were one and the same input to
    templates that trim; counted twice they would inflate n and agreement. So of texts that differ
    only in outer white space one is kept, the barest; `paper` keeps all, as published.

    Args:
        tables: of one candidate set and one prompt, and of different models.
        paper: count texts that are one input as often as they occur.
        stripped: compare texts without outer white space, so that ' love' of one vocabulary meets
            'love' of another; of a model's several such tokens the barest counts.

    Raises:
        TableError: a model occurs twice, prompts differ, or fewer than 3 items are shared.
    """
    models = [t.model for t in tables]
    prompts = sorted({t.provenance.prompt for t in tables})
    if len(prompts) > 1:
        raise TableError(f"one prompt at a time: got tables for {prompts}")
    if len(set(models)) < len(models):
        twice = sorted({m for m in models if models.count(m) > 1})
        raise TableError(
            f"two score tables of the same model: {twice}. Name the tables: compare "
            "tables=[FILE,FILE]"
        )
    rows = _rows_by_text(tables, stripped=stripped)
    items = _shared(tables, rows, paper=paper)
    if len(items) < 3:
        raise TableError(
            f"the models {models} share {len(items)} candidates on prompt {prompts[0]!r}; at least "
            "3 are needed. Compare vocabularies with one another, or scans of one list."
        )
    places = {id(positions): positions.reindex(items).to_numpy() for positions in rows}
    columns = {
        model: table.rewards[places[id(positions)]]
        for model, table, positions in zip(models, tables, rows, strict=True)
    }
    return pd.DataFrame(columns, index=pd.Index(items, name="text"))


def _shared(tables: Sequence[ScoreTable], rows: Sequence[pd.Series], *, paper: bool) -> pd.Index:
    """The texts that all tables have by `rows`, sorted; see `reward_matrix`."""
    if not tables:
        raise TableError("no score tables given: scan or import some first")
    first, *others = {id(positions): positions.index for positions in rows}.values()
    for positions in others:
        first = first.intersection(positions)
    shared = first.sort_values()
    as_text = any(
        t.provenance.candidates == "vocabulary" and t.provenance.mode != "ids" for t in tables
    )
    return shared[_barest(shared)] if as_text and not paper else shared


def _rows_by_text(tables: Sequence[ScoreTable], *, stripped: bool) -> list[pd.Series]:
    """Of each table the row of each text, index = text, without texts that it holds twice; one
    series for all tables of one vocabulary, as sorting 30,000 texts takes longer than everything
    that is then done with them."""
    cache: list[tuple[pd.Series, pd.Series]] = []
    positions = []
    for table in tables:
        texts = table.rows["text"]
        of_table = next((rows for other, rows in cache if other.equals(texts)), None)
        if of_table is None:
            of_table = _row_by_text(texts, stripped=stripped)
            cache.append((texts, of_table))
        positions.append(of_table)
    return positions


def _row_by_text(texts: pd.Series, *, stripped: bool) -> pd.Series:
    once = np.flatnonzero(~texts.duplicated(keep=False).to_numpy())
    rows = pd.Series(once, index=pd.Index(texts.iloc[once], name="text"))
    if not stripped:
        return rows
    rows = rows.iloc[_barest(rows.index)]
    names = [text.strip() for text in rows.index.tolist()]
    bare = rows.set_axis(pd.Index(names, dtype=rows.index.dtype, name="text"))
    return bare[bare.index != ""]


def _barest(texts: pd.Index) -> list[int]:
    """Positions, rising: of texts that differ only in outer white space the shortest, the first in
    order where two are as short."""
    # Not pandas' sorting: plain Python takes a fifth of its time.
    barest: dict[str, tuple[int, str, int]] = {}
    for position, text in enumerate(texts.tolist()):
        bare = text.strip()
        this = (len(text), text, position)
        if bare not in barest or this < barest[bare]:
            barest[bare] = this
    return sorted(position for _, _, position in barest.values())
