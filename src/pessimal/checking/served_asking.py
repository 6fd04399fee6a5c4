"""What a server is sent and what it answered: random words as responses, alone, again, in batches
of unlike lengths, and longer than the limits at which servers cut.

Knows a tokenizer and a budget. Does not know faults, networks or HTTP: a server is a function from
inputs to scores.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np

from pessimal.conversation import Conversation, Turn
from pessimal.errors import FrameError, ModelError, WorkError
from pessimal.rewards.base import NetworkReward
from pessimal.rewards.frame import messages_of, takes_pairs
from pessimal.rewards.rendering import rendered

Ids: TypeAlias = tuple[int, ...]
Input: TypeAlias = Ids | Conversation
Scores = Callable[[Sequence], np.ndarray]
"""One request: scores (n,) or (n, outputs) of n inputs, all lists of token ids, all texts, or all
conversations."""
FORMS = ("ids", "messages", "text", "pairs")
"""What can be sent, in the order that it is asked."""
BUDGET, SINGLES, REPEATS, BATCHES, BATCH, BARE = 200, 40, 8, 4, 8, 8
"""Inputs in all, and of the first form at the full budget; `BARE` lack what closes a response."""
OTHERS = 12
"""Conversations in each further form."""
BEFORE: tuple[Conversation, ...] = (
    (),
    (Turn("system", "Be brief."),),
    (Turn("user", "Can you help me?"), Turn("assistant", "Yes, ask away.")),
)
"""What stands before the prompt, in turn, where the template takes it."""
LIMITS = (512, 2048, 4096)
"""Tokens at which servers cut: two inputs are longer than each, where the context allows."""
BEYOND = 40


@dataclass
class Asked:
    """Inputs in the order sent, and what they got. A batch is a request of several inputs."""

    form: list[str] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    request: list[int] = field(default_factory=list)
    kind: list[str] = field(default_factory=list)
    """`alone`, `again`, `batch` or `long`."""
    answers: list[np.ndarray] = field(default_factory=list)
    """(outputs,) each."""


class Interview:
    """One server, one tokenizer, a budget of inputs."""

    def __init__(
        self,
        scores: Scores,
        model: NetworkReward,
        *,
        forms: Sequence[str],
        prompt: str,
        context: int | None,
        seed: int,
        budget: int,
    ):
        self.server, self.model, self.prompt, self.budget = scores, model, prompt, budget
        pairs = takes_pairs(model.tokenizer)
        suits = {"ids": True, "messages": not pairs, "text": not pairs, "pairs": pairs}
        self.forms = [form for form in FORMS if form in forms and suits[form]]
        self.random = np.random.default_rng(seed)
        self.conversations = model.parts[0].conversations
        self.frame = self.conversations.frame(prompt)
        self.before = [()] if pairs else [turns for turns in BEFORE if self._added(turns) >= 0]
        self.asked, self.refused = Asked(), list[tuple[str, int]]()
        """What was sent, and (form, words) of long inputs that the server does not take."""
        around = len(self.frame.around([])) + max(map(self._added, self.before))
        room = (context or LIMITS[0] + 2 * BEYOND) - around - 8
        longest = max(min(64, room), 9)
        self.lengths = [1, 1, 2, 3, 5, 9, longest // 2, longest]
        self.long = [most + BEYOND for most in LIMITS if most + BEYOND <= room]
        self._words = self._plain_words()

    @property
    def left(self) -> int:
        """Inputs that may still be sent."""
        return self.budget - len(self.asked.inputs)

    def ask(self) -> None:
        """All inputs."""
        share = self.budget / BUDGET
        for number, form in enumerate(self.forms):
            count = max(round((OTHERS if number else SINGLES) * share), 8)
            self._alone(form, [self.lengths[i % len(self.lengths)] for i in range(count)])
            if number == 0:
                self._again_and_in_batches(form, share)
            for words in self.long if share == 1 else self.long[:1]:
                for _ in range(1 if number else 2):
                    self._long(form, words)

    def _alone(self, form: str, lengths: Sequence[int]) -> None:
        for length in lengths:
            self._send(form, [self.item(form, length)], "alone")

    def _again_and_in_batches(self, form: str, share: float) -> None:
        alone = list(self.asked.inputs)
        if form == "ids":
            for length in range(2, 2 + max(round(BARE * share), 4)):
                self._send(form, [(*self.frame.prefix, *self._response(length))], "alone")
        for row in self.random.permutation(len(alone))[: max(round(REPEATS * share), 6)]:
            self._send(form, [alone[row]], "again")
        order = self.random.permutation(len(alone))
        for number in range(max(round(BATCHES * share), 2)):
            known = [alone[i] for i in order[number * BATCH // 2 : (number + 1) * BATCH // 2]]
            fresh = [self.item(form, self.lengths[i % 8]) for i in range(BATCH - len(known))]
            both = known + fresh
            self._send(form, [both[i] for i in self.random.permutation(len(both))], "batch")

    def _long(self, form: str, words: int) -> None:
        if self.left < 1:
            return
        try:
            self._send(form, [self.item(form, words)], "long")
        except ModelError:  # understood, and refused: what one would wish for
            self.refused.append((form, words))

    def _send(self, form: str, inputs: Sequence[Input], kind: str) -> None:
        if len(inputs) > self.left:
            raise WorkError(
                f"{self.budget} inputs are too few for forms={','.join(self.forms)}: type "
                f"requests={BUDGET}, or fewer forms"
            )
        answer = np.asarray(
            self.server([self._as_sent(form, one) for one in inputs]), dtype=np.float64
        )
        if len(answer) != len(inputs) or answer.ndim > 2:
            raise WorkError(
                f"the server answered {len(inputs)} inputs with numbers of shape {answer.shape}; "
                "expected one score, or one row of scores, for each"
            )
        request, asked = len(self.asked.inputs), self.asked
        for one, row in zip(inputs, answer.reshape(len(inputs), -1), strict=True):
            asked.form.append(form)
            asked.inputs.append(one)
            asked.request.append(request)
            asked.kind.append(kind)
            asked.answers.append(row)

    def _as_sent(self, form: str, one: Input) -> Any:
        """Ids as a list, text as the chat template writes it, closing tokens and all, and other
        conversations as they are."""
        if form == "ids":
            return list(one)
        if form != "text":
            return one
        tokenizer = self.model.tokenizer
        closing = getattr(self.conversations, "closing", ())
        text = rendered(tokenizer, messages_of(cast(Conversation, one)), tokenize=False)
        return text + (str(tokenizer.decode(list(closing))) if closing else "")

    def item(self, form: str, length: int) -> Input:
        """A response of some random words in its frame."""
        ids = self._response(length)
        if form == "ids":
            return tuple(self.frame.around(ids))
        text = str(self.model.tokenizer.decode(ids, clean_up_tokenization_spaces=False)).strip()
        before = self.before[len(self.asked.inputs) % len(self.before)]
        return *before, Turn("user", self.prompt), Turn("assistant", text)

    def _added(self, before: Conversation) -> int:
        """Tokens that turns before the prompt add; -1 where the template does not take or show
        them."""
        if not before:
            return 0
        plain, encode = (
            (Turn("user", self.prompt), Turn("assistant", "yes")),
            self.conversations.encode,
        )
        try:
            return len(encode((*before, *plain)).ids) - len(encode(plain).ids) or -1
        except (FrameError, ModelError):
            return -1

    def _response(self, length: int) -> list[int]:
        return self.random.choice(self._words, length).tolist()

    def _plain_words(self) -> np.ndarray:
        """Ids that a text can hold without being changed on its way: words; where they are few, all
        but special tokens."""
        tokenizer = self.model.tokenizer
        ids = range(min(len(tokenizer), self.model.embedding_rows))
        texts = tokenizer.batch_decode([[i] for i in ids], clean_up_tokenization_spaces=False)
        special = set(tokenizer.all_special_ids)
        words = [i for i in ids if i not in special and texts[i].strip().isalnum()]
        return np.array(words if len(words) > 50 else [i for i in ids if i not in special])
