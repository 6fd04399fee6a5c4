"""The figures and tables of a comparison under the names and in the order of the paper.

python experiments/optimal_pessimal_tokens/in_order.py COMPARISON_FOLDER OUT

COMPARISON_FOLDER is what `pessimal compare` printed (runs/registry/comparison/NAME/vN). Copies each figure (SVG and PNG)
and table (parquet) to OUT under the paper's number and writes OUT/index.md, which lists them and says what is missing
because the comparison had no scores for it.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import NamedTuple


class Item(NamedTuple):
    """One figure or table of the paper."""

    number: str
    what: str
    files: tuple[str, ...]
    """Patterns below the comparison's folder."""


ORDER = (
    Item(
        "Figure 1, Table 3",
        "distribution of rewards",
        ("figures/*greatest-distribution.*", "tables/moments.parquet"),
    ),
    Item(
        "Table 2, A6",
        "optimal and pessimal tokens",
        ("figures/*greatest-extremes.*", "tables/extremes.parquet"),
    ),
    Item(
        "Figure 2A",
        "Kendall's tau between models",
        ("figures/*greatest-agreement.*", "tables/agreement.parquet", "tables/noise_floor.parquet"),
    ),
    Item("Figure A1", "Spearman's rho and rank-biased overlap", ("figures/*greatest-overlap.*",)),
    Item("Figure 2B", "map of the models", ("figures/*greatest-map.*", "tables/mds.parquet")),
    Item(
        "Figure 2C",
        "what agreement follows",
        ("figures/*greatest-matrices.*", "figures/*greatest-rsa.*", "tables/rsa.parquet"),
    ),
    Item(
        "Figure 3A-C, A4",
        "reward by valence",
        (
            "figures/*sentiment-*-curves.*",
            "figures/*sentiment-*-slopes.*",
            "figures/*sentiment-*-asymmetry.*",
            "tables/sentiment*.parquet",
        ),
    ),
    Item("Figure 3D", "reward by word frequency", ("figures/*frequency.*", "tables/frequency.parquet")),
    Item(
        "Figure A3",
        "words called good and bad",
        ("figures/*sentiment-*-groups.*", "tables/lexicon_groups.parquet"),
    ),
    Item(
        "Figure 4, A2",
        "best against worst, greatest against best",
        ("figures/*best-worst*.*", "figures/*greatest-best*.*", "tables/framing.parquet"),
    ),
    Item("Table A8, A9", "ends of best + worst and of best - worst", ("tables/axes.parquet",)),
    Item(
        "Figure 5, A5-A7",
        "models and people",
        (
            "figures/*people*.*",
            "tables/human_correlation.parquet",
            "tables/rank_difference.parquet",
            "tables/valued.parquet",
        ),
    ),
    Item("Tables A1-A5", "base language models", ("figures/*language*.*", "tables/language_*.parquet")),
    Item(
        "Identity terms",
        "named in the paper, measured here",
        ("figures/*identity-*.*", "tables/identity*.parquet"),
    ),
    Item(
        "Follow-up, wordings",
        "one question in 54 wordings",
        (
            "figures/*wording-*.*",
            "tables/variance_components.parquet",
            "tables/wording_*.parquet",
            "tables/paraphrase*.parquet",
        ),
    ),
    Item(
        "Follow-up, dictionaries",
        "Big Two and others",
        (
            "figures/*-ranks.*",
            "figures/*-terms.*",
            "tables/median_ranks.parquet",
            "tables/dictionary_*.parquet",
        ),
    ),
    Item(
        "Follow-up, implicit reward",
        "between two language models",
        ("figures/*implicit*.*", "tables/implicit_*.parquet"),
    ),
)
"""The paper's figures and tables in its order, then the follow-up's."""


def main(comparison: Path, out: Path) -> None:
    """Copy and list."""
    if not (comparison / "contents.json").is_file():
        sys.exit(f"{comparison} is no comparison: give the folder that `pessimal compare` printed")
    out.mkdir(parents=True, exist_ok=True)
    lines = [
        f"# {comparison.parent.name}, in the paper's order",
        "",
        "| paper | shows | here |",
        "|---|---|---|",
    ]
    for place, item in enumerate(ORDER, start=1):
        found = [file for pattern in item.files for file in sorted(comparison.glob(pattern))]
        copies = []
        for file in found:
            name = f"{place:02d}-{item.number.lower().replace(', ', '-').replace(' ', '-')}-{file.name}"
            shutil.copyfile(file, out / name)
            copies.append(name)
        here = ", ".join(f"[{name}]({name})" for name in copies) or "no scores for it in this comparison"
        lines.append(f"| {item.number} | {item.what} | {here} |")
    (out / "index.md").write_text("\n".join(lines) + "\n")
    sections = json.loads((comparison / "contents.json").read_text())["sections"]
    print(
        f"{out / 'index.md'} ({sum(len(s['entries']) for s in sections)} findings in {len(sections)} sections)"
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
