"""A reward model: a number that is read off a network's last hidden state, or that its own forward
gives.

The network comes from a checkpoint, or is in memory already (`wrap`). Does not know prompts,
candidates or engines.
"""

import copy
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForSequenceClassification

from pessimal.errors import ConfigError, ModelError, did_you_mean
from pessimal.rewards.adapters import load_adapter, load_value_head, with_adapter
from pessimal.rewards.base import NetworkReward, Part
from pessimal.rewards.digests import (
    network_digest,
    parameter_count,
    said_digest,
    template_digest,
    tokenizer_digest,
    weight_shapes,
)
from pessimal.rewards.frame import Templated, assistant_opening, takes_pairs
from pessimal.rewards.heads import Shapes, closing_ids, head_for, is_pairrm, renamed
from pessimal.rewards.hub import adapter_of
from pessimal.rewards.load import load_tokenizer, pinned, read_checkpoint, remote_hint
from pessimal.rewards.own_code import load_with_own_code, native_class, own_class
from pessimal.rewards.quantised import attention_options, loading_options, settle
from pessimal.rewards.spec import Dtype, ModelSpec
from pessimal.tables import ModelDescription


@dataclass(frozen=True)
class RewardModel(NetworkReward):
    """A reward model on this machine's disk: tokenizer, what pins it down, and how to load its
    network."""

    def network(self, dtype: Dtype | None = None, which: int = 0) -> nn.Module:
        return load_network(self, dtype=dtype or self.spec.dtype)


def open_head(spec: ModelSpec, folder: Path) -> NetworkReward:
    config, shapes = read_checkpoint(spec, folder)
    if is_pairrm(shapes):
        from pessimal.rewards.pairrm import open_pairrm

        if spec.negate:
            raise ConfigError(
                f"model.negate=true is for models that give costs, and {spec.name!r} compares two "
                f"responses. Leave it out"
            )
        return open_pairrm(spec, folder, shapes)
    spec = replace(spec, output=resolve_output(spec, config, _outputs(shapes)))
    tokenizer = load_tokenizer(spec, folder)
    _check_opens_a_response(spec, tokenizer)
    fixed = pinned(spec, folder, tokenizer, shapes)
    if spec.negate:  # what is kept of the costs is not of their negative
        fixed["config_digest"] = sha256(f"{fixed['config_digest']} negated".encode()).hexdigest()
    return RewardModel(
        spec=spec,
        folder=folder,
        tokenizer=tokenizer,
        embedding_rows=config.get_text_config().vocab_size,
        parts=(
            Part(
                -1.0 if spec.negate else 1.0, Templated(tokenizer, closing_ids(config, tokenizer))
            ),
        ),
        template_digest=template_digest(tokenizer),
        **fixed,
    )


@dataclass
class HeldSpec(ModelSpec):
    """A model that is in memory already: it has no path."""

    def __post_init__(self):
        pass


@dataclass(frozen=True)
class HeldModel(RewardModel):
    """A reward model whose network is in memory already (see `wrap`)."""

    held: nn.Module | None = None

    def network(self, dtype: Dtype | None = None, which: int = 0) -> nn.Module:
        """The network itself; in another precision than its own a copy of it."""
        if dtype in (None, self.spec.dtype):
            return self.held
        return copy.deepcopy(self.held).to(getattr(torch, dtype.value))


def wrap(
    network: nn.Module, tokenizer, *, name: str = "model", output: int | str | None = None
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
    if not hasattr(network, "config"):
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
    spec = replace(spec, output=resolve_output(spec, network.config, _outputs(shapes)))
    _check_opens_a_response(spec, tokenizer)
    head = head_for(shapes)
    network.reward_output = spec.output or 0
    network.assistant_opening = assistant_opening(tokenizer) if head and head.gated else ()
    return HeldModel(
        spec=spec,
        folder=Path(),
        tokenizer=tokenizer,
        embedding_rows=network.config.get_text_config().vocab_size,
        parts=(Part(1.0, Templated(tokenizer, closing_ids(network.config, tokenizer))),),
        weights_digest=network_digest(network),
        config_digest=said_digest(network.config.to_dict()),
        tokenizer_digest=tokenizer_digest(tokenizer),
        template_digest=template_digest(tokenizer),
        description=ModelDescription(parameters=float(parameter_count(shapes))),
        held=network.eval(),
    )


def _check_opens_a_response(spec: ModelSpec, tokenizer) -> None:
    if not tokenizer.chat_template and not takes_pairs(tokenizer):
        raise ModelError(
            f"the tokenizer of {spec.name!r} has no chat template, so there is no slot for a "
            f"response. Give it one: "
            "tokenizer.chat_template = …; tokenizer.save_pretrained(folder)"
        )


def load_network(model: RewardModel, *, dtype: Dtype) -> nn.Module:
    """The network in evaluation mode, on the CPU; safetensors only. ModelError if it is no scalar
    reward model.

    Two attributes are added that its class does not have: `reward_output`, which of its outputs is
        the reward, and
    for heads that read the prompt `assistant_opening`, the ids between the user's turn and the
    response.
    """
    spec, folder, adapter = model.spec, model.folder, adapter_of(model.spec)
    shapes = (
        weight_shapes(folder) if adapter is None else with_adapter(weight_shapes(folder), adapter)
    )
    head = head_for(shapes)
    opening = assistant_opening(model.tokenizer) if head and head.gated else ()
    options = {
        "dtype": getattr(torch, dtype.value),
        "use_safetensors": True,
        "output_loading_info": True,
    }
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=spec.trust_remote_code)
        options |= loading_options(spec, config, dtype) | attention_options(config)
        if spec.trust_remote_code and (kind := own_class(config)):
            network, report = load_with_own_code(kind, folder, **options)
        elif head and head.modules(shapes, config):
            network, report = native_class(config).from_pretrained(
                folder,
                config=config,
                head=head,
                shapes=shapes,
                assistant_opening=opening,
                key_mapping=renamed(shapes),
                **options,
            )
        else:
            network, report = AutoModelForSequenceClassification.from_pretrained(
                folder, num_labels=head_outputs(shapes) or 1, **options
            )
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"the model {spec.name!r} cannot be loaded from {folder}: "
            f"{error}{remote_hint(spec, folder)}"
        ) from error
    brought = load_value_head(network, folder) | set(adapter.full if adapter else ())
    missing = sorted(set(report["missing_keys"]) - brought)
    if missing:
        raise ModelError(
            f"the checkpoint of {spec.name!r} in {folder} lacks {missing[:5]}: these would be "
            f"random. A language "
            "model without a reward head gives no rewards; give a sequence classifier, or type "
            f"model.kind=log_probability for its log-probabilities, model.kind=judge to ask it for "
            f"a judgement.{remote_hint(spec, folder)}"
        )
    if adapter is not None:
        network = load_adapter(network, adapter, name=spec.name)
    settle(network, name=spec.name, dtype=dtype)
    network.reward_output = spec.output or 0
    network.assistant_opening = opening
    return network.eval().requires_grad_(False)


def head_outputs(shapes: Shapes) -> int | None:
    """Outputs of the classification head by its weights; None where there is none of a known name.

    The configuration does not always say: published reward models leave it at the library's default
        of two.
    """
    names = (
        "score.weight",
        "classifier.weight",
        "classifier.out_proj.weight",
    )  # the last is RoBERTa's
    return next((shapes[name][0] for name in names if name in shapes), None)


def _outputs(shapes: Shapes) -> int | None:
    """How many outputs weights of these names give; None where they have no head that is known."""
    return head_outputs(shapes) or (1 if head_for(shapes) else None)


def resolve_output(spec: ModelSpec, config, outputs: int | None) -> int | None:
    """The number of the output that is the reward, where the spec names it by its label; None where
    none is named.

    Args:
        spec: of the model.
        config: its transformers configuration, whose `id2label` names the outputs.
        outputs: how many there are; None where that is not known.

    Raises:
        ModelError: there are several and none is named, or no such one.
    """
    named, given = getattr(config, "id2label", None) or {}, spec.output
    labels = {
        str(label): int(number)
        for number, label in named.items()
        if str(label) != f"LABEL_{number}"
    }
    if isinstance(given, str):
        if given not in labels:
            there = ", ".join(labels) or "none; count them from 0"
            raise ModelError(
                f"model.output={given!r}, but {spec.name!r} has no output of this label. Labels: "
                f"{there}."
                f"{did_you_mean(given, labels)}"
            )
        given = labels[given]
    if outputs is None:  # a head of another kind; without one, loading will say so
        return given
    if outputs > 1 and given is None:
        which = f"or its label, of {', '.join(labels)}" if labels else f"up to {outputs - 1}"
        raise ModelError(
            f"{spec.name!r} has {outputs} outputs; a reward model has one. Say which of them is "
            f"the reward: "
            f"model.output=0 for the first, {which}"
        )
    if given is not None and given >= outputs:
        raise ModelError(
            f"model.output={spec.output}, but {spec.name!r} has {outputs} outputs: give 0 to "
            f"{outputs - 1}"
        )
    return given
