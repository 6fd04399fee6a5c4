"""Functions in the shapes of their trainers: how each is recognised and called.

What TRL 1.16.0, verl 0.9.1 and OpenRLHF 0.11.2 pass was recorded from their own code
(experiments/trainers/called.py)."""

import asyncio
import json
import math
import sys
import threading
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import pessimal
from pessimal.conversation import Turn
from pessimal.errors import ConfigError, InputError, ModelError
from pessimal.rewards.callable import CallableSpec, open_callable, read_tasks, wrap_callable
from pessimal.rewards.shapes import Shape, shape_of

PROMPT = "What is 2 + 2?"
MESSAGES = [{"role": "user", "content": PROMPT}]


@pytest.fixture
def tasks(tmp_path):
    """Writes a file of tasks."""

    def write(*rows):
        file = tmp_path / "tasks.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return file

    return write


def conversation(response: str, prompt: str = PROMPT) -> tuple[Turn, Turn]:
    return Turn("user", prompt), Turn("assistant", response)


def rewards(function, responses=("4", "five"), **options) -> list[float]:
    made = wrap_callable(function, **options)
    return made.rewards([conversation(response) for response in responses]).tolist()


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda completions, **kwargs: 0, Shape.trl),
        (lambda data_source, solution_str, ground_truth, extra_info=None: 0, Shape.verl),
        (lambda data_sources, solution_strs, ground_truths, extra_infos: 0, Shape.verl_batch),
        (lambda queries, prompts, labels: 0, Shape.openrlhf),
        (lambda task, trace: 0, Shape.verifiers),
        (lambda completion, answer: 0, Shape.verifiers_rubric),
        (lambda state, target: 0, Shape.inspect),
        (lambda prompt, response: 0, Shape.plain),
        (lambda prompt, responses: 0, Shape.plain_group),
        (lambda prompts, responses: 0, Shape.plain_lists),
    ],
)
def test_a_shape_is_told_by_the_names_of_parameters(function, shape):
    assert shape_of(function, name="f") is shape


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: 0,
        lambda *arguments: 0,
        lambda prompt, completion: 0,
        lambda completions, responses: 0,
    ],
)
def test_what_no_name_says_is_never_guessed(function):
    with pytest.raises(ConfigError, match=r"model\.shape"):
        wrap_callable(function)


def test_a_given_shape_goes_before_the_names():
    assert rewards(len, shape="plain") == [1.0, 4.0]
    assert rewards(lambda p, r: len(p) + len(r), shape="plain") == [15.0, 18.0]
    assert rewards(lambda p, r: [len(p)] * len(r), shape="plain_group") == [14.0, 14.0]
    assert rewards(lambda p, r: list(map(len, p)), shape="plain_lists") == [14.0, 14.0]
    with pytest.raises(ConfigError, match="plain_group"):
        wrap_callable(len, shape="plane")


def test_trl_passes_texts_for_texts_as_recorded(tasks):
    seen = []

    def f(prompts, completions, **kwargs):
        seen.append((prompts, completions, kwargs))
        kwargs["log_extra"]("length", [1, 2])
        kwargs["log_metric"]("mean", 1.0)
        return [len(p) + len(c) for p, c in zip(prompts, completions, strict=True)]

    file = tasks({"prompt": PROMPT, "ground_truth": "4"})
    # Called with the prompt's letters, as once, the first was 2.
    assert rewards(f, tasks=file) == [15.0, 18.0]
    [(prompts, completions, kwargs)] = seen
    assert (prompts, completions) == ([PROMPT] * 2, ["4", "five"])
    assert kwargs["ground_truth"] == ["4", "4"]
    assert kwargs["trainer_state"].global_step == 0
    assert set(kwargs) == {"ground_truth", "trainer_state", "log_extra", "log_metric"}


def test_trl_passes_messages_where_the_dataset_has_them(tasks):
    def f(prompts, completions, **kwargs):
        return [
            10 * (prompt == MESSAGES) + len(completion[0]["content"])
            for prompt, completion in zip(prompts, completions, strict=True)
        ]

    assert rewards(f, tasks=tasks({"prompt": MESSAGES})) == [11.0, 14.0]
    assert rewards(f, messages=True) == [11.0, 14.0]
    with pytest.raises(ModelError, match=r"messages=true"):
        rewards(f)  # raises on texts


def test_trl_would_not_call_a_function_without_room_for_what_it_passes(tasks):
    with pytest.raises(ConfigError, match="completion_ids"):
        rewards(lambda completions: [1.0, 2.0])
    with pytest.raises(ConfigError, match=r"model\.tokenizer"):
        rewards(lambda completion_ids, **kwargs: [1.0, 2.0])
    with pytest.raises(ConfigError, match="ground_truth"):
        rewards(lambda completions, ground_truth, **kwargs: [1.0, 2.0])


def test_verl_calls_for_one_sample_as_recorded(tasks):
    seen = []

    def compute_score(data_source, solution_str, ground_truth, extra_info=None):
        seen.append((data_source, ground_truth, extra_info))
        return {"score": float(ground_truth in solution_str), "acc": True}

    row = {"prompt": MESSAGES, "data_source": "sums", "extra_info": {"index": 3}}
    of_verl = row | {"reward_model": {"style": "rule", "ground_truth": "4"}}
    flat = row | {"ground_truth": "4"}
    assert rewards(compute_score, tasks=tasks(of_verl)) == [1.0, 0.0]
    assert rewards(compute_score, tasks=tasks(flat)) == [1.0, 0.0]
    info = {"index": 3, "num_turns": None, "rollout_reward_scores": {}}
    assert seen == [("sums", "4", info)] * 4
    with pytest.raises(ConfigError, match="'ground_truth'"):
        rewards(compute_score, tasks=tasks(row))
    with pytest.raises(ConfigError, match=r"tasks=FILE"):
        rewards(compute_score)
    with pytest.raises(ModelError, match="score"):
        rewards(lambda solution_str, **others: {"acc": 1})


def test_openrlhf_calls_with_lists_of_one_as_recorded(tasks):
    seen = []

    def reward_func(queries, prompts, labels):
        seen.append((queries, prompts, labels))
        return {"rewards": np.array([float(len(queries[0]))]), "extra_logs": {}}

    file = tasks({"prompt": PROMPT, "label": "4"})
    assert rewards(reward_func, tasks=file) == [15.0, 18.0]
    assert seen[0] == ([PROMPT + "4"], [PROMPT], ["4"])
    assert rewards(reward_func) == [15.0, 18.0]
    assert seen[-1] == ([PROMPT + "five"], [PROMPT], [""])
    with pytest.raises(ConfigError, match="'label'"):
        rewards(reward_func, tasks=tasks({"prompt": PROMPT, "answer": "4"}))


def test_openrlhf_reads_the_policys_template_and_its_end():
    class Tokenizer:
        chat_template, eos_token = "…", "<end>"
        all_special_tokens = ("<end>",)

        def get_vocab(self):
            return {"<end>": 0}

        def apply_chat_template(self, messages, *, tokenize, add_generation_prompt):
            assert (tokenize, add_generation_prompt) == (False, True)
            return f"<user>{messages[-1]['content']}<assistant>"

    def f(queries, prompts, labels):
        assert queries[0].startswith(prompts[0])
        return {"rewards": [float(queries == [f"<user>{PROMPT}<assistant>4<end>"])]}

    assert rewards(f, tokenizer=Tokenizer()) == [1.0, 0.0]


def test_a_rubrics_function_is_given_what_it_names(tasks):
    async def f(completion, answer, state, info):
        assert state["prompt"] == MESSAGES
        await asyncio.sleep(0)
        return float(answer in completion[-1]["content"]) + info.get("bonus", 0)

    file = tasks({"prompt": PROMPT, "answer": "4", "info": {"bonus": 2}})
    assert rewards(f, tasks=file) == [3.0, 2.0]
    with pytest.raises(ConfigError, match="'answer'"):
        rewards(f)


class Rubric:
    """As a Rubric of verifiers holds its functions."""

    def __init__(self, functions, weights, **objects):
        self.funcs, self.weights, self.class_objects = functions, weights, objects


def test_a_rubric_is_the_sum_of_its_functions_with_the_objects_that_it_brings(tasks):
    async def judge(prompt, completion, answer):
        await asyncio.sleep(0)
        return "yes" if answer in completion[-1]["content"] else "no"

    async def right(judge, prompt, completion, answer):
        return float(await judge(prompt, completion, answer) == "yes")

    def short(completion):
        return -len(completion[-1]["content"])

    rubric = Rubric([right, short], [2.0, 0.5], judge=judge, parser=object())
    file = tasks({"prompt": PROMPT, "answer": "4"})
    [table] = pessimal.scan(rubric, tasks=file, candidates=["4", "five"])
    assert table.rows["reward"].tolist() == [1.5, -2.0]
    with pytest.raises(ConfigError, match=r"pessimal\.reward\(rubric\)"):
        rewards(right, tasks=file)
    with pytest.raises(ConfigError, match="weights"):
        pessimal.scan(rubric, weights=[1, 1])
    ranks = Rubric([lambda completions, answers: [0.0, 1.0]], [1.0])
    with pytest.raises(ConfigError, match="completions"):
        pessimal.scan(ranks, tasks=file, candidates=["4", "five"])


def test_inspects_scorers_read_its_own_objects(tasks, monkeypatch):
    """With stand-ins that hold what they are given: the package is not needed here."""

    def module(name, **content):
        monkeypatch.setitem(sys.modules, name, made := ModuleType(name))
        vars(made).update(content)

    def message(role):
        return lambda content: SimpleNamespace(role=role, content=content)

    def output(model, content):
        return SimpleNamespace(completion=content, message=message("assistant")(content))

    module(
        "inspect_ai.model",
        ChatMessageUser=message("user"),
        ChatMessageSystem=message("system"),
        ChatMessageAssistant=message("assistant"),
        ModelOutput=SimpleNamespace(from_content=output),
        ModelName=str,
    )
    module("inspect_ai.solver", TaskState=lambda **given: SimpleNamespace(**given))
    letters = {"C": 1.0, "I": 0.0}
    module(
        "inspect_ai.scorer",
        Target=lambda text: SimpleNamespace(text=text),
        value_to_float=lambda: letters.__getitem__,
    )

    async def score(state, target):
        assert (state.input, len(state.messages), state.metadata) == (PROMPT, 2, {"k": 1})
        if state.output.completion == "skip":
            return None
        right = target.text in state.output.completion
        return SimpleNamespace(value="C" if right else "I")

    def made():
        return score

    made.__registry_info__ = "a scorer's factory"
    file = tasks({"prompt": PROMPT, "target": "4", "metadata": {"k": 1}})
    for function in (score, made):
        given = rewards(function, ("4", "five", "skip"), tasks=file)
        assert given[:2] == [1.0, 0.0]
        assert math.isnan(given[2])


def test_a_coroutine_is_awaited_where_its_trainer_awaits_it():
    async def plain(prompt, response):
        return float(threading.current_thread() is threading.main_thread())

    async def trl(completions, **columns):
        return [await plain("", one) for one in completions]

    async def inside():
        return rewards(plain)

    assert rewards(plain) == [1.0, 1.0]
    assert rewards(trl) == [0.0, 0.0]  # TRL starts a thread
    assert asyncio.run(inside()) == [0.0, 0.0]  # a loop runs in the main thread


@pytest.mark.parametrize("answer", ["4", float("nan"), [1.0]])
def test_what_is_no_number_is_refused(answer):
    with pytest.raises(ModelError):
        rewards(lambda response: answer)


def test_objects_with_score_and_functions_in_files(tmp_path):
    class Scored:
        def score(self, response):
            return len(response)

    assert rewards(Scored()) == [1.0, 4.0]
    (tmp_path / "beside.py").write_text("SCALE = 3")
    file = tmp_path / "mine.py"
    file.write_text("import beside\n\ndef f(response): return beside.SCALE * len(response)")
    made = open_callable(CallableSpec(callable={"_target_": f"{file}:f"}))
    assert made.name == "mine.f"
    assert made.rewards([conversation("4")]).tolist() == [3.0]
    for name in (f"{file}:g", f"{tmp_path}/nothing.py:f"):
        with pytest.raises(ConfigError):
            open_callable(CallableSpec(callable={"_target_": name}))
    (tmp_path / "wrong.py").write_text("raise SystemExit(2)")
    with pytest.raises(ConfigError):
        open_callable(CallableSpec(callable={"_target_": f"{tmp_path}/wrong.py:f"}))


@pytest.mark.parametrize("lines", ["", "{"])
def test_a_file_that_holds_no_tasks_is_refused(tmp_path, lines):
    file = tmp_path / "tasks.jsonl"
    file.write_text(lines)
    with pytest.raises(InputError):
        read_tasks(file)


# Scans ------------------------------------------------------------------------


def test_scan_of_a_list_is_the_weighted_sum():
    def longer(response):
        return len(response)

    def short(response):
        return None if len(response) > 5 else 1.0

    def silent(response):
        return None

    texts = ["a", "abc", "abcdefg"]
    table = pessimal.scan([longer, short], weights=[2.0, 10.0], candidates=texts)
    assert table.rows["reward"].tolist() == [12.0, 16.0, 14.0]  # None adds nothing, as in TRL
    assert [one["model"] for one in table.measured["terms"]] == ["longer", "short"]
    panel = pessimal.scan([longer, short], weights=[1, 0], candidates=texts)
    assert panel.rows["reward"].tolist() == [1.0, 3.0, 7.0]
    alone = pessimal.scan([short], candidates=texts)
    assert alone.rows["text"].tolist() == texts[:2]
    for functions, weights in (
        ([longer, longer], [1, 1]),
        ([longer, short], [0, 0]),
        ([longer, short], [1]),
        ([longer, short], [1, math.nan]),
        ([], []),
        ([longer, 3], [1, 1]),
    ):
        with pytest.raises(ConfigError):
            pessimal.scan(functions, weights=weights, candidates=texts)
    with pytest.raises(ModelError):
        pessimal.scan([silent, short], candidates=texts[2:])
