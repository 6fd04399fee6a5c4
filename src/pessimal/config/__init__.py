"""Typed, validated configuration; together with `verbs`, the only place that knows Hydra exists."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
CONF = next(
    (folder for folder in (_PACKAGE / "conf", _PACKAGE.parents[1] / "conf") if folder.is_dir()),
    _PACKAGE / "conf",
)
"""The configuration files: inside the installed package, or at the top of a checkout."""
