"""The integrity check: any byte that changes, anywhere, is found and named; nothing else is."""

import os
import shutil
from pathlib import Path

import pytest

from pessimal.tracking.registry import Registry, damages


def write(folder):
    (folder / "sub").mkdir()
    (folder / "sub/half \ud800.bin".encode("utf-8", "backslashreplace").decode()).write_bytes(
        b"\0\xff=cmd()"
    )
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
    assert wrong(registry) == []
