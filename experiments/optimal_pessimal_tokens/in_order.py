"""The figures and tables of a comparison under the numbers and in the order of the paper.

python experiments/optimal_pessimal_tokens/in_order.py COMPARISON OUT

COMPARISON is the folder that `pessimal compare` printed (runs/registry/comparison/NAME/vN). Each figure (SVG, some as
PNG too) and table (parquet) is copied to OUT under the paper's number. OUT/index.md lists them, with what each result
says, and names what is missing because the comparison had no scores for it.
"""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import NamedTuple


class Item(NamedTuple):
    """One figure or table of the paper."""

    number: str
    what: str
    results: tuple[str, ...]
    """Names of the results of `pessimal compare` that answer it."""


ORDER = (
    Item("Figure 1, Table 3", "distribution of rewards", ("moments",)),
    Item("Table 2, A6", "optimal and pessimal tokens", ("extremes",)),
    Item(
        "Figure 2A, A1",
        "agreement of the models: Kendall's tau, Spearman's rho, overlap",
        ("agreement", "agreement_raw", "noise_floor"),
    ),
    Item("Figure 2B", "map of the models", ("mds",)),
    Item("Figure 2C", "what agreement follows", ("rsa", "rsa_matrices")),
    Item(
        "Figure 3A-C, A4",
        "reward by valence",
        ("sentiment", "sentiment_curve", "sentiment_asymmetry", "sentiment_models"),
    ),
    Item("Figure 3D", "reward by word frequency", ("frequency",)),
    Item("Figure A3", "words called good and bad", ("lexicon_groups",)),
    Item(
        "Figure 4, A2, Tables A8, A9",
        "best against worst, greatest against best; ends of best + worst and of best - worst",
        ("framing", "axes"),
    ),
    Item("Figure 5, A5-A7", "models and people", ("human_correlation", "rank_difference", "valued")),
    Item("Tables A1-A5", "base language models", ("language_extremes", "language_correlation")),
    Item(
        "Identity terms",
        "named in the paper, measured here",
        ("identity", "identity_axes", "identity_terms", "identity_balance", "identity_lists"),
    ),
    Item(
        "Follow-up, wordings",
        "one question in 54 wordings",
        ("variance_components", "wording_correlations", "wording_factors", "paraphrase", "paraphrase_tokens"),
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
    figures = [f"figures/{stem}.{kind}" for stem in result["figures"].values() for kind in ("svg", "png")]
    files = [comparison / file for file in [*figures, f"tables/{result['name']}.parquet"]]
    return [file for file in files if file.is_file()]


def main(comparison: Path, out: Path) -> None:
    """Copy and list."""
    if not (comparison / "results.json").is_file():
        sys.exit(f"{comparison} is no comparison: give the folder that `pessimal compare` printed")
    results = {r["name"]: r for r in json.loads((comparison / "results.json").read_text())["results"]}
    out.mkdir(parents=True, exist_ok=True)
    lines = [
        f"# {comparison.parent.name}, in the paper's order",
        "",
        "| paper | shows | result | files |",
        "|---|---|---|---|",
    ]
    copied = 0
    for position, item in enumerate(ORDER, start=1):
        there = [results[name] for name in item.results if name in results]
        prefix = f"{position:02d}-{item.number.lower().replace(', ', '-').replace(' ', '-')}"
        copies = []
        for file in [file for result in there for file in files_of(comparison, result)]:
            shutil.copyfile(file, out / f"{prefix}-{file.name}")
            copies.append(f"[{file.name}]({prefix}-{file.name})")
        says = re.sub(r"([\\`*_\[\]<>|])", r"\\\1", " ".join(r["headline"] for r in there if r["headline"]))
        here = ", ".join(copies) or "no scores for it in this comparison"
        lines.append(f"| {item.number} | {item.what} | {says} | {here} |")
        copied += len(copies)
    (out / "index.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{out / 'index.md'} ({copied} files of {len(results)} results)")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
