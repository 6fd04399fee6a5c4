"""How a reward model's ranks change while it is trained: one run, scored at several steps.

Knows score tables whose provenance has a training step. Knows nothing of how the models were
trained.
"""

from dataclasses import replace

import pandas as pd

from pessimal.analyses.analysis import Needs, Options, analysis, noted
from pessimal.analyses.dictionaries import median_ranks, word_scores
from pessimal.errors import TableError
from pessimal.plots import Forest, Lines
from pessimal.tables.result import Estimate, Result, merged, weight_of
from pessimal.tables.table_set import TableSet, runs_of
from pessimal.tables.words import by_word

ANY_WORD = "all shared words"
"""In place of a dictionary: the words that all checkpoints share."""


def rank_changes(ranks: pd.DataFrame) -> pd.DataFrame:
    """How far each token has risen from the first step to the last.

    Args:
        ranks: tokens × steps, of ranks; columns are numbers of steps, in any order.

    Returns:
        Index as given, the furthest risen first: first_step, last_step, first_rank, last_rank,
            change (first rank less
        last rank: positive where the token has risen).

    Raises:
        TableError: fewer than two steps.
    """
    first, last = min(ranks.columns), max(ranks.columns)
    changes = pd.DataFrame(
        {
            "first_step": first,
            "last_step": last,
            "first_rank": ranks[first],
            "last_rank": ranks[last],
        }
    )
    return changes.assign(change=changes["first_rank"] - changes["last_rank"]).sort_values(
        "change", ascending=False, kind="stable"
    )


@analysis("checkpoints", Needs(prompts=0, checkpoints=True), place=180)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Ranks over training steps: of a dictionary's categories, of named words, and the words that
    moved furthest.

    Ranked are the words that every checkpoint of every run has, so that ranks of different runs run
    to the same end.
    """
    results, notes = [], []
    for prompt, members in tables.by_prompt.items():
        runs = {
            run: {step: table.model for step, table in steps.items()}
            for run, steps in runs_of(members).items()
        }
        notes += [
            f"{run} on {prompt}: one checkpoint, no change" for run, s in runs.items() if len(s) < 2
        ]
        runs = {run: steps for run, steps in runs.items() if len(steps) > 1}
        if runs:
            results += _of_prompt(prompt, runs, tables, options, notes)
    if not results:
        raise TableError(f"no run with several checkpoints of one prompt ({'; '.join(notes)})")
    first, *others = merged(results)
    return [replace(first, notes=tuple(dict.fromkeys(notes))), *others]


def _of_prompt(
    prompt: str,
    runs: dict[str, dict[int, str]],
    tables: TableSet,
    options: Options,
    notes: list[str],
) -> list[Result]:
    """All results of one prompt; `runs` has the model of each step, steps rising."""
    where = {"prompt": prompt, "candidates": tables.candidates}
    names = {model: (run, step) for run, steps in runs.items() for step, model in steps.items()}
    members = [table for table in tables.by_prompt[prompt] if table.model in names]
    matrix = tables.shared(members)
    results, changes = [], []

    def changes_of(ranks: pd.DataFrame, dictionary: str, categories: pd.Series) -> None:
        for run, steps in runs.items():
            moved = rank_changes(ranks[list(steps.values())].set_axis(list(steps), axis=1))
            moved = moved.rename_axis("word").reset_index()
            if dictionary == ANY_WORD:
                place = moved.index
                moved = moved[(place < options.top) | (place >= len(moved) - options.top)]
            about = {"dictionary": dictionary, "run": run, "words": len(ranks), **where}
            changes.append(moved.assign(category=moved["word"].map(categories), **about))

    for name, dictionary in options.dictionaries.items():
        rewards = {model: matrix[model] for model in names}
        with noted(notes, f"{name} on {prompt}"):
            medians = median_ranks({prompt: rewards}, dictionary, confidence=options.confidence)
            pairs = pd.DataFrame(map(names.get, medians["model"]), columns=["run", "step"])
            medians = pd.concat([pairs, medians.drop(columns=["model", "prompt"])], axis=1)
            results.append(_categories_result(medians.assign(dictionary=name, **where), name))
            words, categories = word_scores(rewards, dictionary)
            changes_of(words.rank(ascending=False), name, categories)
    ranks = by_word(matrix[list(names)]).rank(ascending=False)
    changes_of(ranks, ANY_WORD, pd.Series("", index=ranks.index))
    named = []
    for word in options.words:
        if (spelled := word.strip().lower()) in ranks.index:
            steps = pd.DataFrame(list(names.values()), columns=["run", "step"])
            named.append(steps.assign(word=spelled, rank=ranks.loc[spelled, list(names)].array))
        else:
            notes.append(f"{word} on {prompt}: no word that all checkpoints share")
    if named:
        results.append(_words_result(pd.concat(named).assign(words=len(ranks), **where)))
    results.append(_changes_result(pd.concat(changes, ignore_index=True), options.top))
    return results


def _categories_result(medians: pd.DataFrame, name: str) -> Result:
    """The category whose median rank moves furthest in a run."""
    ends = medians.groupby(["run", "category"], sort=False).agg(
        first=("median_rank", "first"), last=("median_rank", "last"), step=("step", "last")
    )
    moved = ends["first"] - ends["last"]
    run, category = moved.abs().idxmax()
    row, words = ends.loc[(run, category)], int(medians["words"].iloc[0])
    columns = [
        "dictionary", "run", "step", "category", "n", "words", "median_rank", "low", "high",
        "tied",
    ]  # fmt: skip
    return Result(
        "checkpoint_categories",
        medians[[*columns, "prompt", "candidates"]],
        headline=f"{name}: by step {int(row['step'])}, {run} has moved {category} words from "
        f"median rank {row['first']:.0f} to {row['last']:.0f} of {words}.",
        plot=Lines(
            x="step",
            y="median_rank",
            low="low",
            high="high",
            group="run",
            panel="category",
            marks=True,
            falling=True,
            tabs=("dictionary", "candidates", "prompt"),
            xlabel="training step",
            ylabel="median rank (1 = highest)",
        ),
        method="checkpoints",
        weight=weight_of(2 * float(moved[run, category]) / words, share=1 / 2),
        estimate=Estimate("rise in median rank", float(moved[run, category]), words, "words"),
    )


def _words_result(table: pd.DataFrame) -> Result:
    """The ranks of named words."""
    columns = ["run", "step", "word", "rank", "words", "prompt", "candidates"]
    return Result(
        "checkpoint_words",
        table[columns].reset_index(drop=True),
        plot=Lines(
            x="step",
            y="rank",
            group="word",
            panel="run",
            marks=True,
            falling=True,
            xlabel="training step",
            ylabel="rank among shared words",
        ),
        method="checkpoints",
    )


def _changes_result(table: pd.DataFrame, top: int) -> Result:
    """The words that moved furthest, at most `top` at either end of each run."""
    keys = ["dictionary", "run", "prompt"]
    place = table.groupby(keys, sort=False).cumcount()
    many = table.groupby(keys, sort=False)["word"].transform("size")
    shown = table[(place < min(top, 10)) | (many - place <= min(top, 10))]
    furthest = table.loc[(table["change"].abs() / table["words"]).idxmax()]
    columns = [
        "dictionary", "run", "word", "category", "first_step", "last_step", "first_rank",
        "last_rank", "change", "words",
    ]  # fmt: skip
    return Result(
        "checkpoint_changes",
        table[[*columns, "prompt", "candidates"]],
        headline=f"From step {furthest['first_step']} to {furthest['last_step']}, "
        f"{furthest['run']} moves {furthest['word']} from rank {furthest['first_rank']:.0f} to "
        f"{furthest['last_rank']:.0f} of {furthest['words']}.",
        plot=Forest(
            data=shown,
            row="word",
            estimate="change",
            low=None,
            high=None,
            group="category",
            tabs=tuple(keys),
            xlabel="rise in rank from the first step to the last",
        ),
        method="checkpoints",
        weight=weight_of(float(furthest["change"]) / int(furthest["words"]), share=1 / 2),
    )
