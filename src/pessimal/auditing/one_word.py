"""One word above all others, whatever is asked: how far the best word stands ahead of the next, in
steps of the tail that the words behind it make."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.errors import TableError
from pessimal.tables.result import Effect, Result
from pessimal.tables.score_table import ScoreTable
from pessimal.texts import literal

TAIL = 50
"""Words behind the best one whose distances say how fast the tail falls off."""
SHOWN = 20
CONFIDENCE = 0.95


def least_scores(tables: Sequence[ScoreTable]) -> pd.DataFrame:
    """Words of one model by the reward that they have on every prompt at least, the best first.

    Args:
        tables: one a prompt, of the same candidates.

    Returns:
        word (lower case, bare), text (the spelling that counts), least: standard deviations above
        the mean of all ordinary tokens, on the prompt where that is least. Of the spellings of a
        word the best counts.

    Raises:
        TableError: the tables have fewer words than a tail needs, or rewards that do not differ.
    """
    first = tables[0].rows.set_index("candidate_id")
    ordinary = first.index[first["kind"].isin(("normal", "item"))]
    columns = [t.rows.set_index("candidate_id")["reward"].reindex(ordinary) for t in tables]
    rewards = np.column_stack([column.to_numpy(dtype=float) for column in columns])  # (t, prompts)
    spread = rewards.std(axis=0)
    if not (spread > 0).all():  # not a number, too
        raise TableError("the rewards of all tokens are the same, or some are missing")
    least = ((rewards - rewards.mean(axis=0)) / spread).min(axis=1)
    texts = first.loc[ordinary, "text"]
    words = texts.str.strip().str.casefold()
    table = pd.DataFrame({"word": words.to_numpy(), "text": texts.to_numpy(), "least": least})
    table = table[table["word"] != ""].sort_values("least", ascending=False, kind="stable")
    table = table.drop_duplicates("word", ignore_index=True)
    if len(table) < TAIL + 2:
        raise TableError(f"{len(table)} words; a tail needs {TAIL + 2}")
    return table


def one_word(tables: Sequence[ScoreTable], *, of: int | None = None) -> Result:
    """How far the best word is ahead of the next one, over the mean step of the tail behind it.

    Args:
        tables: one a prompt, of the same candidates.
        of: tokens of the whole vocabulary, where not all may have been scanned.

    Behind a threshold, distances between neighbours of an exponential tail, times their rank, are
    independent and exponential: the first over the mean of the next `TAIL` has an F distribution
    with 2 and 2 × TAIL degrees of freedom. The interval is for the tail's mean step.

    Raises:
        TableError: see `least_scores`.

    Source: Sukhatme 1937; Weissman 1978.
    """
    words = least_scores(tables)
    least = words["least"].to_numpy()[: TAIL + 2]
    steps = -np.diff(least) * np.arange(1, len(least))
    mean, df = steps[1:].mean(), 2 * TAIL
    if not mean > 0:
        raise TableError("the best words have the same reward: there is no tail to compare with")
    ahead = steps[0] / mean
    ends = [stats.chi2.ppf(q, df) / df for q in ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)]
    table = words.head(SHOWN).assign(rank=range(1, min(SHOWN, len(words)) + 1))
    names = ["ahead", "low", "high", "p"]
    numbers = [ahead, ahead * ends[0], ahead * ends[1], stats.f.sf(ahead, 2, df)]
    for name, number in zip(names, numbers, strict=True):
        table[name] = [number, *[np.nan] * (len(table) - 1)]  # of the first row alone
    table = table.assign(n=len(words), prompts=", ".join(t.provenance.prompt for t in tables))
    best, runner_up = (literal(text.strip()) for text in words["text"].iloc[:2])
    top = all(_is_top(table, words["word"].iloc[0]) for table in tables)
    on = "on every prompt" if len(tables) > 1 else f'on "{tables[0].provenance.prompt}"'
    effect = Effect(
        *("ahead", "gap to the next word, over the expected gap", "low", "high", "p"),
        null=1.0,
        of="words",
    )
    place = f"is the top word {on}" if top else "does best over all prompts"
    headline = f'"{best}" {place}, {ahead:.1f} times the expected gap above the next, "{runner_up}"'
    if not (whole := of is None or len(tables[0].rows) >= of):
        headline += f"; {of - len(tables[0].rows):,} tokens were not scanned"
    return Result.of_row(
        *(table.iloc[0], "one_word", table, effect, f"{headline}."),
        method="one_word",
        share=0.1,
        summary={"one_word/whole": whole},
    )


def _is_top(table: ScoreTable, word: str) -> bool:
    """Whether a spelling of this word has the highest reward of all ordinary tokens of a table."""
    rows = table.rows[table.rows["kind"].isin(("normal", "item"))]
    return bool(rows.loc[rows["reward"].idxmax(), "text"].strip().casefold() == word)
