"""The push: everything arrives once, with lineage; what is not the same is reported; a server that fails is reported at once."""

import time

import pytest
from fake_wandb.server import Fault

from pessimal.errors import InputError, WorkError
from pessimal.tracking.mirror import open_mirror
from pessimal.tracking.push import Target, choose, push


@pytest.fixture
def target(tmp_path):
    return Target(project="p", entity=None, group="study", tags=["t"], folder=tmp_path / "wandb")


def everything(registry):
    return choose(registry, types=[], names=[])


def test_everything_arrives_once_in_runs_that_compare(fake, registry, publish, target):
    publish(name="m--greatest", run_id="aaaa1111", text="one")
    publish(name="m--worst", run_id="aaaa1111", prompt="worst")
    publish(name="m--greatest", text="two")  # a second version, published without tracking
    publish(
        "comparison",
        "quick",
        inputs=["score-table/m--greatest:v1", "score-table/m--worst:v0"],
        run_id="bbbb2222",
    )
    publish("report", "quick", inputs=["comparison/quick:v0"], run_id="cccc3333")
    pushed = push(everything(registry), target)
    assert pushed.whole
    assert len(pushed.sent) == 5
    assert pushed.unknown_inputs == []
    project = fake.world.projects["lab", "p"]
    jobs = {name: (run.fields["jobType"], run.fields["groupName"]) for name, run in project.runs.items()}
    assert jobs.pop("aaaa1111") == ("scan", "study")
    assert jobs.pop("bbbb2222") == ("compare", "study")
    assert jobs.pop("cccc3333") == ("report", "study")
    assert list(jobs.values()) == [("scan", "study")], "one more, for what was published without tracking"
    assert "worst/optimal" in "".join(project.runs["aaaa1111"].lines("wandb-summary.json"))
    newest = project.find("m--greatest:latest")
    assert newest is project.find("m--greatest:registry-v1"), "latest is the registry's newest"
    assert newest.used_by == ["bbbb2222"]
    assert project.find("quick.report:registry-v0").type == "report", "a name has one type in W&B"
    assert project.find("quick:registry-v0").used_by == ["cccc3333"]

    project.aliases["m--greatest", "latest"] = project.find("m--greatest:registry-v0").id
    assert push(everything(registry), target).whole
    assert project.find("m--greatest:latest") is newest, "it is put back"

    requests = len(fake.requests)
    again = push(everything(registry), target)
    assert again.whole
    assert again.sent == []
    assert not {"CreateArtifact", "UseArtifact", "storage"} & set(fake.requests[requests:]), (
        "nothing is sent twice"
    )


def test_other_bytes_under_the_same_name_are_reported_and_left_alone(fake, registry, publish, target):
    publish()
    push(everything(registry), target)
    artifact = fake.world.projects["lab", "p"].find("m--greatest:registry-v0")
    manifest = fake.world.storage[artifact.manifest]
    fake.world.storage[artifact.manifest] = manifest.replace(b'"digest":"', b'"digest":"AAAA', 1)
    pushed = push(everything(registry), target)
    assert [found.state for found in pushed.verdicts] == ["mismatch"]
    assert "differs" in pushed.verdicts[0].message

    fake.world.storage[artifact.manifest] = manifest
    artifact.metadata = artifact.metadata.replace('"manifest_sha256":"', '"manifest_sha256":"f')
    pushed = push(everything(registry), target)
    assert "another registry" in pushed.verdicts[0].message
    assert pushed.sent == []


def test_sync_that_sends_nothing_is_no_success(fake, registry, publish, target):
    folder, _ = publish()
    chosen = everything(registry)
    fake.faults["CommitArtifact"] = Fault(status=403)  # the client says "Finished" all the same
    pushed = push(chosen, target)
    assert [found.state for found in pushed.verdicts] == ["missing"]
    assert folder.exists()


@pytest.mark.parametrize("project", ["p", "elsewhere"])
def test_recorded_run_is_sent_as_it_was_to_the_project_it_was_recorded_for(
    fake, registry, publish, target, project
):
    with open_mirror(mode="offline", folder=target.folder, project=project, entity=None, group="own", tags=[],
                     job_type="scan", name="scan m", config={"batch": 7}) as mirror:  # fmt: skip
        mirror.metrics({"loss": 1.5})
        folder, manifest = publish(run_id=mirror.run_id)
        mirror.artifact(folder, manifest, {})
    pushed = push(everything(registry), target)
    assert pushed.whole
    assert list(fake.world.projects) == [("lab", "p")], (
        "wandb sync --project would leave the artifacts elsewhere"
    )
    runs = fake.world.projects["lab", "p"].runs
    assert list(runs) == [mirror.run_id]
    run = runs[mirror.run_id]
    recorded = '"batch":{"value":7}' in run.fields["config"].replace(" ", "")
    assert recorded == (project == "p")
    assert ('"loss":1.5' in "".join(run.lines("wandb-history.jsonl"))) == recorded


@pytest.mark.parametrize(
    ("fault", "said"),
    [("dead", "cannot be reached"), ("key", "does not know this API key"), ("500", "HTTP 500")],
)
def test_no_server_or_no_key_is_reported_at_once(fake, registry, publish, target, monkeypatch, fault, said):
    publish()
    if fault == "dead":
        fake.stop()
    elif fault == "key":
        monkeypatch.setenv("WANDB_API_KEY", "f" * 40)
    else:
        fake.faults["*"] = Fault(status=500)
    begin = time.monotonic()
    with pytest.raises(WorkError, match=said):
        push(everything(registry), target)
    assert time.monotonic() - begin < 15
    assert fake.world.projects == {}, "nothing was changed"


def test_server_that_dies_while_sending_is_reported(fake, registry, publish, target):
    publish()
    fake.faults["*"] = Fault(status=500, after=12)
    begin = time.monotonic()
    with pytest.raises(WorkError, match="HTTP 500"):
        push(everything(registry), target)
    assert time.monotonic() - begin < 25


def test_verb_prints_a_line_an_artifact_and_fails_where_one_is_wrong(fake, publish, command, tmp_path):
    publish()
    paths = [f"paths.root={tmp_path / 'runs'}", f"paths.registry={tmp_path / 'registry'}"]
    code, out, err = command("push", *paths, "tracking.project=p", "type=score-table", "name=[m--greatest]")
    assert (code, out.split()[:2]) == (0, ["ok", "score-table/m--greatest:v0"]), err
    artifact = fake.world.projects["lab", "p"].find("m--greatest:latest")
    manifest = fake.world.storage[artifact.manifest]
    fake.world.storage[artifact.manifest] = manifest.replace(b"deep/scores.txt", b"deep/others.txt")
    code, out, err = command("push", *paths, "tracking.project=p")
    assert code == 1
    assert out.startswith("mismatch")
    assert "without deep/scores.txt; with deep/others.txt besides" in out
    assert "score-table/m--greatest:v0" in err
    code, _, err = command("push", *paths, "type=nonsense")
    assert code == 2
    assert "score-table/m--greatest" in err


def test_artifact_that_was_never_committed_is_sent_again(fake, registry, publish, target):
    publish()
    push(everything(registry), target)
    fake.world.projects["lab", "p"].find("m--greatest:latest").state = "PENDING"
    assert push(everything(registry), target).sent == ["score-table/m--greatest:v0"]
    assert fake.world.projects["lab", "p"].find("m--greatest:latest").state == "COMMITTED"


def test_damaged_artifact_is_not_sent(fake, registry, publish, target):
    folder, _ = publish()
    (folder / "deep" / "scores.txt").write_text("edited")
    with pytest.raises(InputError, match="differs from what was published"):
        everything(registry)
    assert fake.requests == []
