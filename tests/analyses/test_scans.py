"""One model against itself: agreement, ends and movers against counts by hand and scipy; which scans
belong together; personas, as `pessimal scan prefixes=FILE` makes them; checkpoints by step."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from artifacts import score_table
from pessimal.analyses.analysis import Options
from pessimal.analyses.scans import Scans, analyse, changed_tokens, prefix_effect, quantised_pairs
from pessimal.conversation import Prefixed, Turn, add_prefixes, control_of
from pessimal.errors import TableError
from pessimal.plots.draw import draw
from pessimal.tables import ScoreTable
from pessimal.tables.table_set import runs_of, table_sets

OPTIONS = Options(meanings=None)


def by_name(tables, options=OPTIONS) -> dict:
    return {result.name: result for result in analyse(tables, options)}


# prompts


def three_prompts(items: int = 200) -> dict[str, pd.DataFrame]:
    """`steady` answers all three alike, `turns` answers the last with the opposite order."""
    rng = np.random.default_rng(0)
    names = [f"w{i}" for i in range(items)]
    liked = pd.DataFrame(rng.normal(size=(items, 2)), index=names, columns=["steady", "turns"])
    noise = [0.1 * rng.normal(size=(items, 2)) for _ in range(3)]
    return {
        "greatest": liked + noise[0],
        "best": liked.round(1) + 0 * noise[1],
        "worst": liked * [1, -1] + noise[2],
    }


def test_every_two_prompts_have_scipys_tau_inside_its_interval(table_set):
    prompts = three_prompts()
    result = by_name(table_set(prompts))["prompt_agreement"]
    assert len(result.table) == 6
    for row in result.table.itertuples():
        a, b = (prompts[prompt][row.model] for prompt in (row.prompt_a, row.prompt_b))
        assert row.kendall == pytest.approx(stats.kendalltau(a, b).statistic, abs=1e-12)
        assert row.spearman == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)
        assert row.low < row.kendall < row.high
        assert row.n == 200
    tau = result.table.set_index(["model", "prompt_a", "prompt_b"])["kendall"]
    assert tau["turns", "greatest", "worst"] < -0.8 < 0.8 < tau["steady", "greatest", "worst"]
    assert result.estimate.value == tau.min()
    assert len(draw(result.plot, result.table)) == 1


# modes

MODE_WORDS = [f"word{i}" for i in range(60)]


@pytest.fixture
def scans() -> dict[str, pd.DataFrame]:
    """60 words without and with a leading space, and five bytes; text trims the space and loses the
    bytes."""
    rng = np.random.default_rng(0)
    texts = [*MODE_WORDS, *(f" {word}" for word in MODE_WORDS), *["\N{REPLACEMENT CHARACTER}"] * 5]
    bare, spaced, byte = rng.normal(size=60), rng.normal(size=60), rng.normal(size=5)
    rows = pd.DataFrame(
        {
            "candidate_id": range(10, 135),
            "token": texts,
            "text": texts,
            "kind": ["normal"] * 120 + ["byte"] * 5,
            "survives": pd.array([True] * 60 + [False] * 65, dtype="boolean"),
        }
    )
    as_text = np.r_[bare, bare, np.full(5, -0.5)]
    return {
        "ids": rows.assign(reward=np.r_[bare, spaced, byte]),
        "text": rows.assign(reward=as_text),
        "paper": rows.assign(reward=as_text + 0.3 * rng.normal(size=125)),
    }


def tables_of(scans, *, model="m", **identity) -> list[ScoreTable]:
    described, measured = (
        {"label": f"the {model}"},
        {"noise": 1e-6, "largest_low_precision_error": 0.0},
    )
    return [
        score_table(
            rows["text"],
            rows["reward"],
            rows=rows,
            model=model,
            mode=mode,
            described=described,
            measured=measured,
            **identity,
        )
        for mode, rows in scans.items()
    ]


def test_modes_are_compared_over_all_tokens_and_over_those_that_round_trip(scans):
    other = {mode: rows.assign(reward=scans["ids"]["reward"] * 2) for mode, rows in scans.items()}
    (tables,) = table_sets(
        [
            *tables_of(scans),
            *tables_of(other, model="steady"),
            *tables_of({"ids": scans["ids"]}, model="alone"),
        ]
    )
    results = by_name(tables, replace(OPTIONS, top=7))
    table = results["mode_agreement"].table
    assert set(table["model"]) == {"m", "steady"}
    survives = scans["ids"]["survives"].to_numpy(dtype=bool)
    rows = table[table["model"] == "m"].set_index(["mode_a", "mode_b", "tokens"])
    for part, members in (("all", slice(None)), ("round_trips", survives), ("changed", ~survives)):
        for a, b in (("ids", "text"), ("ids", "paper"), ("text", "paper")):
            x, y = scans[a]["reward"][members], scans[b]["reward"][members]
            row = rows.loc[a, b, part]
            assert row["n"] == len(x)
            assert row["kendall"] == pytest.approx(stats.kendalltau(x, y).statistic, abs=1e-12)
            assert row["largest_difference"] == np.abs(x - y).max()
            # All pairs alike say nothing of their error.
            assert np.isnan(row["low"]) == (row["kendall"] > 1 - 1e-12)
    whole = results["mode_agreement"]
    assert whole.estimate.value == table.query("tokens == 'all'")["kendall"].min()
    assert whole.notes == ()
    assert len(draw(whole.plot, whole.table)) == 1
    assert "steady" not in set(results["changed_tokens"].table["model"]), "nothing moves"
    assert draw(results["changed_tokens"].plot, results["changed_tokens"].table)


def test_the_farthest_movers_stand_with_both_ranks_and_each_text_once(scans):
    pair = Scans("mode", "m", "p", {t.provenance.mode: t for t in tables_of(scans)[:2]})
    table = changed_tokens(*pair.join(), top=6)
    x, y = scans["ids"]["reward"], scans["text"]["reward"]
    gained = (x.rank(ascending=False) - y.rank(ascending=False)).set_axis(
        scans["ids"]["candidate_id"]
    )
    assert table["moved"].iloc[0] == gained.max()
    assert table["moved"].iloc[-1] == gained.min()
    assert table["moved"].is_monotonic_decreasing
    for row in table.itertuples():
        assert row.moved == row.rank_a - row.rank_b == gained[row.candidate_id]
        place = row.candidate_id - 10
        assert (row.reward_a, row.reward_b) == (x[place], y[place])
    changed = table[table["end_a"] != table["end_b"]]
    listed = table.drop(changed.index)
    assert not listed["text"].duplicated().any()
    everything = changed_tokens(*pair.join(), top=0)
    assert everything.empty, "no end and no mover"


# quantisation

TEXTS = [f"word{i}" for i in range(300)]


@pytest.fixture
def quantised() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    whole = rng.normal(size=300)
    return pd.DataFrame(
        {"m": whole, "m-nf4": whole + 0.1 * rng.normal(size=300), "other": rng.normal(size=300)},
        index=TEXTS,
    )


def test_the_numbers_of_a_quantised_model_are_counted_by_hand(table_set, quantised):
    results = by_name(table_set({"greatest": quantised}), replace(OPTIONS, top=10))
    whole, tokens = results["precision_agreement"], results["changed_tokens"].table
    (row,) = whole.table.to_dict("records")
    assert (row["model"], row["precision_a"], row["precision_b"]) == ("m-nf4", "m", "m-nf4")
    x, y = quantised["m"], quantised["m-nf4"]
    assert row["kendall"] == pytest.approx(stats.kendalltau(x, y).statistic, abs=1e-12)
    assert row["low"] < row["kendall"] < row["high"]
    moves = np.abs(stats.rankdata(-x) - stats.rankdata(-y))
    assert row["moved"] == np.mean(moves > 3)
    for end, sign in (("top", -1), ("bottom", 1)):
        before, after = (set(np.argsort(sign * values.to_numpy())[:10]) for values in (x, y))
        assert row[f"{end}_overlap"] == len(before & after) / 10
        leaves = tokens[(tokens["end_a"] == end) & (tokens["end_b"] != end)]
        enters = tokens[(tokens["end_b"] == end) & (tokens["end_a"] != end)]
        assert set(leaves["text"]) == {TEXTS[i] for i in before - after}
        assert set(enters["text"]) == {TEXTS[i] for i in after - before}
    assert len(draw(whole.plot, whole.table)) == 1


def test_pairs_by_name_and_as_stated(table_set, quantised):
    names = ["m", "m-8B", "m-8B-AWQ", "m-8B.Q4_1", "m-int8", "m-GPTQ-Int4", "m-8B-v2"]
    assert quantised_pairs(names, {}) == {
        "m-8B-AWQ": "m-8B",
        "m-8B.Q4_1": "m-8B",
        "m-int8": "m",
        "m-GPTQ-Int4": "m",
    }
    options = replace(OPTIONS, quantised={"other": "m"})
    whole = by_name(table_set({"greatest": quantised}), options)["precision_agreement"]
    assert set(zip(whole.table["model"], whole.table["precision_a"], strict=True)) == {
        ("m-nf4", "m"),
        ("other", "m"),
    }
    with pytest.raises(TableError, match=r"Did you mean 'other'"):
        quantised_pairs(quantised.columns, {"othr": "m"})
    with pytest.raises(TableError, match=r"\+quantised\.QUANTISED_NAME=NAME"):
        analyse(table_set({"greatest": quantised[["m", "other"]]}), OPTIONS)


# personas

WORDS = [f"word{i}" for i in range(2000)]


def rewards(bare, *, noise, seed):
    return bare + noise * np.random.default_rng(seed).normal(size=len(bare))


def triple(*columns):
    return pd.DataFrame(dict(zip(("bare", "persona", "control"), columns, strict=True)))


def test_effect_is_the_difference_of_spearmans_rhos_and_holds_where_it_is_planted():
    bare = np.random.default_rng(0).normal(size=2000)
    persona, control = rewards(bare, noise=1.0, seed=1), rewards(bare, noise=0.2, seed=2)
    found = prefix_effect(triple(bare, persona, control))
    rho = [stats.spearmanr(bare, other).statistic for other in (persona, control)]
    assert found["rho_persona"] == pytest.approx(rho[0])
    assert found["rho_control"] == pytest.approx(rho[1])
    assert found["effect"] == pytest.approx(rho[1] - rho[0])
    assert found["low"] < found["effect"] < found["high"]
    assert found["p"] < 1e-6


def test_interval_covers_and_p_is_uniform_where_persona_and_control_do_alike():
    found = []
    for seed in range(200):
        bare = np.random.default_rng(seed).normal(size=400)
        alike = (rewards(bare, noise=0.5, seed=10_000 + 2 * seed + i) for i in (0, 1))
        found.append(prefix_effect(triple(bare, *alike)))
    covered = np.mean([row["low"] <= 0 <= row["high"] for row in found])
    assert 0.9 <= covered <= 0.99
    assert np.mean([row["p"] <= 0.05 for row in found]) <= 0.1


def design(*, planted: bool):
    bare = np.random.default_rng(3).normal(size=len(WORDS))
    columns = {None: bare, False: rewards(bare, noise=1.0 if planted else 0.3, seed=4)}
    columns[True] = rewards(bare, noise=0.3, seed=5)
    for control, values in columns.items():
        one = None if control is None else Prefixed("best", "doctor", control)
        key, prefixed = ("best", None) if one is None else (one.key, vars(one))
        yield score_table(WORDS, values, prompt=key, prefixed=prefixed)


@pytest.mark.parametrize("planted", [True, False])
def test_compare_pairs_persona_and_control_and_looks_at_the_prompt_alone_elsewhere(planted):
    [tables] = table_sets(list(design(planted=planted)))
    assert tables.prompts == ["best"], "those behind personas are no prompts of their own"
    assert len(tables.prefixed) == 2
    result = by_name(tables)["prefixes"]
    [row] = result.table.to_dict("records")
    assert (row["prompt"], row["prefix"], row["n"]) == ("best", "doctor", len(WORDS))
    assert (row["p_corrected"] <= 0.05) == planted
    assert ("otherwise" in result.headline) == planted


def test_controls_have_as_many_words_and_stand_where_the_persona_stands():
    for n in (1, 4, 60):
        assert len(control_of(" ".join(["You"] * n)).split()) == n
    talk = (Turn("system", "Be kind."), Turn("user", "Why?"))
    asked = add_prefixes({"why": talk, "best": "Best?"}, {"doctor": "You are a doctor."})
    assert len(asked) == 6
    assert asked["why"] == (talk, None)
    prompt, one = asked["why_as_doctor"]
    assert prompt == (talk[0], Turn("user", "You are a doctor. Why?"))
    assert one == Prefixed("why", "doctor", control=False)
    assert asked["best_as_doctor"][0] == "You are a doctor. Best?"
    assert asked["best_as_doctor_control"][0] == "The line below this. Best?"


# training steps


def letters(number: int) -> str:
    return chr(97 + number // 26) + chr(97 + number % 26)


RISING, FALLING, OTHERS = (
    [f"{kind}{letters(i)}" for i in range(12)] for kind in ("up", "down", "side")
)
STEP_WORDS = [*RISING, *FALLING, *OTHERS]
FOLLOWED = Options(top=5, meanings=None)


def trained(steps, seed=0, strength=1.0, texts=STEP_WORDS) -> dict[int, pd.Series]:
    """Scores by step: words of the one kind rise, those of the other fall, with noise."""
    rng, found = np.random.default_rng(seed), {}
    start = rng.normal(size=len(texts))
    for step in steps:
        way = np.array(
            [
                1.0 if t.strip().startswith("up") else -1.0 if t.startswith("down") else 0
                for t in texts
            ]
        )
        found[step] = pd.Series(
            start + strength * way * step / 5000 + rng.normal(0, 0.1, len(texts)), index=texts
        )
    return found


def checkpoints(**runs):
    """Each step of each run as a score table of its own, as `pessimal import format=checkpoints`
    makes them."""
    made = []
    for run, own in runs.items():
        for step, values in own.items():
            named = {"model": f"{run}@step-{step}", "step": step}
            made.append(score_table([str(text) for text in values.index], values, **named))
    (whole,) = table_sets(made)
    return whole


def test_checkpoints_stand_by_their_run_in_order_of_the_step():
    given = [("llama@step-300", 300), ("llama@step-20", 20), ("llama", 7), ("a@step-3", None)]
    runs = runs_of(score_table(["a"], [1.0], model=model, step=step) for model, step in given)
    assert {run: list(steps) for run, steps in runs.items()} == {"llama": [7, 20, 300]}
    assert runs["llama"][300].provenance.model == "llama@step-300"


def test_changes_follow_what_training_did():
    steps = (1000, 2000, 9000, 10000)
    tables = checkpoints(one=trained(steps), two=trained(steps[:3], seed=1, strength=-1.0))
    results = by_name(tables, FOLLOWED)
    changes = results["changed_tokens"].table
    lifted = changes[changes["model"] == "one"]["text"].head(5)
    assert set(lifted) <= set(RISING)
    assert set(changes["a"] + changes["b"]) == {"100010000", "10009000"}
    taus = results["step_agreement"].table.set_index(["model", "step_a", "step_b"])["kendall"]
    assert len(taus) == 6 + 3
    assert taus["one", 9000, 10000] > taus["one", 1000, 10000]
    for result in results.values():
        assert draw(result.plot, result.table)
