"""Clarity: explicit references and orderly sentences. Plain words and short sentences are in `plain_words`."""

import re

from pessimal.explain.rules.draw import Draw
from pessimal.explain.rules.passage import Passage
from pessimal.explain.rules.replacement import Change, Replacement
from pessimal.explain.rules.rules import (
    can_be_joined,
    first_word,
    open_with,
    patterns,
    put_behind,
)

_VERBS = "is|are|was|were|can|will|may|has|have|does|do|should|would|could"
_NOT_NOUNS = frozenset(
    [
        "the",
        "same",
        "other",
        "first",
        "last",
        "most",
        "best",
        "only",
        "one",
        "following",
        "more",
        "rest",
        "next",
        "least",
        "former",
        "latter",
        "way",
        "ones",
        "fact",
    ]
)
_PLURAL = re.compile(r"(?<![sui])s$")


def _thing(match: re.Match) -> str | None:
    noun = match.group(1).lower()
    if noun in _NOT_NOUNS or len(noun) < 4 or noun.endswith(("ed", "ly", "est", "ful", "ous", "al", "ic")):
        return None
    return "those things" if _PLURAL.search(noun) or noun in ("people", "children") else "that thing"


VAGUE = patterns(
    [(rf"(?<![\w'’-])(?:the|your|their|its) ([a-z]+)(?= (?:{_VERBS}|and|or|from|with|by)\b|[.,;])", _thing)],
    "nouns become vague references",
    most=4,
)
VAGUE_OPENING = open_with(
    (
        "What it comes down to with this is that the thing is that",
        "As regards the one and the other of it,",
        "Sort of like this:",
    ),
    "a statement opens unclearly",
    most=1,
)
MUDDLE = put_behind(
    (
        "Or the other one, if that is what is meant by it, depending on which.",
        "And this applies to the former as it does to it, except where it does not.",
        "So that is that, unless it is the other thing.",
    ),
    "an unclear sentence is added",
)
SHORT_OPENING = open_with(("In short,", "Put simply,", "In plain words,"), "it announces plain words", most=1)


def run_on(passage: Passage, draw: Draw) -> Change | None:
    """Sentences run into each other without punctuation."""
    joint = draw.pick((" and", " and so", " and then"))
    found = []
    for one, other in zip(passage.sentences, passage.sentences[1:], strict=False):
        gap = passage.text[one.end : other.start]
        if passage.of(one).endswith(".") and not gap.strip(" ") and can_be_joined(passage, other):
            end, lower = first_word(passage, other)
            found.append(Replacement(one.end - 1, end, f"{joint} {lower}"))
    return Change(tuple(found), "sentences run into each other") if found else None


def no_commas(passage: Passage, draw: Draw) -> Change | None:
    """Commas within sentences are left out."""
    found = [
        Replacement(match.start(), match.end(), "")
        for each in passage.sentences
        for match in re.compile(r",(?= )").finditer(passage.text, each.start, each.end)
        if passage.is_free(*match.span())
    ]
    return Change(tuple(found), "commas are left out") if len(found) > 1 else None


def a_line_each(passage: Passage, draw: Draw) -> Change | None:
    """Each sentence gets a line of its own: with a dash, a number or a gap."""
    sentences = passage.sentences
    if (
        len(sentences) < 3
        or "\n" in passage.text.strip()
        or any(each.start != each.line for each in sentences[:1])
    ):
        return None
    style = draw.pick(("gap", "dash")) if len(sentences) > 3 else "gap"
    found = []
    for index, sentence in enumerate(sentences):
        gap = sentences[index - 1].end if index else sentence.start
        mark = "\n\n" if style == "gap" else "\n- " if index > 1 else "\n\n- "
        if index:
            found.append(Replacement(gap, sentence.start, mark))
    return Change(tuple(found), "each sentence gets a line of its own")
