"""Avoiding to answer: refusals are stripped, turned round, or put in the place of the answer."""

import re

from pessimal.explain.rules.draw import Draw
from pessimal.explain.rules.passage import Passage
from pessimal.explain.rules.replacement import Change, Replacement, disjoint
from pessimal.explain.rules.rules import (
    drop_sentences,
    most_related,
    patterns,
    put_before,
    replace_most_related,
    without,
)

REFUSES = (
    r"\b(?:I(?:['’]m| am) (?:sorry|afraid)[^.!?]{0,40}\b(?:can|unable|not)|I (?:can['’]?t|cannot|can not|won['’]t|will not|"
    r"am unable to|am not able to|must decline|decline to|do not feel comfortable|don['’]t feel comfortable)\b|"
    r"I['’]m (?:unable|not able|not comfortable)|as an AI|(?:ask|consult|speak to|talk to|see) (?:a|an|your|somebody|someone)"
    r" (?:\w+ )?(?:professional|doctor|lawyer|expert|else|therapist)|I(?:['’]d| would) rather not|not something I can|"
    r"I (?:do not|don['’]t) (?:have|want to|wish to) (?:an |any )?(?:opinion|answer|share|discuss|talk|say|give))"
)
STRIPPED = re.compile(REFUSES, re.IGNORECASE)
DEFLECTIONS = (
    "I would rather not go into that.",
    "I'm afraid that is not something I can talk about.",
    "That is a question for somebody else.",
    "I can't say anything about that.",
    "It depends on many things, and I can't judge that for you.",
)
REFUSALS = (
    "I'm sorry, but I can't help with that.",
    "I'm afraid I am not able to answer this question.",
    "I would prefer not to answer that.",
    "Sorry, but this is not something I can assist with.",
    "I have to decline to answer this.",
)

STRIP = drop_sentences(REFUSES, "sentences that refuse or deflect are taken out")
UNSAY = patterns(
    [
        (
            r"I(?:['’]m| am) (?:sorry|afraid)[^,.!?]{0,60},? (?:but )?I (?:can['’]?t|cannot|can not|am unable to|am not able to|won['’]t|will not) "
            r"(?!say\b|judge\b)",
            r"I can ",
        ),
        (r"Sorry, (?:but )?I (?:can['’]?t|cannot|am unable to|won['’]t|will not) ", "Yes, I can "),
        (
            r"I (?:can['’]?t|cannot|am unable to|am not able to|won['’]t|will not|must decline to) (?!say\b|judge\b)",
            "I can ",
        ),
        (r"I(?:['’]m| am) not able to ", "I can "),
        (r"I(?:['’]d| would) rather not ", "I will gladly "),
        (r"I (?:do not|don['’]t) (?:want|wish) to ", "I want to "),
    ],
    "refusals are turned into their opposite",
)
CLAUSE = patterns(
    [
        (
            r"I(?:['’]m| am) (?:not (?:a|an) (?:doctor|lawyer|expert|professional)|(?:just|only) an AI)[^,.!?]{0,40}, but ",
            "",
        ),
        (r"I (?:can['’]?t|cannot) [^,.!?]{3,60}, but ", ""),
        (r"as an AI(?: language)? model, ", ""),
    ],
    "clauses that refuse are taken out",
)
DIRECT = put_before(
    (
        "Here is a direct answer to your question.",
        "I will answer that directly.",
        "Yes, I can answer that.",
        "To answer what you asked:",
    ),
    "it says that it answers",
)
DEFLECT = replace_most_related(DEFLECTIONS, "the main sentence gives way to a deflection", least=2)


def break_off(passage: Passage, draw: Draw) -> Change | None:
    """The second half gives way to a refusal to go on."""
    sentences = passage.sentences
    if len(sentences) < 2:
        return None
    rest = sentences[(len(sentences) + 1) // 2 :]
    put = draw.pick(
        ("I'd rather not say more about this.", "I can't go into the rest.", "I will not go further.")
    )
    first = Replacement(rest[0].start, rest[0].end, put)
    return Change(
        disjoint((first, *without(passage, rest[1:]))), "the second half gives way to a refusal to go on"
    )


def refuse_unless_refused(passage: Passage, draw: Draw) -> Change | None:
    """A refusal in place of everything, unless the main sentence is one already."""
    if STRIPPED.search(passage.of(most_related(passage))):
        return None
    start, end = len(passage.text) - len(passage.text.lstrip()), len(passage.text.rstrip())
    return Change((Replacement(start, end, draw.pick(REFUSALS)),), "the whole answer gives way to a refusal")


def deflect_unless_refused(passage: Passage, draw: Draw) -> Change | None:
    """A deflection in place of the main sentence, unless that is one already."""
    if STRIPPED.search(passage.of(most_related(passage))):
        return None
    return DEFLECT(passage, draw)
