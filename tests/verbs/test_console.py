"""What stands on the console: progress, an ending of few lines, the path last; libraries write to
the log file."""

import logging
import time
from pathlib import Path

import pandas as pd
import pytest

from pessimal import progress
from pessimal.texts import significant

SCAN = ("scan", "model=auto", "tracking=off", "progress=false", "trainer.threads=1")


@pytest.fixture
def scan(command, tiny_checkpoint):
    return lambda *more: command(*SCAN, f"model.path={tiny_checkpoint}", *more)


def test_a_scan_ends_with_both_ends_certified_and_the_path_last(scan):
    code, out, err = scan("prompts=greatest")
    assert code == 0, err
    [path] = out.splitlines()
    rows = pd.read_parquet(path)
    lines = err.splitlines()[-10:]
    best, worst = rows["reward"].nlargest(10), rows["reward"].nsmallest(10)
    for line, high, low in zip(lines, best, worst, strict=True):
        assert significant(high) in line
        assert significant(low) in line
    assert (
        sum(line.count("✓") for line in lines)
        == rows.loc[[*best.index, *worst.index], "certified"].sum()
    )
    assert "GPU available" not in err
    [log] = Path("runs/scan").glob("*/scan.log")
    assert "pytorch_lightning" in log.read_text()
    assert len(err.splitlines()) + len(out.splitlines()) <= 15
    again = scan("prompts=greatest")
    assert again[1] == out


def test_work_that_nothing_counts_is_not_silent(monkeypatch, caplog):
    monkeypatch.setattr(progress, "EVERY", 0.02)
    with caplog.at_level(logging.INFO), progress.working("loading x, 3 GB"):
        assert caplog.messages == ["loading x, 3 GB"]
        time.sleep(0.2)
    said = len(caplog.messages)
    assert said > 2
    with progress.working("what is quick", after=5):
        pass
    time.sleep(0.1)
    assert len(caplog.messages) == said, "it ends with the work"
    with progress.counted("first", unit="edits", total=100) as counter:
        assert counter.left is None
        counter.advance(1)
        assert counter.left is not None, "after the first batch"
