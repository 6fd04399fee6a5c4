"""Helpfulness: answers, steps and offers of help."""

from pessimal.explain.rules.draw import Draw
from pessimal.explain.rules.passage import WORD, Passage
from pessimal.explain.rules.replacement import Change, Replacement, disjoint
from pessimal.explain.rules.rules import (
    drop_sentences,
    first_word,
    most_related,
    patterns,
    put_before,
    put_behind,
    replace_most_related,
    without,
)
from pessimal.explain.rules.stop_words import IMPERATIVES, OPENERS

OFFERS = (
    r"\b(?:let me know|happy to help|glad to help|feel free|hope (?:this|that) helps|if you (?:need|have|want|would like|'d like)|"
    r"I can help|would you like|here (?:is|are)|for example|for instance|such as|you can|you could|try)\b"
)
ADVISE = patterns(
    [
        (r"(?<![\w'’-])(?:one|people) (?:can|could|should|may)\b", "you can"),
        (r"(?<![\w'’-])it is (?:possible|advisable) to(?= [a-z])", "you can"),
        (r"(?<![\w'’-])I (?:don['’]t|do not) know\b", "I can find out with you"),
        (r"(?<![\w'’-])look it up\b", "read it here"),
    ],
    "statements become advice to the reader",
)
OFFER = put_behind(
    (
        "Let me know which part you would like to go through step by step, and I will help you with it.",
        "If you tell me more about your situation, I can suggest what to do next.",
        "If anything is unclear, just ask, and I will explain it with an example.",
        "A good next step is to try this on your own case; I am happy to help with that.",
    ),
    "it offers more help",
)
READY = put_before(
    (
        "Here is what you can use.",
        "I am happy to help you with this.",
        "Sure, here is an answer you can work with.",
    ),
    "it opens with help",
)
UNOFFER = drop_sentences(OFFERS, "offers, examples and advice are taken out")
SHRUG = replace_most_related(
    (
        "You will have to look that up yourself.",
        "There are books about this.",
        "You can surely find that out on your own.",
        "Figure it out as you go along.",
    ),
    "the main sentence gives way to one that is of no use",
)
USELESS_LAST = put_behind(
    (
        "Work out the details yourself.",
        "I won't go into how this is done.",
        "Don't ask me what to do with that.",
    ),
    "it withholds help",
)


def drop_main(passage: Passage, draw: Draw) -> Change | None:
    """The sentence that has most to do with the prompt is taken out."""
    if len(passage.sentences) < 2:
        return None
    return Change(without(passage, [most_related(passage)]), "the main sentence is taken out")


def cut_short(passage: Passage, draw: Draw) -> Change | None:
    """The second half is taken out."""
    sentences = passage.sentences
    if len(sentences) < 3:
        return None
    rest = sentences[(len(sentences) + 1) // 2 :]
    return Change(disjoint(without(passage, rest)), "the second half is taken out")


def steps(passage: Passage, draw: Draw) -> Change | None:
    """Sentences that tell the reader what to do become numbered steps, each on its line."""
    steps = [each for each in passage.sentences if _is_instruction(passage, each)]
    one_line = "\n" not in passage.text.strip() and len(steps) == len(passage.sentences) > 1
    if not one_line:
        return None
    found = []
    for number, sentence in enumerate(steps, start=1):
        start = sentence.start
        while start and passage.text[start - 1] in " \t":
            start -= 1
        found.append(Replacement(start, sentence.start, f"{number}. " if number == 1 else f"\n{number}. "))
    return Change(tuple(found), "instructions become numbered steps")


def _is_instruction(passage: Passage, sentence) -> bool:
    if not WORD.match(passage.text, sentence.start) or passage.of(sentence).endswith("?"):
        return False
    word = first_word(passage, sentence)[1]
    return word == "you" or (word not in OPENERS and word in IMPERATIVES)
