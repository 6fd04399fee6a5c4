"""A response as the detectors read it: its sentences, its words, and what each sentence means.

Knows texts and embeddings. Does not know attributes.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pessimal.demo.minilm import DIMENSIONS
from pessimal.explain.embedding import embed

_END = re.compile(r"(?<=[.!?…。！？])[\"'”’)\]]*\s+(?!$)|\n+")
# A numbered item's "1." ends no sentence, nor do these.
_NO_END = re.compile(
    r"(?:^|\s)(?:\d{1,2}|[A-Z]|Dr|Mr|Mrs|Ms|Prof|St|vs|etc|(?:[A-Za-z]\.)+[A-Za-z]|approx|No)\.[\"'”’)\]]*\s*$"
)
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_LONGEST = 80  # words: what has no full stop for longer (code, tables, hostile text) is cut, so that all of it is read


def split_sentences(text: str) -> tuple[str, ...]:
    """Sentences and lines, trimmed; those without a letter or digit are left out."""
    found, start = [], 0
    for match in _END.finditer(text):
        if "\n" not in match.group() and _NO_END.search(text[max(start, match.start() - 12) : match.start()]):
            continue
        found.append(text[start : match.end()])
        start = match.end()
    found.append(text[start:])
    sentences = []
    for sentence in found:
        words = sentence.split()
        parts = [words[at : at + _LONGEST] for at in range(0, len(words), _LONGEST)]
        sentences += [" ".join(part) for part in parts]
    return tuple(sentence for sentence in sentences if any(map(str.isalnum, sentence)))


class Meanings(Mapping[str, np.ndarray]):
    """Embeddings by text: all that are named are run together, once."""

    def __init__(self, texts: Iterable[str]):
        found = tuple(dict.fromkeys(texts))
        # In double precision from here on: what follows adds up many of them.
        self._rows = dict(zip(found, embed(found).astype(float), strict=True))

    def __getitem__(self, text: str) -> np.ndarray:
        return self._rows[text]

    def __iter__(self):
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


@dataclass(frozen=True)
class Reading:
    """One response to one prompt."""

    text: str
    """The response."""
    prompt: str
    """The user's last turn."""
    meanings: Mapping[str, np.ndarray]
    """Embeddings of length 1 of at least the prompt and of every sentence of the response."""

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """See `split_sentences`."""
        return split_sentences(self.text)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Runs of letters, in lower case, with typographic apostrophes made plain."""
        return tuple(word.lower().replace("’", "'") for word in _WORD.findall(self.text))

    @cached_property
    def vectors(self) -> np.ndarray:
        """(sentences, 384)."""
        return np.array([self.meanings[one] for one in self.sentences]).reshape(-1, DIMENSIONS)

    @cached_property
    def asked(self) -> np.ndarray:
        """(384,): the prompt's meaning."""
        return self.meanings[self.prompt]

    def count(self, pattern: re.Pattern) -> int:
        """Matches in the text, with typographic apostrophes made plain."""
        return sum(1 for _ in pattern.finditer(self.text.replace("’", "'")))

    def share(self, pattern: re.Pattern) -> float:
        """Share of sentences with a match; 0 without sentences."""
        if not self.sentences:
            return 0.0
        return float(np.mean([bool(pattern.search(one.replace("’", "'"))) for one in self.sentences]))

    def rate(self, pattern: re.Pattern) -> float:
        """Matches a word; 0 without words."""
        return self.count(pattern) / max(len(self.words), 1)
