"""A study as tables: its trials, their searches, and how much each option matters.

Knows Optuna's trials. Does not know figures or sentences.
"""

import json
from collections.abc import Sequence

import numpy as np
import optuna
import pandas as pd
from optuna.distributions import json_to_distribution
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState, create_trial

from pessimal.tuning.space import Options
from pessimal.tuning.stale_trials import ERROR
from pessimal.tuning.study import DEFAULTS, FINISHED, STUDY_SPEC, options_tried
from pessimal.tuning.trial import SEARCHES

# Trials with a value below which no importance is given: a forest over fewer says nothing.
LEAST_TRIALS = 8
DRAWS, TREES = 24, 16
"""Bootstrap draws, and trees of each forest: 2.5 s for 30 trials of six options on one core."""


def names(study: optuna.Study) -> list[str]:
    """Full names of the options that a study varies."""
    return list(study.user_attrs[STUDY_SPEC]["params"])


def short(name: str) -> str:
    """An option's column: its name without `search.`"""
    return name.removeprefix("search.")


def best_of(study: optuna.Study) -> FrozenTrial | None:
    """The complete trial of the highest value; of equal ones the defaults, then the first. None where none is complete."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return max(complete, key=lambda t: (t.value, DEFAULTS in t.user_attrs, -t.number), default=None)


def trials_table(study: optuna.Study) -> pd.DataFrame:
    """A row a trial: trial, state, defaults, value, searches, low and high (the quartiles of its searches), an option a
    column, seconds, started (UTC), retry_of, error.

    A pruned trial's value is the median over the searches it made, of a failed one there is none.
    """
    best = best_of(study)
    rows = []
    for trial in study.get_trials(deepcopy=False):
        values = [search[2] for search in trial.user_attrs.get(SEARCHES, [])]
        finished = trial.state in FINISHED
        rows.append(
            {
                "trial": trial.number,
                "state": "failed" if trial.state is TrialState.FAIL else trial.state.name.lower(),
                "defaults": DEFAULTS in trial.user_attrs,
                "best": best is not None and trial.number == best.number,
                "value": trial.value if finished else float("nan"),
                "searches": len(values),
                "low": np.quantile(values, 0.25) if values else float("nan"),
                "high": np.quantile(values, 0.75) if values else float("nan"),
                **{short(name): value for name, value in options_tried(trial).items()},
                "seconds": trial.duration.total_seconds() if trial.duration else float("nan"),
                "started": trial.datetime_start.isoformat() if trial.datetime_start else None,
                "retry_of": trial.system_attrs.get("failed_trial"),
                "error": trial.user_attrs.get(ERROR),
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


def importances(study: optuna.Study, *, seed: int) -> pd.DataFrame | None:
    """Share of the values' variance that each option's main effect explains, by fANOVA: option, importance,
    standard_error (over bootstrap draws of the trials), n; None where there are too few trials or all are alike.

    Pruned trials take part with the value they had: without them only good options would be looked at. Importances are about
    the region that the study sampled, which is denser where values are high.

    Source: Hutter, Hoos, Leyton-Brown 2014.
    """
    space = {
        name: json_to_distribution(text) for name, text in study.user_attrs[STUDY_SPEC]["params"].items()
    }
    trials = [
        create_trial(
            value=trial.value, params={name: trial.params[name] for name in space}, distributions=space
        )
        for trial in study.get_trials(deepcopy=False, states=FINISHED)
        if set(space) <= set(trial.params)  # defaults outside of the space are left out
    ]
    if len(trials) < LEAST_TRIALS or len({trial.value for trial in trials}) == 1:
        return None
    whole = _fanova(trials, list(space), seed=seed)
    random = np.random.default_rng(seed)
    draws = [
        _fanova([trials[i] for i in random.integers(len(trials), size=len(trials))], list(space), seed=seed)
        for _ in range(DRAWS)
    ]
    table = pd.DataFrame(
        {
            "option": [short(name) for name in space],
            "importance": whole,
            "standard_error": np.nanstd(draws, axis=0, ddof=1),
            "n": len(trials),
        }
    )
    return table.sort_values("importance", ascending=False, ignore_index=True)


def _fanova(trials: Sequence[FrozenTrial], space: Sequence[str], *, seed: int) -> np.ndarray:
    """Importances (options,); NaN where a draw's values are all alike."""
    if len({trial.value for trial in trials}) == 1:
        return np.full(len(space), np.nan)
    study = optuna.create_study(direction="maximize")
    study.add_trials(trials)
    importance = get_param_importances(
        study,
        evaluator=FanovaImportanceEvaluator(n_trees=TREES, seed=seed),
        params=list(space),
        normalize=False,
    )
    return np.array([importance[name] for name in space])


def options_table(study: optuna.Study, defaults: Options) -> pd.DataFrame:
    """A row an option: option, tuned, defaults, tried (its values in the space)."""
    best = best_of(study)
    texts = study.user_attrs[STUDY_SPEC]["params"]
    return pd.DataFrame(
        [
            {
                "option": short(name),
                "tuned": options_tried(best)[name],
                "defaults": defaults[name],
                "tried": _in_words(texts[name]),
            }
            for name in texts
        ]
    )


def _in_words(text: str) -> str:
    values = json.loads(text)["attributes"]
    if "choices" in values:
        return ", ".join(map(str, values["choices"]))
    step = values.get("step")
    kind = " (log)" if values.get("log") else f" by {step}" if step not in (None, 1) else ""
    return f"{values['low']} to {values['high']}{kind}"
