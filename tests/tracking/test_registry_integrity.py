"""The integrity check: any byte that changes, anywhere, is found and named; nothing else is."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pessimal.tracking.integrity import damages
from pessimal.tracking.registry import Registry


def write(folder):
    (folder / "sub").mkdir()
    (folder / "sub/half \ud800.bin".encode("utf-8", "backslashreplace").decode()).write_bytes(b"\0\xff=cmd()")
    (folder / "empty.txt").touch()
    (folder / "a.txt").write_text("what was published")


@pytest.fixture
def registry(tmp_path) -> Registry:
    registry = Registry(tmp_path / "registry", config={"n": 1})
    for name in ("first", "second"):
        registry.publish("report", name, write, inputs=["score-table/x:v0"], summary={"mean": 0.25})
    return registry


def wrong(registry: Registry) -> list[tuple[str, str]]:
    return [(damage.where, damage.what) for damage in damages(registry)]


def flip(file: Path, position: int) -> bytes:
    whole = file.read_bytes()
    data = bytearray(whole)
    data[position] ^= 0x10
    file.write_bytes(bytes(data))
    return whole


def test_flipped_byte_in_any_file_is_found(registry):
    for file in sorted(registry.root.glob("report/first/v0/**/*")):
        if not file.is_file() or not file.stat().st_size or file.name == "manifest.json":
            continue
        for position in (0, file.stat().st_size - 1):
            whole = flip(file, position)
            ((where, what),) = wrong(registry)
            assert where == file.relative_to(registry.root).as_posix()
            assert what == "differs from what was published"
            file.write_bytes(whole)
    checked = []
    assert list(damages(registry, checked=checked.append)) == []
    assert checked == [4, 4]


def test_flipped_byte_anywhere_in_a_manifest_is_found(registry):
    file = registry.root / "report/first/v0/manifest.json"
    for position in range(0, file.stat().st_size, 5):
        whole = flip(file, position)
        found = wrong(registry)
        assert [where for where, _ in found] == ["report/first/v0/manifest.json"], (position, found)
        file.write_bytes(whole)
    assert wrong(registry) == []


def test_changed_figure_of_a_manifest_is_named(registry):
    file = registry.root / "report/first/v0/manifest.json"
    file.write_text(file.read_text().replace("0.25", "0.35"))
    assert wrong(registry) == [("report/first/v0/manifest.json", "differs from index.jsonl in summary")]
    Registry(registry.root).manifests()
    assert len(wrong(registry)) == 1, "listing does not make it sound"


def test_flipped_byte_anywhere_in_the_index_is_found(registry):
    file = registry.root / "index.jsonl"
    for position in range(0, file.stat().st_size, 7):
        whole = flip(file, position)
        found = [where for where, _ in wrong(registry)]
        assert found, position
        assert set(found) == {"index.jsonl"}
        file.write_bytes(whole)
    assert wrong(registry) == []


def test_line_that_is_no_line_is_damaged(registry):
    index = registry.root / "index.jsonl"
    for damaged in ("[]", "1", "{}", '{"path": "report/first/v0", "other": 1}', "null", ""):
        index.write_text(damaged + "\n")
        assert [where for where, _ in wrong(registry)] == ["index.jsonl"]


def test_missing_and_added_files_are_found(registry):
    folder = registry.root / "report/first/v0"
    (folder / "a.txt").unlink()
    (folder / "sub/new.txt").write_text("new")
    (folder / "empty.txt").unlink()
    (folder / "empty.txt").mkdir()
    os.symlink("/", folder / "link")
    (registry.root / "report/notes.txt").write_text("mine")
    (registry.root / "report/second/vX").mkdir()
    assert wrong(registry) == [
        ("report/notes.txt", "is no part of any artifact"),
        ("report/second/vX", "is no part of any artifact"),
        ("report/first/v0/a.txt", "is missing"),
        ("report/first/v0/empty.txt", "is missing"),
        ("report/first/v0/link", "was not published with the artifact"),
        ("report/first/v0/sub/new.txt", "was not published with the artifact"),
    ]


def test_missing_manifest_and_missing_artifact_are_found(registry):
    (registry.root / "report/first/v0/manifest.json").unlink()
    shutil.rmtree(registry.root / "report/second")
    assert wrong(registry) == [
        ("report/first/v0/manifest.json", "is missing"),
        ("report/second/v0", "the index lists it, but there is no such folder"),
    ]
    assert [m.name for _, m in registry.manifests()] == ["first"], "listed as the index knows it"


def test_copied_artifact_is_no_second_one(registry):
    shutil.copytree(registry.root / "report/first/v0", registry.root / "report/first/v1")
    assert [m.reference for _, m in registry.manifests()] == ["report/first:v0", "report/second:v0"]
    ((where, what),) = wrong(registry)
    assert where == "report/first/v1/manifest.json"
    assert "report/first:v0" in what


def test_what_is_being_filled_or_was_left_by_a_kill_is_no_damage(registry):
    def fill(folder):
        (folder / "half.txt").write_text("half")
        assert wrong(registry) == []

    registry.publish("report", "first", fill)
    (registry.root / "report/first/.staging-abc").mkdir()
    (registry.root / ".index.jsonl-abc").touch()
    assert wrong(registry) == []


def test_only_some_artifacts_can_be_asked_for(registry):
    for name in ("first", "second"):
        (registry.root / f"report/{name}/v0/a.txt").write_text("other")
    found = [d.where for d in damages(registry, only=[registry.root / "report/second/v0"])]
    assert found == ["report/second/v0/a.txt"]


@pytest.fixture
def read_only(registry, tmp_path):
    """The registry on a file system that is mounted read-only; skipped where nothing may be mounted."""
    place = tmp_path / "read-only"
    place.mkdir()
    for command in (
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)],
        ["cp", "-r", str(registry.root), str(place / "registry")],
        ["mount", "-o", "remount,ro", str(place)],
    ):
        if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
            subprocess.run(["umount", "-l", str(place)], capture_output=True)
            pytest.skip("this user may not mount a file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_registry_on_a_read_only_file_system_is_read_and_checked(read_only, command):
    registry = Registry(read_only / "registry")
    with pytest.raises(OSError, match="Read-only"):
        registry.publish("report", "third", write)
    assert [m.name for _, m in registry.manifests()] == ["first", "second"]
    assert wrong(registry) == []
    code, out, err = command("runs", f"paths.root={read_only}", "format=json")
    assert (code, [one["name"] for one in json.loads(out)]) == (0, ["first", "second"]), err
    assert command("runs", "verify", f"paths.root={read_only}")[0] == 0
