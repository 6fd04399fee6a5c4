"""Tokenizers of the styles of Llama 3, Gemma, InternLM2, BERT and DeBERTa, each of a few hundred
entries."""

import json

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

TEXT = "What in one word is the greatest thing ever love Love hate peace war good evil user assistant model"
WORDS = TEXT.split()
LLAMA_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
    "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
)
GEMMA_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m['role'] == 'assistant' "
    "else m['role'] }}\n"
    "{{ m['content'] | trim }}<end_of_turn>\n{% endfor %}"
)
# Does not trim: a line break in front of a response merges with the one that the template writes.
INTERNLM_TEMPLATE = "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"


def llama3() -> PreTrainedTokenizerFast:
    specials = [
        "<|begin_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
        "<|pad|>",
    ]
    backend = byte_level(specials)
    backend.post_processor = TemplateProcessing(
        single=f"{specials[0]} $A", special_tokens=[(specials[0], backend.token_to_id(specials[0]))]
    )
    return chatting(backend, LLAMA_TEMPLATE, begin=specials[0], end="<|eot_id|>", pad="<|pad|>")


def internlm() -> PreTrainedTokenizerFast:
    backend = byte_level(["<s>", "<|im_start|>", "<|im_end|>", "<pad>", "<reward>"])
    return chatting(backend, INTERNLM_TEMPLATE, begin="<s>", end="<|im_end|>", pad="<pad>")


def gemma() -> PreTrainedTokenizerFast:
    """BPE over characters, ▁ for a space, bytes for what it lacks."""
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    learning = Tokenizer(models.BPE())
    learning.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=specials, show_progress=False)
    learning.train_from_iterator([*WORDS, *(f" {word}" for word in WORDS), "\n"] * 3, trainer)
    learned = json.loads(learning.to_str())["model"]
    vocab = learned["vocab"] | {
        f"<0x{byte:02X}>": len(learned["vocab"]) + byte for byte in range(256)
    }
    merges = [tuple(pair) for pair in learned["merges"]]
    backend = Tokenizer(models.BPE(vocab, merges, byte_fallback=True, unk_token="<unk>"))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    add_special(backend, specials)
    return chatting(backend, GEMMA_TEMPLATE, begin="<bos>", end="<eos>", pad="<pad>")


def bert() -> PreTrainedTokenizerFast:
    """WordPiece without a chat template; conversations are pairs, distinguished by token types."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    letters = "abcdefghijklmnopqrstuvwxyz0123456789?!.,()"
    entries = [
        *specials,
        *letters,
        *(f"##{letter}" for letter in letters),
        *{w.lower(): 0 for w in WORDS},
    ]
    vocab = {entry: number for number, entry in enumerate(dict.fromkeys(entries))}
    backend = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return pairing(backend, specials, typed=True)


def deberta() -> PreTrainedTokenizerFast:
    """Byte-level BPE without a chat template; conversations are pairs, without token types."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    return pairing(byte_level(specials), specials, typed=False)


def byte_level(specials: list[str]) -> Tokenizer:
    """Byte-level BPE in which ' love' and 'love' are two tokens; line breaks stay together, as
    Llama 3's do."""
    backend = Tokenizer(models.BPE())
    pieces = pre_tokenizers.Split(
        Regex(r"\s*[\r\n]+| ?\p{L}+| ?[^\s\p{L}]+|\s+"), behavior="isolated"
    )
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([pieces, as_bytes])
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator([*WORDS, *(f" {word}" for word in WORDS), "\n\n"] * 3, trainer)
    add_special(backend, specials)
    return backend


def add_special(backend: Tokenizer, specials: list[str]) -> None:
    backend.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in specials]
    )


def chatting(
    backend: Tokenizer, template: str, *, begin: str, end: str, pad: str
) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=begin,
        eos_token=end,
        pad_token=pad,
        chat_template=template,
    )


def pairing(backend: Tokenizer, specials: list[str], *, typed: bool) -> PreTrainedTokenizerFast:
    pad, unknown, begin, between = specials
    marks = [(mark, backend.token_to_id(mark)) for mark in (begin, between)]
    backend.post_processor = TemplateProcessing(
        single=f"{begin} $A {between}",
        pair=f"{begin} $A {between} $B:1 {between}:1",
        special_tokens=marks,
    )
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if typed else [])]
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=pad,
        unk_token=unknown,
        cls_token=begin,
        sep_token=between,
        model_input_names=names,
    )
