"""Tiny random causal language models with real tokenizers. Their probabilities are noise: nothing
is to be learnt from them but whether the arithmetic is right."""

from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

WORDS = "love hate good evil peace war kind cruel wisdom truth What in one word is the greatest best worst thing ever and"
CHAT = (
    "{{ bos_token }}{% for m in messages %}<|start|>{{ m['role'] }}<|sep|>{{ m['content'] | trim "
    "}}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant<|sep|>{% endif %}"
)
UNLISTED = 7  # rows of the embedding without a token


def byte_level(specials: list[str], texts: list[str], *, size: int) -> Tokenizer:
    """Byte-level BPE in which a word and the space before it are one piece."""
    backend = Tokenizer(models.BPE())
    pieces = pre_tokenizers.Split(Regex(r" ?\p{L}+| ?[^\s\p{L}]+|\s+"), behavior="isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([pieces, as_bytes])
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return backend


def tokenizer(*, template: str | None = None) -> PreTrainedTokenizerFast:
    """Byte-level BPE in which ' love' is one token; puts its beginning token ahead of a text, as
    Llama 3's does."""
    specials = ["<|bos|>", "<|start|>", "<|sep|>", "<|end|>"]
    backend = byte_level(specials, [WORDS, " " + WORDS, WORDS.title()] * 3, size=420)
    backend.post_processor = TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", 0)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|bos|>",
        eos_token="<|end|>",
        pad_token="<|end|>",
        chat_template=template,
    )


def network(kind: str, size: int, *, seed: int = 0) -> torch.nn.Module:
    """A random causal language model over `size` tokens and some rows more; gemma2 ties its
    embeddings and caps its logits, gpt2 ties its embeddings and has no grouped heads."""
    torch.manual_seed(seed)
    rows = size + UNLISTED
    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "initializer_range": 0.3,
    }
    ends = {"pad_token_id": 3, "bos_token_id": 0, "eos_token_id": 3}
    if kind == "gpt2":
        config = GPT2Config(
            vocab_size=rows, n_embd=32, n_layer=2, n_head=4, n_positions=128, **ends
        )
        made = GPT2LMHeadModel(config)
        with torch.no_grad():
            made.transformer.wte.weight.normal_(std=0.5)
        return made
    shape |= {"intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 128}
    if kind == "gemma2":
        made = Gemma2ForCausalLM(Gemma2Config(vocab_size=rows, head_dim=8, **shape, **ends))
        assert made.config.final_logit_softcapping
        return made
    return LlamaForCausalLM(LlamaConfig(vocab_size=rows, **shape, **ends))


def checkpoint(
    folder: Path, *, kind: str = "llama", template: str | None = None, seed: int = 0
) -> Path:
    """Such a model and its tokenizer, saved in a folder."""
    words = tokenizer(template=template)
    network(kind, len(words), seed=seed).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder
