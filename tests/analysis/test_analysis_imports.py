"""Analyses need no model, no configuration and no drawing."""

MODULES = ["agreement", "extremes", "framing", "geometry", "human", "moments", "rsa"]
UNWANTED = ["torch", "hydra", "wandb", "transformers", "matplotlib"]


def test_importing_every_analysis_imports_none_of_these(loaded_by):
    assert loaded_by([f"pessimal.analysis.{name}" for name in MODULES], UNWANTED) == "[]"
