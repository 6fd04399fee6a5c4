"""What a study concludes: the tuned options, how they do on held-out prompts, and every trial, as
Results.

Knows a study and a searchable model. Does not know files.
"""

import hashlib
import json
import logging
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import numpy as np
import optuna
import pandas as pd
from optuna.distributions import CategoricalDistribution
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.storages import RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState, create_trial

from pessimal.errors import WorkError
from pessimal.plots import Forest, Scatter
from pessimal.tables.result import Estimate, Result, weight_of
from pessimal.texts import signed
from pessimal.tuning import held_out
from pessimal.tuning.study import (
    DEFAULTS,
    ERROR,
    FINISHED,
    PROVENANCE,
    SEARCHES,
    STUDY_SPEC,
    Distribution,
    Prepare,
    StudySpec,
    finished,
    options_of,
    options_tried,
    same_model,
    short,
    space_of,
)
from pessimal.version import __version__

log = logging.getLogger(__name__)

_result = partial(Result, method="tuning")
# Trials with a value below which no importance is given: a forest over fewer says nothing.
LEAST_TRIALS = 8
DRAWS, TREES = 24, 16
"""Bootstrap draws, and trees of each forest: 2.5 s for 30 trials of six options on one core."""


def key_of(spec: StudySpec, study: optuna.Study) -> str:
    """sha256 of all that the results depend on, hours and durations aside."""
    searched = searches_table(study).drop(columns="seconds")
    trials = [[t.number, t.state.name, t.values, options_tried(t)] for t in finished(study)]
    prompts = {key: spec.prompts[key] for key in spec.tuning.held_out}
    content = {
        "study": study.study_name,
        "attributes": [study.user_attrs[STUDY_SPEC], study.user_attrs.get(PROVENANCE)],
        "trials": [trials, searched.to_numpy().tolist()],
        "held_out": [prompts, spec.tuning.held_out_seeds],
        "seed": spec.seed,
        "version": __version__,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def best_of(study: optuna.Study) -> FrozenTrial:
    """The complete trial of the highest value; of equal ones the defaults, then the first.
    WorkError where none is complete."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if not complete:
        raise WorkError(f"no trial of the study {study.study_name!r} is complete yet")
    return max(complete, key=lambda t: (t.value, DEFAULTS in t.user_attrs, -t.number))


def conclude(spec: StudySpec, study: optuna.Study, prepare: Prepare) -> list[Result]:
    """Compare the best options with the defaults on held-out prompts, and report all trials. Raises
    WorkError where no trial of the study is complete."""
    best, results = best_of(study), []
    if spec.tuning.held_out:
        log.info(
            "trial %d is the best; comparing it with the defaults on held-out prompts", best.number
        )
        compared = held_out.compare(
            spec,
            options_tried(best),
            lambda search, prompts: same_model(study, prepare(search, prompts)),
        )
        results = [held_out_result(held_out.differences(compared)), _result("held_out", compared)]
    trials, ranked = trials_table(study), importances(study, seed=spec.seed)
    results += [
        options_result(options_table(study, spec), trials, flattered=not spec.tuning.held_out),
        trials_result(trials, [short(name) for name in space_of(study)], ranked is not None),
        *([] if ranked is None else [importances_result(ranked)]),
        _result("searches", searches_table(study)),
    ]
    return results


def held_out_result(table: pd.DataFrame) -> Result:
    """Tuned against defaults; `table` is that of `held_out.differences`."""
    overall, prompts = table.iloc[-1], len(table) - 1
    interval: dict[str, Any] = {name: float(overall[name]) for name in ("low", "high", "p")}
    interval = {name: value for name, value in interval.items() if pd.notna(value)}
    verb = "more" if overall["low"] > 0 else "LESS" if overall["high"] < 0 else "no more"
    alone = "One held-out prompt, or one start, says nothing of others: tuning.held_out=[KEY,KEY]"
    difference, n = float(overall["difference"]), int(overall["n"])
    of = "prompts" if prompts > 1 else "starts"
    return _result(
        "held_out_differences",
        table,
        headline=f"On {prompts} held-out prompts the tuned options find {verb} than the defaults: "
        f"{signed(difference, '+.3f')} SD.",
        plot=Forest(
            row="prompt",
            estimate="difference",
            tabs=(),
            xlabel="best reward, tuned − defaults (SD of single tokens' rewards)",
        ),
        weight=weight_of(difference, interval.get("p")),
        estimate=Estimate("tuned − defaults, SD", difference, n, of, **interval),
        notes=() if prompts > 1 and n > 1 else (alone,),
        summary={"held_out_prompts": prompts, "held_out_difference": difference}
        | {f"held_out_{name}": value for name, value in interval.items()},
    )


def options_result(table: pd.DataFrame, trials: pd.DataFrame, *, flattered: bool) -> Result:
    """The best trial against the defaults' own; its value flatters it where nothing was held
    out."""
    complete = trials[trials["state"] == "complete"]
    best = complete[complete["best"]].iloc[0]
    defaults = complete.loc[complete["defaults"], "value"].head(1).tolist()
    who = "the defaults themselves" if best["defaults"] else f"trial {best['trial']}"
    usual = f"{defaults[0]:.3f}" if defaults else "not known"
    note = (
        "No prompts were held out, and the best value flatters: tuning.held_out=[KEY,…] compares."
    )
    summary = {"trials": int(trials["value"].notna().sum()), "best_value": float(best["value"])}
    return _result(
        "options",
        table,
        headline=f"Of {len(complete)} complete trials {who} did best: {best['value']:.3f} SD; "
        f"defaults: {usual}.",
        weight=weight_of(0.2),
        estimate=Estimate("best trial, SD", float(best["value"]), len(complete), "trials"),
        notes=(note,) if flattered else (),
        summary=summary
        | ({"defaults_value": defaults[0]} if defaults else {})
        | {f"tuned/{row.option}": row.tuned for row in table.itertuples()},
    )


def trials_result(table: pd.DataFrame, options: list[str], ranked: bool) -> Result:
    """Every trial, along one option at a time."""
    valued = table[table["value"].notna()]
    drawn = valued.assign(**valued[options].rank(pct=True)).melt(
        ["trial", "state", "value"], options, var_name="option", value_name="place"
    )
    scatter = Scatter(
        data=drawn,
        x="place",
        y="value",
        group="state",
        panel="option",
        xlabel="rank among the values tried (share)",
        ylabel="value (SD)",
    )
    counts = ", ".join(f"{n} {state}" for state, n in table["state"].value_counts().items())
    note = "How much each option matters is not given: too few trials, or all values alike."
    return _result(
        "trials",
        table,
        headline=f"{len(table)} trials: {counts}.",
        plot=scatter if len(valued) else None,
        weight=weight_of(0.1),
        notes=() if ranked else (note,),
    )


def importances_result(table: pd.DataFrame) -> Result:
    """How much each option matters, with bootstrap errors."""
    error = table["standard_error"]
    drawn = table.assign(low=table["importance"] - error, high=table["importance"] + error)
    top = drawn.iloc[0]
    share, low, high = (float(top[name]) for name in ("importance", "low", "high"))
    label = "share of variance explained (fANOVA; ± one standard error)"
    return _result(
        "importances",
        table,
        headline=f"{top['option']} matters most: it explains {share:.0%} of the variance of "
        f"trials' values.",
        plot=Forest(data=drawn, row="option", estimate="importance", tabs=(), xlabel=label),
        weight=weight_of(0.2),
        estimate=Estimate("share of variance", share, int(top["n"]), "trials", low, high),
    )


def trials_table(study: optuna.Study) -> pd.DataFrame:
    """A row a trial: trial, state, defaults, best, value, searches, low and high (the quartiles of
    its searches), an option a column, seconds, started (UTC), retry_of, error.

    A pruned trial's value is the median over the searches it made, of a failed one there is none.
    """
    best, rows = best_of(study).number, []
    for trial in study.get_trials(deepcopy=False):
        values = [search[2] for search in trial.user_attrs.get(SEARCHES, [])]
        low, high = np.quantile(values, [0.25, 0.75]) if values else (np.nan, np.nan)
        failed = trial.state is TrialState.FAIL
        row = {
            "trial": trial.number,
            "state": "failed" if failed else trial.state.name.lower(),
            "defaults": DEFAULTS in trial.user_attrs,
            "best": trial.number == best,
            "value": trial.value if trial.state in FINISHED else np.nan,
            "searches": len(values),
            "low": low,
            "high": high,
            **{short(name): value for name, value in options_tried(trial).items()},
            "seconds": trial.duration.total_seconds() if trial.duration else np.nan,
            "started": trial.datetime_start.isoformat() if trial.datetime_start else None,
            "retry_of": RetryHeartbeatStaleTrialCallback.retried_trial_number(trial),
            # Whoever dies cannot say so.
            "error": trial.user_attrs.get(ERROR, "its worker died") if failed else None,
        }
        rows.append(row)
    return pd.DataFrame(rows).astype({"retry_of": "Int64"})


def searches_table(study: optuna.Study) -> pd.DataFrame:
    """A row a search of a finished trial: trial, prompt, seed, value, seconds."""
    rows = [(t.number, *row) for t in finished(study) for row in t.user_attrs.get(SEARCHES, [])]
    return pd.DataFrame(rows, columns=["trial", "prompt", "seed", "value", "seconds"])


def options_table(study: optuna.Study, spec: StudySpec) -> pd.DataFrame:
    """A row an option: option, tuned, defaults, tried (its values in the space)."""
    space, tuned = space_of(study), options_tried(best_of(study))
    defaults = options_of(spec.search, list(space))
    rows = [
        (short(name), tuned[name], defaults[name], _in_words(values))
        for name, values in space.items()
    ]
    return pd.DataFrame(rows, columns=["option", "tuned", "defaults", "tried"], dtype=object)


def importances(study: optuna.Study, *, seed: int) -> pd.DataFrame | None:
    """Share of the values' variance that each option's main effect explains, by fANOVA: option,
    importance, standard_error (over bootstrap draws of the trials), n; None where there are too few
    trials or all are alike.

    Pruned trials take part with the value they had: without them only good options would be looked
    at. Importances are about the region that the study sampled, which is denser where values are
    high. Source: Hutter, Hoos, Leyton-Brown 2014.
    """
    space = space_of(study)
    trials = [
        create_trial(
            value=trial.value,
            params={name: trial.params[name] for name in space},
            distributions=dict(space),
        )
        for trial in finished(study)
        if set(space) <= set(trial.params)  # defaults outside of the space are left out
    ]
    if len(trials) < LEAST_TRIALS or len({trial.value for trial in trials}) == 1:
        return None
    random, n = np.random.default_rng(seed), len(trials)
    draws = [
        _fanova([trials[i] for i in random.integers(n, size=n)], space, seed=seed)
        for _ in range(DRAWS)
    ]
    columns = {
        "option": [short(name) for name in space],
        "importance": _fanova(trials, space, seed=seed),
        "standard_error": np.nanstd(draws, axis=0, ddof=1),
        "n": n,
    }
    return pd.DataFrame(columns).sort_values("importance", ascending=False, ignore_index=True)


def _fanova(trials: Sequence[FrozenTrial], space: Collection[str], *, seed: int) -> np.ndarray:
    """Importances (options,); NaN where a draw's values are all alike."""
    if len({trial.value for trial in trials}) == 1:
        return np.full(len(space), np.nan)
    study = optuna.create_study(direction="maximize")
    study.add_trials(trials)
    evaluator = FanovaImportanceEvaluator(n_trees=TREES, seed=seed)
    importance = get_param_importances(
        study, evaluator=evaluator, params=list(space), normalize=False
    )
    return np.array([importance[name] for name in space])


def _in_words(values: Distribution) -> str:
    if isinstance(values, CategoricalDistribution):
        return ", ".join(map(str, values.choices))
    step = f" by {values.step}" if values.step not in (None, 1) else ""
    return f"{values.low} to {values.high}{' (log)' if values.log else step}"
