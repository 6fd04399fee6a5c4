"""Figures need no display, no pyplot state and nothing of a model's machinery."""

MODULES = [
    "heatmap",
    "human",
    "labels",
    "mds",
    "rsa",
    "save",
    "scatter",
    "style",
    "token_table",
    "violin",
    "words",
]
UNWANTED = ["torch", "hydra", "wandb", "transformers", "matplotlib.pyplot"]


def test_importing_every_figure_imports_none_of_these(loaded_by):
    assert loaded_by([f"pessimal.figures.{name}" for name in MODULES], UNWANTED) == "[]"
