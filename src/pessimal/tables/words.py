"""From tokens to words: which word a token spells, one reward a word, which words share a stem.

A vocabulary holds a word several times (' love', 'love', 'Love', ' LOVE'); in a statistic over
words these are not independent, so they are averaged first. Knows no lexicon.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pessimal.errors import TableError, require

if TYPE_CHECKING:
    from nltk.stem.porter import PorterStemmer

LEAST_SPACED = 0.1
"""Of the texts that spell words, the share that must begin with a space for the space to be what
starts a word. In byte-level vocabularies it is about a half; in one of pieces marked otherwise
(##ing) it is 0, but for a few tokens that somebody added."""


def spelled(texts: pd.Index) -> pd.Series:
    """The word that each text spells, by position: without outer white space, in lower case; None
    where it is not all letters."""
    # Not `Series.str`: plain Python is three times as fast, and a vocabulary has 128,000 texts.
    bare = [text.strip().lower() for text in texts.tolist()]
    return pd.Series([word if word.isalpha() else None for word in bare], dtype=object)


def by_word(rewards: pd.DataFrame) -> pd.DataFrame:
    """Mean reward of each word's spellings: index `word`, sorted; the columns of `rewards`.

    Args:
        rewards: tokens × anything, index = text; a text may occur more than once.
    """
    words = spelled(rewards.index)
    keep = words.notna().to_numpy()
    return rewards[keep].groupby(words[keep].to_numpy()).mean().rename_axis("word")


def as_published(rewards: pd.DataFrame) -> pd.DataFrame:
    """One row a token, under its text in lower case as it stands: what the published joins match
    with.

    ' love' matches no lexicon; 'love', 'Love' and 'LOVE' are three rows of one name.

    Source: the code of Christian et al. 2025, Figure 3.
    """
    return rewards.set_axis(
        pd.Index([text.lower() for text in rewards.index.tolist()], dtype=object, name="word")
    )


def word_starts(texts: pd.Index) -> pd.Index:
    """Of the words that texts spell, those that some text spells as the start of a word: each once,
    in order.

    In a vocabulary that writes the space before a word into the token, 'ing' without one is a piece
    of longer words. A vocabulary is taken for such a one where at least `LEAST_SPACED` of the texts
    that spell words begin with a space; in any other (WordPiece marks pieces otherwise) all words
    are starts.
    """
    raw, words = texts.tolist(), spelled(texts).tolist()
    spaced = [word for text, word in zip(raw, words, strict=True) if word and text.startswith(" ")]
    if len(spaced) < LEAST_SPACED * sum(word is not None for word in words):
        spaced = [word for word in words if word]
    return pd.Index(list(dict.fromkeys(spaced)), dtype=object, name="word")


def stems(words: pd.Index) -> np.ndarray:
    """(n,) each word's stem: 'love', 'loved' and 'loving' share 'love'.

    Source: Porter 1980, with nltk's extensions.

    Raises:
        MissingExtraError: nltk is not installed.
    """
    return np.array([stem_of(word) for word in words.tolist()], dtype=object)


def stem_groups(words: pd.Index) -> np.ndarray:
    """(n,) the number of each word's stem, from 0."""
    return pd.factorize(stems(words))[0]


def with_half_sums(
    words: pd.DataFrame, pairs: Sequence[tuple[str, str]]
) -> tuple[pd.DataFrame, pd.Series]:
    """The prompts' rewards with the half-sum of each pair as one more column, `a × b`; and the
    scale of each column.

    The scale is the standard deviation over all words; that of a half-sum is the mean of its
    prompts', so that an effect on it is measured against the rewards of one prompt.
    """
    scales = words.std(ddof=0)
    halves = {half_sum(*pair): (words[pair[0]] + words[pair[1]]) / 2 for pair in pairs}
    scales_of_halves = {half_sum(*pair): scales[list(pair)].mean() for pair in pairs}
    return words.assign(**halves), pd.concat([scales, pd.Series(scales_of_halves, dtype=float)])


def half_sum(first: str, second: str) -> str:
    """The name of the half-sum of two prompts."""
    return f"{first} × {second}"


def check_words(words: pd.DataFrame) -> None:
    """Refuse a table of words × prompts from which no regression can be computed.

    Raises:
        TableError: no word at all, or a prompt under which all rewards are equal.
    """
    if not len(words):
        raise TableError(
            "None of these texts spells a word, which is letters only: scan a vocabulary"
        )
    if flat := [prompt for prompt in words if words[prompt].min() == words[prompt].max()]:
        raise TableError(
            f"The same reward for every word under: {', '.join(flat)}. No slope is defined; leave "
            "these prompts out, or look at the scan with `pessimal check`."
        )


@cache
def stem_of(word: str) -> str:
    """One word's stem (see `stems`)."""
    return _stemmer().stem(word)


@cache
def _stemmer() -> "PorterStemmer":
    require("nltk", why="a word's stem")
    # Here and not above: the whole of nltk takes over a second to import. Other packages' stemmers
    # (snowballstemmer's `porter`) give 2 % of words another stem, so others stand together.
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer()
