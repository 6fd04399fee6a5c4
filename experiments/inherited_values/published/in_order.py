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
from typing import NamedTuple

import pandas as pd

EXPERIMENTS = str(Path(__file__).resolve().parents[2])
"""Where Python finds the analyses of this experiment."""
sys.path.append(EXPERIMENTS)

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
PRETRAINED = ("google/gemma-2-2b", "meta-llama/Llama-3.2-3B")
INSTRUCTED = ("google/gemma-2-2b-it", "meta-llama/Llama-3.2-3B-Instruct")
FIGURE_3 = (
    "google/gemma-2-2b-it",
    "google/gemma-2-9b-it",
    "google/gemma-2-27b-it",
    "meta-llama/Llama-3.2-1B-Instruct",
    "meta-llama/Llama-3.2-3B-Instruct",
    "meta-llama/Meta-Llama-3-8B-Instruct",
    "meta-llama/Llama-3.1-8B-Instruct",
    "meta-llama/Meta-Llama-3-70B-Instruct",
    "meta-llama/Llama-3.1-70B-Instruct",
    "meta-llama/Llama-3.3-70B-Instruct",
)
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
    imports: Callable[[dict[str, Path]], list[list[str]]]
    compare: Callable[[dict[str, Path]], list[str]]
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
        found.append(
            (f"mean (sd), {framing} prompts", published, f"{row['mean']:.2f} ({row['sd']:.2f})")
        )
    bases = sorted(set(means.index.get_level_values("base")) - {"all bases"})
    for framing, category, published in (
        ("positive", "Agency", "132.46 / 128.29"),
        ("positive", "Communion", "131.08 / 135.27"),
        ("negative", "Agency", "97.46 / 103.04"),
        ("negative", "Communion", "154.91 / 149.01"),
    ):
        by_family = {"Gemma": [], "Llama": []}
        for base in bases:
            row = means.loc[(framing, base, category)]
            by_family["Gemma" if "gemma" in base.lower() else "Llama"].append(
                (row["n"], row["mean"])
            )
        ours = [
            sum(n * mean for n, mean in own) / sum(n for n, _ in own)
            for own in by_family.values()
            if own
        ]
        found.append(
            (
                f"{category}, {framing}: Gemma / Llama",
                published,
                " / ".join(f"{x:.2f}" for x in ours),
            )
        )
    terms = tables["dictionary_mixed_model"]
    for place, what, published in (
        ((True, True, True), "base × category × framing (SE)", "−19.83 (2.50)"),
        ((True, True, False), "base × category", "8.35"),
        ((False, True, True), "category × framing", "58.83"),
    ):
        row = terms[
            (terms[["base", "category", "framing"]] != "").eq(list(place)).all(axis=1)
        ].iloc[0]
        ours = f"{row['estimate']:.2f}" + (f" ({row['se']:.2f})" if all(place) else "")
        found.append((f"mixed model, {what}", published, ours.replace("-", "−")))
    return found


def foundations(out: Path, dictionary: Path) -> Path:
    """Virtue and vice of a foundation as one category, as Figure 1b has them."""
    from experiments.inherited_values.word_categories import read_dictionary

    table = read_dictionary(dictionary)
    table["category"] = table["category"].str.replace(
        r"[._](virtue|vice)$", "", case=False, regex=True
    )
    file = out / "foundations.csv"
    table[["category", "word"]].drop_duplicates().to_csv(file, index=False)
    return file


def rank(name: str, dictionary: Path, *, follow: bool = False) -> str:
    """The option that adds the analysis of a dictionary's categories, or that of these over the
    steps of a training."""
    function = (
        "checkpoint_categories.follow_categories" if follow else "dictionaries.rank_categories"
    )
    target = f"_target_: inherited_values.{function}"
    return f"analyses=[{{{target}, dictionaries: {{{name}: '{dictionary}'}}}}]"


def steps(out: Path) -> list[Step]:
    """The paper's order."""

    def scores(key: str, name: str) -> Callable[[dict[str, Path]], list[list[str]]]:
        return lambda at: [["import", "format=factorial54", f"path={at[key]}", f"set={name}"]]

    def spoken(models: tuple[str, ...]) -> Callable[[dict[str, Path]], list[list[str]]]:
        def make(at: dict[str, Path]) -> list[list[str]]:
            files = [at["logprobs"] / f"{model.replace('/', '--')}.csv" for model in models]
            return [
                ["import", "format=vocabulary", "score=log_probability", f"path={file}"]
                for file in files
            ]

        return make

    def two(models: tuple[str, ...], name: str) -> Callable[[dict[str, Path]], list[str]]:
        chosen = f"models=[{','.join(models)}]"
        return lambda at: [
            "compare",
            f"name={name}",
            chosen,
            "paper=true",
            rank("big_two", at["nouns"]),
        ]

    medians = ("dictionary_contrasts", "dictionary_means", "dictionary_mixed_model")
    language = ("language_model_contrasts", "language_dictionary_means", "language_median_ranks")
    return [
        Step(
            "Figure 1a, A1a",
            "median ranks of Big Two nouns by base, category and framing",
            ("big_two", "nouns"),
            scores("big_two", "big2"),
            lambda at: [
                "compare",
                "name=figure_1a",
                "sets=[big2]",
                rank("big_two", at["nouns"]),
            ],
            medians,
            big_two_numbers,
        ),
        Step(
            "Figure 1b, A1b",
            "the same of the Moral Foundations Dictionary",
            ("mfd", "foundations"),
            scores("mfd", "mfd"),
            lambda at: [
                "compare",
                "name=figure_1b",
                "sets=[mfd]",
                rank("mfd", foundations(out, at["foundations"])),
            ],
            medians,
        ),
        Step(
            "Figure 2, instruction-tuned",
            "median ranks of log-probabilities",
            ("logprobs", "nouns"),
            spoken(INSTRUCTED),
            two(INSTRUCTED, "figure_2_instructed"),
            language,
        ),
        Step(
            "Figure 2, pretrained",
            "median ranks of log-probabilities",
            ("logprobs", "nouns"),
            spoken(PRETRAINED),
            two(PRETRAINED, "figure_2_pretrained"),
            language,
        ),
        Step(
            "Table 1",
            "tokens at both ends of MWLR",
            ("logprobs",),
            spoken(INSTRUCTED),
            lambda at: [
                "compare",
                "name=table_1",
                f"models=[{','.join(INSTRUCTED)}]",
                "prompts=[greatest_ever_one]",
                "top=15",
                "analyses=[experiments.inherited_values.language_steps:analyse]",
            ],
            ("implicit_reward",),
        ),
        Step(
            "Figure 3",
            "MWLR of Freedom and Love over model pairs",
            ("logprobs",),
            spoken(FIGURE_3),
            lambda at: [
                "compare",
                "name=figure_3",
                f"models=[{','.join(FIGURE_3)}]",
                "prompts=[greatest_ever_one]",
                "words=[Freedom,Love]",
                "analyses=[experiments.inherited_values.language_steps:analyse]",
            ],
            ("word_mwlr",),
        ),
        Step(
            "Figure 4a, A5a",
            "median ranks of the categories over training",
            ("training", "expanded", "intersection"),
            lambda at: [
                [
                    "import",
                    "format=checkpoints",
                    f"path={at['training']}",
                    f"tokens={at['intersection']}",
                ]
            ],
            lambda at: [
                "compare",
                "name=figure_4",
                "sets=[vocabulary]",
                f"models=[{','.join(checkpoints(at['training']))}]",
                rank("big_two", at["expanded"], follow=True),
            ],
            ("checkpoint_categories",),
        ),
        Step(
            "Figure 5, A6",
            "words that moved furthest in training",
            ("training", "nouns", "intersection"),
            lambda at: [
                [
                    "import",
                    "format=checkpoints",
                    f"path={at['training']}",
                    f"tokens={at['intersection']}",
                ]
            ],
            lambda at: [
                "compare",
                "name=figure_5",
                "sets=[vocabulary]",
                f"models=[{','.join(checkpoints(at['training']))}]",
                rank("big_two", at["nouns"], follow=True),
            ],
            ("checkpoint_category_words",),
        ),
    ]


def checkpoints(folder: Path) -> list[str]:
    """The models that a folder of checkpoint files holds, as they are called after import."""
    found = []
    for file in sorted(folder.glob("*_across_checkpoints_*.parquet")):
        from pyarrow.parquet import read_schema

        columns = [name for name in read_schema(file).names if name.startswith("step-")]
        found += [
            f"{file.stem.partition('_across_checkpoints_')[2]}@{column}" for column in columns
        ]
    return found


def pessimal(out: Path, *arguments: str) -> Path:
    """Run a command, which is printed; the path that it ends with."""
    line = [*arguments, f"paths.root={out / 'runs'}", "tracking=off"]
    print("pessimal", *line, flush=True)
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), EXPERIMENTS]))
    done = subprocess.run(
        [sys.executable, "-m", "pessimal", *line],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    if done.returncode:
        sys.exit(f"this command ended with {done.returncode}")
    return Path(done.stdout.strip().splitlines()[-1])


def section(step: Step, place: int, folder: Path, out: Path) -> list[str]:
    """A step's part of the index; its figures and tables are copied to OUT."""
    results = {r["name"]: r for r in json.loads((folder / "results.json").read_text())["results"]}
    lines, copied, tables = [f"## {step.number}: {step.what}", ""], [], {}
    for name in step.results:
        if name not in results:
            continue
        tables[name] = pd.read_parquet(folder / "tables" / f"{name}.parquet")
        stems = [f"figures/{stem}.svg" for stem in results[name]["figures"].values()]
        for file in [folder / stem for stem in stems] + [folder / "tables" / f"{name}.parquet"]:
            if file.is_file():
                copied.append(f"{place:02d}-{file.name}")
                shutil.copyfile(file, out / copied[-1])
        if results[name]["headline"]:
            lines += [f"- {results[name]['headline']}"]
    lines += [
        "",
        "Files: "
        + (", ".join(f"[{name}]({name})" for name in copied) or "none: see what was skipped"),
        "",
    ]
    if numbers := step.beside(tables):
        lines += ["| | published | here |", "|---|---|---|"]
        lines += [f"| {what} | {published} | {ours} |" for what, published, ours in numbers]
        for what, published, ours in numbers:
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
    shown = table.assign(panel=table["category"] + ", " + table["method"])
    plot = Scatter(
        x="pairs",
        y="median_rank",
        group="base",
        panel="panel",
        name="data",
        xlabel="pairs (thousands)",
        ylabel="median rank (1 = best)",
        data=shown.dropna(subset="pairs").astype({"pairs": float}),
    )
    results = [Result("ablations", table, plot=plot)]
    write_results(results, out / "ablations", progress=False)
    head = ["| data | pairs, thousands | method | run | base | category | median rank |"]
    head.append("|---|---|---|---|---|---|---|")
    rows = [
        f"| {r.data} | {r.pairs} | {r.method} | {r.run} | {r.base} | {r.category} | "
        f"{r.median_rank:.1f} |"
        for r in table.itertuples()
    ]
    files = "Files: [ablations/](ablations/)"
    title = "## Figure 4b, A5b: ablations, the authors' own medians"
    return [title, "", files, "", *head, *rows, ""]


def main(out: Path, at: dict[str, Path]) -> None:
    """Every step whose files are there."""
    out.mkdir(parents=True, exist_ok=True)
    lines, imported = (
        ["# Reward models inherit value biases from pretraining, in the paper's order", ""],
        set(),
    )
    for place, step in enumerate(steps(out), start=1):
        if missing := [key for key in step.needs if key not in at or not at[key].exists()]:
            print(f"{step.number}: left out, no {', '.join(missing)}")
            lines += [
                f"## {step.number}: {step.what}",
                "",
                f"Left out: no {', '.join(missing)}.",
                "",
            ]
            continue
        print(f"{step.number}: {step.what}", flush=True)
        for command in step.imports(at):
            if tuple(command) not in imported:
                pessimal(out, *command)
                imported.add(tuple(command))
        lines += section(step, place, pessimal(out, *step.compare(at)), out)
    if "training" in at and at["training"].exists():
        lines += ablations(at["training"], out)
    (out / "index.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(out / "index.md")


def inputs(arguments: list[str]) -> dict[str, Path]:
    """Where each input lies: AUTHORS, then what KEY=PATH says otherwise."""
    found: dict[str, Path] = {}
    for argument in arguments:
        key, equals, path = argument.partition("=")
        if not equals:
            found |= {
                name: Path(argument).expanduser().resolve() / part for name, part in LAYOUT.items()
            }
        elif key in LAYOUT:
            found[key] = Path(path).expanduser().resolve()
        else:
            sys.exit(f"{key}=: the keys are {', '.join(LAYOUT)}")
    return found


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]).resolve(), inputs(sys.argv[2:]))
