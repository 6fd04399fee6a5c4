"""Putting score tables side by side: the vocabulary that several models share.

Knows texts and tables. Does not know any statistic.
"""

from collections.abc import Sequence

import pandas as pd

from pessimal.errors import TableError
from pessimal.tables.score_table import ScoreTable


def shared_items(tables: Sequence[ScoreTable], *, paper: bool = False) -> pd.Index:
    """Texts that every table holds exactly once, sorted; the *shared vocabulary* of the paper.

    A text that two tokens of one model decode to (byte tokens, duplicates) is left out for all models, since it
    has no single reward. Texts are compared as they decode: ' love' and 'love' are two. Special and unused
    tokens take part only where every model has them. (Christian et al. 2025, Fig. 2)

    Where a table's tokens were scored as text, ' love' and 'love' were one and the same input to templates that trim;
    counted twice they would inflate n and agreement. So of texts that differ only in outer white space one is kept,
    the barest; `paper` keeps all, as published.
    """
    if not tables:
        raise TableError("no score tables given: scan or import some first")
    shared: pd.Index | None = None
    for table in tables:
        texts = table.rows["text"]
        unique = pd.Index(texts[~texts.duplicated(keep=False)])
        shared = unique if shared is None else shared.intersection(unique)
    shared = shared.sort_values()
    as_text = any(t.identity.candidates == "vocabulary" and t.identity.mode != "ids" for t in tables)
    if as_text and not paper:
        order = pd.DataFrame({"text": shared, "bare": shared.str.strip(), "length": shared.str.len()})
        kept = order.sort_values(["bare", "length", "text"]).drop_duplicates("bare")["text"]
        shared = pd.Index(kept).sort_values()
    return shared


def reward_matrix(tables: Sequence[ScoreTable], *, paper: bool = False) -> pd.DataFrame:
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
    items = shared_items(tables, paper=paper)
    if len(items) < 3:
        raise TableError(
            f"the models {models} share {len(items)} candidates on prompt {prompts[0]!r}; at least 3 are needed. "
            "Compare scans of vocabularies with scans of vocabularies, and item lists with the same item list."
        )
    columns = {}
    for table in tables:
        rewards = table.rows.drop_duplicates("text", keep=False).set_index("text")["reward"]
        columns[table.identity.model] = rewards.reindex(items)
    return pd.DataFrame(columns, index=pd.Index(items, name="text"))
