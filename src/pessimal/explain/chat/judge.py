"""A language model as the judge of whether a change moved an attribute.

Knows pairs of texts. Does not know who changed them, nor any reward. It is blind: which text is the original is hidden
by an order drawn from a digest of the pair, and the wanted direction is not given.
"""

from collections.abc import Sequence

from pessimal.explain.attribute import Amount, Attribute
from pessimal.explain.chat.client import Client
from pessimal.explain.chat.prompts import judge, prompts_digest
from pessimal.explain.chat.question import Answer, Came, digest_of

Item = tuple[str, str, str, Attribute, Amount]
"""prompt, original, edited, attribute, and whether more or less of it was asked for."""


class LlmJudge:
    """Asks which of two texts has more of an attribute, once for a pair."""

    name = "llm"

    def __init__(self, chat: Client, *, seed: int = 0):
        self.chat, self.seed = chat, seed

    def provenance(self) -> dict:
        """Everything that decides its judgements."""
        return {
            "judge": self.name,
            "chat": self.chat.provenance(),
            "prompts": prompts_digest(),
            "seed": self.seed,
        }

    def judge(self, items: Sequence[Item]) -> list[bool | None]:
        """Whether each change moved its attribute the way that was asked; one judgement an item, in their order.

        False where the model sees the same amount in both, or a move the other way. None, no opinion, where it refused
        or gave no usable answer. Texts that are the same are not asked about: nothing moved.

        Raises:
            ConfigError, WorkError: see `Client.complete`.
        """
        asked = [index for index, (_, original, edited, *_) in enumerate(items) if original != edited]
        questions = []
        for index in asked:
            prompt, original, edited, attribute, _ = items[index]
            first, second = (edited, original) if edited_first(*items[index][:4]) else (original, edited)
            questions.append(judge(prompt, first, second, attribute, seed=self.seed))
        answers = dict(zip(asked, self.chat.complete(questions), strict=True))
        return [
            _complied(item, answers[index]) if index in answers else False for index, item in enumerate(items)
        ]


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
