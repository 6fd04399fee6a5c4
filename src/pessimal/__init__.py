"""pessimal: shows what a reward model wants.

    model = pessimal.load("org/name")                 # or pessimal.reward(network, tokenizer)
    table = pessimal.scan(model, "greatest")          # every token of the vocabulary as the answer
    pessimal.scan("org/name")                         # or a function, or a list of these
    results = pessimal.compare([table, other])        # every analysis
    pessimal.accuracy([model, other], "pairs.jsonl")  # how often the better answer scores higher
    pessimal.search(model, "greatest", length=2)      # the best longer answer
    pessimal.ceiling(model)                           # how far any answer of any length can go
    pessimal.explain(model, prompt, chosen, rejected) # why this response and not that one
    pessimal.forecast(model, "smollm2")               # what optimising it does to a policy
    pessimal.rollouts("completions.parquet")          # what a reward pays for in a policy's answers
    pessimal.audit(model)                             # one verdict per check, before training on it
    pessimal.train("smollm2", "elo.csv", "my-model")  # a reward model of people's preferences
    pessimal.PessimalCallback("greatest", every=100)  # what a model wants, while it is trained
    pessimal.RewardPanel(mine, model)                 # other rewards, while one trains a policy

The files of `pessimal.api` say what each takes and gives. Nothing heavy is imported before it is
called.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from pessimal.version import __version__

if TYPE_CHECKING:
    from pessimal.api.audit import audit
    from pessimal.api.check import census, check
    from pessimal.api.compare import compare
    from pessimal.api.explain import accuracy, explain
    from pessimal.api.load import load, read, reward, save, train
    from pessimal.api.rollouts import rollouts
    from pessimal.api.scan import forecast, scan
    from pessimal.api.search import ceiling, search
    from pessimal.training.callback import PessimalCallback
    from pessimal.training.panel import RewardPanel

__all__ = [
    "PessimalCallback",
    "RewardPanel",
    "__version__",
    "accuracy",
    "audit",
    "ceiling",
    "census",
    "check",
    "compare",
    "explain",
    "forecast",
    "load",
    "read",
    "reward",
    "rollouts",
    "save",
    "scan",
    "search",
    "train",
]


HOMES = {
    "PessimalCallback": "training.callback",
    "RewardPanel": "training.panel",
    "accuracy": "api.explain",
    "ceiling": "api.search",
    "census": "api.check",
    "forecast": "api.scan",
    **dict.fromkeys(("read", "reward", "save", "train"), "api.load"),
}
"""Modules of the names that no module of `pessimal.api` is called after."""


def __getattr__(name: str):
    if name in __all__ and name != "__version__":
        return getattr(import_module(f"pessimal.{HOMES.get(name, f'api.{name}')}"), name)
    raise AttributeError(f"pessimal has no {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
