"""Putting score tables side by side: the vocabulary that several models share.

Knows texts and tables. Does not know any statistic.
"""

from collections.abc import Sequence

import pandas as pd

from pessimal.errors import TableError
from pessimal.tables.score_table import ScoreTable


def shared_items(tables: Sequence[ScoreTable]) -> pd.Index:
    """Texts that every table holds exactly once, sorted; the *shared vocabulary* of the paper.

    A text that two tokens of one model decode to (byte tokens, duplicates) is left out for all models, since it
    has no single reward. Texts are compared as they decode: ' love' and 'love' are two. Special and unused
    tokens take part only where every model has them. (Christian et al. 2025, Fig. 2)
    """
    if not tables:
        raise TableError("no score tables given: scan or import some first")
    shared: pd.Index | None = None
    for table in tables:
        texts = table.rows["text"]
        unique = pd.Index(texts[~texts.duplicated(keep=False)])
        shared = unique if shared is None else shared.intersection(unique)
    return shared.sort_values()


def reward_matrix(tables: Sequence[ScoreTable], items: pd.Index | None = None) -> pd.DataFrame:
    """Rewards of the shared items: index = text, one column per table, named by its model.

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
    items = shared_items(tables) if items is None else items
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
