"""The chat frame: found in a template, checked against it, refused where there is none."""

import pytest
from published import vocabularies
from transformers import AutoTokenizer

from pessimal.errors import FrameError
from pessimal.models.frame import assistant_opening, find_frame, templated

PROMPT = "What, in one word, is the greatest thing ever?"


@pytest.fixture
def tokenizer(tiny_checkpoint):
    return AutoTokenizer.from_pretrained(tiny_checkpoint)


def test_frame_rebuilds_the_templates_own_ids(tokenizer):
    frame = find_frame(tokenizer, PROMPT)
    for response in ("love", "peace and war", "=1+1", "Ünïcode"):
        own = templated(tokenizer, PROMPT, [response])[0]
        assert frame.around(tokenizer.encode(response, add_special_tokens=False)) == own
        assert frame.inside(own) == tokenizer.encode(response, add_special_tokens=False)


def test_frame_has_one_beginning_token_and_the_published_one_has_two(tokenizer):
    once = find_frame(tokenizer, PROMPT)
    assert list(once.prefix).count(tokenizer.bos_token_id) == 1
    # A tokenizer adds its beginning token where it is set to, as Llama 3's does by default.
    from tokenizers.processors import TemplateProcessing

    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", tokenizer.bos_token_id)]
    )
    twice = find_frame(tokenizer, PROMPT, double_bos=True)
    assert twice.prefix == (tokenizer.bos_token_id, *once.prefix)
    assert twice.suffix == once.suffix


def test_conversation_that_does_not_fit_has_no_inside(tokenizer):
    frame = find_frame(tokenizer, PROMPT)
    assert frame.inside([1, 2, 3]) is None
    assert frame.inside([*frame.prefix[:-1], 7, 7, *frame.suffix]) is None
    assert frame.inside(frame.around([])) == []


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for m in messages %}{{ m['role'] }}{% endfor %}", "0 times"),
        ("{% for m in messages %}{{ m['content'] }}{{ m['content'] }}{% endfor %}", "2 times"),
        ("{% for m in messages %}{{ m['content'] | upper }}{% endfor %}", "0 times"),
        ("{{ raise_exception('only user turns') }}", "only user turns"),
        # The response's length is written before it: no fixed prefix.
        (
            "{% for m in messages %}{{ m['content'] | length }}:{{ m['content'] }}<|end|>{% endfor %}",
            "does not equal",
        ),
    ],
)
def test_templates_without_a_slot_are_refused(tokenizer, template, message):
    tokenizer.chat_template = template
    with pytest.raises(FrameError, match=message):
        find_frame(tokenizer, PROMPT)


@pytest.mark.parametrize(("kind", "typed"), [("bert", True), ("deberta", False)])
def test_encoders_take_prompt_and_response_as_a_pair(kind, typed):
    tokenizer = getattr(vocabularies, kind)()
    frame = find_frame(tokenizer, PROMPT)
    asked = tokenizer.encode(PROMPT, add_special_tokens=False)
    assert list(frame.prefix) == [tokenizer.cls_token_id, *asked, tokenizer.sep_token_id]
    assert list(frame.suffix) == [tokenizer.sep_token_id]
    assert frame.typed is typed
    response = tokenizer.encode("peace", add_special_tokens=False)
    assert frame.around(response) == tokenizer(PROMPT, "peace")["input_ids"]
    with pytest.raises(FrameError, match="mode=text"):
        find_frame(tokenizer, PROMPT, double_bos=True)


def test_ids_that_the_model_wants_at_the_end_are_part_of_the_suffix(tokenizer):
    plain, closed = find_frame(tokenizer, PROMPT), find_frame(tokenizer, PROMPT, closing=(4,))
    assert closed.prefix == plain.prefix
    assert closed.suffix == (*plain.suffix, 4)
    assert closed.inside(templated(tokenizer, PROMPT, ["love"], closing=(4,))[0]) == tokenizer.encode("love")


@pytest.mark.parametrize(
    ("kind", "opening"),
    [
        ("llama3", "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"),
        ("gemma", "<end_of_turn>\n<start_of_turn>model\n"),
    ],
)
def test_assistants_turn_opens_alike_after_every_prompt(kind, opening):
    tokenizer = getattr(vocabularies, kind)()
    found = assistant_opening(tokenizer)
    assert list(found) == tokenizer.encode(opening, add_special_tokens=False)
    for prompt in (PROMPT, "Why?", "love"):
        assert find_frame(tokenizer, prompt).prefix[-len(found) :] == found
