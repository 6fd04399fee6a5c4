"""Prompts that are conversations, wherever a prompt is taken: against the models' own forwards on the template's ids."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

import pessimal
from pessimal.catalogue import named_prompts
from pessimal.cli import add_task
from pessimal.config.compose import configuration
from pessimal.conversation import plain_text, prompt_of, read_prompts
from pessimal.errors import ConfigError, InputError
from pessimal.rewards.formats import Templated
from pessimal.rewards.question import QuestionOptions, judge_question
from pessimal.tables.score_table import ScoreProvenance
from tiny_language_models import CHAT, checkpoint

MESSAGES = [
    {"role": "system", "content": "You are kind."},
    {"role": "user", "content": "What is war"},
    {"role": "assistant", "content": "cruel"},
    {"role": "user", "content": "What is best"},
]
WORDS = ["love", "peace and war", "hate"]


def own_ids(tokenizer, response: str) -> list[int]:
    turns = [*MESSAGES, {"role": "assistant", "content": response}]
    return tokenizer.apply_chat_template(turns, tokenize=True, return_dict=False)


def test_frame_is_the_templates_own(tiny_checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint)
    frame = Templated(tokenizer).frame(prompt_of(MESSAGES))
    for word in WORDS:
        own = own_ids(tokenizer, word)
        assert frame.around(tokenizer.encode(word, add_special_tokens=False)) == own
        assert frame.inside(own) is not None


def test_scan_gives_the_own_forward_on_the_whole_conversation(tiny_checkpoint):
    model = pessimal.load(str(tiny_checkpoint))
    [table, plain] = pessimal.scan(
        model,
        {"talk": MESSAGES, "alone": MESSAGES[-1]["content"]},
        candidates=WORDS,
        progress=False,
    )
    network = AutoModelForSequenceClassification.from_pretrained(tiny_checkpoint, num_labels=1)
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint)
    for word, reward in zip(WORDS, table.rows["reward"], strict=True):
        ids = torch.tensor([own_ids(tokenizer, word)])
        own = network.score(network.model(ids).last_hidden_state[0, -1]).item()
        assert reward == pytest.approx(own, abs=1e-4)
    assert not np.allclose(table.rows["reward"], plain.rows["reward"])
    assert table.provenance.turns == MESSAGES
    assert table.provenance.question == prompt_of(MESSAGES)
    assert "system: You are kind." in table.provenance.prompt_text
    assert "turns" not in plain.provenance.fields(), "older tables keep their keys"
    assert table.provenance.key() != plain.provenance.key()
    assert ScoreProvenance(**json.loads(json.dumps(table.provenance.fields()))) == table.provenance


def test_a_text_that_looks_like_the_conversation_has_another_key(tiny_checkpoint):
    model = pessimal.load(str(tiny_checkpoint))
    talk = prompt_of(MESSAGES)
    asked = [
        pessimal.scan(model, {"x": prompt}, candidates=WORDS, progress=False)[0].provenance
        for prompt in (MESSAGES, plain_text(talk))
    ]
    assert asked[0].prompt_text == asked[1].prompt_text
    assert asked[0].key() != asked[1].key()


def test_log_probabilities_behind_a_conversation(tmp_path):
    folder = checkpoint(tmp_path / "lm", template=CHAT)
    model = pessimal.load(str(folder), kind="log_probability")
    [table] = pessimal.scan(model, {"talk": MESSAGES}, progress=False)
    tokenizer, network = (
        AutoTokenizer.from_pretrained(folder),
        AutoModelForCausalLM.from_pretrained(folder),
    )
    ids = tokenizer.apply_chat_template(
        MESSAGES, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    own = network(torch.tensor([ids])).logits[0, -1].log_softmax(-1).detach().numpy()
    rows = table.rows
    assert np.allclose(rows["reward"], own[rows["candidate_id"]], atol=1e-4)


def test_functions_judges_and_searches_take_conversations(tiny_checkpoint):
    seen = []

    def function(prompt, responses):
        seen.append(prompt)
        return [float(len(response)) for response in responses]

    [table] = pessimal.scan(
        pessimal.reward(function, name="f"), {"t": MESSAGES}, candidates=WORDS, progress=False
    )
    assert table.rows["reward"].tolist() == [4.0, 13.0, 4.0]
    question = judge_question(
        QuestionOptions(template="Q {prompt} A {response}"),
        prompt_of(MESSAGES),
        "love",
        swapped=False,
    )
    assert question[0]["content"].startswith("Q system: You are kind.\n\nuser: What is war")
    found = pessimal.search(
        pessimal.load(str(tiny_checkpoint)), {"t": MESSAGES}, length=1, evaluations=2000
    )
    assert found.finals


def test_prompts_in_files_and_configurations(tmp_path, monkeypatch):
    talk = prompt_of(MESSAGES)
    (tmp_path / "p.jsonl").write_text(
        json.dumps({"key": "talk", "prompt": MESSAGES})
        + "\n"
        + json.dumps({"messages": MESSAGES[-1:]})
        + "\n"
    )
    assert read_prompts(str(tmp_path / "p.jsonl")) == {"talk": talk, "p-2": "What is best"}
    (tmp_path / "p.yaml").write_text(json.dumps({"talk": MESSAGES, "plain": "Why?"}))
    for end in ("jsonl", "yaml"):
        file = f"{tmp_path}/p.{end}"
        assert {"prompts=[]", f"prompts_path={file}"} <= set(add_task(["scan", f"prompts={file}"]))
        config = configuration("scan", {"prompts_path": file}, groups={"prompts": "[]"})
        assert config.prompts["talk"] == talk
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.jsonl").write_text('{"prompt": 7')
    for name in ("bad.jsonl", "none.yaml"):
        with pytest.raises(InputError, match="prompts_path"):
            read_prompts(name)


@pytest.mark.parametrize("given", ["", 7.5j, [{"role": "user"}]])
def test_what_is_no_prompt_is_refused(given):
    with pytest.raises(ConfigError):
        prompt_of(given)
    with pytest.raises(InputError):
        named_prompts({"x": given})
