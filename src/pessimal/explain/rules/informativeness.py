"""Informativeness: facts, reasons, examples, numbers and names.

A rule cannot know what is true of a matter in general; more is said only about words of a short list (`facts`), and
where none of them occurs the rule does not apply.
"""

import re

from pessimal.explain.rules.draw import Draw
from pessimal.explain.rules.facts import FACTS
from pessimal.explain.rules.passage import Passage
from pessimal.explain.rules.replacement import Change, Replacement
from pessimal.explain.rules.rules import (
    drop_sentences,
    normal,
    patterns,
    replace_most_related,
    whole,
    without,
)

SPECIFIC = re.compile(
    r"\d|\b(?:because|since|for example|for instance|such as|including|namely|percent|hundred|thousand|million|"
    r"billion|dozen)\b|(?<=[a-z,;] )[A-Z][a-z]+"
)
"""What makes a sentence specific: numbers, reasons, examples, names."""
_FACT_WORDS = whole(FACTS)

VAGUE_NUMBERS = patterns(
    [
        (r"(?<![\w'’-])(?:in|since|around|by) (?:1[0-9]|20)\d\d(?![\w-])(?!,)", "some time ago"),
        (
            r"(?<![\w.$€£'’-])(?:about |around |roughly |up to |at least |over )?\d+(?:[.,]\d+)*(?:[–-]\d+)?(?= (?!was\b|has\b|does\b|plus\b|times\b|divides\b|makes\b|is\b)(?:[a-z]{2,}s|percent|million|degrees|people|children)\b)",
            "some",
        ),
        (
            r"(?<![\w'’-])(?:about |around |roughly |at least )?(?:[a-z0-9]+ (?:to|or) )?(?:two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|thirty|"
            r"fifty|a hundred|a thousand|a million)(?= [a-z]{3,})(?! (?:of|or|to|and)\b)",
            "some",
        ),
        (r"(?<![\w'’-])\d+(?:\.\d+)? ?(?:%|percent)(?= of)", "a part"),
    ],
    "numbers become vague",
)
NO_ASIDES = patterns(
    [
        (r"(?<=\w) \([^()\n]{2,120}\)", ""),
        (
            r",? (?:such as|for example|for instance|including|like|namely|e\.g\.) [^.!?;:()\n]{3,160}(?=[.!?;])",
            "",
        ),
        (r",? because(?! of) [^.!?;:()\n]{3,160}(?=[.!?;])", ""),
        (r",? (?:which|who) [^,.!?;:()\n]{3,120}(?=[.!?;])", ""),
    ],
    "examples, reasons and asides are taken out",
)
VAGUE_WORDS = patterns(
    [
        (
            r"(?<![\w'’-])(?:in|from|to|of) (?-i:(?!I\b)[A-Z][a-z]{3,})(?= (?:and|is|was|are|were|in|has|by)\b|[.,;])",
            "",
        ),
        (
            r"(?<![\w'’-])(?:every day|each day|daily|every week|weekly|every month|every year)(?![\w-])",
            "at times",
        ),
        (
            r"(?<![\w'’-])(?:minutes|hours|days|weeks|months|years)(?= (?:of|in|before|after|ago|each)\b)",
            "some time",
        ),
    ],
    "names and times are taken out",
)
EMPTY = replace_most_related(
    (
        "There are various things to say about this.",
        "This is a subject with several sides.",
        "It has to do with a number of things.",
        "There is something to it.",
    ),
    "the main sentence gives way to one that says nothing",
)
DROP_REASONS = drop_sentences(
    r"\b(?:because|for example|for instance|such as|this is why|the reason|including)\b",
    "reasons and examples are taken out",
)


def drop_specific(passage: Passage, draw: Draw) -> Change | None:
    """The sentence with most numbers, names, reasons and examples is taken out."""
    counts = [len(SPECIFIC.findall(passage.of(each))) for each in passage.sentences]
    if len(counts) < 2 or not max(counts):
        return None
    return Change(
        without(passage, [passage.sentences[counts.index(max(counts))]]),
        "the most specific sentence is taken out",
    )


def add_facts(passage: Passage, draw: Draw) -> Change | None:
    """Examples or facts behind words of which some are known; each word once, two at most."""
    found, seen = [], set()
    for match in _FACT_WORDS.finditer(passage.text):
        word = normal(match.group())
        start, end = match.span()
        if (
            word in seen
            or not passage.is_free(start, end)
            or re.match(r" ?\(| such as|-|, such", passage.text[end:])
        ):
            continue
        # 'Water the plants' and 'Google Play Music': a name of several words, or a verb, is something else.
        if re.match(r" [A-Z]", passage.text[end:]) or re.search(r"[A-Z]\w+ $", passage.text[:start][-20:]):
            continue
        seen.add(word)
        found.append(Replacement(start, end, f"{match.group()} ({draw.pick(FACTS[word])})"))
    if not found:
        return None
    kept = draw.random.choice(len(found), min(2, len(found)), replace=False)
    return Change(tuple(found[int(i)] for i in sorted(kept)), "facts or examples are added behind words")
