"""`pessimal`, with a toy in the place of every search; a script for the tests of this folder, which
also import it.

The toy's values are a known function of options, prompt and seed. $TOY changes its manners, as
`key=value` separated by spaces: `sleep` (seconds a search), `fail` (every search raises), `hang`
(which model opened by this process writes the file `hanging` after its first search, and waits).
"""

import itertools
import os
import sys
import time
import types
from pathlib import Path

import numpy as np

from pessimal.__main__ import main
from pessimal.verbs.search_tuning import run_study_job

BEST_MOMENTUM = 0.25
opened = itertools.count(1)


class ToyModel:
    """Best at momentum 0.25 and, a little, at a wide search; pessimal searches see the same, with
    other numbers."""

    provenance = {"weights_digest": "0123456789abcdef"}  # noqa: RUF012

    def __init__(self, config, prompts):
        self.config, self.prompts, self.calls = config, prompts, 0
        self.number = str(next(opened))
        self.manners = dict(word.split("=") for word in os.environ.get("TOY", "").split())

    def search(self, prompt, *, seed, budget):
        assert prompt in self.prompts
        self.calls += 1
        if "fail" in self.manners:
            raise RuntimeError("the toy fell over")
        if self.manners.get("hang") == self.number and self.calls == 2:
            Path("hanging").touch()
            time.sleep(600)
        time.sleep(float(self.manners.get("sleep", 0)))
        return toy_value(self.config.search, prompt, seed)


def toy_value(search, prompt: str, seed: int) -> float:
    """Prompts are whole units apart, options a few tenths, starts hundredths."""
    ease = sum(map(ord, prompt)) % 7
    noise = np.random.default_rng(seed).normal() / 100
    return ease - abs(search.momentum - BEST_MOMENTUM) + search.search_width / 10_000 + noise


def run(config):
    """As `verbs/search.py` does, which would import torch into every process of these tests."""
    return run_study_job(config, ToyModel)


if __name__ == "__main__":
    module = types.ModuleType("pessimal.verbs.search")
    module.run = run
    sys.modules[module.__name__] = module
    main()
