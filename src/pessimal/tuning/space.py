"""The options that a study varies and the values each may take, written as Hydra writes sweeps.

Knows Hydra's override grammar and Optuna's distributions. Does not know studies or trials.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_type_hints

from hydra.core.override_parser.types import (
    ChoiceSweep,
    IntervalSweep,
    Override,
    Quote,
    QuotedString,
    RangeSweep,
)
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from pessimal.config.schema import SearchConfig
from pessimal.errors import ConfigError, did_you_mean
from pessimal.searching.spec import SearchSpec

# How greedy coordinate gradient searches. What is searched for, and the budget, are not among them:
# values of trials that differ in these cannot be compared.
TUNABLE = ("search_width", "top_k", "step_size", "step_size_until", "momentum", "buffer_size")

Options = dict[str, Any]
"""Values of options by their full names, such as `search.top_k`."""


@dataclass(frozen=True)
class Space:
    """What a study varies, and what it does not."""

    distributions: dict[str, BaseDistribution]  # The values of each varied option, by its full name
    fixed: list[str]  # Overrides that every trial gets as they were typed


def parse_space(overrides: Sequence[Override]) -> Space:
    """The space that overrides write down: those that sweep are its dimensions, the others hold for
    every trial. Of two for the same option the later one counts.

    range(a,b[,step]) is Python's, without b; choice(x,y) and x,y are unordered; interval(a,b) is
    everything from a to b, whole numbers for an option that takes these; tag(log,interval(a,b)) is
    that by its logarithm. Raises ConfigError for an option that cannot be tuned, values of a wrong
    type, or nothing to tune.
    """
    by_name: dict[str, BaseDistribution | str] = {}
    for override in overrides:
        by_name.pop(override.key_or_group, None)
        sweeps = override.is_sweep_override()
        by_name[override.key_or_group] = _distribution(override) if sweeps else override.input_line
    fixed = [value for value in by_name.values() if isinstance(value, str)]
    distributions = {name: value for name, value in by_name.items() if not isinstance(value, str)}
    if not distributions:
        raise ConfigError(
            "there is nothing to tune: every option has one value. Type for example "
            "'search.top_k=choice(64,256)', or take "
            "the preset: hparams_search=gcg"
        )
    return Space(distributions, fixed)


def check_space(space: Space, config: SearchConfig) -> None:
    """ConfigError where an option would refuse one of its extreme values, and what it would say."""
    for name, values in space.distributions.items():
        ends = (
            values.choices
            if isinstance(values, CategoricalDistribution)
            else (values.low, values.high)
        )
        for end in ends:
            with_options(config, {name: end})


def with_options(config: SearchConfig, options: Mapping[str, Any]) -> SearchConfig:
    """The configuration with other options of the search, checked as if they had been typed."""
    return replace(
        config, search=replace(config.search, **{short(k): v for k, v in options.items()})
    )


def options_of(config: SearchConfig, names: Sequence[str]) -> Options:
    """The values that these options have in a configuration."""
    return {name: getattr(config.search, short(name)) for name in names}


def as_overrides(options: Mapping[str, Any]) -> list[str]:
    """Options as one would type them."""
    return [
        f"{name}={QuotedString(value, Quote.single).with_quotes() if isinstance(value, str) else repr(value)}"
        for name, value in options.items()
    ]


def short(name: str) -> str:
    """An option's name without `search.`."""
    return name.removeprefix("search.")


def contains(values: BaseDistribution, value: Any) -> bool:
    """Whether a value is one of those that a dimension takes."""
    if isinstance(values, CategoricalDistribution):
        return value in values.choices
    steps = (value - values.low) / values.step if values.step else 0.0
    return values.low <= value <= values.high and abs(steps - round(steps)) < 1e-8


def _distribution(override: Override) -> BaseDistribution:
    name, sweep = override.key_or_group, override.value()
    given, kind = override.input_line or name, _type_of(name)
    numeric = IntDistribution if kind is int else FloatDistribution
    try:
        if isinstance(sweep, ChoiceSweep):
            choices = [
                choice.text if isinstance(choice, QuotedString) else choice for choice in sweep.list
            ]
            return CategoricalDistribution(_typed(kind, choices))
        if isinstance(sweep, RangeSweep):
            start, stop, step = _typed(kind, [sweep.start, sweep.stop, sweep.step])
            # Counted here: Hydra's own float range, summed up in binary fractions, may reach its
            # end.
            members = math.ceil((stop - start) / step - 1e-9)
            return numeric(start, kind(round(start + (members - 1) * step, 12)), step=step)
        if isinstance(sweep, IntervalSweep):
            ends = [
                int(end) if kind is int and end == int(end) else end
                for end in (sweep.start, sweep.end)
            ]
            return numeric(*_typed(kind, ends), log="log" in sweep.tags)
        why = "give range(a,b), choice(x,y), interval(a,b) or tag(log,interval(a,b))"
    except (ValueError, ZeroDivisionError) as error:
        why = str(error)
    raise ConfigError(f"{given}: {why}")


def _type_of(name: str) -> type:
    known = [f"search.{option}" for option in TUNABLE]
    if name not in known:
        raise ConfigError(
            f"{name} cannot be tuned.{did_you_mean(name, known)} What can be tuned: "
            f"{', '.join(known)}. One study tunes for one model, goal, "
            "length and budget"
        )
    return get_type_hints(SearchSpec)[short(name)]


def _typed(kind: type, values: Sequence[Any]) -> list[Any]:
    fitting = (int,) if kind is int else (int, float)
    if wrong := [
        value for value in values if isinstance(value, bool) or not isinstance(value, fitting)
    ]:
        raise ValueError(
            f"this option takes {'whole ' if kind is int else ''}numbers, not {wrong[0]!r}"
        )
    return [kind(value) for value in values]
