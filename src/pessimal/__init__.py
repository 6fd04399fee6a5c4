"""pessimal: shows what a reward model wants.

    model = pessimal.load("org/name")                 # or pessimal.reward(network, tokenizer)
    table = pessimal.scan(model, "greatest")          # every token of the vocabulary as the answer
    results = pessimal.compare([table, other])        # every analysis
    pessimal.search(model, "greatest", length=2)      # the best longer answer
    pessimal.explain(model, prompt, chosen, rejected) # why this response and not that one
    pessimal.train("smollm2", "elo.csv", "my-model")  # a reward model of people's preferences
    pessimal.PessimalCallback("greatest", every=100)  # what a model wants, while it is trained

`pessimal.api` says what each takes and gives. Nothing heavy is imported before it is called.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from pessimal.version import __version__

if TYPE_CHECKING:
    from pessimal.api import check, compare, explain, load, read, reward, save, scan, search, train
    from pessimal.training.callback import PessimalCallback

__all__ = [
    "PessimalCallback",
    "__version__",
    "check",
    "compare",
    "explain",
    "load",
    "read",
    "reward",
    "save",
    "scan",
    "search",
    "train",
]


def __getattr__(name: str):
    if name == "PessimalCallback":
        return import_module("pessimal.training.callback").PessimalCallback
    if name in __all__:
        return getattr(import_module("pessimal.api"), name)
    raise AttributeError(f"pessimal has no {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
