"""Which code made a result: the commit and whether it was changed, in manifests and score tables,
outside every key."""

import json
import subprocess
from dataclasses import replace

import pytest

from artifacts import score_table
from pessimal.tables import read_score_table, write_score_table
from pessimal.tracking.registry import Checkout, Registry, checkout, damages


@pytest.fixture
def package(tmp_path):
    """A package in a checkout, as `src/pessimal` is in its own."""
    folder = tmp_path / "checkout/src/package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (tmp_path / "checkout/.gitignore").write_text("env\n")
    git = ["git", "-C", str(tmp_path / "checkout"), "-c", "user.name=n", "-c", "user.email=e"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    return folder


def test_commit_and_changes_of_the_package_are_seen(package, monkeypatch):
    commit, dirty = checkout.__wrapped__(package)
    assert len(commit) == 40
    assert dirty is False
    (package.parents[1] / "notes.txt").write_text("not code")
    assert checkout.__wrapped__(package).dirty is False
    (package / "new.py").touch()
    assert checkout.__wrapped__(package) == (commit, True), "a new file is code too"
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert checkout.__wrapped__(package).commit == commit, (
        "a hook's variables are another repository's"
    )


def test_wheel_in_an_environment_in_somebodys_checkout_is_of_no_commit(package, monkeypatch):
    wheel = package.parents[1] / "env/package"
    wheel.mkdir(parents=True)
    (wheel / "__init__.py").touch()
    assert checkout.__wrapped__(wheel) == Checkout(None, None)
    monkeypatch.setenv("PATH", "")
    assert checkout.__wrapped__(package) == Checkout(None, None), "no git"


def test_manifest_says_it_and_one_of_before_there_were_commits_stays_sound(
    registry, publish, monkeypatch
):
    monkeypatch.setattr("pessimal.tracking.registry.checkout", lambda: Checkout(None, None))
    old, _ = publish(name="old")
    assert "commit" not in json.loads((old / "manifest.json").read_text())
    monkeypatch.setattr("pessimal.tracking.registry.checkout", lambda: Checkout("c" * 40, True))
    new, manifest = publish(name="new")
    assert (manifest.commit, manifest.dirty) == ("c" * 40, True)
    assert json.loads((new / "manifest.json").read_text())["commit"] == "c" * 40
    assert [m.commit for _, m in Registry(registry.root).manifests()] == ["c" * 40, None]
    assert list(damages(registry)) == []


def test_score_table_says_it_outside_its_key(tmp_path):
    table = score_table(["a", "b"], [1.0, 2.0])
    coded = replace(table, code={"commit": "c", "dirty": False})
    assert table.provenance.key() == coded.provenance.key()
    assert read_score_table(write_score_table(coded, tmp_path / "b.parquet")).code == {
        "commit": "c",
        "dirty": False,
    }
    plain = write_score_table(table, tmp_path / "a.parquet")
    assert b'"code"' not in plain.read_bytes(), "as before there were commits"
    assert read_score_table(plain).code == {}
