"""`pessimal search` end to end, on a tiny random checkpoint where every response can be scored by full forwards."""

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from pessimal.models.load import open_model
from pessimal.models.spec import ModelSpec
from pessimal.scoring.engine import own_rewards
from pessimal.search.run import search as search_in_memory
from pessimal.tracking.registry import Registry
from pessimal.verbs import search as search_verb

PROMPTS = {
    "greatest": "What, in one word, is the greatest thing ever?",
    "worst": "What, in one word, is the worst thing ever?",
}
WORDS = ("love", "hate", "good", "evil", "peace", "war", "kind", "cruel")
SMALL = (
    "search.evaluations=1500", "search.restarts=2", "search.search_width=64", "search.top_k=16", "search.polish=2",
    "search.pairs=20", "tracking=off", "trainer.threads=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def model(tiny_checkpoint):
    return open_model(ModelSpec(path=str(tiny_checkpoint)), tiny_checkpoint)


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
def search(command, tiny_checkpoint, tmp_path):
    """Run `pessimal search` on the tiny checkpoint; gives its published folder, or (code, message) where it failed."""

    def run(*overrides):
        code, out, err = command("search", "model=auto", f"model.path={tiny_checkpoint}", *SMALL, *overrides)
        return Path(out.strip().splitlines()[-1]) if code == 0 and out.strip() else (code, err)

    return run


@pytest.fixture
def words(tmp_path):
    """A file of eight words, of which responses may be made."""
    file = tmp_path / "words.txt"
    file.write_text("\n".join(WORDS))
    return file


def table(folder, name):
    return pd.read_parquet(folder / "tables" / f"{name}.parquet")


def response_of(folder):
    return tuple(json.loads(table(folder, "sequences")["token_ids"].iloc[0]))


def allowed_ids(folder, model, words):
    texts = {text: i for i in range(model.embedding_rows) if (text := model.tokenizer.decode([i]))}
    return sorted({texts[form] for word in words for form in (word, " " + word) if form in texts})


@pytest.mark.parametrize("goal", ["optimal", "pessimal"])
def test_one_token_is_the_scans_best_and_the_table_is_used(search, command, tiny_checkpoint, tmp_path, goal):
    code, _, _ = command(
        "scan",
        "model=auto",
        f"model.path={tiny_checkpoint}",
        "prompts=[greatest]",
        "tracking=off",
        "trainer.threads=1",
    )
    assert code == 0
    rows = pd.read_parquet(next(tmp_path.glob("runs/registry/score-table/*/v0/scores.parquet")))
    rows = rows[~rows["kind"].isin(["special", "unused"])]
    best = rows.loc[rows["reward"].idxmax() if goal == "optimal" else rows["reward"].idxmin()]
    folder = search("search.length=1", f"search.goal={goal}")
    assert response_of(folder) == (best["candidate_id"],)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["inputs"] == [f"score-table/{tiny_checkpoint.name}--greatest:v0"]
    assert manifest["summary"]["best_reward"] == pytest.approx(best["reward"], abs=1e-5)


def test_one_token_without_a_table_is_the_best_of_all(search, full, model):
    folder = search("search.length=1", "search.allowed=[]")
    every = full([(i,) for i in range(model.embedding_rows)])
    assert response_of(folder) == (int(every.argmax()),)
    neighbours = table(folder, "neighbours")
    assert neighbours["margin"].iloc[0] == pytest.approx(np.sort(every)[-1] - np.sort(every)[-2], abs=1e-5)


@pytest.mark.parametrize("goal", ["optimal", "pessimal"])
def test_two_and_three_tokens_are_the_true_ends_of_a_small_list(search, full, model, words, goal):
    for length in (2, 3):
        folder = search(
            f"search.length={length}", f"search.goal={goal}", f"search.allowed_path={words}",
            "search.polish=16", "search.evaluations=1600",
        )  # fmt: skip
        ids = allowed_ids(folder, model, WORDS)
        every = list(itertools.product(ids, repeat=length))
        rewards = full(every)
        best = rewards.argmax() if goal == "optimal" else rewards.argmin()
        assert response_of(folder) == every[best]
        assert table(folder, "sequences")["reward"].iloc[0] == pytest.approx(rewards[best], abs=1e-5)
        assert json.loads((folder / "manifest.json").read_text())["summary"]["verdict"] == "1-opt"


def test_the_certificate_names_the_best_neighbour_of_each_position(search, full, model):
    folder = search("search.length=3")
    response, neighbours = response_of(folder), table(folder, "neighbours")
    mask = [i for i in range(model.embedding_rows) if i not in model.tokenizer.all_special_ids]
    own = full([response])[0]
    for row in neighbours.itertuples():
        changes = [(*response[: row.position], i, *response[row.position + 1 :]) for i in mask]
        changes = [change for change in changes if change != response]
        rewards = full(changes)
        assert changes[rewards.argmax()][row.position] == row.neighbour_id
        assert row.margin == pytest.approx(own - rewards.max(), abs=1e-5)
    assert len(neighbours) == 3


def test_several_prompts_are_searched_for_their_mean(search, full, words, model):
    folder = search("search.length=2", "prompt=[greatest,worst]", f"search.allowed_path={words}")
    every = list(itertools.product(allowed_ids(folder, model, WORDS), repeat=2))
    mean = (full(every) + full(every, "worst")) / 2
    assert response_of(folder) == every[mean.argmax()]


def test_in_text_mode_every_response_is_given_by_a_text(search, model):
    folder = search("mode=text", "search.length=2", "search.allowed=[]")
    frame = model.frame(PROMPTS["greatest"])
    for row in table(folder, "sequences").itertuples():
        turns = [{"role": "user", "content": PROMPTS["greatest"]}, {"role": "assistant", "content": row.text}]
        ids = model.tokenizer.apply_chat_template(turns, return_dict=False)
        assert frame.inside(ids) == json.loads(row.token_ids)
        assert row.survives


def test_every_pair_by_exhaustion(search, full, model, words):
    folder = search(
        "search.length=2", "search.method=exhaustive", f"search.allowed_path={words}", "search.keep=10",
        "search.evaluations=200",
    )  # fmt: skip
    every = list(itertools.product(allowed_ids(folder, model, WORDS), repeat=2))
    rewards = full(every)
    assert response_of(folder) == every[rewards.argmax()]
    top = table(folder, "top_pairs")
    assert top["reward"].to_numpy() == pytest.approx(np.sort(rewards)[::-1][:10], abs=1e-5)
    standing = table(folder, "standing")
    assert (standing["of"] == len(every)).all()
    for row in standing.itertuples():
        assert row.rank <= 1 + (rewards > row.reward + 1e-5).sum() <= row.rank_most + 1
    assert table(folder, "histogram")["n"].sum() == len(every)
    assert table(folder, "ladder").set_index("rung")["verdict"][2] == "holds"


@pytest.mark.slow
def test_all_responses_of_a_small_list_are_exact_and_a_pruned_look_is_not(search, words):
    exact = search("search.length=2", f"search.allowed_path={words}")
    pruned = search("search.length=2", "search.evaluations=30000")
    verdicts = [table(folder, "ladder").set_index("rung")["verdict"][2] for folder in (exact, pruned)]
    assert verdicts == ["holds", "not tried"]
    assert table(exact, "sequences")["found_by"].iloc[0] == "every response"
    assert "pruned" in table(pruned, "ladder").set_index("rung")["measured"][2]


def test_the_budget_is_that_of_the_whole_search_and_the_certificate_is_counted_apart(search):
    phases = table(search("search.length=2", "search.baselines=100"), "phases").set_index("phase")[
        "evaluations"
    ]
    assert phases.drop(["certificate", "baseline"]).sum() <= 1500
    assert phases["baseline"] <= 3 * 100
    assert phases["certificate"] > 0


def test_the_best_response_ever_evaluated_is_published_whoever_found_it(search, monkeypatch):
    from pessimal.search import run

    real = run.search_by_stages
    monkeypatch.setattr(run, "search_by_stages", lambda *args, **more: real(*args, **more)[-1:])
    best = table(
        search("search.length=3", "search.baselines=true", "search.evaluations=3000"), "sequences"
    ).iloc[0]
    assert best["found_by"].startswith("baseline: ")
    assert best["one_opt"]


@pytest.mark.slow
def test_a_repeat_begins_from_what_the_registry_holds_and_is_never_worse(search):
    good = search("search.length=4", "search.evaluations=20000")
    poor = search("search.length=4", "search.evaluations=40", "seed=5")
    alone = search("search.length=4", "search.evaluations=40", "seed=5", "search.from_registry=false")
    rewards = [table(folder, "sequences")["reward"].iloc[0] for folder in (good, poor, alone)]
    assert rewards[1] >= rewards[0]
    starts = table(poor, "sequences")["start"]
    assert "registry" in set(starts) | set(table(good, "sequences")["start"])
    assert "registry" not in set(table(alone, "sequences")["start"])
    verdicts = [table(folder, "ladder").set_index("rung")["verdict"][7] for folder in (poor, alone)]
    assert verdicts[0] == "not tried", "what the registry held is no merit of this search"
    assert verdicts[1] != "not tried"


def test_the_cost_is_said_before(command, tiny_checkpoint):
    _, _, err = command("search", "model=auto", f"model.path={tiny_checkpoint}", *SMALL, "search.length=2")
    [line] = [line for line in err.splitlines() if "At most" in line]
    assert "evaluations (" in line
    assert "a second" in line


def test_a_finished_search_is_named_and_not_made_again(search, monkeypatch):
    folder = search("search.length=2")
    monkeypatch.setattr(search_verb, "search", lambda *_, **__: pytest.fail("searched again"))
    assert search("search.length=2") == folder
    assert len(list(folder.parent.iterdir())) == 1


@pytest.mark.slow
def test_a_killed_search_goes_on_and_gives_the_same(search, tmp_path, monkeypatch):
    from pessimal.search import procedure

    whole = search("search.length=3")
    shutil.rmtree(tmp_path / "runs" / "registry")
    calls = {"gcg": 0}
    real = procedure.gcg

    def dies(*args, **options):
        calls["gcg"] += 1
        if calls["gcg"] == 2:  # after the first restart
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(procedure, "gcg", dies)
    code, _ = search("search.length=3")
    assert code == 130
    calls["gcg"] = -100
    again = search("search.length=3")
    assert calls["gcg"] == -99  # only the restart that was killed
    for name in ("sequences", "curve", "neighbours", "ladder"):
        pd.testing.assert_frame_equal(table(whole, name), table(again, name))


@pytest.mark.slow
def test_the_function_gives_what_the_verb_gives(search, model):
    options = {"evaluations": 1500, "restarts": 2, "search_width": 64, "top_k": 16, "polish": 2, "pairs": 20}
    found = search_in_memory(model, {"greatest": PROMPTS["greatest"]}, length=2, goal="pessimal", **options)
    published = table(search("search.length=2", "search.goal=pessimal"), "sequences").iloc[0]
    assert list(found.response) == json.loads(published["token_ids"])
    assert found.reward == pytest.approx(published["reward"])
    assert found.found_by == published["found_by"]
    assert found.results[0].headline


@pytest.mark.slow
def test_growth_takes_other_lengths_from_the_registry(search):
    search("search.length=1")
    search("search.length=3")
    growth = table(search("search.length=2"), "growth")
    searched = growth[growth["what"] == "search"]
    assert searched["length"].tolist() == [1, 2, 3]
    assert searched["reference"].iloc[1] == ""


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("search.length=17",), "search.length=17"),
        (("search.length=0",), "search.length=0"),
        (("search.method=exhaustive",), "search.length=2"),
        (("search.method=exhaustive", "search.length=2", "prompt=[greatest,best]"), "-m prompt="),
        (("prompt=finest",), "no prompt 'finest'"),
        (("search.momentum=1",), "search.momentum"),
        (("search.baselines=some",), "search.baselines"),
        (("search.gradient_share=0.6",), "search.random_share"),
        (("search.allowed=[nouns]",), "nouns"),
        (("search.allowed_path=nowhere.txt",), "nowhere.txt"),
        (("mode=paper",), "mode=ids or mode=text"),
        (("trainer.devices=2",), "one device"),
        (("model.score=log_probability",), "log-probabilities"),
    ],
)
def test_mistakes_are_reported_before_a_model_loads(search, monkeypatch, overrides, message):
    monkeypatch.setattr(search_verb, "open_context", lambda *_: pytest.fail("a model was opened"))
    code, report = search(*overrides)
    assert code == 2
    assert message in report


def test_results_are_published_as_other_artifacts_are(search, tmp_path):
    folder = search("search.length=2")
    registry = Registry(tmp_path / "runs" / "registry")
    registry.verify(folder)
    [(_, manifest)] = registry.manifests("search-result")
    assert manifest.name == "tiny-llama--greatest--optimal-2"
    assert {"best_reward", "best_text", "verdict", "evaluations", "beats_random"} <= set(manifest.summary)
    assert {"sequences", "curve", "neighbours", "gradient_quality", "growth", "ladder", "provenance"} <= {
        file.stem for file in (folder / "tables").iterdir()
    }


def test_the_page_shows_a_search(search, command, tmp_path):
    search("search.length=2")
    code, out, _ = command(
        "report", "artifacts=[search-result/tiny-llama--greatest--optimal-2]", "tracking=off"
    )
    assert code == 0
    page = Path(out.strip()).read_text()
    assert page.count('<li class="not-tried">') >= 2
    assert "a response whose tokens do well only together" in page, "limits are shown whole"


def test_a_low_precision_search_is_certified_in_float32(search, full, model, words):
    folder = search("search.length=2", "model.dtype=bfloat16", f"search.allowed_path={words}")
    every = list(itertools.product(allowed_ids(folder, model, WORDS), repeat=2))
    rewards = full(every)
    assert response_of(folder) == every[rewards.argmax()]
    best = table(folder, "sequences").iloc[0]
    assert best["reward"] == pytest.approx(rewards.max(), abs=1e-5)
    margins = table(folder, "neighbours")["margin"]
    assert margins.min() == pytest.approx(
        rewards.max() - max(r for pair, r in zip(every, rewards, strict=True) if sum(a != b for a, b in zip(pair, response_of(folder), strict=True)) == 1),
        abs=1e-5,
    )  # fmt: skip
