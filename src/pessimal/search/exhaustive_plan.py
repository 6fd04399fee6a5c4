"""Which pairs there are, and how they are divided into blocks.

Arithmetic over token ids; the same in every process that takes part.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

from pessimal.errors import ConfigError

# What a kill may lose of each process: 9 seconds for a demo model on a core, 5 minutes for Llama-3-8B on an H200. Larger
# blocks leave fewer files (188 and 2,004 for these two), of which each holds some numbers for every second token.
FIRSTS_PER_BLOCK = 64


@dataclass(frozen=True)
class PairPlan:
    """Every pair of `tokens`, in blocks of some first tokens with all second ones."""

    tokens: np.ndarray
    """int64 (n,): allowed ids, sorted, each once."""
    keep: int
    """How many of the best and of the worst pairs are kept."""
    firsts_per_block: int = FIRSTS_PER_BLOCK
    """First tokens of a block; the last may have fewer."""

    @classmethod
    def of(cls, allowed: np.ndarray, *, keep: int, firsts_per_block: int = FIRSTS_PER_BLOCK) -> "PairPlan":
        """The plan for `allowed` ids in any order. Raises ConfigError where none is allowed."""
        tokens = np.unique(np.asarray(allowed, dtype=np.int64))
        if not len(tokens):
            raise ConfigError(
                "no token is allowed, so there are no pairs to score: allow more of them in search.allowed or "
                "search.allowed_path"
            )
        return cls(tokens, keep, firsts_per_block)

    @property
    def blocks(self) -> int:
        """How many blocks there are, numbered from 0."""
        return -(-len(self.tokens) // self.firsts_per_block)

    @property
    def pairs(self) -> int:
        """How many pairs there are."""
        return len(self.tokens) ** 2

    def firsts(self, number: int) -> np.ndarray:
        """int64 (F,): first tokens of a block."""
        return self.tokens[number * self.firsts_per_block : (number + 1) * self.firsts_per_block]

    def pairs_of(self, number: int) -> int:
        """How many pairs a block has."""
        return len(self.firsts(number)) * len(self.tokens)

    def digest(self, *more: object) -> str:
        """sha256 over the plan and whatever `more` the blocks depend on, by its repr; 64 hexadecimal digits."""
        settings = repr((self.keep, self.firsts_per_block, *more)).encode()
        return hashlib.sha256(settings + self.tokens.astype("<i8").tobytes()).hexdigest()
