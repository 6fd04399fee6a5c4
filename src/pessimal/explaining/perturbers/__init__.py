"""Ways of changing a response along an attribute: what is asked for, what came of it, and the
protocol of who makes it. Each way is a class and a file `conf/perturber/NAME.yaml`, with its
`_target_` and all of its options; here they are checked and made.

Knows texts and attributes. Does not know rewards: a perturbation depends on a reward model only
through which response that model prefers, so it is made once and serves all models.
"""

import importlib
import inspect
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from pessimal.errors import ConfigError, did_you_mean
from pessimal.explaining.attribute import Attribute, Direction
from pessimal.tables.comparisons import Comparison

HANDED_IN = ("attributes", "cache")
"""Arguments of a perturber that are no options: it is given them where it takes them."""


class Status(Enum):
    """Outcomes of a request."""

    changed = "changed"
    """There is a text, and it differs from the response."""
    not_applicable = "not applicable"
    """The perturber says that this response cannot be changed so."""
    refused = "refused"
    """A language model refused."""
    failed = "failed"
    """No usable answer after all retries: an unreachable endpoint, malformed JSON, an unchanged
    text."""


@dataclass(frozen=True)
class Request:
    """One change that is asked for."""

    comparison: Comparison
    response: int  # which of its two responses: 0 or 1
    attribute: Attribute
    direction: Direction
    seed: int = 0  # of several perturbations of the same kind

    @property
    def text(self) -> str:
        """The response as it stands."""
        return self.comparison.responses[self.response]

    @property
    def key(self) -> tuple[str, int, str, str]:
        """All that is asked for, whatever its seed: draws are made from it."""
        return self.comparison.key, self.response, self.attribute.name, self.direction.value


@dataclass(frozen=True)
class Perturbation:
    """The outcome of a request."""

    request: Request
    status: Status
    text: str | None = None  # the whole response after the change; None unless it was changed
    spans: tuple[tuple[int, int], ...] | None = None
    """(start, end) in characters of the response: the words said to bear on the attribute before
    the change was made; None where the perturber does not say."""
    note: str = ""  # which rule was used, or why there is no text


class Perturber(Protocol):
    """Changes responses."""

    name: str

    def provenance(self) -> dict[str, Any]:
        """Everything that decides its texts, as JSON: options, versions, digests of its prompts or
        word lists."""

    def perturb(self, requests: Sequence[Request]) -> list[Perturbation]:
        """One perturbation a request, in their order. The same request gives the same perturbation,
        whatever else is asked with it. Raises only for what concerns all requests (ConfigError,
        InputError, WorkError)."""

    def placebo(self) -> "Perturber | None":
        """Who makes edits that keep the meaning, the null of this one's edits; None where there is
        none.

        The null is of the same kind where it has this perturber's own name (a language model that
        rewrites for both). Against one of another kind nothing is tested: see
        `flips.null_makers`."""


def make_perturber(
    spec: Mapping[str, Any], *, attributes: Sequence[Attribute], cache: Path | None
) -> Perturber:
    """The perturber of a configuration.

    Args:
        spec: `_target_`, the path of a class, and options of its constructor.
        attributes: all that edits will be asked for.
        cache: folder of a language model's answers; None keeps none.

    Raises:
        ConfigError: see `check_options`; or what the class says of its options.
    """
    perturber = check_options(spec)
    arguments = inspect.signature(perturber).parameters
    handed_in = {"attributes": attributes, "cache": cache}
    options = {name: value for name, value in spec.items() if name != "_target_"}
    options |= {name: value for name, value in handed_in.items() if name in arguments}
    return perturber(**options)


def check_options(spec: Mapping[str, Any]) -> type:
    """The class that `_target_` names. Loads no network and no torch.

    Raises:
        ConfigError: there is no such class, or an option is unknown to it, missing, or not of its
            type or range.
    """
    from pydantic import TypeAdapter, ValidationError

    perturber = class_of(spec.get("_target_"))
    arguments, types = inspect.signature(perturber).parameters, kinds_of(perturber)
    for name in spec:
        if name not in types and name != "_target_":
            raise ConfigError(
                f"perturber.{name}: {perturber.__name__} has no such "
                f"option.{did_you_mean(name, types)} Its options: {', '.join(types) or 'none'}"
            )
    for name, kind in types.items():
        if spec.get(name) is None and arguments[name].default is inspect.Parameter.empty:
            raise ConfigError(f"{perturber.__name__} needs a {name}: type perturber.{name}=…")
        if name in spec:
            try:  # strict for bools: true is no number
                TypeAdapter(kind).validate_python(spec[name], strict=isinstance(spec[name], bool))
            except ValidationError as error:  # of a union, that of its first part
                reason = error.errors(include_url=False)[0]["msg"].lower()
                raise ConfigError(f"perturber.{name}={spec[name]!r}: {reason}") from error
    return perturber


def class_of(target: Any) -> type:
    """The class of a perturber by its path; ConfigError where there is none."""
    module, _, name = str(target).rpartition(".")
    try:
        perturber = getattr(importlib.import_module(module), name)
        if inspect.isclass(perturber) and hasattr(perturber, "perturb"):
            return perturber
        reason = "it is no class with `perturb(requests)`"
    except (ImportError, AttributeError, ValueError) as error:
        reason = str(error)
    raise ConfigError(
        f"perturber._target_={target!r} is no class of a perturber ({reason}). Give the path of "
        "one with `perturb(requests)`, such as pessimal.explaining.perturbers.rules.Rules"
    )


def kinds_of(perturber: type) -> dict[str, Any]:
    """The options of a perturber's constructor, each with the type that it is annotated with."""
    arguments = inspect.signature(perturber).parameters
    constructor = getattr(perturber, "__init__")  # noqa: B009  mypy holds that of a type unsound
    annotated = perturber if is_dataclass(perturber) else constructor
    hints = typing.get_type_hints(annotated, include_extras=True)
    return {name: hints.get(name, Any) for name in arguments if name not in HANDED_IN}
