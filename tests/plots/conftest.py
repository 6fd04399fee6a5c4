"""A small table, and a declaration, for each of the six ways of drawing."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from pessimal.plots import Forest, Heatmap, Lines, Scatter, TokenTable, Violin
from pessimal.tables.result import Result

# No lone surrogates: a parquet file cannot hold them.
HOSTILE = [
    "$x^2$",
    "$",
    "\n\n",
    "\x07",
    "\u202eabc",
    "\u200b",
    " freedom",
    "",
    "   ",
    "<script>alert(1)</script>",
    "&amp;",
    "]]>",
    '" onload="alert(1)',
    "\\n",
    "自由",
    "😀",
    "\u0301",
    "\ufffe",
    "#222222",
    "url(#a)",
    "x" * 200,
]
PROMPTS = ("greatest", "worst")


@pytest.fixture
def hostile() -> list[str]:
    return HOSTILE


@pytest.fixture
def result():
    """Makes a Result of one of the six, over so many models and the prompts greatest and worst."""

    def make(kind: str, models: int = 3, **more) -> Result:
        table, plot = globals()[f"_{kind}"]([f"org/model-{i}" for i in range(models)], more)
        return Result(kind, table, plot=plot)

    return make


def _rows(models) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = [
        {"model": model, "prompt": prompt, "estimate": rng.normal()}
        for prompt in PROMPTS
        for model in models
    ]
    return pd.DataFrame(rows)


def _forest(models, more):
    table = _rows(models)
    table = table.assign(
        low=table["estimate"] - 1, high=table["estimate"] + 1, p=np.resize([0.2, 0.001], len(table))
    )
    return table, Forest(p="p", xlabel="effect", **more)


def _heatmap(models, more):
    pairs = [(a, b) for i, a in enumerate(models) for b in models[:i]]
    rng = np.random.default_rng(1)
    rows = [(a, b, prompt, rng.uniform()) for prompt in PROMPTS for a, b in pairs]
    table = pd.DataFrame(rows, columns=["model_a", "model_b", "prompt", "estimate"])
    return table, Heatmap(symmetric=True, order=True, label="τ", **more)


def _scatter(models, more):
    rng = np.random.default_rng(2)
    table = _rows(models).assign(
        x=lambda t: rng.normal(size=len(t)), y=lambda t: rng.normal(size=len(t))
    )
    return table, Scatter(x="x", y="y", name="model", **more)


def _lines(models, more):
    steps = np.arange(1, 6)
    pieces = [
        pd.DataFrame({"model": m, "prompt": p, "x": steps, "y": steps * (i + 1.0)})
        for p in PROMPTS
        for i, m in enumerate(models)
    ]
    return pd.concat(pieces, ignore_index=True), Lines(x="x", y="y", group="model", **more)


def _violin(models, more):
    x = np.linspace(-3, 3, 61)
    pieces = [
        pd.DataFrame({"model": m, "prompt": p, "x": x, "density": np.exp(-x * x)})
        for p in PROMPTS
        for m in models
    ]
    return pd.concat(pieces, ignore_index=True), Violin(ylabel="reward", **more)


def _token_table(models, more):
    rows = [
        {
            "model": m,
            "prompt": p,
            "end": end,
            "rank": rank,
            "text": f"{end}{rank}",
            "reward": float(rank),
        }
        for p in PROMPTS
        for m in models
        for end in ("top", "bottom")
        for rank in (1, 2, 3)
    ]
    return pd.DataFrame(rows), TokenTable(shown=2, **more)


@pytest.fixture
def drawn(tmp_path):
    """Saves results; gives the SVG of each stem as text, and the tabs."""
    from pessimal.plots.draw import save_figures

    def make(*results: Result, labels=None) -> SimpleNamespace:
        saved = save_figures(list(results), tmp_path, labels or {})
        svgs = {
            path.stem: path.read_text(encoding="utf-8") for path in sorted(tmp_path.glob("*.svg"))
        }
        return SimpleNamespace(tabs=saved, svgs=svgs, folder=tmp_path)

    return make
