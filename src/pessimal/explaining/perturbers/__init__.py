"""Ways of changing a response along an attribute, behind one protocol
(`pessimal.explaining.perturbation.Perturber`). Each is a class and a file
`conf/perturber/NAME.yaml`, with its `_target_` and all of its options; here they are checked and
made."""

import importlib
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pessimal.errors import ConfigError, did_you_mean
from pessimal.explaining.attribute import Attribute
from pessimal.explaining.perturbation import Perturber

HANDED_IN = ("attributes", "cache", "find")
"""Arguments of a perturber that are no options: it is given them where it takes them."""


def make_perturber(
    spec: Mapping[str, Any],
    *,
    attributes: Sequence[Attribute],
    cache: Path | None,
    find: Callable[[str], Path | None] | None = None,
) -> Perturber:
    """The perturber of a configuration.

    Args:
        spec: `_target_`, the path of a class, and options of its constructor.
        attributes: all that edits will be asked for.
        cache: folder of a language model's answers; None keeps none.
        find: gives the folder of a model that has a name of its own, None of any other.

    Raises:
        ConfigError: see `check_options`; or what the class says of its options.
    """
    perturber = check_options(spec)
    arguments = inspect.signature(perturber).parameters
    handed_in = {"attributes": attributes, "cache": cache, "find": find}
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
                why = error.errors(include_url=False)[0]["msg"].lower()
                raise ConfigError(f"perturber.{name}={spec[name]!r}: {why}") from error
    return perturber


def class_of(target: Any) -> type:
    """The class of a perturber by its path; ConfigError where there is none."""
    module, _, name = str(target).rpartition(".")
    try:
        perturber = getattr(importlib.import_module(module), name)
        if inspect.isclass(perturber) and hasattr(perturber, "perturb"):
            return perturber
        why = "it is no class with `perturb(requests)`"
    except (ImportError, AttributeError, ValueError) as error:
        why = str(error)
    raise ConfigError(
        f"perturber._target_={target!r} is no class of a perturber ({why}). Give the path of one "
        "with `perturb(requests)`, such as pessimal.explaining.perturbers.rules.Rules"
    )


def kinds_of(perturber: type) -> dict[str, Any]:
    """The options of a perturber's constructor, each with the type that it is annotated with."""
    arguments = inspect.signature(perturber).parameters
    constructor = getattr(perturber, "__init__")  # noqa: B009  mypy holds that of a type unsound
    hints = typing.get_type_hints(constructor, include_extras=True)
    return {name: hints.get(name, Any) for name in arguments if name not in HANDED_IN}
