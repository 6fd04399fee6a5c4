"""Kinds of graders that published threads tell of: each has its name, and the mended one none."""

import asyncio
import json
import re
import signal
import threading

import pytest

from pessimal import census
from pessimal.auditing.verdicts import MAKERS
from pessimal.checking import grading
from pessimal.checking.grader_strings import common_strings, contains, strings_of
from pessimal.config.schema import ScanConfig
from pessimal.errors import ConfigError
from pessimal.rewards.callable import CallableSpec, read_tasks, true_answers, truths_of
from tiny_language_models import tokenizer

pytestmark = pytest.mark.usefixtures("called_here")

THINKS = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: <think>\n{% endif %}"
)
NUMBERS = ("15", "72")


@pytest.fixture(autouse=True)
def few_numbers(monkeypatch):
    def some(tokens):
        return [p for p in common_strings(tokens) if p.format != "number" or len(p.text) < 3]

    monkeypatch.setattr(grading, "common_strings", some)


@pytest.fixture
def tasks(tmp_path):
    """Writes a file of tasks with these true answers in a column."""

    def write(truths, column="ground_truth"):
        file = tmp_path / "tasks.jsonl"
        lines = [{"prompt": f"Question {n}?", column: one} for n, one in enumerate(truths)]
        file.write_text("\n".join(map(json.dumps, lines)))
        return file

    return write


def asked(function, file, **options):
    return census(
        function, file, tokens=["the", "derivative"], workers=1, progress=False, **options
    )


def faults(function, file, **options):
    return grading.faults_of(asked(function, file, **options))


def box(text):
    found = re.findall(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}", text)
    return found[-1].strip() if found else None


def boxed(response, ground_truth):
    return float(box(response) == ground_truth)


# How it is called -------------------------------------------------------------

LOCAL = threading.local()
LOCAL.ready = True


def stopped(*_):
    raise TimeoutError


def alarm(data_source=None, solution_str="", ground_truth="", extra_info=None):
    try:
        signal.signal(signal.SIGALRM, stopped)
        signal.alarm(5)
        reward = boxed(solution_str, ground_truth)
        signal.alarm(0)
    except ValueError:
        return 0.0
    return reward


def of_this_thread(response, ground_truth):
    return boxed(response, ground_truth) * getattr(LOCAL, "ready", False)


def own_loop(response, ground_truth):
    async def score():
        return boxed(response, ground_truth)

    coroutine = score()
    try:
        return asyncio.run(coroutine)
    except RuntimeError:
        coroutine.close()
        return 0.0


def own_threads(response, ground_truth):
    rewards = []
    thread = threading.Thread(target=lambda: rewards.append(boxed(response, ground_truth)))
    thread.start()
    thread.join()
    return rewards[0]


async def awaited_alarm(response, ground_truth):
    return alarm(None, response, ground_truth)


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (alarm, ["thread"]),
        (of_this_thread, ["thread"]),
        (own_loop, ["event_loop"]),
        (awaited_alarm, ["thread"]),
        (own_threads, []),
        (boxed, []),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_another_number_in_a_thread_or_a_loop_is_named(function, fault, tasks):
    assert faults(function, tasks(NUMBERS)) == fault


# What stands around the answer, and in it -------------------------------------


def at_the_tail(response, ground_truth):
    return float(re.findall(r"#### (\d+)", response[-300:])[-1:] == [ground_truth])


def at_the_head(response, ground_truth):
    return boxed(response[:1000], ground_truth)


def at_the_end(response, ground_truth):
    return float(bool(re.search(rf"The answer is {re.escape(ground_truth)}\.?\s*$", response)))


def split_words(response, ground_truth):
    numbers = re.findall(r"(?:^|\s)\$?(\d+)(?:\.0*)?[.,]*(?=\s|$)", response)
    return float(numbers[-1:] == [ground_truth])


@pytest.mark.parametrize(
    ("function", "forms"),
    [
        (at_the_tail, {"page behind": True}),
        (at_the_head, {"page ahead": True}),
        (at_the_end, {"page behind": False}),  # it reads the end, as it says
        (boxed, {"parentheses": False}),
        (split_words, {"parentheses": True, "punctuation behind": True, "percent": True}),
    ],
)
def test_a_right_answer_that_is_not_paid(function, forms, tasks):
    table = asked(function, tasks(NUMBERS))["right_not_paid"].table.set_index("format")
    assert table.loc[list(forms), "fault"].to_dict() == forms


def test_an_answer_alone_unpaid_is_a_fault_of_who_reads_behind_a_thought(tasks):
    def behind(response, ground_truth):
        return float(response.partition("</think>")[2].strip() == ground_truth)

    def mended(response, ground_truth):
        return float(response.rpartition("</think>")[2].strip() == ground_truth)

    assert faults(behind, tasks(NUMBERS)) == ["plain"]
    assert faults(mended, tasks(NUMBERS)) == []


def test_ways_of_writing_are_counted(tasks):
    result = asked(boxed, tasks(NUMBERS))["right_not_paid"]
    n, of = map(int, re.search(r"(\d+) of (\d+) ways", result.headline).groups())
    assert n == len(result.table)
    assert of > n > 20
    assert result.table["format"][0] == "plain"


def letters_alone(response, ground_truth):
    def letters(text):
        return re.sub(r"\W", "", text or "").lower()

    return float(letters(box(response)) == letters(ground_truth))


@pytest.mark.parametrize("truths", [("x^2 - 4", "3x^2 + 1"), ("(2, 5]", "[0, 7)")])
def test_signs_operators_and_brackets_are_changed_one_at_a_time(truths, tasks):
    assert "operator" in faults(letters_alone, tasks(truths))
    if "^" in truths[0]:
        assert faults(boxed, tasks(truths)) == []


@pytest.mark.parametrize(
    ("truth", "changed"),
    [
        ("x^2 - 4", {"x*2 - 4", "x^2 + 4"}),
        ("(2, 5]", {"[2, 5]", "(2, 5)"}),
        ("x \\leq 4", {"x \\geq 4", "x < 4"}),
        ("a -> b", {"a +> b", "a -< b"}),
        ("-5", set()),
    ],
)
def test_what_is_changed_of_an_expression(truth, changed):
    probes = strings_of("?", [truth], wrong=["z"], formats=["plain"], names=())
    assert {probe.text for probe in probes if probe.kind == "operator"} == changed


def boxed_or_said(response, ground_truth):
    said = re.findall(r"answer is (\w+)", response)
    return float((box(response) or said[-1:][0] if said or box(response) else "") == ground_truth)


def first_choice(response, ground_truth):
    return float((box(response) or "").split(" or ")[0] == ground_truth)


@pytest.mark.parametrize(
    ("function", "fault"), [(boxed_or_said, "contradiction"), (first_choice, "first_of_several")]
)
def test_two_answers_of_which_the_wrong_one_comes_last(function, fault, tasks):
    assert fault in faults(function, tasks(("B", "C", "D")))
    assert function is first_choice or faults(boxed, tasks(("B", "C", "D"))) == []


# What is no fault, and what another fault is ----------------------------------


def test_who_pays_any_answer_in_its_format_pays_wrong_answers(tasks):
    def formatted(response, ground_truth):
        return float(box(response) is not None)

    assert "wrong_answer" in faults(formatted, tasks(("12", "7", "40")))


@pytest.mark.parametrize(("credit", "is_fault"), [(0.5, True), (0.499, False)])
def test_half_of_what_the_right_answer_gets_is_paid(credit, is_fault, tasks):
    def grader(response, ground_truth):
        return 1.0 if box(response) == ground_truth else credit * (box(response) is not None)

    assert bool(faults(grader, tasks(("12", "7", "40")))) is is_fault


def test_a_half_a_zero_a_letter_and_an_article_are_no_faults(tasks):
    def normalised(text):
        text = re.sub(r"^(the|an?) ", "", (text or "").lower().replace("π", "\\pi"))
        try:
            return float(text)
        except ValueError:
            return text

    def grader(response, ground_truth):
        return float(
            box(response) is not None and normalised(box(response)) == normalised(ground_truth)
        )

    assert faults(grader, tasks(("0.5", "0", "\\pi", "the derivative", "-0.25"))) == []


@pytest.mark.parametrize(
    ("text", "truth", "inside"),
    [(".5", "0.5", True), ("5", ".5", False), ("π", "\\pi", True), ("x + b", "a + b", False)],
)
def test_what_counts_as_an_answer(text, truth, inside):
    assert contains(text, truth) is inside


@pytest.mark.parametrize("share", [0.3])
def test_a_tolerance_is_called_one(share, tasks):
    def grader(response, ground_truth):
        try:
            away = abs(float(box(response)) - float(ground_truth))
        except (TypeError, ValueError):
            return 0.0
        return float(away <= share * float(ground_truth))

    assert faults(grader, tasks(("1648", "520"))) == ["near"]


# The truth --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "truths"),
    [
        (["42", "forty-two"], ("42", "forty-two")),
        ({"target": ["Paris", "City of Light"]}, ("Paris", "City of Light")),
        ({"value": "\\boxed{7}"}, ("7",)),
        ({"a": 1, "b": 2}, ()),
    ],
)
def test_several_true_answers(held, truths):
    assert truths_of({"ground_truth": held}) == truths


def test_each_of_several_answers_is_right_and_a_task_without_one_is_named(tasks):
    def any_of_them(response, ground_truth):
        return float(response.strip() in ground_truth)

    def first_of_them(response, ground_truth):
        return float(response.strip() == ground_truth[0])

    file = tasks((["42", "forty-two"], ["7", "seven"], {"a": 1, "b": 2}))
    results = asked(any_of_them, file)
    assert grading.faults_of(results) == []
    assert "1 of 3 tasks" in results["paid_without_answer"].notes[0]
    assert "task-3" in results["paid_without_answer"].notes[0]
    assert faults(first_of_them, file) == ["another true answer"]


def test_classes_are_no_answers(tasks):
    def grader(response, label):
        return float((len(response) > 3) == (label == "yes"))

    file = tasks(("yes", "no") * 3, column="label")
    assert true_answers(read_tasks(file)) == [()] * 6
    with pytest.raises(ConfigError, match="candidates=answers"):
        asked(grader, file)
    assert true_answers(read_tasks(tasks(("yes", "no") * 3))) == [("yes",), ("no",)] * 3
    assert true_answers(read_tasks(tasks("ABCD", column="label")))[0] == ("A",)


# Order and verdict ------------------------------------------------------------


def ends_with(response, ground_truth):
    return float((re.findall(r"\d+", response) or [""])[-1].endswith(ground_truth))


def test_the_gravest_fault_comes_first_and_the_others_are_named(tasks):
    result = asked(ends_with, tasks(("15", "72", "1234")))["paid_without_answer"]
    named = list(result.table["fault"])
    assert named == ["answer_within_another", "sign_or_point", "answer_behind"]
    assert result.table["may_be_meant"].tolist() == [False, False, True]
    assert all(fault in result.headline for fault in named)

    def pays_nothing_too(response, ground_truth):
        return float(not response or ends_with(response, ground_truth))

    table = asked(pays_nothing_too, tasks(NUMBERS))["paid_without_answer"].table
    assert table["fault"][0] == "nothing"


def test_what_may_be_meant_is_for_review(tasks):
    def last(response, ground_truth):
        return float(re.findall(r"-?[\d.]*\d", response)[-1:] == [ground_truth])

    threshold = type("Threshold", (), {"limit": 0})()
    source, make = MAKERS["grader_pays"]
    for function, verdict in ((last, "review"), (ends_with, "fail"), (boxed, "pass")):
        evidence = {result.name: result for result in asked(function, tasks(NUMBERS))}
        assert make(evidence[source], evidence, threshold)["verdict"] == verdict


# The policy -------------------------------------------------------------------


def test_a_template_that_begins_the_thought(tasks):
    def whole_thought(response, ground_truth):
        match = re.match(r"^<think>.*?</think>(.*)$", response.lstrip(), re.S)
        return float(bool(match) and match[1].strip() == ground_truth)

    def rest_of_thought(response, ground_truth):
        return float(response.rpartition("</think>")[2].strip() == ground_truth)

    file, thinks = tasks(NUMBERS), tokenizer(template=THINKS)
    assert "begun thought" not in faults(whole_thought, file)
    assert "begun thought" in faults(whole_thought, file, tokenizer=thinks)
    assert faults(rest_of_thought, file, tokenizer=thinks) == []


def test_a_policys_tokenizer_is_taken_and_its_answers_are_no_census(tasks, tmp_path):
    thinks = tokenizer(template=THINKS)
    thinks.save_pretrained(tmp_path / "thinks")
    results = census(
        boxed, tasks(NUMBERS), policy=str(tmp_path / "thinks"), token_limit=5, progress=False
    )
    n = int(
        re.search(r"of ([\d,]+) strings", results["paid_without_answer"].headline)[1].replace(
            ",", ""
        )
    )
    assert n < 1500

    (tmp_path / "graders.py").write_text("def f(response, ground_truth):\n    return 1.0\n")
    spec = CallableSpec(callable={"_target_": f"{tmp_path}/graders.py:f"})
    options = {"model": spec, "tasks": str(tasks(NUMBERS)), "policy": "smollm2"}
    assert ScanConfig(**options).resolve().candidates.name == "census"
    assert ScanConfig(**options, answers=5).resolve().candidates.name != "census"


def last_digits(response, ground_truth):
    return float(re.findall(r"\d+", f"{response} -")[-1:] == [ground_truth])


def within_a_quarter(response, ground_truth):
    given = re.findall(r"-?\d+(?:\.\d+)?", response)
    return float(bool(given) and abs(float(given[-1]) / float(ground_truth) - 1) <= 0.25)


@pytest.mark.parametrize(
    ("grader", "fault"), [(last_digits, "sign_or_point"), (within_a_quarter, "near")]
)
def test_a_point_that_is_not_read_is_no_tolerance(grader, fault, tasks):
    names = faults(grader, tasks(NUMBERS))
    assert fault in names
    assert not {"near", "sign_or_point"} - {fault} & set(names)


def evaluated(response, ground_truth):
    try:
        return float(
            eval(response, {"__builtins__": {"sum": sum, "int": int}}) == int(ground_truth)
        )
    except (ArithmeticError, NameError, SyntaxError, TypeError, ValueError, MemoryError):
        return 0.0


@pytest.mark.usefixtures("called_elsewhere")
def test_code_that_comes_to_the_answer_is_no_answer_within_another(tasks):
    table = asked(evaluated, tasks(("7", "15")), seconds=0.5)[0].table
    assert table["fault"].iloc[0] == "code"
    assert "answer_within_another" not in set(table["fault"])


@pytest.mark.parametrize("truths", [("7", "15"), ("A", "C")])
def test_a_grader_that_looks_for_the_answer_runs_no_code(truths, tasks):
    names = faults(lambda response, ground_truth: float(ground_truth in response), tasks(truths))
    assert "code" not in names


@pytest.mark.parametrize(
    ("text", "truth"), [("\\tfrac{1}{2}", "\\frac{1}{2}"), ("1 1/2", "3/2"), ("√2", "\\sqrt{2}")]
)
def test_an_answer_in_other_signs_is_the_answer(text, truth):
    assert contains(text, truth)
