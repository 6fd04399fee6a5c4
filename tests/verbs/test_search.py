"""`pessimal search` end to end, on a tiny random checkpoint where every response can be scored by
full forwards."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from pessimal.api.search import _Live
from pessimal.api.store import Artifact, publish
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.obtain import open_model
from pessimal.scoring.engine import own_rewards
from pessimal.searching.objective import RewardObjective
from pessimal.tables.result import Result
from pessimal.tracking.mirror import Mirror
from pessimal.tracking.registry import Registry
from pessimal.verbs import search as search_verb
from tolerance import close

PROMPTS = {
    "greatest": "What, in one word, is the greatest thing ever?",
    "worst": "What, in one word, is the worst thing ever?",
}
SMALL = (
    "search.evaluations=1500",
    "search.search_width=64",
    "search.top_k=16",
    "tracking=off",
    "trainer.threads=1",
)


@pytest.fixture(scope="module")
def model(tiny_checkpoint):
    return open_model(HeadSpec(path=str(tiny_checkpoint)), tiny_checkpoint)


@pytest.fixture(scope="module")
def full(model):
    """Rewards of responses (n, L) by full forwards, batch 64, no engine."""
    network = model.network()

    @torch.no_grad()
    def rewards(responses, prompt="greatest"):
        frame = model.frame(PROMPTS[prompt])
        whole = torch.tensor([frame.around(list(response)) for response in responses])
        return np.concatenate([own_rewards(network, part).numpy() for part in whole.split(64)])

    return rewards


@pytest.fixture
def search(command, tiny_checkpoint, undrawn):
    """Run `pessimal search` on the tiny checkpoint, without figures; gives its published folder, or
    (code, message) where it failed."""

    def run(*overrides):
        code, out, err = command(
            "search", "model=auto", f"model.path={tiny_checkpoint}", *SMALL, *overrides
        )
        return Path(out.strip().splitlines()[-1]) if code == 0 and out.strip() else (code, err)

    return run


def table(folder, name):
    return pd.read_parquet(folder / "tables" / f"{name}.parquet")


def response_of(folder):
    return tuple(json.loads(table(folder, "result")["token_ids"].iloc[0]))


@pytest.mark.parametrize("goal", ["optimal"])
def test_one_token_is_the_scans_best_and_the_table_is_used(
    search, command, tiny_checkpoint, tmp_path, full, goal
):
    bare = search("search.length=1", f"search.goal={goal}")
    model = ("model=auto", f"model.path={tiny_checkpoint}")
    assert (
        command("scan", *model, "prompts=[greatest]", "tracking=off", "trainer.threads=1")[0] == 0
    )
    rows = pd.read_parquet(next(tmp_path.glob("runs/registry/score-table/*/v0/scores.parquet")))
    rows = rows[~rows["kind"].isin(["special", "unused"])]
    sign = 1 if goal == "optimal" else -1
    best = rows.loc[(sign * rows["reward"]).idxmax()]
    folder = search("search.length=1", f"search.goal={goal}", "force=true")
    assert response_of(folder) == response_of(bare) == (best["candidate_id"],)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["inputs"] == [f"score-table/{tiny_checkpoint.name}--greatest:v0"]
    assert close(manifest["summary"]["best_reward"], best["reward"])
    ends = np.sort(sign * full([(i,) for i in rows["candidate_id"]]))
    assert close(
        table(bare, "certificate")["margin"].iloc[0], ends[-1] - ends[-2], size=abs(ends).max()
    )


def test_a_killed_search_goes_on_where_it_was_and_gives_the_same(search, tmp_path, monkeypatch):
    calls = 20
    asked = ("search.length=3", "search.baselines=0")
    whole = search(*asked)
    shutil.rmtree(tmp_path / "runs" / "registry")
    real, made = RewardObjective.values, []

    def dies(self, responses, **options):
        made.append(len(responses))
        if len(made) == calls:
            raise KeyboardInterrupt
        return real(self, responses, **options)

    monkeypatch.setattr(RewardObjective, "values", dies)
    code, _ = search(*asked)
    assert code == 130
    before = sum(made[:-1])
    again = search(*asked)
    summary = json.loads((again / "manifest.json").read_text())["summary"]
    assert sum(made[calls:]) < summary["evaluations"] - before, "nothing is made twice"
    for name in ("result", "candidates", "curve", "certificate", "checks"):
        pd.testing.assert_frame_equal(table(whole, name), table(again, name))


def test_a_search_of_an_earlier_release_is_shown_compared_and_begun_from(
    search, command, tmp_path, tiny_checkpoint, undrawn
):
    """Its first table is called `sequences`."""
    folder = search("search.length=3", "search.baselines=0", "model.name=tiny")
    summary = json.loads((folder / "manifest.json").read_text())["summary"]
    results = [
        Result(name, table(folder, stored), headline="It was found.", method="search")
        for name, stored in (("sequences", "result"), ("contexts", "contexts"))
    ]
    better = summary | {"best_value": summary["best_value"] + 1}
    artifact = Artifact("search-result", "old", key="k", summary=better)
    publish(Registry(tmp_path / "runs" / "registry"), Mirror(), artifact, results)
    code, out, err = command("report", "artifacts=[search-result/old]", "tracking=off")
    assert code == 0, err
    assert "It was found." in Path(out.strip()).read_text()
    options = (f"models=[{tiny_checkpoint}]", "tracking=off", "progress=false")
    code, out, err = command("compare", "searches=[old]", *options)
    assert code == 0, err
    rows = table(Path(out.strip().splitlines()[-1]), "transfer")
    assert set(rows["search"]) == {"old"}
    few = ("search.evaluations=40", "seed=3", "model.name=tiny")
    again = search("search.length=3", "search.baselines=0", *few)
    assert response_of(again) == response_of(folder)
    assert table(again, "result")["found_by"].iloc[0] == "search-result/old:v0"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("search.length=17",), "search.length=17"),
        (("tuning.seeds=2",), "tuning.prompts"),
        (("prompt=finest",), "no prompt 'finest'"),
        (("search.allowed_path=nowhere.txt",), "nowhere.txt"),
        (("trainer.devices=2",), "one device"),
    ],
)
def test_mistakes_are_reported_before_a_model_loads(search, monkeypatch, overrides, message):
    monkeypatch.setattr(search_verb, "open_context", lambda *_: pytest.fail("a model was opened"))
    code, report = search(*overrides)
    assert code == 2
    assert message in report


def test_a_search_is_announced_counted_published_shown_and_not_made_again(
    command, tmp_path, monkeypatch, tiny_checkpoint
):
    asked = ("search", "model=auto", f"model.path={tiny_checkpoint}", *SMALL)
    asked += ("search.length=2", "search.baselines=true")
    points = []
    monkeypatch.setattr(_Live, "best", lambda self, *at, **_: points.append(at))
    _, out, err = command(*asked)
    [line] = [line for line in err.splitlines() if "At most" in line]
    assert "evaluations (" in line
    folder = Path(out.strip().splitlines()[-1])
    said = json.loads((folder / "manifest.json").read_text())["summary"]["evaluations"]
    assert said <= 1500, "one budget, certificate included"
    best = json.loads((folder / "manifest.json").read_text())["summary"]["best_value"]
    assert points[-1] == (said, best), "W&B's curve ends where the manifest does"
    curve = table(folder, "curve")
    assert curve.loc[curve["method"] == "search", "evaluations"].max() == said
    assert f"{said:,} evaluations" in err
    used = curve.groupby("method")["evaluations"].max()
    assert len(used) == 2
    assert (used <= 1500).all()

    registry = Registry(tmp_path / "runs" / "registry")
    registry.verify(folder)
    [(_, manifest)] = registry.manifests("search-result")
    assert manifest.name == "tiny-llama--greatest--optimal-2"
    assert {"best_reward", "best_text", "verdict", "evaluations", "beats_random"} <= set(
        manifest.summary
    )
    assert {file.stem for file in (folder / "tables").iterdir()} == {
        *("result", "candidates", "curve", "certificate", "checks", "contexts")
    }
    code, out, _ = command(
        "report", "artifacts=[search-result/tiny-llama--greatest--optimal-2]", "tracking=off"
    )
    assert code == 0
    page = Path(out.strip()).read_text()
    assert page.count('<li class="not-tried">') >= 2
    assert "a response whose tokens do well only together" in page, "limits are shown whole"

    monkeypatch.setattr("pessimal.api.search.run", lambda *_, **__: pytest.fail("searched again"))
    assert command(*asked)[1].splitlines()[-1] == str(folder)
