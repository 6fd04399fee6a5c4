"""Accuracy on labelled pairs: models that score them now, and rewards that were there already."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pessimal
from pessimal.analyses.preferences import ALL, share_interval
from pessimal.api.store import Store
from pessimal.config.schema import CompareConfig
from pessimal.errors import ConfigError, InputError
from pessimal.explaining.pairs import labelled_pairs, published_rewards, scored_rows
from pessimal.tracking.registry import Registry

QUIET = ("tracking=off", "progress=false")
FUNCTION = """
from pathlib import Path

def length(completions, **columns):
    with Path("calls.txt").open("a") as file:
        file.write("".join(f"{len(text)}\\n" for text in completions))
    return [float(len(text)) for text in completions]
"""


def row(number, first, second, *, preferred=0, category="kind", **more):
    about = {"key": f"k{number}", "preferred": preferred, "category": category}
    return {"prompt": f"q{number}", "responses": [first, second]} | about | more


def write(path, rows):
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


@pytest.fixture
def pairs(tmp_path):
    """Ten pairs in two categories, of which the longer is the better in all, and in half."""
    rows = [row(i, "long answer", "short", category="a") for i in range(5)]
    rows += [row(i, "long answer", "short", category="b", preferred=i % 2) for i in range(5, 9)]
    return write(tmp_path / "pairs.jsonl", rows)


def longer(completions, **columns):
    return [float(len(text)) for text in completions]


def shorter(completions, **columns):
    return [-float(len(text)) for text in completions]


def test_accuracy_of_functions_by_category(pairs):
    results = pessimal.accuracy([longer, shorter], pairs, progress=False)
    table = results["preferences"].table.set_index(["model", "category"])
    assert list(table.index.unique("model")) == ["longer", "shorter"]
    assert table["accuracy"].to_dict() == pytest.approx(
        {
            ("longer", ALL): 7 / 9,
            ("longer", "a"): 1,
            ("longer", "b"): 0.5,
            ("shorter", ALL): 2 / 9,
            ("shorter", "a"): 0,
            ("shorter", "b"): 0.5,
        }
    )
    whole = table.loc["longer", ALL]
    expected = share_interval(np.r_[np.ones(7), np.zeros(2)], np.arange(9))
    assert (whole["accuracy"], whole["low"], whole["high"]) == pytest.approx(expected)
    assert results["preferences"].summary["longer/accuracy/a"] == 1
    assert results["preference_differences"].table["difference"].tolist() == pytest.approx([5 / 9])
    wrong = results["preference_pairs"].table
    assert set(wrong[wrong["model"] == "longer"]["key"]) == {"k5", "k7"}


def test_a_tie_is_no_win_for_either_of_two_models(pairs):
    def none(completions, **columns):
        return [0.0 for _ in completions]

    results = pessimal.accuracy([longer, none], pairs, progress=False)
    rates = results["preferences"].table.query("category == @ALL").set_index("model")["accuracy"]
    row = results["preference_differences"].table.iloc[0]
    assert row["difference"] == pytest.approx(rates[row["model_a"]] - rates[row["model_b"]])
    assert abs(row["difference"]) == pytest.approx(7 / 9)


def test_scores_in_the_rows_stand_beside_a_model_that_scores_now(tmp_path):
    rows = [row(i, "aa", "a", scores={"old": [0.0, float(i)]}) for i in range(4)]
    results = pessimal.accuracy(longer, write(tmp_path / "set.jsonl", rows), progress=False)
    table = results["preferences"].table.set_index("model")
    assert table["accuracy"].to_dict() == {"longer": 1.0, "old": 0.0}
    assert table["ties"].to_dict() == {"longer": 0, "old": 1}


@pytest.mark.parametrize(("models", "says"), [((), "model"), ([longer, longer], "longer")])
def test_no_model_and_two_of_one_name_are_refused(pairs, models, says):
    with pytest.raises(ConfigError, match=says):
        pessimal.accuracy(models, pairs, progress=False)


@pytest.mark.parametrize(
    "more",
    [
        {"tables": "x.parquet"},
        {"prompts": {"mine": "What?"}},
        {"policy": "smollm2"},
        {"pairs": "missing.jsonl"},
    ],
)
def test_what_says_nothing_of_pairs_is_refused(more):
    given = {"pairs": "embedded", "models": ["plain-bpe-0"]} | more
    with pytest.raises((ConfigError, InputError)):
        CompareConfig(**given)


@pytest.fixture
def compare(command, tmp_path, pairs):
    """Runs `compare pairs=` of a function that counts its texts; gives the folder, and how many
    texts it was asked in all."""
    (tmp_path / "graders.py").write_text(FUNCTION)

    def run(*more, code=0):
        given = (f"pairs={pairs}", "models=[graders.py:length]", *QUIET, *more)
        got, out, err = command("compare", *given)
        assert got == code, err
        calls = tmp_path / "calls.txt"
        return Path(out.strip().splitlines()[-1]), len(calls.read_text().splitlines())

    return run


def test_what_is_asked_twice_is_the_same_comparison_and_rewards_are_asked_once(compare, pairs):
    folder, asked = compare()
    assert compare() == (folder, asked)
    again, still = compare("name=other")
    assert again != folder
    assert still == asked
    rows = [json.loads(line) for line in pairs.read_text().splitlines()]
    write(pairs, [*rows, row(9, "another long one", "short")])
    wider, more = compare()
    assert wider.parent == folder.parent
    assert wider != folder
    assert more == asked + 2
    table = pd.read_parquet(wider / "tables" / "preferences.parquet")
    assert table["accuracy"].iloc[0] == pytest.approx(8 / 10)
    summary = json.loads((wider / "manifest.json").read_text())["summary"]
    assert summary["accuracy/all"] == pytest.approx(8 / 10)
    assert (summary["models"], summary["pairs"]) == (1, 10)


def test_imported_scores_are_joined_and_compared(command, tmp_path):
    rng = np.random.default_rng(0)
    rows = [row(i, f"a{i}", f"b{i}", preferred=i % 2) for i in range(6)]
    scores = {model: rng.normal(size=(6, 2)).round(3) for model in ("m", "n")}
    one = [r | {"scores": {"m": scores["m"][i].tolist()}} for i, r in enumerate(rows)]
    other = [
        r
        | {"responses": r["responses"][::-1], "preferred": 1 - r["preferred"]}
        | {"scores": {"n": scores["n"][i, ::-1].tolist()}}
        for i, r in enumerate(rows)
    ]
    files = [write(tmp_path / f"{i}.jsonl", rows) for i, rows in enumerate((one, other))]
    given = ("format=pairs", f"path=[{files[0]},{files[1]}]", "set=both", *QUIET)
    code, out, err = command("import", *given)
    assert code == 0, err
    folder = Path(out.strip())
    rewards = published_rewards(labelled_pairs(str(folder / "pairs.parquet")))
    assert {model: values.tolist() for model, values in rewards.items()} == {
        model: values.tolist() for model, values in scores.items()
    }
    assert command("import", *given)[1] == out
    code, out, err = command("compare", "pairs=scored-pairs/both", *QUIET)
    assert code == 0, err
    table = pd.read_parquet(Path(out.strip()) / "tables" / "preferences.parquet")
    sign = np.where(np.arange(6) % 2, -1, 1)
    expected = {
        model: float(np.mean(sign * (values[:, 0] - values[:, 1]) > 0))
        for model, values in scores.items()
    }
    assert table.set_index("model")["accuracy"].to_dict() == pytest.approx(expected)
    manifest = json.loads((Path(out.strip()) / "manifest.json").read_text())
    assert manifest["inputs"] == ["scored-pairs/both:v0"]


@pytest.mark.parametrize(
    ("rows", "more"),
    [([row(0, "a", "b")], ()), ([row(0, "a", "b", scores={"m": [1, 2]})], ("prompt=greatest",))],
)
def test_what_cannot_be_imported_as_pairs(command, tmp_path, rows, more):
    path = write(tmp_path / "set.jsonl", rows)
    code, _, err = command("import", "format=pairs", f"path={path}", *more, *QUIET)
    assert code == 2
    assert not (tmp_path / "runs" / "registry" / "scored-pairs").exists(), err


def test_published_scores_of_judgebench(shared_data, tmp_path):
    file = shared_data / "scored_answers" / "judgebench_350_pairs_5_reward_models.parquet"
    pairs = labelled_pairs(str(file))
    scored_rows(pairs).to_parquet(tmp_path / "again.parquet")
    results = pessimal.accuracy((), tmp_path / "again.parquet", progress=False)
    table = results["preferences"].table
    whole = table[table["category"] == ALL].set_index("model")["accuracy"].round(3)
    assert whole.to_dict() == {
        "Ray2333_GRM-Gemma-2B-rewardmodel-ft": 0.594,
        "Skywork_Skywork-Reward-Gemma-2-27B": 0.643,
        "Skywork_Skywork-Reward-Llama-3.1-8B": 0.623,
        "internlm_internlm2-20b-reward": 0.634,
        "internlm_internlm2-7b-reward": 0.594,
    }
    assert table["category"].nunique() == 18
    rho = results["margin_agreement"].table.set_index(["model_a", "model_b"])["rho"]
    pair = ("internlm_internlm2-20b-reward", "Ray2333_GRM-Gemma-2B-rewardmodel-ft")
    assert rho[pair] == pytest.approx(0.469, abs=1e-3)


def test_what_is_published_already_is_named_and_anything_else_is_compared_anew(pairs, tmp_path):
    store = Store(Registry(tmp_path / "registry"))

    def compare(models=(longer,), some=pairs, **options):
        return pessimal.accuracy(list(models), some, store=store, progress=False, **options)

    first = compare()
    again = compare()
    assert list(again) == []
    assert again.folder == first.folder
    wide = compare(confidence=0.99)["preferences"].table.set_index("category")
    narrow = first["preferences"].table.set_index("category")
    assert wide.loc[ALL, "high"] > narrow.loc[ALL, "high"]
    fewer = write(tmp_path / "fewer.jsonl", [row(i, "long answer", "short") for i in range(6)])
    for changed in ({"models": [shorter]}, {"some": fewer}, {"name": "mine"}):
        other = compare(**changed)
        assert len(other) > 0, changed
        assert other.folder != first.folder
