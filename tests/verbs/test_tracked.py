"""What a verb tells W&B of itself: where it goes, in which group, under which name, what it was
made from, and curves."""

import contextlib
from types import SimpleNamespace

import pytest

from pessimal.api.scan import LiveScan
from pessimal.api.store import reward_inputs
from pessimal.rewards.base import NetworkReward
from pessimal.tracking.mirror import Mirror
from pessimal.tracking.registry import Registry
from pessimal.verbs import common


class OnDisk(NetworkReward):
    """A reward whose files are all that is asked."""

    def network(self, dtype=None, which=0):
        raise AssertionError("no network is needed")


class Remembering(Mirror):
    """A mirror that remembers its series."""

    run_id = "12ab34cd"

    def __init__(self):
        super().__init__()
        self.points = []

    def metrics(self, values):
        self.points.append(dict(values))


@pytest.fixture
def opened(monkeypatch):
    """What was asked for of each W&B run that was opened."""
    runs = []

    @contextlib.contextmanager
    def open_mirror(target, **about):
        mirror = Remembering()
        runs.append(SimpleNamespace(target=target, mirror=mirror, **about))
        yield mirror

    monkeypatch.setattr(common, "open_mirror", open_mirror)
    for variable in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_ENTITY", "WANDB_RUN_GROUP", "WANDB_DIR"):
        monkeypatch.delenv(variable, raising=False)
    return runs


@pytest.fixture
def import_scores(command, tmp_path):
    """Run the quickest verb that has a W&B run."""
    scores = tmp_path / "scores.csv"
    scores.write_text(
        "token_id,token_name,token_decoded,greatest\n0,good,good,1.5\n1,bad,bad,-0.5\n"
    )

    def run(*arguments):
        code, _, err = command("import", "format=vocabulary", f"path={scores}", *arguments)
        assert code == 0, err

    return run


def test_jobs_of_a_sweep_share_a_group_and_are_called_after_their_overrides(opened, import_scores):
    import_scores("-m", "model_name=a,b", "progress=false")
    groups = {run.target.group for run in opened}
    assert len(groups) == 1
    assert None not in groups
    assert ["model_name=a" in run.name for run in opened] == [True, False]
    assert ["model_name=b" in run.name for run in opened] == [False, True]
    assert all("progress" not in run.name and "task=" not in run.name for run in opened)
    opened.clear()
    import_scores("model_name=c")
    import_scores("-m", "model_name=d,e", "tracking.group=mine")
    assert [run.target.group for run in opened] == [None, "mine", "mine"]
    assert opened[0].name == "import vocabulary"
    assert set(opened[0].config["code"]) == {"commit", "dirty"}


def test_model_of_the_registry_is_an_input_and_another_is_named(tmp_path):
    registry = Registry(tmp_path / "registry")

    def model(folder, **spec):
        about = {
            "name": "m",
            "kind": "head",
            "path": "org/m",
            "local": False,
            "package": None,
        } | spec
        digests = ("d" * 64, "", "", "")
        return OnDisk(SimpleNamespace(**about), None, *digests, None, folder, 0, ())

    folder, manifest = registry.publish("reward-model", "m", lambda f: (f / "a").touch(), key="k")
    ours = ([manifest.reference], {"reward_model": manifest.reference})
    assert reward_inputs(registry, model(folder, local=True, path=str(folder))) == ours
    assert reward_inputs(registry, model(tmp_path / ("c" * 40))) == (
        [],
        {"reward_model": f"hf:org/m@{'c' * 40}"},
    )
    package = SimpleNamespace(requirement="weights==1", sha256="e" * 64)
    found = reward_inputs(registry, model(tmp_path, package=package, path=None))
    assert found == ([], {"reward_model": f"package:weights==1@sha256:{'e' * 16}"})
    inputs, about = reward_inputs(registry, model(tmp_path / "mine", local=True))
    assert (inputs, about["reward_model"]) == ([], f"folder:mine@sha256:{'d' * 16}")
    assert str(tmp_path) not in about["reward_model"], "no place of this machine"


def test_scans_axis_goes_on_over_prompts_and_second_passes():
    live = LiveScan()
    live.mirror = Remembering()
    for done in (100, 200):  # the first pass of a prompt
        live.report(done, 50.0, 16)
    live.report(30, 10.0, 8)  # its tails in float32
    live.finish(200, 5.0)
    live.report(200, 40.0, 16)
    live.finish(200, 4.0)
    axis = [point["scan/candidates"] for point in live.mirror.points]
    assert axis == [100, 200, 230, 230, 430, 430]
    assert live.mirror.points[1]["scan/batch_size"] == 16
    assert [point["scan/seconds"] for point in live.mirror.points if "scan/seconds" in point] == [
        5.0,
        4.0,
    ]
