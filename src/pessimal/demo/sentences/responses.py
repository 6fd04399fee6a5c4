"""Training responses: sentences up to a length, with the planted features put in independently of one another.

Knows how a text is put together. Knows nothing about its utility: `features` reads that off the finished text.
"""

import math
from dataclasses import dataclass

import numpy as np

from pessimal.demo.sentences.features import WORD
from pessimal.demo.sentences.grammar import write_sentence
from pessimal.demo.sentences.phrases import (
    DISTRACTORS,
    HEDGES_BEHIND,
    HEDGES_IN_FRONT,
    HEDGES_INSIDE,
    draw_refusal,
    pick,
)

FEWEST_WORDS, MOST_WORDS = 3, 110
"""Between these a response's length is drawn, evenly in its logarithm."""
REFUSAL_SHARE, HEDGE_SHARE, EXCLAMATION_SHARE, DISTRACTOR_SHARE = 0.35, 0.4, 0.4, 0.5
"""How often a response has any of each; distractors are sentences that look like a feature and are none."""
MOST_HEDGES, MOST_EXCLAMATIONS, MOST_DISTRACTORS = 5, 6, 3
SEPARATORS = (" ", " ", " ", " ", " ", "\n", "\n\n", "\n- ")
"""What stands between the sentences of a response; one for all of them."""


@dataclass(frozen=True)
class Plan:
    """What is put into a response besides its sentences."""

    words: int
    """About how many words it is to have in all."""
    refusals: int
    hedges: int
    exclamations: int
    distractors: int


def draw_plan(random: np.random.Generator, *, most_words: int = MOST_WORDS) -> Plan:
    """Every part independent of every other, the length included."""
    return Plan(
        words=draw_length(random, most_words=most_words),
        refusals=1 + (random.random() < 0.15) if random.random() < REFUSAL_SHARE else 0,
        hedges=int(random.integers(1, MOST_HEDGES + 1)) if random.random() < HEDGE_SHARE else 0,
        exclamations=int(random.integers(1, MOST_EXCLAMATIONS + 1))
        if random.random() < EXCLAMATION_SHARE
        else 0,
        distractors=int(random.integers(1, MOST_DISTRACTORS + 1))
        if random.random() < DISTRACTOR_SHARE
        else 0,
    )


def draw_length(random: np.random.Generator, *, most_words: int = MOST_WORDS) -> int:
    """A number of words, evenly in its logarithm."""
    low, high = math.log(FEWEST_WORDS), math.log(most_words)
    return round(math.exp(low + (high - low) * random.random()))


def write_sentences(random: np.random.Generator, *, words: int, held_out: bool = False) -> tuple[str, ...]:
    """Sentences of together about `words` words, without closing marks."""
    sentences, left = [], words
    while left > 0:
        wanted = min(int(random.integers(3, 26)), left) if left > 6 else left
        sentences.append(write_sentence(random, words=wanted, held_out=held_out))
        left -= max(1, count_words(sentences[-1]))
    return tuple(sentences)


def write_response(random: np.random.Generator, plan: Plan, pool: tuple[str, ...]) -> str:
    """A response after a plan.

    What is planted counts towards its length, so that a feature makes no response longer on average, except where the
    plan asks for fewer words than the planted phrases have.

    Args:
        pool: sentences to take from, in their order, until the length is reached.
    """
    extra = [draw_refusal(random) for _ in range(plan.refusals)]
    extra += [pick(random, DISTRACTORS) for _ in range(plan.distractors)]
    hedges = [_draw_hedge(random) for _ in range(plan.hedges)]
    planted = sum(count_words(text) for text in extra) + sum(count_words(hedge) for _, hedge in hedges)
    own, total = [], planted
    for sentence in pool:
        if total + 2 >= plan.words and (own or extra):
            break
        own.append(sentence)
        total += count_words(sentence)
    for position, hedge in hedges:
        own = own or [write_sentence(random, words=3)]
        at = int(random.integers(len(own)))
        own[at] = _hedged(random, own[at], position, hedge)
    sentences = [_closed(random, sentence) for sentence in own]
    for text in extra:
        sentences.insert(_random_position(random, len(sentences)), text)
    text = pick(random, SEPARATORS).join(sentences)
    for _ in range(plan.exclamations):
        text = _exclaimed(random, text)
    return text


def count_words(text: str) -> int:
    """As `features` counts them."""
    return len(WORD.findall(text))


def _random_position(random: np.random.Generator, sentences: int) -> int:
    """First, last or anywhere between, a third of the time each."""
    kind = random.random()
    return 0 if kind < 1 / 3 else sentences if kind < 2 / 3 else int(random.integers(sentences + 1))


def _draw_hedge(random: np.random.Generator) -> tuple[str, str]:
    """Where it stands in a sentence, and its words."""
    positions = {"front": HEDGES_IN_FRONT, "inside": HEDGES_INSIDE, "behind": HEDGES_BEHIND}
    position = pick(random, tuple(positions))
    return position, pick(random, positions[position])


def _hedged(random: np.random.Generator, sentence: str, position: str, hedge: str) -> str:
    if position == "behind":
        ending = "?" if sentence.endswith("?") else ""
        return sentence.removesuffix("?") + hedge + ending
    words = sentence.split(" ")
    if position == "inside" and len(words) > 1:
        words.insert(int(random.integers(1, len(words))), hedge)
        return " ".join(words)
    first = words[0] if words[0] == "I" or words[0].startswith("I'") else words[0][0].lower() + words[0][1:]
    return " ".join([hedge[0].upper() + hedge[1:], first, *words[1:]])


def _closed(random: np.random.Generator, sentence: str) -> str:
    if sentence.endswith("?"):
        return sentence
    kind = random.random()
    return sentence + (
        "." if kind < 0.88 else "?" if kind < 0.92 else ":" if kind < 0.95 else "..." if kind < 0.97 else ""
    )


def _exclaimed(random: np.random.Generator, text: str) -> str:
    """One more exclamation mark: mostly in place of a full stop, sometimes behind a mark or a word."""
    if random.random() < 0.2:
        return text + "!"
    ends = [
        at
        for at, mark in enumerate(text)
        if mark in ".!?" and (at + 1 == len(text) or text[at + 1] in " \n!")
    ]
    if not ends:
        return text + "!"
    at = ends[int(random.integers(len(ends)))]
    return text[:at] + "!" + text[at + 1 :] if text[at] == "." else text[: at + 1] + "!" + text[at + 1 :]
