"""Figures need no display, no pyplot state and nothing of a model's machinery."""

import subprocess
import sys

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


def test_importing_every_figure_imports_none_of_these():
    lines = [f"import pessimal.figures.{name}" for name in MODULES]
    lines += ["import sys", f"print([name for name in {UNWANTED} if name in sys.modules])"]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
