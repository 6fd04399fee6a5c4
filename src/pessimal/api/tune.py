"""Tuning the options of a search by Optuna: a study of many searches in one SQLite file, and what
its best options find on prompts that no trial saw.

A trial is `pessimal.search` with some options, once on each prompt. One process works on a study;
what a killed one left is tried again. Knows no configuration; the command line's side is
`verbs/search.py` and `hydra_plugins/pessimal_optuna`.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
from filelock import FileLock
from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial
from scipy import stats

from pessimal.api.load import open_policy, to_reward
from pessimal.api.search import search
from pessimal.catalogue import named_prompts
from pessimal.conversation import Prompt, plain_text
from pessimal.errors import ConfigError, InputError
from pessimal.options import existing_file
from pessimal.plots import Forest
from pessimal.rewards.base import Reward, require_network
from pessimal.rewards.checkpoint_files import model_fields
from pessimal.searching.spec import SearchSpec
from pessimal.statistics import LEVEL, sign_flip
from pessimal.tables.files import sha256_of
from pessimal.tables.result import Estimate, Result, weight_of
from pessimal.texts import signed
from pessimal.tracking.mirror import Mirror
from pessimal.tracking.registry import figures
from pessimal.version import __version__

log = logging.getLogger(__name__)

TUNABLE = ("step_size", "top_k", "search_width")
"""Options of how `search.method=gcg` goes about it, whole numbers all. Searches for something else,
or with another budget, cannot be compared."""
SPEC = "spec"
"""The study's attribute that says what it was begun for."""
SPEED = ("device", "batch_size")
"""Options that change how fast a search is and not what it finds."""
PERMUTATIONS = 2**14
Options = dict[str, Any]
Track = Callable[[int, Options], AbstractContextManager[Mirror]]
"""Opens the W&B run of a trial, by its number and options."""


def tune(
    model: Reward | str | Path | Any,
    prompts: str | Sequence[str] | Mapping[str, Any],
    *,
    space: Mapping[str, BaseDistribution],
    storage: str | Path,
    name: str = "study",
    trials: int = 30,
    held_out: str | Sequence[str] | Mapping[str, Any] = (),
    track: Track = lambda number, options: nullcontext(Mirror()),
    seed: int = 0,
    **options: Any,
) -> tuple[list[Result], str]:
    """Tune the options of a search until its study has so many complete trials.

    The first trial has the options as they are given. A trial's value is the mean over prompts of
    what `search` finds, as it ranks responses (the reward, of `goal="pessimal"` its negative); each
    prompt has a random start of its own, the same in every trial.

    Args:
        model: as for `search`.
        prompts: keys, or user turns by key, that options are tuned on.
        space: the values that each of some options of TUNABLE may take.
        storage: the SQLite file; a study of the same `name` in it is gone on with.
        held_out: prompts that the best options are compared with the given ones on.
        options: of `search`, `method="gcg"` and `evaluations=` among them.

    Returns:
        Results (`held_out` where there are such prompts, `trials`), and a digest of what they rest
        on.

    Raises:
        ConfigError: there is no prompt, a held-out one is worded as a tuned one, or the study was
            begun for something else.
    """
    network = require_network(to_reward(model), "search", "gradient")
    tuned_on, unseen = (named_prompts(keys) if keys else {} for keys in (prompts, held_out))
    _check_prompts(tuned_on, unseen)
    defaults = {option: options.get(option, getattr(SearchSpec(), option)) for option in space}
    numbers = {key: seed + n for n, key in enumerate([*tuned_on, *unseen])}
    if options.get("policy"):
        options["policy"] = open_policy(options["policy"])

    def rewards(keys: Mapping[str, Any], tried: Options) -> dict[str, float]:
        """Values of a search of each prompt; more is better."""
        results = {
            key: search(network, {key: text}, seed=numbers[key], **options | tried)
            for key, text in keys.items()
        }
        return {key: float(result.own_values[0]) for key, result in results.items()}

    document = _document(network, tuned_on, options, space) | {"seed": seed}
    file = database(str(storage))
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{file}.lock"):
        study = _begin(file, name, document)
        while (done := len(_complete(study))) < trials:
            log.info("study %s in %s: %d of %d trials are done", name, file, done, trials)
            if not done and _is_inside(defaults, space):
                study.enqueue_trial(defaults)
            # A trial that was not finished is drawn again, with the same options.
            state = np.random.SeedSequence([seed, done]).generate_state(1)
            study.sampler = TPESampler(seed=int(state[0]))
            trial = study.ask(dict(space))
            with track(trial.number, trial.params) as mirror:
                mean = float(np.mean(list(rewards(tuned_on, trial.params).values())))
                tried = {f"search.{name}": value for name, value in trial.params.items()}
                mirror.summary({"trial": trial.number, "value": mean} | tried)
            study.tell(trial, mean)
    best, results = study.best_trial, []
    if unseen:
        table = pd.DataFrame({"defaults": rewards(unseen, defaults)})
        same = best.params == defaults
        table["tuned"] = table["defaults"] if same else pd.Series(rewards(unseen, best.params))
        results = [held_out_result(table.rename_axis("prompt").reset_index())]
    results += [trials_result(study, defaults, flattered=not unseen)]
    texts = {key: plain_text(text) for key, text in unseen.items()}
    rests = [study.user_attrs[SPEC], [[t.number, t.value] for t in _complete(study)], texts]
    return results, hashlib.sha256(json.dumps(rests).encode()).hexdigest()


def database(storage: str) -> Path:
    """The absolute path of the SQLite file that `tuning.storage` names, which need not be there
    yet; ConfigError where it names none, InputError where something else is there."""
    path = storage.removeprefix("sqlite:///")
    if not path or "://" in path:
        raise ConfigError(f"tuning.storage={storage!r} is no SQLite file: tuning.storage=study.db")
    file = Path(path).expanduser().absolute()
    if file.exists():  # before a lock is made beside it
        with existing_file("tuning.storage", str(file)).open("rb") as begun:
            if begun.read(6) not in (b"", b"SQLite"):
                raise InputError(f"tuning.storage={storage!r} is no SQLite file: give a new name")
    return file


def _check_prompts(prompts: Mapping[str, Prompt], held_out: Mapping[str, Prompt]) -> None:
    if not prompts:
        raise ConfigError("tuning.prompts is empty: type tuning.prompts=[greatest,worst]")
    tuned_on = {plain_text(text).strip(): key for key, text in prompts.items()}
    for key, text in held_out.items():
        if same := tuned_on.get(plain_text(text).strip()):
            raise ConfigError(f"held_out={key} is worded as prompts={same}: leave one of them out")


def _document(
    network: Reward, prompts: Mapping[str, Prompt], options: Options, space: Mapping[str, Any]
) -> dict[str, Any]:
    """All that the values of a study's trials depend on, as JSON has it."""
    search = {name: value for name, value in options.items() if name not in SPEED}
    if path := options.get("allowed_path"):
        search["allowed_path"] = sha256_of(Path(path).expanduser())
    if policy := options.get("policy"):
        search["policy"] = model_fields(policy)
    document = {
        "model": model_fields(network),
        "prompts": {key: plain_text(text) for key, text in prompts.items()},
        "search": search,
        "space": {option: distribution_to_json(values) for option, values in space.items()},
        "pessimal": __version__,
    }
    text = json.dumps(document, default=lambda option: getattr(option, "value", str(option)))
    return json.loads(text)


def _begin(file: Path, name: str, document: dict) -> optuna.Study:
    """The study, begun or gone on with by the only process that works on it; ConfigError where it
    was begun for something else."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # a trial's error is raised
    study = optuna.create_study(
        study_name=name, storage=f"sqlite:///{file}", direction="maximize", load_if_exists=True
    )
    if SPEC not in study.user_attrs:
        study.set_user_attr(SPEC, document)
    before, now = figures(study.user_attrs[SPEC]), figures(document)
    if changes := [
        f"{key} was {before.get(key)!r} and is now {now.get(key)!r}"
        for key in before | now
        if before.get(key) != now.get(key)
    ]:
        words = f"the study {name!r} was begun for something else: {'; '.join(changes)}"
        raise ConfigError(f"{words}. Type tuning.study=NAME to begin another")
    for trial in study.get_trials(states=(TrialState.RUNNING,)):  # its process is no more
        study.tell(trial.number, state=TrialState.FAIL)
    return study


def _is_inside(options: Options, space: Mapping[str, BaseDistribution]) -> bool:
    """Whether a space holds these options."""
    try:
        create_trial(value=0.0, params=options, distributions=dict(space))
    except ValueError:
        return False
    return True


def _complete(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


# --- Results.


def held_out_result(table: pd.DataFrame) -> Result:
    """The tuned options against the defaults, paired on prompts: `table` has prompt, tuned,
    defaults. The interval is Student's, p is of the test that flips the signs of differences, exact
    up to 14 prompts; neither is given of one prompt."""
    table = table.assign(difference=table["tuned"] - table["defaults"])
    differences, n = table["difference"], len(table)
    mean = float(differences.mean())
    interval: dict[str, Any] = {}
    verb = "no more"
    if n > 1:
        low, high = map(float, stats.ttest_1samp(differences, 0).confidence_interval(1 - LEVEL))
        p = sign_flip(differences.to_numpy(), two_sided=True, permutations=PERMUTATIONS, seed=0)
        interval = {"low": low, "high": high, "p": p}
        verb = "more" if low > 0 else "LESS" if high < 0 else verb
    alone = "One prompt says nothing of others: tuning.held_out=[KEY,KEY]"
    axis = "best reward, tuned − defaults, towards the goal"
    return Result(
        "held_out",
        table[["prompt", "tuned", "defaults", "difference"]],
        method="tuning",
        headline=f"On {n} held-out prompts the tuned options find {verb} than the defaults: "
        f"{signed(mean, '+.3f')} in reward.",
        plot=Forest(row="prompt", estimate="difference", low=None, high=None, tabs=(), xlabel=axis),
        weight=weight_of(mean, interval.get("p")),
        estimate=Estimate("tuned − defaults, reward", mean, n, "prompts", **interval),
        notes=() if n > 1 else (alone,),
        summary={"held_out_prompts": n, "held_out_difference": mean}
        | {f"held_out_{name}": value for name, value in interval.items()},
    )


def trials_result(study: optuna.Study, defaults: Options, *, flattered: bool) -> Result:
    """Every trial: trial, state, value, best, defaults (whether it has these), an option a column,
    seconds. `flattered`: whether nothing was held out."""
    best, value = study.best_trial, study.best_value
    rows = study.trials_dataframe(("number", "state", "value", "params", "duration"))
    tried = rows[[f"params_{name}" for name in defaults]].set_axis([*defaults], axis="columns")
    columns = {
        "trial": rows["number"],
        "state": rows["state"].str.lower(),
        "value": rows["value"],
        "best": rows["number"] == best.number,
        "defaults": tried.eq(pd.Series(defaults)).all(axis="columns"),
    }
    table = pd.DataFrame({**columns, **tried, "seconds": rows["duration"].dt.total_seconds()})
    complete = table[table["state"] == "complete"]
    usual = complete.loc[complete["defaults"], "value"].head(1).tolist()
    who = "the defaults themselves" if best.params == defaults else f"trial {best.number}"
    note = "No prompts were held out, and the best value flatters: tuning.held_out=[KEY,…] compares"
    return Result(
        "trials",
        table,
        method="tuning",
        headline=f"Of {len(complete)} trials {who} did best: {value:.3f} mean reward; "
        f"defaults: {f'{usual[0]:.3f}' if usual else 'not tried'}.",
        weight=weight_of(0.2),
        estimate=Estimate("best trial, mean reward", value, len(complete), "trials"),
        notes=(note,) if flattered else (),
        summary={"trials": len(complete), "best_value": value}
        | ({"defaults_value": usual[0]} if usual else {})
        | {f"tuned/{option}": value for option, value in best.params.items()},
    )
