"""The real W&B client against a server of our own: what arrives, what is verified, and that no
fault loses a result.

Every fault must end, and be reported once.
"""

import base64
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from fake_wandb import KEY, FakeWandb, Fault

from pessimal.errors import WorkError
from pessimal.tables import read_score_table
from pessimal.tracking.registry import MANIFEST
from pessimal.verbs import push as push_module
from pessimal.verbs.push import choose, push

pytestmark = pytest.mark.slow

HOSTILE = ["\ud800", "<script>", "\0", "=cmd()", "", "null", "\N{PILE OF POO}", None]


def everything(registry):
    return choose(registry, types=[], names=[])


def project_of(fake):
    return fake.world.projects["lab", "p"]


def sync(folder: Path, run_id: str, where: Path, **environment) -> None:
    """Type what a message says."""
    [run] = (folder / "wandb").glob(f"*run-*-{run_id}")
    command = [sys.executable, "-m", "wandb", "sync", "--include-online", str(run)]
    subprocess.run(
        command, check=True, cwd=where, env=os.environ | environment, capture_output=True
    )


# The mirror


def publish_and_send(publish, task, *, mode):
    """What a verb sends to its mirror."""
    with task(mode=mode, config={"odd": "\ud800"}) as mirror:
        folder, manifest = publish(run_id=mirror.run_id)
        mirror.summary({"greatest/optimal": "\ud800<script>", "greatest/none": float("nan")})
        for step in range(3):
            mirror.metrics({"train/step": step, "train/loss": 0.5})
        frame = pd.DataFrame({"text": HOSTILE, "reward": [float("nan"), *range(7)]}, dtype=object)
        mirror.table("greatest/extremes", frame)
        mirror.artifact(
            folder, manifest, {"measured": float("inf"), **{f"f{i}": i for i in range(200)}}
        )
    return mirror, manifest


def test_online_sends_what_offline_and_sync_send(fake, publish, task, target, warnings, tmp_path):
    online, manifest = publish_and_send(publish, task, mode="online")
    assert warnings() == []
    offline, second = publish_and_send(publish, task, mode="offline")
    assert offline.run_id not in project_of(fake).runs
    sync(target.folder, offline.run_id, tmp_path)
    stored = []
    for run_id in (online.run_id, offline.run_id):
        run = project_of(fake).runs[run_id]
        summary = json.loads(run.lines("wandb-summary.json")[-1])
        stored.append(
            {k: v for k, v in summary.items() if not k.startswith("_") and "extremes" not in k}
        )
        fields = [run.fields[name] for name in ("groupName", "jobType", "tags", "displayName")]
        assert fields == ["study", "scan", ["t"], "scan m"]
        assert run.state == "finished"
        assert len([line for line in run.lines("wandb-history.jsonl") if "train/loss" in line]) == 3
    assert stored[0] == stored[1]
    assert stored[0]["greatest/optimal"] == "\\ud800<script>"
    for made in (manifest, second):
        artifact = project_of(fake).find(f"m--greatest:registry-v{made.version}")
        assert set(artifact.files) == {"deep/scores.txt", "manifest.json", "run_config.json"}
        assert json.loads(artifact.metadata)["summary"]["f199"] == 199, (
            "W&B takes a hundred keys: figures are below"
        )
    table = next(v[0] for name, v in project_of(fake).collections.items() if "extremes" in name)
    rows = json.loads(fake.world.storage[next(iter(table.files.values()))])["data"]
    assert [row[0] for row in rows] == ["\\ud800", *HOSTILE[1:]]


def test_online_curves_are_there_while_the_task_works(fake, task):
    with task(mode="online") as mirror:
        mirror.metrics({"train/step": 1, "train/loss": 0.5})
        for _ in range(600):
            run = fake.world.projects and project_of(fake).runs.get(mirror.run_id)
            if run and run.lines("wandb-history.jsonl"):
                break
            time.sleep(0.1)
        else:
            raise AssertionError("nothing arrived before the task was over")
        assert run.state == "running"


def test_lineage_goes_to_the_version_of_the_registry(fake, publish, task, warnings):
    for text in ("one", "two", "three"):
        with task(mode="online") as mirror:
            folder, manifest = publish(text=text)
            if text != "two":  # W&B's versions are not the registry's
                mirror.artifact(folder, manifest, {})
    with task(mode="online") as search:  # it knows its inputs only when it has found them
        search.artifact(*publish("search-result", "s", inputs=["score-table/m--greatest:v0"]), {})
    inputs = ["score-table/m--greatest:v2", "score-table/gone:v0"]
    with task(mode="online") as mirror:
        mirror.artifact(*publish("comparison", "c", inputs=inputs), {})
    project = project_of(fake)
    third = project.find("m--greatest:registry-v2")
    assert (third.version, third.used_by) == (1, [mirror.run_id])
    assert project.find("m--greatest:latest") is third
    assert project.find("m--greatest:registry-v0").used_by == [search.run_id], warnings()
    [told] = warnings()
    assert "score-table/gone:v0" in told
    assert "pessimal push" in told


DRIPS = Fault(status=0)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("unreachable", "Timed out"),
        ("wrong key", "not logged in"),
        ("answers 500", "Timed out"),
        ("drips", "Timed out"),
        ("dies", "imed out"),
        ("takes no files", "timed out"),
        ("takes no curves", "Timed out finishing"),
    ],
)
def test_fault_costs_no_result_nor_fifteen_seconds_and_what_is_said_repairs_it(
    fake, registry, publish, task, target, warnings, monkeypatch, tmp_path, fault, said
):
    match fault:
        case "unreachable":
            fake.stop()
        case "wrong key":
            monkeypatch.setenv("WANDB_API_KEY", "f" * 40)
        case "answers 500":
            fake.faults["*"] = Fault(status=500)
        case "drips":
            fake.faults["*"] = DRIPS
        case "takes no files":
            fake.faults["storage"] = DRIPS
        case "takes no curves":
            fake.faults["file_stream"] = DRIPS
    begin = time.monotonic()
    with task(mode="online") as mirror:
        for name in ("m--greatest", "m--worst"):
            mirror.artifact(*publish(name=name, run_id=mirror.run_id), {})
        if fault == "dies":
            with contextlib.suppress(OSError):
                fake.stop()
    assert time.monotonic() - begin < 20, "twelve, and what a busy machine adds"
    [told] = warnings()
    assert said in told
    assert "wandb sync" in told
    assert "pessimal push tracking.project=p" in told
    for folder, _ in registry.manifests():
        registry.verify(folder)
    well = FakeWandb()
    try:
        monkeypatch.setenv("WANDB_BASE_URL", well.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        sync(target.folder, mirror.run_id, tmp_path)
        project = well.world.projects["lab", "p"]
        assert project.runs[mirror.run_id].state == "finished"
        assert not push(everything(registry), target).wrong
    finally:
        well.stop()


def test_artifact_that_does_not_arrive_is_reported_though_sync_is_content(
    fake, publish, task, warnings
):
    fake.faults["CommitArtifact"] = Fault(status=403)
    with task(mode="online") as mirror:
        mirror.artifact(*publish(), {})
    [told] = warnings()
    assert "m--greatest did not arrive" in told


def test_full_disk_of_wandb_costs_the_mirror_only(
    publish, task, target, warnings, registry, tmp_path
):
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no tiny disk can be mounted here")
    try:
        with task(target=replace(target, folder=small / "wandb")) as mirror:
            for number in range(3):
                mirror.metrics({"loss": 1.0, "note": "x" * 200_000})
                mirror.artifact(*publish(name=f"m{number}"), {})
        assert len(registry.manifests()) == 3
        assert "is full" in warnings()[-1]
        assert "pessimal push" in warnings()[-1]
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_offline_sends_nothing_at_all(fake, publish, task, command, tmp_path):
    publish_and_send(publish, task, mode="offline")
    scores = tmp_path / "scores.csv"
    scores.write_text("token_id,token_name,token_decoded,greatest\n0,a,a,1.5\n1,b,b,-0.5\n")
    verb = [sys.executable, "-m", "pessimal", "import", "format=vocabulary", f"path={scores}"]
    done = subprocess.run(verb, cwd=tmp_path, env=os.environ | {"WANDB_MODE": "offline"})
    assert done.returncode == 0
    assert list(tmp_path.glob("runs/wandb/wandb/offline-run-*")), "it was a run all the same"
    assert fake.every == []


# The push


def test_everything_arrives_once_in_runs_that_compare(fake, registry, publish, target):
    publish(name="m--greatest", run_id="aaaa1111", text="one")
    publish(name="m--worst", run_id="aaaa1111", prompt="worst")
    publish(name="m--greatest", text="two")  # a second version, published without tracking
    inputs = ["score-table/m--greatest:v1", "score-table/m--worst:v0"]
    publish("comparison", "quick", inputs=inputs, run_id="bbbb2222")
    publish("report", "quick", inputs=["comparison/quick:v0"], run_id="cccc3333")
    pushed = push(everything(registry), target)
    assert not pushed.wrong
    assert len(pushed.sent) == 5
    assert pushed.unknown_inputs == []
    project = project_of(fake)
    fields = ("jobType", "groupName")
    runs = {tuple(run.fields[name] for name in fields): id for id, run in project.runs.items()}
    assert set(runs) == {(verb, "study") for verb in ("scan", "compare", "report")}
    assert len(project.runs) == 4, "one more scan, for what was published without tracking"
    summaries = ["".join(run.lines("wandb-summary.json")) for run in project.runs.values()]
    both = [text for text in summaries if "greatest/optimal" in text and "worst/optimal" in text]
    assert len(both) == 1, "what one command published is one run"
    assert all('"batch"' in run.fields["config"] for run in project.runs.values())
    newest = project.find("m--greatest:latest")
    assert newest is project.find("m--greatest:registry-v1"), "latest is the registry's newest"
    assert newest.used_by == [runs["compare", "study"]]
    assert project.find("quick.report:registry-v0").type == "report", "a name has one type in W&B"
    assert project.find("quick:registry-v0").used_by == [runs["report", "study"]]

    project.aliases["m--greatest", "latest"] = project.find("m--greatest:registry-v0").id
    assert not push(everything(registry), target).wrong
    assert project.find("m--greatest:latest") is newest, "it is put back"

    requests = len(fake.requests)
    again = push(everything(registry), target)
    assert not again.wrong
    assert again.sent == []
    assert not {"CreateArtifact", "storage"} & set(fake.requests[requests:]), "nothing twice"


def test_other_bytes_under_the_same_name_are_reported_and_left_alone(
    fake, registry, publish, target
):
    publish()
    push(everything(registry), target)
    artifact = project_of(fake).find("m--greatest:registry-v0")
    manifest = fake.world.storage[artifact.manifest]
    fake.world.storage[artifact.manifest] = manifest.replace(b'"digest":"', b'"digest":"AAAA', 1)
    [found] = push(everything(registry), target).verdicts.values()
    assert found.startswith("mismatch")
    assert "deep/scores.txt" in found
    fake.world.storage[artifact.manifest] = manifest
    _rewrite(fake, "m--greatest", lambda manifest: manifest.update(created="in another registry"))
    pushed = push(everything(registry), target)
    [found] = pushed.verdicts.values()
    assert "manifest.json" in found
    assert pushed.sent == []


def test_what_was_never_committed_is_missing_and_is_sent_again(fake, registry, publish, target):
    publish()
    fake.faults["CommitArtifact"] = Fault(status=403)  # the client says "Finished" all the same
    [found] = push(everything(registry), target).verdicts.values()
    assert found.startswith("missing")
    fake.faults.clear()
    assert push(everything(registry), target).sent == ["score-table/m--greatest:v0"]
    assert project_of(fake).find("m--greatest:latest").state == "COMMITTED"


def test_recorded_run_that_was_sent_is_not_pushed_again_and_gets_its_lineage(
    fake, registry, publish, task, target, tmp_path
):
    with task(config={"batch": 7}) as mirror:
        mirror.metrics({"loss": 1.5})
        folder, manifest = publish(run_id=mirror.run_id, inputs=["reward-model/gone:v0"])
        mirror.artifact(folder, manifest, {})
    sync(target.folder, mirror.run_id, tmp_path)
    pushed = push(everything(registry), target)
    assert (pushed.sent, pushed.wrong) == ([], [])
    assert pushed.unknown_inputs == ["reward-model/gone:v0"]
    [(run_id, run)] = project_of(fake).runs.items()
    assert run_id == mirror.run_id
    assert '"batch":{"value":7}' in run.fields["config"].replace(" ", "")
    assert '"loss":1.5' in "".join(run.lines("wandb-history.jsonl"))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("dead", "cannot be reached"),
        ("key", "does not know this key"),
        ("later", "is at fault"),
        ("drips", "cannot be reached"),
        ("takes no files", "Timed out finishing"),
    ],
)
def test_no_server_or_no_key_is_a_failure_of_the_push(
    fake, registry, publish, target, monkeypatch, fault, said
):
    publish()
    if fault == "dead":
        fake.stop()
    elif fault == "key":
        monkeypatch.setenv("WANDB_API_KEY", "f" * 40)
    elif fault in ("takes no files", "later"):
        fake.faults |= (
            {"storage": DRIPS} if fault != "later" else {"*": Fault(status=500, after=12)}
        )
        monkeypatch.setattr(push_module, "PATIENCE", 1.0)
    else:
        fake.faults["*"] = DRIPS
    with pytest.raises(WorkError, match=said):
        push(everything(registry), target)
    changed = fault in ("later", "takes no files")
    assert changed or fake.world.projects == {}, "nothing was changed"


def test_verb_prints_a_line_an_artifact_and_fails_where_one_is_wrong(
    fake, publish, command, tmp_path
):
    publish()
    paths = [
        f"paths.root={tmp_path / 'runs'}",
        f"paths.registry={tmp_path / 'registry'}",
        "tracking.project=p",
    ]
    code, out, err = command("push", *paths, "type=score-table", "name=[m--greatest]")
    assert (code, out.split()[:2]) == (0, ["ok", "score-table/m--greatest:v0"]), err
    artifact = project_of(fake).find("m--greatest:latest")
    manifest = fake.world.storage[artifact.manifest]
    fake.world.storage[artifact.manifest] = manifest.replace(b"deep/scores.txt", b"deep/others.txt")
    code, out, err = command("push", *paths)
    assert code == 4
    assert out.startswith("mismatch")
    assert "deep/others.txt, deep/scores.txt" in out
    assert "score-table/m--greatest:v0" in err


def test_table_that_one_pushes_is_fetched_by_wandb_and_compared_by_another(fake, command, tmp_path):
    scores = tmp_path / "scores.csv"
    lines = [f"{i},word{i},word{i},{i % 7 + i / 100},{-i}" for i in range(100)]
    scores.write_text(
        "\n".join(["token_id,token_name,token_decoded,greatest,worst", *lines]) + "\n"
    )
    place = "tracking.project=p", "paths.root=mine", "paths.registry=mine/registry"
    options = ("import", "format=vocabulary", f"path={scores}", "model_name=one", "tracking=off")
    code, _, err = command(*options, *place)
    assert code == 0, err
    code, out, err = command("push", *place)
    assert (code, out.count("sent")) == (0, 2), err
    get = [sys.executable, "-m", "wandb", "artifact", "get"]
    for name in ("one--greatest", "one--worst"):
        typed = [*get, f"lab/p/{name}:latest", "--root", str(tmp_path / "fetched" / name)]
        subprocess.run(typed, check=True, cwd=tmp_path, capture_output=True)
    tables = [read_score_table(f) for f in sorted((tmp_path / "fetched").rglob("*.parquet"))]
    assert [table.provenance.prompt for table in tables] == ["greatest", "worst"]
    assert tables[1].rows["reward"].tolist() == [-float(i) for i in range(100)]


def _rewrite(fake, name, change):
    """Let the server hold another manifest.json in an artifact, consistently with its own."""
    artifact = project_of(fake).find(f"{name}:latest")
    path = artifact.files[MANIFEST]
    manifest = json.loads(fake.world.storage[path])
    del manifest["checksum"]  # as of an earlier version
    change(manifest)
    data = json.dumps(manifest).encode()
    fake.world.store(path, data)
    entries = json.loads(fake.world.storage[artifact.manifest])
    md5 = base64.b64encode(hashlib.md5(data).digest()).decode()
    entries["contents"][MANIFEST] |= {"digest": md5, "size": len(data)}
    fake.world.storage[artifact.manifest] = json.dumps(entries).encode()
