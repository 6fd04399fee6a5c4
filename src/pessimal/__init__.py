"""pessimal: shows what a reward model wants.

    model = pessimal.load("org/name")                 # or pessimal.reward(network, tokenizer)
    table = pessimal.scan(model, "greatest")          # every token of the vocabulary as the answer
    results = pessimal.compare([table, other])        # every analysis
    pessimal.search(model, "greatest", length=2)      # the best longer answer
    pessimal.explain(model, prompt, chosen, rejected) # why this response and not that one
    pessimal.PessimalCallback("greatest", every=100)  # what a model comes to want while it is trained

`pessimal.api` says what each takes and gives. Nothing heavy is imported before it is called.
"""

from importlib import import_module
from types import ModuleType

__version__ = "0.1.0"

_FUNCTIONS = ("check", "load", "read", "reward", "save", "scan")
_PACKAGES = ("compare", "explain", "search")
_CALLBACK = "PessimalCallback"
__all__ = ["__version__", *_FUNCTIONS, *_PACKAGES, _CALLBACK]


class Verb(ModuleType):
    """The package of a verb, which is also its function: `pessimal.compare(tables)`."""

    def __call__(self, *arguments, **options):
        return getattr(import_module("pessimal.api"), self.__name__.rpartition(".")[2])(*arguments, **options)


def __getattr__(name: str):
    if name in _FUNCTIONS:
        return getattr(import_module("pessimal.api"), name)
    if name in _PACKAGES:
        return import_module(f"pessimal.{name}")
    if name == _CALLBACK:
        return import_module("pessimal.training.callback").PessimalCallback
    raise AttributeError(f"pessimal has no {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
