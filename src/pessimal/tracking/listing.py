"""A list of the registry's artifacts: selected, sorted, with their key figures.

Pure: takes manifests, gives manifests. Does not know files, nor how a list looks.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from pessimal.errors import InputError
from pessimal.tracking.conditions import Condition, closest, figures, is_number
from pessimal.tracking.registry import Manifest

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
"""What a list shows of each type; of others, the first four figures by name."""


@dataclass(frozen=True)
class Wanted:
    """The selection; patterns may hold * and ?."""

    type: str | None = None
    model: str | None = None
    """Short name of the model that an artifact is of."""
    prompt: str | None = None
    """Key of a prompt that an artifact is of."""
    name: str | None = None
    """Artifact name."""
    since: datetime | None = None
    """Published then or later; with its time zone."""
    where: Sequence[Condition] = ()
    """Conditions on figures; all must hold."""
    all: bool = False
    """Older versions too."""


def select(manifests: Sequence[Manifest], wanted: Wanted) -> list[Manifest]:
    """The selected ones, in the order given.

    Raises:
        InputError: a type, model, prompt, name or figure that no artifact of the registry has.
    """
    chosen = list(manifests) if wanted.all else _newest(manifests)
    for field, values_of in _FIELDS.items():
        pattern = getattr(wanted, field)
        if pattern is None:
            continue
        known = sorted({value for m in manifests for value in values_of(m)})
        if not any(fnmatchcase(value, pattern) for value in known):
            raise InputError(_nothing_of(field, pattern, known))
        chosen = [m for m in chosen if any(fnmatchcase(value, pattern) for value in values_of(m))]
    if wanted.since is not None:
        chosen = [m for m in chosen if (made := created(m)) is not None and made >= wanted.since]
    for condition in wanted.where:
        _check_figure(condition.figure, chosen, manifests, option="where")
        chosen = [m for m in chosen if condition.holds(m.summary)]
    return chosen


def in_order(manifests: Sequence[Manifest], by: str, *, descending: bool = False) -> list[Manifest]:
    """Sorted `by` name (type, name, version), created, or a figure: numbers before texts, those without it last."""
    if by == "name":
        return sorted(manifests, key=_name, reverse=descending)
    if by == "created":
        return sorted(manifests, key=lambda m: (m.created, _name(m)), reverse=descending)
    _check_figure(by, manifests, manifests, option="sort")
    values = [(figures(m.summary).get(by), m) for m in manifests]
    numbers = [pair for pair in values if is_number(pair[0]) and pair[0] == pair[0]]
    texts = [pair for pair in values if isinstance(pair[0], str)]
    rest = [
        m for value, m in values if not isinstance(value, str) and not (is_number(value) and value == value)
    ]
    return [
        m
        for some in (numbers, texts)
        for _, m in sorted(some, key=lambda pair: (pair[0], _name(pair[1])), reverse=descending)
    ] + sorted(rest, key=_name)


def key_figures(manifest: Manifest) -> dict[str, Any]:
    """The key figures of an artifact, by name."""
    known = figures(manifest.summary)
    if names := KEY_FIGURES.get(manifest.type):
        return {name: known[name] for name in names if known.get(name) is not None}
    return dict(list(known.items())[:4])


def created(manifest: Manifest) -> datetime | None:
    """When it was published; None where the manifest does not say."""
    try:
        made = datetime.fromisoformat(manifest.created)
    except (TypeError, ValueError):
        return None
    return made if made.tzinfo else made.replace(tzinfo=UTC)


def models_of(manifest: Manifest) -> list[str]:
    """Models that an artifact is of: its summary's; a reward model is of itself. Comparisons do not name theirs."""
    model = manifest.summary.get("model")
    if isinstance(model, str):
        return [model]
    return [manifest.name] if manifest.type == "reward-model" else []


def prompts_of(manifest: Manifest) -> list[str]:
    """Prompts that an artifact is of, by key."""
    one, several = manifest.summary.get("prompt"), manifest.summary.get("prompts")
    given = [one, *several] if isinstance(several, list) else [one]
    return [prompt for prompt in given if isinstance(prompt, str)]


_FIELDS: dict[str, Callable[[Manifest], list[str]]] = {
    "type": lambda m: [m.type],
    "model": models_of,
    "prompt": prompts_of,
    "name": lambda m: [m.name],
}


def _newest(manifests: Iterable[Manifest]) -> list[Manifest]:
    newest: dict[tuple[str, str], Manifest] = {}
    for manifest in manifests:
        name = (manifest.type, manifest.name)
        if name not in newest or newest[name].version < manifest.version:
            newest[name] = manifest
    return list(newest.values())


def _name(manifest: Manifest) -> tuple[str, str, int]:
    return manifest.type, manifest.name, manifest.version


def _nothing_of(field: str, pattern: str, known: Sequence[str]) -> str:
    there = ", ".join(known[:12]) + (f" and {len(known) - 12} more" if len(known) > 12 else "")
    return (
        f"{field}={pattern!r}: no artifact in the registry is of this {field}.{closest(pattern, known)} "
        f"There are: {there or f'none with a {field}'}"
    )


def _check_figure(
    name: str, chosen: Sequence[Manifest], everything: Sequence[Manifest], *, option: str
) -> None:
    """InputError where no artifact has the figure: what is mistyped must not pass for what is not there."""
    if any(name in figures(m.summary) for m in [*chosen, *everything]):
        return
    if not chosen:
        return
    known = sorted({figure for m in chosen for figure in figures(m.summary)})
    raise InputError(
        f"{option}: no artifact has a figure {name!r}.{closest(name, known)} Figures here: {', '.join(known[:40])}"
    )
