"""A small W&B server, a client that knows it, a registry with hostile texts, and what a
recorded run holds."""

import logging
import time

import pytest
from small_wandb import KEY, SmallWandb

from pessimal.tracking.mirror import Target, open_mirror, release
from pessimal.tracking.registry import Registry
from recorded_runs import run_records

HOSTILE = "\ud800<script>alert(1)</script>\0=cmd()|' /C calc'!A0 \N{PILE OF POO}"


@pytest.fixture
def server(monkeypatch, tmp_path):
    """A server of its own for each test; no other can be reached by the client."""
    small = SmallWandb()
    monkeypatch.setenv("WANDB_BASE_URL", small.url)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    for variable in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR"):  # the package sets these
        monkeypatch.setenv(variable, str(tmp_path / "data"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    release()  # it reads its variables once
    yield small
    small.stop()
    release()


@pytest.fixture
def registry(tmp_path) -> Registry:
    return Registry(tmp_path / "registry")


VERBS = {
    "score-table": "scan",
    "comparison": "compare",
    "report": "report",
    "search-result": "search",
}


@pytest.fixture
def publish(registry):
    """Publish an artifact with a file in a folder; `text` is in the file and in the summary."""

    def make(
        type="score-table", name="m--greatest", *, text=HOSTILE, inputs=(), run_id=None, **summary
    ):
        def fill(folder):
            (folder / "deep").mkdir()
            (folder / "deep" / "scores.txt").write_bytes(text.encode("utf-8", "surrogatepass"))

        about = {"model": "m", "prompt": "greatest", "optimal": text} | summary
        return Registry(registry.root, config={"task": VERBS[type], "batch": 7}).publish(
            type,
            name,
            fill,
            key=f"key of {text}",
            inputs=list(inputs),
            run_id=run_id,
            summary=about,
        )

    return make


@pytest.fixture
def target(tmp_path) -> Target:
    return Target(project="p", folder=tmp_path / "wandb", group="study", tags=["t"])


@pytest.fixture
def task(target):
    """The W&B run of a scan; options as `open_mirror` has them."""

    def begin(**options):
        about = {"mode": "offline", "job_type": "scan", "name": "scan m", "config": {}} | options
        return open_mirror(about.pop("target", target), **about)

    return begin


@pytest.fixture
def warnings(caplog):
    """What the user was warned of so far."""
    caplog.set_level(logging.INFO)
    return lambda: [
        r.getMessage()
        for r in caplog.records
        if r.levelno >= logging.WARNING and r.name.startswith("pessimal")
    ]


@pytest.fixture
def recorded(target):
    """Records of the run of an id as it lies on the disk, by kind."""

    def read(run_id: str) -> dict[str, list]:
        [file] = (target.folder / "wandb").glob(f"*run-*-{run_id}/*.wandb")
        for _ in range(600):  # a finished run reaches the disk a moment later
            if "exit" in (found := run_records(file)):
                return found
            time.sleep(0.05)
        raise AssertionError(f"{file} was not finished")

    return read
