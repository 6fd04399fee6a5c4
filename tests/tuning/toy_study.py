"""A study without a model: a context whose values are a known function, and how its trials are
run."""

from dataclasses import replace

from hydra.core.override_parser.overrides_parser import OverridesParser

from pessimal.config.schema import SearchConfig
from pessimal.tuning.space import Space, parse_space, with_options
from pessimal.tuning.study import Trials, options_tried
from pessimal.tuning.trial import run_trial


class Context:
    """Values are a function of prompt, seed and options; every call is noted."""

    provenance = {"weights_digest": "a"}  # noqa: RUF012

    def __init__(self, config, value):
        self.config, self.value, self.calls = config, value, []

    def search(self, prompt, *, seed, budget):
        self.calls.append((prompt, seed, budget))
        return self.value(prompt, seed, self.config.search)


def by_momentum(prompt, seed, search):
    return {"dawn": 10, "dusk": 0}.get(prompt, 5) - search.momentum + (seed % 100) / 1e5


def preparing(value=by_momentum, contexts=None):
    """What opens a context; each is noted in `contexts`."""

    def prepare(config, prompts):
        context = Context(config, value)
        if contexts is not None:
            contexts.append(context)
        return context

    return prepare


def job(config: SearchConfig, trial) -> SearchConfig:
    """The configuration of one trial's job, as the sweep would make it."""
    own = with_options(config, options_tried(trial))
    return replace(own, tuning=replace(own.tuning, trial=trial.number))


def run(config, trials: Trials, *, total=99, **more) -> float:
    """Take one trial and run it."""
    with trials.taken(1, total=total) as [trial]:
        return run_trial(job(config, trial), more.pop("prepare", preparing()), **more)


def parsed(*overrides: str) -> Space:
    return parse_space(OverridesParser.create().parse_overrides(list(overrides)))
