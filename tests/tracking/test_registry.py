"""The registry: whole artifacts or none, versions in order, also with many writers."""

import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pessimal.errors import InputError
from pessimal.tracking.registry import Registry


def write(text):
    return lambda folder: (folder / "a.txt").write_text(text)


def test_published_artifact_is_found_by_its_key(tmp_path):
    registry = Registry(tmp_path)
    folder, manifest = registry.publish(
        "score-table", "m--greatest", write("one"), key="k1", inputs=["reward-model/m:v0"]
    )
    assert (folder / "a.txt").read_text() == "one"
    assert manifest.reference == "score-table/m--greatest:v0"
    assert registry.find("score-table", "k1") == (folder, manifest)
    assert registry.find("score-table", "k2") is None
    assert registry.find("comparison", "k1") is None
    second, _ = registry.publish("score-table", "m--greatest", write("two"), key="k2")
    assert second.name == "v1"
    assert [m.version for _, m in registry.latest("score-table")] == [1]
    assert (folder / "a.txt").read_text() == "one", "earlier versions stay"


def test_a_file_that_was_edited_or_removed_is_named(tmp_path):
    registry = Registry(tmp_path)
    folder, _ = registry.publish("report", "r", write("one"))
    registry.verify(folder)
    write("two")(folder)
    with pytest.raises(InputError, match=r"a\.txt is missing or differs from .* report/r:v0"):
        registry.verify(folder)
    (folder / "a.txt").unlink()
    with pytest.raises(InputError, match=r"a\.txt is missing or differs"):
        registry.verify(folder)


def test_versions_go_on_from_the_highest_and_the_newest_of_a_key_is_found(tmp_path):
    registry = Registry(tmp_path)
    for number in range(11):
        registry.publish("report", "r", write(str(number)), key="k")
    shutil.rmtree(tmp_path / "report" / "r" / "v0")
    folder, manifest = registry.publish("report", "r", write("11"), key="k")
    assert manifest.version == 11
    assert registry.find("report", "k") == (folder, manifest)
    assert (tmp_path / "report" / "r" / "v10" / "a.txt").read_text() == "10"


def test_writers_at_once_take_versions_in_turn(tmp_path, monkeypatch):
    rename = os.rename

    def late(source, target):
        time.sleep(0.05)  # whoever is not kept out by now has seen the same versions
        rename(source, target)

    monkeypatch.setattr(os, "rename", late)
    with ThreadPoolExecutor(4) as pool:
        made = list(
            pool.map(
                lambda n: Registry(tmp_path).publish("report", "r", write(str(n)))[1], range(4)
            )
        )
    assert sorted(m.version for m in made) == [0, 1, 2, 3]
    assert [m.version for _, m in Registry(tmp_path).manifests()] == [0, 1, 2, 3]


def test_what_a_process_published_as_it_died_is_whole(tmp_path, monkeypatch):
    rename = os.rename

    def last(source, target):
        rename(source, target)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", last)
        with pytest.raises(KeyboardInterrupt):
            Registry(tmp_path).publish("report", "r", write("one"), key="k")
    folder, manifest = Registry(tmp_path).find("report", "k")
    assert list(manifest.files) == ["a.txt"]
    Registry(tmp_path).verify(folder)


def test_artifact_whose_manifest_is_not_what_was_published_is_left_out_with_a_warning(
    tmp_path, caplog
):
    registry = Registry(tmp_path)
    folder, _ = registry.publish("report", "r", write("0"), summary={"figure": 1.5})
    registry.publish("report", "sound", write("1"))
    published = (folder / "manifest.json").read_text()
    for damaged in (
        "{",
        "[]",
        '{"type": "report"}',
        published.replace('"r"', '"s"'),
        published.replace("1.5", "1.6"),
    ):
        assert damaged != published
        (folder / "manifest.json").write_text(damaged)
        caplog.clear()
        assert [m.name for _, m in Registry(tmp_path).manifests()] == ["sound"]
        assert str(folder) in caplog.text
        assert "pessimal runs verify" in caplog.text


@pytest.mark.parametrize("name", ["manifest.json", "run_config.json"])
def test_files_of_the_registrys_own_names_are_refused(tmp_path, name):
    registry = Registry(tmp_path, config={})
    with pytest.raises(ValueError, match=name):
        registry.publish("report", "r", lambda folder: (folder / name).write_text("{}"))
    assert registry.manifests() == []


KILLED = """
import os, signal, sys
from pathlib import Path
from pessimal.tracking.registry import Registry

def fill(folder):
    (folder / "half.txt").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)

Registry(Path(sys.argv[1])).publish("report", "r", fill)
"""


def test_what_a_killed_process_was_filling_is_removed_by_the_next_that_publishes(tmp_path):
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)])
    assert killed.returncode == -signal.SIGKILL
    assert len(list(tmp_path.rglob("half.txt"))) == 1
    assert Registry(tmp_path).manifests() == [], "nobody sees it"
    folder, _ = Registry(tmp_path).publish("report", "r", write("whole"))
    assert [p.name for p in folder.parent.iterdir()] == ["v0"]
    assert sorted(p.name for p in tmp_path.iterdir()) == [".lock", "report"]


def test_what_a_living_process_is_filling_is_left_alone(tmp_path):
    registry = Registry(tmp_path)

    def fill(folder):
        (folder / "half.txt").write_text("half")
        Registry(tmp_path).publish("report", "r", write("of another, meanwhile"))
        assert (folder / "half.txt").read_text() == "half"

    _, manifest = registry.publish("report", "r", fill)
    assert manifest.version == 1
    assert manifest.files.keys() == {"half.txt"}


def test_failure_while_filling_leaves_nothing_and_says_what_was_being_published(tmp_path):
    def full(folder):
        (folder / "half.txt").write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left") as caught:
        Registry(tmp_path).publish("report", "r", full)
    assert caught.value.filename == str(tmp_path / "report/r")
    assert list((tmp_path / "report/r").iterdir()) == []


def test_an_artifact_is_named_by_its_folder_or_name_among_the_types_that_are_looked_at(tmp_path):
    registry = Registry(tmp_path / "registry")
    old, new, page = (
        registry.publish(type, "m", write(text))
        for type, text in (("audit", "old"), ("audit", "new"), ("report", "page"))
    )
    assert registry.artifact(str(old[0])) == old
    assert registry.artifact("audit/m/v0") == old
    assert registry.artifact("m", "audit") == new
    assert registry.artifact("m", "report", "comparison") == page
    assert registry.choose("audit", ["m", str(old[0]), "m:v0"]) == [old, new]
    assert registry.choose("audit", ["all"]) == [new]
    with pytest.raises(InputError, match="audit/m:v1, report/m:v0"):
        registry.artifact("m")
    for name in ("n", "m:v2", "x" * 5000, str(tmp_path), "\0"):
        with pytest.raises(InputError, match="there is no artifact"):
            registry.artifact(name, "audit")
