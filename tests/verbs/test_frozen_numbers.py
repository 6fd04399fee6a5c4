"""`compare` gives the numbers that it gave, on made-up scores (`tests/frozen/scores.py`): the first
edition's, but for intervals and p over words, which are of when what random heads show came to
stand by itself."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "frozen")]

from scores import tables  # noqa: E402

from compare_comparisons import differences  # noqa: E402
from pessimal.tables import write_score_table  # noqa: E402

FROZEN = ROOT / "frozen" / "comparison"


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scores")
    for table in tables():
        (folder / table.name).mkdir()
        write_score_table(table, folder / table.name / "scores.parquet")
    return folder


@pytest.mark.slow
def test_every_number_is_as_it_was(command, scores, tmp_path):
    code, out, err = command(
        "compare",
        "name=frozen",
        f"tables={scores}",
        "tracking=off",
        "replicates=200",
        "permutations=500",
    )
    assert code == 0, err
    folder = Path(out.strip().splitlines()[-1])
    assert differences(FROZEN, folder, resampled=0.0) == []
