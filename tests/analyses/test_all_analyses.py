"""What holds for every analysis: no model, configuration or drawing is needed, and headlines say
what they are about."""

import pkgutil

import pessimal.analyses

PACKAGE = pessimal.analyses
MODULES = [
    module.name for module in pkgutil.walk_packages(PACKAGE.__path__, prefix="pessimal.analyses.")
]
UNWANTED = ["torch", "hydra", "wandb", "transformers", "matplotlib", "sklearn", "statsmodels"]


def test_importing_every_analysis_imports_none_of_these(loaded_by):
    assert {"pessimal.analyses.agreement", "pessimal.analyses.valence"} <= set(MODULES)
    assert loaded_by(MODULES, UNWANTED) == "[]"
