"""Changes words at random: the baseline that knows nothing of attributes or language.

Knows requests and a list of frequent words. Does not know what is asked for: the attribute and the
direction only decide, as all of the request does, which words are drawn.
"""

import re
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from typing import Annotated, Any

import numpy as np
from annotated_types import Interval
from pydantic.dataclasses import dataclass

from pessimal.errors import require
from pessimal.explaining.edits.language import generator
from pessimal.explaining.perturbers import Perturbation, Request, Status
from pessimal.explaining.perturbers.rules import OneByOne
from pessimal.options import DESCRIBED

FREQUENT = 1000
"""Words that replacements are drawn from: the most frequent of English, without what is no word of
two letters or more."""
TOKEN = re.compile(r"\S+")


@dataclass(kw_only=True, config=DESCRIBED)
class RandomEdits(OneByOne):
    """The perturber `random`. Words are what stands between white space."""

    share: Annotated[float, Interval(gt=0, le=1)] = 0.15
    """Of the words that are changed; at least one is."""

    name = "random"

    def __post_init__(self) -> None:
        """MissingExtraError without wordfreq, whose most frequent words replace others."""
        require("wordfreq", why="perturber=random", extra="explain")

    def provenance(self) -> dict[str, Any]:
        """The perturber, its share, and where its words are from."""
        words = {"words": FREQUENT, "wordfreq": metadata.version("wordfreq")}
        return {"perturber": self.name, "share": self.share, **words, "version": 1}

    def perturbed(self, request: Request) -> Perturbation:
        tokens = list(TOKEN.finditer(request.text))
        if not tokens:
            return Perturbation(request, Status.not_applicable, note="the response has no words")
        random = generator(self.name, *request.key, request.seed)
        count = min(len(tokens), max(1, round(self.share * len(tokens))))
        drawn = sorted(int(i) for i in random.choice(len(tokens), count, replace=False))
        words: list[str | None] = [token.group() for token in tokens]
        counts = {"deleted": 0, "swapped": 0, "replaced": 0}
        for at in drawn:
            counts[_change(words, at, random)] += 1
        text = _put_together(request.text, tokens, words)
        if text == request.text:
            # Two swaps can undo each other.
            words[drawn[0]] = _another(words[drawn[0]] or "", random)
            text = _put_together(request.text, tokens, words)
            counts["replaced"] += 1
        changes = ", ".join(f"{number} {kind}" for kind, number in counts.items() if number)
        note = f"of {len(tokens)} words {changes}"
        return Perturbation(request, Status.changed, text, note=note)


def _change(words: list[str | None], at: int, random: np.random.Generator) -> str:
    """Delete (None), swap with the word behind, or replace the word at a position; what was
    done."""
    kind = ("deleted", "swapped", "replaced")[int(random.integers(3))]
    word, behind = words[at], words[at + 1] if at + 1 < len(words) else None
    if kind == "deleted" and sum(each is not None for each in words) > 1:
        words[at] = None
        return kind
    if kind == "swapped" and None not in (word, behind) and word != behind:
        words[at], words[at + 1] = behind, word
        return kind
    words[at] = _another(word or "", random)
    return "replaced"


def _another(word: str, random: np.random.Generator) -> str:
    """A frequent word with the capital and the punctuation of this one, and another than it."""
    bare = re.search(r"\w+(?:['’]\w+)*", word)
    old = bare.group() if bare else word
    options = [each for each in frequent_words() if each != old.lower()]
    put = options[int(random.integers(len(options)))]
    put = put.capitalize() if old[:1].isupper() else put
    return word[: bare.start()] + put + word[bare.end() :] if bare else put


def _put_together(text: str, tokens: Sequence[re.Match[str]], words: Sequence[str | None]) -> str:
    """The text with other words between its white space; a word taken out takes the white space
    before it along."""
    pieces: list[str] = []
    position = 0
    for token, word in zip(tokens, words, strict=True):
        if word is not None:
            pieces += [text[position : token.start()] if pieces or position == 0 else "", word]
        position = token.end()
    return "".join([*pieces, text[position:]])


@cache
def frequent_words() -> tuple[str, ...]:
    """The most frequent words of English, lower case."""
    # Here and not above: wordfreq reads its lists when it is first asked.
    from wordfreq import top_n_list

    words = top_n_list("en", FREQUENT)
    return tuple(word for word in words if word.isascii() and word.isalpha() and len(word) > 1)
