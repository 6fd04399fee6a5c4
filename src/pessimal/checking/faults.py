"""What the checks name, and what is to be done about it: the words of `faults.yaml`."""

from pathlib import Path
from typing import Any

import yaml

NAMED: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_name("faults.yaml").read_text(encoding="utf-8")
)
"""Faults of servers, of trainers' loops and of graders, and the formats of answers."""
