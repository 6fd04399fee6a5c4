"""Putting score tables side by side: the vocabulary that several models share.

Knows texts and tables. Does not know any statistic.
"""

from collections.abc import Sequence

import pandas as pd

from pessimal.errors import TableError
from pessimal.tables.score_table import ScoreTable


def shared_items(tables: Sequence[ScoreTable], *, paper: bool = False, stripped: bool = False) -> pd.Index:
    """Texts that every table holds exactly once, sorted; the *shared vocabulary* of the paper.

    A text that two tokens of one model decode to (byte tokens, duplicates) is left out for all models, since it
    has no single reward. Texts are compared as they decode: ' love' and 'love' are two. Special and unused
    tokens take part only where every model has them. (Christian et al. 2025, Fig. 2)

    Where a table's tokens were scored as text, ' love' and 'love' were one and the same input to templates that trim;
    counted twice they would inflate n and agreement. So of texts that differ only in outer white space one is kept,
    the barest; `paper` keeps all, as published.

    Args:
        tables: of one candidate set.
        paper: count texts that are one input as often as they occur.
        stripped: compare texts without outer white space, so that ' love' of one vocabulary meets 'love' of another;
            of a model's several such tokens the barest counts.
    """
    if not tables:
        raise TableError("no score tables given: scan or import some first")
    shared: pd.Index | None = None
    for table in tables:
        own = _rewards_by_text(table, stripped=stripped).index
        shared = own if shared is None else shared.intersection(own)
    shared = shared.sort_values()
    as_text = any(t.identity.candidates == "vocabulary" and t.identity.mode != "ids" for t in tables)
    if as_text and not paper:
        shared = _barest(pd.Series(shared, index=shared)).index.sort_values()
    return shared


def reward_matrix(
    tables: Sequence[ScoreTable], *, paper: bool = False, stripped: bool = False
) -> pd.DataFrame:
    """Rewards of the shared items (see `shared_items`): index = text, one column per table, named by its model.

    `tables` are of one prompt and of different models. Raises TableError where a model occurs twice, prompts
    differ, or fewer than 3 items are shared.
    """
    models = [t.identity.model for t in tables]
    prompts = sorted({t.identity.prompt for t in tables})
    if len(prompts) > 1:
        raise TableError(f"one prompt at a time: got tables for {prompts}")
    if len(set(models)) < len(models):
        twice = sorted({m for m in models if models.count(m) > 1})
        raise TableError(
            f"two score tables of the same model: {twice}. Name the tables: compare tables=[FILE,FILE]"
        )
    items = shared_items(tables, paper=paper, stripped=stripped)
    if len(items) < 3:
        raise TableError(
            f"the models {models} share {len(items)} candidates on prompt {prompts[0]!r}; at least 3 are needed. "
            "Compare scans of vocabularies with scans of vocabularies, and item lists with the same item list."
        )
    columns = {t.identity.model: _rewards_by_text(t, stripped=stripped).reindex(items) for t in tables}
    return pd.DataFrame(columns, index=pd.Index(items, name="text"))


def _rewards_by_text(table: ScoreTable, *, stripped: bool) -> pd.Series:
    """One reward a text, index = text; texts that the table holds twice are left out."""
    rewards = table.rows.drop_duplicates("text", keep=False).set_index("text")["reward"]
    if not stripped:
        return rewards
    kept = _barest(rewards)
    bare = kept.set_axis(kept.index.str.strip())
    return bare[bare.index != ""]


def _barest(rewards: pd.Series) -> pd.Series:
    """Of texts that differ only in outer white space the shortest, the first in order where two are as short."""
    texts = pd.Series(rewards.index, dtype=object)
    order = pd.DataFrame({"text": texts, "bare": texts.str.strip(), "length": texts.str.len()})
    kept = order.sort_values(["bare", "length", "text"]).drop_duplicates("bare").index
    return rewards.iloc[kept.sort_values()]
