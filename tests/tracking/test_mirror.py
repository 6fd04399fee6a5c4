"""The mirror: online and offline send the same; names, lineage and hostile texts arrive; `off` writes nothing."""

import json
import os
import subprocess
import sys

import pandas as pd
import pytest

from pessimal.tracking.mirror import MAX_TABLE_ROWS, Mirror, open_mirror
from pessimal.tracking.mirrored import mirrored_name, mirrored_reference

HOSTILE = ["\ud800", "<script>", "\0", "=cmd()", "", "null", "\N{PILE OF POO}", None]


@pytest.fixture
def options(tmp_path):
    return {
        "folder": tmp_path / "wandb", "project": "p", "entity": None, "group": "g", "tags": ["t"],
        "job_type": "scan", "name": "scan m", "config": {"model": {"name": "m"}, "odd": "\ud800"},
    }  # fmt: skip


def _task(publish, options, *, mode, inputs=()):
    """What a verb sends to its mirror."""
    with open_mirror(mode=mode, inputs=list(inputs), **options) as mirror:
        folder, manifest = publish(inputs=inputs, run_id=mirror.run_id)
        mirror.summary(
            {"greatest/optimal": "\ud800<script>", "greatest/mean": 1.5, "greatest/none": float("nan")}
        )
        mirror.metrics({"loss": 0.5})
        frame = pd.DataFrame({"text": HOSTILE, "reward": [float("nan"), *range(7)]}, dtype=object)
        mirror.table("greatest/extremes", frame)
        mirror.artifact(folder, manifest, {"measured": float("inf"), **{f"f{i}": i for i in range(200)}})
    return mirror, manifest


def _stored(fake, run_id):
    run = fake.world.projects["lab", "p"].runs[run_id]
    summary = json.loads(run.lines("wandb-summary.json")[-1])
    return run, {
        key: value for key, value in summary.items() if not key.startswith("_") and key != "greatest/extremes"
    }


def test_online_sends_what_offline_and_sync_send(fake, publish, options, warnings, tmp_path):
    online, manifest = _task(publish, options, mode="online")
    assert warnings() == []
    offline, second = _task(publish, options, mode="offline")
    assert offline.run_id not in fake.world.projects["lab", "p"].runs
    folder = next((options["folder"] / "wandb").glob(f"offline-run-*-{offline.run_id}"))
    subprocess.run(
        [sys.executable, "-m", "wandb", "sync", str(folder)], check=True, cwd=tmp_path, env=os.environ
    )
    runs = [_stored(fake, run_id) for run_id in (online.run_id, offline.run_id)]
    assert runs[0][1] == runs[1][1]
    assert runs[0][1] == {"greatest/optimal": "\\ud800<script>", "greatest/mean": 1.5, "loss": 0.5}
    for run, _ in runs:
        fields = run.fields
        assert (fields["groupName"], fields["jobType"], fields["tags"], fields["displayName"]) == (
            "g",
            "scan",
            ["t"],
            "scan m",
        )
        assert run.state == "finished"
    project = fake.world.projects["lab", "p"]
    for made in (manifest, second):
        artifact = project.find(f"m--greatest:registry-v{made.version}")
        assert artifact.type == "score-table"
        assert set(artifact.files) == {"deep/scores.txt", "manifest.json"}
        assert json.loads(artifact.metadata)["summary"]["f199"] == 199, (
            "W&B takes a hundred keys, so figures are below"
        )
    table = next(v[0] for name, v in project.collections.items() if "extremes" in name)
    rows = json.loads(fake.world.storage[next(iter(table.files.values()))])["data"]
    assert [row[0] for row in rows] == ["\\ud800", *HOSTILE[1:]]


def test_lineage_goes_to_the_version_of_the_registry(fake, publish, options, warnings):
    for text in ("one", "two", "three"):
        with open_mirror(mode="online", **options) as mirror:
            folder, manifest = publish(text=text)
            if text != "two":  # W&B's versions are not the registry's
                mirror.artifact(folder, manifest, {})
    with open_mirror(mode="online", **options) as search:  # it knows its inputs only when it has found them
        made = publish("search-result", "s", inputs=["score-table/m--greatest:v0"])
        search.artifact(*made, {})
    job = options | {"job_type": "compare", "name": "compare quick"}
    with open_mirror(
        mode="online", inputs=["score-table/m--greatest:v2", "score-table/gone:v0"], **job
    ) as mirror:
        pass
    project = fake.world.projects["lab", "p"]
    third = project.find("m--greatest:registry-v2")
    assert (third.version, third.used_by) == (1, [mirror.run_id])
    assert project.find("m--greatest:latest") is third
    assert project.find("m--greatest:registry-v0").used_by == [search.run_id], warnings()
    assert len(warnings()) == 1
    assert "gone:registry-v0" in warnings()[0]
    assert "pessimal push" in warnings()[0]


def test_off_writes_nothing(options):
    with open_mirror(mode="off", **options) as mirror:
        assert type(mirror) is Mirror
        assert mirror.run_id is None
    assert not options["folder"].exists()


def test_table_that_wandb_would_cut_is_refused(options):
    with open_mirror(mode="offline", **options) as mirror, pytest.raises(ValueError, match="parquet"):
        mirror.table("all", pd.DataFrame({"a": range(MAX_TABLE_ROWS + 1)}))


def test_names_in_wandb_are_the_registrys_and_have_one_type():
    assert mirrored_reference("score-table/m--greatest:v12") == "m--greatest:registry-v12"
    assert mirrored_name("comparison", "quickstart") != mirrored_name("report", "quickstart")
    assert mirrored_name("reward-model", "alder-bpe-0") != mirrored_name("conformance", "alder-bpe-0")
    long = ["x" * 127 + end for end in ("ab", "ac")]
    names = {mirrored_name("search-result", name) for name in long}
    assert len(names) == 2
    assert max(map(len, names)) <= 128
