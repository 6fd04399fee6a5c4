"""A language model as the judge of whether a change moved an attribute.

It is blind: which text is the original is hidden by an order drawn from a digest of the pair, and the wanted direction is
not given. Knows pairs of texts. Does not know who changed them, nor any reward.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from pessimal.explain.attribute import Amount, Attribute
from pessimal.explain.chat.client import Client
from pessimal.explain.chat.endpoint import Endpoint, EndpointOptions
from pessimal.explain.chat.prompts import judge, prompts_digest
from pessimal.explain.chat.question import Answer, Came, digest_of

Item = tuple[str, str, str, Attribute, Amount]
"""prompt, original, edited, attribute, and whether more or less of it was asked for."""


class LlmJudge:
    """Asks which of two texts has more of an attribute, once for a pair."""

    name = "llm"

    def __init__(self, chat: Client):
        self.chat = chat

    def provenance(self) -> dict:
        """Everything that decides its judgements."""
        return {"judge": self.name, "chat": self.chat.provenance(), "prompts": prompts_digest()}

    def judge(self, items: Sequence[Item]) -> list[bool | None]:
        """Whether each change moved its attribute the way that was asked; one judgement an item, in their order.

        False where the model sees the same amount in both, or a move the other way. None, no opinion, where it refused
        or gave no usable answer. Texts that are the same are not asked about: nothing moved.

        Raises:
            ConfigError, WorkError: see `Client.complete` and `Client.check_answered`.
        """
        asked = [index for index, (_, original, edited, *_) in enumerate(items) if original != edited]
        questions = []
        for index in asked:
            prompt, original, edited, attribute, _ = items[index]
            first, second = (edited, original) if edited_first(*items[index][:4]) else (original, edited)
            questions.append(judge(prompt, first, second, attribute))
        answers = dict(zip(asked, self.chat.complete(questions), strict=True))
        self.chat.check_answered()
        return [
            _complied(item, answers[index]) if index in answers else False for index, item in enumerate(items)
        ]


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
    asking = {name: perturber[name] for name in ("attempts", "allow_unanswered") if name in perturber}
    return LlmJudge(Client(Endpoint(EndpointOptions(**options)), cache=cache, **asking))


def edited_first(prompt: str, original: str, edited: str, attribute: Attribute) -> bool:
    """Whether the edited text is shown as A: for half of all pairs, and always the same for one."""
    return int(digest_of([prompt, original, edited, attribute.name])[:8], 16) % 2 == 0


def _complied(item: Item, answer: Answer) -> bool | None:
    if answer.came is not Came.answered:
        return None
    more = answer.content["more"]
    if more == "same":
        return False
    edited_has_more = (more == "A") == edited_first(*item[:4])
    return edited_has_more == (item[4] is Amount.more)
