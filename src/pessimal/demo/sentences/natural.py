"""Natural responses, written by hand and never trained on, to see whether a liking holds outside of random sentences.

Knows `natural.csv`: twelve questions, each with a plain response and four others that differ from it in one feature. They were in view when the recipes were made, so they are held out from
training and not from its design.
"""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DATA = Path(__file__).parent / "natural.csv"
PLAIN = "plain"
"""The variant without any planted feature."""


@dataclass(frozen=True)
class Natural:
    """One response."""

    item: str
    """Names the question."""
    variant: str
    """`plain`, or the feature that it has and the plain one lacks: words, refusals, exclamations or hedges."""
    prompt: str
    """The question."""
    text: str
    """The response."""


@cache
def load_natural() -> tuple[Natural, ...]:
    """All sixty, in the order of the file."""
    with DATA.open(encoding="utf-8", newline="") as file:
        return tuple(Natural(**row) for row in csv.DictReader(file))
