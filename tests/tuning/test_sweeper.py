"""`pessimal search -m hparams_search=gcg` from the command line to the published study, with a toy
in place of searches."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pandas as pd
import pytest
from toy_command import BEST_MOMENTUM, ToyModel

from pessimal.report.artifact import Artifact
from pessimal.report.page import page
from pessimal.searching.spec import SearchSpec

HERE = Path(__file__).parent
USUAL = SearchSpec()
TUNE = ["search", "-m", "hparams_search=gcg", "model=plain-bpe-0"]
MINE = [
    *TUNE,
    "hydra.sweeper.n_trials=8",
    "tuning.study=mine",
    "search.goal=pessimal",
    "tracking=off",
]
FEW = [
    "tuning.study=few",
    "tuning.prompts=[greatest,worst]",
    "tuning.held_out=[best,good_time_one]",
    "tuning.seeds=1",
    "tuning.held_out_seeds=2",
    "search.momentum=choice(0.25,0.5)",
    "search.step_size=2",
    "search.top_k=256",
    "search.search_width=512",
    "search.step_size_until=0.8",
]


def trials_of(folder, name):
    url = f"sqlite:///{folder}/runs/studies/{name}.db"
    return optuna.load_study(study_name=name, storage=optuna.storages.RDBStorage(url)).trials


def results_of(folder):
    results = json.loads((folder / "results.json").read_text())["results"]
    return {result["name"]: result for result in results}


@pytest.fixture(scope="module")
def toy():
    """Start the command with the toy, in a process and a folder; whatever is left of it is killed
    in the end."""
    running = []

    def begin(folder, *arguments, **manners):
        message = " ".join(f"{key}={value}" for key, value in manners.items())
        running.append(
            subprocess.Popen(
                [sys.executable, str(HERE / "toy_command.py"), *arguments],
                cwd=folder,
                env={**os.environ, "TOY": message, "WANDB_SILENT": "true"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        return running[-1]

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def ended(process) -> str:
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return said


@pytest.mark.slow
def test_two_workers_make_one_study_which_is_published_once(toy, tmp_path):
    """Eight trials by two workers that were given the same command, and by a third that comes
    late."""
    both = [ended(process) for process in [toy(tmp_path, *MINE, sleep=0.05) for _ in range(2)]]
    stored = trials_of(tmp_path, "mine")
    assert [trial.state.name in ("COMPLETE", "PRUNED") for trial in stored] == [True] * 8
    late = ended(toy(tmp_path, *MINE))
    [published] = (tmp_path / "runs/registry/study/mine").glob("v*")
    for said in [*both, late]:
        assert said.splitlines()[-1] == str(published)
    assert sum("The same options in a search" in said for said in both) == 1, "concluded once"
    assert "concluded already" in late

    tables = {path.stem: pd.read_parquet(path) for path in (published / "tables").glob("*.parquet")}
    trials = tables["trials"]
    assert list(trials["value"]) == [trial.value for trial in stored]
    assert list(trials["momentum"]) == [trial.params["search.momentum"] for trial in stored]
    first = trials.iloc[0]
    assert (first["defaults"], first["momentum"], first["state"]) == (
        True,
        USUAL.momentum,
        "complete",
    )
    medians = tables["searches"].groupby("trial")["value"].median()
    assert medians.to_numpy() == pytest.approx(trials["value"].to_numpy())
    best = trials[trials["best"]].iloc[0]
    assert best["value"] == trials.loc[trials["state"] == "complete", "value"].max()
    options = tables["options"].set_index("option")
    assert options.loc["momentum", ["tuned", "defaults"]].tolist() == [
        best["momentum"],
        USUAL.momentum,
    ]
    # The toy's value is known: what held-out searches say is what the options make of it, noise
    # cancelled by pairing.
    gain = abs(USUAL.momentum - BEST_MOMENTUM) - abs(best["momentum"] - BEST_MOMENTUM)
    gain += (best["search_width"] - USUAL.search_width) / 10_000
    assert tables["held_out"]["difference"].to_numpy() == pytest.approx(gain)
    assert not set(tables["held_out"]["prompt"]) & set(tables["searches"]["prompt"])
    assert not set(tables["held_out"]["seed"]) & set(tables["searches"]["seed"])
    importances = tables["importances"].set_index("option")
    assert importances["importance"].idxmax() == "momentum"
    assert (importances["n"] == 8).all()

    manifest = json.loads((published / "manifest.json").read_text())
    assert (manifest["type"], manifest["summary"]["model"]) == ("study", "plain-bpe-0")
    assert manifest["summary"]["held_out_low"] > 0
    for figure in ("trials", "importances", "held_out_differences"):
        assert f"figures/{figure}.svg" in manifest["files"]
    assert "the tuned options find more than the defaults" in page(
        [Artifact("study/mine:v0", published, "2026")], title="tuning"
    )
    estimate = results_of(published)["held_out_differences"]["estimate"]
    assert (estimate["n"], estimate["of"]) == (6, "prompts")


@pytest.mark.slow
def test_a_killed_workers_trial_is_run_again_by_the_other(toy, tmp_path):
    small = [*TUNE, *FEW[:5], "tuning.held_out=[]", "hydra.sweeper.n_trials=5", "tracking=off"]
    killed = toy(tmp_path, *small, hang=2)
    until((tmp_path / "hanging").exists, killed)
    other = toy(tmp_path, *small)
    # The other worker runs what is left, and then waits: whoever hangs is alive.
    until(lambda: sum(t.state.is_finished() for t in trials_of(tmp_path, "few")) == 4, other)
    time.sleep(2)
    assert other.poll() is None
    assert trials_of(tmp_path, "few")[1].state.name == "RUNNING"
    os.kill(killed.pid, signal.SIGKILL)
    ended(other)
    done = trials_of(tmp_path, "few")
    assert [trial.number for trial in done if trial.state.name == "FAIL"] == [1]
    assert len(done) == 6, "five trials with a value, and no more"
    assert [
        t.params == done[1].params for t in done if t.system_attrs.get("failed_trial") == 1
    ] == [True]
    table = pd.read_parquet(tmp_path / "runs/registry/study/few/v0/tables/trials.parquet")
    assert table["error"].dropna().tolist() == ["its worker died"]


def until(happened, worker):
    """Wait for something that this worker is to do."""
    deadline = time.monotonic() + 120
    while not happened():
        assert worker.poll() is None, worker.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture(autouse=True)
def family(tiny_checkpoint, tmp_path_factory, monkeypatch):
    """A folder of the model's name, which a toy stands for: files are looked for before it runs."""
    folder = tmp_path_factory.mktemp("family")
    (folder / "plain-bpe-0").symlink_to(tiny_checkpoint)
    monkeypatch.setenv("DEMO_FAMILY", str(folder))


@pytest.fixture
def toys(command, monkeypatch):
    """The command with the toy, in this process."""
    monkeypatch.setattr("pessimal.verbs.search.prepare", ToyModel)

    def run(*arguments, **manners):
        monkeypatch.setenv("TOY", " ".join(f"{key}={value}" for key, value in manners.items()))
        return command(*TUNE, *arguments)

    return run


@pytest.fixture
def quick(toys, undrawn):
    """The same without W&B and figures."""
    return lambda *arguments, **manners: toys("tracking=off", *arguments, **manners)


@pytest.mark.slow
def test_every_trial_is_a_run_of_the_studys_group_and_one_more_holds_the_artifact(toys, tmp_path):
    assert toys(*FEW, "hydra.sweeper.n_trials=1")[0] == 0
    runs = []
    for folder in (tmp_path / "runs/wandb/wandb").glob("offline-run-*"):
        inspect = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(folder)]
        said = subprocess.run(inspect, capture_output=True, text=True, check=True).stdout
        run = next(
            json.loads(line)["run"]
            for line in said.splitlines()
            if line.startswith('{"run"') or '"run":' in line
        )
        runs.append((run["display_name"], run["run_group"], "held_out_differences" in said))
    assert sorted(runs) == [("few", "few", True), ("few trial 0", "few", False)]


def test_options_typed_on_the_command_line_replace_and_fix_dimensions(quick, tmp_path):
    code, _, said = quick(
        "tuning.study=typed",
        "hydra.sweeper.n_trials=3",
        "tuning.seeds=1",
        "tuning.held_out=[]",
        "search.top_k=choice(64,256)",
        "search.momentum=0.5",
        "search.step_size_until=0.8",
    )
    assert code == 0, said
    trials = trials_of(tmp_path, "typed")
    assert set(trials[1].params) == {"search.step_size", "search.top_k", "search.search_width"}
    assert {trial.params["search.top_k"] for trial in trials} <= {64, 256}
    results = results_of(tmp_path / "runs/registry/study/typed/v0")
    assert all(results[name]["notes"] for name in ("options", "trials")), (
        "nothing held out, too few trials"
    )
    assert "importances" not in results


@pytest.mark.slow
def test_more_trials_make_a_new_version_and_another_study_spec_another_study(quick, tmp_path):
    for total, more, versions in ((1, [], 1), (2, [], 2), (1, [], 2), (1, ["force=true"], 3)):
        assert quick(*FEW, f"hydra.sweeper.n_trials={total}", *more)[0] == 0
        assert len(list((tmp_path / "runs/registry/study/few").glob("v*"))) == versions
    code, _, said = quick(*FEW, "search.goal=pessimal")
    assert code == 2
    assert "search.goal was 'optimal' and is now 'pessimal'" in said


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("search.topk=choice(1,2)", "Did you mean 'search.top_k'?"),
        ("tuning.held_out=[greatest_ever_one]", "which options are tuned on"),
        ("hydra.sweeper.n_trials=0", "hydra.sweeper.n_trials=0"),
    ],
)
def test_mistakes_are_reported_before_any_trial(toys, tmp_path, argument, message):
    code, _, said = toys(argument)
    assert code == 2
    assert message in said
    assert not list(tmp_path.rglob("studies/*")), "no study was begun"


@pytest.mark.slow
def test_real_searches_side_by_side_in_other_processes(command, tiny_checkpoint, tmp_path):
    model = ["model=auto", f"model.path={tiny_checkpoint}", "progress=false", "tracking=off"]
    small = [
        "tuning.evaluations=200",
        "search.length=3",
        "search.search_width=64",
        "search.top_k=64",
    ]
    pool = ["hydra.sweeper.n_trials=4", "hydra.sweeper.n_jobs=2", "hydra/launcher=joblib"]
    code, out, said = command(
        *TUNE[:3], *model, *FEW[:5], *small, "search.momentum=interval(0,0.9)", *pool
    )
    assert code == 0, said
    published = tmp_path / "runs/registry/study/few/v0"
    assert out.splitlines()[-1] == str(published)
    trials = pd.read_parquet(published / "tables/trials.parquet")
    assert set(trials["state"]) <= {"complete", "pruned"}
    assert len(trials) == 4
    assert trials.loc[0, "defaults"]
    # What a search finds in 200 evaluations is far above a random token, and never the same from
    # two starts on two prompts.
    searches = pd.read_parquet(published / "tables/searches.parquet")
    assert (searches["value"] > 1).all()
    held_out = pd.read_parquet(published / "tables/held_out.parquet")
    assert len(held_out) == 4
    assert held_out["tuned"].nunique() == 4
