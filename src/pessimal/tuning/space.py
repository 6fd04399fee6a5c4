"""The options that a study looks through and the values each may take, written as Hydra writes sweeps.

Knows Hydra's override grammar and Optuna's distributions. Does not know studies or trials.
"""

import difflib
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
    distribution_to_json,
)

from pessimal.config.schema import SearchConfig, SearchSpec
from pessimal.errors import ConfigError

# How greedy coordinate gradient searches. What is searched for, and the budget, are not among them: values of trials that
# differ in these cannot be compared.
TUNABLE = ("search_width", "top_k", "step_size", "step_size_until", "momentum", "buffer_size")

Options = dict[str, Any]
"""Values of options by their full names, such as `search.top_k`."""


@dataclass(frozen=True)
class Space:
    """What a study varies, and what it does not."""

    distributions: dict[str, BaseDistribution]
    """The values of each varied option, by its full name."""
    fixed: list[str]
    """Overrides that every trial gets as they were typed."""

    def described(self) -> dict[str, str]:
        """Each option's values as one line of JSON."""
        return {name: distribution_to_json(values) for name, values in self.distributions.items()}


def parse_space(overrides: Sequence[Override]) -> Space:
    """The space that overrides write down: those that sweep are its dimensions, the others hold for every trial. Of two
    for the same option the later one counts.

    range(a,b[,step]) is Python's, without b; choice(x,y) and x,y are unordered; interval(a,b) is everything from a to b,
    whole numbers for an option that takes these; tag(log,interval(a,b)) is that by its logarithm.

    Raises:
        ConfigError: an option that cannot be tuned, values of a wrong type, or nothing to tune.
    """
    distributions: dict[str, BaseDistribution] = {}
    fixed: dict[str, str] = {}
    for override in overrides:
        name = override.key_or_group
        distributions.pop(name, None)
        fixed.pop(name, None)
        if override.is_sweep_override():
            distributions[name] = _distribution(name, override)
        else:
            fixed[name] = override.input_line
    if not distributions:
        raise ConfigError(
            "there is nothing to tune: every option has one value. Type for example 'search.top_k=choice(64,256)', or take "
            "the preset: hparams_search=gcg"
        )
    return Space(distributions, list(fixed.values()))


def check_space(space: Space, config: SearchConfig) -> None:
    """ConfigError where an option would refuse one of its extreme values, and what it would say."""
    for name, values in space.distributions.items():
        ends = values.choices if isinstance(values, CategoricalDistribution) else (values.low, values.high)
        for end in ends:
            with_options(config, {name: end})


def with_options(config: SearchConfig, options: Mapping[str, Any]) -> SearchConfig:
    """The configuration with other options of the search, checked as if they had been typed."""
    return replace(
        config, search=replace(config.search, **{_field(name): value for name, value in options.items()})
    )


def options_of(config: SearchConfig, names: Sequence[str]) -> Options:
    """The values that these options have in a configuration."""
    return {name: getattr(config.search, _field(name)) for name in names}


def as_overrides(options: Mapping[str, Any]) -> list[str]:
    """Options as one would type them."""
    return [f"{name}={_typed(value)}" for name, value in options.items()]


def _distribution(name: str, override: Override) -> BaseDistribution:
    kind = _type_of(name)
    given, sweep = override.input_line or name, override.value()
    if isinstance(sweep, ChoiceSweep):
        choices = [choice.text if isinstance(choice, QuotedString) else choice for choice in sweep.list]
        _check_type(given, kind, choices)
        return CategoricalDistribution([kind(choice) for choice in choices])
    if isinstance(sweep, RangeSweep):
        start, stop, step = sweep.start, sweep.stop, sweep.step
        _check_type(given, kind, [start, stop, step])
        # Counted here: Hydra's own float range, summed up in binary fractions, may reach its end.
        members = math.ceil((stop - start) / step - 1e-9) if step > 0 else 0
        if members < 1:
            raise ConfigError(f"{given}: this range is empty, or runs downwards; range(1,4) is 1, 2, 3")
        of = IntDistribution if kind is int else FloatDistribution
        last = start + (members - 1) * step
        return of(kind(start), kind(last) if kind is int else round(last, 12), step=kind(step))
    if isinstance(sweep, IntervalSweep):
        low, high = sweep.start, sweep.end
        if kind is int and low == int(low) and high == int(high):
            low, high = int(low), int(high)
        _check_type(given, kind, [low, high])
        logarithmic = "log" in sweep.tags
        if not low <= high or (logarithmic and low <= 0):
            raise ConfigError(
                f"{given}: an interval goes from a lower number to a higher one, for a log above 0"
            )
        of = IntDistribution if kind is int else FloatDistribution
        return of(low, high, log=logarithmic)
    raise ConfigError(f"{given}: give range(a,b), choice(x,y), interval(a,b) or tag(log,interval(a,b))")


def _type_of(name: str) -> type:
    known = [f"search.{field}" for field in TUNABLE]
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        meant = f" Did you mean {close[0]!r}?" if close else ""
        raise ConfigError(
            f"{name} cannot be tuned.{meant} What can be tuned: {', '.join(known)}. One study tunes for one model, goal, "
            "length and budget"
        )
    return get_type_hints(SearchSpec)[_field(name)]


def _check_type(given: str, kind: type, values: Sequence[Any]) -> None:
    fitting = (int,) if kind is int else (int, float)
    if wrong := [value for value in values if isinstance(value, bool) or not isinstance(value, fitting)]:
        wanted = "whole numbers" if kind is int else "numbers"
        raise ConfigError(f"{given}: this option takes {wanted}, not {wrong[0]!r}")


def _field(name: str) -> str:
    return name.removeprefix("search.")


def _typed(value: Any) -> str:
    return QuotedString(value, Quote.single).with_quotes() if isinstance(value, str) else repr(value)
