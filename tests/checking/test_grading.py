"""The census of a grader: planted bugs have a name, good graders none, and no call does harm."""

import json
import time
from fractions import Fraction

import planted_graders
import pytest

from experiments.graders import unseen_graders
from pessimal import census
from pessimal.checking import grading
from pessimal.checking.grader_strings import common_strings, contains, value_of
from pessimal.rewards.callable import truths_of

TRUTHS = ("42", "6.25", "Paris", "(3, 5)", "5 km")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    file = tmp_path_factory.mktemp("tasks") / "tasks.jsonl"
    lines = [json.dumps({"prompt": f"Question {one}?", "ground_truth": one}) for one in TRUTHS]
    file.write_text("\n".join(lines))
    return file


@pytest.fixture(autouse=True)
def few_numbers(monkeypatch):
    def some(tokens):
        return [
            one for one in common_strings(tokens) if one.format != "number" or len(one.text) < 3
        ]

    monkeypatch.setattr(grading, "common_strings", some)


def faults(function, tasks, *tokens, seconds=0.3):
    tokens = tokens or ("the", "Par", "Parisian")
    options = {"workers": 1, "seconds": seconds, "progress": False}
    return set(grading.faults_of(census(function, tasks, tokens=tokens, **options)))


@pytest.mark.parametrize("function", planted_graders.EXPECTED, ids=lambda one: one.__name__)
def test_a_planted_bug_is_named(function, tasks, request):
    if function is not planted_graders.runs_the_answer:  # powers that never end
        request.getfixturevalue("called_here")
    assert planted_graders.EXPECTED[function] in faults(function, tasks)


@pytest.mark.parametrize("name", ["good_exact", "good_fraction"])
def test_a_good_grader_has_no_fault(name, tasks):
    assert faults(getattr(planted_graders, name), tasks, seconds=10.0) == set()


def written(questions, folder):
    file = folder / "tasks.jsonl"
    columns = ("ground_truth", "answer", "data_source")
    lines = [{"prompt": ask} | dict.fromkeys(columns, truth) for ask, truth in questions.items()]
    file.write_text("\n".join(map(json.dumps, lines)))
    return file


@pytest.mark.usefixtures("called_here")
@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (unseen_graders.box_reward, "changed_answer"),
        (unseen_graders.said_yes, "nothing"),
        (unseen_graders.json_field, "part_of_answer"),
    ],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_a_bug_that_its_strings_were_not_made_for_is_named(function, fault, tmp_path):
    right, questions = unseen_graders.PAIRS[function]
    file = written(questions, tmp_path)
    assert fault in faults(function, file)
    assert faults(right, file) == set()


@pytest.mark.usefixtures("called_here")
def test_a_truth_that_is_paid_in_no_format_is_a_fault(tmp_path):
    def digits_alone(response, ground_truth):
        return float(response.isdigit() and response == ground_truth)

    file = written(
        {"6 times 7?": "42", "1 less than 1,000?": "999", "90 times 90?": "8,100"}, tmp_path
    )
    unpaid = census(digits_alone, file, tokens=["the"], workers=1, progress=False)["right_not_paid"]
    row = unpaid.table.iloc[0]
    assert (row["format"], row["fault"], row["tasks"], row["truth"]) == (
        "any format",
        True,
        1,
        "8,100",
    )


def test_what_ends_a_process_does_no_harm(tasks, capfd):
    found = faults(planted_graders.ends_the_process, tasks, "the", "fork", "exit")
    assert {"crashes", "raises", "not finite"} <= found
    assert not capfd.readouterr().out


@pytest.mark.usefixtures("called_here")
def test_a_grader_that_pays_all_alike_or_never_has_a_fault_of_its_own(tasks):
    def constant(response, ground_truth):
        return 1.0

    def pays_a_word(response, ground_truth):
        return float("banana" in response)

    for grader, fault in ((constant, "constant"), (pays_a_word, "never_paid")):
        results = census(grader, tasks, tokens=["the", "banana"], progress=False)
        [row] = results["paid_without_answer"].table.to_dict("records")
        assert (row["fault"], row["share"]) == (fault, 1.0)
        assert row["strings"] > 100
        assert row["mend"]
        assert "share" not in results["right_not_paid"].table


def test_a_budget_ends_the_census_and_the_rest_is_counted(tasks):
    def slow(response, ground_truth):
        time.sleep(0.01)
        return float(response.strip() == ground_truth)

    began = time.monotonic()
    words = [f"word{i}" for i in range(3000)]
    results = census(slow, tasks, tokens=words, budget=2.0, progress=False)
    assert time.monotonic() - began < 15
    left = results["paid_without_answer"].summary["paid_without_answer/strings_left"]
    assert left > 1000
    assert "share" in results["right_not_paid"].table


@pytest.mark.usefixtures("called_here")
def test_a_grader_that_gives_no_number_is_no_constant(tasks):
    def broken(response, ground_truth):
        raise ValueError("no")

    results = census(broken, tasks, tokens=["the"], progress=False)
    assert results["paid_without_answer"].table.empty
    assert set(results["grader_calls"].table["fault"]) == {"raises"}


def test_a_call_that_hangs_is_ended_and_named(tmp_path):
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"prompt": "6 times 7?", "ground_truth": "42"}')
    options = {"seconds": 0.3, "progress": False, "workers": 2}
    results = census(planted_graders.hangs, tasks, tokens=["hang"], **options)
    row = results["grader_calls"].table.iloc[0]
    assert (row["fault"], row["strings"], row["example"]) == ("hangs", 1, "hang")


def test_heavy_strings_that_hang_again_and_again_are_left_out(tmp_path):
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"prompt": "6 times 7?", "ground_truth": "42"}')
    options = {"seconds": 0.3, "progress": False, "workers": 1}
    results = census(planted_graders.runs_any_power, tasks, tokens=["the"], **options)
    calls = results["grader_calls"]
    assert calls.table.set_index("fault")["strings"].to_dict() == {"hangs": 3}
    assert "rest was not asked" in calls.notes[0]


@pytest.mark.parametrize("function", ["takes_memory", "flips_a_coin"])
def test_memory_is_limited_and_chance_is_named(function, tasks):
    expected = {"takes_memory": "raises", "flips_a_coin": "nondeterministic"}[function]
    options = {"memory": 2**28, "progress": False, "workers": 2}
    results = census(getattr(planted_graders, function), tasks, tokens=["much"], **options)
    row = results["grader_calls"].table.iloc[0]
    assert row["fault"] == expected
    assert function != "takes_memory" or (row["strings"], row["example"]) == (1, "much")


@pytest.mark.usefixtures("called_here")
def test_numbers_are_asked_in_the_formats_that_a_grader_reads(tmp_path):
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"prompt": "60 times 60?", "ground_truth": "3600"}')

    def hashes(response, ground_truth):
        return float(response.partition("#### ")[2].strip() == ground_truth)

    results = census(hashes, tasks, tokens=["the"], workers=1, progress=False)
    unpaid = results["right_not_paid"].table.set_index("format")
    assert unpaid["example"][["thousands", "decimals"]].tolist() == ["#### 3,600", "#### 3600.00"]
    assert not unpaid["fault"].any()
    assert results["paid_without_answer"].table.empty


@pytest.mark.parametrize(
    ("text", "truth", "inside"),
    [
        ("it is 42.", "42", True),
        ("4.2e1", "42", True),
        ("\uff14\uff12", "42", True),
        ("142", "42", False),
        ("Parisian", "Paris", False),
        ("3, 72", "72.0", True),
        ("2, 3", "23", False),
    ],
)
def test_what_counts_as_an_answer(text, truth, inside):
    assert contains(text, truth) is inside


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234,567", 1234567),
        ("- 5", -5),
        ("$1,234.50", 1234.5),
        ("2, 3", None),
        ("12,34", None),
        ("1 2/3", Fraction(5, 3)),
        ("\\dfrac12", 0.5),
        ("−.5", -0.5),
        ("7e99999999", None),
    ],
)
def test_what_parts_thousands_is_no_list(text, value):
    assert value_of(text) == value


def test_where_the_true_answer_stands():
    assert truths_of({"answer": "6*7\n#### 42"}) == ("42",)
    assert truths_of({"reward_model": {"ground_truth": "\\boxed{42}"}}) == ("42",)
    assert truths_of({"solution": "$42$"}) == ("42",)
    assert truths_of({"data_source": "sums"}) == ()
