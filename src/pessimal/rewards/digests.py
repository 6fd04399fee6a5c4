"""What pins down a checkpoint on disk: digests of weights, tokenizer and template; its number of
parameters."""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open

from pessimal.rewards.rendering import template_variables

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedTokenizerBase


def shapes_in(file: Path) -> dict[str, list[int]]:
    """Shape of every tensor of a safetensors file, from its header."""
    with safe_open(file, framework="np") as tensors:
        return {name: tensors.get_slice(name).get_shape() for name in tensors.keys()}  # noqa: SIM118


def weights_digest(folder: Path) -> str:
    """sha256 over the names and digests of the weight files of a local checkpoint folder.

    In the Hub's cache a weight file is a link to a blob named by its own sha256, so nothing is read
    there.
    """
    from pessimal.tables.files import sha256_of  # not before: it loads pandas

    digest = hashlib.sha256()
    for file in sorted(Path(folder).glob("*.safetensors")):
        blob = file.resolve().name
        weights = blob if file.is_symlink() and len(blob) == 64 else sha256_of(file)
        digest.update(f"{file.name} {weights}\n".encode())
    return digest.hexdigest()


def config_digest(folder: Path, *, own_code: bool) -> str:
    """sha256 over a checkpoint's configuration, without what says nothing about its arithmetic, and
    where its own Python code is run (`own_code`) over that."""
    from pessimal.tables.files import sha256_of

    digest = arithmetic_digest(json.loads((Path(folder) / "config.json").read_text()))
    if own_code:
        for file in sorted(Path(folder).rglob("*.py")):
            digest.update(f"{file.relative_to(folder)} {sha256_of(file)}\n".encode())
    return digest.hexdigest()


def arithmetic_digest(config: Mapping[str, Any]) -> "hashlib._Hash":
    """sha256 over a configuration, without what says nothing about the arithmetic."""
    silent = ("transformers_version", "_name_or_path", "dtype", "torch_dtype")
    settings = {key: value for key, value in config.items() if key not in silent}
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())


def network_digest(network: "nn.Module") -> str:
    """sha256 over the names and the bytes of the weights of a network in memory."""
    import torch  # not before: files are looked at without it

    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def missing_shards(folder: Path) -> list[str]:
    """Weight files that a checkpoint folder's index names, and that are not there."""
    index = Path(folder) / "model.safetensors.index.json"
    if not index.is_file() or (index.parent / "model.safetensors").is_file():  # loaded instead
        return []
    shards = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    return [name for name in shards if not (Path(folder) / name).is_file()]


WRAPPERS = r"^(?:(?:module|_orig_mod|base_model\.model)\.)+"
"""Prefixes that DistributedDataParallel, torch.compile and PEFT put before all names."""


def weight_shapes(folder: Path) -> dict[str, list[int]]:
    """Shape of every weight of a checkpoint folder by its name, from the headers of its safetensors
    files."""
    shapes: dict[str, list[int]] = {}
    for file in sorted(Path(folder).glob("*.safetensors")):
        shapes |= shapes_in(file)
    return shapes


def rename_weights(
    shapes: dict[str, list[int]], mapping: Mapping[str, str]
) -> dict[str, list[int]]:
    """Shapes by the names that `mapping` (of `name_mapping`) gives."""
    for pattern, name in mapping.items():
        shapes = {re.sub(pattern, name, weight): shape for weight, shape in shapes.items()}
    return shapes


def parameter_count(shapes: Mapping[str, Sequence[int]]) -> int:
    """Number of parameters in weights of these shapes."""
    return sum(math.prod(shape) for shape in shapes.values())


def tokenizer_digest(tokenizer: "PreTrainedTokenizerBase") -> str:
    """sha256 over the vocabulary, the added tokens and, for fast tokenizers, the whole tokenisation
    pipeline."""
    parts: list[Any] = [sorted(tokenizer.get_vocab().items()), sorted(tokenizer.all_special_tokens)]
    if (backend := getattr(tokenizer, "backend_tokenizer", None)) is not None:
        pipeline = json.loads(backend.to_str())
        # Calls with truncation or padding leave their settings behind in the backend; they are not
        # its identity.
        parts.append({k: v for k, v in pipeline.items() if k not in ("truncation", "padding")})
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def template_digest(tokenizer: "PreTrainedTokenizerBase") -> str:
    """sha256 of the chat template, and of what else it reads but the turns (`template_variables`)
    where it does."""
    written = json.dumps(tokenizer.chat_template)
    if variables := template_variables(tokenizer):
        written += json.dumps(variables, sort_keys=True, default=str)
    return hashlib.sha256(written.encode()).hexdigest()
