"""Hydra's sweeper that tunes: `pessimal search -m hparams_search=gcg`.

Translates what was typed into a configuration and the values that options may take, which
`pessimal.verbs.search.tune` takes. Hydra imports every plugin at every start, so what is heavy is
imported when a sweep begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import (
    ChoiceSweep,
    IntervalSweep,
    Override,
    QuotedString,
    RangeSweep,
)
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf


@dataclass
class PessimalOptunaConf:
    """`hydra.sweeper` of a study."""

    _target_: str = "hydra_plugins.pessimal_optuna.optuna_sweeper.PessimalOptunaSweeper"
    n_trials: int = 30
    """Complete trials that the study is to have, over all starts of the command."""
    params: dict[str, str] = field(default_factory=dict)
    """The space: option and values, as they would be typed."""


ConfigStore.instance().store(
    group="hydra/sweeper", name="pessimal_optuna", node=PessimalOptunaConf, provider="pessimal"
)


class PessimalOptunaSweeper(Sweeper):
    """Composes the configuration that all trials share, and has its options tuned."""

    config: DictConfig
    hydra_context: HydraContext

    def __init__(self, n_trials: int, params: dict[str, str]):
        self.n_trials, self.params = n_trials, params

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self.hydra_context, self.config = hydra_context, config

    def sweep(self, arguments: list[str]) -> None:
        """Tune what `params` and the arguments sweep, and print the folder of the study."""
        from pessimal.config.compose import build
        from pessimal.config.schema import SearchConfig
        from pessimal.errors import ConfigError
        from pessimal.verbs.search import tune

        folder = Path(self.config.hydra.sweep.dir)  # where Hydra's log is, also of a refusal
        folder.mkdir(parents=True, exist_ok=True)
        if self.n_trials < 1:
            raise ConfigError(f"hydra.sweeper.n_trials={self.n_trials}, but at least 1 is needed")
        OmegaConf.save(self.config, folder / "multirun.yaml")
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        typed = [*(f"{name}={values}" for name, values in self.params.items()), *arguments]
        space, fixed = parse_space(parser.parse_overrides(typed))
        composed = self.hydra_context.config_loader.load_sweep_config(self.config, fixed)
        OmegaConf.set_struct(composed, False)
        del composed["hydra"]
        config = build(composed)
        if not isinstance(config, SearchConfig):
            raise ConfigError(
                f"this sweeper tunes `pessimal search`, not {config.task}; leave hydra/sweeper out"
            )
        tune(config, space, trials=self.n_trials)


def parse_space(overrides: Sequence[Override]) -> tuple[dict[str, Any], list[str]]:
    """The options of a search that overrides sweep, with the values that each may take as Optuna
    has them; and the other overrides, as they were typed. Of two for the same option the later one
    counts.

    range(a,b[,step]) is Python's, without b; choice(x,y) and x,y are unordered; interval(a,b) is
    every whole number from a to b; tag(log,interval(a,b)) is that by its logarithm. Raises
    ConfigError for an option that cannot be tuned, values that it does not take, or nothing to
    tune.
    """
    from pessimal.errors import ConfigError

    latest: dict[str, Override] = {}
    for override in overrides:
        latest.pop(override.key_or_group, None)
        latest[override.key_or_group] = override
    swept = {name: override for name, override in latest.items() if override.is_sweep_override()}
    if not swept:
        raise ConfigError(
            "there is nothing to tune: every option has one value. Type for example "
            "'search.top_k=choice(64,256)', or take the preset: hparams_search=gcg"
        )
    fixed = [override.input_line or name for name, override in latest.items() if name not in swept]
    return {name.removeprefix("search."): _values(o) for name, o in swept.items()}, fixed


def _values(override: Override) -> Any:
    """Optuna's distribution of a sweep of whole numbers."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    from pessimal.api.tune import TUNABLE
    from pessimal.errors import ConfigError, did_you_mean
    from pessimal.searching.spec import SearchSpec

    name, tunable = override.key_or_group, [f"search.{option}" for option in TUNABLE]
    if name not in tunable:
        raise ConfigError(
            f"{name} cannot be tuned.{did_you_mean(name, tunable)} What can be tuned: "
            f"{', '.join(tunable)}. One study tunes for one model, goal, length and budget"
        )

    def whole(value: Any) -> int:
        if isinstance(value, bool | str | QuotedString) or int(value) != value:
            text = value.text if isinstance(value, QuotedString) else value
            raise ValueError(f"this option takes whole numbers, not {text!r}")
        return int(value)

    def allowed(value: Any) -> int:
        options: dict[str, Any] = {name.removeprefix("search."): whole(value)}
        SearchSpec(**options)  # which may refuse it
        return whole(value)

    sweep: Any = override.value()
    try:
        match sweep:
            case ChoiceSweep(list=choices):
                return CategoricalDistribution([allowed(choice) for choice in choices])
            case RangeSweep():
                values = range(*map(whole, (sweep.start, sweep.stop, sweep.step)))
                return IntDistribution(allowed(values[0]), values[-1], step=values.step)
            case IntervalSweep(start=low, end=high, tags=tags):
                return IntDistribution(allowed(low), allowed(high), log="log" in tags)
    except (ValueError, ArithmeticError, IndexError) as error:
        raise ConfigError(f"{override.input_line or name}: {error}") from error
    raise ConfigError(
        f"{override.input_line or name}: give range(a,b), choice(x,y), interval(a,b) or "
        "tag(log,interval(a,b))"
    )
