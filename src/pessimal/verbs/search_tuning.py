"""`pessimal search -m hparams_search=gcg`: a study of the search's options, from the overrides that
were typed to the artifact that is published.

The sweeper (`hydra_plugins/pessimal_optuna`) calls `tune`. Each trial, and the conclusion of all,
is a job of its own, `run_study_job`, that may run in another process or on another machine. Knows
no model: `prepare` opens one, and tests give another.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from typing import Any, get_type_hints

from hydra.core.override_parser.types import (
    ChoiceSweep,
    IntervalSweep,
    Override,
    Quote,
    QuotedString,
    RangeSweep,
)
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from pessimal.api.store import Artifact, publish
from pessimal.config.schema import SearchConfig, TaskConfig
from pessimal.errors import ConfigError, did_you_mean
from pessimal.options import at_least
from pessimal.progress import console
from pessimal.searching.spec import SearchSpec
from pessimal.texts import safe_name
from pessimal.tracking.mirror import Mirror
from pessimal.tuning.results import best_of, conclude, key_of
from pessimal.tuning.study import (
    PROVENANCE,
    TUNABLE,
    Distribution,
    Searchable,
    StudySpec,
    begin,
    check_prompts,
    database,
    finished,
    load,
    lock,
    options_tried,
    run_trial,
    short,
    with_options,
    work,
)
from pessimal.verbs.common import registry_of, tracked
from pessimal.verbs.printing import print_path

log = logging.getLogger(__name__)

STUDY = "study"
"""The artifact's type."""
# Parts of a model's specification that describe it and change no reward.
_DESCRIPTIONS = (
    *("name", "base", "developer", "parameters", "rank", "trust_remote_code", "score", "chat"),
)

Compose = Callable[[Sequence[str]], TaskConfig]
"""The checked configuration that some overrides give."""
Run = Callable[[Sequence[Sequence[str]]], Sequence[Exception | None]]
"""Runs a batch of jobs, each given by its overrides; each one's error, or None."""
Prepare = Callable[[SearchConfig, list[str]], Searchable]
"""Opens the model of a configuration, to be searched on these prompts."""


def tune(
    overrides: Sequence[Override], *, compose: Compose, run: Run, total: int, at_once: int
) -> None:
    """Tune what the overrides sweep until the study has `total` trials, conclude it, and print the
    folder of the artifact. Raises UserError before any trial, where the space, the prompts or the
    study's own past do not fit."""
    at_least(1, **{"hydra.sweeper.n_trials": total, "hydra.sweeper.n_jobs": at_once})
    space, fixed = parse_space(overrides)
    config = compose(fixed)
    if not isinstance(config, SearchConfig):
        raise ConfigError(
            f"this sweeper tunes `pessimal search`, not {config.task}; leave hydra/sweeper out"
        )
    spec = study_spec(config)
    check_prompts(spec)
    study = begin(spec, space)
    job = [*fixed, *as_overrides({"tuning.study": spec.name, "tuning.storage": spec.storage})]
    trial = [*job, f"tuning.trials={total}"]
    done = len(finished(study))
    log.info("study %s in %s: %d of %d trials are finished", spec.name, spec.storage, done, total)
    work(study, spec, lambda n: run([trial] * n), total=total, at_once=at_once)
    log.info("all trials are finished; one worker concludes the study, others wait for it")
    with lock(spec.file, "conclusion"):
        registry, key = registry_of(config), key_of(spec, study)
        if registry.find(STUDY, key) and not config.force:
            log.info("the study is concluded already (force=true does it again)")
        elif error := run([job])[0]:
            raise error
        if published := registry.find(STUDY, key):
            print_path(published[0])


def run_study_job(config: SearchConfig, prepare: Prepare) -> float | None:
    """Run a trial of the study and return its value; without `tuning.trials`, conclude the
    study."""
    spec = study_spec(config)

    def prepare_search(search: SearchSpec, prompts: list[str]) -> Searchable:
        return prepare(replace(config, search=search), prompts)

    def track(search: SearchSpec, number: int) -> AbstractContextManager[Mirror]:
        return tracked(replace(config, search=search), name=f"{spec.name} trial {number}")

    if config.tuning.trials is not None:
        return run_trial(spec, prepare_search, track)
    with tracked(config, name=spec.name) as mirror:
        study = load(spec)
        results = conclude(spec, study, prepare_search)
        summary = {"model": config.model.name, **study.user_attrs[PROVENANCE]}
        summary |= {name: value for result in results for name, value in result.summary.items()}
        artifact = Artifact(STUDY, spec.name, key=key_of(spec, study), summary=summary)
        publish(registry_of(config), mirror, artifact, results, progress=config.progress)
    # Not `show`, which keeps still in a sweep: this job speaks for all of them.
    for result in sorted((r for r in results if r.headline), key=lambda r: -r.weight):
        console().print(result.headline, markup=False)
    options = " ".join(as_overrides(options_tried(best_of(study))))
    console().print(f"The same options in a search: {options}", markup=False)
    return None


def study_spec(config: SearchConfig) -> StudySpec:
    """The study of a configuration; named by model, goal and length, and kept under `paths.root`,
    where nothing else is given."""
    search, tuning = config.search, config.tuning
    name = tuning.study or safe_name(f"gcg-{config.model.name}-{search.goal.value}-{search.length}")
    file = database(tuning.storage or f"{config.paths.root}/studies/{safe_name(name)}.db")
    model = {key: value for key, value in asdict(config.model).items() if key not in _DESCRIPTIONS}
    return StudySpec(
        name, file, model, config.mode.value, search, tuning, config.prompts, config.seed
    )


# --- What was typed.


def parse_space(overrides: Sequence[Override]) -> tuple[dict[str, Distribution], list[str]]:
    """The options that overrides sweep, with the values each may take; and the other overrides,
    which hold for every trial, as they were typed. Of two for the same option the later one counts.

    range(a,b[,step]) is Python's, without b; choice(x,y) and x,y are unordered; interval(a,b) is
    everything from a to b, whole numbers for an option that takes these; tag(log,interval(a,b)) is
    that by its logarithm. Raises ConfigError for an option that cannot be tuned, values that it
    does not take, or nothing to tune.
    """
    latest: dict[str, Override] = {}
    for override in overrides:
        latest.pop(override.key_or_group, None)
        latest[override.key_or_group] = override
    space = {k: _distribution(o) for k, o in latest.items() if o.is_sweep_override()}
    if not space:
        raise ConfigError(
            "there is nothing to tune: every option has one value. Type for example "
            "'search.top_k=choice(64,256)', or take the preset: hparams_search=gcg"
        )
    return space, [o.input_line or k for k, o in latest.items() if k not in space]


def as_overrides(values: Mapping[str, Any]) -> list[str]:
    """Options as one would type them."""
    return [
        f"{name}={QuotedString(v, Quote.single).with_quotes() if isinstance(v, str) else repr(v)}"
        for name, v in values.items()
    ]


def _distribution(override: Override) -> Distribution:
    name = override.key_or_group
    tunable = [f"search.{option}" for option in TUNABLE]
    if name not in tunable:
        raise ConfigError(
            f"{name} cannot be tuned.{did_you_mean(name, tunable)} What can be tuned: "
            f"{', '.join(tunable)}. One study tunes for one model, goal, length and budget"
        )
    kind = get_type_hints(SearchSpec)[short(name)]
    try:
        values = _values(override.value(), kind)
    except (ValueError, ArithmeticError) as error:
        raise ConfigError(f"{override.input_line or name}: {error}") from error
    for end in (
        values.choices if isinstance(values, CategoricalDistribution) else (values.low, values.high)
    ):
        with_options(SearchSpec(), {name: end})  # ConfigError where the option refuses it
    return values


def _values(sweep: Any, kind: type) -> Distribution:
    """What a sweep is to Optuna, for an option that is an int or a float; ValueError where it takes
    no such values."""
    numeric = IntDistribution if kind is int else FloatDistribution

    def number(value: Any) -> Any:
        if isinstance(value, bool | str | QuotedString) or kind(value) != value:
            given = value.text if isinstance(value, QuotedString) else value
            whole = "whole " if kind is int else ""
            raise ValueError(f"this option takes {whole}numbers, not {given!r}")
        return kind(value)

    match sweep:
        case ChoiceSweep(list=choices):
            return CategoricalDistribution([number(choice) for choice in choices])
        case RangeSweep():
            # Counted here: Hydra's own float range, summed up in binary fractions, may reach its
            # end.
            start, stop, step = number(sweep.start), number(sweep.stop), number(sweep.step)
            members = math.ceil((stop - start) / step - 1e-9)
            return numeric(start, kind(round(start + (members - 1) * step, 12)), step=step)
        case IntervalSweep(start=low, end=high, tags=tags):
            return numeric(number(low), number(high), log="log" in tags)
    raise ValueError("give range(a,b), choice(x,y), interval(a,b) or tag(log,interval(a,b))")
