"""Graders that do no harm, called where the test runs."""

import pytest

from pessimal.checking import grading, workers


@pytest.fixture
def called_here(monkeypatch):
    """Let a census call a grader in this process: processes and their limits, which take most of
    the time, are tried in `test_workers.py` and on graders that do harm."""

    def answered(function, jobs, **limits):
        for job in jobs:
            yield job, function(job.task, job.strings)

    monkeypatch.setattr(grading, "answered", answered)


@pytest.fixture
def called_elsewhere(called_here, monkeypatch):
    """For a grader that runs code, some of which never ends: processes all the same."""
    monkeypatch.setattr(grading, "answered", workers.answered)
