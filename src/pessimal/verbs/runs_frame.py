"""The registry's artifacts as one pandas frame: a row an artifact, a column a figure; what is
listed of it, and in which order.

Knows manifests; neither files nor how a list looks.
"""

import math
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import pandas as pd

from pessimal.errors import ConfigError, InputError, did_you_mean
from pessimal.tables.score_table import storable
from pessimal.tracking.registry import Manifest, figures
from pessimal.verbs.printing import is_number

FIELDS = [
    *("type", "name", "version", "created", "run_id", "key", "config_hash", "commit", "dirty"),
    "inputs",
]
FIGURE = "summary."
"""Columns of figures begin so; those of an inner dictionary are `summary.outer.inner`."""
KEY_FIGURES = {
    "score-table": ("n", "optimal", "pessimal", "mean", "standard_deviation", "certified_share"),
    "comparison": ("models", "tables", "explanations", "pairs"),
    "search-result": ("goal", "length", "best_text", "best_reward", "verdict"),
    "study": ("trials", "best_value", "defaults_value", "held_out_difference", "held_out_p"),
    "explanation": ("comparisons", "perturber", "decided", "undecided", "edits", "reward_sd"),
    "conformance": ("passed", "failed", "failed_checks"),
    "audit": ("passed", "failed", "failed_checks"),
    "reward-model": ("word_accuracy", "frame_sign", "seconds"),
    "report": ("bytes",),
}
"""What a list shows of each type; of others, the first four figures."""
_SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_CONDITION = re.compile(
    r"\s*(?P<figure>[^<>=!]+?)\s*(?P<sign><=|>=|!=|==|=|<|>)\s*(?P<value>.*?)\s*", re.DOTALL
)


def key_figures(manifest: Manifest) -> dict[str, Any]:
    """The figures of an artifact that a list has room for."""
    every = figures(manifest.summary)
    names = KEY_FIGURES.get(manifest.type) or list(every)[:4]
    return {name: every[name] for name in names if every.get(name) is not None}


def frame(manifests: Iterable[Manifest]) -> pd.DataFrame:
    """A row an artifact, by its reference: FIELDS, the models and prompts it is of (lists), and a
    column a figure; all as objects, so that whole numbers stay whole."""
    rows = {}
    for m in manifests:
        of = {f"{what}s": _of(m, what) for what in ("model", "prompt")}
        every = {f"{FIGURE}{name}": value for name, value in figures(m.summary).items()}
        rows[m.reference] = {name: getattr(m, name) for name in FIELDS} | of | every
    names = dict.fromkeys(
        [*FIELDS, "models", "prompts", *(name for row in rows.values() for name in row)]
    )
    values = [[_stored(row.get(name)) for name in names] for row in rows.values()]
    index, columns = (list(map(storable, some)) for some in (rows, names))
    return pd.DataFrame(values, index=index, columns=columns, dtype=object)


def _stored(value: Any) -> Any:
    """Texts of pandas are UTF-8, which half a character is not."""
    if isinstance(value, list):
        return [_stored(one) for one in value]
    return storable(value) if isinstance(value, str) else value


def _of(manifest: Manifest, what: str) -> list[str]:
    one, several = manifest.summary.get(what), manifest.summary.get(f"{what}s")
    if (what, manifest.type) == ("model", "reward-model") and one is None:
        one = manifest.name
    return _texts([one, *several] if isinstance(several, list) else one)


def _texts(value: Any) -> list[str]:
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)]


def select(
    artifacts: pd.DataFrame,
    *,
    type: str | None = None,
    model: str | None = None,
    prompt: str | None = None,
    name: str | None = None,
    where: Sequence[str] = (),
    all: bool = False,
) -> pd.DataFrame:
    """The rows of `artifacts` (in the registry's order) that are asked for; of each name the newest
    version, unless `all`.

    Args:
        type, model, prompt, name: patterns with * and ?.
        where: conditions on figures; all must hold.

    Raises:
        ConfigError: a condition is none.
        InputError: no artifact of the registry has the type, model, prompt, name or figure.
    """
    chosen = artifacts if all else artifacts.drop_duplicates(["type", "name"], keep="last")
    for option, pattern in {"type": type, "models": model, "prompts": prompt, "name": name}.items():
        if pattern is None:
            continue
        texts = artifacts[option].map(_texts)
        matches = [any(fnmatchcase(one, pattern) for one in some) for some in texts]
        if not any(matches):
            known = sorted({one for some in texts for one in some})
            option = option.removesuffix("s")
            there = ", ".join(known[:12]) + (f" and {len(known) - 12} more" if known[12:] else "")
            raise InputError(
                f"{option}={pattern!r}: no artifact in the registry is of this "
                f"{option}.{did_you_mean(pattern, known)} "
                f"There are: {there or f'none with a {option}'}"
            )
        chosen = chosen[chosen.index.isin(artifacts.index[matches])]
    for condition in where:
        chosen = chosen[_holds(condition, chosen, artifacts)]
    return chosen


def in_order(artifacts: pd.DataFrame, by: str, *, descending: bool = False) -> pd.DataFrame:
    """Sorted `by` name (type, name, version), created, or a figure: numbers before texts, those
    without it last."""
    keys = {"name": [], "created": ["created"]}.get(by)
    if keys is None:
        column = _column(by, artifacts, artifacts, option="sort")
        texts = column.map(lambda value: value if isinstance(value, str) else None)
        artifacts, keys = artifacts.assign(_0=_numbers(column), _1=texts), ["_0", "_1"]
    ordered = artifacts.sort_values([*keys, "type", "name", "version"], ascending=not descending)
    return ordered.drop(columns=["_0", "_1"], errors="ignore")


def _holds(condition: str, chosen: pd.DataFrame, everything: pd.DataFrame) -> pd.Series:
    """For which rows it holds. `n=null` is for those without the figure; no other condition holds
    without it."""
    form = _CONDITION.fullmatch(condition)
    if form is None:
        raise ConfigError(
            f"where={condition!r} is no condition; type a figure, one of = != < <= > >=, and a "
            f"value: where='n>1000'"
        )
    sign, value = form["sign"].replace("==", "="), form["value"]
    number = _number(value)
    if sign in _SIGNS and math.isnan(number):
        raise ConfigError(f"where={condition!r}: {sign} compares numbers, and {value!r} is none")
    column = _column(form["figure"], chosen, everything, option="where")
    if value == "null":
        return column.isna() == (sign == "=")
    if sign in _SIGNS and number is not None:
        return _SIGNS[sign](_numbers(column), number)

    def means(one: Any) -> bool:
        """Numbers as numbers, truths as such, texts as they are; of a list any."""
        if isinstance(one, list):
            return any(map(means, one))
        if isinstance(one, bool):
            return value.lower() == str(one).lower()
        return one == number if is_number(one) else value == str(one)

    return column.notna() & (column.map(means) == (sign == "="))


def _column(
    figure: str, chosen: pd.DataFrame, everything: pd.DataFrame, *, option: str
) -> pd.Series:
    """A figure's values; InputError where no artifact has it: what is mistyped must not pass for
    what is not there."""
    name = f"{FIGURE}{figure}"
    if name in everything or not len(chosen):
        return chosen.get(name, pd.Series(None, index=chosen.index, dtype=object))
    columns = chosen.dropna(axis=1, how="all").columns
    known = sorted(one.removeprefix(FIGURE) for one in columns if one.startswith(FIGURE))
    raise InputError(
        f"{option}: no artifact has a figure {figure!r}.{did_you_mean(figure, known)} Figures "
        f"here: {', '.join(known[:40])}"
    )


def _numbers(column: pd.Series) -> pd.Series:
    """Numbers as floats; NaN for texts, truths and what is missing."""
    return column.map(lambda value: value if is_number(value) else None).astype(float)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def lineage(
    reference: str, manifests: Iterable[Manifest], *, upwards: bool
) -> list[dict[str, Any]]:
    """What an artifact was made from (`upwards`) or what was made from it, and so on, each below
    what it belongs to.

    Columns: depth (1 for its own inputs) · reference · known (in the registry still) · repeated
    (what is below it stands further up).
    """
    below: dict[str, list[str]] = {}
    known, seen = set(), {reference}
    for m in manifests:
        known.add(m.reference)
        for one in dict.fromkeys(m.inputs):
            above, under = (m.reference, one) if upwards else (one, m.reference)
            below.setdefault(above, []).append(under)

    def under_it(above: str, depth: int) -> Iterator[dict[str, Any]]:
        for one in below.get(above, []):
            repeated = one in seen and one in below
            seen.add(one)
            yield {"depth": depth, "reference": one, "known": one in known, "repeated": repeated}
            if not repeated:
                yield from under_it(one, depth + 1)

    return [*under_it(reference, 1)]
