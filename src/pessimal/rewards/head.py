"""A reward model: a number that is read off a network's last hidden state, or that its own forward
gives.

The network comes from a checkpoint, or is in memory already (`wrap`). Does not know prompts,
candidates or engines.
"""

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from pessimal.errors import ConfigError, ModelError, did_you_mean
from pessimal.rewards.adapters import with_adapter
from pessimal.rewards.base import NetworkReward, Part
from pessimal.rewards.checkpoint_files import (
    load_checkpoint,
    load_tokenizer,
    pinned,
    read_checkpoint,
)
from pessimal.rewards.digests import (
    arithmetic_digest,
    network_digest,
    parameter_count,
    template_digest,
    tokenizer_digest,
    weight_shapes,
)
from pessimal.rewards.frame import Templated, assistant_opening, takes_pairs
from pessimal.rewards.heads import Shapes, closing_ids, head_for, is_pairrm, renamed
from pessimal.rewards.hub import adapter_of
from pessimal.rewards.network import RewardNetwork, with_output
from pessimal.rewards.own_code import load_with_own_code, native_class, own_class
from pessimal.rewards.spec import Dtype, ModelSpec
from pessimal.tables import ModelDescription


@dataclass(frozen=True)
class RewardModel(NetworkReward):
    """A reward model on this machine's disk: tokenizer, what pins it down, and how to load its
    network."""

    def network(self, dtype: Dtype | None = None, which: int = 0) -> RewardNetwork:
        return load_network(self, dtype=dtype or self.spec.dtype)


def open_head(spec: ModelSpec, folder: Path) -> NetworkReward:
    config, shapes = read_checkpoint(spec, folder)
    if is_pairrm(shapes):
        from pessimal.rewards.pairrm import open_pairrm

        if spec.negate:
            raise ConfigError(
                f"model.negate=true is for models that give costs, and {spec.name!r} compares two "
                "responses. Leave it out"
            )
        return open_pairrm(spec, folder, shapes)
    spec = replace(spec, output=resolve_output(spec, config, _outputs(shapes)))
    tokenizer = load_tokenizer(spec, folder)
    _check_opens_a_response(spec, tokenizer)
    conversations = Templated(tokenizer, closing_ids(config, tokenizer))
    return RewardModel(
        embedding_rows=config.get_text_config().vocab_size,
        parts=(Part(-1.0 if spec.negate else 1.0, conversations),),
        template_digest=template_digest(tokenizer),
        # What is kept of the costs is not of their negative.
        **pinned(spec, folder, tokenizer, shapes, "negated" if spec.negate else None),
    )


@dataclass
class HeldSpec(ModelSpec):
    """A model that is in memory already: it has no path."""

    def __post_init__(self):
        pass


@dataclass(frozen=True)
class HeldModel(RewardModel):
    """A reward model whose network is in memory already (see `wrap`)."""

    held: RewardNetwork

    def network(self, dtype: Dtype | None = None, which: int = 0) -> RewardNetwork:
        """The network itself; in another precision than its own a copy of it."""
        if dtype is None or dtype is self.spec.dtype:
            return self.held
        return copy.deepcopy(self.held).to(getattr(torch, dtype.value))


def wrap(
    network: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    *,
    name: str = "model",
    output: int | str | None = None,
) -> HeldModel:
    """A reward model of a network and a tokenizer in memory: what a trainer has, or
    `from_pretrained` gave.

    The network is put into evaluation mode, and otherwise left as it is. Its digest is over the
    weights as they are now: wrap it again after a step of training.

    Args:
        network: a transformers model with a `config` and one output a sequence (or several, with
            `output`).
        tokenizer: its tokenizer, with a chat template or for pairs of texts.
        output: which of several outputs is the reward, its number or its label.

    Raises:
        ModelError: it has several outputs and `output` is not given, no chat template, or another
            precision than float32, bfloat16 and float16.
    """
    config = getattr(network, "config", None)
    if config is None:
        raise ModelError(
            f"a {type(network).__name__} has no `config`: give a transformers model, such as "
            "AutoModelForSequenceClassification.from_pretrained(…)"
        )
    precision = str(next(network.parameters()).dtype).removeprefix("torch.")
    if precision not in {dtype.value for dtype in Dtype}:
        raise ModelError(
            f"{name!r} is in {precision}; give it in float32, bfloat16 or float16: network.float()"
        )
    spec = HeldSpec(name=name, dtype=Dtype(precision), output=output)
    shapes = {key: list(value.shape) for key, value in network.state_dict().items()}
    spec = replace(spec, output=resolve_output(spec, config, _outputs(shapes)))
    _check_opens_a_response(spec, tokenizer)
    return HeldModel(
        spec=spec,
        folder=Path(),
        tokenizer=tokenizer,
        embedding_rows=config.get_text_config().vocab_size,
        parts=(Part(1.0, Templated(tokenizer, closing_ids(config, tokenizer))),),
        weights_digest=network_digest(network),
        config_digest=arithmetic_digest(config.to_dict()).hexdigest(),
        tokenizer_digest=tokenizer_digest(tokenizer),
        template_digest=template_digest(tokenizer),
        description=ModelDescription(parameters=float(parameter_count(shapes))),
        held=with_output(network, spec.output, _opening(shapes, tokenizer)),
    )


def _opening(shapes: Shapes, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """The ids that open the assistant's turn, where the head of these weights asks for them."""
    head = head_for(shapes)
    return assistant_opening(tokenizer) if head and head.gated else ()


def _check_opens_a_response(spec: ModelSpec, tokenizer: PreTrainedTokenizerBase) -> None:
    if not tokenizer.chat_template and not takes_pairs(tokenizer):
        raise ModelError(
            f"the tokenizer of {spec.name!r} has no chat template, so there is no slot for a "
            "response. Give it one: tokenizer.chat_template = …; tokenizer.save_pretrained(folder)"
        )


def load_network(model: RewardModel, *, dtype: Dtype) -> RewardNetwork:
    """The network in evaluation mode, on the CPU; safetensors only. ModelError if it is no scalar
    reward model."""
    spec, folder, adapter = model.spec, model.folder, adapter_of(model.spec)
    shapes: Shapes = weight_shapes(folder)
    if adapter is not None:
        shapes = with_adapter(shapes, adapter)
    head, opening = head_for(shapes), _opening(shapes, model.tokenizer)

    def make(config: PreTrainedConfig, **options: Any) -> tuple[PreTrainedModel, dict[str, Any]]:
        if spec.trust_remote_code and (kind := own_class(config)):
            return load_with_own_code(kind, folder, **options)
        if head and head.modules(shapes, config):
            options |= {"head": head, "shapes": shapes, "assistant_opening": opening}
            options |= {"config": config, "key_mapping": renamed(shapes)}
            native: Any = native_class(config)
            return native.from_pretrained(folder, **options)
        return AutoModelForSequenceClassification.from_pretrained(
            folder, num_labels=head_outputs(shapes) or 1, **options
        )

    advice = (
        ". A language model without a reward head gives no rewards; give a sequence classifier, or "
        "type model.kind=log_probability for its log-probabilities, model.kind=judge to ask it for "
        "a judgement."
    )
    network = load_checkpoint(spec, folder, make, dtype=dtype, what="model", advice=advice)
    return with_output(network, spec.output, opening)


def head_outputs(shapes: Shapes) -> int | None:
    """Outputs of the classification head by its weights; None where there is none of a known name.

    The configuration does not always say: published reward models leave it at the library's default
    of two.
    """
    # The last is RoBERTa's.
    names = ("score.weight", "classifier.weight", "classifier.out_proj.weight")
    return next((shapes[name][0] for name in names if name in shapes), None)


def _outputs(shapes: Shapes) -> int | None:
    """How many outputs weights of these names give; None where they have no head that is known."""
    return head_outputs(shapes) or (1 if head_for(shapes) else None)


def resolve_output(spec: ModelSpec, config: PreTrainedConfig, outputs: int | None) -> int | None:
    """The number of the output that is the reward, where the spec names it by its label; None where
    none is named.

    Args:
        spec: of the model.
        config: its transformers configuration, whose `id2label` names the outputs.
        outputs: how many there are; None where that is not known.

    Raises:
        ModelError: there are several and none is named, or no such one.
    """
    names = (getattr(config, "id2label", None) or {}).items()
    labels = {str(label): int(i) for i, label in names if str(label) != f"LABEL_{i}"}
    output = spec.output
    if isinstance(output, str):
        if output not in labels:
            raise ModelError(
                f"model.output={output!r}, but {spec.name!r} has no output of this label. Labels: "
                f"{', '.join(labels) or 'none; count them from 0'}.{did_you_mean(output, labels)}"
            )
        output = labels[output]
    if outputs is None:  # a head of another kind; without one, loading will say so
        return output
    if outputs > 1 and output is None:
        which = f"or its label, of {', '.join(labels)}" if labels else f"up to {outputs - 1}"
        raise ModelError(
            f"{spec.name!r} has {outputs} outputs; a reward model has one. Say which of them is "
            f"the reward: model.output=0 for the first, {which}"
        )
    if output is not None and output >= outputs:
        raise ModelError(
            f"model.output={spec.output}, but {spec.name!r} has {outputs} outputs: give 0 to "
            f"{outputs - 1}"
        )
    return output
