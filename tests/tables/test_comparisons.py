"""Comparisons from files and from the Hub's data sets: what is taken, what is left out and counted,
what is refused."""

import gzip
import json
import math
import sys
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from pessimal.errors import InputError
from pessimal.tables.comparisons import (
    EMBEDDED,
    Comparison,
    Turn,
    choose,
    digest,
    from_row,
    load,
    read_jsonl,
    read_rows,
    usable,
)

HOSTILE = [
    "\x00",
    "<script>",
    "a\u2028b",
    "=cmd()",
    "null",
    "👨\u200d👩\u200d👧",
    "明天",
    "x" * 50_000,
    "\r\n",
]


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


def rated(prompt, response, helpfulness):
    others = {"correctness": 4, "coherence": 4, "complexity": 1, "verbosity": 1}
    return {"prompt": prompt, "response": response, "helpfulness": helpfulness, **others}


def pair(key, preferred, category=None, first="a", second="b"):
    return Comparison(key, (Turn("user", "q"),), (first, second), preferred, category)


def comparison(key, first="a", second="b", prompt="q"):
    return Comparison(key, (Turn("user", prompt),), (first, second))


@pytest.fixture
def written(tmp_path):
    """Writes rows as lines of a file; a row that is bytes stands as it is."""

    def write(*rows, name="set.jsonl"):
        lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        content = b"\n".join(lines)
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return tmp_path / name

    return write


def test_our_format(written):
    path = written(
        {
            "key": "one",
            "prompt": "q",
            "responses": ["a", "b"],
            "preferred": 1,
            "attributes": ["clarity"],
        },
        b"",
        {"prompt": [{"role": "system", "content": "s"}, user("q2")], "responses": ["c", "d"]},
    )
    assert read_jsonl(path) == [
        Comparison("one", (Turn("user", "q"),), ("a", "b"), 1),
        Comparison("set-3", (Turn("system", "s"), Turn("user", "q2")), ("c", "d"), None),
    ]


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "q", "chosen": "a", "rejected": "b"},
        {"prompt": [user("q")], "chosen": [assistant("a")], "rejected": [assistant("b")]},
        {"chosen": [user("q"), assistant("a")], "rejected": [user("q"), assistant("b")]},
        {"chosen": "\n\nHuman: q\n\nAssistant: a", "rejected": "\n\nHuman: q\n\nAssistant: b"},
    ],
)
def test_formats_of_trl(row):
    found = from_row({**row, "extra": 1}, where="here", key="k")
    assert found == Comparison("k", (Turn("user", "q"),), ("a", "b"), 0)


STEER = {"response_1": "a", "response_2": "b"}
STEER3 = {"context": [user("q")], "response1": "a", "response2": "b", "domain": "stem"}
JUDGE = {"question": "q", "response_A": "a", "response_B": "b", "source": "law", "pair_id": "x"}


@pytest.mark.parametrize(
    ("row", "comparison"),
    [
        ({"prompt": "q", "preference_strength": -3, **STEER}, pair("k", 0)),
        ({"prompt": "q", "preference_strength": None, **STEER}, pair("k", None)),
        ({"overall_preference": -1, **STEER3}, pair("k", 0, "stem")),
        ({"label": "B>A", **JUDGE}, pair("x", 1, "law")),
        ({"label": "B>A", "prompt": None, **JUDGE}, pair("x", 1, "law")),
        (
            {"instruction": "q", "response1": "a", "response2": "b", "label": 1, "bias": "length"},
            pair("k", 0, "length"),
        ),
        (
            {"prompt": "q", "chosen": "a", "rejected": "b", "subset": "refusals", "id": 7},
            pair("7", 0, "refusals"),
        ),
    ],
)
def test_rows_of_published_data_sets_are_known_by_their_fields(row, comparison):
    assert from_row({**row, "extra": 1}, where="here", key="k") == comparison


def test_neighbouring_ratings_of_one_prompt_in_a_file_are_a_comparison(written):
    rows = [rated("q", "a", 4), rated("q", "b", 1), rated("q", "a", 0.5), rated("q", "c", 2)]
    assert read_jsonl(written(*rows, rated("q", "b", 3), rated("q", "c", 3))) == [
        pair("set-1", 0),
        pair("set-3", 1, second="c"),
        pair("set-5", None, first="b", second="c"),
    ]
    broken = []
    lone = written(rated("p", "a", 4), *rows[:2], rated("q", "x", "4"), rated("q", "y", 4))
    assert read_jsonl(lone, broken=broken) == [pair("set-2", 0)]
    assert ["line 1" in broken[0], "line 4" in broken[1], "'4'" in broken[1]] == [True] * 3


def test_each_chosen_text_of_rm_bench_meets_each_rejected_one(tmp_path):
    sides = {"chosen": ["a", "aa", "aaa"], "rejected": ["b", "bb", "bbb"]}
    rows = [{"prompt": "q", "domain": "code", **sides, "id": f"{n}"} for n in range(2)]
    (tmp_path / "bench.json").write_text(json.dumps(rows))
    expected = [
        pair(f"{n}-{i}-{j}", 0, "code", "a" * (i + 1), "b" * (j + 1))
        for n in range(2)
        for i in range(3)
        for j in range(3)
    ]
    assert read_jsonl(tmp_path / "bench.json") == expected
    pd.DataFrame(rows).to_parquet(tmp_path / "bench.parquet")
    assert read_jsonl(tmp_path / "bench.parquet") == expected


def test_each_of_several_texts_has_its_own_score(tmp_path):
    """RewardBench 2: one chosen text, three rejected ones."""
    row = {"prompt": "q", "chosen": ["a"], "rejected": ["b", "c", "d"], "id": "n", "model": "m"}
    row |= {"scores_chosen": [2.0], "scores_rejected": [3.0, 1.0, 0.5]}
    (tmp_path / "two.json").write_text(json.dumps([row]))
    scores = [pair.scores["m"] for pair in read_jsonl(tmp_path / "two.json")]
    assert scores == [(2.0, 3.0), (2.0, 1.0), (2.0, 0.5)]


def test_a_category_is_written_read_and_part_of_the_digest(tmp_path):
    plain, labelled = pair("k", 1), pair("k", 1, "true")
    (tmp_path / "set.jsonl").write_text(labelled.as_line())
    assert read_jsonl(tmp_path / "set.jsonl") == [labelled]
    assert "category" not in plain.as_line()
    assert digest([plain]) != digest([labelled])
    # What a comparison without a category had before there were any.
    assert digest([plain]) == "a770510a461017e5fff61f72c90c146c9384e6e6b798adae0d90f2a6a99e6a1d"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"scores": {"m": [1, 0.5], "n": [None, 2]}}, {"m": (1, 0.5), "n": (math.nan, 2)}),
        ({"m:a": 1.0, "m:b": 0.0, "n:a": 1.0}, {"m": (1, 0)}),
        ({"scores_chosen": 2.0, "scores_rejected": 3, "model": "m"}, {"m": (2, 3)}),
        (
            {
                "judgments": [
                    {"judgment": {"judge_model": "m", "scores": [-1.5, 2]}, "decision": "B>A"},
                    {"judgment": {"judge_model": "m", "scores": [2, -1.5]}, "decision": "A>B"},
                ]
            },
            {"m": (-1.5, 2)},
        ),
    ],
)
def test_scores_that_stand_in_a_row(written, row, expected):
    [one] = read_jsonl(written({"prompt": "q", "responses": ["a", "b"], "preferred": 0} | row))
    assert {model: pytest.approx(scores, nan_ok=True) for model, scores in expected.items()} == (
        one.scores
    )


@pytest.mark.parametrize("scores", [{"m": [1, "2"]}, {"m": [1]}])
def test_scores_that_are_not_two_numbers_are_refused(written, scores):
    path = written({"prompt": "q", "responses": ["a", "b"], "scores": scores})
    with pytest.raises(InputError, match="line 1"):
        read_jsonl(path)


@pytest.mark.parametrize(
    ("name", "number", "categories", "preferred"),
    [
        ("judgebench_350_pairs_5_reward_models.parquet", 350, 17, {0: 193, 1: 157}),
        ("rm_bench_chat.json", 129 * 9, 1, {0: 129 * 9}),
        ("evalbiasbench.json", 80, 6, {0: 80}),
    ],
)
def test_published_files_are_read_as_they_are(shared_data, name, number, categories, preferred):
    comparisons = read_jsonl(shared_data / "scored_answers" / name)
    assert len({one.key for one in comparisons}) == number
    assert len({one.category for one in comparisons}) == categories
    assert Counter(one.preferred for one in comparisons) == preferred


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (b"{", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        ({"prompt": "q"}, "has the fields prompt"),
        ({"prompt": "q", "responses": ["a"]}, "two texts"),
        ({"prompt": "q", "responses": ["a", "b"], "preferred": True}, 'has "preferred" True'),
        ({"responses": ["a", "b"]}, 'nothing for "prompt"'),
        (
            {"chosen": [user("q"), assistant("a")], "rejected": [user("p"), assistant("b")]},
            "differ before",
        ),
        ({"key": "first", "prompt": "q", "responses": ["a", "b"]}, "of row 1"),
        ({"prompt": "q", "chosen": ["a"], "rejected": []}, "'a'"),
        ({"label": "C>A", **JUDGE}, "'C>A'"),
        ({"prompt": "q", "preference_strength": "3", **STEER}, "preference_strength='3'"),
    ],
)
def test_an_error_names_the_file_the_line_and_what_was_expected(written, row, said):
    good = {"prompt": "q", "responses": ["a", "b"]}
    path = written({**good, "key": "first"}, b"", row, good)
    with pytest.raises(InputError) as error:
        read_jsonl(path)
    assert f"{path}, line 3" in str(error.value)
    assert said in str(error.value)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize("name", ["set.jsonl.gz", "set.parquet"])
def test_hostile_texts_are_data(tmp_path, name):
    texts = HOSTILE + (["\ud800 half"] if "json" in name else [])
    rows = [
        {"prompt": [user(f"{n} {text}")], "chosen": text, "rejected": f"{text}!"}
        for n, text in enumerate(texts)
    ]
    if name.endswith(".parquet"):
        pd.DataFrame(rows).to_parquet(tmp_path / name)
    else:
        content = "\n".join(
            json.dumps(row, ensure_ascii="\ud800" in row["chosen"]) for row in rows
        ).encode()
        content = b"\xef\xbb\xbf" + content
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    found = read_jsonl(tmp_path / name)
    said = [text.replace("\ud800", "\\ud800") for text in texts]
    assert [one.responses for one in found] == [(text, f"{text}!") for text in said]
    for one in found:
        one.prompt.encode("utf-8")


def test_what_cannot_be_explained_is_left_out_and_counted():
    same_pair = [comparison("first"), comparison("again"), comparison("swapped", "b", "a")]
    others = [comparison("other prompt", prompt="p"), comparison("other response", "a", "c")]
    empty = [comparison("e1", " \n"), comparison("e2", second=""), comparison("e3", prompt="\t")]
    talk = (Turn("user", "q"), Turn("assistant", "?"), Turn("user", "q"))
    others.append(replace(comparison("other turns"), turns=talk))
    found = usable([*empty, *same_pair, comparison("same", "a", "a"), *others])
    keys = ["first", "other prompt", "other response", "other turns"]
    assert [one.key for one in found.comparisons] == keys
    assert found.left_out == {
        "with an empty text": 3,
        "of two equal responses": 1,
        "given twice": 2,
    }


def test_helpsteer2_pairs_neighbours_with_one_prompt(written):
    talk = "first\n<extra_id_1>Assistant\nanswer\n\nof two\n<extra_id_1>User\nsecond"
    opened = f"{talk}\n<extra_id_1>Assistant\n"
    rows = [
        *(rated("q", "a", 3), rated("q", "b", 4)),
        rated("alone", "c", 1),
        *(rated(talk, "d", 2), rated(talk, "e", 2)),
        *(rated(opened, "f", 2), rated(opened, "g", 0.5)),
        *(rated("x<extra_id_1>User\ny", "h", 1), rated("x<extra_id_1>User\ny", "i", 2)),
        rated("last", "j", 1),
    ]
    broken = []
    pairs = read_rows(enumerate(rows), where="row", name="set", broken=broken)
    turns = Turn("user", "first"), Turn("assistant", "answer\n\nof two"), Turn("user", "second")
    expected = [
        Comparison("set-0", (Turn("user", "q"),), ("a", "b"), 1),
        Comparison("set-3", turns, ("d", "e"), None),
        Comparison("set-5", turns, ("f", "g"), 0),
    ]
    assert pairs[:3] == expected
    assert len(broken) == 2, "two alone"
    file = written(*rows, name="steer.jsonl")
    loaded = load("helpsteer2", path=file)
    keys = [one.key.replace("set", "helpsteer2-train") for one in expected]
    assert [one.key for one in loaded.comparisons] == keys
    assert loaded.left_out == {"that are no comparison": 3}, "and a pair whose user speaks twice"


def test_hh_rlhf_transcripts_share_all_but_the_last_turn():
    start = "\n\nHuman: first\n\nAssistant: answer\n\nin two parts\n\nHuman: second?"
    rows = [
        {"chosen": f"{start}\n\nAssistant: a", "rejected": f"{start}\n\nAssistant: b \n"},
        {"chosen": f"{start}\n\nAssistant: a", "rejected": "\n\nHuman: other\n\nAssistant: b"},
        {"chosen": f"{start}\n\nAssistant: a", "rejected": start},
        {"chosen": "no transcript", "rejected": "none"},
        {
            "chosen": "\n\nHuman: x\n\nHuman: y\n\nAssistant: a",
            "rejected": "\n\nHuman: x\n\nHuman: y\n\nAssistant: b",
        },
        {"chosen": "\n\nHuman: q\n\nAssistant:", "rejected": "\n\nHuman: q\n\nAssistant: b"},
    ]
    broken = []
    found = read_rows(enumerate(rows), where="row", name="set", broken=broken)
    turns = (
        Turn("user", "first"),
        Turn("assistant", "answer\n\nin two parts"),
        Turn("user", "second?"),
    )
    assert found == [
        Comparison("set-0", turns, ("a", "b"), 0),
        Comparison("set-5", (Turn("user", "q"),), ("", "b"), 0),
    ]
    assert len(broken) == 4
    assert usable(found).left_out == {"with an empty text": 1}
    with pytest.raises(InputError, match="row 0"):
        read_rows([(0, {"chosen": "x"})], where="row", name="set")


def test_a_local_copy_is_read_as_the_hub_would_be(written, tmp_path):
    transcript = "\n\nHuman: q\n\nAssistant: "
    row = {"chosen": f"{transcript}a", "rejected": f"{transcript}b"}
    written(row, {"chosen": "", "rejected": ""}, name="hh/helpful-base/test.jsonl.gz")
    written({}, name="hh/helpful-base/train.jsonl.gz")
    found = load("hh_rlhf", path=tmp_path / "hh", split="test", subset="helpful-base")
    assert [one.key for one in found.comparisons] == ["hh_rlhf-helpful-base-test-0"]
    assert found.left_out == {"that are no comparison": 1}
    (tmp_path / "steer/data").mkdir(parents=True)
    rows = pd.DataFrame([rated("q", "a", 1), rated("q", "b", 2)])
    rows[:1].to_parquet(tmp_path / "steer/data/train-00000-of-00002.parquet")
    rows[1:].to_parquet(tmp_path / "steer/data/train-00001-of-00002.parquet")
    [one] = load("helpsteer2", path=tmp_path / "steer").comparisons
    assert (one.key, one.preferred) == ("helpsteer2-train-0", 1)
    single = written(rated("q", "a", 1), rated("q", "b", 2), name="any.jsonl")
    assert load("helpsteer2", path=single).comparisons == (one,)
    with pytest.raises(InputError, match=r"validation\.jsonl\.gz"):
        load("helpsteer2", path=tmp_path / "steer", split="validation")
    with pytest.raises(InputError, match="a row that is not an object"):
        load("helpsteer2", path=written([1], name="list.jsonl"))


def test_the_hub_is_asked_for_subset_split_and_revision(monkeypatch):
    asked = {}

    def load_dataset(name, **options):
        asked.update(options, name=name)
        return SimpleNamespace(
            to_list=lambda: [
                {
                    "chosen": "\n\nHuman: q\n\nAssistant: a",
                    "rejected": "\n\nHuman: q\n\nAssistant: b",
                }
            ]
        )

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    found = load("hh_rlhf", revision="abc", split="test", subset="harmless-base")
    wanted = {"data_dir": "harmless-base", "split": "test", "revision": "abc"}
    assert asked == {"name": "Anthropic/hh-rlhf", **wanted}
    assert [one.key for one in found.comparisons] == ["hh_rlhf-harmless-base-test-0"]
    monkeypatch.setitem(
        sys.modules, "datasets", SimpleNamespace()
    )  # no such function, as no such network
    with pytest.raises(
        InputError, match=r"(?s)nvidia/HelpSteer2 .*load_dataset.*comparisons\.path=FOLDER"
    ):
        load("helpsteer2")


def test_a_sample_is_fixed_by_its_seed_and_keeps_the_order():
    every = read_jsonl(EMBEDDED)
    ten, thirty = (choose(every, n=n, seed=3) for n in (10, 30))
    places = [every.index(one) for one in ten]
    assert len(ten) == 10
    assert places == sorted(places)
    assert choose(every, n=10, seed=3) == ten
    assert choose(every, n=10, seed=4) != ten
    assert {one.key for one in ten} < {one.key for one in thirty}
    assert {one.key for one in choose(every[::-1], n=10, seed=3)} == {one.key for one in ten}
    assert choose(every, n=None, seed=0) == every == choose(every, n=60, seed=0)


def test_broken_rows_are_left_out_and_counted_or_the_first_is_an_error(tmp_path):
    """Not JSON, no comparison, a key that was given, an array: each alone stops the whole file."""
    good = {"key": "a", "prompt": "Why?", "responses": ["so", "as"]}
    others = ["{not json", json.dumps({"prompt": "x", "responses": ["a"]}), json.dumps(good), "[1]"]
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join([json.dumps(good), *others, json.dumps(good | {"key": "b"})]))
    with pytest.raises(InputError, match=r"line 2 is not JSON.*skip_bad=true"):
        load("jsonl", path=path)
    loaded = load("jsonl", path=path, skip_bad=True)
    assert [one.key for one in loaded.comparisons] == ["a"]  # b is the same pair again
    assert loaded.left_out == {"given twice": 1, "in rows that cannot be read": 4}
    path.write_text("\n".join(others[:2]))
    with pytest.raises(InputError, match=r"2 broken rows.*line 1 is not JSON"):
        load("jsonl", path=path, skip_bad=True)
