"""The frame on templates of the styles of Llama 3 and Gemma: one beginning token or two, white space trimmed, and
which tokens a person could type."""

import json

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from pessimal.models.frame import find_frame, templated

PROMPT = "What, in one word, is the greatest thing ever?"
TEXT = ["What, in one word, is the greatest thing ever? love love Love hate 9 user model assistant"] * 3
LLAMA_STYLE = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
    "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
)
GEMMA_STYLE = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n"
    "{{ m['content'] | trim }}<end_of_turn>\n{% endfor %}"
)


def finished(backend: Tokenizer, specials: list[str], template: str) -> PreTrainedTokenizerFast:
    """With a post-processor that adds the beginning token, first of the specials, wherever it is asked to."""
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in specials])
    begin = specials[0]
    backend.post_processor = TemplateProcessing(
        single=f"{begin} $A", special_tokens=[(begin, backend.token_to_id(begin))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=begin, eos_token=specials[-1], chat_template=template
    )


@pytest.fixture(scope="module")
def llama_style() -> PreTrainedTokenizerFast:
    """Byte-level BPE in which ' love' and 'love' are two tokens; line breaks stay together, as Llama 3's do."""
    specials = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    backend = Tokenizer(models.BPE())
    pieces = pre_tokenizers.Split(Regex(r"\s*[\r\n]+| ?\p{L}+| ?[^\s\p{L}]+|\s+"), behavior="isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([pieces, as_bytes])
    backend.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([*TEXT, *["love", "Love", "hate", "\n\n"] * 3], trainer)
    return finished(backend, specials, LLAMA_STYLE)


@pytest.fixture(scope="module")
def gemma_style() -> PreTrainedTokenizerFast:
    """BPE over characters, ▁ for a space, bytes as plain entries for what it lacks."""
    specials = ["<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    learning = Tokenizer(models.BPE())
    learning.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=specials, show_progress=False)
    words = [f" {word}" for line in TEXT for word in line.split()]
    learning.train_from_iterator([*words, *["love", "Love", "hate", "user", "model", "\n", "A"] * 3], trainer)
    learned = json.loads(learning.to_str())["model"]
    vocab = dict(learned["vocab"])
    vocab |= {f"<0x{byte:02X}>": len(vocab) + byte for byte in range(256)}
    merges = [tuple(pair) for pair in learned["merges"]]
    backend = Tokenizer(models.BPE(vocab, merges, byte_fallback=True, unk_token="<unk>"))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return finished(backend, specials, GEMMA_STYLE)


@pytest.fixture(params=["llama_style", "gemma_style"])
def tokenizer(request) -> PreTrainedTokenizerFast:
    return request.getfixturevalue(request.param)


def in_slot(tokenizer, text: str, *, double_bos: bool = False) -> list[int] | None:
    frame = find_frame(tokenizer, PROMPT, double_bos=double_bos)
    return frame.inside(templated(tokenizer, PROMPT, [text], double_bos=double_bos)[0])


def survives(tokenizer, token: str) -> bool:
    """Whether the token's text, through the template, is this token again."""
    token_id = tokenizer.convert_tokens_to_ids(token)
    assert token_id is not None
    return in_slot(tokenizer, tokenizer.decode([token_id])) == [token_id]


def test_the_published_way_doubles_the_beginning_token_and_nothing_else(tokenizer):
    once, twice = (find_frame(tokenizer, PROMPT, double_bos=double) for double in (False, True))
    assert once.prefix.count(tokenizer.bos_token_id) == 1
    assert twice.prefix == (tokenizer.bos_token_id, *once.prefix)
    assert twice.suffix == once.suffix
    for text in ("love", " love", "hate love"):
        assert in_slot(tokenizer, text, double_bos=True) == in_slot(tokenizer, text)


def test_white_space_around_a_response_is_trimmed(tokenizer):
    love = in_slot(tokenizer, "love")
    assert len(love) == 1
    assert (
        in_slot(tokenizer, " love") == in_slot(tokenizer, "love\n") == in_slot(tokenizer, "\t love ") == love
    )
    assert in_slot(tokenizer, "love hate") != love


@pytest.mark.parametrize(
    ("style", "bare", "spaced", "byte"),
    [("llama_style", "love", "Ġlove", "Ã"), ("gemma_style", "love", "▁love", "<0x80>")],
)
def test_a_word_survives_bare_but_not_after_a_space_and_a_byte_not_at_all(request, style, bare, spaced, byte):
    tokenizer = request.getfixturevalue(style)
    assert survives(tokenizer, bare)
    assert survives(tokenizer, tokenizer.eos_token)
    assert not survives(tokenizer, spaced)
    assert not survives(tokenizer, byte)


def test_a_byte_whose_character_has_a_token_of_its_own_becomes_that_one(gemma_style):
    assert gemma_style.decode(gemma_style.convert_tokens_to_ids(["<0x41>"])) == "A"
    assert in_slot(gemma_style, "A") == gemma_style.convert_tokens_to_ids(["A"])
    assert not survives(gemma_style, "<0x41>")
    # One whose character has none comes back as itself: that is what bytes are for.
    assert survives(gemma_style, "<0x7E>")


def test_a_response_of_only_white_space_is_the_empty_response(tokenizer):
    assert in_slot(tokenizer, " ") == in_slot(tokenizer, "\n \t") == []
