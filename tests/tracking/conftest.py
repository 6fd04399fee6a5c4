"""A fake W&B server, a client that knows it, and a small registry with hostile texts."""

import logging

import pytest
from fake_wandb.server import KEY, FakeWandb

from pessimal.tracking.registry import Registry

HOSTILE = "\ud800<script>alert(1)</script>\0=cmd()|' /C calc'!A0 \N{PILE OF POO}"


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """A server of its own for each test; no other can be reached by the client."""
    server = FakeWandb()
    monkeypatch.setenv("WANDB_BASE_URL", server.url)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    for variable in (
        "WANDB_DIR",
        "WANDB_DATA_DIR",
        "WANDB_CACHE_DIR",
        "WANDB_SILENT",
    ):  # the package sets these
        monkeypatch.setenv(variable, str(tmp_path) if variable != "WANDB_SILENT" else "true")
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    yield server
    server.stop()
    assert not server.unknown, "the fake had no answer"


@pytest.fixture
def registry(tmp_path) -> Registry:
    return Registry(tmp_path / "registry")


@pytest.fixture
def publish(registry):
    """Publish an artifact with a file in a folder; `text` is in the file and in the summary."""

    def make(type="score-table", name="m--greatest", *, text=HOSTILE, inputs=(), run_id=None, **summary):
        def fill(folder):
            (folder / "deep").mkdir()
            (folder / "deep" / "scores.txt").write_bytes(text.encode("utf-8", "surrogatepass"))

        about = {"model": "m", "prompt": "greatest", "optimal": text} | summary
        return registry.publish(
            type, name, fill, key=f"key of {text}", inputs=list(inputs), run_id=run_id, summary=about
        )

    return make


@pytest.fixture
def warnings(caplog):
    """What the user was warned of so far."""
    caplog.set_level(logging.INFO)
    return lambda: [
        r.getMessage()
        for r in caplog.records
        if r.levelno >= logging.WARNING and r.name.startswith("pessimal")
    ]
