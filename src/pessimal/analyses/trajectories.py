"""What a training comes to, and when: agreement with people, identity terms, extremes and ranks of
one run's checkpoints, with the step as an axis.

Knows score tables whose provenance has a training step. The numbers are those of the analyses of
single models.
"""

import numpy as np
import pandas as pd

from pessimal.analyses import identity_terms, people, valence
from pessimal.analyses.analysis import Needs, Options, analysis
from pessimal.analyses.dependence import dependence
from pessimal.analyses.ranks import Ranked, rank_correlations, ranked
from pessimal.errors import TableError
from pessimal.plots import Lines, TokenTable
from pessimal.tables import ScoreTable
from pessimal.tables.result import Effect, Result
from pessimal.tables.score_table import extremes
from pessimal.tables.table_set import TableSet, runs_of

LAST = "τ with the last step"
KEPT = "share of the last step's extremes"
SHOWN = 3
"""Candidates at either end of each step."""
KEYS = ["run", "measure", "prompt"]
COLUMNS = ["model", "measure", "prompt", "estimate", "low", "high", "n"]

ENDS = ["run", "step", "prompt", "end", "rank", "text", "reward", "certified", "candidates"]
Runs = dict[tuple[str, str], dict[int, ScoreTable]]
"""By (prompt, run): a table for each step, steps rising."""


@analysis("trajectories", Needs(models=0, prompts=0, checkpoints=True), place=190)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Each measure at each step of each run that has several, and the first step from which it is
    settled."""
    runs = _runs(tables)
    if not runs:
        raise TableError("no run with several checkpoints of one prompt")
    of_model = {
        table.model: (run, step)
        for (_, run), by_step in runs.items()
        for step, table in by_step.items()
    }
    steps = pd.DataFrame([(m, *at) for m, at in of_model.items()], columns=["model", "run", "step"])
    measures = pd.concat(
        [piece[COLUMNS] for piece in _measured(tables, options, runs)], ignore_index=True
    )
    table = measures.merge(steps, on="model").assign(candidates=tables.candidates)
    table = table[table.groupby(KEYS)["step"].transform("size") > 1]
    # Measures and prompts stay in their order; of a group the last row is the last step's.
    table = table.sort_values("step", kind="stable")
    order = table.groupby(KEYS, sort=False).ngroup()
    table = table.iloc[order.argsort(kind="stable")].reset_index(drop=True)
    settled = table.groupby(KEYS, sort=False)[["step", "estimate", "low", "high"]].apply(_settled)
    table = table.merge(
        settled.astype("Int64").rename("settled_at").reset_index(), on=KEYS, how="left"
    )
    ends = pd.concat(
        extremes(t.rows, k=SHOWN).assign(
            run=run, step=step, prompt=prompt, candidates=tables.candidates
        )
        for (prompt, run), scans in runs.items()
        for step, t in scans.items()
    ).reset_index(drop=True)
    first = table[table["measure"] == table["measure"].iloc[0]]
    contrast = first["prompt"].str.contains(" − ")
    last = first[contrast if contrast.any() else first["prompt"] == first["prompt"].iloc[0]]
    last = last[last["run"] == last["run"].iloc[0]].iloc[-1]
    # What each measure is compared with differs from measure to measure.
    effect = Effect("estimate", last["measure"], "low", "high", of="observations")
    return [
        Result.of_row(
            last,
            "trajectory",
            table[[*KEYS, "step", "estimate", "low", "high", "n", "settled_at", "candidates"]],
            effect,
            f"{last['run']}: {last['measure']} on {last['prompt']} is {last['estimate']:.2f} at "
            f"step {last['step']}" + _when(last),
            share=1 / 2,
            plot=Lines(
                x="step",
                y="estimate",
                low="low",
                high="high",
                group="run",
                panel="measure",
                marks=True,
                tabs=("prompt",),
                xlabel="training step",
            ),
            method="trajectories",
        ),
        Result(
            "trajectory_extremes",
            ends[ENDS],
            plot=TokenTable(
                data=ends.assign(step="step " + ends["step"].astype(str)),
                column="step",
                tabs=("run", "prompt"),
            ),
            method="trajectories",
        ),
    ]


def _runs(tables: TableSet) -> Runs:
    """The runs that have several steps on a prompt; rewards, or of a model that has none
    log-probabilities."""
    runs: Runs = {}
    for scores in (
        tables.language,
        {prompt: tables.by_prompt[prompt] for prompt in tables.prompts},
    ):
        for prompt, members in scores.items():
            for run, steps in runs_of(members).items():
                if len(steps) > 1:
                    runs[prompt, run] = steps
    return runs


def _settled(rows: pd.DataFrame) -> float:
    """The first step from which the estimate stays within the last step's interval; NaN where that
    has none."""
    last = rows.iloc[-1]
    if np.isnan(last["low"]) or np.isnan(last["high"]):
        return np.nan
    outside = np.flatnonzero(~rows["estimate"].between(last["low"], last["high"]).to_numpy())
    return float(rows["step"].iloc[outside[-1] + 1 if len(outside) else 0])


def _when(last: pd.Series) -> str:
    """The end of the headline."""
    if pd.isna(last["settled_at"]):
        return "."
    if last["settled_at"] == last["step"]:
        return ", and outside that interval until then."
    return f", and within that interval from step {last['settled_at']} on."


def _measured(tables: TableSet, options: Options, runs: Runs) -> list[pd.DataFrame]:
    """What the analyses of single models find, then what a run's own last step says; with
    `COLUMNS`."""
    measures = []
    for part, name, make in (
        (people, "human_correlation", _people),
        (valence, "valence", _valence),
        (identity_terms, "identity", _identity),
    ):
        if part.analyse.needs.missing(tables, options):
            continue
        if (name,) not in tables.memo:  # not part of a whole comparison
            try:
                tables.memo.update(
                    {(result.name,): result.table for result in part.analyse(tables, options)}
                )
            except TableError:  # which that analysis reports in its own place
                continue
        measures.append(make(tables.memo[name,], tables))
    return [*measures, _of_runs(options, runs)]


def _people(table: pd.DataFrame, tables: TableSet) -> pd.DataFrame:
    return table.rename(columns={"spearman": "estimate"}).assign(measure="ρ with people's Elo")


def _valence(table: pd.DataFrame, tables: TableSet) -> pd.DataFrame:
    # Of a model that has both, the rewards come first.
    table = table.drop_duplicates(["model", "lexicon", "prompt"])
    return table.rename(columns={"spearman": "estimate"}).assign(
        measure="ρ with " + table["lexicon"]
    )


def _identity(table: pd.DataFrame, tables: TableSet) -> pd.DataFrame:
    """All axes together, in standard deviations of the rewards."""
    table = table[
        (table["axis"] == identity_terms.ALL_AXES) & table["measure"].isin(list(tables.columns))
    ]
    in_sd = {name: table[name] / table["reward_sd"] for name in ("low", "high")}
    return table.assign(**in_sd, estimate=table["d"], prompt=table["measure"]).assign(
        measure="identity terms, SD"
    )


def _of_runs(options: Options, runs: Runs) -> pd.DataFrame:
    """Ranks over all candidates beside the last step's, and which of its extremes are there
    already."""
    pieces = []
    for (prompt, _), by_step in runs.items():
        final = list(by_step.values())[-1]
        same = [
            t
            for t in by_step.values()
            if t.provenance.candidates_digest == final.provenance.candidates_digest
        ]
        ranks = [ranked(table.rewards) for table in same]
        last, n = ranks[-1], len(final.rows)
        taus = rank_correlations(
            dict(enumerate(ranks)),
            [(place, len(ranks) - 1) for place in range(len(ranks))],
            dependence(final.rows["text"], options.meanings),
            **options.draws,
        )
        taus["low"][-1] = taus["high"][-1] = np.nan  # of itself
        k = min(options.top, n // 2)
        shared_ends = [
            np.mean([len(_ends(r, k, end) & _ends(last, k, end)) / max(k, 1) for end in (1, -1)])
            for r in ranks
        ]
        at = {"model": [table.model for table in same], "prompt": prompt, "n": n}
        with_last = {"measure": LAST, "estimate": taus.pop("kendall"), **taus}
        kept = {"measure": KEPT, "estimate": shared_ends, "low": np.nan, "high": np.nan}
        pieces += [pd.DataFrame(at | measure) for measure in (with_last, kept)]
    return pd.concat(pieces, ignore_index=True)


def _ends(order: Ranked, k: int, end: int) -> set[int]:
    """The rows of the k highest (end 1) or lowest (−1)."""
    return set(np.argsort(-end * order.below, kind="stable")[:k].tolist())
