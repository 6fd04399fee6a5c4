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
    made = check_options(spec)
    handed = {"attributes": attributes, "cache": cache, "find": find}
    takes = inspect.signature(made).parameters
    options = {name: value for name, value in spec.items() if name != "_target_"}
    return made(**options, **{name: value for name, value in handed.items() if name in takes})


def check_options(spec: Mapping[str, Any]) -> type:
    """The class that `_target_` names. Loads no network and no torch.

    Raises:
        ConfigError: there is no such class, or an option is unknown to it, missing, or not of its
            type or range.
    """
    from pydantic import TypeAdapter, ValidationError

    made = class_of(spec.get("_target_"))
    kinds = kinds_of(made)
    for name in [name for name in spec if name not in (*kinds, "_target_")]:
        raise ConfigError(
            f"perturber.{name}: {made.__name__} has no such option.{did_you_mean(name, kinds)} Its "
            f"options: "
            f"{', '.join(kinds) or 'none'}"
        )
    for name, kind in kinds.items():
        if (
            spec.get(name) is None
            and inspect.signature(made).parameters[name].default is inspect._empty
        ):
            raise ConfigError(f"{made.__name__} needs a {name}: type perturber.{name}=…")
        if name not in spec:
            continue
        try:  # strict for bools: true is no number
            TypeAdapter(kind).validate_python(spec[name], strict=isinstance(spec[name], bool))
        except ValidationError as error:
            said = error.errors(include_url=False)[0][
                "msg"
            ].lower()  # of a union, that of its first part
            raise ConfigError(f"perturber.{name}={spec[name]!r}: {said}") from error
    return made


def class_of(target: Any) -> type:
    """The class of a perturber by its path; ConfigError where there is none."""
    module, _, name = str(target).rpartition(".")
    try:
        made = getattr(importlib.import_module(module), name)
        if inspect.isclass(made) and hasattr(made, "perturb"):
            return made
        error = "it is no class with `perturb(requests)`"
    except (ImportError, AttributeError, ValueError) as failure:
        error = failure
    raise ConfigError(
        f"perturber._target_={target!r} is no class of a perturber ({error}). Give the path of one "
        f"with "
        "`perturb(requests)`, such as pessimal.explaining.perturbers.rules.Rules"
    )


def kinds_of(made: type) -> dict[str, Any]:
    """The options of a perturber's constructor, each with the type that it is annotated with."""
    hints = typing.get_type_hints(made.__init__, include_extras=True)
    return {
        name: hints.get(name, Any)
        for name in inspect.signature(made).parameters
        if name not in HANDED_IN
    }
