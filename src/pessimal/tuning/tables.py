"""A study as tables: its trials, their searches, its options, how much each matters, and what it was all about.

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

from pessimal import __version__
from pessimal.config.schema import SearchConfig
from pessimal.tuning.space import options_of, short
from pessimal.tuning.study import DEFAULTS, ERROR, FINISHED, STUDY_SPEC, options_tried
from pessimal.tuning.trial import PROVENANCE, SEARCHES

# Trials with a value below which no importance is given: a forest over fewer says nothing.
LEAST_TRIALS = 8
DRAWS, TREES = 24, 16
"""Bootstrap draws, and trees of each forest: 2.5 s for 30 trials of six options on one core."""


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
