"""Rewards of conversations, each asked for once and kept on disk as soon as it is known, for whoever goes on after a kill.

Knows a scorer and one file. Does not know what the conversations are for.
"""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from pessimal.models.frame import Conversation
from pessimal.scoring.texts import Report


class Scorer(Protocol):
    """Gives rewards; `TextScorer` is one."""

    def rewards(self, conversations: Sequence[Conversation], *, report: Report | None = None) -> np.ndarray:
        """Rewards float64 (n,)."""


class KeptRewards:
    """A scorer that remembers. The file belongs to one network in one precision: its path must say which."""

    def __init__(self, scorer: Scorer, file: Path, advance: Callable[[int], None] = lambda n: None):
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


def _lines(file: Path):
    """What the file holds; the line that a killed process was writing is no line."""
    for line in file.read_text(encoding="ascii", errors="replace").splitlines():
        try:
            key, reward = json.loads(line)
            reward = float(reward)
        except (ValueError, TypeError):
            continue
        if isinstance(key, str) and math.isfinite(reward):
            yield key, reward
