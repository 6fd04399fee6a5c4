"""Conditions on the figures of an artifact, as they are typed: `n>1000`, `optimal=love`, `word_accuracy>=0.8`.

Knows summaries: nested dictionaries of texts, numbers, truths and lists. Does not know the registry.
"""

import difflib
import math
import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pessimal.errors import ConfigError

_FORM = re.compile(r"\s*(?P<figure>[^<>=!]+?)\s*(?P<sign><=|>=|!=|==|=|<|>)\s*(?P<value>.*?)\s*", re.DOTALL)
_ORDERS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def figures(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Every figure of a summary by its name; those of an inner dictionary as `outer.inner`."""
    flat = {}
    for name, value in summary.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": figure for inner, figure in figures(value).items()}
        else:
            flat[name] = value
    return flat


def is_number(value: Any) -> bool:
    """Whether `value` is a number; a truth is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def closest(given: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` where something known is like what was given, else nothing."""
    close = difflib.get_close_matches(given, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


@dataclass(frozen=True)
class Condition:
    """One condition on one figure."""

    figure: str
    sign: str
    """<, <=, >, >= compare numbers; = and != compare numbers as numbers, truths and null as such, texts as they are."""
    value: str

    def holds(self, summary: Mapping[str, Any]) -> bool:
        """Whether it holds for a summary; never where the summary has no such figure."""
        values = figures(summary)
        if self.figure not in values:
            return False
        value = values[self.figure]
        if self.sign in _ORDERS:
            return is_number(value) and _ORDERS[self.sign](value, float(self.value))
        same = any(self._is(one) for one in value) if isinstance(value, list) else self._is(value)
        return same == (self.sign == "=")

    def _is(self, value: Any) -> bool:
        if isinstance(value, bool) or value is None:
            return self.value.lower() == {True: "true", False: "false", None: "null"}[value]
        if not is_number(value):
            return self.value == str(value)
        number = _number(self.value)
        return number is not None and (value == number or (math.isnan(value) and math.isnan(number)))


def read_condition(text: str) -> Condition:
    """Raises ConfigError where `text` is no condition, or orders by something that is no number."""
    form = _FORM.fullmatch(text)
    if form is None:
        raise ConfigError(
            f"where={text!r} is no condition; type a figure, one of = != < <= > >=, and a value: where='n>1000'"
        )
    figure, sign, value = form["figure"], form["sign"].replace("==", "="), form["value"]
    if sign in _ORDERS and (_number(value) is None or math.isnan(_number(value))):
        raise ConfigError(f"where={text!r}: {sign} compares numbers, and {value!r} is none")
    return Condition(figure, sign, value)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
