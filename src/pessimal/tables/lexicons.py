"""Sentiment lexicons: how good or bad people say each word is.

Knows where the lexicons lie and how their files are laid out. None is vendored: AFINN-111 and TextBlob's come with the
packages `afinn` and `textblob`, which are never imported, and any other is a CSV file of one's own.
"""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pandas as pd

from pessimal.errors import InputError
from pessimal.tables.csv import check_cells, read_csv, require_columns

PACKAGED = ("afinn", "textblob")
_WORD = re.compile(r'<word form="([^"]+)"[^>]*? polarity="([^"]+)"')


def read_lexicon(source: str) -> pd.Series:
    """Valence by word (index `word`, each once, lower case), in the lexicon's own units; above 0 is good.

    Args:
        source: `afinn` (AFINN-111, Nielsen 2011: −5 … 5), `textblob` (−1 … 1; a word's senses averaged), or a CSV
            file with the columns word and valence.

    Raises:
        InputError: the package is not installed, or the file is missing, of another layout, or names a word twice.
    """
    if source == "afinn":
        return _checked(_read_afinn(), source)
    if source == "textblob":
        return _checked(_read_textblob(), source)
    return _checked(_read_file(Path(source).expanduser()), source)


def _read_afinn() -> pd.Series:
    lines = (_package("afinn") / "data" / "AFINN-111.txt").read_text(encoding="utf-8").splitlines()
    return pd.Series({word: float(valence) for word, valence in (line.split("\t") for line in lines if line)})


def _read_textblob() -> pd.Series:
    text = (_package("textblob") / "en" / "en-sentiment.xml").read_text(encoding="utf-8")
    senses = pd.DataFrame(_WORD.findall(text), columns=["word", "polarity"])
    return senses["polarity"].astype(float).groupby(senses["word"].str.lower()).mean()


def _read_file(path: Path) -> pd.Series:
    if not path.is_file():
        raise InputError(
            f"there is no lexicon {str(path)!r}; give {', '.join(PACKAGED)} or a CSV file with the columns word and valence"
        )
    table = read_csv(path)
    require_columns(path, table, ("word", "valence"), what="a lexicon has the columns word and valence")
    valence = pd.to_numeric(table["valence"], errors="coerce")
    check_cells(str(path), table["valence"], ~np.isfinite(valence), "is not a number", noun="the valence ")
    return pd.Series(valence.to_numpy(), index=table["word"].str.strip().str.lower())


def _checked(lexicon: pd.Series, source: str) -> pd.Series:
    if twice := sorted(lexicon.index[lexicon.index.duplicated()].unique()):
        raise InputError(
            f"the lexicon {source!r} names {', '.join(map(repr, twice[:5]))} twice; keep one row a word"
        )
    return lexicon.astype(float).rename_axis("word").rename("valence")


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise InputError(f"the lexicon of the package {name} needs it installed: pip install {name}")
    return Path(spec.origin).parent
