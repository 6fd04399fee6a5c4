"""Analyses need no model, no configuration and no drawing."""

import pkgutil

import pessimal.compare

MODULES = [
    module.name for module in pkgutil.walk_packages(pessimal.compare.__path__, prefix="pessimal.compare.")
]
UNWANTED = ["torch", "hydra", "wandb", "transformers", "matplotlib"]


def test_importing_every_analysis_imports_none_of_these(loaded_by):
    assert {name.rsplit(".", 1)[-1] for name in MODULES} >= {
        "agreement",
        "lexicon_groups",
        "variance_components",
    }
    assert loaded_by(MODULES, UNWANTED) == "[]"
