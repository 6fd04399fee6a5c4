"""How much is fuzzed: enough to mean something, little enough for every push."""

import importlib
from pathlib import Path

from fuzzing import PLANNED

LEAST, MOST = 10_000, 25_000
"""Cases of all fuzz tests together. Ten thousand take about half a minute of one core."""


def test_the_cases_are_many_and_are_all_different_tests():
    files = sorted(file.stem for file in Path(__file__).parent.glob("test_fuzz_*.py"))
    for file in files:
        importlib.import_module(file)
    assert LEAST <= sum(PLANNED.values()) <= MOST
    assert {name.rpartition(".")[0] for name in PLANNED} == set(files) - {Path(__file__).stem}
