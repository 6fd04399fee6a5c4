"""What pins down a checkpoint on disk: digests of weights, tokenizer and template; its number of parameters."""

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path

from safetensors import safe_open

from pessimal.tables.files import sha256_of


def weights_digest(folder: Path) -> str:
    """sha256 over the names and digests of the weight files of a local checkpoint folder.

    In the Hub's cache a weight file is a link to a blob named by its own sha256, so nothing is read there.
    """
    whole = hashlib.sha256()
    for file in sorted(Path(folder).glob("*.safetensors")):
        blob = file.resolve().name
        digest = blob if file.is_symlink() and len(blob) == 64 else sha256_of(file)
        whole.update(f"{file.name} {digest}\n".encode())
    return whole.hexdigest()


def parameter_count(folder: Path) -> int:
    """Number of parameters in the safetensors files of a checkpoint folder, from their headers."""
    return sum(math.prod(shape) for _, shape in _shapes(folder))


def head_outputs(folder: Path) -> int | None:
    """Outputs of the classification head, from the header of its weights; None where there is none of a known name.

    The configuration does not always say: published reward models leave it at the library's default of two.
    """
    heads = [shape[0] for name, shape in _shapes(folder) if name in ("score.weight", "classifier.weight")]
    return heads[0] if heads else None


def _shapes(folder: Path) -> Iterator[tuple[str, list[int]]]:
    for file in sorted(Path(folder).glob("*.safetensors")):
        with safe_open(file, framework="np") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (not a mapping)
                yield name, tensors.get_slice(name).get_shape()


def tokenizer_digest(tokenizer) -> str:
    """sha256 over the vocabulary, the added tokens and, for fast tokenizers, the whole tokenisation pipeline."""
    parts = [sorted(tokenizer.get_vocab().items()), sorted(tokenizer.all_special_tokens)]
    if getattr(tokenizer, "backend_tokenizer", None) is not None:
        pipeline = json.loads(tokenizer.backend_tokenizer.to_str())
        # Calls with truncation or padding leave their settings behind in the backend; they are not its identity.
        parts.append({k: v for k, v in pipeline.items() if k not in ("truncation", "padding")})
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def template_digest(tokenizer) -> str:
    """sha256 of the chat template."""
    return hashlib.sha256(json.dumps(tokenizer.chat_template).encode()).hexdigest()
