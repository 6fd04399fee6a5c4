"""Which code made a result: the commit and whether it was changed, in manifests and score tables,
outside every key."""

import subprocess

import pytest

from pessimal.tracking.registry import Checkout, checkout


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
