"""Whole conversations as ids: what the template makes of them, nothing else."""

import pytest
from transformers import AutoTokenizer

from pessimal.errors import FrameError
from pessimal.models.frame import Turn, encode, find_frame

PROMPT = "What is good?"


@pytest.fixture(scope="module")
def tokenizer(tiny_checkpoint):
    return AutoTokenizer.from_pretrained(tiny_checkpoint)


def test_one_turn_is_what_stands_in_the_frame(tokenizer):
    frame = find_frame(tokenizer, PROMPT)
    found = encode(tokenizer, [Turn("user", PROMPT), Turn("assistant", "peace and truth")])
    response = tokenizer("peace and truth", add_special_tokens=False)["input_ids"]
    assert list(found.ids) == frame.around(response)
    assert found.types is None


def test_earlier_turns_come_first_and_closing_ids_last(tokenizer):
    turns = [Turn("user", "hate"), Turn("assistant", "war"), Turn("user", PROMPT), Turn("assistant", "love")]
    found = encode(tokenizer, turns, closing=(7, 8))
    said = tokenizer.decode(found.ids[:-2])
    assert [said.index(turn.content) for turn in turns] == sorted(said.index(turn.content) for turn in turns)
    assert found.ids[-2:] == (7, 8)
    assert found.ids.count(tokenizer.bos_token_id) == 1


@pytest.mark.parametrize("hostile", ["\ud800 half", "", " \n ", "a\x00b", "<|end|>", "é" * 300])
def test_any_text_is_encoded(tokenizer, hostile):
    assert encode(tokenizer, [Turn("user", hostile), Turn("assistant", hostile)]).ids


def test_a_template_that_refuses_is_reported(tokenizer):
    import copy

    strict = copy.deepcopy(tokenizer)
    strict.chat_template = "{{ raise_exception('no system turn') }}"
    with pytest.raises(FrameError, match="turns system, user, assistant: no system turn"):
        encode(strict, [Turn("system", "be"), Turn("user", "a"), Turn("assistant", "b")])
