"""Fetching from W&B: what was pushed comes back as it was; what is not what its manifest says is refused."""

import base64
import hashlib
import json

import pytest
from fake_wandb.server import Fault

from pessimal.errors import InputError, WorkError
from pessimal.tables.files import sha256_of
from pessimal.tracking.push import Target, choose, push
from pessimal.tracking.registry import MANIFEST, Registry
from pessimal.tracking.remote import fetch_artifacts


@pytest.fixture
def pushed(fake, registry, publish, tmp_path):
    """Two models on two prompts, one of them in two versions, and a comparison; pushed."""
    publish(name="m--greatest", text="old")
    publish(name="m--greatest", text="new")
    publish(name="m--worst", prompt="worst")
    publish(name="n--greatest", model="n")
    publish("comparison", "quick", inputs=["score-table/m--worst:v0"])
    target = Target(project="p", entity=None, group=None, tags=[], folder=tmp_path / "wandb")
    assert push(choose(registry, types=[], names=[]), target).whole
    return fake


@pytest.fixture
def into(tmp_path):
    return Registry(tmp_path / "fetched" / "registry")


def references(fetched):
    return sorted(manifest.reference for _, manifest in fetched.artifacts)


def test_what_was_pushed_comes_back_as_it_was(pushed, registry, into):
    fetched = fetch_artifacts("p", "lab", ["m"], [], into)
    assert references(fetched) == ["score-table/m--greatest:v1", "score-table/m--worst:v0"], (
        "the newest, of one model"
    )
    for folder, manifest in fetched.artifacts:
        original = registry.root / manifest.type / manifest.name / f"v{manifest.version}"
        assert sha256_of(folder / MANIFEST) == sha256_of(original / MANIFEST)
        into.verify(folder)
    assert into.manifests() == fetched.artifacts, "an ordinary registry"

    downloads = pushed.requests.count("download")
    again = fetch_artifacts(
        "p", None, ["m"], ["worst"], into, types=["score-table", "comparison"], every_version=True
    )
    assert again.downloaded == ["comparison/quick:v0"]
    assert references(again) == ["comparison/quick:v0", "score-table/m--worst:v0"]
    assert pushed.requests.count("download") > downloads
    older = fetch_artifacts("p", "lab", ["m"], ["greatest"], into, every_version=True)
    assert older.downloaded == ["score-table/m--greatest:v0"]


def test_what_is_not_there_is_reported_with_what_is(pushed, into):
    with pytest.raises(InputError, match="m on worst; n on greatest"):
        fetch_artifacts("p", "lab", ["nobody"], [], into)
    with pytest.raises(InputError, match="pessimal push"):
        fetch_artifacts("empty", "lab", [], [], into)


REFUSED = [
    (lambda manifest: manifest["files"].update({"deep/scores.txt": "0" * 64}), "other bytes"),
    (lambda manifest: manifest["files"].update({"../../../escaped": "0" * 64}), "outside its own folder"),
    (lambda manifest: manifest.update(name="../../escaped"), "outside its own folder"),
    (lambda manifest: manifest.update(type="../escaped"), "names no artifact"),
    (lambda manifest: manifest.update(version=-1), "names no artifact"),
    (lambda manifest: manifest.update(name="n--other"), "that of score-table/n--other:v0"),
    (lambda manifest: manifest.pop("files"), "cannot be read"),
    (lambda manifest: manifest["files"].pop("deep/scores.txt"), "it also has deep/scores.txt"),
]


def test_artifact_that_is_not_what_its_manifest_says_is_refused(pushed_one, into):
    storage = pushed_one.world.storage
    for change, said in REFUSED:
        before = dict(storage)
        _rewrite(pushed_one, "m--greatest", change)
        with pytest.raises(InputError, match=said):
            fetch_artifacts("p", "lab", [], [], into)
        assert into.manifests() == []
        assert not list(into.root.rglob("*escaped*"))
        assert not list(into.root.glob(".fetch-*")), "nothing half is left"
        storage |= before
    assert len(fetch_artifacts("p", "lab", [], [], into).downloaded) == 1, "it was the manifest each time"


def _rewrite(fake, name, change):
    """Let the server hold another manifest.json in an artifact, consistently with its own."""
    artifact = fake.world.projects["lab", "p"].find(f"{name}:latest")
    path = artifact.files[MANIFEST]
    manifest = json.loads(fake.world.storage[path])
    change(manifest)
    data = json.dumps(manifest).encode()
    fake.world.store(path, data)
    entries = json.loads(fake.world.storage[artifact.manifest])
    md5 = base64.b64encode(hashlib.md5(data).digest()).decode()
    entries["contents"][MANIFEST] |= {"digest": md5, "size": len(data)}
    fake.world.storage[artifact.manifest] = json.dumps(entries).encode()


@pytest.fixture
def pushed_one(fake, registry, publish, tmp_path):
    publish()
    target = Target(project="p", entity=None, group=None, tags=[], folder=tmp_path / "wandb")
    assert push(choose(registry, types=[], names=[]), target).whole
    return fake


def test_two_registries_are_not_mixed(pushed_one, into):
    def fill(folder):
        (folder / "scores.txt").write_text("of another registry")

    into.publish("score-table", "m--greatest", fill)
    with pytest.raises(InputError, match="two registries count versions on their own"):
        fetch_artifacts("p", "lab", [], [], into)


def test_server_that_dies_while_fetching_is_reported(pushed_one, into):
    pushed_one.faults["*"] = Fault(status=500, after=8)
    with pytest.raises(WorkError, match="HTTP 500"):
        fetch_artifacts("p", "lab", [], [], into)
    assert into.manifests() == []
