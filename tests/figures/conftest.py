"""Small tables every figure can be drawn from, hostile names included."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

HOSTILE = [
    "$x^2$", "$", "\n\n", "\ud83d", "\x07", "\u202eabc", "\u200b", " freedom", "", "   ", "<script>alert(1)</script>",
    "&amp;", "\\n", "自由", "😀", "\u0301", "\ufffe", "null", "=cmd()", "_$_$_", "\u2028", "x" * 200,
]  # fmt: skip


@pytest.fixture
def rewards() -> pd.DataFrame:
    """300 items × 6 models on scales a hundredfold apart; the hostile strings hold both ends."""
    rng = np.random.default_rng(0)
    names = pd.Index([*HOSTILE, *(f"token {place}" for place in range(300 - len(HOSTILE)))], dtype=object)
    shared = rng.gamma(2, size=300)
    shared[: len(HOSTILE)] += np.resize([8.0, -8.0], len(HOSTILE))
    models = [
        f"lab/{developer}-{size}" for developer in ("alder", "birch") for size in ("small", "large", "$2$")
    ]
    values = {
        model: (shared + rng.normal(size=300)) * 10.0 ** (place % 3) for place, model in enumerate(models)
    }
    return pd.DataFrame(values, index=names)


@pytest.fixture
def descriptors(rewards) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "base": ["wordpiece", "bpe", "bpe"] * 2,
            "developer": ["alder"] * 3 + ["birch"] * 3,
            "parameters": [1e6, 4e6, 2e6] * 2,
            "rank": np.nan,
        },
        index=rewards.columns,
    )


@pytest.fixture
def hostile() -> list[str]:
    return HOSTILE


def texts(figure: Figure) -> list[str]:
    """Every string that the figure shows."""
    return [text.get_text() for text in figure.findobj(Text) if text.get_visible() and text.get_text()]


@pytest.fixture(name="texts")
def texts_fixture():
    return texts
