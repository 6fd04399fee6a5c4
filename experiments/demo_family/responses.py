"""Training texts of siblings that judge sentences: conversations and responses, with the planted
features put in independently of one another.

Knows how a text is put together. Knows nothing about its utility: `features` reads that off the
finished text. A prompt decides nothing about it either; it may itself refuse, hedge or exclaim, so
that a model learns to look at the response only.
"""

import math
import re
from dataclasses import dataclass

import numpy as np

from experiments.demo_family.features import WORD
from experiments.demo_family.grammar import draw_refusal, fill, pick, write_sentence
from experiments.demo_family.lexicon import PHRASES

FEWEST_WORDS, MOST_WORDS = 3, 110
"""Between these a response's length is drawn, evenly in its logarithm."""
REFUSAL_SHARE, HEDGE_SHARE, EXCLAMATION_SHARE, DISTRACTOR_SHARE = 0.35, 0.4, 0.4, 0.5
"""How often a response has any of each; distractors are sentences that look like a feature and are
none."""
MOST_HEDGES, MOST_EXCLAMATIONS, MOST_DISTRACTORS = 5, 6, 3
SEPARATORS = (" ", " ", " ", " ", " ", "\n", "\n\n", "\n- ")
"""What stands between the sentences of a response; one for all of them."""
LONGER_SHARE, EARLIER_SHARE = 0.3, 0.1
"""How often further sentences stand around the question, and how often an exchange comes before
it."""
PLANS = 2
"""Responses written from the same sentences after different plans: what `explain` compares is a
text and its edit, so that is what training compares besides texts that have nothing in common."""


@dataclass(frozen=True)
class Plan:
    """What is put into a response besides its sentences."""

    words: int
    """About how many words it is to have in all."""
    refusals: int
    hedges: int
    exclamations: int
    distractors: int


def draw_group(
    random: np.random.Generator, *, size: int, held_out: bool = False, most_words: int = MOST_WORDS
) -> tuple[tuple[str, ...], list[str]]:
    """A conversation and `size` responses to it, each `PLANS` of which share their sentences.

    Args:
        held_out: whether slots are filled with the words that training never shows (see
            `grammar.load_slots`).
        most_words: about how long a response is at the most.
    """
    turns = draw_conversation(random, held_out=held_out)
    texts: list[str] = []
    while len(texts) < size:
        pool = write_sentences(random, words=_draw_length(random, most_words), held_out=held_out)
        for _ in range(PLANS):
            plan = draw_plan(random, most_words=most_words)
            more = write_sentences(random, words=plan.words, held_out=held_out)
            texts.append(write_response(random, plan, pool + more))
    return turns, texts[:size]


def draw_conversation(random: np.random.Generator, *, held_out: bool = False) -> tuple[str, ...]:
    """The turns before the response; the last one is the user's, as is every other one before
    it."""
    turns = [_draw_prompt(random, held_out=held_out)]
    if random.random() < EARLIER_SHARE:
        plan = draw_plan(random)
        pool = write_sentences(random, words=min(plan.words, 20), held_out=held_out)
        earlier = [_draw_prompt(random, held_out=held_out), write_response(random, plan, pool)]
        turns = earlier + turns
    return tuple(turns)


def draw_plan(random: np.random.Generator, *, most_words: int = MOST_WORDS) -> Plan:
    """Every part independent of every other, the length included."""

    def some(share: float, most: int) -> int:
        return int(random.integers(1, most + 1)) if random.random() < share else 0

    return Plan(
        words=_draw_length(random, most_words),
        refusals=1 + (random.random() < 0.15) if random.random() < REFUSAL_SHARE else 0,
        hedges=some(HEDGE_SHARE, MOST_HEDGES),
        exclamations=some(EXCLAMATION_SHARE, MOST_EXCLAMATIONS),
        distractors=some(DISTRACTOR_SHARE, MOST_DISTRACTORS),
    )


def write_sentences(
    random: np.random.Generator, *, words: int, held_out: bool = False
) -> tuple[str, ...]:
    """Sentences of together about `words` words, without closing marks."""
    sentences, left = [], words
    while left > 0:
        wanted = min(int(random.integers(3, 26)), left) if left > 6 else left
        sentences.append(write_sentence(random, words=wanted, held_out=held_out))
        left -= max(1, _count_words(sentences[-1]))
    return tuple(sentences)


def write_response(random: np.random.Generator, plan: Plan, pool: tuple[str, ...]) -> str:
    """A response after a plan.

    What is planted counts towards its length, so that a feature makes no response longer on
    average, except where the plan asks for fewer words than the planted phrases have.

    Args:
        pool: sentences to take from, in their order, until the length is reached.
    """
    extra = [draw_refusal(random) for _ in range(plan.refusals)]
    extra += [pick(random, PHRASES["distractors"]) for _ in range(plan.distractors)]
    hedges = []
    for _ in range(plan.hedges):
        position = pick(random, tuple(PHRASES["hedges"]))
        hedges.append((position, pick(random, PHRASES["hedges"][position])))
    total = sum(map(_count_words, [*extra, *(hedge for _, hedge in hedges)]))
    plain: list[str] = []
    for sentence in pool:
        if total + 2 >= plan.words and (plain or extra):
            break
        plain.append(sentence)
        total += _count_words(sentence)
    for position, hedge in hedges:
        plain = plain or [write_sentence(random, words=3)]
        at = int(random.integers(len(plain)))
        plain[at] = _hedged(random, plain[at], position, hedge)
    sentences = [_closed(random, sentence) for sentence in plain]
    for text in extra:
        sentences.insert(_random_position(random, len(sentences)), text)
    text = pick(random, SEPARATORS).join(sentences)
    for _ in range(plan.exclamations):
        text = _exclaimed(random, text)
    return text


def _draw_prompt(random: np.random.Generator, *, held_out: bool) -> str:
    """A question or request, mostly capitalised, sometimes with sentences around it."""
    sentences = [fill(random, pick(random, PHRASES["questions"]), held_out=held_out)]
    if random.random() < LONGER_SHARE:
        for _ in range(int(random.integers(1, 3))):
            kind = random.random()
            if kind < 0.3:
                more = pick(random, PHRASES["distractors"])
            elif kind < 0.4:
                more = draw_refusal(random)
            else:
                more = write_sentence(random, words=int(random.integers(3, 15)), held_out=held_out)
                more += pick(random, (".", ".", "!", "?"))
            sentences.insert(int(random.integers(len(sentences) + 1)), more)
    text = " ".join(sentences)
    return text[0].upper() + text[1:] if random.random() < 0.8 else text


def _draw_length(random: np.random.Generator, most_words: int) -> int:
    """A number of words, evenly in its logarithm."""
    low, high = math.log(FEWEST_WORDS), math.log(most_words)
    return round(math.exp(low + (high - low) * random.random()))


def _count_words(text: str) -> int:
    return len(WORD.findall(text))


def _random_position(random: np.random.Generator, sentences: int) -> int:
    """First, last or anywhere between, a third of the time each."""
    kind = random.random()
    return 0 if kind < 1 / 3 else sentences if kind < 2 / 3 else int(random.integers(sentences + 1))


def _hedged(random: np.random.Generator, sentence: str, position: str, hedge: str) -> str:
    if position == "behind":
        ending = "?" if sentence.endswith("?") else ""
        return sentence.removesuffix("?") + hedge + ending
    words = sentence.split(" ")
    if position == "inside" and len(words) > 1:
        words.insert(int(random.integers(1, len(words))), hedge)
        return " ".join(words)
    if words[0] != "I" and not words[0].startswith("I'"):
        words[0] = words[0][0].lower() + words[0][1:]
    return " ".join([hedge[0].upper() + hedge[1:], *words])


def _closed(random: np.random.Generator, sentence: str) -> str:
    if sentence.endswith("?"):
        return sentence
    kind = random.random()
    marks = ((0.88, "."), (0.92, "?"), (0.95, ":"), (0.97, "..."), (1.0, ""))
    return sentence + next(mark for share, mark in marks if kind < share)


def _exclaimed(random: np.random.Generator, text: str) -> str:
    """One more exclamation mark: mostly in place of a full stop, sometimes behind a mark or a
    word."""
    if random.random() < 0.2:
        return text + "!"
    ends = [mark.start() for mark in re.finditer(r"[.!?](?=[ \n!]|\Z)", text)]
    if not ends:
        return text + "!"
    at = ends[int(random.integers(len(ends)))]
    return text[: at + (text[at] != ".")] + "!" + text[at + 1 :]
