"""A study without a model: a toy whose values are a known function, and how its trials are run."""

import contextlib
from dataclasses import replace

from hydra.core.override_parser.overrides_parser import OverridesParser

from pessimal.tracking.mirror import Mirror
from pessimal.tuning.study import Space, StudySpec, run_trial
from pessimal.verbs.search_tuning import parse_space


class Model:
    """Values are a function of prompt, seed and options; every call is noted."""

    provenance = {"weights_digest": "a"}  # noqa: RUF012

    def __init__(self, options, value):
        self.options, self.value, self.calls = options, value, []

    def search(self, prompt, *, seed, budget):
        self.calls.append((prompt, seed, budget))
        return self.value(prompt, seed, self.options)


def by_momentum(prompt, seed, search):
    return {"dawn": 10, "dusk": 0}.get(prompt, 5) - search.momentum + (seed % 100) / 1e5


def preparing(value=by_momentum, models=None):
    """What opens a model; each is noted in `models`."""

    def prepare(search, prompts):
        model = Model(search, value)
        if models is not None:
            models.append(model)
        return model

    return prepare


def run(spec: StudySpec, prepare=None, mirror=None) -> float | None:
    """One trial of a study that was begun."""

    def track(search, number):
        return contextlib.nullcontext(mirror or Mirror())

    return run_trial(spec, prepare or preparing(), track)


def with_tuning(spec: StudySpec, **options) -> StudySpec:
    return replace(spec, tuning=replace(spec.tuning, **options))


def parsed(*overrides: str) -> Space:
    return parse_space(OverridesParser.create().parse_overrides(list(overrides)))[0]
