"""Rewards of conversations, each asked for once and kept on disk as soon as it is known, for whoever goes on after a kill.

Knows a scorer and one file. Does not know what the conversations are for.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from pessimal.models.conversation import Conversation
from pessimal.scoring.texts import Told


class Scorer(Protocol):
    """Gives rewards; `TextScorer` is one."""

    def rewards(self, conversations: Sequence[Conversation], *, told: Told | None = None) -> np.ndarray:
        """Rewards float64 (n,)."""


class KeptRewards:
    """A scorer that remembers. The file belongs to one network in one precision: its place must say which."""

    def __init__(self, scorer: Scorer, file: Path):
        self.scorer, self.file = scorer, file
        self.asked = 0
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

                def told(batch: dict[int, float], _of: int) -> None:
                    for place, reward in batch.items():
                        if not math.isfinite(
                            reward
                        ):  # an error, which the scorer tells; not to be believed later
                            continue
                        sink.write(json.dumps([names[place], reward]) + "\n")
                    sink.flush()

                found = self.scorer.rewards(list(todo.values()), told=told)
            self._known |= dict(zip(names, found.tolist(), strict=True))
            self.asked += len(todo)
        return np.array([self._known[key] for key in keys], dtype=np.float64)


def _key(conversation: Conversation) -> str:
    told = json.dumps([[turn.role, turn.content] for turn in conversation])
    return hashlib.sha256(told.encode()).hexdigest()


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
