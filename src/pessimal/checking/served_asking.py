"""What is sent to a server, what it answered, and what hypotheses predict of it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from pessimal.checking.served_faults import LINKS, RIGHT, Ids, Local, Part, Seen, readings, variants
from pessimal.errors import WorkError
from pessimal.rewards.base import NetworkReward
from pessimal.rewards.frame import Conversation, Turn, messages_of, takes_pairs
from pessimal.rewards.spec import Dtype

Input = Ids | str | Conversation
Scores = Callable[[Sequence], np.ndarray]
"""One request: scores (n,) or (n, outputs) of n inputs, all lists of token ids, all texts, or all
conversations."""
FORMS = ("ids", "messages", "text")
"""What can be sent, in the order that it is asked."""
SINGLES, REPEATS, BATCHES, BATCH = 40, 8, 4, 8
"""Of the first round, at the full budget."""
BUDGET = 200


@dataclass(frozen=True)
class Hypothesis:
    """What the server does: reads a form so, makes a number of it so, and does this to the
    number."""

    reading: Part = RIGHT
    link: str = ""
    variants: tuple[tuple[str, Part], ...] = ()
    """(form, variant) where it is not the right one."""

    @property
    def faults(self) -> tuple[Part, ...]:
        """The parts that are wrong."""
        parts = [self.reading, Part(self.link), *(variant for _, variant in self.variants)]
        return tuple(dict.fromkeys(part for part in parts if part.fault))

    @property
    def names(self) -> frozenset[str]:
        return frozenset(part.fault for part in self.faults)


@dataclass
class Asked:
    """Inputs in the order sent: of which form, in which request, and their scores."""

    form: list[str] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    request: list[int] = field(default_factory=list)
    answers: list[np.ndarray] = field(default_factory=list)
    """(outputs,) each."""

    def add(self, form: str, one: Input, request: int, answer: np.ndarray | None = None) -> None:
        self.form.append(form)
        self.inputs.append(one)
        self.request.append(request)
        if answer is not None:
            self.answers.append(answer)

    def scores(self, column: int = 0) -> np.ndarray:
        """One output float64 (n,)."""
        return np.array(
            [answer[min(column, len(answer) - 1)] for answer in self.answers], dtype=np.float64
        )

    @property
    def distinct(self) -> list[int]:
        """Rows of inputs that differ, each where it was first sent."""
        first: dict[Input, int] = {}
        for row, one in enumerate(self.inputs):
            first.setdefault(one, row)
        return sorted(first.values())


class Interview:
    """One server, one model, a budget of inputs."""

    def __init__(
        self,
        scores: Scores,
        model: NetworkReward,
        *,
        base: NetworkReward | None,
        forms: Sequence[str],
        prompt: str,
        device: torch.device,
        seed: int,
        budget: int,
    ):
        self.server, self.model, self.device, self.prompt, self.budget = (
            scores,
            model,
            device,
            prompt,
            budget,
        )
        pairs = takes_pairs(model.tokenizer)
        self.forms = [form for form in FORMS if form in forms and not (pairs and form == "text")]
        self.random = np.random.default_rng(seed)
        self.network = model.network(Dtype.float32).to(device)
        self.local = Local(self.network)
        self.base = None if base is None else Local(base.network(Dtype.float32).to(device))
        self.readings = readings(self.local, self.base, self._pads())
        self.conversations = model.parts[0].conversations
        self.frame = self.conversations.frame(prompt)
        self.asked, self.repeat_difference, self.batch_difference = Asked(), 0.0, 0.0
        self._words = self._plain_words()
        self._variants: dict[Input, dict[Part, Ids]] = {}

    @property
    def column(self) -> int:
        """Which of the server's outputs should be the reward."""
        return getattr(self.network, "reward_output", 0)

    @property
    def served(self) -> np.ndarray:
        return self.asked.scores(self.column)

    @property
    def left(self) -> int:
        """Inputs that may still be sent."""
        return self.budget - len(self.asked.inputs)

    # What is sent

    def _pads(self) -> dict[int, str]:
        """Tokens that a server may pad with."""
        tokenizer = self.model.tokenizer
        known = {
            "": tokenizer.pad_token_id,
            "of config.json": self.network.config.get_text_config().pad_token_id,
            "= EOS": tokenizer.eos_token_id,
            "= UNK": tokenizer.unk_token_id,
            "0": 0,
        }
        return {
            token: name
            for name, token in reversed(known.items())
            if token is not None and token >= 0
        }

    def _plain_words(self) -> np.ndarray:
        """Ids that a text can hold without being changed on its way: words; where they are few, all
        but special tokens."""
        tokenizer = self.model.tokenizer
        ids = range(min(len(tokenizer), self.model.embedding_rows))
        texts = tokenizer.batch_decode([[i] for i in ids], clean_up_tokenization_spaces=False)
        special = set(tokenizer.all_special_ids)
        words = [
            i
            for i, text in zip(ids, texts, strict=True)
            if i not in special and text.strip().isalnum()
        ]
        return np.array(words if len(words) > 50 else [i for i in ids if i not in special])

    def response(self, length: int) -> list[int]:
        """Random words."""
        return self.random.choice(self._words, length).tolist()

    def plain(self, length: int) -> str:
        return self.model.tokenizer.decode(
            self.response(length), clean_up_tokenization_spaces=False
        ).strip()

    def item(self, form: str, length: int) -> Input:
        """A response of some random words in its frame."""
        if form == "ids":
            return tuple(self.frame.around(self.response(length)))
        return Turn("user", self.prompt), Turn("assistant", self.plain(length))

    def lengths(self) -> list[int]:
        """Of responses, in turn, up to long ones."""
        most = (
            getattr(self.network.config.get_text_config(), "max_position_embeddings", None) or 512
        )
        longest = max(min(64, most - len(self.frame.around([])) - 8), 9)
        return [1, 1, 2, 3, 5, 9, longest // 2, longest]

    def rendered(self, one: Input) -> str:
        """A conversation as the text that is sent, closing tokens and all."""
        if isinstance(one, str):
            return one
        tokenizer = self.model.tokenizer
        closing = getattr(self.conversations, "closing", ())
        text = tokenizer.apply_chat_template(messages_of(one), tokenize=False)
        return text + (tokenizer.decode(list(closing)) if closing else "")

    def send(self, form: str, inputs: Sequence[Input]) -> np.ndarray:
        """One request, kept for judging; the reward's output (n,). WorkError where the answer has
        another shape, or the budget does not reach."""
        if len(inputs) > self.left:
            raise WorkError(
                f"the server would be sent more than {self.budget} inputs, and nothing is decided "
                f"yet"
            )
        as_sent = {"ids": list, "text": self.rendered, "messages": lambda one: one}[form]
        answer = np.asarray(self.server([as_sent(one) for one in inputs]), dtype=np.float64)
        if len(answer) != len(inputs) or answer.ndim > 2:
            raise WorkError(
                f"the server answered {len(inputs)} inputs with numbers of shape {answer.shape}; "
                "expected one score, or one row of scores, for each"
            )
        request = len(self.asked.inputs)
        for one, row in zip(inputs, answer.reshape(len(inputs), -1), strict=True):
            self.asked.add(form, one, request, row)
        return self.served[request:]

    def first_round(self, form: str) -> None:
        """Singles, some of them again, and batches of unlike lengths in random order, half of them
        old."""
        lengths = self.lengths()
        singles, repeats, batches = (
            max(count * self.budget // BUDGET, least)
            for count, least in ((SINGLES, 8), (REPEATS, 6), (BATCHES, 1))
        )
        items = [self.item(form, lengths[i % len(lengths)]) for i in range(singles)]
        alone = np.array([self.send(form, [one])[0] for one in items])
        again = self.random.permutation(singles)[:repeats]
        repeated = np.array([self.send(form, [items[i]])[0] for i in again])
        self.repeat_difference = float(np.abs(repeated - alone[again]).max())
        order = self.random.permutation(singles)
        for number in range(batches):
            known = order[number * BATCH // 2 : (number + 1) * BATCH // 2]
            fresh = [self.item(form, lengths[i % len(lengths)]) for i in range(BATCH - len(known))]
            turned = self.random.permutation(BATCH)
            got = np.empty(BATCH)
            got[turned] = self.send(form, [([items[i] for i in known] + fresh)[i] for i in turned])
            apart = float(np.abs(got[: len(known)] - alone[known]).max())
            self.batch_difference = max(self.batch_difference, apart)

    # What hypotheses predict

    def ids(self, one: Input, variant: Part) -> Ids:
        """What a server reads of an input; the right ids where the variant does not concern it."""
        if not isinstance(one, str) and not isinstance(one[0], Turn):
            return one
        if one not in self._variants:
            self._variants[one] = {
                part: ids for part, ids in variants(self.model, one, self.frame.suffix) if ids
            }
        return self._variants[one].get(variant, self._variants[one][RIGHT])

    def wrong_variants(self, form: str) -> list[Part]:
        """Those that differ from the right ids in any input of this form."""
        inputs = [
            one for one, of in zip(self.asked.inputs, self.asked.form, strict=True) if of == form
        ]
        right = [self.ids(one, RIGHT) for one in inputs]
        names = dict.fromkeys(name for one in inputs for name in self._variants[one])
        return [name for name in names if [self.ids(one, name) for one in inputs] != right]

    def seen(self, hypothesis: Hypothesis, asked: Asked | None = None) -> list[Seen]:
        """Inputs as the server reads them by a hypothesis."""
        asked, by_form = asked or self.asked, dict(hypothesis.variants)
        ids = [
            self.ids(one, by_form.get(form, RIGHT))
            for one, form in zip(asked.inputs, asked.form, strict=True)
        ]
        requests: dict[int, list[Ids]] = {}
        for row, request in zip(ids, asked.request, strict=True):
            requests.setdefault(request, []).append(row)
        width = {request: max(map(len, rows)) for request, rows in requests.items()}
        return [Seen(row, width[request]) for row, request in zip(ids, asked.request, strict=True)]

    def predict(
        self, hypothesis: Hypothesis, local: Local | None = None, asked: Asked | None = None
    ) -> np.ndarray:
        """Scores float64 (n,) of all that was asked."""
        read, local, seen = (
            self.readings[hypothesis.reading],
            local or self.local,
            self.seen(hypothesis, asked),
        )
        local.prepare(one.ids for one in seen)
        values = np.array([read(local, one) for one in seen])
        return LINKS[hypothesis.link](values)

    def hypotheses(self, form: str) -> Iterator[Hypothesis]:
        """Every reading and link; of a text also every variant. The right one first."""
        for reading in self.readings:
            for link in LINKS:
                if link != "softmax" or reading == RIGHT:
                    yield Hypothesis(reading, link)
        if form != "ids":
            for variant in self.wrong_variants(form):
                for link in ("", "sigmoid"):
                    yield Hypothesis(link=link, variants=((form, variant),))

    def pool(self, form: str) -> Asked:
        """Inputs that may tell hypotheses apart, none of them sent: in the frame, and without what
        closes it."""
        inputs: list[Input] = [
            self.item(form, length) for length in [1] * 24 + [2, 3, 4, 5, 6, 7, 8, 9] * 2
        ]
        if form == "ids":
            bare = [tuple(self.response(length)) for length in range(2, 10)]
            inputs += bare + [ids + self.frame.suffix[-1:] for ids in bare[:4]]
        if form == "text":
            inputs += [self.plain(length) for length in range(3, 11)]
        asked = Asked()
        for number, one in enumerate(inputs):
            asked.add(form, one, number)
        return asked
