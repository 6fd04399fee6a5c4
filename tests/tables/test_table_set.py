"""Which score table stands for a model, which prompts belong together, and what cannot be put side
by side."""

import numpy as np
import pandas as pd
import pytest

from pessimal.errors import TableError
from pessimal.tables.score_table import ModelDescription, ScoreProvenance, ScoreTable
from pessimal.tables.table_set import Reading, TableSet, table_sets

TEXTS = [f"w{i}" for i in range(60)]
FACTORS = {"adjective": ["best", "good", "worst", "bad"], "superlative": ["ever", "time"]}
POLARITY = {"best": 1, "good": 1, "greatest": 1, "worst": -1, "bad": -1}
KEY = ("greatest", "m")


def made(
    model: str = "m",
    *,
    seed: int = 0,
    noise: float = 0.0,
    texts=TEXTS,
    kind="normal",
    description=None,
    **provenance,
) -> ScoreTable:
    n = len(texts)
    rewards = np.random.default_rng(seed).normal(size=n) + noise * np.random.default_rng(99).normal(
        size=n
    )
    rows = pd.DataFrame(
        {
            "candidate_id": np.arange(n, dtype=np.int32),
            "token": texts,
            "text": texts,
            "kind": kind,
            "survives": pd.array([True] * n, dtype="boolean"),
            "reward": rewards,
            "certified": True,
        }
    )
    known = {
        "prompt": "greatest",
        "prompt_text": "?",
        "candidates": "vocabulary",
        "candidates_digest": "d",
        "mode": "ids",
        "source": "scan",
        "dtype": "float32",
        "weights_digest": model,
        "config_digest": "c",
    }
    return ScoreTable(
        ScoreProvenance(model=model, **(known | provenance)),
        rows,
        description or ModelDescription(),
    )


def one(tables, **reading) -> TableSet:
    (found,) = table_sets(tables, Reading(**reading))
    return found


# Which table stands for a model.


def test_float32_stands_for_the_model_whatever_the_order():
    exact, low = made(), made(noise=0.01, dtype="bfloat16")
    for tables in ([exact, low], [low, exact]):
        found = one(tables)
        assert found.by_prompt == {"greatest": [exact]}
        assert found.rescans == {KEY: {"bfloat16": low}}
        assert found.no_rescans == {}
        assert found.tables == tables


def test_ids_stand_for_the_model_and_the_other_modes_are_kept():
    ids, text, paper = (
        made(mode=mode, noise=0.1 * i) for i, mode in enumerate(("ids", "text", "paper"))
    )
    assert one([paper, text, ids]).by_prompt["greatest"] == [ids]
    assert list(one([paper, text, ids]).modes[KEY]) == ["ids", "text", "paper"]
    assert one([paper, text]).by_prompt["greatest"] == [text]
    assert one([paper, text]).rescans == {}
    with pytest.raises(TableError, match="dtype"):
        one([ids, made(mode="text", dtype="bfloat16")])


def test_a_prompt_of_another_mode_is_no_column_beside_the_others():
    ids, text = made(mode="ids"), made(mode="text", prompt="worst")
    found = one([ids, text])
    assert list(found.model_tables(ids.model)) == ["greatest"]
    assert list(one([ids, made(prompt="worst")]).model_tables(ids.model)) == ["greatest", "worst"]


@pytest.mark.parametrize("field", ["weights_digest"])
def test_another_model_under_one_name_is_no_rescan_and_is_named(field):
    found = one([made(), made(noise=0.01, dtype="bfloat16", **{field: "other"})])
    assert found.rescans == {}
    (why,) = found.no_rescans[KEY]
    assert "bfloat16: of another model under the same name" in why
    assert field in why
    assert "force=true" in why


def test_a_copy_is_no_rescan():
    found = one([made(), made()])
    assert found.rescans == {}
    assert found.no_rescans[KEY] == ["m, again: the same to the last digit"]


def test_log_probabilities_stand_for_no_reward_model():
    low, exact = (
        made("lm", score="log_probability", dtype="bfloat16", noise=0.1),
        made("lm", score="log_probability"),
    )
    found = one([made(), low, exact])
    assert found.models == ["m"]
    assert found.language == {"greatest": [exact]}
    assert found.rescans == {}


@pytest.mark.parametrize("field", ["weights_digest"])
def test_language_models_of_one_name_are_not_chosen_from(field):
    tables = [
        made("lm", score="log_probability"),
        made("lm", score="log_probability", dtype="bfloat16", **{field: "x"}),
    ]
    with pytest.raises(
        TableError, match=rf"'lm' on prompt 'greatest'.*{field}.*tables=\[FILE,FILE\]"
    ):
        table_sets(tables)


# What cannot be put side by side.


def test_scans_that_differ_in_more_than_the_mode_are_refused():
    with pytest.raises(
        TableError, match=r"differ in more than the mode \(tokenizer_digest\).*mode=ids"
    ):
        table_sets([made(), made(mode="text", tokenizer_digest="t")])


def test_published_scores_beside_others_of_the_model_are_refused():
    published = made(mode="published", noise=0.1)
    for other in (made(), made(mode="published")):
        with pytest.raises(
            TableError, match=r"two score tables of model 'm'.*tables=\[FILE,FILE\]"
        ):
            table_sets([published, other])
    assert one([published, made("other")]).models == ["m", "other"]


@pytest.mark.parametrize(
    ("other", "why"), [({"prompt_text": "??"}, r"one was asked '\?\?', the other '\?'")]
)
def test_tables_of_one_prompt_that_were_asked_other_things_are_refused(other, why):
    with pytest.raises(TableError, match=why):
        table_sets([made(), made("other", **other)])


# Prompts and candidate sets.


def test_the_vocabulary_comes_first_and_each_set_holds_its_own():
    items, tokens = made(candidates="a list", kind="item"), made()
    first, second = table_sets([items, tokens])
    assert (first.candidates, second.candidates) == ("vocabulary", "a list")
    assert (first.things, second.things) == ("tokens", "items")
    assert second.tables == [items]
    assert first.by_prompt == {"greatest": [tokens]}


def test_polarity_and_levels_come_from_the_key():
    reading = Reading(polarity=POLARITY, factors=FACTORS)
    assert reading.levels_of("best_time") == {"adjective": "best", "superlative": "time"}
    assert reading.levels_of("best") is reading.levels_of("best_never") is None
    assert (reading.polarity_of("bad_time"), reading.polarity_of("ever_time")) == (-1, None)
    assert reading.polarity_of("best_worst") is None
    assert reading.polarity_of("not_good") is None, "a key outside the factorial is not taken apart"
    assert (
        Reading(polarity=POLARITY | {"bad_time": 1}, factors=FACTORS).polarity_of("bad_time") == 1
    )


def test_four_wordings_are_one_question_and_three_are_prompts():
    wordings = ["bad_ever", "best_ever", "best_time", "worst_time"]
    found = one([made(prompt=p) for p in [*wordings, "greatest"]], factors=FACTORS)
    assert found.wordings == wordings
    assert found.prompts == ["greatest"]
    few = one([made(prompt=p) for p in wordings[:3]], factors=FACTORS)
    assert few.wordings == []
    assert few.prompts == wordings[:3]


def test_the_opposite_pair_is_the_papers_else_the_one_that_most_models_have():
    def pair(*keys, models=("m",), polarity=POLARITY) -> list:
        return one(
            [made(m, prompt=p) for m in models for p in keys], polarity=polarity
        ).opposite_pairs()

    assert pair("best", "greatest", "worst") == [("greatest", "worst")]
    assert pair("best", "worst") == [("best", "worst")]
    assert pair("kind", "vile", polarity={"kind": 1, "vile": -1}) == [("kind", "vile")]
    assert pair("best", "greatest") == pair("worst") == pair("best", "worst", polarity={}) == []
    several = [
        made("m", prompt="greatest"),
        *(made(m, prompt=p) for m in ("m", "n") for p in ("best", "worst")),
    ]
    found = one(several, polarity=POLARITY)
    assert found.opposite_pairs() == [("best", "worst")]
    assert found.pairs_of("n") == [("best", "worst")]
    assert one(several, polarity=POLARITY, paper=True).pairs_of("n") == []


def test_chosen_pairs_come_before_the_papers_and_are_looked_at_among_many():
    polarity = {f"p{i}": 1 if i < 4 else -1 for i in range(7)}
    tables = [made(prompt=f"p{i}", seed=i) for i in range(7)]
    found = one(tables, polarity=polarity, pairs=[("p5", "p1"), ("p0", "p2")])
    assert list(found.columns) == ["p0", "p1", "p2", "p5"]
    assert found.opposite_pairs() == found.pairs_of("m") == [("p1", "p5")]
    same = one(
        [made(prompt=p) for p in ("best", "greatest", "worst")],
        polarity=POLARITY,
        pairs=[("greatest", "best")],
    )
    assert same.opposite_pairs() == [("greatest", "worst")], "no chosen pair is opposite"
    keys = ["bad_ever", "best_ever", "best_time", "worst_time"]
    found = one(
        [made(prompt=p) for p in keys], factors=FACTORS, pairs=[("best_time", "worst_time")]
    )
    assert found.prompts == ["best_time", "worst_time"]
    assert found.wordings == keys


def test_many_prompts_are_averaged_by_polarity():
    polarity = {f"p{i}": 1 if i < 4 else -1 for i in range(7)}
    tables = [made(m, prompt=f"p{i}", seed=10 * i + len(m)) for m in ("m", "mm") for i in range(7)]
    found = one([*tables, made("m", prompt="odd")], polarity=polarity)
    assert found.columns == {
        "4 positive": ["p0", "p1", "p2", "p3"],
        "3 negative": ["p4", "p5", "p6"],
    }
    assert found.polarity == {"4 positive": 1, "3 negative": -1}
    mean = np.mean([t.rows["reward"] for t in tables[:4]], axis=0)
    assert found.tokens("m")["4 positive"].to_numpy() == pytest.approx(mean)
    assert "prompt odd: polarity not known" in found.without_columns()[0]
    fewer = one(tables[:-1], polarity=polarity)
    assert list(fewer.columns_of("mm")) == ["4 positive"]
    assert fewer.without_columns() == ["mm on 3 negative: 1 of 3 prompts not scanned"]
    assert fewer.opposite_pairs() == [("4 positive", "3 negative")]


# Rewards.


def test_words_average_spellings_of_a_models_own_tokens():
    texts = [" Love", "love", "war", "##x", "<s>", "2"]
    kinds = ["normal", "normal", "normal", "normal", "special", "normal"]
    table = made(texts=texts, kind=kinds)
    found = one([table])
    reward = table.rows["reward"].to_numpy()
    assert list(found.tokens("m").index) == [" Love", "love", "war", "##x", "2"]
    words = found.words("m")["greatest"]
    assert words.to_dict() == pytest.approx({"love": reward[:2].mean(), "war": reward[2]})


def test_the_matrix_holds_what_all_models_share_as_it_is_read():
    tables = [made(texts=["a", " b", "c", "d"]), made("n", seed=1, texts=["b", "a", "c", "d"])]
    assert list(one(tables, stripped=False).matrix("greatest").index) == ["a", "c", "d"]
    stripped = one(tables).matrix("greatest")  # as the vocabularies differ
    assert list(stripped.index) == ["a", "b", "c", "d"]
    alike = [made(texts=["b", " b", "c", "d"]), made("n", seed=1, texts=["b", " b", "c", "d"])]
    assert list(one(alike).matrix("greatest").index) == [" b", "b", "c", "d"]
    alike[1] = made("n", seed=1, texts=["b", " b", "c", "d", "added"])  # one has all of the other
    assert list(one(alike).matrix("greatest").index) == [" b", "b", "c", "d"]
    assert stripped.loc["b"].tolist() == [tables[0].rows["reward"][1], tables[1].rows["reward"][0]]
