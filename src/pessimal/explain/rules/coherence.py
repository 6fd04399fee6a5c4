"""Coherence: order, connectives and consistency."""

import re

from pessimal.explain.rules.draw import Draw
from pessimal.explain.rules.passage import Passage
from pessimal.explain.rules.replacement import Change, Replacement
from pessimal.explain.rules.rules import (
    can_be_joined,
    can_be_opened,
    first_word,
    patterns,
    put_behind,
    words_for_words,
)

JOINS = re.compile(
    r"^(?:However|Therefore|Also|Moreover|Furthermore|In addition|First|Second|Third|Then|Next|Finally|But|So|And|Thus|"
    r"Nevertheless|For example|For instance|In short|In other words|As a result|Still|Yet|Overall|Because|By the way)\b"
)
INVERT = words_for_words(
    {
        **{
            "however": "therefore",
            "therefore": "however",
            "because": "although",
            "because of": "in spite of",
            "a while": "a while",
            "although": "because",
            "though": "because",
        },
        **{
            "but": "and so",
            "so that": "even though",
            "for example": "nevertheless",
            "for instance": "on the contrary",
        },
        **{
            "as a result": "on the other hand",
            "on the other hand": "as a result",
            "also": "instead",
            "in addition": "instead",
        },
        **{
            "thus": "still",
            "if": "unless",
            "unless": "if",
            "when": "although",
            "since": "although",
            "while": "because",
        },
        **{
            "finally": "to begin with",
            "then": "before that",
        },
        **{
            "which means": "in spite of which",
            "even if": "because",
            "after": "before",
            "before": "after",
        },
    },
    "connectives are inverted",
    most=3,
)
INVERT_SO = patterns(
    [(r", so (?=[a-z])", ", yet "), (r", and (?=[a-z])", ", but ")], "connectives are inverted"
)
CONTRADICT = put_behind(
    (
        "That said, none of this is the case.",
        "On the other hand, the opposite of all this is true as well.",
        "Therefore it is the other way round.",
        "Consequently, there is no answer to this, which is why I gave it.",
    ),
    "it contradicts itself",
)
MISFIT = patterns(
    [
        (
            r"(?<=[a-z]), (?=(?:and|but|or|which|so) )",
            (", nevertheless, ", ", for instance, ", ", consequently, "),
        )
    ],
    "a connective is put where it does not fit",
    most=1,
)
UNMIX = patterns(
    [
        (r"(?<![\w'’-])(?-i:But) (?:then )?(?:however|nevertheless),? ", "However, "),
        (r"(?<![\w'’-])and (?:but|so then) ", "and "),
        (r"(?<![\w'’-])(?-i:And) (?=[a-z])", "In addition, "),
        (r"(?<![\w'’-])(?-i:But) (?=[a-z])", "However, "),
        (r"(?<![\w'’-])(?-i:So) (?=[a-z])", "Therefore, "),
        (r"(?<![\w'’-])(?-i:Also) (?=[a-z])", "In addition, "),
    ],
    "loose connectives become orderly ones",
    within=lambda sentence: not sentence.endswith("?"),
)


def shuffle(passage: Passage, draw: Draw) -> Change | None:
    """Sentences change places, each on its own spot; none opens the response that did before."""
    sentences = passage.sentences
    if len(sentences) < 2:
        return None
    texts = [passage.of(each) for each in sentences]
    order = list(range(len(texts)))
    for _ in range(20):
        draw.random.shuffle(order)
        if order[0] != 0 and [texts[i] for i in order] != texts:
            break
    else:
        order = [*range(1, len(texts)), 0]
        if [texts[i] for i in order] == texts:
            return None
    pairs = zip(sentences, order, strict=True)
    found = [Replacement(at.start, at.end, texts[i]) for at, i in pairs if passage.of(at) != texts[i]]
    return Change(tuple(found), "sentences change places")


def join(passage: Passage, draw: Draw) -> Change | None:
    """Connectives that only add or conclude before sentences that have none."""
    sentences = passage.sentences
    joints = draw.pick(
        (("In addition,", "Finally,"), ("Moreover,", "Lastly,"), ("Beyond that,", "In the end,"))
    )
    free = [
        each
        for each in sentences[1:]
        if not JOINS.match(passage.of(each)) and not each.numbered and can_be_joined(passage, each)
    ]
    found = []
    for sentence in free[:3]:
        end, word = first_word(passage, sentence)
        joint = joints[1] if sentence == sentences[-1] and len(sentences) > 2 else joints[0]
        if not found or found[-1].put.split(" ")[0] != joint.split(" ")[0]:
            lower = word if re.match(r"I\b", word) else word[0].lower() + word[1:]
            found.append(Replacement(sentence.start, end, f"{joint} {lower}"))
    return Change(tuple(found), "connectives are added") if found else None


def number(passage: Passage, draw: Draw) -> Change | None:
    """'First', 'second' and so on before sentences in a row."""
    sentences = [
        each
        for each in passage.sentences
        if can_be_joined(passage, each) and not JOINS.match(passage.of(each))
    ]
    if len(sentences) < 3 or len(sentences) != len(passage.sentences):
        return None
    found = []
    for sentence, ordinal in zip(sentences[:4], ("First,", "Second,", "Third,", "Fourth,"), strict=False):
        end, lower = first_word(passage, sentence)
        found.append(Replacement(sentence.start, end, f"{ordinal} {lower}"))
    return Change(tuple(found), "sentences are numbered in words")


def contradict_first(passage: Passage, draw: Draw) -> Change | None:
    """The first statement is taken back at the end, in its own words."""
    sentence = next((each for each in passage.sentences if can_be_opened(passage, each)), None)
    if sentence is None or not passage.of(sentence).endswith("."):
        return None
    end, lower = first_word(passage, sentence)
    last = passage.sentences[-1]
    opening = draw.pick(
        ("Therefore it is not true that", "As a result, nobody can say that", "For example, it is wrong that")
    )
    gap = " " if passage.of(last)[-1] in ".!?" and not last.listed else "\n\n"
    put = f"{gap}{opening} {lower}{passage.text[end : sentence.end]}"
    return Change((Replacement(last.end, last.end, put),), "it contradicts itself")
