"""What a search found, on its way to the registry and the page."""

from dataclasses import dataclass

import pandas as pd


@dataclass
class Found:
    """The tables of one search, by the names that its page knows, and the facts that its sentences need."""

    tables: dict[str, pd.DataFrame]
    facts: dict
    best_value: float
    """The best reward with the goal's sign, by the model's own forward in float32."""
    inputs: list[str]
    """References of the score tables that it took single tokens' rewards from."""
    sentence: str
    """The result in one line, for the log."""
    ways: list[tuple[str, float, tuple[int, ...]]]
    """What each stage found by itself: its name, the value, the response."""
