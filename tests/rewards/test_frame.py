"""Conversations as ids: the chat frame found in a template, checked against it, refused where there
is none; whole conversations; templates of the styles of Llama 3 and Gemma."""

import pytest
from published import vocabularies
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer

from pessimal.conversation import Turn
from pessimal.errors import FrameError
from pessimal.rewards.formats import Templated, assistant_opening

PROMPT = "What, in one word, is the greatest thing ever?"


@pytest.fixture
def tokenizer(tiny_checkpoint):
    return AutoTokenizer.from_pretrained(tiny_checkpoint)


def adding_begin(tokenizer):
    """The tokenizer, set to add its beginning token wherever it is asked to."""
    begin = tokenizer.bos_token
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{begin} $A", special_tokens=[(begin, tokenizer.bos_token_id)]
    )
    return tokenizer


def test_frame_rebuilds_the_templates_own_ids(tokenizer):
    frame = Templated(tokenizer).frame(PROMPT)
    for response in ("love", "peace and war", "=1+1", "Ünïcode"):
        own = Templated(tokenizer).ids(PROMPT, [response])[0]
        assert frame.around(tokenizer.encode(response, add_special_tokens=False)) == own
        assert frame.inside(own) == tokenizer.encode(response, add_special_tokens=False)


@pytest.mark.parametrize("kind", ["llama3", "gemma"])
def test_frame_has_one_beginning_token_and_the_published_one_has_two(tokenizer, kind):
    words = tokenizer if kind == "tiny" else getattr(vocabularies, kind)()
    once = Templated(words).frame(PROMPT)
    assert once.prefix.count(words.bos_token_id) == 1
    # A tokenizer adds its beginning token where it is set to, as Llama 3's does by default.
    twice = Templated(adding_begin(words)).frame(PROMPT, double_bos=True)
    assert twice.prefix == (words.bos_token_id, *once.prefix)
    assert twice.suffix == once.suffix


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for m in messages %}{{ m['role'] }}{% endfor %}", "0 times"),
        ("{% for m in messages %}{{ m['content'] }}{{ m['content'] }}{% endfor %}", "2 times"),
        (
            "{% for m in messages %}{{ m['content'] | length }}:{{ m['content'] }}<|end|>{% endfor "
            "%}",
            "ties",
        ),
    ],
)
def test_templates_without_a_slot_are_refused(tokenizer, template, message):
    tokenizer.chat_template = template
    with pytest.raises(FrameError, match=message):
        Templated(tokenizer).frame(PROMPT)


@pytest.mark.parametrize(("kind", "typed"), [("bert", True), ("deberta", False)])
def test_encoders_take_prompt_and_response_as_a_pair(kind, typed):
    tokenizer = getattr(vocabularies, kind)()
    frame = Templated(tokenizer).frame(PROMPT)
    asked = tokenizer.encode(PROMPT, add_special_tokens=False)
    assert list(frame.prefix) == [tokenizer.cls_token_id, *asked, tokenizer.sep_token_id]
    assert list(frame.suffix) == [tokenizer.sep_token_id]
    assert frame.typed is typed
    response = tokenizer.encode("peace", add_special_tokens=False)
    assert frame.around(response) == tokenizer(PROMPT, "peace")["input_ids"]
    with pytest.raises(FrameError, match="mode=text"):
        Templated(tokenizer).frame(PROMPT, double_bos=True)


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
        assert Templated(tokenizer).frame(prompt).prefix[-len(found) :] == found


# Whole conversations.


def test_earlier_turns_come_first_and_closing_ids_last(tokenizer):
    turns = [
        Turn("user", "hate"),
        Turn("assistant", "war"),
        Turn("user", PROMPT),
        Turn("assistant", "love"),
    ]
    found = Templated(tokenizer, (7, 8)).encode(turns)
    said = tokenizer.decode(found.ids[:-2])
    assert [said.index(turn.content) for turn in turns] == sorted(
        said.index(turn.content) for turn in turns
    )
    assert found.ids[-2:] == (7, 8)
    assert found.ids.count(tokenizer.bos_token_id) == 1


@pytest.mark.parametrize("hostile", ["\ud800 half", "a\x00b", "<|end|>"])
def test_any_text_is_encoded(tokenizer, hostile):
    assert Templated(tokenizer).encode([Turn("user", hostile), Turn("assistant", hostile)]).ids


# Templates of published styles.


@pytest.fixture(scope="module", params=["llama3", "gemma"])
def style(request):
    return adding_begin(getattr(vocabularies, request.param)())


def in_slot(tokenizer, text: str) -> list[int] | None:
    return Templated(tokenizer).frame(PROMPT).inside(Templated(tokenizer).ids(PROMPT, [text])[0])


def survives(tokenizer, token: str) -> bool:
    """Whether the token's text, through the template, is this token again."""
    token_id = tokenizer.convert_tokens_to_ids(token)
    assert token_id is not None
    return in_slot(tokenizer, tokenizer.decode([token_id])) == [token_id]


def test_white_space_around_a_response_is_trimmed(style):
    love = in_slot(style, "love")
    assert len(love) == 1
    assert in_slot(style, " love") == in_slot(style, "love\n") == in_slot(style, "\t love ") == love
    assert in_slot(style, "love hate") != love
    assert in_slot(style, " ") == in_slot(style, "\n \t") == []


@pytest.mark.parametrize(
    ("kind", "bare", "spaced", "byte"),
    [("llama3", "love", "Ġlove", "Ã"), ("gemma", "love", "▁love", "<0x80>")],
)
def test_a_word_survives_bare_but_not_after_a_space_and_a_byte_not_at_all(kind, bare, spaced, byte):
    tokenizer = adding_begin(getattr(vocabularies, kind)())
    assert survives(tokenizer, bare)
    assert survives(tokenizer, tokenizer.eos_token)
    assert not survives(tokenizer, spaced)
    assert not survives(tokenizer, byte)


def test_a_byte_whose_character_has_a_token_of_its_own_becomes_that_one():
    gemma = adding_begin(vocabularies.gemma())
    assert gemma.decode(gemma.convert_tokens_to_ids(["<0x57>"])) == "W"
    assert in_slot(gemma, "W") == gemma.convert_tokens_to_ids(["W"])
    assert not survives(gemma, "<0x57>")
    # One whose character has none comes back as itself: that is what bytes are for.
    assert survives(gemma, "<0x7E>")
