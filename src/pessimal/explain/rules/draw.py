"""Choices that depend on one request alone: the same request makes the same ones, whatever else is asked with it.

Knows digests and seeds. Does not know what is chosen.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from pessimal.explain.perturbation import Request

Option = TypeVar("Option")


class Draw:
    """The choices of one request."""

    def __init__(self, request: Request, *, perturber: str):
        named = (
            perturber,
            request.comparison.key,
            request.response,
            request.attribute.name,
            request.direction.value,
        )
        self._seed = request.seed
        self._start = generator(*named)
        self.random = generator(*named, request.seed)
        """For everything but a choice of one among a few."""

    def pick(self, options: Sequence[Option]) -> Option:
        """One of the options. Seeds walk round them from a start that does not depend on the seed: two seeds that
        differ by less than their number choose differently, which independent draws would not."""
        start = int(self._start.integers(len(options)))
        return options[(start + self._seed) % len(options)]


def generator(*named: str | int) -> np.random.Generator:
    """A generator from a digest of names and numbers; not from `hash`, which differs from process to process."""
    # JSON escapes lone surrogates, which UTF-8 has no bytes for.
    digest = hashlib.sha256(json.dumps(named).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16]))


def digest_of_sources(*paths: Path) -> str:
    """SHA-256 (hex) of source files, in the order of their names: word lists and rules are code here."""
    digest = hashlib.sha256()
    for path in sorted(paths, key=lambda each: each.name):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
