"""`pessimal.read` and `pessimal.save`: score tables and results in files."""

from collections.abc import Sequence
from pathlib import Path

from pessimal.errors import InputError
from pessimal.tables import ScoreTable, read_score_table
from pessimal.tables.result import Result
from pessimal.tables.score_table import write_score_table


def read(path: str | Path) -> ScoreTable:
    """A score table of a file or an artifact's folder."""
    return read_score_table(Path(path).expanduser())


def save(results: Sequence[Result] | ScoreTable, folder: str | Path) -> Path:
    """Write `tables/*.parquet`, `figures/*.svg` and `results.json`, as artifacts have them, or a
    score table's `scores.parquet`, which `read` reads; returns the folder.

    Raises:
        InputError: there is something in the folder already.
    """
    from pessimal.report.write import write_results  # which loads Matplotlib

    folder = Path(folder).expanduser()
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty; give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(results, ScoreTable):
        write_score_table(results, folder / "scores.parquet")
    else:
        write_results(results, folder, skipped=getattr(results, "skipped", {}))
    return folder
