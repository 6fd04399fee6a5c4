"""Reward models as they lie in checkpoints: which head reads them, which output is the reward, and
how their network is loaded.

The network comes from a checkpoint, or is in memory already (`wrap`). Does not know prompts,
candidates or engines.
"""

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from pessimal.errors import ConfigError, ModelError, did_you_mean
from pessimal.rewards.base import NetworkReward, Part, StatesOf
from pessimal.rewards.checkpoint_files import (
    load_checkpoint,
    load_with_own_code,
    native_class,
    own_class,
    read_checkpoint,
    remote_hint,
)
from pessimal.rewards.formats import (
    Stepped,
    Templated,
    assistant_opening,
    log_reading,
    step_id,
    takes_pairs,
)
from pessimal.rewards.head import HeadSpec, Reading
from pessimal.rewards.heads import (
    BACKBONE,
    ENCODERS,
    Head,
    Shapes,
    closing_ids,
    end_token,
    head_for,
    renamed,
)
from pessimal.rewards.network import RewardNetwork, Steps, set_output
from pessimal.rewards.rendering import ONE_TEXT, set_template_options
from pessimal.rewards.spec import ALL, Dtype, Reduce
from pessimal.rewards.weights import (
    arithmetic_digest,
    network_digest,
    parameter_count,
    template_digest,
    tokenizer_digest,
)
from pessimal.tables import ModelDescription

PER_TOKEN = "ForTokenClassification"
_NOT_OF_A_REWARD = re.compile(
    r"(^|\.)(lm_head|embed_out|output_layer|cls\.predictions|generator_lm_head|mtp)\."
    r"|inv_freq$|position_ids$|\.(masked_bias|attn\.bias|attention\.bias)$"
)
"""Weights that give next tokens, and tables that newer classes compute: a reward needs neither."""


@dataclass(frozen=True)
class RewardModel(NetworkReward):
    """A reward model on this machine's disk: tokenizer, what pins it down, and how to load its
    network."""

    takes_inputs: ClassVar[bool] = True

    spec: HeadSpec

    @property
    def typed(self) -> str:
        """A folder or repository, or its name."""
        return self.spec.path if self.spec.path and not self.spec.package else self.spec.name

    @property
    def states_of(self) -> tuple[int, StatesOf, str]:
        """Its own, after training."""
        return self.parts[0].network, "trained", self.name

    def network(self, dtype: Dtype | None = None, which: int = 0) -> RewardNetwork:
        return load_network(self, dtype=dtype or self.spec.dtype)


def open_checkpoint(spec: HeadSpec, folder: Path) -> NetworkReward:
    """The reward model in a folder. ConfigError, ModelError where its head cannot be read as
    asked."""
    checkpoint = read_checkpoint(spec, folder)
    config, shapes = checkpoint.config, checkpoint.shapes
    head = head_for(shapes)
    _check_layout(spec, config, shapes, head)
    spec = replace(spec, output=resolve_output(spec, config, head_outputs(shapes), head))
    checkpoint = replace(checkpoint, spec=spec)
    tokenizer = checkpoint.tokenizer
    conversations = _conversations(spec, config, tokenizer)
    if spec.read is Reading.own and head is not None and not spec.trust_remote_code:
        pad = config.get_text_config().pad_token_id
        conversations = replace(conversations, pad=pad)
    return RewardModel(
        embedding_rows=config.get_text_config().vocab_size,
        parts=(Part(-1.0 if spec.negate else 1.0, conversations),),
        template_digest=template_digest(tokenizer),
        outputs=named_outputs(spec, config, head_outputs(shapes) or 1, head) * (spec.output == ALL),
        **checkpoint.fields(_settings(spec, conversations)),
    )


def _conversations(
    spec: HeadSpec, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase
) -> Templated:
    """Format of conversations: in steps where these are read. ModelError where no token closes a
    step, or nothing opens a response."""
    if not tokenizer.chat_template and not takes_pairs(tokenizer):
        advice = "give model.chat_template=TEXT, or model.one_text=true where it was trained so"
        raise ModelError(f"the tokenizer of {spec.name!r} has no chat template: {advice}")
    if spec.step_token is None:
        end = end_token(config, tokenizer)
        return Templated(tokenizer, closing_ids(config, tokenizer), end)
    step_id(tokenizer, spec.step_token)
    return Stepped(tokenizer, closes=spec.step_token)


def _steps(spec: HeadSpec, tokenizer: PreTrainedTokenizerBase) -> Steps | None:
    if spec.step_token is None:
        return None
    return Steps(step_id(tokenizer, spec.step_token), int(spec.output or 0), spec.reduce)


def _settings(spec: HeadSpec, conversations: Templated) -> str | None:
    """Settings that the numbers depend on besides the files: what is kept of costs is not of their
    negative."""
    settings = ["negated"] * spec.negate
    settings += ["read at the last token but pads"] * (spec.read is Reading.own)
    if spec.step_token is not None:
        settings.append(f"steps {spec.step_token!r} {spec.reduce.value}")
    settings += [f"ends in {conversations.end!r}"] * bool(conversations.end)
    if conversations.tokenizer.chat_template and conversations.tokenizer.sep_token is not None:
        settings += ["special tokens around the template"] * conversations.adds_special
    return "; ".join(settings) or None


def _stock(head: type[Head] | None, shapes: Shapes, config: PreTrainedConfig) -> bool:
    """Whether transformers' own sequence classifier reads these weights; Granite has none."""
    classes = AutoModelForSequenceClassification._model_mapping
    if head is None or type(config) not in classes or not head.stock(shapes):
        return head is None
    backbone = getattr(classes[type(config)], "base_model_prefix", BACKBONE)
    return any(name.startswith(f"{backbone}.") for name in shapes)


def _check_layout(
    spec: HeadSpec, config: PreTrainedConfig, shapes: Shapes, head: type[Head] | None
) -> None:
    """ModelError where a checkpoint's head is of a form that is not read, or not in the way that is
    asked for."""
    classes, own_code = getattr(config, "architectures", None) or [], spec.trust_remote_code
    if head is not None:
        with torch.device("meta"):
            head.modules(shapes, config)  # a layer that is none is named now
    per_token, gated = any(name.endswith(PER_TOKEN) for name in classes), head and head.gated
    if per_token and head is None and not own_code:
        raise ModelError(f"{spec.name!r} is a {classes[0]}, which gives numbers for each token")
    advice = ": leave out model.trust_remote_code" * own_code
    if spec.step_token is not None and (head is None or gated or own_code):
        raise ModelError(f"model.step_token: {spec.name!r} has no head of a decoder{advice}")
    if spec.output is not None and gated and own_code:
        raise ModelError(f"model.output={spec.output}: the own code gives one number{advice}")
    if spec.read is Reading.own and not own_code and not _stock(head, shapes, config):
        advice = "Leave it out, or type model.trust_remote_code=true where it brings the class"
        raise ModelError(f"model.read=own: the class of {spec.name!r} is not run. {advice}")
    if spec.step_token is None and any("ProcessReward" in name for name in classes):
        advice = "give the token that closes a step, model.step_token='<extra_0>' model.output=1"
        raise ModelError(f"{spec.name!r} is a process reward model ({classes[0]}): {advice}")


@dataclass
class HeldSpec(HeadSpec):
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
    read: Reading | str | None = None,
    step_token: str | None = None,
    reduce: Reduce | str = Reduce.min,
    one_text: bool = False,
    template_options: Mapping[str, Any] | None = None,
) -> HeldModel:
    """A reward model of a network and a tokenizer in memory: what a trainer has, or
    `from_pretrained` gave.

    The network is put into evaluation mode, and otherwise left as it is. Its digest is over the
    weights as they are now: wrap it again after a step of training.

    Args:
        network: a transformers model with a `config` and one output a sequence (or several, with
            `output`); with `step_token` one that gives its outputs at every position, such as a
            token classifier.
        tokenizer: its tokenizer, with a chat template or for pairs of texts.
        output: which of several outputs is the reward, its number or its label, or "all".
        read: "end" (the last token) or "own" (where the network's own forward reads it).
        step_token: the token that closes a step of a process reward model.
        reduce: how the numbers of the steps become one: "min", "last", "product".
        one_text: whether it reads prompt and response as one text, in place of a template or pair.
        template_options: variables that the chat template reads, by name.

    Raises:
        ConfigError: `read` or `reduce` is none of these, or the template reads no such variable.
        ModelError: it has several outputs and `output` is not given, no chat template, or another
            precision than float32, bfloat16 and float16.
    """
    config, kind = getattr(network, "config", None), type(network).__name__
    if config is None:
        raise ModelError(f"a {kind} has no `config`: give a transformers model")
    precision = str(next(network.parameters()).dtype).removeprefix("torch.")
    if precision not in {dtype.value for dtype in Dtype}:
        raise ModelError(f"{name!r} is in {precision}: give it in float32, network.float()")
    try:
        options: dict[str, Any] = {"output": output, "step_token": step_token}
        options |= {"read": read and Reading(read), "reduce": Reduce(reduce)}
    except ValueError as error:
        raise ConfigError(f"{error}: read=end|own, reduce=min|last|product") from error
    spec = HeldSpec(name=name, dtype=Dtype(precision), **options)
    if one_text or template_options:
        tokenizer = copy.copy(tokenizer)
        tokenizer.chat_template = ONE_TEXT if one_text else tokenizer.chat_template
        set_template_options(tokenizer, template_options or {}, name=name)
    shapes = {key: list(value.shape) for key, value in network.state_dict().items()}
    head, outputs = head_for(shapes), head_outputs(shapes)
    if head is not None and head.gated and output is not None:
        raise ModelError(f"the objectives of a {kind} are read from its saved folder alone")
    language = getattr(network, "get_output_embeddings", lambda: None)() is not None
    if language and step_token is not None:
        advice = "pessimal.load(FOLDER, kind='judge', step_token=…, judge={'positive': [' +'], …})"
        raise ModelError(f"a {kind} is a language model, whose steps a judge reads: {advice}")
    if kind.endswith(PER_TOKEN) and step_token is None:
        raise ModelError(f"a {kind} gives numbers for each token: step_token='<extra_0>' reads one")
    spec = replace(spec, output=resolve_output(spec, config, outputs, head))
    conversations = _conversations(spec, config, tokenizer)
    network.eval()
    # A copy of the outermost module alone, since one network may be read in several ways.
    number, opening = column(spec.output, head), _opening(shapes, tokenizer)
    held = set_output(copy.copy(network), number, opening, steps=_steps(spec, tokenizer))
    held.own_position = spec.read is Reading.own
    setting = _settings(spec, conversations)
    settings = config.to_dict() | ({} if setting is None else {"settings": setting})
    log_reading(name, conversations, tokenizer)
    return HeldModel(
        spec=spec,
        folder=Path(),
        tokenizer=tokenizer,
        embedding_rows=config.get_text_config().vocab_size,
        parts=(Part(1.0, conversations),),
        weights_digest=network_digest(network),
        config_digest=arithmetic_digest(settings).hexdigest(),
        tokenizer_digest=tokenizer_digest(tokenizer),
        template_digest=template_digest(tokenizer),
        description=ModelDescription(parameters=float(parameter_count(shapes))),
        outputs=named_outputs(spec, config, outputs or 1, head) * (spec.output == ALL),
        held=held,
    )


def _opening(shapes: Shapes, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """The ids that open the assistant's turn, where the head of these weights asks for them."""
    head = head_for(shapes)
    return assistant_opening(tokenizer) if head and head.gated else ()


def load_network(model: RewardModel, *, dtype: Dtype) -> RewardNetwork:
    """The network in evaluation mode, on the CPU; safetensors only. ModelError if it is no scalar
    reward model."""
    spec, folder = model.spec, model.folder
    shapes = read_checkpoint(spec, folder).shapes
    head, opening = head_for(shapes), _opening(shapes, model.tokenizer)

    def make(config: PreTrainedConfig, **options: Any) -> tuple[PreTrainedModel, dict[str, Any]]:
        if spec.trust_remote_code and (kind := own_class(config)):
            return check_read(*load_with_own_code(kind, folder, **options))
        mapping = options.get("key_mapping", {})
        stock = spec.step_token is None and _stock(head, shapes, config)
        if head and not stock and head.modules(shapes, config):
            with torch.device("meta"):
                backbone = list(AutoModel.from_config(config).state_dict())
            options |= {"head": head, "shapes": shapes, "assistant_opening": opening}
            options |= {"config": config, "key_mapping": mapping | renamed(shapes, backbone)}
            native: Any = native_class(config)
            return check_read(*native.from_pretrained(folder, **options))
        options["num_labels"] = head_outputs(shapes) or 1
        return check_read(*AutoModelForSequenceClassification.from_pretrained(folder, **options))

    def check_read(
        network: PreTrainedModel, report: dict[str, Any]
    ) -> tuple[PreTrainedModel, dict[str, Any]]:
        """ModelError where the checkpoint has weights that the network has no place for."""
        # LLaMA-Factory's lies in a file of its own, which is read later.
        unknown = {name for name in report["unexpected_keys"] if not _NOT_OF_A_REWARD.search(name)}
        if unread := sorted(unknown - set(network.state_dict())):
            weights = f"{len(unread)} weights of {spec.name!r} in {folder}: {', '.join(unread[:5])}"
            advice = f"A head can be added: docs/extend/head.md.{remote_hint(spec, folder)}"
            raise ModelError(f"a {type(network).__name__} does not read {weights}. {advice}")
        return network, report

    advice = ". Give a sequence classifier, or model.kind=log_probability or judge."
    network = load_checkpoint(spec, folder, make, dtype=dtype, noun="model", advice=advice)
    steps = _steps(spec, model.tokenizer)
    if steps is not None:
        setattr(network, "every", True)  # noqa: B010 (a module's attribute, of any type)
    reward = set_output(network, column(spec.output, head), opening, steps=steps)
    reward.own_position = spec.trust_remote_code and spec.read is Reading.own
    return reward


def head_outputs(shapes: Shapes) -> int | None:
    """Outputs of the head by its weights; None where there is none of a known name.

    The configuration does not always say: published reward models leave it at the library's default
    of two.
    """
    if (head := head_for(shapes)) is not None:
        return head.outputs(shapes)
    return next((shapes[name][0] for name in ENCODERS if name in shapes), None)


def column(output: int | str | None, head: type[Head] | None) -> int | slice:
    """Column of an output in what the network gives; a gated head's mixture comes before its
    objectives."""
    if output == ALL:
        return slice(None)
    gated = head is not None and head.gated
    return int(output or 0) + (gated and output is not None)


def named_outputs(
    spec: HeadSpec, config: PreTrainedConfig, outputs: int, head: type[Head] | None
) -> tuple[tuple[str, int | None], ...]:
    """Outputs that model.output=all scans, in the order of the columns: name and number of each
    output; a gated head's mixture, which has neither, is first."""
    labels = {i: label for label, i in _labels(spec, config).items()}
    numbered = tuple((labels.get(i, f"output-{i}"), i) for i in range(outputs))
    return (("", None), *numbered) if head is not None and head.gated else numbered


def _labels(spec: HeadSpec, config: PreTrainedConfig) -> dict[str, int]:
    """Number of each output that the spec or the configuration names."""
    if spec.labels:
        return {label: i for i, label in enumerate(spec.labels)}
    names = (getattr(config, "id2label", None) or {}).items()
    return {str(label): int(i) for i, label in names if str(label) != f"LABEL_{i}"}


def resolve_output(
    spec: HeadSpec, config: PreTrainedConfig, outputs: int | None, head: type[Head] | None = None
) -> int | str | None:
    """The number of the output that is the reward, where the spec names it by its label; None where
    none is named; ALL where every one is wanted.

    Args:
        spec: of the model.
        config: its transformers configuration, whose `id2label` names the outputs.
        outputs: how many there are; None where that is not known.
        head: what reads them; a gated one's reward is a mixture of them, where none is named.

    Raises:
        ModelError: there are several and none is named, or no such one.
    """
    labels, output = _labels(spec, config), spec.output
    if spec.labels and len(spec.labels) != (outputs or 1):
        raise ModelError(f"model.labels={spec.labels}: {spec.name!r} has {outputs or 1} outputs")
    gated = head is not None and head.gated
    if output == ALL:
        if (outputs or 1) < 2 or spec.negate:
            reason = "is negated" if spec.negate else "has one output"
            raise ModelError(f"model.output=all, but {spec.name!r} {reason}: leave it out")
        return output
    if isinstance(output, str):
        if output not in labels:
            names = f"{', '.join(labels) or 'none; count from 0'}.{did_you_mean(output, labels)}"
            raise ModelError(f"model.output={output!r}: labels of {spec.name!r} are {names}")
        output = labels[output]
    if outputs is None:  # a head of another kind; without one, loading will say so
        return output
    if outputs > 1 and output is None and not gated:
        which = f"or its label, of {', '.join(labels)}" if labels else f"up to {outputs - 1}"
        advice = f"model.output=0 for the first, {which}; or model.output=all"
        raise ModelError(f"{spec.name!r} has {outputs} outputs: say which is the reward, {advice}")
    if output is not None and output >= outputs:
        advice = f"{spec.name!r} has {outputs}: give 0 to {outputs - 1}"
        raise ModelError(f"model.output={spec.output}: {advice}")
    return output
