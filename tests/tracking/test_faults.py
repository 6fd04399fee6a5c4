"""Whatever W&B does, results stay and a task is not held up: each fault with the real client and a real clock."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_wandb.server import FakeWandb, Fault

from pessimal.tracking import mirror as mirror_module
from pessimal.tracking.mirror import open_mirror

HELD_UP = 15.0
"""Seconds that a task may be held up beyond its own work."""


@pytest.fixture
def options(tmp_path):
    return {
        "folder": tmp_path / "wandb", "project": "p", "entity": None, "group": None, "tags": [],
        "job_type": "scan", "name": "scan m", "config": {},
    }  # fmt: skip


def _task(publish, options, *, meanwhile=lambda: None):
    """A task that publishes two artifacts, with `meanwhile` between them; returns the seconds it was held up and its run."""
    begin, own = time.monotonic(), 0.0
    with open_mirror(mode="online", **options) as mirror:
        for name in ("m--greatest", "m--worst"):
            mirror.summary({f"{name}/mean": 1.0})
            mirror.artifact(*publish(name=name, run_id=mirror.run_id), {})
            since = time.monotonic()
            meanwhile()
            own += time.monotonic() - since
    return time.monotonic() - begin - own, mirror


def _recovers(options, mirror, monkeypatch, tmp_path):
    """Do what the warning says, with a server that is well: whether the run is whole there then."""
    well = FakeWandb()
    try:
        folder = next((options["folder"] / "wandb").glob(f"offline-run-*-{mirror.run_id}"))
        environment = os.environ | {
            "WANDB_BASE_URL": well.url,
            "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567",
        }
        command = [sys.executable, "-m", "wandb", "sync", str(folder)]
        subprocess.run(command, check=True, cwd=tmp_path, env=environment, capture_output=True)
        project = well.world.projects["lab", "p"]
        artifacts = [project.find(f"{name}:registry-v0") for name in ("m--greatest", "m--worst")]
        return mirror.run_id in project.runs and all(
            a is not None and a.state == "COMMITTED" for a in artifacts
        )
    finally:
        well.stop()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("unreachable", "cannot be reached"),
        ("wrong key", "does not know this API key"),
        ("answers 500", "answers HTTP 500"),
        ("silent", "cannot be reached"),
        ("dies", "did not finish within"),
        ("storage fails", "did not finish within"),
    ],
)
def test_fault_costs_neither_results_nor_time(
    fake, registry, publish, options, warnings, monkeypatch, tmp_path, fault, said
):
    meanwhile = lambda: None  # noqa: E731
    if fault == "unreachable":
        fake.stop()
    elif fault == "wrong key":
        monkeypatch.setenv("WANDB_API_KEY", "f" * 40)
    elif fault == "answers 500":
        fake.faults["*"] = Fault(status=500)
    elif fault == "silent":
        fake.faults["*"] = Fault(delay=60)
    elif fault == "storage fails":
        fake.faults["storage"] = Fault(status=500)
    else:

        def meanwhile():
            time.sleep(1.5)
            with contextlib.suppress(OSError):
                fake.stop()

    seconds, mirror = _task(publish, options, meanwhile=meanwhile)
    assert seconds < HELD_UP, fault
    assert len(warnings()) == 1, "reported once"
    assert said in warnings()[0]
    assert "wandb sync" in warnings()[0]
    assert [m.name for _, m in registry.manifests()] == ["m--greatest", "m--worst"]
    for folder, _ in registry.manifests():
        registry.verify(folder)
    assert _recovers(options, mirror, monkeypatch, tmp_path)


def test_slow_server_gets_everything_in_its_own_time(fake, publish, options, warnings):
    fake.faults["graphql"] = Fault(delay=0.3)
    seconds, _ = _task(publish, options)
    assert seconds < HELD_UP
    assert warnings() == []
    assert fake.world.projects["lab", "p"].find("m--worst:latest").state == "COMMITTED"


def test_artifact_that_does_not_arrive_is_reported_though_sync_is_content(fake, publish, options, warnings):
    fake.faults["CommitArtifact"] = Fault(status=403)
    _task(publish, options)
    assert len(warnings()) == 1
    assert "did not arrive: m--greatest, m--worst" in warnings()[0]


def test_client_that_hangs_or_fails_in_the_middle_is_asked_only_so_long(
    publish, options, warnings, monkeypatch, registry
):
    monkeypatch.setattr(mirror_module, "PATIENCE", 1.0)
    monkeypatch.setattr(mirror_module, "as_artifact", lambda *arguments: time.sleep(60))
    with open_mirror(mode="offline", **options) as mirror:
        begin = time.monotonic()
        for name in ("a", "b", "c", "d"):
            mirror.artifact(*publish(name=name), {})
        assert time.monotonic() - begin < 4
    assert len(warnings()) == 1
    assert "pessimal push" in warnings()[0]
    assert len(registry.manifests()) == 4


def test_full_disk_of_wandb_costs_the_mirror_only(
    publish, options, warnings, registry, tmp_path, monkeypatch
):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.mkdir", full)
        with open_mirror(mode="offline", **options) as mirror:
            assert mirror.run_id is None
    assert len(warnings()) == 1
    assert "No space left" in warnings()[0]

    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(small)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no tiny disk can be mounted here; the first half was tested")
    try:
        begin = time.monotonic()
        with open_mirror(mode="offline", **options | {"folder": small / "wandb"}) as mirror:
            for number in range(3):
                mirror.metrics({"loss": 1.0, "note": "x" * 200_000})
                mirror.artifact(*publish(name=f"m{number}"), {})
        assert time.monotonic() - begin < HELD_UP
        assert len(registry.manifests()) == 3
        assert "is full" in warnings()[-1]
        assert "pessimal push" in warnings()[-1]
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_two_runs_at_once_do_not_mix(fake, publish, options, warnings, tmp_path):
    script = tmp_path / "task.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\n"
        "from pessimal.tracking.mirror import open_mirror\nfrom pessimal.tracking.registry import Registry\n"
        "if __name__ == '__main__':\n"
        "    name, root = sys.argv[1:]\n"
        "    registry = Registry(Path(root) / 'registry')\n"
        "    with open_mirror(mode='online', folder=Path(root) / 'wandb', project='p', entity=None, group=None, tags=[],\n"
        "                     job_type='scan', name=name, config={}) as mirror:\n"
        "        mirror.summary({'mine': name})\n"
        "        fill = lambda folder: (folder / 'a.txt').write_text(name)\n"
        "        folder, manifest = registry.publish('score-table', name, fill, run_id=mirror.run_id)\n"
        "        mirror.artifact(folder, manifest, {})\n"
    )
    command = [sys.executable, str(script)]
    both = [
        subprocess.Popen([*command, name, str(tmp_path)], stderr=subprocess.PIPE) for name in ("one", "two")
    ]
    for process in both:
        _, said = process.communicate(timeout=40)
        assert process.returncode == 0, said
    project = fake.world.projects["lab", "p"]
    for name in ("one", "two"):
        artifact = project.find(f"{name}:registry-v0")
        run = project.runs[artifact.created_by]
        assert run.fields["displayName"] == name
        assert f'"mine":"{name}"' in run.lines("wandb-summary.json")[-1]


def test_killed_task_leaves_no_upload_behind(fake, tmp_path):
    script = tmp_path / "task.py"
    script.write_text(
        "import os, time\nfrom pathlib import Path\nfrom pessimal.tracking.mirror import open_mirror\n"
        "with open_mirror(mode='online', folder=Path('wandb').resolve(), project='p', entity=None, group=None, tags=[],\n"
        "                 job_type='scan', name='n', config={}) as mirror:\n"
        "    print(mirror._uploader._process.pid, flush=True)\n    time.sleep(3)\n    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=40
    )
    child = Path(f"/proc/{done.stdout.strip()}")
    if not Path("/proc/self").exists():
        pytest.skip("processes cannot be looked up here")
    until = time.monotonic() + 10
    while child.exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert not child.exists()
