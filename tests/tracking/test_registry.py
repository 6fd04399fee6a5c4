"""The registry: whole artifacts or none, versions in order, also with many writers."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pessimal.tracking.registry import Registry, safe_name


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
        made = list(pool.map(lambda n: Registry(tmp_path).publish("report", "r", write(str(n)))[1], range(4)))
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


def test_index_with_a_damaged_line_is_mended(tmp_path):
    registry = Registry(tmp_path)
    for i in range(3):
        registry.publish("report", f"r{i}", write(str(i)), summary={"figure": 1.5})
    index = tmp_path / "index.jsonl"
    whole = index.read_text()
    for damaged in (
        whole.replace("1.5", "1.6", 1),  # still JSON, and would be listed as a figure
        whole.replace("checksum", "checksun", 1),
        whole.replace('"r1"', '"r2"', 1),
        whole + whole.splitlines()[0] + "\n",
        "\n".join(reversed(whole.splitlines())) + "\n",
        re.sub(r', "checksum": "\w+"', "", whole),  # as it was before there were checksums
        "",
        whole[:-30],  # torn
        whole.splitlines()[0] + "\n",  # a process died between the rename and the index
        "\0" * 50,
    ):
        assert damaged != whole
        index.write_text(damaged)
        assert [m.summary["figure"] for _, m in Registry(tmp_path).manifests()] == [1.5] * 3
        assert index.read_text() == whole
    index.unlink()
    assert len(Registry(tmp_path).manifests()) == 3
    assert index.read_text() == whole


def test_damaged_manifest_does_not_change_what_the_index_recorded(tmp_path):
    registry = Registry(tmp_path)
    folder, manifest = registry.publish("report", "r", write("0"), summary={"figure": 1.5})
    (folder / "manifest.json").write_text((folder / "manifest.json").read_text().replace("1.5", "1.6"))
    registry.publish("report", "another", write("1"))
    assert {m.name: m for _, m in registry.manifests()}["r"] == manifest


def test_artifact_without_a_readable_manifest_is_left_out_with_a_warning(tmp_path, caplog):
    registry = Registry(tmp_path)
    folder, _ = registry.publish("report", "r", write("0"))
    registry.publish("report", "sound", write("1"))
    for damaged in (
        "{",
        "[]",
        '{"type": "report"}',
        (folder / "manifest.json").read_text().replace('"r"', '"s"'),
    ):
        (folder / "manifest.json").write_text(damaged)
        (tmp_path / "index.jsonl").unlink()
        caplog.clear()
        assert [m.name for _, m in Registry(tmp_path).manifests()] == ["sound"]
        assert str(folder) in caplog.text
        assert "pessimal runs verify" in caplog.text


def test_what_takes_a_removed_artifacts_version_is_listed_as_itself(tmp_path):
    registry = Registry(tmp_path)
    folder, _ = registry.publish("report", "r", write("old"), key="old")
    shutil.rmtree(folder)
    again, manifest = registry.publish("report", "r", write("new"), key="new")
    assert again == folder
    assert registry.find("report", "new") == (again, manifest)
    assert registry.find("report", "old") is None
    shutil.rmtree(folder)
    assert registry.manifests() == []


def test_configuration_of_the_run_is_kept_beside_the_files(tmp_path):
    asked = {"model": {"name": "\ud800 <script>"}, "n": 3}
    folder, manifest = Registry(tmp_path, config=asked).publish("report", "r", write("0"))
    assert json.loads((folder / "run_config.json").read_text()) == asked
    assert manifest.files.keys() == {"a.txt", "run_config.json"}
    folder, _ = Registry(tmp_path, config=asked).publish("report", "r", write("0"), config={"n": 4})
    assert json.loads((folder / "run_config.json").read_text()) == {"n": 4}
    folder, manifest = Registry(tmp_path).publish("report", "r", write("0"))
    assert manifest.files.keys() == {"a.txt"}


@pytest.mark.parametrize("name", ["manifest.json", "run_config.json"])
def test_files_of_the_registrys_own_names_are_refused(tmp_path, name):
    registry = Registry(tmp_path, config={})
    with pytest.raises(ValueError, match=name):
        registry.publish("report", "r", lambda folder: (folder / name).write_text("{}"))
    assert registry.manifests() == []


def test_summary_is_in_memory_what_is_read_back(tmp_path):
    _, manifest = Registry(tmp_path).publish(
        "report", "r", write("0"), summary={"by_length": {10: 1, 9: 2}, "pair": (1, 2), "text": "\ud83d\0"}
    )
    assert manifest.summary == {"by_length": {"10": 1, "9": 2}, "pair": [1, 2], "text": "\ud83d\0"}
    assert Registry(tmp_path).manifests()[0][1] == manifest


def test_index_out_of_step_is_read_all_the_same_where_it_cannot_be_written(tmp_path, monkeypatch):
    registry = Registry(tmp_path)
    registry.publish("report", "r", write("0"))
    (tmp_path / "index.jsonl").write_text("")

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pessimal.tracking.registry.write_atomically", refuse)
    assert [m.name for _, m in registry.manifests()] == ["r"]


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
    (tmp_path / ".index.jsonl-abandoned").write_text("half an index")
    folder, _ = Registry(tmp_path).publish("report", "r", write("whole"))
    assert [p.name for p in folder.parent.iterdir()] == ["v0"]
    assert sorted(p.name for p in tmp_path.iterdir()) == [".lock", "index.jsonl", "report"]


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


@pytest.mark.parametrize(("name", "safe"), [("org/model name", "org_model_name"), ("a--b.c-d", "a--b.c-d")])
def test_plain_names_stay_readable(name, safe):
    assert safe_name(name) == safe


@pytest.mark.parametrize("name", ["../../etc", "<b>", "☃", "模型--greatest", ".", "half \ud800"])
def test_other_names_are_safe_as_folders_and_stay_apart(name):
    assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", safe_name(name))
    assert safe_name(name) != safe_name(name + "é")
    assert safe_name("模型--greatest") != safe_name("奖励--greatest")
