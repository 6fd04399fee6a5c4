"""Rewards of whole conversations, as a person would type them; kept on disk as soon as they are
known.

Knows networks, the trust check and one file. Does not know what the texts are for.
"""

import functools
import hashlib
import io
import json
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from pessimal.conversation import Conversation
from pessimal.errors import ModelError
from pessimal.progress import Counter
from pessimal.rewards.base import NetworkReward, Report, Reward, TextReward
from pessimal.rewards.checkpoint_files import model_fields
from pessimal.rewards.frame import Encoded, Format
from pessimal.rewards.language import JudgeNetwork
from pessimal.rewards.network import RewardNetwork
from pessimal.scoring.engine import Decoder, Engine, FullForward, OwnForward, own_rewards
from pessimal.scoring.scorer import first_trusted
from pessimal.scoring.sequence import FullSequence
from pessimal.scoring.trainer import Lengths, find_batch_size, within_memory
from pessimal.scoring.trust import SAMPLE, Trust, largest_difference, nearest, numerical_noise
from pessimal.texts import safe_name

log = logging.getLogger(__name__)

_BLOCK = 256
"""Conversations that go through all networks of a reward before the next."""


class Rewarder(Protocol):
    """Gives the rewards of conversations, or is a reward of texts itself."""

    def rewards(
        self, conversations: Sequence[Conversation], *, report: Report | None = None
    ) -> np.ndarray:
        """Rewards float64 (n,); NaN for a conversation longer than the model is made for."""


class TextScorer(Rewarder, Protocol):
    """Gives the rewards of conversations."""

    device: torch.device
    longest: int | None
    """Most tokens of an input that the model is made for; None where nothing says."""
    trust: Trust | None
    """Result of the check against the model's own forward; None where there was nothing to
    compare."""
    noise: float
    """Bound on the numerical error of one reward, in units of reward."""

    @property
    def path(self) -> str:
        """Name of the way that scores."""


def text_scorer(
    model: Reward,
    sample: Sequence[Conversation],
    *,
    device: torch.device,
    batch_size: int | None = None,
    folder: Path | None = None,
) -> TextScorer:
    """The scorer of a reward's texts, by whichever way it has. Checked on `sample`; what a reward
    of texts answers stays in the folder `folder`. ConfigError for several outputs."""
    model.spec.require("the reward of a text", "text")
    if texts := model.as_texts:
        return RewardTexts(texts, sample, folder=folder)
    if (network := model.as_network) is None:
        some = functools.partial(
            text_scorer, sample=sample, device=device, batch_size=batch_size, folder=folder
        )
        return SummedTexts([(weight, some(term)) for weight, term in model.terms if weight])
    networks = functools.cache(lambda which: network.network(None, which))
    make = functools.partial(NetworkTexts, network, device=device, batch_size=batch_size)
    terms = [
        (part.weight, make(part.conversations, networks(part.network), sample))
        for part in network.parts
    ]
    return terms[0][1] if [weight for weight, _ in terms] == [1.0] else SummedTexts(terms)


class RewardTexts:
    """A reward that takes texts. What it gives twice for the same texts differs by its noise; each
    answer is asked for once, also after a kill where `folder` is given."""

    path, device = "texts", torch.device("cpu")

    def __init__(
        self, model: TextReward, sample: Sequence[Conversation], *, folder: Path | None = None
    ):
        self.longest: int | None = None
        self.trust: Trust | None = None
        some = list(dict.fromkeys(sample))[:SAMPLE]
        pinned = json.dumps(model_fields(model), sort_keys=True, default=str)
        name = hashlib.sha256(pinned.encode()).hexdigest()[:24]
        once, twice = (folder and folder / f"{name}-{times}.jsonl" for times in ("once", "twice"))
        self.once, again = KeptRewards(model, once), KeptRewards(AskedAgain(model), twice)
        cost = model.cost(self.once.unknown(some), again=again.unknown(some))
        if again.unknown(some) and cost:
            log.info("%s: %d texts are asked twice: %s", model.name, len(some), cost)
        answers = [self.once.rewards(some), again.rewards(some)] if some else [np.zeros(1)] * 2
        finite = np.isfinite(answers).all(axis=0)
        self.noise = (
            numerical_noise(answers[0][finite], answers[1][finite]) if finite.any() else 0.0
        )

    def rewards(
        self, conversations: Sequence[Conversation], *, report: Report | None = None
    ) -> np.ndarray:
        """Rewards float64 (n,); NaN where a function does not apply."""
        return self.once.rewards(conversations, report=report)


class AskedAgain:
    """A reward of texts that is asked for what it has given before."""

    def __init__(self, model: TextReward):
        self.model = model

    def rewards(
        self, conversations: Sequence[Conversation], *, report: Report | None = None
    ) -> np.ndarray:
        """Rewards float64 (n,)."""
        return self.model.rewards(conversations, report=report, again=True)


class SummedTexts:
    """The weighted sum of what several scorers give, block by block, so that what is known is
    reported early. A function that does not apply adds nothing; where all are such, there is no
    sum."""

    def __init__(self, terms: Sequence[tuple[float, TextScorer]]):
        self.terms = list(terms)
        self.device = terms[0][1].device
        self.trust = nearest(scorer.trust for _, scorer in terms)
        limits = [scorer.longest for _, scorer in terms if scorer.longest is not None]
        self.longest: int | None = min(limits, default=None)
        self.noise = sum(abs(weight) * scorer.noise for weight, scorer in terms)

    @property
    def path(self) -> str:
        return ", ".join(dict.fromkeys(scorer.path for _, scorer in self.terms))

    def rewards(
        self, conversations: Sequence[Conversation], *, report: Report | None = None
    ) -> np.ndarray:
        """Rewards float64 (n,); NaN for a conversation longer than one of the models is made
        for."""
        rewards = np.zeros(len(conversations))
        for start in range(0, len(conversations), _BLOCK):
            block = rewards[start : start + _BLOCK]  # a view
            applies = np.zeros(len(block), dtype=bool)
            for weight, scorer in self.terms:
                values = scorer.rewards(conversations[start : start + _BLOCK])
                silent = np.isnan(values) & isinstance(scorer, RewardTexts)
                block += weight * np.where(silent, 0.0, values)
                applies |= ~silent
            block[~applies] = np.nan
            if report:
                finite = np.flatnonzero(np.isfinite(block)).tolist()
                report({start + i: float(block[i]) for i in finite}, len(conversations))
        return rewards


class NetworkTexts:
    """Rewards of conversations by one network, in batches of equal length, without padding.

    Where pessimal knows the network's head, whole forwards with that head in float32; held against
    the model's own forward at batch 1 when it is made, which is taken where the two differ. Heads
    that read the prompt take the own forward.
    """

    def __init__(
        self,
        model: NetworkReward,
        conversations: Format,
        network: RewardNetwork,
        sample: Sequence[Conversation],
        *,
        device: torch.device,
        batch_size: int | None = None,
    ):
        self.model, self.written, self.device = model, conversations, device
        self.network = network.to(device)
        self.batch_size = batch_size
        config = network.config.get_text_config()
        self.longest: int | None = getattr(config, "max_position_embeddings", None)
        """Most tokens of an input that the model is made for; None where its configuration does not
        say."""
        nothing = torch.empty(0, dtype=torch.long, device=device)
        self.own_forward = OwnForward(network, nothing)
        self.engines: list[Engine] = [self.own_forward]
        """From the fastest to the model's own forward; the first is in use."""
        decoder = Decoder.find(network)
        if decoder is not None and not decoder.head.gated:
            decoder.exact_norm.to(device)
            decoder.head.to(device)
            engine = FullSequence if decoder.head.sequence else FullForward
            self.engines.insert(0, engine(decoder, nothing))
        self.trust: Trust | None = None
        """Result of the check of rewards; None where the sample had nothing that fits."""
        self.noise = 0.0
        """Bound on the numerical error of one reward, in units of reward."""
        self._establish_trust([row for row in self.encoded(sample) if self.fits(row)])

    @property
    def path(self) -> str:
        """Name of the way that scores."""
        return self.engines[0].name

    def encoded(self, conversations: Sequence[Conversation]) -> list[Encoded]:
        """The ids of each conversation."""
        return [self.written.encode(conversation) for conversation in conversations]

    def fits(self, row: Encoded) -> bool:
        """Whether an input is no longer than the model is made for."""
        return self.longest is None or len(row.ids) <= self.longest

    def rewards(
        self, conversations: Sequence[Conversation], *, report: Report | None = None
    ) -> np.ndarray:
        """Rewards float64 (n,); NaN for a conversation longer than the model is made for.

        Raises ModelError where a reward is not a number.
        """
        rows = self.encoded(conversations)
        rewards = self.whole(rows, report=report)
        wrong = [i for i, row in enumerate(rows) if self.fits(row) and not np.isfinite(rewards[i])]
        if wrong:
            raise overflow(
                f"{self.model.name!r} gives {rewards[wrong[0]]} for {len(wrong)} of {len(rows)} "
                f"conversations, the first ending in {conversations[wrong[0]][-1].content[:60]!r}"
            )
        return rewards

    def whole(self, rows: Sequence[Encoded], *, report: Report | None = None) -> np.ndarray:
        """Rewards float64 (n,) of inputs as they are; NaN for what is longer than the model is made
        for."""
        return self._score(rows, self.engines[0], report=report)

    def own_rewards(self, conversations: Sequence[Conversation]) -> np.ndarray:
        """Rewards float64 (n,) by the model's own forward, one by one."""
        rows = self.encoded(conversations)
        return np.array([self._batch([row], self.own_forward)[0] for row in rows])

    def _establish_trust(self, rows: list[Encoded]) -> None:
        if not rows:
            return
        order = np.random.default_rng(0).permutation(len(rows))[:SAMPLE]
        sample = [rows[i] for i in order]
        expected = np.array([self._batch([row], self.own_forward)[0] for row in sample])
        if not np.isfinite(expected).all():
            wrong = expected[~np.isfinite(expected)][0]
            raise overflow(f"{self.model.name!r} gives {wrong} for an ordinary conversation")

        def rounding() -> float:
            # A batch of one conversation several times over is the only one of equal lengths that
            # is sure to exist.
            fours = [self._batch([row] * 4, self.own_forward)[0] for row in sample]
            return largest_difference(np.array(fours), expected)

        def score(engine: Engine, size: int) -> np.ndarray:
            return self._score(sample, engine, size=1 if size == 1 else self.batch_size)

        self.trust = first_trusted(
            self.network,
            self.engines,
            expected,
            score,
            rounding=rounding,
            dtype=self.model.spec.dtype,
        )
        self.noise = numerical_noise(self._score(sample, self.engines[0]), expected)
        if isinstance(self.network, JudgeNetwork):
            answers = self.network.answers([row.ids for row in sample])
            if answers is not None:
                answers.report(self.model.name, self.model.tokenizer)

    def _score(
        self,
        rows: Sequence[Encoded],
        engine: Engine,
        *,
        size: int | None = None,
        report: Report | None = None,
    ) -> np.ndarray:
        """Rewards float64 (n,); the longest first, so that what does not fit into memory shows at
        once."""
        rewards = np.full(len(rows), np.nan)
        by_length: dict[tuple[int, int], list[int]] = defaultdict(list)
        for index, row in enumerate(rows):
            if self.fits(row):
                by_length[len(row.ids), row.n_response].append(index)
        for (length, _), indices in sorted(by_length.items(), reverse=True):
            limit = size or self.batch_size
            if limit is None:
                lengths = Lengths(length, length)
                limit = find_batch_size(self.network.config, lengths, device=self.device)
            for start in range(0, len(indices), limit):
                batch = indices[start : start + limit]
                rewards[batch] = self._batch([rows[index] for index in batch], engine)
                if report:
                    report({index: float(rewards[index]) for index in batch}, len(rows))
        return rewards

    @torch.no_grad()
    def _batch(self, rows: Sequence[Encoded], engine: Engine) -> np.ndarray:
        """Rewards float64 (n,) of inputs of one length, with responses of one length."""
        ids, n_response = self._tensor([row.ids for row in rows]), rows[0].n_response
        if isinstance(engine, FullForward):
            rewards = within_memory(
                functools.partial(engine.whole_rewards, n_response=n_response), ids
            )
        else:
            types = [row.types for row in rows if row.types is not None]
            inputs = (ids, self._tensor(types)) if types else (ids,)
            rewards = own_rewards(self.network, *inputs, n_response=n_response)
        return rewards.double().cpu().numpy()

    def _tensor(self, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        return torch.tensor(rows, dtype=torch.long, device=self.device)


def overflow(fault: str) -> ModelError:
    """Error for a network that gives no number in its precision."""
    return ModelError(
        f"{fault}: in this precision its numbers overflow. Type model.dtype=float32 or "
        "model.dtype=bfloat16"
    )


class KeptRewards:
    """A scorer that asks another for each conversation once, also after a kill where it has a file.
    That belongs to one reward in one precision: its path must say which."""

    def __init__(
        self, scorer: Rewarder, file: Path | None, advance: Callable[[int], None] = lambda n: None
    ):
        self.scorer, self.file, self.advance = scorer, file, advance
        self.n_scored = 0
        """Conversations that went through the network in this process."""
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
        self._stored = dict(_lines(file)) if file is not None and file.is_file() else {}

    def unknown(self, conversations: Sequence[Conversation]) -> list[Conversation]:
        """Those that will be asked for."""
        return [
            conversation for conversation in conversations if _key(conversation) not in self._stored
        ]

    def rewards(
        self, conversations: Sequence[Conversation], *, report: Report | None = None
    ) -> np.ndarray:
        """Rewards float64 (n,); NaN for what is longer than the model is made for."""
        keys = [_key(conversation) for conversation in conversations]
        first: dict[str, int] = {}
        for index, key in enumerate(keys):
            first.setdefault(key, index)
        stored = {i: self._stored[key] for key, i in first.items() if key in self._stored}
        if report and stored:
            report(stored, len(keys))
        names = [key for key in first if key not in self._stored]
        if names:
            with self.file.open("a", encoding="ascii") if self.file else io.StringIO() as sink:
                sink.write("\n" * bool(sink.tell()))  # what stands there may be half a line

                def keep(batch: dict[int, float], _of: int) -> None:
                    # What is no number is an error, which the scorer raises.
                    finite = {
                        names[i]: reward for i, reward in batch.items() if math.isfinite(reward)
                    }
                    sink.writelines(f"{json.dumps(pair)}\n" for pair in finite.items())
                    sink.flush()
                    self.advance(len(batch))
                    if report:
                        report({first[name]: reward for name, reward in finite.items()}, len(keys))

                todo = [conversations[first[name]] for name in names]
                rewards = self.scorer.rewards(todo, report=keep)
            self._stored |= dict(zip(names, rewards.tolist(), strict=True))
            self.n_scored += len(names)
        return np.array([self._stored[key] for key in keys], dtype=np.float64)


@dataclass(frozen=True)
class Scorers:
    """Makes what scores a model's texts, on one device; rewards are kept on disk as they come where
    a folder is given."""

    texts: Sequence[Conversation]
    """Conversations to check a scorer on; the first are taken."""
    device: torch.device
    batch_size: int | None
    folder: Path | None
    counter: Counter

    def make_scorer(self, model: Reward, *, sample: int = 4) -> tuple[TextScorer, KeptRewards]:
        """The scorer of a model, checked on a sample of conversations; and the same with what it
        gives kept."""
        scorer = text_scorer(
            model,
            self.texts[:sample],
            device=self.device,
            batch_size=self.batch_size,
            folder=self.folder,
        )
        scored_by = [model_fields(model), scorer.path, scorer.device.type]
        name = hashlib.sha256(json.dumps(scored_by, sort_keys=True).encode()).hexdigest()[:24]
        file = self.folder and self.folder / f"{safe_name(model.name)}-{name}.jsonl"
        return scorer, KeptRewards(scorer, file, self.counter.advance)


def _key(conversation: Conversation) -> str:
    turns = json.dumps([[turn.role, turn.content] for turn in conversation])
    return hashlib.sha256(turns.encode()).hexdigest()


def _lines(file: Path) -> Iterator[tuple[str, float]]:
    """Entries of the file; the line that a killed process was writing is no line."""
    for line in file.read_text(encoding="ascii", errors="replace").splitlines():
        try:
            key, reward = json.loads(line)
            reward = float(reward)
        except (ValueError, TypeError):
            continue
        if isinstance(key, str) and math.isfinite(reward):
            yield key, reward
