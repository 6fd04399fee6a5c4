"""Parts that come from outside the package: by entry points of what is installed, or by name.

Knows how they are found and imported. Does not know what they are for.
"""

import importlib
from importlib.metadata import entry_points
from typing import Any, TypeVar

from pessimal.errors import ConfigError, did_you_mean

Kind = TypeVar("Kind")


def installed(group: str) -> dict[str, Any]:
    """Objects that installed packages offer under an entry point group, `module:name → object`, in
    order of name.

    Raises:
        ConfigError: one of them cannot be imported.
    """
    offered = {}
    for point in sorted(entry_points(group=group), key=lambda point: (point.name, point.value)):
        try:
            offered[point.value] = point.load()
        except Exception as error:
            package = point.dist.name if point.dist else "a package"
            raise ConfigError(
                f"{package} offers {point.value} under the entry point {group}, which cannot be "
                f"imported ({_error_text(error)}). Mend it, or type: pip uninstall {package}"
            ) from error
    return offered


def load_object(path: str, *, option: str, kind: type[Kind]) -> Kind:
    """The object `module:name` that an option names.

    Args:
        path: as typed.
        option: for the message.
        kind: of which class it must be; others are offered instead.

    Raises:
        ConfigError: it cannot be imported, or is of another kind.
    """
    module_name, colon, name = path.partition(":")
    if not colon or not module_name or not name:
        raise ConfigError(f"{option}=[{path}]: give module:function: {option}=[mine:length]")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ConfigError(
            f"{option}=[{path}]: the module {module_name!r} cannot be imported "
            f"({_error_text(error)}). Python must find it: install it, or type PYTHONPATH=. in "
            "front of the command"
        ) from error
    value = getattr(module, name, None)
    if isinstance(value, kind):
        return value
    names = [other for other, value in vars(module).items() if isinstance(value, kind)]
    guess = did_you_mean(name, names) or (f" It has {', '.join(names)}." if names else "")
    wrong = f"is no {kind.__name__}" if hasattr(module, name) else "is not there"
    raise ConfigError(f"{option}=[{path}]: {name!r} {wrong} in {module_name}.{guess}")


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
