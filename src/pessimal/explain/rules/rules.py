"""The kinds of rules: words for words, sentences dropped or replaced, sentences added.

A rule looks at a passage and returns a change, or None where it does not apply. Does not know attributes.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby

from pessimal.explain.rules.draw import Draw
from pessimal.explain.rules.passage import WORD, Passage, Sentence
from pessimal.explain.rules.replacement import (
    Change,
    Replacement,
    disjoint,
    put_word,
)
from pessimal.explain.rules.stop_words import IMPERATIVES, OPENERS, SUBORDINATE

Rule = Callable[[Passage, Draw], Change | None]
Put = str | tuple[str, ...] | Callable[[re.Match], str | None]
"""What takes the place of a match: a text in which `\\1` stands for the first group, several to choose from, or a
function that may say None."""


def words_for_words(
    table: Mapping[str, str | tuple[str, ...]], note: str, *, most: int | None = None
) -> Rule:
    """Every word or phrase of a table replaced by its counterpart; several counterparts are chosen from.

    Args:
        table: in lower case, with straight apostrophes; matched whole, in any case and with any apostrophe.
        most: how many are replaced; which of them is drawn.
    """
    return patterns([(whole(table), lambda match: table[normal(match.group())])], note, most=most)


def patterns(
    pairs: Iterable[tuple[str | re.Pattern, Put]],
    note: str,
    *,
    most: int | None = None,
    within: Callable[[str], bool] = lambda sentence: True,
) -> Rule:
    """Every match of some regular expressions replaced, in the sentences for which `within` holds.

    Patterns given as a text ignore case. Where two match at one place the longer counts.
    """
    compiled = [(re.compile(p, re.IGNORECASE) if isinstance(p, str) else p, put) for p, put in pairs]

    def rule(passage: Passage, draw: Draw) -> Change | None:
        found = []
        for sentence in passage.sentences:
            if within(passage.of(sentence)):
                for pattern, put in compiled:
                    for match in pattern.finditer(passage.text, sentence.start, sentence.end):
                        found += _one(passage, match, put, draw)
        kept = disjoint(found)
        if most is not None and len(kept) > most:
            drawn = draw.random.choice(len(kept), most, replace=False)
            kept = tuple(kept[int(i)] for i in sorted(drawn))
        return Change(kept, note) if kept else None

    return rule


def drop_sentences(pattern: str, note: str) -> Rule:
    """The sentences in which a regular expression matches taken out, unless nothing would be left."""
    compiled = re.compile(pattern, re.IGNORECASE)

    def rule(passage: Passage, draw: Draw) -> Change | None:
        matching = [each for each in passage.sentences if compiled.search(passage.of(each))]
        if not matching or len(matching) == len(passage.sentences):
            return None
        return Change(without(passage, matching), note)

    return rule


def replace_sentences(pattern: str, sentences: Sequence[str], note: str) -> Rule:
    """The first sentence in which a regular expression matches replaced by another, and others that match taken out."""
    compiled = re.compile(pattern, re.IGNORECASE)

    def rule(passage: Passage, draw: Draw) -> Change | None:
        matching = [each for each in passage.sentences if compiled.search(passage.of(each))]
        if not matching:
            return None
        first = matching[0]
        put = Replacement(first.start, first.end, draw.pick(sentences))
        return Change(disjoint((put, *without(passage, matching[1:]))), note)

    return rule


def replace_most_related(sentences: Sequence[str], note: str, *, least: int = 1) -> Rule:
    """The sentence that has most to do with the prompt and the rest replaced by another one.

    Args:
        least: sentences that the response must have.
    """

    def rule(passage: Passage, draw: Draw) -> Change | None:
        if len(passage.sentences) < least:
            return None
        main = most_related(passage)
        return Change((Replacement(main.start, main.end, draw.pick(sentences)),), note)

    return rule


def put_before(sentences: Sequence[str], note: str) -> Rule:
    """A sentence put before the response."""

    def rule(passage: Passage, draw: Draw) -> Change | None:
        options = [each for each in sentences if each.lower() not in passage.text.lower()]
        return Change((before(passage, draw.pick(options)),), note) if options else None

    return rule


def put_behind(sentences: Sequence[str], note: str) -> Rule:
    """A sentence put behind the response."""

    def rule(passage: Passage, draw: Draw) -> Change | None:
        options = [each for each in sentences if each.lower() not in passage.text.lower()]
        return Change((behind(passage, draw.pick(options)),), note) if options else None

    return rule


def open_with(openings: Sequence[str], note: str, *, most: int = 2) -> Rule:
    """Openings such as 'I think' put before statements whose first word can lose its capital.

    Args:
        most: statements that are opened so, from the first.
    """

    def rule(passage: Passage, draw: Draw) -> Change | None:
        found = []
        for sentence in passage.sentences:
            if len(found) < most and can_be_opened(passage, sentence):
                end, word = first_word(passage, sentence)
                found.append(Replacement(sentence.start, end, f"{draw.pick(openings)} {word}"))
        return Change(tuple(found), note) if found else None

    return rule


def can_be_opened(passage: Passage, sentence: Sentence) -> bool:
    """Whether it is a statement that begins with a word that may lose its capital."""
    text = passage.of(sentence)
    if text.endswith(("?", ":")) or ("," not in text and len(WORD.findall(text)) < 4):
        return False
    match = WORD.match(text)
    if not match:
        return False
    word = match.group().replace("’", "'")
    return word.lower().split("'")[0] in OPENERS or word.split("'")[0] == "I"


def can_be_joined(passage: Passage, sentence: Sentence) -> bool:
    """Whether it can follow a connective: a statement or an instruction whose first word may lose its capital."""
    text = passage.of(sentence)
    match = WORD.match(text)
    if text.endswith(("?", ":")) or not match or len(WORD.findall(text)) < 3:
        return False
    word = match.group().lower()
    elsewhere = re.search(rf"(?<![\w'’-]){re.escape(word)}(?![\w'’-])", f"{passage.prompt}\n{passage.text}")
    return can_be_opened(passage, sentence) or word in IMPERATIVES | SUBORDINATE or elsewhere is not None


def first_word(passage: Passage, sentence: Sentence) -> tuple[int, str]:
    """The end of its first word, and the word as it is written where it opens no sentence."""
    match = WORD.match(passage.text, sentence.start)
    word = match.group()
    return match.end(), word if re.match(r"I\b", word) else word[0].lower() + word[1:]


def most_related(passage: Passage) -> Sentence:
    """The sentence that has most to do with the prompt and the rest; the first of several."""
    scores = [a + b / 2 for a, b in zip(passage.related, passage.central, strict=True)]
    return passage.sentences[scores.index(max(scores))]


def without(passage: Passage, sentences: Iterable[Sentence]) -> tuple[Replacement, ...]:
    """Sentences taken out, with the space or the line that was theirs."""
    text, gone, found = passage.text, set(sentences), []
    for line, on_line in groupby(passage.sentences, key=lambda each: each.line):
        here = list(on_line)
        if all(each in gone for each in here):
            end = text.find("\n", here[-1].end)
            found.append(_line(text, line, len(text) if end < 0 else end))
            continue
        place = 0
        for taken, run in groupby(here, key=lambda each: each in gone):
            count = len(list(run))
            if taken and place + count < len(here):
                found.append(Replacement(here[place].start, here[place + count].start, ""))
            elif taken:
                found.append(Replacement(here[place - 1].end, here[-1].end, ""))
            place += count
    return disjoint(found)


def before(passage: Passage, sentence: str) -> Replacement:
    """A sentence put before the response; on a line of its own where that begins with a list, a heading or code."""
    text = passage.text
    start = len(text) - len(text.lstrip())
    first = passage.sentences[0]
    gap = " " if first.start == start else "\n\n"
    return Replacement(start, start, sentence + gap)


def behind(passage: Passage, sentence: str) -> Replacement:
    """A sentence put behind the response; on a line of its own where that ends with a list or code."""
    end = len(passage.text.rstrip())
    last = passage.sentences[-1]
    if last.end != end or last.listed:
        return Replacement(end, end, "\n\n" + sentence)
    closed = passage.text[:end].rstrip("\"'”’)*_")[-1:] in tuple(".!?…:。！？")
    return Replacement(end, end, (" " if closed else ". ") + sentence)


def whole(words: Iterable[str]) -> re.Pattern:
    """Matches any of some words and phrases, whole, whatever their case, apostrophes and spaces."""
    longest_first = sorted(words, key=len, reverse=True)
    options = "|".join(
        re.escape(word).replace(r"\ ", r"[ \t]+").replace("'", "['’]") for word in longest_first
    )
    return re.compile(rf"(?<![\w'’-])(?:{options})(?![\w-]|['’]\w)", re.IGNORECASE)


def normal(text: str) -> str:
    """In lower case, with single spaces and straight apostrophes."""
    return " ".join(text.lower().replace("’", "'").split())


def _one(passage: Passage, match: re.Match, put: Put, draw: Draw) -> list[Replacement]:
    start, end = match.span()
    if start == end or not passage.is_free(start, end):
        return []
    put = put(match) if callable(put) else put
    put = draw.pick(put) if isinstance(put, tuple) else put
    if put is None:
        return []
    put = re.sub(r"\\(\d)", lambda group: match.group(int(group.group(1))) or "", put)
    if put == match.group():
        return []
    return [put_word(passage.text, start, end, put, opens=start in passage.starts)]


def _line(text: str, start: int, end: int) -> Replacement:
    if end < len(text):
        rest = re.compile(r"\n+").match(text, end).end()
        return (
            Replacement(start, rest if start else end + 1, "")
            if rest < len(text)
            else _tail(text, start, end)
        )
    return _tail(text, start, end)


def _tail(text: str, start: int, end: int) -> Replacement:
    return Replacement(len(text[:start].rstrip("\n")), end, "")
