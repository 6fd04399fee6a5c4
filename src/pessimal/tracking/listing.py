"""The registry's artifacts as one pandas frame: a row an artifact, a column a figure; what is
listed of it, and in which order.

Knows manifests; neither files nor how a list looks.
"""

import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import pandas as pd

from pessimal.errors import ConfigError, InputError, did_you_mean
from pessimal.tables.score_table import storable
from pessimal.tracking.registry import Manifest

FIELDS = (
    "type",
    "name",
    "version",
    "created",
    "run_id",
    "key",
    "config_hash",
    "commit",
    "dirty",
    "inputs",
)
FIGURE = "summary."
"""Columns of figures begin so; those of an inner dictionary are `summary.outer.inner`."""
KEY_FIGURES = {
    "score-table": ("n", "optimal", "pessimal", "mean", "standard_deviation", "certified_share"),
    "comparison": ("models", "tables", "explanations"),
    "search-result": ("goal", "length", "best_text", "best_reward", "verdict"),
    "study": ("trials", "best_value", "defaults_value", "held_out_difference", "held_out_p"),
    "explanation": ("comparisons", "perturber", "decided", "undecided", "edits", "reward_sd"),
    "conformance": ("passed", "failed", "failed_checks"),
    "reward-model": ("word_accuracy", "frame_sign", "seconds"),
    "report": ("bytes",),
}
"""What a list shows of each type; of others, the first four figures."""
_ORDERS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_CONDITION = re.compile(
    r"\s*(?P<figure>[^<>=!]+?)\s*(?P<sign><=|>=|!=|==|=|<|>)\s*(?P<value>.*?)\s*", re.DOTALL
)


def figures(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Every figure of a summary by its name; those of an inner dictionary as `outer.inner`."""
    flat = {}
    for name, value in summary.items():
        inner = figures(value) if isinstance(value, Mapping) else None
        flat |= (
            {name: value} if inner is None else {f"{name}.{key}": one for key, one in inner.items()}
        )
    return flat


def key_figures(manifest: Manifest) -> dict[str, Any]:
    """The figures of an artifact that a list has room for."""
    known = figures(manifest.summary)
    names = KEY_FIGURES.get(manifest.type) or list(known)[:4]
    return {name: known[name] for name in names if known.get(name) is not None}


def frame(manifests: Iterable[Manifest]) -> pd.DataFrame:
    """A row an artifact, by its reference: FIELDS, the models and prompts it is of (lists), and a
    column a figure; all as objects, so that whole numbers stay whole."""
    rows = {}
    for m in manifests:
        about = {
            "models": _of(m, "model") or [m.name] * (m.type == "reward-model"),
            "prompts": _of(m, "prompt"),
        }
        shown = {f"{FIGURE}{name}": value for name, value in figures(m.summary).items()}
        rows[m.reference] = {name: getattr(m, name) for name in FIELDS} | about | shown
    names = list(
        dict.fromkeys(
            [*FIELDS, "models", "prompts", *(name for row in rows.values() for name in row)]
        )
    )
    values = [[_stored(row.get(name)) for name in names] for row in rows.values()]
    return pd.DataFrame(
        values, index=list(map(storable, rows)), columns=list(map(storable, names)), dtype=object
    )


def _stored(value: Any) -> Any:
    """Texts of pandas are UTF-8, which half a character is not."""
    if isinstance(value, list):
        return [_stored(one) for one in value]
    return storable(value) if isinstance(value, str) else value


def _of(manifest: Manifest, what: str) -> list[str]:
    one, several = manifest.summary.get(what), manifest.summary.get(f"{what}s")
    given = [one, *several] if isinstance(several, list) else [one]
    return [name for name in given if isinstance(name, str)]


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
    """The rows of `artifacts` that are asked for; of each name the newest version, unless `all`.

    Args:
        type, model, prompt, name: patterns with * and ?.
        where: conditions on figures; all must hold.

    Raises:
        ConfigError: a condition is none.
        InputError: no artifact of the registry has the type, model, prompt, name or figure.
    """
    chosen = artifacts
    if not all:
        versions = chosen["version"].astype(int)
        chosen = chosen[
            versions == versions.groupby([chosen["type"], chosen["name"]]).transform("max")
        ]
    for option, pattern in {"type": type, "models": model, "prompts": prompt, "name": name}.items():
        if pattern is not None:
            matches = artifacts[option].map(
                lambda value, p=pattern: any(fnmatchcase(one, p) for one in _texts(value))
            )
            if not matches.any():
                known = sorted({one for value in artifacts[option] for one in _texts(value)})
                raise InputError(_nothing_of(option.removesuffix("s"), pattern, known))
            chosen = chosen[matches[chosen.index]]
    for condition in where:
        chosen = chosen[_holds(condition, chosen, artifacts)]
    return chosen


def _texts(value: Any) -> list[str]:
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)]


def in_order(artifacts: pd.DataFrame, by: str, *, descending: bool = False) -> pd.DataFrame:
    """Sorted `by` name (type, name, version), created, or a figure: numbers before texts, those
    without it last."""
    up, names = not descending, ["type", "name", "version"]
    if by in ("name", "created"):
        return artifacts.sort_values([by, *names] if by == "created" else names, ascending=up)
    column = _column(by, artifacts, artifacts, option="sort")
    texts = column.map(lambda value: value if isinstance(value, str) else None)
    ranked = artifacts.assign(_number=_numbers(column), _text=texts)
    by_value = ranked.sort_values(
        ["_number", "_text", *names], ascending=up
    )  # what is missing comes last
    return by_value.drop(columns=["_number", "_text"])


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
    if sign in _ORDERS and (_number(value) is None or _number(value) != _number(value)):
        raise ConfigError(f"where={condition!r}: {sign} compares numbers, and {value!r} is none")
    column = _column(form["figure"], chosen, everything, option="where")
    if value == "null":
        return column.isna() if sign == "=" else column.notna()
    if sign in _ORDERS:
        return _ORDERS[sign](_numbers(column), float(value))
    same = column.map(
        lambda one: any(_is(part, value) for part in (one if isinstance(one, list) else [one]))
    )
    return column.notna() & (same == (sign == "="))


def _column(
    figure: str, chosen: pd.DataFrame, everything: pd.DataFrame, *, option: str
) -> pd.Series:
    """A figure's values; InputError where no artifact has it: what is mistyped must not pass for
    what is not there."""
    name = f"{FIGURE}{figure}"
    if name in everything or not len(chosen):
        return chosen[name] if name in chosen else pd.Series(None, index=chosen.index, dtype=object)
    there = chosen.dropna(axis=1, how="all").columns
    known = sorted(one.removeprefix(FIGURE) for one in there if one.startswith(FIGURE))
    raise InputError(
        f"{option}: no artifact has a figure {figure!r}.{did_you_mean(figure, known)} Figures "
        f"here: {', '.join(known[:40])}"
    )


def _numbers(column: pd.Series) -> pd.Series:
    """Numbers as floats; NaN for texts, truths and what is missing."""
    return column.map(lambda value: value if is_number(value) else None).astype(float)


def is_number(value: Any) -> bool:
    """Whether `value` is a number; a truth is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is(value: Any, text: str) -> bool:
    """Whether `text` means `value`: numbers as numbers, truths as such, texts as they are."""
    if isinstance(value, bool):
        return text.lower() == str(value).lower()
    return value == _number(text) if is_number(value) else text == str(value)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _nothing_of(option: str, pattern: str, known: list[str]) -> str:
    there = ", ".join(known[:12]) + (f" and {len(known) - 12} more" if len(known) > 12 else "")
    return (
        f"{option}={pattern!r}: no artifact in the registry is of this "
        f"{option}.{did_you_mean(pattern, known)} "
        f"There are: {there or f'none with a {option}'}"
    )


def find_artifact(given: str, manifests: Sequence[Manifest]) -> Manifest:
    """The artifact that `given` names; a name is `type/name:vN`, as a folder `type/name/vN`,
    `type/name`, `name:vN` or `name` (without a version the newest), or the id of the W&B run that
    published it.

    Raises:
        InputError: there is none such, or there are several.
    """
    as_reference = re.sub(r"(.+/.+)/(v\d+)", r"\1:\2", given)
    path, colon, version = as_reference.rpartition(":") if ":" in as_reference else (given, "", "")
    type, slash, name = path.rpartition("/")
    of_name = [m for m in manifests if m.name == name and (not slash or m.type == type)]
    matching = [m for m in of_name if not colon or version == f"v{m.version}"]
    if len({m.type for m in matching}) > 1:
        several = ", ".join(sorted({f"{m.type}/{m.name}" for m in matching}))
        raise InputError(
            f"{given!r} is the name of several artifacts: {several}. Type one of these"
        )
    if matching:
        return max(matching, key=lambda m: m.version)
    of_run = [m for m in manifests if m.run_id == given]
    if len(of_run) > 1:
        several = ", ".join(m.reference for m in of_run)
        raise InputError(f"the W&B run {given} published {several}. Type one of these")
    if of_run:
        return of_run[0]
    if others := sorted({m.reference for m in manifests if m.name == name}):
        raise InputError(f"there is no artifact {given!r}; there are: {', '.join(others)}")
    raise InputError(
        f"there is no artifact {given!r}, and no W&B run of this id published one."
        f"{did_you_mean(name, sorted({m.name for m in manifests}))} To list them: pessimal runs"
    )


def lineage(
    reference: str, manifests: Iterable[Manifest], *, upwards: bool
) -> list[dict[str, Any]]:
    """What an artifact was made from (`upwards`) or what was made from it, and so on, each below
    what it belongs to.

    Columns: depth (1 for its own inputs) · reference · known (in the registry still) · repeated
        (what is below it stands
    further up).
    """
    below: dict[str, list[str]] = {}
    known, seen = set(), {reference}
    for m in manifests:
        known.add(m.reference)
        for one in dict.fromkeys(m.inputs):
            above, under = (m.reference, one) if upwards else (one, m.reference)
            below.setdefault(above, []).append(under)

    def under(one: str, depth: int) -> Iterator[dict[str, Any]]:
        for reference in below.get(one, []):
            repeated = reference in seen and reference in below
            seen.add(reference)
            yield {
                "depth": depth,
                "reference": reference,
                "known": reference in known,
                "repeated": repeated,
            }
            if not repeated:
                yield from under(reference, depth + 1)

    return [*under(reference, 1)]
