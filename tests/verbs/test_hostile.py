"""What is hostile ends soon, with a sentence: checkpoints, files, manifests, texts on a terminal."""

import json
import os
import pty
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from pessimal.api.tune import database
from pessimal.errors import ConfigError, InputError, ModelError
from pessimal.options import existing_file, matching
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.log_probability import LogProbabilitySpec
from pessimal.rewards.obtain import files_of
from pessimal.rewards.spec import ModelSpec
from pessimal.scoring.candidates import read_items
from pessimal.tracking.registry import Manifest, Registry, parse_manifest

SOON = 60
"""Seconds, on a machine with other work; alone each takes less than half."""
ESCAPES = "\x1b[31mred\x1b]0;title\x07"


def typed(*arguments: str, folder: Path) -> tuple[int, str]:
    """Exit code and stderr of a command on a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "pessimal", *arguments]
    process = subprocess.Popen(command, cwd=folder, stdout=theirs, stderr=theirs, stdin=theirs)
    os.close(theirs)
    said, begun = b"", time.monotonic()
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:  # the terminal was closed
            break
        said += more
    assert time.monotonic() - begun < SOON
    return process.wait(), said.decode()


@pytest.fixture
def changed(tiny_checkpoint, tmp_path):
    """The tiny checkpoint, to be made hostile."""
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "model"))


def scan(model: Path, *more: str) -> list[str]:
    return ["scan", "model=auto", f"model.path={model}", "prompts=greatest", "tracking=off", *more]


def settings(folder: Path, **changes) -> ModelSpec:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return HeadSpec(name="hostile", path=str(folder))


@pytest.mark.parametrize("setting", ["num_hidden_layers"])
def test_layers_are_counted_before_they_are_built(changed, setting):
    assert files_of(settings(changed)) == changed
    with pytest.raises(ModelError, match=f"{setting}=1,000,000,000"):
        files_of(settings(changed, **{setting: 10**9}))
    with pytest.raises(ModelError, match=setting):
        files_of(settings(changed, **{"text_config": {setting: 1e9}}))


def test_layers_of_a_gguf_file_are_counted_before_they_are_built(tmp_path):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_block_count(4 * 10**9)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path = str(tmp_path)
    hostile = LogProbabilitySpec(name="hostile", path=path, file="model.gguf")
    with pytest.raises(ModelError, match="block_count=4,000,000,000"):
        files_of(hostile)


def test_pipes_and_devices_are_no_files(changed, tmp_path):
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    for path in ("/dev/zero", str(pipe)):
        with pytest.raises(InputError, match="pipe, device"):
            existing_file("data", path)
        with pytest.raises(InputError, match="pipe, device"):
            matching("path", [path])
    os.mkfifo(tmp_path / "items.csv")
    with pytest.raises(InputError, match="pipe, device"):
        read_items(tmp_path / "items.csv", name="items")
    os.mkfifo(changed / "added_tokens.json")
    with pytest.raises(ModelError, match="pipe, device"):
        files_of(HeadSpec(name="hostile", path=str(changed)))


def test_a_token_longer_than_the_model_reads(changed, command):
    tokenizer = AutoTokenizer.from_pretrained(changed)
    content = json.loads((changed / "tokenizer.json").read_text())
    assert len(tokenizer) > 300
    vocabulary = content["model"]["vocab"]
    longest = max(vocabulary, key=vocabulary.get)
    vocabulary["z" * 100_000] = vocabulary.pop(longest)
    content["model"]["merges"] = [m for m in content["model"]["merges"] if "".join(m) != longest]
    (changed / "tokenizer.json").write_text(json.dumps(content))
    code, _, said = command(*scan(changed, "mode=text"))
    assert code == 2
    assert "100,000 characters" in said
    assert "mode=ids" in said


def publish(registry: Registry, name: str, **summary) -> tuple[Path, Manifest]:
    def fill(folder: Path) -> None:
        (folder / "scores.parquet").write_text("")

    return registry.publish("score-table", name, fill, summary=summary)


def test_a_forged_manifest_hides_no_other(tmp_path, caplog):
    registry = Registry(tmp_path)
    publish(registry, "honest", model="m", prompt="p", candidates="vocabulary")
    publish(registry, "without", prompt="p", candidates="vocabulary")
    publish(registry, "number", model=7, prompt="p", candidates="vocabulary")
    needs = {"model": str, "prompt": str, "candidates": str}
    [(_, manifest)] = registry.latest("score-table", needs=needs)
    assert manifest.name == "honest"
    assert "without" in caplog.text
    assert "number" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"../../v0/scores.parquet": "0"}},
        {"files": {"/etc/passwd": "0"}},
        {"version": "0"},
    ],
)
def test_a_manifest_of_other_types_or_files_elsewhere_is_none(tmp_path, change):
    folder, manifest = publish(Registry(tmp_path), "one")
    forged = folder / "manifest.json"
    forged.write_text(json.dumps(vars(manifest) | change))
    with pytest.raises(InputError, match="cannot be read as a manifest"):
        parse_manifest(forged)
    assert Registry(tmp_path).manifests() == []


def test_a_storage_is_looked_at_before_a_lock_is_made_beside_it(tmp_path):
    file = tmp_path / "study.db"
    assert database(str(file)) == file
    file.write_text("my thesis, which is no database")
    os.mkfifo(tmp_path / "pipe")
    for name in ("study.db", "pipe", ""):
        with pytest.raises((InputError, ConfigError)):
            database(str(tmp_path / name))
    assert {path.name for path in tmp_path.iterdir()} == {"study.db", "pipe"}


@pytest.mark.slow
def test_a_table_with_escapes_on_a_terminal(tmp_path):
    import pandas as pd

    def fill(folder: Path) -> None:
        pd.DataFrame({"text": [ESCAPES]}).to_parquet(folder / "scores.parquet")

    Registry(tmp_path / "registry").publish("other", "table", fill)
    show = ("runs", "show", "table", "format=csv", "paths.registry=registry")
    code, said = typed(*show, folder=tmp_path)
    assert code == 0
    assert "⟨U+001B⟩[31mred" in said
    assert "\x1b" not in said
    piped = subprocess.run(
        [sys.executable, "-m", "pessimal", *show], cwd=tmp_path, capture_output=True, text=True
    )
    assert ESCAPES in piped.stdout, "a file gets the cells as they are"
