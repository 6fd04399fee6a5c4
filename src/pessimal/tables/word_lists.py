"""Lists of words, as people rated them: how good they are (lexicons), and how often they are used.

Knows the layouts of files. None comes with pessimal: AFINN-111, TextBlob's lexicon and wordfreq
come with their packages, the others are files of one's own.
"""

import contextlib
import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pessimal.errors import InputError, MissingExtraError, TableError, require
from pessimal.tables.files import check_cells, read_csv, require_columns

if TYPE_CHECKING:
    from nltk.stem.porter import PorterStemmer


LEAST_SPACED = 0.1
"""Share of the texts that spell words that must begin with a space for the space to be what
starts a word. In byte-level vocabularies it is about a half; in one of pieces marked otherwise
(##ing) it is 0, but for a few tokens that somebody added."""


def spelled(texts: pd.Index) -> pd.Series:
    """The word that each text spells, by position: without outer white space, in lower case; None
    where it is not all letters."""
    return pd.Series(_spell(tuple(texts.tolist())), dtype=object)


@lru_cache(maxsize=16)
def _spell(texts: tuple[str, ...]) -> list[str | None]:
    """`spelled`, once for each vocabulary."""
    # Not `Series.str`: plain Python is three times as fast, and a vocabulary has 128,000 texts.
    bare = [text.strip().lower() for text in texts]
    return [word if word.isalpha() else None for word in bare]


def word_means(rewards: pd.DataFrame) -> pd.DataFrame:
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
    """The words that some of the texts spell as the start of a word: each once, in order.

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


def add_half_sums(
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
        raise TableError("None of these texts is a word, of letters only: scan a vocabulary")
    if flat := [prompt for prompt in words if words[prompt].min() == words[prompt].max()]:
        raise TableError(f"The same reward for every word under: {', '.join(flat)}")


@cache
def stem_of(word: str) -> str:
    """One word's stem (see `stems`)."""
    return _stemmer().stem(word)


@cache
def _stemmer() -> "PorterStemmer":
    require("nltk", purpose="a word's stem")
    # Here and not above: the whole of nltk takes over a second to import. Other packages' stemmers
    # (snowballstemmer's `porter`) give 2 % of words another stem, so others stand together.
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer()


log = logging.getLogger(__name__)

NAMED = ("afinn", "textblob")
COMMON_ZIPF = 3.0
"""One use in a million words."""
_SENSE = re.compile(r'<word form="([^"]+)"[^>]*? polarity="([^"]+)"')


def read_lexicon(source: str) -> pd.Series:
    """Valence by word (index `word`, each once, lower case), in the lexicon's own units; above 0 is
    good.

    Args:
        source: `afinn` (AFINN-111, Nielsen 2011: −5 … 5), `textblob` (−1 … 1; a word's senses
            averaged), or a CSV file with the columns word and valence.

    Raises:
        MissingExtraError: the lexicon's package is not installed.
        InputError: the file is missing, of another layout, or names a word twice.
    """
    if source == "afinn":
        return _checked(_read_afinn(), source)
    if source == "textblob":
        return _checked(_read_textblob(), source)
    return _checked(_read_file(Path(source).expanduser()), source)


def read_lexicons(sources: Mapping[str, str]) -> dict[str, pd.Series]:
    """Lexicons by name. One whose package is not installed is left out, which the log says.

    Raises:
        InputError: as `read_lexicon`.
    """
    lexicons = {}
    for name, source in sources.items():
        try:
            lexicons[name] = read_lexicon(source)
        except MissingExtraError as missing:
            log.warning("%s", missing)
    return lexicons


def common(words: Sequence[str]) -> np.ndarray:
    """Whether people use each word (n,) at least once in a million, or have rated it in AFINN or
    TextBlob: the words that statistics are about. All of them where wordfreq is not installed."""
    try:
        used = read_frequencies("wordfreq").zipf(words).to_numpy() >= COMMON_ZIPF
    except MissingExtraError:
        return np.ones(len(words), dtype=bool)
    index = pd.Index(words, dtype=object)
    for source in NAMED:
        with contextlib.suppress(MissingExtraError):
            used |= read_lexicon(source).index.get_indexer(index) >= 0
    return used


def _read_afinn() -> pd.Series:
    folder = require("afinn", purpose="the lexicon AFINN-111") / "data"
    lines = (folder / "AFINN-111.txt").read_text(encoding="utf-8").splitlines()
    return pd.Series(
        {word: float(valence) for word, valence in (line.split("\t") for line in lines if line)}
    )


def _read_textblob() -> pd.Series:
    folder = require("textblob", purpose="TextBlob's lexicon") / "en"
    text = (folder / "en-sentiment.xml").read_text(encoding="utf-8")
    senses = pd.DataFrame(_SENSE.findall(text), columns=["word", "polarity"])
    return senses["polarity"].astype(float).groupby(senses["word"].str.lower()).mean()


def _read_file(path: Path) -> pd.Series:
    table = _read_columns(path, "lexicon", ("word", "valence"), names=", ".join(NAMED))
    valence = pd.to_numeric(table["valence"], errors="coerce")
    check_cells(
        str(path), table["valence"], ~np.isfinite(valence), "is not a number", noun="the valence "
    )
    return pd.Series(valence.to_numpy(), index=table["word"].str.strip().str.lower())


def _read_columns(path: Path, noun: str, columns: tuple[str, str], *, names: str) -> pd.DataFrame:
    """The rows of a CSV file of words; InputError where it is missing or lacks a column."""
    has = f"the columns {' and '.join(columns)}"
    if not path.is_file():
        raise InputError(f"there is no {noun} {str(path)!r}; give {names} or a CSV file with {has}")
    table = read_csv(path)
    require_columns(path, table, columns, layout=f"a {noun} has {has}")
    return table


def _checked(lexicon: pd.Series, source: str) -> pd.Series:
    if twice := sorted(lexicon.index[lexicon.index.duplicated()].unique()):
        raise InputError(
            f"the lexicon {source!r} names {', '.join(map(repr, twice[:5]))} twice; keep one row"
        )
    return lexicon.astype(float).rename_axis("word").rename("valence")


ZIPF_OF_ONE_PER_MILLION = 3.0


@dataclass(frozen=True)
class Frequencies:
    """Word frequencies of English."""

    source: str
    """Source to cite."""
    rows: pd.DataFrame | None = None
    """A list's own rows, word and per_million; a word may have several (one a part of speech). None
    for wordfreq."""
    forms: pd.DataFrame | None = None
    """The rows of word forms in a list by lemma, word and per_million; None where `rows` are of
    forms."""

    def zipf(self, words: Iterable[str]) -> pd.Series:
        """Zipf frequency by word (index `word`, in the order given); NaN for words that are not
        known.

        A word with several rows in a list is as frequent as these together.

        Raises:
            MissingExtraError: wordfreq is asked and not installed.
        """
        index = pd.Index(list(words), name="word")
        if self.rows is None:
            require("wordfreq", purpose="word frequency")
            values = pd.Series(map(_wordfreq_zipf, index), index=index, name="zipf", dtype=float)
            return values.where(values > 0)
        total = self._total.reindex(index)
        return np.log10(total.where(total > 0)).add(ZIPF_OF_ONE_PER_MILLION).rename("zipf")

    @cached_property
    def _total(self) -> pd.Series:
        """Uses per million by word form of a list."""
        rows = self.rows if self.forms is None else self.forms
        assert rows is not None
        return rows.groupby("word")["per_million"].sum()


def read_frequencies(source: str) -> Frequencies:
    """`wordfreq`, a CSV file with the columns word and per_million, or the British National Corpus
    list as it is given out (a text file, tab-separated: Word, PoS, Freq, Ra, Disp; Leech, Rayson &
    Wilson 2001).

    Of the latter, `rows` are its headwords as they are spelled, a lemma with the sum of its forms,
    which is what the published join matched; `forms` are the forms themselves in lower case, so
    that no use counts twice.

    Raises:
        InputError: the file is missing, of another layout, or holds what is no frequency.
    """
    if source == "wordfreq":
        return Frequencies(source="wordfreq (Robyn Speer; data CC-BY-SA 4.0)")
    path = Path(source).expanduser()
    if path.is_file() and _is_bnc_list(path):
        return _read_bnc_list(path)
    columns = ("word", "per_million")
    table = _read_columns(path, "frequency list", columns, names="wordfreq")
    per_million = pd.to_numeric(table["per_million"], errors="coerce")
    wrong = ~((per_million >= 0) & np.isfinite(per_million))
    check_cells(str(path), table["per_million"], wrong, "is no frequency per million words")
    words = table["word"].str.strip().str.lower()
    return Frequencies(
        source=path.name, rows=pd.DataFrame({"word": words, "per_million": per_million})
    )


_BNC_COLUMNS = ["Word", "PoS", "Freq", "Ra", "Disp"]


def _is_bnc_list(path: Path) -> bool:
    with path.open("rb") as file:
        heading = file.readline().decode("latin-1")
    return "\t" in heading and heading.split() == _BNC_COLUMNS


def _read_bnc_list(path: Path) -> Frequencies:
    """Lines of tab-separated cells, most after a leading tab: word, part of speech, in most a form,
    then three numbers, of which the first is per million. In the place of the form, `%` marks a
    lemma's sum, `:` a lemma without other forms; `@` in the place of the word repeats the lemma
    above. Lines of another layout are counted in `source`."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        text = path.read_text(encoding="latin-1")  # as it is given out
    headwords, forms, n_other, lemma = [], [], 0, ""
    summed: list[tuple[str, float]] = []  # the lemma above, while none of its forms has come
    for line in text.split("\n")[1:]:
        cells = line.rstrip("\r").removeprefix("\t").rstrip("\t").split("\t")
        if cells == [""]:
            continue
        if len(cells) not in (5, 6) or not all(map(_is_number, cells[-3:])):
            n_other += 1
            continue
        word, mark, used = cells[0].strip().lower(), cells[-4].strip(), float(cells[-3])
        if word == "@":  # a form of the lemma above, or where none stands, the lemma once more
            forms.append((lemma if mark == "@" or len(cells) == 5 else mark.lower(), used))
            summed = []
            continue
        forms += summed
        lemma = word
        headwords.append((cells[0].strip(), used))
        summed = [(word, used)] if mark == "%" else []
        forms += [(word, used)] if mark != "%" else []
    if not headwords:
        raise InputError(f"{path} has no line of {', '.join(_BNC_COLUMNS)}, tab-separated")
    forms += summed
    columns = ["word", "per_million"]
    left = f" ({n_other} lines of another layout left out)" if n_other else ""
    return Frequencies(
        source=f"{path.name}{left}",
        rows=pd.DataFrame(headwords, columns=columns),
        forms=pd.DataFrame(forms, columns=columns),
    )


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


@cache
def _wordfreq_zipf(word: str) -> float:
    """0 for a word that is not known."""
    # Kept for good: wordfreq keeps 100,000 words, which ten vocabularies exceed, and 57,000 words
    # then take 1 s anew.
    import wordfreq  # reads 4 MB of frequencies

    if word.isascii() and word.isalpha():  # one word, which wordfreq would take apart, slowly
        frequency = wordfreq.get_frequency_dict("en", "best").get(word.lower())
        return round(math.log10(frequency) + ZIPF_OF_ONE_PER_MILLION + 6, 2) if frequency else 0.0
    return wordfreq.zipf_frequency(word, "en")


TERM_COLUMNS = ("name", "token_decoded", "word")
"""Columns of a list of terms: the first of these that is there."""


def read_terms(path: Path) -> pd.Series:
    """The texts of a list as they stand, white space included: a CSV file with the column name,
    token_decoded or word, whatever stands beside it (the published token intersection has row
    numbers under no name).

    Raises:
        InputError: the file cannot be read, has no such column, or no row.
    """
    table = read_csv(path)
    column = next((name for name in TERM_COLUMNS if name in table), None)
    if column is None or table.empty:
        names = f"{', '.join(TERM_COLUMNS[:-1])} or {TERM_COLUMNS[-1]}"
        raise InputError(f"{path} has no rows with a column {names}: {list(table.columns)}")
    return table[column].rename("term")
