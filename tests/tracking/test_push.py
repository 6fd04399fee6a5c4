"""The push, against artifacts of W&B's client that a shelf in memory holds in the place of a
server: what is sent, what is verified, and what was made of what."""

import contextlib
from types import SimpleNamespace

import pytest

from pessimal.tracking.registry import CONFIG, MANIFEST
from pessimal.verbs import push as push_module
from pessimal.verbs.push import choose, push


class Shelf:
    """Runs and artifacts as the client's API gives them."""

    default_entity = "lab"

    def __init__(self):
        self.runs: dict[str, SimpleNamespace] = {}
        self.artifacts: dict[str, SimpleNamespace] = {}
        """By name and alias, each with what the client made of the files."""
        self.takes = True
        """Whether what is logged arrives."""

    def begin_run(self, target, *, id, **about):
        made = []

        def log_artifact(artifact, aliases):
            about = {"type": artifact.type, "manifest": artifact.manifest}
            held = SimpleNamespace(**about, aliases=list(aliases), logged_by=lambda: run)
            held.save = lambda: self.point(artifact.name, held)
            if self.takes:
                self.point(artifact.name, held)
            made.append(artifact.name)

        about = {"group": target.group, "tags": target.tags, **about}
        run = SimpleNamespace(summary={}, used=[], made=made, log_artifact=log_artifact, **about)
        run.use_artifact, run.finish = run.used.append, lambda: None
        self.runs[id] = run
        return run

    def point(self, name, held):
        """An alias stands at one version at a time."""
        for alias in held.aliases:
            if (other := self.artifacts.get(f"{name}:{alias}", held)) is not held:
                other.aliases.remove(alias)
            self.artifacts[f"{name}:{alias}"] = held

    def artifact_exists(self, name):
        return name.removeprefix("lab/p/") in self.artifacts

    def artifact(self, name):
        return self.artifacts[name.removeprefix("lab/p/")]


@pytest.fixture
def shelf(monkeypatch):
    held = Shelf()
    monkeypatch.setattr(push_module, "connected", lambda: contextlib.nullcontext(held))
    monkeypatch.setattr(push_module, "begin_run", held.begin_run)
    return held


@pytest.fixture
def push_all(registry, target):
    return lambda: push(choose(registry, types=[], names=[]), target)


def test_everything_arrives_once_in_a_run_for_each_command(shelf, publish, push_all):
    publish(name="m--greatest", run_id="aaaa1111", text="one")
    publish(name="m--worst", run_id="aaaa1111", prompt="worst")
    publish(name="m--greatest", text="two")  # a second version, published without tracking
    inputs = ["score-table/m--greatest:v1", "score-table/m--worst:v0", "score-table/gone:v0"]
    publish("comparison", "quick", inputs=inputs, run_id="bbbb2222")
    publish("report", "quick", inputs=["comparison/quick:v0"], run_id="cccc3333")
    pushed = push_all()
    assert not pushed.wrong
    assert len(pushed.sent) == 5
    assert pushed.unknown_inputs == ["score-table/gone:v0"]
    runs = {(run.job_type, *run.made): run for run in shelf.runs.values()}
    scans = [("scan", "m--greatest", "m--worst"), ("scan", "m--greatest")]
    assert set(runs) == {*scans, ("compare", "quick"), ("report", "quick.report")}
    assert {run.group for run in runs.values()} == {"study"}
    assert {"greatest/optimal", "worst/optimal"} < set(runs[scans[0]].summary)
    assert all(run.config["batch"] == 7 for run in runs.values())
    newest = shelf.artifacts["m--greatest:registry-v1"]
    assert shelf.artifacts["m--greatest:latest"] is newest
    assert set(newest.manifest.entries) == {"deep/scores.txt", MANIFEST, CONFIG}
    worst = shelf.artifacts["m--worst:registry-v0"]
    assert runs["compare", "quick"].used == [newest, worst]
    assert runs["report", "quick.report"].used == [shelf.artifacts["quick:registry-v0"]]

    older = shelf.artifacts["m--greatest:registry-v0"]
    older.aliases.append("latest")
    older.save()
    again = push_all()
    assert (again.sent, again.wrong, len(shelf.runs)) == ([], [], 4), "nothing twice"
    assert shelf.artifacts["m--greatest:latest"] is newest, "it is put back"


def test_other_bytes_under_the_same_name_are_reported_and_left_alone(shelf, publish, push_all):
    publish()
    push_all()
    held = shelf.artifacts["m--greatest:registry-v0"]
    held.manifest.entries["deep/scores.txt"].digest = "AAAA"
    pushed = push_all()
    [verdict] = pushed.verdicts.values()
    assert verdict.startswith("mismatch")
    assert "deep/scores.txt" in verdict
    assert MANIFEST not in verdict
    assert pushed.sent == []


def test_what_does_not_arrive_is_missing_and_is_sent_again(shelf, publish, push_all):
    publish()
    shelf.takes = False  # the client says "Finished" all the same
    [verdict] = push_all().verdicts.values()
    assert verdict.startswith("missing")
    shelf.takes = True
    assert push_all().sent == ["score-table/m--greatest:v0"]


def test_verb_prints_a_line_an_artifact_and_fails_where_one_is_wrong(
    shelf, publish, command, tmp_path
):
    publish()
    paths = ["paths.root=runs", f"paths.registry={tmp_path / 'registry'}", "tracking.project=p"]
    code, out, err = command("push", *paths, "type=score-table", "name=[m--greatest]")
    assert (code, out.split()[:2]) == (0, ["ok", "score-table/m--greatest:v0"]), err
    del shelf.artifacts["m--greatest:registry-v0"].manifest.entries["deep/scores.txt"]
    code, out, err = command("push", *paths)
    assert code == 4
    assert out.startswith("mismatch")
    assert "score-table/m--greatest:v0" in err
