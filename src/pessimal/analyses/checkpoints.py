"""How a reward model's ranks change while it is trained: one run, scored at several steps.

Knows score tables whose provenance has a training step. Knows nothing of how the models were
trained.
"""

from dataclasses import replace

import pandas as pd

from pessimal.analyses.analysis import Needs, Options, analysis
from pessimal.errors import TableError
from pessimal.plots import Forest, Lines
from pessimal.tables.result import Result, merged, weight_of
from pessimal.tables.table_set import TableSet, runs_of
from pessimal.tables.word_lists import by_word


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
    """Ranks over training steps: of named words, and of the words that moved furthest.

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
    ranks = by_word(matrix[list(names)]).rank(ascending=False)
    for run, steps in runs.items():
        moved = rank_changes(ranks[list(steps.values())].set_axis(list(steps), axis=1))
        moved = moved.rename_axis("word").reset_index()
        place = moved.index
        ends = moved[(place < options.top) | (place >= len(moved) - options.top)]
        changes.append(ends.assign(run=run, words=len(ranks), **where))
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
    keys = ["run", "prompt"]
    place = table.groupby(keys, sort=False).cumcount()
    many = table.groupby(keys, sort=False)["word"].transform("size")
    shown = table[(place < min(top, 10)) | (many - place <= min(top, 10))]
    furthest = table.loc[(table["change"].abs() / table["words"]).idxmax()]
    columns = [
        "run", "word", "first_step", "last_step", "first_rank", "last_rank", "change", "words",
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
            tabs=tuple(keys),
            xlabel="rise in rank from the first step to the last",
        ),
        method="checkpoints",
        weight=weight_of(float(furthest["change"]) / int(furthest["words"]), share=1 / 2),
    )
