"""Reward models whose Python code comes with their weights, written against older versions of transformers.

Newer versions fail on such code, or silently get it wrong; this makes up for it. Nothing of a head is computed here.
"""

import contextlib
import copy
import importlib
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from transformers import AutoModel, AutoModelForSequenceClassification, PreTrainedModel
from transformers.initialization import no_init_weights

_DOCSTRINGS = (
    ("transformers.models.llama.modeling_llama", ("LLAMA_START_DOCSTRING", "LLAMA_INPUTS_DOCSTRING")),
    ("transformers.models.gemma2.modeling_gemma2", ("GEMMA2_START_DOCSTRING", "GEMMA2_INPUTS_DOCSTRING")),
)


def own_class(config) -> type | None:
    """The class of transformers through which a repository's own code is loaded; None where it brings no model."""
    brought = getattr(config, "auto_map", None) or {}
    classes = (AutoModelForSequenceClassification, AutoModel)
    return next((kind for kind in classes if kind.__name__ in brought), None)


def load_with_own_code(kind: type, folder: Path, **options) -> tuple[nn.Module, dict]:
    """The network that a repository's own code makes of its weights, and transformers' report on the loading."""
    with with_older_names():
        network, report = kind.from_pretrained(folder, trust_remote_code=True, **options)
        restore_what_is_not_stored(network)
    # Published code makes caches in ways that transformers no longer knows (InternLM2's `from_legacy_cache`).
    network.config.use_cache = False
    return network, report


@contextlib.contextmanager
def with_older_names() -> Iterator[None]:
    """While a repository's own code is loaded, give transformers the names that it expects there.

    ArmoRM and QRM import docstrings that were since removed. GRM's class never calls `post_init`, which newer versions
    rely on for the list of tied weights; without it there are none.
    """
    names = [
        (importlib.import_module(module), name, "")
        for module, docstrings in _DOCSTRINGS
        for name in docstrings
    ]
    names.append((PreTrainedModel, "all_tied_weights_keys", {}))
    lacking = [(owner, name, value) for owner, name, value in names if not hasattr(owner, name)]
    for owner, name, value in lacking:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, _ in lacking:
            delattr(owner, name)


def restore_what_is_not_stored(network: nn.Module) -> None:
    """Give a loaded network the tensors again that its class computes when it is made and no checkpoint holds.

    Since version 5, transformers makes networks without memory and leaves such tensors (InternLM2's rotary
    frequencies) *uninitialised*: the rewards are then wrong, and no comparison with the network's own forward shows it.
    So a twin is made, whose tensors of this kind are real; its parameters take no memory.
    """
    precision = torch.get_default_dtype()
    torch.set_default_dtype(network.dtype)
    try:
        with no_init_weights(), _parameters_without_memory():
            twin = type(network)(copy.deepcopy(network.config))
    finally:
        torch.set_default_dtype(precision)
    made = dict(twin.named_modules())
    for path, module in network.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            if name in module._non_persistent_buffers_set:
                buffer.copy_(getattr(made[path], name))
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor) and value.is_meta:  # kept as a plain attribute
                setattr(module, name, getattr(made[path], name))


@contextlib.contextmanager
def _parameters_without_memory() -> Iterator[None]:
    register = nn.Module.register_parameter

    def without_memory(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None:
            parameter = nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)
        register(module, name, parameter)

    nn.Module.register_parameter = without_memory
    try:
        yield
    finally:
        nn.Module.register_parameter = register
