"""Analyses need no model, no configuration and no drawing."""

import subprocess
import sys

MODULES = ["agreement", "extremes", "framing", "geometry", "human", "moments", "rsa"]
UNWANTED = ["torch", "hydra", "wandb", "transformers", "matplotlib"]


def test_importing_every_analysis_imports_none_of_these():
    lines = [f"import pessimal.analysis.{name}" for name in MODULES]
    lines += ["import sys", f"print([name for name in {UNWANTED} if name in sys.modules])"]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
