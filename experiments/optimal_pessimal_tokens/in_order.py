"""The figures and tables of a comparison under the numbers and in the order of the paper, published
numbers beside ours.

python experiments/optimal_pessimal_tokens/in_order.py COMPARISON OUT

COMPARISON is the folder that `pessimal compare` printed (runs/registry/comparison/NAME/vN). Each
figure (SVG, some as PNG too) and table (parquet) is copied to OUT under the paper's number.
OUT/index.md lists them, with what each result says, names what is missing because the comparison
had no scores for it, and puts each published number that we know of beside the one computed, where
the comparison holds the paper's ten models.
"""

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pandas as pd

PAPER = (
    "N-Gem-27B",
    "S-Gem-27B-v0.2",
    "S-Gem-27B",
    "S-Lla-8B-v0.2",
    "N-Lla-8B",
    "L-Lla-8B",
    "R-Lla-8B",
    "R-Lla-3B",
    "F-Lla-8B-v0.1",
    "R-Gem-2B",
)
"""Labels of the ten models, in the paper's order."""
HUMAN_RHO = (0.3227, 0.3144, 0.3281, 0.4493, 0.4702, 0.4580, 0.3803, 0.5465, 0.4998, 0.4268)
"""Spearman's ρ of rewards and Elo on *greatest*, in the order of `PAPER`; recomputed from the
published scores."""
FIGURE_2A = """
.55 .56 .17 .18 .29 .29 .13 .14 .35 .57 .28 .27 .35 .29 .30 .18 .42 .21 .24 .37 .25 .19 .13 .43 .53 .48 .22 .41 .39 .32
.45 .19 .38 .44 .28 .23 .33 .27 .42 .22 .25 .24 .33 .32 .16
"""
"""Kendall's τ of every two models of `PAPER` on *greatest*, row by row of the upper triangle, as
printed."""
RSA = {"base": 0.36, "developer": -0.04, "parameters": 0.07, "rank": 0.27}
"""Standardised coefficients, recomputed from the printed matrix; the published way (paper=true)."""
Tables = dict[str, pd.DataFrame]
Beside = Iterator[tuple[str, float, float]]
"""What a number is, as published, as computed."""


def human_numbers(tables: Tables) -> Beside:
    """Figure 5A's correlations."""
    table = _on_greatest(tables["human_correlation"]).query("candidates == 'eloeverything'")
    ours = table.set_index("model")["spearman"]
    for model, published in zip(PAPER, HUMAN_RHO, strict=True):
        if model in ours:
            yield f"ρ with people, {model}", published, ours[model]


def tau_numbers(tables: Tables) -> Beside:
    """Figure 2A's matrix."""
    table = _on_greatest(tables["agreement"]).query("candidates == 'vocabulary'")
    ours = {frozenset((r.model_a, r.model_b)): r.kendall for r in table.itertuples()}
    for pair, published in zip(combinations(PAPER, 2), map(float, FIGURE_2A.split()), strict=True):
        if frozenset(pair) in ours:
            yield f"τ, {pair[0]} and {pair[1]}", published, ours[frozenset(pair)]


def rsa_numbers(tables: Tables) -> Beside:
    """Figure 2C's regression, where all ten models take part."""
    table = (
        _on_greatest(tables["rsa"])
        .query("candidates == 'vocabulary' and n_models == 10")
        .set_index("factor")
    )
    for factor, published in RSA.items():
        if factor in table.index and pd.notna(table.loc[factor, "beta"]):
            yield f"β of {factor}", published, table.loc[factor, "beta"]


def _on_greatest(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["prompt"] == "greatest"]


class Item(NamedTuple):
    """One figure or table of the paper."""

    number: str
    what: str
    results: tuple[str, ...]
    """Names of the results of `pessimal compare` that answer it."""
    beside: Callable[[Tables], Beside] | None = None
    """Published numbers beside ours."""


ORDER = (
    Item("Figure 1, Table 3", "distribution of rewards", ("moments",)),
    Item("Table 2, A6", "optimal and pessimal tokens", ("extremes",)),
    Item("Table A7", "the same of the shared vocabulary", ("extremes_shared",)),
    Item(
        "Figure 2A, A1",
        "agreement of the models: Kendall's tau, Spearman's rho, overlap",
        ("agreement", "agreement_raw", "noise_floor"),
        tau_numbers,
    ),
    Item("Figure 2B", "map of the models", ("mds",)),
    Item("Figure 2C", "what agreement follows", ("rsa", "rsa_matrices"), rsa_numbers),
    Item(
        "Figure 3A-C, A4",
        "reward by valence",
        ("sentiment", "sentiment_curve", "sentiment_asymmetry", "sentiment_models"),
    ),
    Item("Figure 3D", "reward by word frequency", ("frequency",)),
    Item("Figure A3", "words called good and bad", ("lexicon_groups",)),
    Item(
        "Figure 4, A2",
        "best against worst, greatest against best, ten models side by side and one by one",
        ("framing", "prompt_scatter", "axes"),
    ),
    Item(
        "Tables A8, A9",
        "ends of best + worst and of best - worst, shared vocabulary",
        ("axes_shared",),
    ),
    Item("Figure 5A", "models and people: correlation", ("human_correlation",), human_numbers),
    Item("Figure 5B, A7", "models and people: items that differ most", ("valued",)),
    Item("Figure 5C", "models and people: ranks from rater to rater", ("rank_difference",)),
    Item("Figure A5", "agreement of the models, people as a row", ("people_agreement",)),
    Item("Figure A6", "agreement of a model's own prompts", ("prompt_agreement",)),
    Item("Tables A1-A5", "base language models", ("language_extremes", "language_correlation")),
    Item(
        "Identity terms",
        "named in the paper, measured here",
        ("identity", "identity_axes", "identity_terms", "identity_balance", "identity_lists"),
    ),
    Item(
        "Follow-up, wordings",
        "one question in 54 wordings",
        (
            "variance_components",
            "wording_correlations",
            "wording_factors",
            "paraphrase",
            "paraphrase_tokens",
        ),
    ),
    Item(
        "Follow-up, dictionaries",
        "Big Two and others",
        ("median_ranks", "dictionary_words", "dictionary_means", "dictionary_mixed_model"),
    ),
    Item(
        "Follow-up, implicit reward",
        "between two language models",
        ("implicit_reward", "implicit_correlation", "language_divergence"),
    ),
)
"""The paper's figures and tables in its order, then the follow-up's."""


def files_of(comparison: Path, result: dict) -> list[Path]:
    """A result's figures (PNG only where there is one: for its first tab), then its table."""
    figures = [
        f"figures/{stem}.{kind}" for stem in result["figures"].values() for kind in ("svg", "png")
    ]
    files = [comparison / file for file in [*figures, f"tables/{result['name']}.parquet"]]
    return [file for file in files if file.is_file()]


def _labelled(comparison: Path, name: str, labels: dict[str, str]) -> pd.DataFrame:
    """A table with the models' labels in place of their names."""
    table = pd.read_parquet(comparison / "tables" / f"{name}.parquet")
    own = {
        column: table[column].replace(labels)
        for column in ("model", "model_a", "model_b")
        if column in table
    }
    return table.assign(**own)


def main(comparison: Path, out: Path) -> None:
    """Copy and list."""
    if not (comparison / "results.json").is_file():
        sys.exit(f"{comparison} is no comparison: give the folder that `pessimal compare` printed")
    document = json.loads((comparison / "results.json").read_text())
    results, labels = {r["name"]: r for r in document["results"]}, document["labels"]
    out.mkdir(parents=True, exist_ok=True)
    lines = [
        f"# {comparison.parent.name}, in the paper's order",
        "",
        "| paper | shows | result | files |",
        "|---|---|---|---|",
    ]
    copied, beside = 0, []
    for position, item in enumerate(ORDER, start=1):
        there = [results[name] for name in item.results if name in results]
        prefix = f"{position:02d}-{item.number.lower().replace(', ', '-').replace(' ', '-')}"
        copies = []
        for file in [file for result in there for file in files_of(comparison, result)]:
            shutil.copyfile(file, out / f"{prefix}-{file.name}")
            copies.append(f"[{file.name}]({prefix}-{file.name})")
        says = re.sub(
            r"([\\`*_\[\]<>|])", r"\\\1", " ".join(r["headline"] for r in there if r["headline"])
        )
        here = ", ".join(copies) or "no scores for it in this comparison"
        lines.append(f"| {item.number} | {item.what} | {says} | {here} |")
        copied += len(copies)
        if item.beside and item.results[0] in results:
            tables = {name: _labelled(comparison, name, labels) for name in item.results[:1]}
            beside += [(item.number, *numbers) for numbers in item.beside(tables)]
    if beside:
        lines += [
            "",
            "## Published numbers beside ours",
            "",
            "| paper | number | published | here |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {number} | {what} | {theirs:.4g} | {ours:.4f} |"
            for number, what, theirs, ours in beside
        ]
    (out / "index.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{out / 'index.md'} ({copied} files of {len(results)} results)")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
