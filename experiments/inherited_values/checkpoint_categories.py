"""Changes of the ranks of a dictionary's categories while a reward model is trained: median ranks
by training step, and the words of the dictionary that moved furthest.

Knows score tables whose provenance has a training step, and a dictionary.

    PYTHONPATH=. pessimal compare 'analyses=[{_target_:
        experiments.inherited_values.checkpoint_categories.follow_categories, dictionaries: {NAME: FILE}}]'
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from experiments.inherited_values.dictionaries import median_ranks, word_scores
from experiments.inherited_values.word_categories import read_dictionaries
from pessimal.analyses.analysis import Analysis, Needs, Options, analysis, note_errors
from pessimal.errors import TableError
from pessimal.plots import Forest, Lines
from pessimal.tables.result import Estimate, Result, merged, weight_of
from pessimal.tables.table_set import TableSet, runs_of

METHOD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
MAX_WORDS = 10
"""Words drawn at either end of a run."""


def rank_changes(ranks: pd.DataFrame) -> pd.DataFrame:
    """How far each token has risen from the first step to the last.

    Args:
        ranks: tokens × steps, of ranks; columns are numbers of steps, in any order.

    Returns:
        Index as given, the furthest risen first: first_step, last_step, first_rank, last_rank,
        change (first rank less last rank: positive where the token has risen).
    """
    steps = {"first": min(ranks.columns), "last": max(ranks.columns)}
    columns = {f"{end}_step": step for end, step in steps.items()}
    columns |= {f"{end}_rank": ranks[step] for end, step in steps.items()}
    changes = pd.DataFrame(columns)
    changes["change"] = changes["first_rank"] - changes["last_rank"]
    return changes.sort_values("change", ascending=False, kind="stable")


def follow_categories(dictionaries: Mapping[str, str | Path]) -> Analysis:
    """The analysis of these dictionaries, files by name, over training steps.

    Raises:
        InputError: a file cannot be read, see `word_categories.read_dictionary`.
    """
    words_by_dictionary = read_dictionaries(dictionaries)

    @analysis("checkpoint_categories", Needs(prompts=0, checkpoints=True), place=180)
    def analyse(tables: TableSet, options: Options) -> list[Result]:
        return step_results(tables, options, words_by_dictionary)

    return analyse


def step_results(
    tables: TableSet, options: Options, dictionaries: Mapping[str, pd.DataFrame]
) -> list[Result]:
    """Median ranks of each dictionary's categories at each step, and the changes of its words.

    Ranked are the words of the dictionary that every checkpoint of every run has, so that ranks of
    different runs run to the same end.
    """
    results, notes = [], []
    for prompt, members in tables.by_prompt.items():
        runs = {
            run: {step: table.model for step, table in steps.items()}
            for run, steps in runs_of(members).items()
            if len(steps) > 1
        }
        if not runs:
            continue
        names = {model: (run, step) for run, steps in runs.items() for step, model in steps.items()}
        matrix = tables.shared([table for table in members if table.model in names])
        rewards = {model: matrix[model] for model in names}
        where = {"prompt": prompt, "candidates": tables.candidates}
        for name, dictionary in dictionaries.items():
            with note_errors(notes, f"{name} on {prompt}"):
                medians = median_ranks({prompt: rewards}, dictionary, confidence=options.confidence)
                pairs = pd.DataFrame(map(names.get, medians["model"]), columns=["run", "step"])
                medians = pd.concat([pairs, medians.drop(columns=["model", "prompt"])], axis=1)
                results.append(categories_result(medians.assign(dictionary=name, **where), name))
                results.append(changes_result(rewards, dictionary, runs, dictionary=name, **where))
    if not results:
        raise TableError("; ".join(notes) or "no run with several checkpoints of one prompt")
    first, *rest = merged(results)
    return [replace(first, notes=tuple(dict.fromkeys(notes))), *rest]


def categories_result(medians: pd.DataFrame, name: str) -> Result:
    """The category whose median rank moves furthest in a run."""
    ends = medians.groupby(["run", "category"], sort=False).agg(
        first=("median_rank", "first"), last=("median_rank", "last"), step=("step", "last")
    )
    moved = ends["first"] - ends["last"]
    run, category = moved.abs().idxmax()
    row, words = ends.loc[(run, category)], int(medians["words"].iloc[0])
    rise, where = float(moved[run, category]), ("dictionary", "candidates", "prompt")
    axes = {"x": "step", "y": "median_rank", "low": "low", "high": "high", "group": "run"}
    labels = {"xlabel": "training step", "ylabel": "median rank (1 = highest)"}
    return Result(
        "checkpoint_categories",
        medians,
        headline=f"{name}: by step {int(row['step'])}, {run} has moved {category} words from "
        f"median rank {row['first']:.0f} to {row['last']:.0f} of {words}.",
        plot=Lines(**axes, **labels, panel="category", marks=True, falling=True, tabs=where),
        method=METHOD,
        weight=weight_of(2 * rise / words, share=1 / 2),
        estimate=Estimate("rise in median rank", rise, words, "words"),
    )


def changes_result(
    rewards: Mapping[str, pd.Series],
    words: pd.DataFrame,
    runs: Mapping[str, Mapping[int, str]],
    **where: str,
) -> Result:
    """The rise of each word of a dictionary in each run; `runs` has the model of each step."""
    scores, categories = word_scores(rewards, words)
    ranks, changes = scores.rank(ascending=False), []
    for run, steps in runs.items():
        moved = rank_changes(ranks[list(steps.values())].set_axis(list(steps), axis=1))
        moved = moved.rename_axis("word").reset_index()
        moved["category"] = moved["word"].map(categories)
        changes.append(moved.assign(run=run, words=len(ranks), **where))
    table = pd.concat(changes, ignore_index=True)
    place = table.groupby("run", sort=False).cumcount()
    from_end = table.groupby("run", sort=False)["word"].transform("size") - 1 - place
    furthest = table.loc[table["change"].abs().idxmax()]
    ends = table[(place < MAX_WORDS) | (from_end < MAX_WORDS)]
    axes = {"row": "word", "estimate": "change", "low": None, "high": None, "group": "category"}
    label = "rise in rank from the first step to the last"
    return Result(
        "checkpoint_category_words",
        table,
        headline=f"{where['dictionary']}: from step {furthest['first_step']} to "
        f"{furthest['last_step']}, {furthest['run']} moves {furthest['word']} from rank "
        f"{furthest['first_rank']:.0f} to {furthest['last_rank']:.0f} of {furthest['words']}.",
        plot=Forest(data=ends, **axes, tabs=("dictionary", "run", "prompt"), xlabel=label),
        method=METHOD,
        weight=weight_of(float(furthest["change"]) / int(furthest["words"]), share=1 / 2),
    )
