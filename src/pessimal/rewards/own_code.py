"""Reward models whose class transformers does not have.

ArmoRM, QRM and GRM came with Python code of their own, written against older versions of
transformers. Their weights are all that is needed: the backbone is a stock Llama or Gemma, the head
is in `rewards/heads`, so nothing that a repository brings along is executed (`NativeRewardModel`).
Where its code is run all the same (`trust_remote_code`), newer versions fail on it, or silently get
it wrong; `load_with_own_code` makes up for that.
"""

import contextlib
import copy
import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast
from unittest import mock

import torch
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.initialization import no_init_weights
from transformers.modeling_outputs import SequenceClassifierOutput

from pessimal.rewards.heads.base import Head, Shapes
from pessimal.rewards.network import RewardNetwork


class NativeRewardModel(PreTrainedModel):
    """A backbone and the modules of one head, under the names that the published checkpoint has."""

    base_model_prefix = "model"
    _supports_attention_backend = True
    _supports_sdpa = True
    every = False

    def __init__(
        self,
        config: PreTrainedConfig,
        *,
        head: type[Head],
        shapes: Shapes,
        assistant_opening: Sequence[int] = (),
    ):
        super().__init__(config)
        self.model = AutoModel.from_config(config)
        for name, module in head.modules(shapes, config).items():
            setattr(self, name, module)
        self.assistant_opening = tuple(assistant_opening)
        self._head = head
        self.post_init()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_
    ) -> SequenceClassifierOutput:
        """The head's outputs as `logits` (batch, columns); inputs of several lengths are padded, on
        either side, and masked. With `every` (set on a process reward model) those of all
        positions, (batch, length, columns)."""
        head = self._head(cast(RewardNetwork, self)).to(input_ids.device)
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        states = self.model(**inputs).last_hidden_state.float()
        if self.every:
            every = head.values(states.flatten(0, 1), None)
            return SequenceClassifierOutput(logits=every.view(*states.shape[:2], -1))
        seen = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        rewards = []
        for ids, hidden, mask in zip(input_ids, states, seen.bool(), strict=True):
            context = head.context(hidden[mask], ids[mask].tolist())
            rewards.append(head.values(hidden[mask][-1:], context))
        return SequenceClassifierOutput(logits=torch.cat(rewards))


def native_class(config: PreTrainedConfig) -> type[NativeRewardModel]:
    """`NativeRewardModel` with the attention and the experts that the configuration's backbone can
    run."""
    backbone: Any = AutoModel._model_mapping[type(config)]
    attributes = {
        "config_class": type(config),
        "_supports_sdpa": backbone._supports_sdpa,
        "_no_split_modules": backbone._no_split_modules,
        "_can_set_experts_implementation": backbone._can_set_experts_implementation,
    }
    return type("NativeRewardModel", (NativeRewardModel,), attributes)


def own_class(config: PreTrainedConfig) -> type | None:
    """The class of transformers through which a repository's own code is loaded; None where it
    brings no model."""
    brought = getattr(config, "auto_map", None) or {}
    classes = (AutoModelForSequenceClassification, AutoModel)
    return next((kind for kind in classes if kind.__name__ in brought), None)


def load_with_own_code(
    kind: Any, folder: Path, **options: Any
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """The network that a repository's own code makes of its weights, through the class `kind` of
    transformers, and the report on the loading."""
    with with_older_names():
        network, report = kind.from_pretrained(folder, trust_remote_code=True, **options)
        restore_what_is_not_stored(network)
    # Published code makes caches in ways that transformers no longer knows (InternLM2's
    # `from_legacy_cache`).
    network.config.use_cache = False
    return network, report


@contextlib.contextmanager
def with_older_names() -> Iterator[None]:
    """While a repository's own code is loaded, give transformers the names that it expects there.

    ArmoRM and QRM import docstrings that were since removed. GRM's class never calls `post_init`,
    which newer versions rely on for the list of tied weights; without it there are none.
    """
    names: list[tuple[Any, str, Any]] = [(PreTrainedModel, "all_tied_weights_keys", {})]
    for family in ("llama", "gemma2"):
        module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
        names += [
            (module, f"{family.upper()}_{part}_DOCSTRING", "") for part in ("START", "INPUTS")
        ]
    lacking = [(owner, name, value) for owner, name, value in names if not hasattr(owner, name)]
    for owner, name, value in lacking:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, _ in lacking:
            delattr(owner, name)


def restore_what_is_not_stored(network: PreTrainedModel) -> None:
    """Give a loaded network the tensors again that its class computes when it is made and no
    checkpoint holds.

    Since version 5, transformers makes networks without memory and leaves such tensors (InternLM2's
    rotary frequencies) *uninitialised*: the rewards are then wrong, and no comparison with the
    network's own forward shows it. So a twin is made, whose tensors of this kind are real; its
    parameters take no memory.
    """
    precision = torch.get_default_dtype()
    torch.set_default_dtype(network.dtype)
    try:
        with no_init_weights(), _parameters_without_memory():
            twin = type(network)(copy.deepcopy(network.config))
    finally:
        torch.set_default_dtype(precision)
    twins = dict(twin.named_modules())
    for path, module in network.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            if name in module._non_persistent_buffers_set:
                buffer.copy_(getattr(twins[path], name))
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor) and value.is_meta:  # kept as a plain attribute
                setattr(module, name, getattr(twins[path], name))


def _parameters_without_memory() -> contextlib.AbstractContextManager[object]:
    register = nn.Module.register_parameter

    def without_memory(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None:
            parameter = nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)
        register(module, name, parameter)

    return mock.patch.object(nn.Module, "register_parameter", without_memory)
