"""The replication's registered result, recomputed from the eight numbers that are kept of it."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

FILE = Path(__file__).parents[2] / "experiments" / "inherited_values" / "replication.py"


def test_the_registered_result_follows_from_what_is_kept(monkeypatch):
    monkeypatch.chdir(FILE.parents[2])  # it reads conf/
    spec = importlib.util.spec_from_file_location("replication", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.contrast(*map(np.array, module.C.values()))
    assert found["difference"] == pytest.approx(-0.15, abs=0.03)  # the eight are rounded
    assert (found["low"], found["high"]) == pytest.approx((-13.2, 12.9), abs=0.1)
    assert found["p"] > 0.9
    assert found["n"] == 8
