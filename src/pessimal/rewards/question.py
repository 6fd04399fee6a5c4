"""The question to a judge about a response, which of its answers are read, and how these become a
reward: of a language model on this machine, and of one behind a server.

Knows texts, logits and probabilities. Does not know templates, networks or servers.
"""

import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic.dataclasses import dataclass as options_dataclass

from pessimal.conversation import Prompt, plain_text
from pessimal.errors import ConfigError
from pessimal.options import Options
from pessimal.texts import storable

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)

ASKED = 16
FEW, HARDLY = 0.5, 0.01
"""Probability of all answers together below which a judge is warned of, and below which its ranks
are those of two things that it does not say."""
_SLOT = re.compile(r"\{(prompt|response|opponent)\}")


@options_dataclass
class QuestionOptions(Options):
    """The question to a judge, and which answers count for and against the response."""

    template: str | None = None
    """Text of the user's turn, with {prompt} and {response}, and {opponent} where two are compared;
    null shows the conversation itself, and asks for what comes after it."""
    system: str | None = None
    """System turn ahead of it."""
    begin: str = ""
    """Beginning of the judge's answer, before the token that is read, such as "Rating: "."""
    chat: bool | None = None
    """false writes the template as plain text, without the tokenizer's chat template; null takes
    that where there is one."""
    positive: list[str] = field(default_factory=list)
    """Answers for the response, of one token each: spellings, whose probabilities are summed."""
    negative: list[str] = field(default_factory=list)
    """Answers against it."""
    ratings: dict[str, float] = field(default_factory=dict)
    """Instead of both: answers of one token each and what they are worth; the reward is the
    expected value."""
    logit: int | None = None
    """Instead of all these: the raw logit of this token id (Nemotron's reward models: 0)."""
    opponent: str | None = None
    """The other response of a template that compares two; each pair is asked in both orders, and
    averaged."""

    @property
    def says_yes_above(self) -> float | None:
        """The reward above which it says yes; None for a raw logit."""
        if self.ratings and self.opponent is None:  # else half a difference of two orders
            return (min(self.ratings.values()) + max(self.ratings.values())) / 2
        return None if self.logit is not None else 0.0

    @property
    def setting(self) -> str:
        """The options as a text that provenance covers; it has been the same since they were a
        class of another name."""
        return repr(self).replace(type(self).__name__, "JudgeSpec", 1)

    @property
    def orders(self) -> tuple[bool, ...]:
        """Whether the response stands in the opponent's place, for each time that it is asked."""
        return (False,) if self.opponent is None else (False, True)

    def check_answers(self) -> None:
        """ConfigError where it does not say what is read, or its template leaves something out."""
        answers = bool(self.positive or self.negative)
        ways = answers + bool(self.ratings) + (self.logit is not None)
        if ways != 1 or (answers and not (self.positive and self.negative)):
            advice = "model.judge.positive=[Yes] with model.judge.negative=[No], ratings, or logit"
            raise ConfigError(f"model.judge needs one way to read the answer: {advice}")
        if ambiguous := set(self.positive) & set(self.negative):
            raise ConfigError(f"model.judge: {sorted(ambiguous)[0]!r} is positive and negative")
        if self.template is None:
            return
        if self.opponent is None and "{opponent}" in self.template:
            raise ConfigError("model.judge.template compares two: type model.judge.opponent=TEXT")
        slots = ["{prompt}", "{response}"] + ["{opponent}"] * (self.opponent is not None)
        if any(self.template.count(slot) != 1 for slot in slots):
            slot = ", ".join(slots)
            raise ConfigError(f"model.judge.template={self.template!r}: give {slot} once each")


def judge_question(
    judge: QuestionOptions, prompt: Prompt, response: str, *, swapped: bool
) -> list[dict[str, str]]:
    """The turns that ask a judge about a response; `swapped` has it change places with the
    opponent."""
    pair = (response, judge.opponent or "")
    first, second = pair[::-1] if swapped else pair
    slots = {"prompt": plain_text(prompt), "response": first, "opponent": second}
    # In one go: a response may hold "{prompt}".
    question = _SLOT.sub(lambda match: slots[match[1]], judge.template or "")
    system = [] if judge.system is None else [{"role": "system", "content": judge.system}]
    return [*system, {"role": "user", "content": question}]


def hardly_answers(measured: Mapping[str, Any]) -> bool:
    """Whether a table, by what it records, is of a judge that hardly ever gives its answers: no
    rank of it is certain."""
    answers = measured.get("answers")
    return answers is not None and answers["mean"] < HARDLY


def warn_of_rare(judge: str, share: float, instead: str) -> None:
    """Log that the answers of a judge have a small probability together, and the likeliest other
    token."""
    advice = "Give its spellings, or what its answer begins with: model.judge.begin=TEXT"
    message = "%s: its answers have a probability of %.2g together; it says others, such as %r. %s"
    log.warning(message, judge, share, instead, advice)


@dataclass(frozen=True)
class Answers:
    """Probability of a judge's answers, each question's probabilities summed over all of them."""

    mean: float
    lowest: float
    instead: int
    """The likeliest of the other tokens, on the question with the lowest probability."""

    def report(self, name: str, tokenizer: "PreTrainedTokenizerBase") -> dict[str, Any]:
        """Entry of a table on it; logs a warning below .5."""
        instead = str(tokenizer.decode([self.instead]))
        if self.mean < FEW:
            warn_of_rare(name, self.mean, instead)
        if self.mean < HARDLY:
            log.warning("%s: so no rank is certified", name)
        return {"mean": self.mean, "least": self.lowest, "instead": storable(instead)}


@dataclass(frozen=True)
class AnswerReading:
    """The tokens that are read, and how their logits become a reward."""

    positive: tuple[int, ...] = ()
    negative: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    """For ratings: what each positive id is worth."""

    @property
    def ids(self) -> tuple[int, ...]:
        return (*self.positive, *self.negative)

    def reward(self, logits: "Tensor") -> "Tensor":
        """Rewards (n,) of the logits (n, ids) of the ids that are read."""
        if self.values:
            return logits.softmax(dim=-1) @ logits.new_tensor(self.values)
        for_it, against = logits[:, : len(self.positive)], logits[:, len(self.positive) :]
        if not self.negative:
            return for_it[:, 0]
        return for_it.logsumexp(dim=-1) - against.logsumexp(dim=-1)


def read_answer(top: list[tuple[str, float]], judge: QuestionOptions) -> tuple[float, float]:
    """The reward in the likeliest tokens and their log-probabilities, and by how much it may be
    off.

    Log-odds: log Σ p(positive) − log Σ p(negative), in nats. Ratings: Σ value · p / Σ p. NaN where
    no positive, no negative or no rating is among the tokens, or ratings that are not might
    outweigh those that are.
    """
    if judge.ratings:
        seen, unseen = sum_answers(top, list(judge.ratings))
        if seen <= unseen or seen == 0:
            return math.nan, math.inf
        worths = [worth * sum_answers(top, [answer])[0] for answer, worth in judge.ratings.items()]
        spread = max(judge.ratings.values()) - min(judge.ratings.values())
        return sum(worths) / seen, spread * unseen / (seen + unseen)
    positive, more = sum_answers(top, judge.positive)
    negative, less = sum_answers(top, judge.negative)
    if positive == 0 or negative == 0:
        return math.nan, math.inf
    off = max(math.log1p(more / positive), math.log1p(less / negative))
    return math.log(positive) - math.log(negative), off


def sum_answers(top: list[tuple[str, float]], answers: Sequence[str]) -> tuple[float, float]:
    """Probability of answers that are among the likeliest tokens, and most of those that are
    not."""
    probabilities: dict[str, float] = {}
    for token, log_probability in top:
        probabilities[token] = probabilities.get(token, 0.0) + math.exp(log_probability)
    smallest = min(probabilities.values(), default=0.0)
    listed = [probabilities[answer] for answer in answers if answer in probabilities]
    return sum(listed), smallest * (len(answers) - len(listed))
