"""What holds for every analysis: no model, configuration or drawing is needed, and headlines say
what they are about."""

import pkgutil

import numpy as np
import pandas as pd

import pessimal.analyses
from pessimal.analyses import Options, compare

PACKAGE = pessimal.analyses
MODULES = [
    module.name for module in pkgutil.walk_packages(PACKAGE.__path__, prefix="pessimal.analyses.")
]
UNWANTED = ["torch", "hydra", "wandb", "transformers", "matplotlib", "sklearn", "statsmodels"]


def test_importing_every_analysis_imports_none_of_these(loaded_by):
    assert {"pessimal.analyses.agreement", "pessimal.analyses.valence"} <= set(MODULES)
    assert loaded_by(MODULES, UNWANTED) == "[]"


def test_headlines_on_a_list_of_items_name_the_list(table_set):
    rewards = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 3)), columns=list("abc"))
    rewards.index = [f"item {i}" for i in range(50)]
    options = Options(permutations=100)
    found = {}
    for candidates in ("vocabulary", "animals"):
        results, _ = compare(
            [table_set({"best": rewards, "worst": -rewards}, candidates=candidates)], options
        )
        found[candidates] = [result.headline for result in results if result.headline]
    assert len(found["animals"]) >= 4
    assert all("(animals)" in headline for headline in found["animals"])
    assert not any("(vocabulary)" in headline for headline in found["vocabulary"])
