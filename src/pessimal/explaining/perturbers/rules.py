"""Changes responses by rule, deterministic and offline: along an attribute (`rules`, the default
and a smoke test), or without changing what they say (`placebo`, the null against which flips along
an attribute are held); or words at random (`random`), the baseline that knows no attribute.

Knows requests, the edit language, and English spelling by the rules of `placebo.yaml`. Does not
know rewards. A rule only knows spellings: what it makes better or worse is the wording, and where
none fits it says so instead of adding a stock sentence. The placebo makes the same kinds of change
whatever is asked for, and changes the number of words by two at most.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml
from annotated_types import Interval
from pydantic.dataclasses import dataclass

from pessimal.errors import ConfigError, require
from pessimal.explaining import language
from pessimal.explaining.attribute import Attribute, Edit
from pessimal.explaining.language import Draw, Passage, Replacement, generator
from pessimal.explaining.perturbers import Perturbation, Request, Status
from pessimal.options import DESCRIBED
from pessimal.tables.files import sha256_of

RULES = Path(__file__).with_name("placebo.yaml")
MOST_WORDS = 2
"""Words by which a response may become longer or shorter."""
_WORDS = ("two", "three", "four", "five", "six", "seven", "eight", "nine")
DIGITS = dict(zip(_WORDS, "23456789", strict=True))
_GAP = r"(?<=[.!?])%s(?=[A-Z])"
LAST_RESORT = (Edit(find=_GAP % "  ", put=" "), Edit(find=_GAP % " ", put="  "))
"""Used where fewer than two of the others apply: two spaces behind a sentence are seldom seen
today."""


class OneByOne(ABC):
    """A perturber that changes one response after another and whose null is by rule, as it knows no
    meaning."""

    @abstractmethod
    def perturbed(self, request: Request) -> Perturbation:
        """The perturbation of one request."""

    def perturb(self, requests: Sequence[Request]) -> list[Perturbation]:
        """One perturbation a request, in their order; each depends on its own request only."""
        return [self.perturbed(request) for request in requests]

    def placebo(self) -> "Placebo":
        """Edits by rule that keep the meaning."""
        return Placebo()


class Rules(OneByOne):
    """The perturber `rules`."""

    name = "rules"

    def __init__(self, *, attributes: Sequence[Attribute] = ()):
        """ConfigError where one of the attributes that edits will be asked for has no rules."""
        for attribute in attributes:
            if not (attribute.more or attribute.less):
                raise ConfigError(
                    f"There are no rules for the attribute {attribute.name!r}. Write some into "
                    f"conf/contrast/{attribute.name}.yaml, e.g. `more: [{{append: ' Thank "
                    "you.'}]` and `less: [{find: '\\bplease\\b', put: ''}]`, or change it with a "
                    "language model: perturber=llm"
                )

    def provenance(self) -> dict[str, Any]:
        """The perturber and what carries rules out; the rules themselves are a part of each
        attribute."""
        versions = {"version": language.VERSION, "regex": metadata.version("regex")}
        return {"perturber": self.name, **versions}

    def perturbed(self, request: Request) -> Perturbation:
        amount = request.attribute.amount(request.direction).value
        rules = getattr(request.attribute, amount)
        if not rules:
            return _unchanged(request, f"the attribute has no rules under `{amount}`")
        if reason := language.why_untouched(request.text, english=request.attribute.english):
            return _unchanged(request, reason)

        def draw(number: int) -> language.Draw:
            return language.Draw(self.name, *request.key, number, seed=request.seed)

        try:
            text, spans, note = language.edited(request.text, rules, draw)
        except language.TooSlowError as error:
            return Perturbation(request, Status.failed, note=str(error))
        if text == request.text:
            reason = f"the rules under `{amount}` find nothing to change in the response"
            return _unchanged(request, reason)
        if not text.strip():
            return _unchanged(request, f"the rules under `{amount}` leave nothing of the response")
        return Perturbation(request, Status.changed, text, spans, note)


def _unchanged(request: Request, reason: str) -> Perturbation:
    return Perturbation(request, Status.not_applicable, note=reason)


class Placebo(OneByOne):
    """The perturber `placebo`."""

    name = "placebo"

    def provenance(self) -> dict[str, Any]:
        """The perturber, a digest of its word lists, and the version of what carries them out."""
        return {"perturber": self.name, "rules": sha256_of(RULES), "version": language.VERSION}

    def perturbed(self, request: Request) -> Perturbation:
        if reason := language.why_untouched(request.text, english=True):
            return Perturbation(request, Status.not_applicable, note=reason)
        passage, draw = Passage(request.text), Draw(self.name, *request.key, seed=request.seed)
        changes = _changes(passage, draw, variants())
        if len(changes) < 2:
            changes |= _changes(passage, draw, LAST_RESORT)
        if not changes:
            reason = "no spelling, punctuation or function word that could as well be another"
            return Perturbation(request, Status.not_applicable, note=reason)
        text, pieces = draw.pick(list(changes.items()))
        spans = language.spans_of(request.text, pieces)
        return Perturbation(request, Status.changed, text, spans, "says the same in other words")


@cache
def variants() -> tuple[Edit, ...]:
    """The kinds of change, of which one that applies is drawn."""
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    return tuple(edit for rule in rules for edit in _read(rule))


def _read(rule: dict[str, Any]) -> Iterator[Edit]:
    if words := rule.get("both_ways"):
        pairs = [[side.strip() for side in pair.split(":")] for pair in words.split("|")]
        back = " | ".join(f"{put.lower()}: {word}" for word, put in pairs)
        one_way = f"| {rule['one_way']}" if "one_way" in rule else ""
        yield Edit(swap=f"{words} {one_way}", most=rule.get("most"))
        yield Edit(swap=back, most=rule.get("most"))
    elif "{word}" in rule["find"] + rule["put"]:
        for word, digit in DIGITS.items():
            find, put = (
                rule[key].replace("{word}", word).replace("{digit}", digit)
                for key in ("find", "put")
            )
            yield Edit(find=find, put=put)
    else:
        yield Edit(find=rule["find"], put=rule["put"])


def _changes(passage: Passage, draw: Draw, kinds: Sequence[Edit]) -> dict[str, list[Replacement]]:
    """The changes that apply, by the text that they make; of their places, from the first on, as
    many as keep the number of words within `MOST_WORDS`."""
    changes: dict[str, list[Replacement]] = {}
    for edit in kinds:
        taken, growth = [], 0
        for each in draw.some(language.places(passage, edit, draw), edit.most):
            words = len(each.put.split()) - len(passage.text[each.start : each.end].split())
            if abs(growth + words) <= MOST_WORDS:
                taken.append(each)
                growth += words
        if (text := language.replaced(passage.text, taken)) != passage.text:
            changes.setdefault(text, taken)
    return changes


FREQUENT = 1000
"""Words that replacements are drawn from: the most frequent of English, without what is no word of
two letters or more."""
TOKEN = re.compile(r"\S+")


@dataclass(kw_only=True, config=DESCRIBED)
class RandomEdits(OneByOne):
    """The perturber `random`. Words are what stands between white space."""

    share: Annotated[float, Interval(gt=0, le=1)] = 0.15
    """Share of the words that are changed; at least one is."""

    name = "random"

    def __post_init__(self) -> None:
        """MissingExtraError without wordfreq, whose most frequent words replace others."""
        require("wordfreq", purpose="perturber=random", extra="explain")

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
        places_drawn = sorted(int(i) for i in random.choice(len(tokens), count, replace=False))
        words: list[str | None] = [token.group() for token in tokens]
        counts = {"deleted": 0, "swapped": 0, "replaced": 0}
        for at in places_drawn:
            counts[_change(words, at, random)] += 1
        text = _put_together(request.text, tokens, words)
        if text == request.text:
            # Two swaps can undo each other.
            words[places_drawn[0]] = _another(words[places_drawn[0]] or "", random)
            text = _put_together(request.text, tokens, words)
            counts["replaced"] += 1
        changes = ", ".join(f"{number} {kind}" for kind, number in counts.items() if number)
        note = f"of {len(tokens)} words {changes}"
        return Perturbation(request, Status.changed, text, note=note)


def _change(words: list[str | None], at: int, random: np.random.Generator) -> str:
    """Delete (None), swap with the next word, or replace the word at a position; what was
    done."""
    kind = ("deleted", "swapped", "replaced")[int(random.integers(3))]
    word, following = words[at], words[at + 1] if at + 1 < len(words) else None
    if kind == "deleted" and sum(each is not None for each in words) > 1:
        words[at] = None
        return kind
    if kind == "swapped" and None not in (word, following) and word != following:
        words[at], words[at + 1] = following, word
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
