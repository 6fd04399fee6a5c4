"""Messages are read by one reader: what a turn cannot hold is refused by name, never dropped."""

import json
from pathlib import Path

import pytest
import torch
from fastapi.testclient import TestClient

import pessimal
from pessimal.conversation import Turn, prompt_of, read_messages, read_prompts
from pessimal.errors import InputError, UserError
from pessimal.rewards.callable import read_tasks
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.obtain import open_model
from pessimal.rewards.rendering import messages_of
from pessimal.scoring.contexts import read_context, read_contexts
from pessimal.scoring.serving import Served
from pessimal.scoring.texts import text_scorer
from pessimal.tables.comparisons import from_row
from pessimal.verbs.serve import application

ASK = {"role": "user", "content": "What is 12 times 13?"}
CALL = {"id": "1", "type": "function", "function": {"name": "multiply", "arguments": "{}"}}
ANSWER = {"role": "assistant", "content": "It is 156."}
IMAGE = {"type": "image_url", "image_url": {"url": "data:"}}
BEFORE = [
    ASK,
    {"role": "assistant", "content": "Let me see."},
    {"role": "user", "content": "Well?"},
]
DROPPED = {
    "tool_calls": {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]},
    "reasoning_content": {**BEFORE[1], "reasoning_content": "Twelve times…"},
    "thinking": {**BEFORE[1], "thinking": "Hm."},
    "name": {**BEFORE[1], "name": "Ann"},
    "function_call": {**BEFORE[1], "function_call": {"name": "multiply"}},
    "content": {"role": "assistant", "content": None},
    "image_url": {"role": "assistant", "content": [{"type": "text", "text": "See:"}, IMAGE]},
    "cache_control": {
        "role": "assistant",
        "content": [{"type": "text", "text": "See.", "cache_control": {"type": "ephemeral"}}],
    },
    "critic": {"role": "critic", "content": "Hm."},
}


def write(folder, row):
    (folder / "rows.jsonl").write_text(json.dumps(row))
    return str(folder / "rows.jsonl")


READERS = {
    "tasks": lambda folder, turns: read_tasks(write(folder, {"prompt": turns}))[0].turns,
    "prompts": lambda folder, turns: read_prompts(write(folder, {"key": "a", "prompt": turns}))[
        "a"
    ],
    "contexts": lambda folder, turns: read_contexts(
        Path(write(folder, {"key": "a", "messages": [*turns, ANSWER]})), "after"
    )["a"].turns[:-1],
    "comparisons": lambda folder, turns: (
        from_row({"prompt": turns, "responses": ["a", "b"]}, where="line 1", key="a").turns
    ),
    "Python": lambda folder, turns: prompt_of(turns),
}


@pytest.mark.parametrize("field", list(DROPPED))
@pytest.mark.parametrize("reader", list(READERS))
def test_what_a_turn_cannot_hold_is_refused_by_name_and_place(tmp_path, reader, field):
    with pytest.raises(UserError, match="message 2") as error:
        READERS[reader](tmp_path, [ASK, DROPPED[field], BEFORE[2]])
    assert field in str(error.value)


@pytest.mark.parametrize("reader", list(READERS))
def test_a_tools_turn_is_read(tmp_path, reader):
    tool = {"role": "tool", "content": "156"}
    read = READERS[reader](tmp_path, [*BEFORE[:2], tool, BEFORE[2]])
    assert messages_of(read)[2] == tool


def test_tools_beside_messages_are_refused(tmp_path):
    tools = {"tools": [{"type": "function"}]}
    with pytest.raises(InputError, match="tools"):
        read_context({"messages": [ASK, ANSWER], **tools}, "after", "line 1")
    with pytest.raises(InputError, match="tools"):
        from_row({"prompt": "a", "chosen": "b", "rejected": "c", **tools}, where="line 1", key="a")
    with pytest.raises(InputError, match="tools"):
        read_prompts(write(tmp_path, {"prompt": "a", **tools}))
    assert read_prompts(write(tmp_path, {"prompt": "a", "tools": None}))


@pytest.mark.parametrize("given", [None, [1], {"role": "user", "content": "a"}])
def test_what_is_no_list_of_messages_is_refused(given):
    with pytest.raises(InputError, match="here"):
        read_messages(given, where="here")


@pytest.fixture(scope="module")
def model(tiny_checkpoint):
    return open_model(HeadSpec(path=str(tiny_checkpoint)), tiny_checkpoint)


@pytest.fixture(scope="module")
def client(model):
    served = Served.from_reward(model, torch.device("cpu"))
    return TestClient(application(served), raise_server_exceptions=False)


@pytest.mark.parametrize("field", list(DROPPED))
def test_a_server_says_what_it_does_not_read(client, field):
    answer = client.post("/classify", json={"messages": [ASK, DROPPED[field], ANSWER]})
    assert answer.status_code == 400
    assert field in answer.json()["error"]


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [{"type": "function"}]},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"chat_template": "{{ messages }}"},
    ],
)
def test_a_server_refuses_what_would_change_the_template(client, more):
    answer = client.post("/classify", json={"messages": [ASK, ANSWER], **more})
    assert answer.status_code == 400
    assert next(iter(more)) in answer.json()["error"]
    off = dict.fromkeys(more, None)
    assert client.post("/classify", json={"messages": [ASK, ANSWER], **off}).status_code == 200


def test_a_server_reads_a_content_of_one_part(model, client):
    parts = [
        {**turn, "content": [{"type": "text", "text": turn["content"]}]} for turn in (ASK, ANSWER)
    ]
    answer = client.post("/classify", json={"messages": parts, "add_generation_prompt": False})
    turns = [tuple(Turn(**turn) for turn in (ASK, ANSWER))]
    right = text_scorer(model, turns, device=torch.device("cpu")).rewards(turns)
    assert answer.json()["data"][0]["probs"] == pytest.approx(list(right), abs=1e-6)


def test_a_function_is_given_no_conversation_that_lost_a_call(tmp_path):
    file = write(tmp_path, {"prompt": [ASK, DROPPED["tool_calls"], BEFORE[2]]})

    def called(prompts, completions, **_):
        return [float(any("tool_calls" in turn for turn in prompt)) for prompt in prompts]

    with pytest.raises(InputError, match="tool_calls"):
        pessimal.scan(called, tasks=file, candidates=["156"], progress=False)
