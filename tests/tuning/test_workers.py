"""Workers as real processes: they share a study without doing anything twice, and take over from one that is killed."""

import collections
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

HERE = Path(__file__).parent


@pytest.fixture
def start(tmp_path):
    """Start a worker; whatever is left of it is killed in the end."""
    running = []

    def begin(name, storage, total, *more):
        command = [sys.executable, str(HERE / "worker.py"), name, storage, str(total), *more]
        running.append(subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True))
        return running[-1]

    yield begin
    for worker in running:
        worker.kill()
        worker.wait()
        worker.stderr.close()


def ended(worker):
    _, said = worker.communicate(timeout=120)
    assert worker.returncode == 0, said


def until(happened, worker):
    """Wait for something that this worker is to do."""
    deadline = time.monotonic() + 60
    while not happened():
        assert worker.poll() is None, worker.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def trials(storage):
    from pessimal.tuning.storage import Storage

    return optuna.load_study(study_name="shared", storage=Storage.of(storage).open()).trials


def test_two_workers_share_a_total(start, storage, tmp_path):
    for worker in [start("a", storage, 7), start("b", storage, 7)]:
        ended(worker)
    done = trials(storage)
    assert [trial.state.is_finished() for trial in done] == [True] * 7
    assert all(trial.state is not TrialState.FAIL for trial in done)
    started = (tmp_path / "started.txt").read_text().split("\n")[:-1]
    assert len(started) == 7
    assert len({line.split()[1] for line in started}) == 7, "no trial was run twice"
    assert len({line.split()[0] for line in started}) == 2, "both had some"


def test_a_killed_workers_trial_is_run_again_by_the_other(start, storage, tmp_path):
    killed = start("killed", storage, 6, "hang=1")
    until((tmp_path / "hanging").exists, killed)
    other = start("other", storage, 6)
    # The other worker runs what is left, and then waits: whoever hangs is alive.
    until(lambda: sum(trial.state.is_finished() for trial in trials(storage)) == 5, other)
    time.sleep(1.0)
    assert other.poll() is None
    assert trials(storage)[1].state is TrialState.RUNNING
    os.kill(killed.pid, signal.SIGKILL)
    ended(other)
    done = trials(storage)
    counts = collections.Counter(trial.state for trial in done)
    assert counts == {TrialState.COMPLETE: counts[TrialState.COMPLETE], TrialState.PRUNED: counts[TrialState.PRUNED], TrialState.FAIL: 1}  # fmt: skip
    assert counts[TrialState.COMPLETE] + counts[TrialState.PRUNED] == 6
    assert done[1].state is TrialState.FAIL
    [again] = [trial for trial in done if trial.system_attrs.get("failed_trial") == 1]
    assert again.params == done[1].params
    assert again.state is not TrialState.FAIL


def test_a_killed_workers_trial_is_run_again_when_the_command_is_given_again(start, tmp_path):
    storage = str(tmp_path / "s.log")
    killed = start("killed", storage, 3, "hang=0")
    until((tmp_path / "hanging").exists, killed)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    ended(start("again", storage, 3))
    done = trials(storage)
    assert [trial.state.name for trial in done] == ["FAIL", "COMPLETE", "COMPLETE", "COMPLETE"]
    assert done[0].user_attrs["error"] == "its worker died"
    assert "defaults" in done[1].user_attrs, "the defaults were killed, and are the first again"
    assert done[1].params == done[0].params
