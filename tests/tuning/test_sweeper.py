"""`pessimal search -m hparams_search=gcg` from the command line to the published study, with a toy in place of searches."""

import json
import os
import subprocess
import sys
from pathlib import Path

import optuna
import pandas as pd
import pytest

from pessimal.config.schema import SearchSpec
from pessimal.report.artifact import Artifact
from pessimal.report.page import page
from pessimal.tuning.storage import Storage

HERE = Path(__file__).parent
USUAL = SearchSpec()
TUNE = ["search", "-m", "hparams_search=gcg", "model=plain-bpe-0"]


def toy(folder, *arguments, **manners):
    """Start the command with the toy, in a process and a folder."""
    message = " ".join(f"{key}={value}" for key, value in manners.items())
    return subprocess.Popen(
        [sys.executable, str(HERE / "toy_command.py"), *arguments],
        cwd=folder, env={**os.environ, "TOY": message, "WANDB_SILENT": "true"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def ended(process):
    said, _ = process.communicate(timeout=300)
    return process.returncode, said


def study(storage, name):
    return optuna.load_study(study_name=name, storage=Storage.of(str(storage)).open())


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """Eight trials by two workers that were given the same command, W&B aside: the folder and what the workers said."""
    folder = tmp_path_factory.mktemp("tuned")
    command = [*TUNE, "hydra.sweeper.n_trials=8", "tuning.study=mine", "search.goal=pessimal", "tracking=off"]
    message = [ended(process) for process in [toy(folder, *command, sleep=0.02) for _ in range(2)]]
    assert [code for code, _ in message] == [0, 0], message
    return folder, [said for _, said in message]


@pytest.fixture(scope="module")
def published(tuned):
    [folder] = (tuned[0] / "runs/registry/study/mine").glob("v*")
    return folder


def test_two_workers_make_one_study_and_both_name_what_is_published(tuned, published):
    folder, message = tuned
    trials = study(folder / "runs/studies/mine.log", "mine").trials
    assert len(trials) == 8
    assert all(trial.state.name in ("COMPLETE", "PRUNED") for trial in trials)
    for said in message:
        assert str(published) in said.splitlines()
    assert sum("The same options in a search" in said for said in message) == 1, "concluded once"
    assert published.name == "v0"


def test_the_same_command_adds_nothing(tuned, published):
    folder, _ = tuned
    again = [*TUNE, "hydra.sweeper.n_trials=8", "tuning.study=mine", "search.goal=pessimal", "tracking=off"]
    code, said = ended(toy(folder, *again))
    assert code == 0, said
    assert "concluded already" in said
    assert said.splitlines()[-1] == str(published)
    assert len(study(folder / "runs/studies/mine.log", "mine").trials) == 8


def test_what_is_published_can_be_checked_against_the_study(tuned, published):
    from toy_command import BEST_MOMENTUM

    tables = {file.stem: pd.read_parquet(file) for file in (published / "tables").glob("*.parquet")}
    trials = tables["trials"]
    stored = study(tuned[0] / "runs/studies/mine.log", "mine").trials
    assert list(trials["value"]) == [trial.value for trial in stored]
    assert list(trials["momentum"]) == [trial.params["search.momentum"] for trial in stored]
    first = trials.iloc[0]
    assert (first["defaults"], first["momentum"], first["state"]) == (True, USUAL.momentum, "complete")
    medians = tables["searches"].groupby("trial")["value"].median()
    assert medians.to_numpy() == pytest.approx(trials["value"].to_numpy())
    best = trials[trials["best"]].iloc[0]
    assert best["value"] == trials.loc[trials["state"] == "complete", "value"].max()
    options = tables["options"].set_index("option")
    assert options.loc["momentum", ["tuned", "defaults"]].tolist() == [best["momentum"], USUAL.momentum]
    # The toy's value is known: what held-out searches say is what the options make of it, noise cancelled by pairing.
    gain = abs(USUAL.momentum - BEST_MOMENTUM) - abs(best["momentum"] - BEST_MOMENTUM)
    gain += (best["search_width"] - USUAL.search_width) / 10_000
    assert tables["held_out"]["difference"].to_numpy() == pytest.approx(gain)
    assert not set(tables["held_out"]["prompt"]) & set(tables["searches"]["prompt"])
    assert not set(tables["held_out"]["seed"]) & set(tables["searches"]["seed"])
    importances = tables["importances"].set_index("option")
    assert importances["importance"].idxmax() == "momentum"
    assert (importances["n"] == 8).all()
    assert set(tables["provenance"]["used"]) == {"tuned on", "held out"}
    assert set(tables["provenance"]["goal"]) == {"pessimal"}


def test_the_artifact_is_whole_and_can_be_shown(published):
    manifest = json.loads((published / "manifest.json").read_text())
    assert manifest["type"] == "study"
    assert manifest["summary"]["model"] == "plain-bpe-0"
    assert manifest["summary"]["held_out_low"] > 0
    for figure in ("trials", "importances", "held_out_differences"):
        assert f"figures/{figure}.svg" in manifest["files"]
    html = page([Artifact("study/mine:v0", published, "2026")], title="tuning")
    assert "the tuned options find more than the defaults" in html
    held_out = next(r for r in results_of(published) if r["name"] == "held_out_differences")
    assert (held_out["estimate"]["n"], held_out["estimate"]["of"]) == (6, "prompts")


def results_of(folder):
    return json.loads((folder / "results.json").read_text())["results"]


@pytest.fixture
def toys(command, monkeypatch):
    """The command with the toy, in this process."""
    from toy_command import ToyContext

    monkeypatch.setattr("pessimal.verbs.search.prepare", ToyContext)

    def run(*arguments, **manners):
        monkeypatch.setenv("TOY", " ".join(f"{key}={value}" for key, value in manners.items()))
        return command(*TUNE, *arguments)

    return run


@pytest.fixture
def quick(toys, monkeypatch):
    """The same without W&B, and without drawing figures, which takes longest."""
    monkeypatch.setattr("pessimal.verbs.publish.save_figures", lambda *_: {})
    return lambda *arguments, **manners: toys("tracking=off", *arguments, **manners)


FEW = [
    "tuning.study=few", "tuning.prompts=[greatest,worst]", "tuning.held_out=[best,good_time_one]", "tuning.seeds=1",
    "tuning.held_out_seeds=2", "search.momentum=choice(0.25,0.5)", "search.step_size=2", "search.top_k=256",
    "search.search_width=512", "search.buffer_size=4", "search.step_size_until=0.8",
]  # fmt: skip


def test_every_trial_is_a_run_of_the_studys_group_and_one_more_holds_the_artifact(toys, tmp_path):
    assert toys(*FEW, "hydra.sweeper.n_trials=1")[0] == 0
    runs = []
    for folder in (tmp_path / "runs/wandb/wandb").glob("offline-run-*"):
        lines = subprocess.run(
            [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(folder)],
            capture_output=True, text=True, check=True,
        ).stdout.splitlines()  # fmt: skip
        records = [json.loads(line) for line in lines if line.startswith("{")]
        [run] = [record["run"] for record in records if "run" in record][:1]
        runs.append((run["display_name"], run["run_group"], "held_out_differences" in json.dumps(records)))
    assert sorted(runs) == [
        ("few", "few", True),
        ("few trial 0", "few", False),
    ]


def test_options_typed_on_the_command_line_replace_and_fix_dimensions(quick, tmp_path):
    code, _, said = quick(
        "tuning.study=typed", "hydra.sweeper.n_trials=3", "tuning.seeds=1", "tuning.held_out=[]",
        "search.top_k=choice(64,256)", "search.momentum=0.5", "search.buffer_size=4", "search.step_size_until=0.8",
    )  # fmt: skip
    assert code == 0, said
    trials = study(tmp_path / "runs/studies/typed.log", "typed").trials
    assert set(trials[1].params) == {"search.step_size", "search.top_k", "search.search_width"}
    assert {trial.params["search.top_k"] for trial in trials} <= {64, 256}
    notes = {r["name"]: r["notes"] for r in results_of(tmp_path / "runs/registry/study/typed/v0")}
    assert "No prompts were held out" in notes["options"][0]
    assert "too few trials" in notes["trials"][0]


def test_defaults_that_nothing_beats_are_said_to_be_the_best(quick, tmp_path):
    code, _, said = quick(*FEW, "hydra.sweeper.n_trials=3", f"search.momentum=choice({USUAL.momentum},0.95)")
    assert code == 0, said
    found = {r["name"]: r for r in results_of(tmp_path / "runs/registry/study/few/v0")}
    assert "the defaults themselves did best" in found["options"]["headline"]
    assert found["held_out_differences"]["estimate"]["value"] == 0


def test_more_trials_make_a_new_version_and_another_study_spec_another_study(quick, tmp_path):
    for total, more, versions in ((1, [], 1), (2, [], 2), (1, [], 2), (1, ["force=true"], 3)):
        assert quick(*FEW, f"hydra.sweeper.n_trials={total}", *more)[0] == 0
        assert len(list((tmp_path / "runs/registry/study/few").glob("v*"))) == versions
    code, _, said = quick(*FEW, "search.goal=pessimal")
    assert code == 2
    assert "search.goal was 'optimal' and is now 'pessimal'" in said


def test_a_failing_job_costs_its_trial_only(quick, tmp_path):
    code, _, said = quick(*FEW, "hydra.sweeper.n_trials=3", fail=1)
    assert code == 0, said
    trials = study(tmp_path / "runs/studies/few.log", "few").trials
    assert [trial.state.name for trial in trials] == ["COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]
    table = pd.read_parquet(tmp_path / "runs/registry/study/few/v0/tables/trials.parquet")
    assert table["error"].fillna("").tolist() == ["", "RuntimeError: the toy fell over", "", ""]
    assert table["state"].tolist() == ["complete", "failed", "complete", "complete"]


def test_when_every_job_fails_it_ends_with_the_reason(quick):
    code, _, said = quick(*FEW, fail="all")
    assert code == 1
    assert "3 trials in a row failed, the last with: RuntimeError: the toy fell over" in said
    assert "Traceback" not in said.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search.topk=choice(1,2)"], "Did you mean 'search.top_k'?"),
        (["search.momentum=interval(0,2)"], "search.momentum=2.0"),
        (["tuning.prompts=[nobody]"], "there is no prompt 'nobody'"),
        (["tuning.held_out=[greatest_ever_one]"], "which options are tuned on"),
        (["tuning.held_out=[greatest]"], "worded exactly as tuning.prompts=greatest_ever_one"),
        (["tuning.storage=study.db"], "tuning.storage=sqlite:///study.db"),
        (["hydra.sweeper.n_trials=0"], "hydra.sweeper.n_trials=0"),
        (["model=oak"], "Could not find 'model/oak'"),
        (["search.length=99"], "search.length=16"),
        (["hydra.sweeper.trials=3"], "trials"),
    ],
)
def test_mistakes_are_reported_before_any_trial(toys, tmp_path, arguments, message):
    code, _, said = toys(*arguments)
    assert code == 2
    assert message in said
    assert "Traceback" not in said
    assert not list(tmp_path.rglob("studies/*")), "no study was begun"


def test_real_searches_side_by_side_in_other_processes(command, tiny_checkpoint, tmp_path):
    model = ["model=auto", f"model.path={tiny_checkpoint}", "progress=false", "tracking=off"]
    small = ["tuning.evaluations=200", "search.length=3", "search.search_width=64", "search.top_k=64"]
    pool = ["hydra.sweeper.n_trials=4", "hydra.sweeper.n_jobs=2", "hydra/launcher=joblib"]
    code, out, said = command(*TUNE[:3], *model, *FEW[:5], *small, "search.momentum=interval(0,0.9)", *pool)
    assert code == 0, said
    published = tmp_path / "runs/registry/study/few/v0"
    assert out.splitlines()[-1] == str(published)
    trials = pd.read_parquet(published / "tables/trials.parquet")
    assert set(trials["state"]) <= {"complete", "pruned"}
    assert len(trials) == 4
    assert trials.loc[0, "defaults"]
    # What a search finds in 200 evaluations is far above a random token, and never the same from two starts on two prompts.
    searches = pd.read_parquet(published / "tables/searches.parquet")
    assert (searches["value"] > 1).all()
    held_out = pd.read_parquet(published / "tables/held_out.parquet")
    assert len(held_out) == 4
    assert held_out["tuned"].nunique() == 4
