"""Rewards of whole conversations, as a person would type them; kept on disk as soon as they are known.

Knows networks, the trust check and one file. Does not know what the texts are for.
"""

import functools
import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from pessimal.errors import ModelError
from pessimal.rewards.frame import Conversation, Encoded, encode
from pessimal.rewards.load import RewardModel
from pessimal.scoring.engine import Decoder, Engine, FullForward, OwnForward, own_rewards
from pessimal.scoring.memory import Lengths, find_batch_size, within_memory
from pessimal.scoring.scorer import first_trusted
from pessimal.scoring.trust import SAMPLE, Trust, numerical_noise

Report = Callable[[dict[int, float], int], None]
"""Called with the rewards of one batch, by row, and the number of all rows."""


class TextScorer:
    """Rewards of conversations by one network, in batches of equal length, without padding.

    Where pessimal knows the network's head, whole forwards with that head in float32; held against the model's own forward
    at batch 1 when it is made, which is taken where the two differ. Heads that read the prompt take the own forward.
    """

    def __init__(
        self,
        model: RewardModel,
        network: torch.nn.Module,
        sample: Sequence[Conversation],
        *,
        device: torch.device,
        batch_size: int | None = None,
    ):
        self.model, self.network, self.device = model, network.to(device), device
        self.batch_size = batch_size
        self.longest: int | None = getattr(network.config.get_text_config(), "max_position_embeddings", None)
        """Most tokens of an input that the model is made for; None where its configuration does not say."""
        nothing = torch.empty(0, dtype=torch.long, device=device)
        self.own = OwnForward(network, nothing)
        self.engines: list[Engine] = [self.own]
        """From the fastest to the model's own forward; the first is in use."""
        decoder = Decoder.of(network)
        if decoder is not None and not decoder.head.gated:
            decoder.exact_norm.to(device)
            decoder.head.to(device)
            self.engines.insert(0, FullForward(decoder, nothing))
        self.trust: Trust | None = None
        """What the check rewards; None where the sample had nothing that fits."""
        self.noise = 0.0
        """Bound on the numerical error of one reward, in units of reward."""
        self._establish_trust([row for row in self.encoded(sample) if self.fits(row)])

    @property
    def path(self) -> str:
        """Name of the way that scores."""
        return self.engines[0].name

    def encoded(self, conversations: Sequence[Conversation]) -> list[Encoded]:
        """The ids of each conversation."""
        return [encode(self.model.tokenizer, c, closing=self.model.closing) for c in conversations]

    def fits(self, row: Encoded) -> bool:
        """Whether an input is no longer than the model is made for."""
        return self.longest is None or len(row.ids) <= self.longest

    def rewards(self, conversations: Sequence[Conversation], *, report: Report | None = None) -> np.ndarray:
        """Rewards float64 (n,); NaN for a conversation longer than the model is made for.

        Raises ModelError where a reward is not a number.
        """
        rows = self.encoded(conversations)
        rewards = self._score(rows, self.engines[0], report=report)
        wrong = [i for i, row in enumerate(rows) if self.fits(row) and not np.isfinite(rewards[i])]
        if wrong:
            raise ModelError(
                f"{self.model.name!r} gives {rewards[wrong[0]]} for {len(wrong)} of {len(rows)} conversations, the first ending "
                f"in {conversations[wrong[0]][-1].content[:60]!r}: in this precision its numbers overflow. Type "
                "model.dtype=float32 or model.dtype=bfloat16"
            )
        return rewards

    def own_rewards(self, conversations: Sequence[Conversation]) -> np.ndarray:
        """Rewards float64 (n,) by the model's own forward, one by one."""
        return np.array([self._batch([row], self.own)[0] for row in self.encoded(conversations)])

    def _establish_trust(self, rows: list[Encoded]) -> None:
        if not rows:
            return
        chosen = np.random.default_rng(0).permutation(len(rows))[:SAMPLE]
        sample = [rows[i] for i in chosen]
        own = np.array([self._batch([row], self.own)[0] for row in sample])
        if not np.isfinite(own).all():
            raise ModelError(
                f"{self.model.name!r} gives {own[~np.isfinite(own)][0]} for an ordinary conversation: in this precision its "
                "numbers overflow. Type model.dtype=float32 or model.dtype=bfloat16"
            )
        # A batch of one conversation several times over is the only one of equal lengths that is sure to exist.
        fours = np.array([self._batch([row] * 4, self.own)[0] for row in sample])

        def by(engine: Engine, size: int) -> np.ndarray:
            return self._score(sample, engine, size=1 if size == 1 else self.batch_size)

        rounding = float(np.abs(fours - own).max())
        self.trust = first_trusted(self.engines, own, by, rounding=rounding, dtype=self.model.spec.dtype)
        self.noise = numerical_noise(self._score(sample, self.engines[0]), own)

    def _score(
        self,
        rows: Sequence[Encoded],
        engine: Engine,
        *,
        size: int | None = None,
        report: Report | None = None,
    ) -> np.ndarray:
        """Rewards float64 (n,); the longest first, so that what does not fit into memory shows at once."""
        rewards = np.full(len(rows), np.nan)
        by_length: dict[int, list[int]] = defaultdict(list)
        for index, row in enumerate(rows):
            if self.fits(row):
                by_length[len(row.ids)].append(index)
        for length in sorted(by_length, reverse=True):
            indices, config = by_length[length], self.network.config
            most = (
                size
                or self.batch_size
                or find_batch_size(config, Lengths(length, length), device=self.device)
            )
            for start in range(0, len(indices), most):
                batch = indices[start : start + most]
                rewards[batch] = self._batch([rows[index] for index in batch], engine)
                if report:
                    report({index: float(rewards[index]) for index in batch}, len(rows))
        return rewards

    @torch.no_grad()
    def _batch(self, rows: Sequence[Encoded], engine: Engine) -> np.ndarray:
        """Rewards float64 (n,) of inputs of one length."""
        ids = self._tensor([row.ids for row in rows])
        if engine is not self.own:
            rewards = within_memory(functools.partial(engine.rewards, shared=0), ids)
        else:
            types = None if rows[0].types is None else self._tensor([row.types for row in rows])
            rewards = own_rewards(self.network, ids, types)
        return rewards.double().cpu().numpy()

    def _tensor(self, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        return torch.tensor(rows, dtype=torch.long, device=self.device)


class KeptRewards:
    """A scorer that asks another for each conversation once, also after a kill. The file belongs to one
    network in one precision: its path must say which."""

    def __init__(self, scorer: TextScorer, file: Path, advance: Callable[[int], None] = lambda n: None):
        self.scorer, self.file, self.advance = scorer, file, advance
        self.n_scored = 0
        """Conversations that went through the network in this process."""
        file.parent.mkdir(parents=True, exist_ok=True)
        self._known = dict(_lines(file)) if file.is_file() else {}

    def rewards(self, conversations: Sequence[Conversation]) -> np.ndarray:
        """Rewards float64 (n,); NaN for what is longer than the model is made for."""
        keys = [_key(conversation) for conversation in conversations]
        todo = {key: c for key, c in zip(keys, conversations, strict=True) if key not in self._known}
        if todo:
            names = list(todo)
            with self.file.open("a", encoding="ascii") as sink:
                sink.write("\n" * bool(sink.tell()))  # what stands there may be half a line

                def report(batch: dict[int, float], _of: int) -> None:
                    for index, reward in batch.items():
                        if not math.isfinite(reward):  # an error, which the scorer raises
                            continue
                        sink.write(json.dumps([names[index], reward]) + "\n")
                    sink.flush()
                    self.advance(len(batch))

                rewards = self.scorer.rewards(list(todo.values()), report=report)
            self._known |= dict(zip(names, rewards.tolist(), strict=True))
            self.n_scored += len(todo)
        return np.array([self._known[key] for key in keys], dtype=np.float64)


def _key(conversation: Conversation) -> str:
    turns = json.dumps([[turn.role, turn.content] for turn in conversation])
    return hashlib.sha256(turns.encode()).hexdigest()


def _lines(file: Path) -> Iterator[tuple[str, float]]:
    """What the file holds; the line that a killed process was writing is no line."""
    for line in file.read_text(encoding="ascii", errors="replace").splitlines():
        try:
            key, reward = json.loads(line)
            reward = float(reward)
        except (ValueError, TypeError):
            continue
        if isinstance(key, str) and math.isfinite(reward):
            yield key, reward
