"""Reward heads: how a scalar is read off a decoder's last hidden states, each with the arithmetic
that was published.

One file a head. A head says by which weights it is recognised (`fits`), which modules hold them
(`modules`, for checkpoints whose own class transformers does not have), and how the reward is read
(`read`), always in float32. To add one: write such a class, and name it in `heads`, or offer it
from a package of yours under the entry point `pessimal.heads`. docs: docs/extend/head.md.
"""

import copy
import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from pessimal import extensions
from pessimal.errors import ConfigError, ModelError
from pessimal.rewards.ceiling import Interval, NormalisedStates
from pessimal.rewards.network import RewardNetwork

Shapes = Mapping[str, Sequence[int]]


class Head(ABC):
    """Reads a reward off the final hidden state of a decoder, in float32, whatever the precision of
    the rest.

    A bfloat16 head leaves a few hundred distinct rewards in a whole vocabulary, and so masses of
    ties; in float32 it costs nothing, since it runs on one position only.
    """

    gated = False
    """Whether part of it reads the end of the prompt (`context`)."""
    sequence = False
    """Whether it reads every position of the response, and not the last alone."""

    output: int | slice = 0

    @abstractmethod
    def __init__(self, network: RewardNetwork, *, output: int | slice = 0):
        """Take the weights from a network; `output` is the column of `values` that is the
        reward."""

    @staticmethod
    @abstractmethod
    def fits(shapes: Shapes) -> bool:
        """Whether a checkpoint with weights of these names has this head."""

    @staticmethod
    def outputs(shapes: Shapes) -> int:
        """Number of outputs that it gives, by its weights; for a gated head, the number that it
        mixes."""
        return 1

    @staticmethod
    def stock(shapes: Shapes) -> bool:
        """Whether transformers' own sequence classifier has a place for all of its weights."""
        return False

    @staticmethod
    def modules(shapes: Shapes, config: PreTrainedConfig) -> dict[str, nn.Module | nn.Parameter]:
        """Modules by the names of the published class, to be filled from the checkpoint; empty
        where transformers has the class itself."""
        return {}

    def values(self, final: Tensor, context: Tensor | None) -> Tensor:
        """All of its outputs (batch, columns) float32 from the hidden states `final` (batch,
        hidden) float32 of one position; a gated head's mixture comes first. A head of one output
        may define `read` alone."""
        return self.read(final, context).unsqueeze(1)

    def read(self, final: Tensor, context: Tensor | None) -> Tensor:
        """Rewards (batch,) float32, or (batch, columns) where `output` is a slice, from the last
        position's hidden states `final` (batch, hidden) float32."""
        return self.values(final, context)[:, self.output]

    def context(self, states: Tensor, ids: Sequence[int]) -> Tensor | None:
        """State that the head takes from the prompt: once per frame, from the prefix's hidden
        states (P, hidden) float32 and its ids (P,); None for heads that read the last position
        only."""
        return None

    def bounds(self, states: NormalisedStates) -> Interval | None:
        """The lowest and highest of its outputs (columns,), in the order of `values`, over all
        states that the norm before it can give; None where no bound is known."""
        return None

    def to(self, device: torch.device) -> Self:
        """Move its own copies of the weights to a device."""
        for name, value in vars(self).items():
            if isinstance(value, nn.Module | Tensor):
                setattr(self, name, value.to(device))
        return self


def float32_copy(module: nn.Module) -> nn.Module:
    """A float32 copy of a small module, in evaluation mode, without hooks and gradients."""
    copied = copy.deepcopy(module).float().eval().requires_grad_(False)
    for part in copied.modules():
        part._forward_hooks.clear()
        part._forward_pre_hooks.clear()
    return copied


def linear_layer(name: str, shapes: Shapes) -> nn.Linear:
    """The linear layer whose weights have this name. ModelError where they are of another."""
    if len(shape := shapes[f"{name}.weight"]) != 2:
        advice = "type model.trust_remote_code=true, or add the head (docs/extend/head.md)"
        raise ModelError(f"{name}.weight of shape {list(shape)} is no linear layer's: {advice}")
    outputs, inputs = shape
    return nn.Linear(inputs, outputs, bias=f"{name}.bias" in shapes)


def layer_numbers(name: str, shapes: Shapes) -> set[int]:
    """N of the layers whose weights are called `name.N`."""
    pattern = re.compile(rf"{re.escape(name)}\.(\d+)\.weight")
    return {int(match[1]) for weight in shapes if (match := pattern.fullmatch(weight))}


def perceptron(name: str, shapes: Shapes) -> nn.Sequential:
    """Linear layers `name.N` with ReLU between them."""
    numbers, layers = layer_numbers(name, shapes), list[nn.Module]()
    for i in range(max(numbers) + 1):
        layers.append(linear_layer(f"{name}.{i}", shapes) if i in numbers else nn.ReLU())
    return nn.Sequential(*layers)


ENCODERS = (
    "classifier.weight",
    "classifier.out_proj.weight",
    "classifier.linear_out.weight",
    "classification_head.out_proj.weight",
    "logits_proj.weight",
)
"""Last layers of transformers' encoders: BERT's, RoBERTa's, Funnel's, BART's, XLNet's."""
BACKBONE = "model"
"""Name of the network under the head in `NativeRewardModel`."""


def renamed(shapes: Shapes, backbone: Sequence[str]) -> dict[str, str]:
    """`key_mapping` of `from_pretrained` for checkpoints whose backbone has another name (Starling:
    `transformer`, OpenAssistant: `gpt_neox`, DeepSpeed-Chat: `rwtranrsformer`); empty where it is
    `model`, none or not known.

    Args:
        shapes: of the checkpoint.
        backbone: names of the weights in the backbone's own class.
    """
    first, target = "".join(backbone[:1]), f"{BACKBONE}."
    starts = {name.removesuffix(first) for name in shapes if first and name.endswith(f".{first}")}

    def weights(start: str) -> int:
        """The number of the backbone's weights begin so; some may be stored otherwise (experts)."""
        return sum(f"{start}{weight}" in shapes for weight in backbone)

    start = max(starts, key=weights, default=target)
    return {} if start == target else {f"^{re.escape(start)}": target}


def end_token(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> str:
    """Token that every text of a model of OpenRLHF's trainer ends in, and at which its reward is
    read; empty for other models.

    Source: OpenRLHF's RewardDataset, which cuts line ends off and writes " " and the token where a
    text does not end in it. Its folders name their class or their head.
    """
    trained = getattr(config, "architectures", None) == ["RewardModel"]
    trained &= getattr(config, "auto_map", None) is None
    trained |= getattr(config, "value_head_prefix", None) is not None
    return str(tokenizer.eos_token or "") if trained else ""


def closing_ids(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Ids that a reward model wants after the templated conversation, and reads its reward at;
    mostly none.

    InternLM2's names the token in its configuration. Athene's is the tokenizer's `cls_token`, by
    its published class alone. ModelError where that is missing.
    """
    token = getattr(config, "reward_token_id", None)
    if token is not None:
        return (token,)
    if "AtheneForSequenceClassification" not in (getattr(config, "architectures", None) or []):
        return ()
    if tokenizer.cls_token_id is None:
        advice = "give it the published one, tokenizer.cls_token = '<|reserved_special_token_1|>'"
        raise ModelError(f"Athene's reward is read at its tokenizer's cls_token: {advice}")
    return (tokenizer.cls_token_id,)


GROUP = "pessimal.heads"
"""Entry points under which other packages offer theirs."""


@functools.cache
def heads() -> tuple[type[Head], ...]:
    """Every head that pessimal knows, in the order in which they are asked whether they fit; those
    of installed packages come before those of pessimal.

    Raises:
        ConfigError: what a package offers cannot be imported or is no head.
    """
    from pessimal.rewards.heads.gated import GatedHead  # which import this file
    from pessimal.rewards.heads.linear import LinearHead, NormalizedHead

    offered = extensions.installed(GROUP)
    for path, value in offered.items():
        if not (isinstance(value, type) and issubclass(value, Head)):
            raise ConfigError(f"the entry point {GROUP}, {path}, is no class of Head")
    return (*offered.values(), GatedHead, LinearHead, NormalizedHead)


def head_for(names: Shapes) -> type[Head] | None:
    """The first head that fits a checkpoint's weights, by their names; None where pessimal knows
    none such."""
    return next((head for head in heads() if head.fits(names)), None)
