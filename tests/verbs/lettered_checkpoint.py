"""A tiny random reward model over a vocabulary of any size, and scans of it, for tests of scans
that take a while."""

import itertools
import string
from pathlib import Path


def make_checkpoint(folder: Path, *, tokens: int) -> Path:
    """A two-layer Llama of width 32 over a byte-level BPE of exactly `tokens` tokens: bytes, then
    pairs of letters, then fours; the chat template writes a BOS and trims."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast

    specials = ["<|bos|>", "<|start|>", "<|sep|>", "<|end|>"]
    vocabulary = {
        t: i for i, t in enumerate([*specials, *sorted(pre_tokenizers.ByteLevel.alphabet())])
    }
    pairs = [a + b for a in string.ascii_letters for b in string.ascii_letters]
    merges = []
    for a, b in itertools.chain(map(tuple, pairs), itertools.product(pairs, pairs)):
        if len(vocabulary) == tokens:
            break
        vocabulary[a + b] = len(vocabulary)
        merges.append((a, b))
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(specials)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|bos|>",
        eos_token="<|end|>",
        pad_token="<|end|>",
        additional_special_tokens=["<|start|>", "<|sep|>"],
    )
    tokenizer.chat_template = "{{ bos_token }}{% for m in messages %}<|start|>{{ m['role'] }}<|sep|>{{ m['content'] | trim }}<|end|>{% endfor %}"
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tokens,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_labels=1,
        initializer_range=0.3,
        max_position_embeddings=256,
        pad_token_id=3,
        bos_token_id=0,
        eos_token_id=3,
    )
    LlamaForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Path(folder)


def command_line(checkpoint: Path, *more: str, batch_size: int = 16) -> list[str]:
    """A scan of that model."""
    return [
        "scan",
        "model=auto",
        f"model.path={checkpoint}",
        "progress=false",
        f"batch_size={batch_size}",
        *more,
    ]


def hidden(folder: Path) -> list[str]:
    """Every hidden file and folder below."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob(".*"))
