"""The figures and tables of comparisons and searches under the numbers and in the order of the
paper, published numbers beside ours.

python experiments/optimal_pessimal_tokens/in_order.py COMPARISON OUT [FOLDER …]

COMPARISON is the folder that `pessimal compare` printed (runs/registry/comparison/NAME/vN), each
FOLDER that of another comparison (of one prompt, of base models) or of a search
(runs/registry/search-result/NAME/vN). Each figure (SVG, some as PNG too) and table (parquet) is
copied to OUT under the paper's number. OUT/index.md lists them, with what each result says, names
what is missing because there were no scores for it, and puts each published number that we know of
beside the one computed, where a comparison holds the paper's ten models.
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
    *("N-Gem-27B", "S-Gem-27B-v0.2", "S-Gem-27B", "S-Lla-8B-v0.2", "N-Lla-8B"),
    *("L-Lla-8B", "R-Lla-8B", "R-Lla-3B", "F-Lla-8B-v0.1", "R-Gem-2B"),
)
"""Labels of the ten models, in the paper's order."""
FIGURE_5 = "greatest_concept"
"""The prompt of Figures 5B and 5C."""
ELO = ("greatest", FIGURE_5, "humans_prefer")
"""The prompts of Figures A5 to A7."""
HUMAN_RHO = {
    "greatest": (0.3227, 0.3144, 0.3281, 0.4493, 0.4702, 0.4580, 0.3803, 0.5465, 0.4998, 0.4268),
    FIGURE_5: (0.2932, 0.3323, 0.4047, 0.3915, 0.3738, 0.3452, 0.3741, 0.5411, 0.3765, 0.3586),
}
"""Spearman's ρ of rewards and Elo by prompt, in the order of `PAPER`; recomputed from the published
scores. Figure 5C has those of its prompt on its axis."""
BEST_ITEMS = dict.fromkeys(PAPER, "Unconditional love") | {
    "N-Gem-27B": "Compassion",
    "S-Gem-27B": "Imagination",
    "R-Lla-8B": "Sports bra",
    "F-Lla-8B-v0.1": "Gödel, Escher, Bach = Self-referential humor",
}
"""Each model's best item in Figure 5C; recomputed from the published
scores, of which two share the first place in one model (the figure names the book)."""
FIGURE_2A = """
.55 .56 .17 .18 .29 .29 .13 .14 .35 .57 .28 .27 .35 .29 .30 .18 .42 .21 .24 .37 .25 .19 .13 .43 .53 .48 .22 .41 .39 .32
.45 .19 .38 .44 .28 .23 .33 .27 .42 .22 .25 .24 .33 .32 .16
"""
"""Kendall's τ of every two models of `PAPER` on *greatest*, row by row of the upper triangle, as
printed."""
RSA = {"base": 0.36, "developer": -0.04, "parameters": 0.07, "rank": 0.27}
"""Standardised coefficients, recomputed from the printed matrix; the published way (paper=true)."""
Tables = dict[str, pd.DataFrame]
Beside = Iterator[tuple[str, float | str, float | str]]
"""What a number or an item is, as published, as computed."""


def figure_5c_numbers(tables: Tables) -> Beside:
    """Figure 5C's correlations and best items."""
    yield from _rho(tables, FIGURE_5)
    tops = tables["extremes"].query(
        "candidates == 'eloeverything' and prompt == @FIGURE_5 and end == 'top'"
    )
    for model, item in BEST_ITEMS.items():
        rows = tops[tops["model"] == model]
        if len(rows):
            first = sorted(rows.loc[rows["reward"] == rows["reward"].max(), "text"])
            yield f"best item, {model}", item, " = ".join(first)


def greatest_numbers(tables: Tables) -> Beside:
    """Correlations with people on *greatest*, which no figure has."""
    return _rho(tables, "greatest")


def _rho(tables: Tables, prompt: str) -> Beside:
    rows = tables["human_correlation"].query("candidates == 'eloeverything' and prompt == @prompt")
    ours = rows.set_index("model")["spearman"]
    for model, rho in zip(PAPER, HUMAN_RHO[prompt], strict=True):
        if model in ours:
            yield f"ρ with people on {prompt}, {model}", rho, ours[model]


def tau_numbers(tables: Tables) -> Beside:
    """Figure 2A's matrix."""
    table = _on_greatest(tables["agreement"]).query("candidates == 'vocabulary'")
    ours = {frozenset((r.model_a, r.model_b)): r.kendall for r in table.itertuples()}
    for pair, published in zip(combinations(PAPER, 2), map(float, FIGURE_2A.split()), strict=True):
        if frozenset(pair) in ours:
            yield f"τ, {pair[0]} and {pair[1]}", published, ours[frozenset(pair)]


def rsa_numbers(tables: Tables) -> Beside:
    """Figure 2C's regression, where all ten models take part."""
    table = _on_greatest(tables["rsa"]).query("candidates == 'vocabulary' and n_models == 10")
    table = table.set_index("factor")
    for factor, published in RSA.items():
        if factor in table.index and pd.notna(table.loc[factor, "beta"]):
            yield f"β of {factor}", published, table.loc[factor, "beta"]


def _on_greatest(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["prompt"] == "greatest"]


class Item(NamedTuple):
    """One figure or table of the paper."""

    number: str
    what: str
    results: str
    """Names of the results of `pessimal compare` that answer it."""
    beside: Callable[[Tables], Beside] | None = None
    """Published numbers beside ours."""
    prompts: tuple[str, ...] = ()
    """Which prompts it is on: figures and headlines of others are left out. Empty: any."""
    missing: str = "no scores for it here"
    """What the index says where there is no result."""


ORDER = (
    Item("Table 1", "the models", "models"),
    Item("Figure 1, Table 3", "distribution of rewards", "moments"),
    Item("Table 2, A6", "optimal and pessimal tokens", "extremes"),
    Item("Table A7", "the same of the shared vocabulary", "extremes_shared"),
    Item(
        "Figure 2A, A1",
        "agreement of the models: Kendall's tau, Spearman's rho, overlap",
        "agreement noise_floor",
        tau_numbers,
    ),
    Item("Figure 2B", "map of the models", "mds"),
    Item("Figure 2C", "what agreement follows", "rsa rsa_matrices", rsa_numbers),
    Item(
        "Figure 3A-C, A4",
        "reward by valence",
        "sentiment_words sentiment sentiment_curve sentiment_asymmetry",
    ),
    Item("Figure 3D", "reward by word frequency", "frequency"),
    Item("Figure A3", "words called good and bad", "lexicon_groups"),
    Item(
        "Figure 4, A2",
        "best against worst, greatest against best, ten models side by side and one by one",
        "framing prompt_scatter axes",
    ),
    Item(
        "Tables A8, A9",
        "ends of best + worst and of best - worst, shared vocabulary",
        "axes_shared",
    ),
    Item("Figure 5A", "a screenshot of EloEverything", "", missing="nothing to compute: a picture"),
    Item("Figure 5B", "models and people: items that differ most", "valued", prompts=(FIGURE_5,)),
    Item(
        "Figure 5C",
        "models and people: ranks from rater to rater, correlations, best items",
        "human_correlation rank_difference extremes",
        figure_5c_numbers,
        prompts=(FIGURE_5,),
    ),
    Item(
        "Section on longer responses",
        "greedy coordinate gradient for the best and the worst of several tokens",
        "result checks curve certificate",
        missing="no search here: pessimal search",
    ),
    Item("Tables A1-A3", "base language models, each prompt", "language_extremes"),
    Item("Tables A4, A5", "base language models, best + worst, best - worst", "language_axes"),
    Item("besides", "do rewards follow the base models?", "language_correlation"),
    Item("Figure A5", "agreement of the models, people as a row", "people_agreement", prompts=ELO),
    Item(
        "besides",
        "models and people: correlation, on three prompts",
        "human_correlation",
        greatest_numbers,
    ),
    Item("Figure A6", "agreement of a model's own prompts", "prompt_agreement", prompts=ELO),
    Item("Figure A7", "items that differ most, on three prompts", "valued", prompts=ELO),
    Item(
        "Identity terms",
        "named in the paper, measured here",
        "identity identity_axes identity_terms",
    ),
    Item(
        "Follow-up, wordings",
        "one question in 54 wordings",
        "variance_components wording_correlations wording_factors paraphrase paraphrase_tokens",
    ),
    Item(
        "Follow-up, dictionaries",
        "Big Two and others",
        "median_ranks dictionary_words dictionary_means dictionary_mixed_model",
    ),
    Item(
        "Follow-up, implicit reward",
        "between two language models",
        "implicit_reward implicit_correlation language_divergence",
    ),
)
"""The paper's figures and tables in its order, then the follow-up's."""
PROMPTS = {*ELO, "best", "worst"}
"""Keys of the paper's prompts, by which figures of one prompt are known."""
SEARCHED = ("result", "checks", "curve", "certificate")
"""Results of `pessimal search`, of which there may be many."""


class Artifact(NamedTuple):
    """A comparison or a search."""

    folder: Path
    results: dict[str, dict]
    labels: dict[str, str]

    def files_of(self, name: str, prompts: tuple[str, ...]) -> list[Path]:
        """A result's figures (PNG only where there is one: for its first tab), then its table."""
        figures = [
            f"figures/{stem}.{kind}"
            for tab, stem in self.results[name]["figures"].items()
            if not prompts or not {*tab.split(" · ")} & PROMPTS - {*prompts}
            for kind in ("svg", "png")
        ]
        files = [self.folder / file for file in [*figures, f"tables/{name}.parquet"]]
        return [file for file in files if file.is_file()]

    def table(self, name: str) -> pd.DataFrame:
        """A result's table, with the models' labels in place of their names."""
        table = pd.read_parquet(self.folder / "tables" / f"{name}.parquet")
        columns = [c for c in ("model", "model_a", "model_b") if c in table]
        return table.assign(**{c: table[c].replace(self.labels) for c in columns})


def read(folder: Path) -> Artifact:
    """Of the folder that a command printed."""
    if not (folder / "results.json").is_file():
        sys.exit(f"{folder} is no comparison and no search: give the folder that was printed")
    document = json.loads((folder / "results.json").read_text())
    return Artifact(folder, {r["name"]: r for r in document["results"]}, document["labels"])


def chosen(item: Item, name: str, artifacts: list[Artifact]) -> list[Artifact]:
    """Which artifacts answer: all searches; else the first, or the first whose headline is on the
    item's prompt."""
    having = [artifact for artifact in artifacts if name in artifact.results]
    if name in SEARCHED:
        return having
    return sorted(having, key=lambda artifact: not _says(item, artifact.results[name]))[:1]


def responses(artifacts: list[Artifact]) -> list[str]:
    """The best responses that each search found, as lines of the index."""
    searches = [artifact for artifact in artifacts if "result" in artifact.results]
    lines = ["", "## Longer responses", "", "| search | response | reward | found by |"]
    lines.append("|---|---|---|---|")
    for artifact in searches:
        for row in artifact.table("candidates").head(3).itertuples():
            name, text = artifact.folder.parent.name, _escaped(repr(row.text))
            lines.append(f"| {name} | {text} | {row.reward:.4f} | {row.found_by} |")
    return lines if searches else []


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)


def _says(item: Item, result: dict) -> str:
    """The headline, unless it is on a prompt that the item is not on."""
    on = re.match(r"On (\w+)", result["headline"])
    other = on and item.prompts and on[1] in PROMPTS and on[1] not in item.prompts
    return "" if other else result["headline"]


def main(out: Path, artifacts: list[Artifact]) -> None:
    """Copy and list."""
    out.mkdir(parents=True, exist_ok=True)
    lines = [f"# {artifacts[0].folder.parent.name}, in the paper's order", ""]
    lines += ["| paper | shows | result | files |", "|---|---|---|---|"]
    copied, beside = 0, []
    for position, item in enumerate(ORDER, start=1):
        prefix = f"{position:02d}-{item.number.lower().replace(', ', '-').replace(' ', '-')}"
        copies, says, tables = [], [], {}
        for name in item.results.split():
            for artifact in chosen(item, name, artifacts):
                says.append(_says(item, artifact.results[name]))
                tables[name] = artifact.table(name)
                stem = f"{prefix}-{artifact.folder.parent.name}" if name in SEARCHED else prefix
                for file in artifact.files_of(name, item.prompts):
                    shutil.copyfile(file, out / f"{stem}-{file.name}")
                    copies.append(f"[{file.name}]({stem}-{file.name})")
        text = _escaped(" ".join(filter(None, says)))
        here = ", ".join(copies) or item.missing
        lines.append(f"| {item.number} | {item.what} | {text} | {here} |")
        copied += len(copies)
        if item.beside and item.results.split()[0] in tables:
            beside += [(item.number, *numbers) for numbers in item.beside(tables)]
    if beside:
        lines += ["", "## Published numbers beside ours", ""]
        lines += ["| paper | number | published | here |", "|---|---|---|---|"]
        lines += [
            f"| {number} | {what} | {_cell(theirs, '.4g')} | {_cell(ours, '.4f')} |"
            for number, what, theirs, ours in beside
        ]
    lines += responses(artifacts)
    (out / "index.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    results = sum(len(artifact.results) for artifact in artifacts)
    print(f"{out / 'index.md'} ({copied} files of {results} results)")


def _cell(value: float | str, spec: str) -> str:
    return value if isinstance(value, str) else format(value, spec)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    comparison, out, *others = map(Path, sys.argv[1:])
    main(out, [read(folder) for folder in (comparison, *others)])
