"""What a study concludes: the tuned options, how they do on held-out prompts, and every trial, as Results.

Knows a study and a trial context. Does not know files or models.
"""

import hashlib
import json
import logging
from dataclasses import replace

import numpy as np
import optuna
import pandas as pd

from pessimal import __version__
from pessimal.config.schema import SearchConfig
from pessimal.errors import WorkError
from pessimal.plots import Forest, Scatter
from pessimal.tables.result import Estimate, Result, weight_of
from pessimal.tuning import held_out
from pessimal.tuning.space import short
from pessimal.tuning.study import FINISHED, STUDY_SPEC, options_tried
from pessimal.tuning.tables import (
    best_of,
    importances,
    options_table,
    provenance_table,
    searches_table,
    trials_table,
)
from pessimal.tuning.trial import PROVENANCE, SEARCHES, Prepare, same_model

log = logging.getLogger(__name__)

METHOD = "tuning"


def key_of(config: SearchConfig, study: optuna.Study) -> str:
    """sha256 of all that the results depend on, hours and durations aside."""
    content = {
        "study": study.study_name,
        "attributes": [study.user_attrs[STUDY_SPEC], study.user_attrs.get(PROVENANCE)],
        "trials": [
            [t.number, t.state.name, t.values, options_tried(t), [s[:3] for s in t.user_attrs.get(SEARCHES, [])]]
            for t in study.get_trials(deepcopy=False, states=FINISHED)
        ],
        "held_out": [{key: config.prompts[key] for key in config.tuning.held_out}, config.tuning.held_out_seeds],
        "seed": config.seed,
        "version": __version__,
    }  # fmt: skip
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def conclude(config: SearchConfig, study: optuna.Study, prepare: Prepare) -> list[Result]:
    """Compare the best options with the defaults on held-out prompts, and report all trials.

    Raises:
        WorkError: no trial of the study is complete.
    """
    best = best_of(study)
    if best is None:
        raise WorkError(
            f"no trial of the study {study.study_name!r} in {config.tuning.storage} is complete yet"
        )
    results = []
    if config.tuning.held_out:
        log.info("trial %d is the best; comparing it with the defaults on held-out prompts", best.number)
        compared = held_out.compare(
            config, options_tried(best), lambda options, prompts: same_model(study, prepare(options, prompts))
        )
        results = [
            held_out_result(held_out.differences(compared)),
            Result("held_out", compared, method=METHOD),
        ]
    importance = importances(study, seed=config.seed)
    results += [
        options_result(
            options_table(study, config), trials_table(study), flattered=not config.tuning.held_out
        ),
        trials_result(study, ranked=importance is not None),
        *([] if importance is None else [importances_result(importance)]),
        Result("searches", searches_table(study), method=METHOD),
        Result("provenance", provenance_table(study, config), method=METHOD),
    ]
    return results


def held_out_result(table: pd.DataFrame) -> Result:
    """Tuned against defaults; `table` is that of `held_out.differences`."""
    overall, prompts = table.iloc[-1], len(table) - 1
    sure = overall["n"] > 1
    verb = "more" if overall["low"] > 0 else "LESS" if overall["high"] < 0 else "no more"
    alone = "One held-out prompt, or one start, says nothing of others: tuning.held_out=[KEY,KEY]"
    estimate = Estimate("tuned − defaults, SD", float(overall["difference"]), int(overall["n"]),
                        "prompts" if prompts > 1 else "starts")  # fmt: skip
    if sure:
        estimate = replace(estimate, **{name: float(overall[name]) for name in ("low", "high", "p")})
    return Result(
        "held_out_differences",
        table,
        headline=f"On {prompts} held-out prompts the tuned options find {verb} than the defaults: "
        f"{overall['difference']:+.3f} SD.".replace("-0.", "−0."),
        plot=Forest(
            row="prompt", estimate="difference", tabs=(),
            xlabel="best reward, tuned − defaults (SD of single tokens' rewards)",
        ),
        method=METHOD,
        weight=weight_of(overall["difference"], estimate.p),
        estimate=estimate,
        notes=() if prompts > 1 and sure else (alone,),
        summary={"held_out_prompts": prompts}
        | {
            f"held_out_{name}": float(overall[name])
            for name in ("difference", "low", "high", "p")
            if pd.notna(overall[name])
        },
    )  # fmt: skip


def options_result(table: pd.DataFrame, trials: pd.DataFrame, *, flattered: bool) -> Result:
    """The best trial against the defaults' own; its value flatters it where nothing was held out."""
    complete = trials[trials["state"] == "complete"]
    best, defaults = complete[complete["best"]].iloc[0], complete[complete["defaults"]]["value"].tolist()
    who = "the defaults themselves" if best["defaults"] else f"trial {best['trial']}"
    own = f"{defaults[0]:.3f}" if defaults else "not known"
    note = (
        "No prompts were held out, and values of trials flatter the best: tuning.held_out=[KEY,…] compares."
    )
    return Result(
        "options",
        table,
        headline=f"Of {len(complete)} complete trials {who} did best: {best['value']:.3f} SD; defaults: {own}.",
        method=METHOD,
        weight=weight_of(0.2),
        estimate=Estimate("best trial, SD", float(best["value"]), len(complete), "trials"),
        notes=(note,) if flattered else (),
        summary={
            "trials": int(trials["state"].isin(["complete", "pruned"]).sum()),
            "best_value": float(best["value"]),
            **({"defaults_value": float(defaults[0])} if defaults else {}),
            **{f"tuned/{row.option}": row.tuned for row in table.itertuples()},
        },
    )


def trials_result(study: optuna.Study, *, ranked: bool) -> Result:
    """Every trial, along one option at a time."""
    table = trials_table(study)
    valued = table[table["value"].notna()]
    pieces = []
    for name, text in study.user_attrs[STUDY_SPEC]["params"].items():
        option, log_scale = short(name), bool(json.loads(text)["attributes"].get("log"))
        place = _places(valued[option], log=log_scale)
        pieces.append(valued[["trial", "state", "value"]].assign(option=option, place=place))
    counts = ", ".join(f"{n} {state}" for state, n in table["state"].value_counts().items())
    note = "How much each option matters is not given: too few trials, or all values alike."
    return Result(
        "trials",
        table,
        headline=f"{len(table)} trials: {counts}.",
        plot=Scatter(
            data=pd.concat(pieces), x="place", y="value", group="state", panel="option",
            xlabel="from the lowest to the highest value tried", ylabel="value (SD)",
        ) if len(valued) else None,
        method=METHOD,
        weight=weight_of(0.1),
        notes=() if ranked else (note,),
    )  # fmt: skip


def importances_result(table: pd.DataFrame) -> Result:
    """How much each option matters, with bootstrap errors."""
    error, top = table["standard_error"], table.iloc[0]
    drawn = table.assign(low=table["importance"] - error, high=table["importance"] + error)
    return Result(
        "importances",
        table,
        headline=f"{top['option']} matters most: it explains {top['importance']:.0%} of the variance of trials' values.",
        plot=Forest(
            data=drawn, row="option", estimate="importance", tabs=(),
            xlabel="share of variance explained (fANOVA; ± one standard error)",
        ),
        method=METHOD,
        weight=weight_of(0.2),
        estimate=Estimate(
            "share of variance", float(top["importance"]), int(top["n"]), "trials",
            float(drawn["low"].iloc[0]), float(drawn["high"].iloc[0]),
        ),
    )  # fmt: skip


def _places(values: pd.Series, *, log: bool) -> np.ndarray:
    """Where each value stands between the lowest and the highest, 0 to 1; words in order of appearance."""
    numeric = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    numbers = values.to_numpy(dtype=float) if numeric else pd.factorize(values)[0].astype(float)
    numbers = np.log(numbers) if log and numeric else numbers
    span = np.ptp(numbers)
    return (numbers - numbers.min()) / span if span > 0 else np.full(len(numbers), 0.5)
