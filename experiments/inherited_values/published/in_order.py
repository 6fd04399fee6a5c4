"""The figures and the table of the follow-up paper, in its order, from the authors' own files.

python experiments/inherited_values/published/in_order.py OUT [AUTHORS] [KEY=PATH …]

AUTHORS is a checkout of brchristian/reward_models_inherit_value_biases_from_pretraining. Where
single files lie elsewhere, KEY=PATH says so (keys: those of LAYOUT below). Each step imports and
compares in OUT/runs by `pessimal` commands, which are printed; what its files are not there for is
left out and said. OUT/index.md has every figure and table under the paper's number, and each
published number that we know of beside the one computed. Nothing of the authors' is copied into
this repository.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from string import Template
from typing import NamedTuple

import pandas as pd

ROOT = str(Path(__file__).resolve().parents[3])
"""Where Python finds the analyses of this experiment."""
sys.path.append(ROOT)

LAYOUT = {
    "nouns": "data/corpora/dict_big2_nouns.csv",
    "expanded": "data/corpora/dict_big2_expanded.csv",
    "foundations": "data/corpora/moral-foundations-dictionary-20.dicx",
    "intersection": "data/corpora/token_intersection.csv",
    "big_two": "data/reward_model_scores/dict_big2_nouns",
    "mfd": "data/reward_model_scores/dict_MFD_20",
    "logprobs": "data/logprobs",
    "training": "data/reward_model_training",
}
"""Where each input lies in AUTHORS."""
FAMILIES = ("Gemma", "Llama", "Qwen")
"""Bases of the reward models; the name of a run has the first letters of one."""
MODELS = {
    "pretrained": ("google/gemma-2-2b", "meta-llama/Llama-3.2-3B"),
    "instructed": ("google/gemma-2-2b-it", "meta-llama/Llama-3.2-3B-Instruct"),
    "figure_3": (
        *(f"google/gemma-2-{size}-it" for size in ("2b", "9b", "27b")),
        *(f"meta-llama/Llama-3.2-{size}-Instruct" for size in ("1B", "3B")),
        *("meta-llama/Meta-Llama-3-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        *("meta-llama/Meta-Llama-3-70B-Instruct", "meta-llama/Llama-3.1-70B-Instruct"),
        "meta-llama/Llama-3.3-70B-Instruct",
    ),
}
ABLATIONS = {
    "rank_results_uf_13": ("UltraFeedback", 13, "Bradley-Terry"),
    "rank_results_uf_27": ("UltraFeedback", 27, "Bradley-Terry"),
    "rank_results_uf_54": ("UltraFeedback", 53, "Bradley-Terry"),
    "rank_results_uf_100": ("UltraFeedback", 106, "Bradley-Terry"),
    "rank_results_sky_80k": ("Skywork", 77, "Bradley-Terry"),
    "rank_results_grm_80k": ("UltraFeedback and Skywork", 550, "GRM"),
}
"""Preferences of each file of medians: where from, how many thousands, how trained; as the authors'
figure has them (its axis says 632 for the last)."""
Tables = dict[str, pd.DataFrame]
Beside = list[tuple[str, str, str]]
"""What a number is, as published, as computed."""


class Step(NamedTuple):
    """One figure of the paper."""

    number: str
    what: str
    needs: tuple[str, ...]
    """Keys of LAYOUT."""
    imports: list[list[str]]
    """Options of each import; $KEY stands for a path."""
    compare: list[str]
    """Options of the comparison."""
    results: tuple[str, ...]
    """Which results of the comparison answer it."""
    beside: Callable[[Tables], Beside] = lambda tables: []
    """Published numbers beside ours."""


def big_two_numbers(tables: Tables) -> Beside:
    """The numbers of Figure 1a that were recomputed from the published data, or stand in its
    text."""
    means = tables["dictionary_means"].set_index(["framing", "base", "category"])
    found = []
    for framing, published in (("positive", "131.78 (10.67)"), ("negative", "126.09 (27.29)")):
        row = means.loc[(framing, "all bases", "all categories")]
        ours = f"{row['mean']:.2f} ({row['sd']:.2f})"
        found.append((f"mean (sd), {framing} prompts", published, ours))
    bases = means.drop(index="all bases", level="base").reset_index()
    family = bases["base"].str.contains("gemma", case=False).map({True: "Gemma", False: "Llama"})
    bases["sum"] = bases["n"] * bases["mean"]
    sums = bases.groupby(["framing", "category", family])[["sum", "n"]].sum()
    pooled = sums["sum"] / sums["n"]
    for framing, category, published in (
        ("positive", "Agency", "132.46 / 128.29"),
        ("positive", "Communion", "131.08 / 135.27"),
        ("negative", "Agency", "97.46 / 103.04"),
        ("negative", "Communion", "154.91 / 149.01"),
    ):
        ours = " / ".join(f"{mean:.2f}" for mean in pooled[framing, category])
        found.append((f"{category}, {framing}: Gemma / Llama", published, ours))
    terms = tables["dictionary_mixed_model"]
    factors = terms[["base", "category", "framing"]].ne("")
    for names, published in (
        (("base", "category", "framing"), "−19.83 (2.50)"),
        (("base", "category"), "8.35"),
        (("category", "framing"), "58.83"),
    ):
        row = terms[(factors == factors.columns.isin(names)).all(axis=1)].iloc[0]
        what, ours = f"mixed model, {' × '.join(names)}", f"{row['estimate']:.2f}"
        if len(names) == 3:
            what, ours = f"{what} (SE)", f"{ours} ({row['se']:.2f})"
        found.append((what, published, ours.replace("-", "−")))
    return found


def foundations(out: Path, dictionary: Path) -> Path:
    """Virtue and vice of a foundation as one category, as Figure 1b has them."""
    from experiments.inherited_values.word_categories import read_dictionary

    table, file = read_dictionary(dictionary), out / "foundations.csv"
    table["category"] = table["category"].str.replace(r"(?i)[._](virtue|vice)$", "", regex=True)
    table[["category", "word"]].drop_duplicates().to_csv(file, index=False)
    return file


def scores(key: str, name: str) -> list[list[str]]:
    return [["format=factorial54", f"path=${key}", f"set={name}"]]


def log_probabilities(models: tuple[str, ...]) -> list[list[str]]:
    files = [f"$logprobs/{model.replace('/', '--')}.csv" for model in models]
    return [["format=vocabulary", "score=log_probability", f"path={file}"] for file in files]


def dictionary(function: str, name: str, key: str) -> str:
    """The option that adds an analysis of a dictionary's categories."""
    target = f"_target_: experiments.inherited_values.{function}"
    return f"analyses=[{{{target}, dictionaries: {{{name}: '${key}'}}}}]"


RANK, FOLLOW = "dictionaries.rank_categories", "checkpoint_categories.follow_categories"
STEP = "analyses=[experiments.inherited_values.language_steps:analyse]"
MEDIANS = ("dictionary_contrasts", "dictionary_means", "dictionary_mixed_model")
LANGUAGE = ("language_model_contrasts", "language_dictionary_means", "language_median_ranks")
CHECKPOINTS = [["format=checkpoints", "path=$training", "tokens=$intersection"]]
TRAINED = ["sets=[vocabulary]", "models=[$checkpoints]"]
NOUNS = dictionary(RANK, "big_two", "nouns")
FIGURE_2, TABLE_1 = "median ranks of log-probabilities", ["prompts=[greatest_ever_one]", STEP]
SPOKEN = {name: f"models=[{','.join(models)}]" for name, models in MODELS.items()}
STEPS = [
    Step(
        "Figure 1a, A1a",
        "median ranks of Big Two nouns by base, category and framing",
        ("big_two", "nouns"),
        scores("big_two", "big2"),
        ["name=figure_1a", "sets=[big2]", NOUNS],
        MEDIANS,
        big_two_numbers,
    ),
    Step(
        "Figure 1b, A1b",
        "the same of the Moral Foundations Dictionary",
        ("mfd", "foundations"),
        scores("mfd", "mfd"),
        ["name=figure_1b", "sets=[mfd]", dictionary(RANK, "mfd", "foundations")],
        MEDIANS,
    ),
    Step(
        "Figure 2, instruction-tuned",
        FIGURE_2,
        ("logprobs", "nouns"),
        log_probabilities(MODELS["instructed"]),
        ["name=figure_2_instructed", SPOKEN["instructed"], "paper=true", NOUNS],
        LANGUAGE,
    ),
    Step(
        "Figure 2, pretrained",
        FIGURE_2,
        ("logprobs", "nouns"),
        log_probabilities(MODELS["pretrained"]),
        ["name=figure_2_pretrained", SPOKEN["pretrained"], "paper=true", NOUNS],
        LANGUAGE,
    ),
    Step(
        "Table 1",
        "tokens at both ends of MWLR",
        ("logprobs",),
        log_probabilities(MODELS["instructed"]),
        ["name=table_1", SPOKEN["instructed"], "top=15", *TABLE_1],
        ("implicit_reward",),
    ),
    Step(
        "Figure 3",
        "MWLR of Freedom and Love over model pairs",
        ("logprobs",),
        log_probabilities(MODELS["figure_3"]),
        ["name=figure_3", SPOKEN["figure_3"], "words=[Freedom,Love]", *TABLE_1],
        ("word_mwlr",),
    ),
    Step(
        "Figure 4a, A5a",
        "median ranks of the categories over training",
        ("training", "expanded", "intersection"),
        CHECKPOINTS,
        ["name=figure_4", *TRAINED, dictionary(FOLLOW, "big_two", "expanded")],
        ("checkpoint_categories",),
    ),
    Step(
        "Figure 5, A6",
        "words that moved furthest in training",
        ("training", "nouns", "intersection"),
        CHECKPOINTS,
        ["name=figure_5", *TRAINED, dictionary(FOLLOW, "big_two", "nouns")],
        ("checkpoint_category_words",),
    ),
]
"""The paper's order."""


def checkpoints(folder: Path) -> list[str]:
    """The models that a folder of checkpoint files holds, as they are called after import."""
    from pyarrow.parquet import read_schema

    return [
        f"{file.stem.partition('_across_checkpoints_')[2]}@{column}"
        for file in sorted(folder.glob("*_across_checkpoints_*.parquet"))
        for column in read_schema(file).names
        if column.startswith("step-")
    ]


def pessimal(out: Path, *arguments: str) -> Path:
    """Run a command, which is printed; the path that it ends with."""
    line = [*arguments, f"paths.root={out / 'runs'}", "tracking=off"]
    print("pessimal", *line, flush=True)
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), ROOT]))
    command, environment = [sys.executable, "-m", "pessimal", *line], {"PYTHONPATH": path}
    pipe = {"stdout": subprocess.PIPE, "text": True, "env": os.environ | environment}
    process = subprocess.run(command, check=False, **pipe)
    if process.returncode:
        sys.exit(f"this command ended with {process.returncode}")
    return Path(process.stdout.strip().splitlines()[-1])


def section(step: Step, place: int, folder: Path, out: Path) -> list[str]:
    """A step's part of the index; its figures and tables are copied to OUT."""
    results = {r["name"]: r for r in json.loads((folder / "results.json").read_text())["results"]}
    lines, copied, tables = [f"## {step.number}: {step.what}", ""], [], {}
    for name in filter(results.get, step.results):
        table = folder / "tables" / f"{name}.parquet"
        tables[name] = pd.read_parquet(table)
        figures = [folder / f"figures/{stem}.svg" for stem in results[name]["figures"].values()]
        for file in filter(Path.is_file, [*figures, table]):
            copied.append(f"{place:02d}-{file.name}")
            shutil.copyfile(file, out / copied[-1])
        if results[name]["headline"]:
            lines += [f"- {results[name]['headline']}"]
    links = ", ".join(f"[{name}]({name})" for name in copied)
    lines += ["", f"Files: {links or 'none: see what was skipped'}", ""]
    if numbers := step.beside(tables):
        lines += ["| | published | here |", "|---|---|---|"]
    for what, published, ours in numbers:
        lines += [f"| {what} | {published} | {ours} |"]
        print(f"  {what:45} published {published:18} here {ours}")
    return [*lines, ""]


def read_rank_results(path: Path) -> pd.DataFrame:
    """Median ranks of categories of words over a training, as the follow-up gives those of its
    trained reward models (`rank_results_*.csv`; its Figure 4b).

    They are no scores, so they are not imported. Rows that stand there several times (once for each
    word, in one file) count once; the column of row numbers (`X` or without a name) is not read.

    Returns:
        One row per run, category and step: run, base (what the file says; where it says nothing,
        the family that the run's name has), category, step (whole number), median_rank (1 = best).

    Raises:
        InputError: another layout, a value that is no number, or two median ranks of one run,
            category and step.
    """
    from pessimal.errors import InputError
    from pessimal.tables.files import read_csv
    from pessimal.tables.published import numbers, whole_numbers

    table = read_csv(path)
    columns = ["model_id", "Category", "checkpoint", "base_model", "sum_value"]
    if missing := [column for column in columns if column not in table]:
        raise InputError(
            f"{path} lacks the column {missing[0]!r}; median ranks over a training have "
            f"{', '.join(columns)}"
        )
    run = table["model_id"]
    named = [next((base for base in FAMILIES if base[:3].lower() in r.lower()), r) for r in run]
    ranks = pd.DataFrame(
        {
            "run": run,
            "base": table["base_model"].where(~table["base_model"].isin(["", "NA"]), named),
            "category": table["Category"],
            "step": whole_numbers(path, table, "checkpoint"),
            "median_rank": numbers(path, table, "sum_value").astype(float),
        }
    ).drop_duplicates(ignore_index=True)
    if (again := ranks.duplicated(["run", "category", "step"])).any():
        row = ranks[again].iloc[0]
        raise InputError(
            f"{path} has two median ranks of {row['run']}, {row['category']}, step {row['step']}"
        )
    return ranks


def ablations(folder: Path, out: Path) -> list[str]:
    """Figure 4b, from medians that the authors give: those of each run's last checkpoint, against
    the number of pairs that it was trained on. Drawn to OUT/ablations."""
    from pessimal.plots import Scatter
    from pessimal.report.write import write_results
    from pessimal.tables.result import Result

    pieces = []
    for file in sorted(folder.glob("rank_results_*.csv")):
        table = read_rank_results(file)
        data, pairs, method = ABLATIONS.get(file.stem, (file.stem, None, ""))
        last = table[table["step"] == table.groupby("run")["step"].transform("max")]
        pieces.append(last.assign(file=file.stem, data=data, pairs=pairs, method=method))
    if not pieces:
        return []
    table = pd.concat(pieces, ignore_index=True)
    shutil.rmtree(out / "ablations", ignore_errors=True)
    (out / "ablations").mkdir()
    shown = table.assign(panel=table["category"] + ", " + table["method"]).dropna(subset="pairs")
    axes = {"x": "pairs", "y": "median_rank", "group": "base", "panel": "panel", "name": "data"}
    labels = {"xlabel": "pairs (thousands)", "ylabel": "median rank (1 = best)"}
    plot = Scatter(**axes, **labels, data=shown.astype({"pairs": float}))
    write_results([Result("ablations", table, plot=plot)], out / "ablations", progress=False)
    head = ["| data | pairs, thousands | method | run | base | category | median rank |"]
    head.append("|---|---|---|---|---|---|---|")
    columns = ["data", "pairs", "method", "run", "base", "category", "median_rank"]
    cells = table.assign(median_rank=table["median_rank"].map("{:.1f}".format))[columns]
    rows = [f"| {' | '.join(map(str, row))} |" for row in cells.itertuples(index=False)]
    files = "Files: [ablations/](ablations/)"
    title = "## Figure 4b, A5b: ablations, the authors' own medians"
    return [title, "", files, "", *head, *rows, ""]


def main(out: Path, at: dict[str, Path]) -> None:
    """Every step whose files are there."""
    out.mkdir(parents=True, exist_ok=True)
    lines = ["# Reward models inherit value biases from pretraining, in the paper's order", ""]
    at = {key: path for key, path in at.items() if path.exists()}
    words: dict[str, object] = dict(at)
    if "foundations" in at:
        words["foundations"] = foundations(out, at["foundations"])
    if "training" in at:
        words["checkpoints"] = ",".join(checkpoints(at["training"]))
    imported: list[list[str]] = []
    for place, step in enumerate(STEPS, start=1):
        if missing := ", ".join(key for key in step.needs if key not in at):
            print(f"{step.number}: left out, no {missing}")
            lines += [f"## {step.number}: {step.what}", "", f"Left out: no {missing}.", ""]
            continue
        print(f"{step.number}: {step.what}", flush=True)
        for options in step.imports:
            if options not in imported:
                pessimal(out, "import", *(Template(o).substitute(words) for o in options))
                imported.append(options)
        options = [Template(option).substitute(words) for option in step.compare]
        lines += section(step, place, pessimal(out, "compare", *options), out)
    if "training" in at:
        lines += ablations(at["training"], out)
    (out / "index.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(out / "index.md")


def inputs(arguments: list[str]) -> dict[str, Path]:
    """Where each input lies: AUTHORS, then what KEY=PATH says otherwise."""
    found: dict[str, Path] = {}
    for argument in arguments:
        key, equals, path = argument.partition("=")
        if not equals:
            authors = Path(argument).expanduser().resolve()
            found |= {name: authors / part for name, part in LAYOUT.items()}
        elif key in LAYOUT:
            found[key] = Path(path).expanduser().resolve()
        else:
            sys.exit(f"{key}=: the keys are {', '.join(LAYOUT)}")
    return found


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]).resolve(), inputs(sys.argv[2:]))
