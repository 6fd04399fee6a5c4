"""Judges of edits: whether an edit moved the attribute that it was asked to move. The judge of
detectors stands beside these (`detectors.RuleJudge`).

A judge knows texts and attributes. It does not know who made the edit, nor any reward. A language
model is blind: which text is the original is hidden by an order drawn from a digest of the pair
(one on this machine is asked in both orders), and the wanted direction is not given.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pessimal.explaining.attribute import Amount, Attribute
from pessimal.explaining.chat import (
    Answer,
    AnswerStatus,
    Client,
    Endpoint,
    EndpointOptions,
    digest_of,
)
from pessimal.explaining.outcomes import Scorer
from pessimal.explaining.perturbers.prompts import judge, judge_plainly, prompts_digest

if TYPE_CHECKING:
    from pessimal.rewards.base import Reward


Item = tuple[str, str, str, Attribute, Amount]
"""(prompt, original, edited, attribute, the amount that was asked for)."""


class Judge(Protocol):
    """Judges edits."""

    name: str

    def provenance(self) -> dict[str, Any]:
        """Everything that decides its judgements, as JSON."""

    def judge(self, items: Sequence[Item]) -> list[bool | None]:
        """Whether each edit moved its attribute the way that was asked; one judgement an item, in
        their order. None where it has no opinion."""


class LlmJudge:
    """Asks a language model which of two texts has more of an attribute, once for a pair."""

    name = "llm"

    def __init__(self, chat: Client):
        self.chat = chat

    def provenance(self) -> dict[str, Any]:
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
        return [_judgement(item, answers.get(item[:4])) for item in items]


class LikelihoodJudge:
    """Asks a language model on this machine which of two texts has more of an attribute, in both
    orders, and reads how likely it is to name either. It writes nothing, so that one too small to
    write a JSON object can be asked."""

    name = "local"
    scorer: Scorer
    """Gives log p(response | prompt) of conversations as rewards; set before it judges."""

    def __init__(self, model: "Reward"):
        """`model`: a reward of the kind log_probability."""
        self.model = model

    def provenance(self) -> dict[str, Any]:
        """Everything that decides its judgements."""
        from pessimal.rewards.checkpoint_files import model_fields  # torch comes with it

        return {"judge": self.name, "model": model_fields(self.model), "prompts": prompts_digest()}

    def judge(self, items: Sequence[Item]) -> list[bool | None]:
        """Whether each change moved its attribute the way that was asked; one judgement an item, in
        their order.

        The log-odds of naming the edited text, summed over both orders, so that a taste for the
        first or the last named cancels out, speak for more (above 0) or less of the attribute.
        False for equal texts. None, no opinion, where a question is longer than the model reads, or
        the sum is 0.
        """
        questions = [
            judge_plainly(prompt, *texts, attribute, answer)
            for prompt, original, edited, attribute, _ in items
            for texts in ((edited, original), (original, edited))
            for answer in ("A", "B")
        ]
        scores = self.scorer.rewards(questions).reshape(-1, 2, 2)  # (items, orders, answers)
        log_odds = scores[:, :, 0] - scores[:, :, 1]
        judgements = []
        for item, more in zip(items, (log_odds[:, 0] - log_odds[:, 1]).tolist(), strict=True):
            opinion = None if not more or math.isnan(more) else (more > 0) == _wants_more(item)
            judgements.append(False if item[1] == item[2] else opinion)
        return judgements


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
    names = {field.name for field in fields(EndpointOptions)}
    options = {name: value for name, value in perturber.items() if name in names}
    options |= {"model": model, "temperature": 0.0} | ({"base_url": base_url} if base_url else {})
    asking = {n: perturber[n] for n in ("attempts", "allow_unanswered") if n in perturber}
    return LlmJudge(Endpoint(EndpointOptions(**options), cache=cache, **asking))


def edited_first(prompt: str, original: str, edited: str, attribute: Attribute) -> bool:
    """Whether the edited text is shown as A: for half of all pairs, and always the same for one."""
    return int(digest_of([prompt, original, edited, attribute.name])[:8], 16) % 2 == 0


def _wants_more(item: Item) -> bool:
    return item[4] is Amount.more


def _judgement(item: Item, answer: Answer | None) -> bool | None:
    """The judgement in an answer; equal texts, which are not asked about, do not comply."""
    if answer is None:
        return False
    if answer.status is not AnswerStatus.answered:
        return None
    more = answer.content["more"]
    return more != "same" and ((more == "A") == edited_first(*item[:4])) == _wants_more(item)
