"""Where a sentence stands between two poles of meaning, each given by sentences written for it.

Knows `prototypes.csv` and embeddings. Does not know what a response is.
"""

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

from pessimal.explain.embedding import embed

PROTOTYPES = Path(__file__).parent / "prototypes.csv"


@cache
def load_prototypes() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Sentences by attribute and pole (`more`, `less`)."""
    found: dict[str, dict[str, list[str]]] = {}
    with PROTOTYPES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["attribute"], {"more": [], "less": []})[row["pole"]].append(row["sentence"])
    return {name: {pole: tuple(texts) for pole, texts in poles.items()} for name, poles in found.items()}


def lean(vectors: np.ndarray, attribute: str) -> np.ndarray:
    """(n,): positions of sentences (n, 384) on the line from the `less` pole's mean (−1) to the `more` pole's (1)."""
    centre, direction = _line(attribute)
    return (vectors - centre) @ direction


@cache
def _line(attribute: str) -> tuple[np.ndarray, np.ndarray]:
    """The middle of both poles, and the direction that puts them at −1 and 1."""
    poles = load_prototypes()[attribute]
    more, less = (embed(poles[pole]).astype(float).mean(axis=0) for pole in ("more", "less"))
    half = (more - less) / 2
    return (more + less) / 2, half / (half @ half)
