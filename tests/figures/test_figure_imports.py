"""Figures need no display, no pyplot state and nothing of a model's machinery."""

import pkgutil

import pessimal.figures

MODULES = [
    module.name for module in pkgutil.walk_packages(pessimal.figures.__path__, prefix="pessimal.figures.")
]
UNWANTED = ["torch", "hydra", "wandb", "transformers", "matplotlib.pyplot"]


def test_importing_every_figure_imports_none_of_these(loaded_by):
    assert {name.rsplit(".", 1)[-1] for name in MODULES} >= {"heatmap", "lexicon_groups", "words"}
    assert loaded_by(MODULES, UNWANTED) == "[]"
