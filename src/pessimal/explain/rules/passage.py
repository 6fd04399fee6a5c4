"""A response as its rules see it: sentences, what must not be touched, and how much each has to do with the prompt.

Knows English spelling and Markdown's lists and code. Does not know attributes.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cached_property

from pessimal.explain.rules.stop_words import ENGLISH_ONLY, STOP_WORDS

WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
UNTOUCHED = re.compile(r"`[^`\n]+`|https?://\S+|www\.\S+|[\w.+-]{1,64}@[\w-]+\.[\w.-]+|\$\$?[^$\n]+\$\$?")
MARKER = re.compile(r"[ \t]*(?:(?:[-*•+]|\d{1,3}[.)]|#{1,6}|>)[ \t]+)*")
BOUNDARY = re.compile(r"[.!?…]+[\"'”’)\]*_]*[ \t]+(?=[\"'“‘(\[*_]*[A-Z0-9À-Þ])|[。！？]")
ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|vs|etc|e\.g|i\.e|cf|approx|No|Fig|U\.S|U\.K|[A-Z]|\d{1,3})$"
)
ENOUGH_WORDS = 8
"""A text of fewer words is not asked whether it is English."""
LEAST_ENGLISH = 0.12
"""Share of the words of an English text that are words like 'the' and 'is' which no neighbour of English has."""


@dataclass(frozen=True)
class Sentence:
    """Where one stands."""

    start: int
    """Its first character, behind the marker of a list."""
    end: int
    """The character behind its last."""
    line: int
    """First character of its line, before the marker."""
    listed: bool
    """Whether its line begins with the mark of a list, a heading or a quotation."""
    numbered: bool
    """Whether its line begins with a number, as in a list."""


@dataclass(frozen=True)
class Passage:
    """One response and the prompt it answers."""

    text: str
    """The response."""
    prompt: str = ""
    """The user's last turn."""

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Its words in lower case."""
        return tuple(word.lower().replace("’", "'") for word in WORD.findall(self.text))

    @cached_property
    def untouched(self) -> tuple[tuple[int, int], ...]:
        """(start, end) of code, formulas and addresses."""
        fences = [match.start() for match in FENCE.finditer(self.text)]
        blocks = []
        for first, last in zip(fences[::2], [*fences[1::2], len(self.text)], strict=False):
            end = self.text.find("\n", last)
            blocks.append((first, len(self.text) if end < 0 else end))
        inline = [match.span() for match in UNTOUCHED.finditer(self.text)]
        return tuple(sorted(blocks + [span for span in inline if not _overlaps(span, blocks)]))

    def is_free(self, start: int, end: int) -> bool:
        """Whether a piece lies outside code, formulas and addresses."""
        index = bisect_right(self._ends, start)
        return index == len(self.untouched) or self.untouched[index][0] >= end

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        return tuple(end for _, end in self.untouched)

    @cached_property
    def sentences(self) -> tuple[Sentence, ...]:
        """Its sentences; a new line ends one, and what has no letter or lies in a block of code is none."""
        found: list[Sentence] = []
        line = 0
        for content in self.text.splitlines(keepends=True):
            here = self._sentences_of_line(line, line + len(content.rstrip()))
            if found and here and self._goes_on(found[-1], here[0]):
                before = found.pop()
                here[0] = replace(before, end=here[0].end)
                here[1:] = [replace(each, line=before.line) for each in here[1:]]
            found += here
            line += len(content)
        return tuple(found)

    @cached_property
    def starts(self) -> frozenset[int]:
        """First characters of sentences, and of their first words behind quotes and asterisks."""
        firsts = set()
        for each in self.sentences:
            word = WORD.search(self.text, each.start, each.end)
            firsts |= {each.start, word.start() if word else each.start}
        return frozenset(firsts)

    def of(self, sentence: Sentence) -> str:
        """The text of a sentence."""
        return self.text[sentence.start : sentence.end]

    @cached_property
    def related(self) -> tuple[float, ...]:
        """How much each sentence has to do with the prompt: the share of the prompt's content words that it holds."""
        asked = content_words(self.prompt)
        return tuple(
            len(asked & content_words(self.of(each))) / max(1, len(asked)) for each in self.sentences
        )

    @cached_property
    def central(self) -> tuple[float, ...]:
        """How much each sentence shares with the others: the share of its content words that another has too."""
        bags = [content_words(self.of(each)) for each in self.sentences]
        counts: dict[str, int] = {}
        for bag in bags:
            for word in bag:
                counts[word] = counts.get(word, 0) + 1
        return tuple(sum(counts[word] > 1 for word in bag) / max(1, len(bag)) for bag in bags)

    @cached_property
    def why_not(self) -> str | None:
        """Why no rule for English can be used; None where one can."""
        if not self.text.strip():
            return "the response is empty"
        if not any(word.isascii() for word in self.words):
            return "the response has no English words"
        if not self.sentences:
            return "the response is code or addresses only"
        if len(self.words) >= ENOUGH_WORDS:
            english = sum(word in ENGLISH_ONLY for word in self.words)
            if english < LEAST_ENGLISH * len(self.words):
                return "the response does not read as English"
        return None

    def _sentences_of_line(self, start: int, end: int) -> list[Sentence]:
        marker = MARKER.match(self.text, start, end)
        listed = bool(marker.group().strip())
        numbered = any(character.isdigit() for character in marker.group())
        cuts = [marker.end()]
        for match in BOUNDARY.finditer(self.text, marker.end(), end):
            stop = match.group().rstrip()
            before = self.text[max(start, match.start() - 12) : match.start()]
            if not (stop == "." and ABBREVIATION.search(before) and not _closes(before)):
                cuts.append(match.end())
        found = []
        for first, last in zip(cuts, [*cuts[1:], end], strict=True):
            last = first + len(self.text[first:last].rstrip())
            if WORD.search(self.text, first, last) and not self._in_code(first, last):
                found.append(Sentence(first, last, start, listed, numbered))
        return found

    def _goes_on(self, before: Sentence, after: Sentence) -> bool:
        """Whether a line goes on with the sentence of the line before, as in a poem or a wrapped text."""
        gap = self.text[before.end : after.start]
        return (
            not (before.listed or after.listed)
            and gap.strip() == ""
            and gap.count("\n") == 1
            and self.text[before.end - 1] not in ".!?…:"
            and self.text[after.start].islower()
        )

    def _in_code(self, start: int, end: int) -> bool:
        index = bisect_right(self._ends, start)
        return (
            index < len(self.untouched)
            and self.untouched[index][0] <= start
            and end <= self.untouched[index][1]
        )


def content_words(text: str) -> frozenset[str]:
    """Stems of its words without those that any text has."""
    words = (word.lower() for word in WORD.findall(text))
    return frozenset(stem(word) for word in words if len(word) > 2 and word not in STOP_WORDS)


def stem(word: str) -> str:
    """Roughly what inflected forms have in common; only to be compared, never shown."""
    for ending in ("'s", "’s", "ing", "ies", "ed", "es", "ly", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def _closes(before: str) -> bool:
    """Whether a capital or a number before a full stop ends a sentence all the same: 'vitamin C.', 'in 12.'"""
    return bool(re.search(r"[a-z]{3,} (?:[A-HJ-Z]|\d{1,3})$", before)) and not before.lower().endswith(" no")


def _overlaps(span: tuple[int, int], others) -> bool:
    return any(span[0] < end and start < span[1] for start, end in others)
