"""The edit language: rules that change a text, written as data (`conf/contrast/ATTRIBUTE.yaml`).

Knows texts: sentences, what must not be touched (code, formulas, addresses), and how capitals,
articles and spaces follow a change. Does not know attributes: what a rule is meant for stands
beside it in its file.
"""

import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import groupby
from typing import NamedTuple, TypeVar

import numpy as np
import regex

from pessimal.explaining.attribute import Edit
from pessimal.texts import WORD, sentences

VERSION = 1
"""Version of the language: raise it where the same rules and seed would make another text."""
MOST_SECONDS = 2.0
"""Seconds of one expression on one response. Some expressions, such as (a+)+b, take longer than the
age of the universe; those that are anywhere near this limit should be rewritten, for which side of
it they fall on depends on the machine."""
MOST_READ, MOST_CHARACTERS = 50_000, 1_000_000
"""Characters of a response that rules look at, which is more than language models write; and of
what edits may make of it, since each may multiply it."""

Option = TypeVar("Option")


class TooSlowError(Exception):
    """An expression did not come to an end within `MOST_SECONDS`, or its text would be too long."""


# 1. Draws


class Draw:
    """Choices that depend on one request and one seed: the same request makes the same ones,
    whatever else is asked."""

    def __init__(self, *names: str | int, seed: int):
        self._names, self._seed = names, seed

    @cached_property
    def _start(self) -> np.random.Generator:
        return generator(*self._names)

    @cached_property
    def _random(self) -> np.random.Generator:
        return generator(*self._names, self._seed)

    def pick(self, options: Sequence[Option]) -> Option:
        """One of the options. Seeds walk round them from a start that does not depend on the seed:
        two seeds that differ by less than their number choose differently, which independent draws
        would not."""
        start = int(self._start.integers(len(options)))
        return options[(start + self._seed) % len(options)]

    def some(self, options: Sequence[Option], limit: int | None) -> list[Option]:
        """At most this number of the options, in their order."""
        if limit is None or len(options) <= limit:
            return list(options)
        rows = self._random.choice(len(options), limit, replace=False)
        return [options[i] for i in sorted(rows.tolist())]


def generator(*names: str | int) -> np.random.Generator:
    """A generator from a digest of names and numbers; not from `hash`, which differs from process
    to process."""
    # JSON escapes lone surrogates, which UTF-8 has no bytes for.
    digest = hashlib.sha256(json.dumps(names).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16]))


# 2. Sentences

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_ADDRESS = r"https?://\S+|www\.\S+|[\w.+-]{1,64}@[\w-]+\.[\w.-]+"
_UNTOUCHED = re.compile(rf"`[^`\n]+`|{_ADDRESS}|\$\$?[^$\n]+\$\$?")
_MARKER = re.compile(r"[ \t]*(?:(?:[-*•+]|\d{1,3}[.)]|#{1,6}|>)[ \t]+)*")
_ENGLISH = frozenset(
    """
    about all also and any are as at be because been but by can could did do does don't each for
    from had has have he her his how i'm i've if into is it it'll it's its just know many more
    most my no not of on one only or other our over she should some than that the their them then
    there these they this those through to use very was we were what when which while who will
    with would you you're your
    """.split()  # noqa: SIM905
)
"""Words of English that its neighbours do not spell alike, with a few exceptions; a fifth of any
English text and more."""
_ENOUGH_WORDS, _LEAST_ENGLISH = 8, 0.12
"""A text of fewer words is not asked whether it is English; the share of those words that an
English text has."""


class Sentence(NamedTuple):
    """Where one stands, in characters."""

    start: int  # behind the marker of a list
    end: int
    line: int  # where its line begins, before the marker


class Passage:
    """A text as rules see it."""

    def __init__(self, text: str):
        self.text = text

    @cached_property
    def untouched(self) -> tuple[tuple[int, int], ...]:
        """(start, end) of code, formulas and addresses."""
        fences = [match.start() for match in _FENCE.finditer(self.text)]
        blocks = []
        for first, close in zip(fences[::2], [*fences[1::2], len(self.text)], strict=False):
            end = self.text.find("\n", close)
            blocks.append((first, len(self.text) if end < 0 else end))
        spans = blocks + [match.span() for match in _UNTOUCHED.finditer(self.text)]
        pieces = disjoint(Replacement(*span, "") for span in spans)
        return tuple((start, end) for start, end, _ in pieces)

    def is_free(self, start: int, end: int) -> bool:
        """Whether a piece lies outside code, formulas and addresses."""
        index = bisect_right(self.untouched, start, key=lambda span: span[1])
        return index == len(self.untouched) or self.untouched[index][0] >= end

    @cached_property
    def sentences(self) -> tuple[Sentence, ...]:
        """Its sentences; a line that does not go on with the one before ends one, and code or what
        has no letter is none."""
        whole: list[Sentence] = []
        line = 0
        for content in self.text.splitlines(keepends=True):
            on_line = list(self._line_sentences(line, line + len(content.rstrip())))
            if whole and on_line and self._goes_on(whole[-1], on_line[0]):
                before = whole.pop()
                on_line = [each._replace(line=before.line) for each in on_line]
                on_line[0] = on_line[0]._replace(start=before.start)
            whole += on_line
            line += len(content)
        return tuple(whole)

    @cached_property
    def openings(self) -> frozenset[int]:
        """Where the first words of sentences begin, behind quotes and asterisks too."""
        words = (WORD.search(self.text, each.start, each.end) for each in self.sentences)
        return frozenset(word.start() for word in words if word)

    def text_of(self, sentence: Sentence) -> str:
        """The text of a sentence."""
        return self.text[sentence.start : sentence.end]

    def _line_sentences(self, start: int, end: int) -> Iterator[Sentence]:
        marker = _MARKER.match(self.text, start, end)
        for cut, sentence_end in sentences(self.text, marker.end() if marker else start, end):
            index = bisect_right(self.untouched, cut, key=lambda span: span[1])
            near = self.untouched[index : index + 1]
            is_code = any(begin <= cut and sentence_end <= stop for begin, stop in near)
            if WORD.search(self.text, cut, sentence_end) and not is_code:
                yield Sentence(cut, sentence_end, start)

    def _goes_on(self, before: Sentence, after: Sentence) -> bool:
        """Whether a line goes on with the sentence of the line before, as in a poem or a wrapped
        text."""
        is_next = self.text[before.end : after.start].strip(" \t") == "\n"
        is_open = self.text[before.end - 1] not in ".!?…:"
        return is_next and is_open and self.text[after.start].islower()


def why_untouched(text: str, *, english: bool) -> str | None:
    """Why rules, which may be for English, say nothing of a response; None where they can be
    used."""
    if len(text) > MOST_READ:
        return f"the response is longer than {MOST_READ:,} characters"
    if not english:
        return None
    words = [word.lower().replace("’", "'") for word in WORD.findall(text)]
    if not any(word.isascii() for word in words):
        return "the response has no English words"
    english_words = sum(word in _ENGLISH for word in words)
    if len(words) >= _ENOUGH_WORDS and english_words < _LEAST_ENGLISH * len(words):
        return "the response does not read as English"
    return None


# 3. Pieces of a text and what takes their place

_ARTICLE = re.compile(r"(?<![\w'’])an?\s+$", re.IGNORECASE)
_CONSONANT = re.compile(r"(?:uni|use|usu|eu|one\b|once\b)", re.IGNORECASE)
_SILENT_H = re.compile(r"(?:hour|honest|honou?r|heir)", re.IGNORECASE)


class Replacement(NamedTuple):
    """One piece of a text and what takes its place."""

    start: int
    end: int  # equal to `start` where text is only put in
    put: str


def replaced(text: str, pieces: Iterable[tuple[int, int, str]]) -> str:
    """The text with every piece replaced; they are disjoint and in order."""
    parts, position = [], 0
    for start, end, put in pieces:
        parts += [text[position:start], put]
        position = end
    return "".join([*parts, text[position:]])


def disjoint(pieces: Iterable[Replacement]) -> list[Replacement]:
    """Disjoint pieces: of those that overlap, the one that begins first; of those, the longest."""
    taken: list[Replacement] = []
    for each in sorted(pieces, key=lambda piece: (piece.start, -piece.end)):
        if not taken or each.start >= taken[-1].end:
            taken.append(each)
    return taken


def word_put(passage: Passage, start: int, end: int, put: str) -> Replacement:
    """`put` in place of the words from `start` to `end`, with their capitals and the article that
    fits."""
    text, opens = passage.text, start in passage.openings
    if not put:
        return _taken_out(text, start, end, opens=opens)
    old = text[start:end]
    letters = [character for character in old if character.isalpha()]
    if len(letters) > 1 and all(character.isupper() for character in letters):
        put = put.upper()
    elif opens or (old[:1].isupper() and not re.match(r"I\b", old)):
        put = _capitalised(put)
    if article := _ARTICLE.search(text, max(0, start - 5), start):
        vowel = put[:1].lower() in set("aeiou") and not _CONSONANT.match(put)
        vowel = vowel or bool(_SILENT_H.match(put))
        fitting = "an" if vowel else "a"
        if article.group().split()[0].lower() != fitting:
            fitting = fitting.capitalize() if article.group()[0].isupper() else fitting
            return Replacement(article.start(), end, f"{fitting} {put}")
    return Replacement(start, end, put)


def _capitalised(text: str) -> str:
    first = next((i for i, character in enumerate(text) if character.isalnum()), 0)
    return text[:first] + text[first : first + 1].upper() + text[first + 1 :]


def _taken_out(text: str, start: int, end: int, *, opens: bool) -> Replacement:
    """The words from `start` to `end` taken out with the comma and the space that were theirs."""
    after = _end(r",?[ \t]*", text, end)
    if opens:
        letter = text[after : after + 1]
        capital = letter.upper() if letter.isalpha() else ""
        return Replacement(start, after + bool(capital), capital)
    before = len(text[:start].rstrip(" \t"))
    follows = text[end : end + 1]
    # ', perhaps,' and ', perhaps.' lose the comma before; ' perhaps ' loses the space behind.
    if before and text[before - 1] == "," and (not follows or follows in ",.;:!?"):
        return Replacement(before - 1, end + (follows == ","), "")
    if not follows or follows in ",.;:!?)\n":
        return Replacement(before, end, "")
    return Replacement(start, after, "")


def _without(passage: Passage, gone: set[Sentence]) -> list[Replacement]:
    """Sentences taken out, with the space or the line that was theirs."""
    text, pieces = passage.text, []
    for line, group in groupby(passage.sentences, key=lambda each: each.line):
        on_line = list(group)
        if all(each in gone for each in on_line):  # with its marker and a break
            pieces.append(_line(text, line, on_line[-1].end))
            continue
        place = 0
        for taken, run in groupby(on_line, key=lambda each: each in gone):
            after = place + len(list(run))
            if taken and after < len(on_line):
                pieces.append(Replacement(on_line[place].start, on_line[after].start, ""))
            elif taken:
                pieces.append(Replacement(on_line[place - 1].end, on_line[-1].end, ""))
            place = after
    return disjoint(pieces)


def _line(text: str, start: int, end: int) -> Replacement:
    """A line taken out with the breaks behind it; the last one with those before it."""
    rest = _end(r"[^\n]*\n*", text, end)
    return Replacement(start if rest < len(text) else len(text[:start].rstrip("\n")), rest, "")


def _end(expression: str, text: str, start: int) -> int:
    """Where a match that begins at `start` ends."""
    match = re.compile(expression).match(text, start)
    return match.end() if match else start


# 4. The rules

_LOSE_THEIR_CAPITAL = frozenset(
    """
    a all although an another any at because both children doctors drinking each eating every
    exercise few from having he her his i in it its less many more most my no older on one our
    people plants regular researchers scientists several she since sleep some students such that
    the their there these they this those three two using water we whether with you younger your
    """.split()  # noqa: SIM905
)
"""Words that lose their capital when they no longer open a sentence; a name would not."""


def edited(
    text: str,
    edits: Sequence[Edit],
    draw: Callable[[int], Draw] = lambda number: Draw(number, seed=0),
) -> tuple[str, tuple[tuple[int, int], ...], str]:
    """A text after some edits in their order.

    Args:
        draw: of the edit of that number: which places where there are more than `most`, and which
            of several texts to put.

    Returns:
        The text, (start, end) of what the edits find in the text as given, and how many places each
        changed, in words.

    Raises:
        TooSlowError: an expression takes too long, or the text becomes too long.
    """
    changed, pieces, notes = text, [], []
    original = Passage(text)
    for number, edit in enumerate(edits):
        pieces += places(original, edit, draw(number))
        passage, draw_here = Passage(changed), draw(number)
        limit = None if edit.drop is not None else edit.most
        taken = draw_here.some(places(passage, edit, draw_here), limit)
        changed = replaced(changed, taken)
        notes += [f"{edit.kind} in {len(taken)} place{'s' * (len(taken) > 1)}"] if taken else []
        if len(changed) > max(MOST_CHARACTERS, len(text)):
            raise TooSlowError(f"the text would become longer than {MOST_CHARACTERS:,} characters")
    return changed, spans_of(text, pieces), ", ".join(notes)


def places(passage: Passage, edit: Edit, draw: Draw) -> list[Replacement]:
    """Replacements of an edit if all its places were taken: disjoint pieces, in order."""
    pieces: Iterable[Replacement]
    if edit.prepend is not None:
        pieces = [Replacement(0, 0, edit.prepend)]
    elif edit.append is not None:
        pieces = [Replacement(len(passage.text), len(passage.text), edit.append)]
    elif edit.swap is not None:
        pieces = _words(passage, edit.table, draw)
    elif edit.find is not None:
        pieces = _matches(passage, edit.find, edit.texts, draw)
    elif edit.drop is not None:
        pieces = _dropped(passage, edit.drop, edit, draw)
    else:
        pieces = _put_openings(passage, edit.open_with or [], draw)
    return disjoint(each for each in pieces if each.put != passage.text[each.start : each.end])


def _words(
    passage: Passage, table: Mapping[str, Sequence[str]], draw: Draw
) -> Iterator[Replacement]:
    """Words and phrases of a table, whole, whatever their case, apostrophes and spaces."""
    for match in _whole(tuple(table)).finditer(passage.text):
        if passage.is_free(*match.span()):
            puts = table[" ".join(match.group().lower().replace("’", "'").split())]
            yield word_put(passage, *match.span(), draw.pick(puts) if len(puts) > 1 else puts[0])


def _matches(
    passage: Passage, expression: str, texts: Sequence[str], draw: Draw
) -> Iterator[Replacement]:
    """Matches of an expression. Where a match begins and ends with a letter or digit, capitals,
    articles and spaces follow."""
    for match in _find_matches(expression, passage.text):
        start, end = match.span()
        if passage.is_free(start, end):
            old, put = match.group(), filled(draw.pick(texts), match)
            if old[:1].isalnum() and old[-1:].isalnum():
                yield word_put(passage, start, end, put)
            else:
                yield Replacement(start, end, put)


def _dropped(passage: Passage, expression: str, edit: Edit, draw: Draw) -> list[Replacement]:
    """Sentences in which an expression matches: out, or the first of them replaced. None where
    nothing would be left."""
    matching = [s for s in passage.sentences if _find_matches(expression, passage.text_of(s))]
    matching = draw.some(matching, edit.most)
    if not edit.put:
        return _without(passage, set(matching)) if len(matching) < len(passage.sentences) else []
    first = [Replacement(each.start, each.end, draw.pick(edit.texts)) for each in matching[:1]]
    return disjoint([*first, *_without(passage, set(matching[1:]))])


def _put_openings(passage: Passage, openings: Sequence[str], draw: Draw) -> Iterator[Replacement]:
    """Openings such as 'I think' before statements whose first word can lose its capital."""
    for sentence in passage.sentences:
        text = passage.text_of(sentence)
        word = WORD.match(text)
        short = "," not in text and len(WORD.findall(text)) < 4
        if not word or text.endswith(("?", ":")) or short:
            continue
        first = word.group()
        if re.split("['’]", first.lower())[0] in _LOSE_THEIR_CAPITAL:
            lower = first if re.match(r"I\b", first) else first[0].lower() + first[1:]
            end = sentence.start + len(first)
            yield Replacement(sentence.start, end, f"{draw.pick(openings)} {lower}")


def filled(put: str, match: regex.Match[str]) -> str:
    """A text with the groups of a match: `\\1` as it stands, `\\u1` with a capital, `\\l1`
    without."""

    def group(slot: re.Match[str]) -> str:
        text = match.group(int(slot.group(2))) or ""
        letter = {"u": text[:1].upper(), "l": text[:1].lower()}.get(slot.group(1), text[:1])
        return text if re.match(r"I\b", text) else letter + text[1:]

    return re.sub(r"\\([ul]?)(\d+)", group, put)


@cache
def _whole(words: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted(words, key=len, reverse=True)
    options = (
        re.escape(word).replace(r"\ ", r"[ \t]+").replace("'", "['’]") for word in longest_first
    )
    return re.compile(rf"(?<![\w'’-])(?:{'|'.join(options)})(?![\w-]|['’]\w)", re.IGNORECASE)


def _find_matches(expression: str, text: str) -> list[regex.Match[str]]:
    try:  # `regex` can be told to give up
        return list(regex.finditer(expression, text, regex.IGNORECASE, timeout=MOST_SECONDS))
    except TimeoutError as error:
        raise TooSlowError(
            f"the expression {expression!r} took longer than {MOST_SECONDS:g} s"
        ) from error


def spans_of(text: str, pieces: Iterable[Replacement]) -> tuple[tuple[int, int], ...]:
    """(start, end) of pieces without outer white space; those that overlap are one, and what is
    only put in has none."""
    merged: list[tuple[int, int]] = []
    for start, end, _ in sorted(pieces):
        bare = text[start:end].strip()
        start += len(text[start:end]) - len(text[start:end].lstrip())
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(start + len(bare), merged[-1][1]))
        elif bare:
            merged.append((start, start + len(bare)))
    return tuple(merged)
