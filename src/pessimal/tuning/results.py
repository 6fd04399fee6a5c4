"""What a study concludes: the tuned options, how they do on held-out prompts, and every trial, as Results.

Knows a study and a trial context. Does not know files or models.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import optuna
import pandas as pd
from optuna.distributions import json_to_distribution
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState, create_trial

from pessimal import __version__
from pessimal.config.schema import SearchConfig
from pessimal.errors import WorkError
from pessimal.plots import Forest, Scatter
from pessimal.tables.result import Estimate, Result, weight_of
from pessimal.tuning import held_out
from pessimal.tuning.space import options_of, short
from pessimal.tuning.study import DEFAULTS, ERROR, FINISHED, STUDY_SPEC, options_tried
from pessimal.tuning.trial import PROVENANCE, SEARCHES, Prepare, same_model

log = logging.getLogger(__name__)

METHOD = "tuning"
# Trials with a value below which no importance is given: a forest over fewer says nothing.
LEAST_TRIALS = 8
DRAWS, TREES = 24, 16
"""Bootstrap draws, and trees of each forest: 2.5 s for 30 trials of six options on one core."""


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


def best_of(study: optuna.Study) -> FrozenTrial | None:
    """The complete trial of the highest value; of equal ones the defaults, then the first. None where none is complete."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return max(complete, key=lambda t: (t.value, DEFAULTS in t.user_attrs, -t.number), default=None)


def trials_table(study: optuna.Study) -> pd.DataFrame:
    """A row a trial: trial, state, defaults, value, searches, low and high (the quartiles of its searches), an option a
    column, seconds, started (UTC), retry_of, error.

    A pruned trial's value is the median over the searches it made, of a failed one there is none.
    """
    best, rows = best_of(study), []
    for trial in study.get_trials(deepcopy=False):
        values = [search[2] for search in trial.user_attrs.get(SEARCHES, [])]
        failed = trial.state is TrialState.FAIL
        rows.append(
            {
                "trial": trial.number,
                "state": "failed" if failed else trial.state.name.lower(),
                "defaults": DEFAULTS in trial.user_attrs,
                "best": best is not None and trial.number == best.number,
                "value": trial.value if trial.state in FINISHED else np.nan,
                "searches": len(values),
                "low": np.quantile(values, 0.25) if values else np.nan,
                "high": np.quantile(values, 0.75) if values else np.nan,
                **{short(name): value for name, value in options_tried(trial).items()},
                "seconds": trial.duration.total_seconds() if trial.duration else np.nan,
                "started": trial.datetime_start.isoformat() if trial.datetime_start else None,
                "retry_of": trial.system_attrs.get("failed_trial"),
                # Whoever dies cannot say so.
                "error": trial.user_attrs.get(ERROR, "its worker died") if failed else None,
            }
        )
    return pd.DataFrame(rows).astype({"retry_of": "Int64"})


def searches_table(study: optuna.Study) -> pd.DataFrame:
    """A row a search of a finished trial: trial, prompt, seed, value, seconds."""
    rows = [
        [trial.number, *search]
        for trial in study.get_trials(deepcopy=False, states=FINISHED)
        for search in trial.user_attrs.get(SEARCHES, [])
    ]
    return pd.DataFrame(rows, columns=["trial", "prompt", "seed", "value", "seconds"])


def options_table(study: optuna.Study, config: SearchConfig) -> pd.DataFrame:
    """A row an option: option, tuned, defaults, tried (its values in the space)."""
    texts = study.user_attrs[STUDY_SPEC]["params"]
    tuned, defaults = options_tried(best_of(study)), options_of(config, list(texts))
    rows = [(short(name), tuned[name], defaults[name], _in_words(text)) for name, text in texts.items()]
    return pd.DataFrame(rows, columns=["option", "tuned", "defaults", "tried"], dtype=object)


def importances(study: optuna.Study, *, seed: int) -> pd.DataFrame | None:
    """Share of the values' variance that each option's main effect explains, by fANOVA: option, importance,
    standard_error (over bootstrap draws of the trials), n; None where there are too few trials or all are alike.

    Pruned trials take part with the value they had: without them only good options would be looked at. Importances are about
    the region that the study sampled, which is denser where values are high.

    Source: Hutter, Hoos, Leyton-Brown 2014.
    """
    texts = study.user_attrs[STUDY_SPEC]["params"]
    space = {name: json_to_distribution(text) for name, text in texts.items()}
    trials = [
        create_trial(value=trial.value, params={k: trial.params[k] for k in space}, distributions=space)
        for trial in study.get_trials(deepcopy=False, states=FINISHED)
        if set(space) <= set(trial.params)  # defaults outside of the space are left out
    ]
    if len(trials) < LEAST_TRIALS or len({trial.value for trial in trials}) == 1:
        return None
    random, n = np.random.default_rng(seed), len(trials)
    draws = [
        _fanova([trials[i] for i in random.integers(n, size=n)], list(space), seed=seed) for _ in range(DRAWS)
    ]
    table = pd.DataFrame(
        {
            "option": [short(name) for name in space],
            "importance": _fanova(trials, list(space), seed=seed),
            "standard_error": np.nanstd(draws, axis=0, ddof=1),
            "n": n,
        }
    )
    return table.sort_values("importance", ascending=False, ignore_index=True)


def provenance_table(study: optuna.Study, config: SearchConfig) -> pd.DataFrame:
    """A row a prompt: what was searched on it, and with what."""
    tuning, search = config.tuning, config.search
    rows = [(key, "tuned on", config.prompts[key], tuning.seeds) for key in tuning.prompts]
    rows += [(key, "held out", config.prompts[key], tuning.held_out_seeds) for key in tuning.held_out]
    return pd.DataFrame(rows, columns=["prompt", "used", "text", "starts"]).assign(
        model=config.model.name,
        study=study.study_name,
        evaluations=tuning.evaluations,
        goal=search.goal.value,
        length=search.length,
        mode=config.mode.value,
        seed=config.seed,
        **{name: str(digest)[:12] for name, digest in study.user_attrs[PROVENANCE].items()},
        pessimal=__version__,
        optuna=optuna.__version__,
    )


def _fanova(trials: Sequence[FrozenTrial], options: list[str], *, seed: int) -> np.ndarray:
    """Importances (options,); NaN where a draw's values are all alike."""
    if len({trial.value for trial in trials}) == 1:
        return np.full(len(options), np.nan)
    study = optuna.create_study(direction="maximize")
    study.add_trials(trials)
    evaluator = FanovaImportanceEvaluator(n_trees=TREES, seed=seed)
    importance = get_param_importances(study, evaluator=evaluator, params=options, normalize=False)
    return np.array([importance[name] for name in options])


def _in_words(text: str) -> str:
    values = json.loads(text)["attributes"]
    if "choices" in values:
        return ", ".join(map(str, values["choices"]))
    step = values.get("step")
    kind = " (log)" if values.get("log") else f" by {step}" if step not in (None, 1) else ""
    return f"{values['low']} to {values['high']}{kind}"
