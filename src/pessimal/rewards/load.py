"""From a ModelSpec to a RewardModel: the one place where weights are read.

Knows transformers' loading. Does not know prompts, candidates or how a score is computed.
"""

import copy
import re
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from pessimal import __version__
from pessimal.errors import ModelError, did_you_mean
from pessimal.rewards.adapters import (
    adapted_digest,
    load_adapter,
    load_value_head,
    warn_if_untrained,
    with_adapter,
)
from pessimal.rewards.base import NetworkReward, Part, Reward
from pessimal.rewards.digests import (
    config_digest,
    missing_shards,
    network_digest,
    parameter_count,
    said_digest,
    template_digest,
    tokenizer_digest,
    weight_shapes,
    weights_digest,
)
from pessimal.rewards.frame import Templated, assistant_opening, takes_pairs
from pessimal.rewards.heads import Shapes, closing_ids, head_for, is_pairrm, renamed
from pessimal.rewards.hub import adapter_of, check_weights, snapshot
from pessimal.rewards.own_code import load_with_own_code, native_class, own_class
from pessimal.rewards.quantised import gguf_shapes, loading_options, quantised_digest, settle
from pessimal.rewards.spec import Dtype, Kind, ModelSpec, is_folder
from pessimal.tables import ModelDescription
from pessimal.tables.files import sha256_of


@dataclass(frozen=True)
class RewardModel(NetworkReward):
    """A reward model on this machine's disk: tokenizer, what pins it down, and how to load its network."""

    @property
    def revision(self) -> str | None:
        return commit_of(self.folder)

    def network(self, dtype: Dtype | None = None, which: int = 0) -> nn.Module:
        return load_network(self, dtype=dtype or self.spec.dtype)


def open_model(spec: ModelSpec, folder: Path | None) -> Reward:
    """The reward of a spec; `folder` has its checkpoint on this machine (None for a function or a server). Weights are
    digested, not yet loaded."""
    match spec.kind:
        case Kind.head:
            return _open_head(spec, folder)
        case Kind.log_probability:
            from pessimal.rewards.log_probability import open_log_probability

            return open_log_probability(spec, folder)
        case Kind.implicit:
            from pessimal.rewards.implicit import open_implicit

            return open_implicit(spec, folder)
        case Kind.judge:
            from pessimal.rewards.judge import open_judge

            return open_judge(spec, folder)
        case Kind.callable:
            from pessimal.rewards.callable import open_callable

            return open_callable(spec, _tokenizer_for_texts(spec))
        case Kind.endpoint:
            from pessimal.rewards.endpoint import open_endpoint

            return open_endpoint(spec, _tokenizer_for_texts(spec))


def _open_head(spec: ModelSpec, folder: Path) -> NetworkReward:
    config, shapes = read_checkpoint(spec, folder)
    if is_pairrm(shapes):
        from pessimal.rewards.pairrm import open_pairrm

        return open_pairrm(spec, folder, shapes)
    spec = replace(spec, output=resolve_output(spec, config, _outputs(shapes)))
    tokenizer = load_tokenizer(spec, folder)
    _check_opens_a_response(spec, tokenizer)
    return RewardModel(
        spec=spec,
        folder=folder,
        tokenizer=tokenizer,
        embedding_rows=config.get_text_config().vocab_size,
        parts=(Part(-1.0 if spec.negate else 1.0, Templated(tokenizer, closing_ids(config, tokenizer))),),
        template_digest=template_digest(tokenizer),
        **pinned(spec, folder, tokenizer, shapes),
    )


def read_checkpoint(spec: ModelSpec, folder: Path):
    """Configuration and shapes of weights of a checkpoint folder; ModelError where one cannot be read, or is not whole."""
    try:
        file = {} if spec.file is None else {"gguf_file": spec.file}
        config = AutoConfig.from_pretrained(folder, trust_remote_code=spec.trust_remote_code, **file)
    except Exception as error:
        raise ModelError(
            f"the configuration of {spec.name!r} cannot be read from {folder}: {error}{_remote_hint(spec, folder)}"
        ) from error
    check_weights(spec, folder)
    if spec.file is not None:
        return config, gguf_shapes(config)
    try:
        shapes, missing = weight_shapes(folder), missing_shards(folder)
    except Exception as error:
        raise ModelError(f"the weights of {spec.name!r} in {folder} cannot be read: {error}") from error
    if missing:
        raise ModelError(
            f"{folder} lacks {', '.join(missing[:5])}, weights that its index names: copy or download {spec.name!r} again"
        )
    if (adapter := adapter_of(spec)) is not None:
        shapes = with_adapter(shapes, adapter)
        config.get_text_config().vocab_size = adapter.rows or config.get_text_config().vocab_size
    return config, shapes


def pinned(spec: ModelSpec, folder: Path, tokenizer, shapes: Shapes) -> dict:
    """Digests and description of a checkpoint, as fields of a `Reward`."""
    weights = weights_digest(folder) if spec.file is None else sha256_of(folder / spec.file)
    # A GGUF file holds its configuration.
    config = weights if spec.file else config_digest(folder, own_code=spec.trust_remote_code)
    weights = quantised_digest(weights, spec)
    if (adapter := adapter_of(spec)) is not None:
        warn_if_untrained(spec.name, adapter)
        weights = adapted_digest(weights, adapter)
    return {
        "weights_digest": weights,
        "config_digest": config,
        "tokenizer_digest": tokenizer_digest(tokenizer),
        "description": ModelDescription(
            base=spec.base,
            developer=spec.developer,
            parameters=spec.parameters or float(parameter_count(shapes)),
            rank=spec.rank,
        ),
    }


def commit_of(folder: Path) -> str | None:
    """The Hub commit, which names the snapshot's folder; None for a local folder or a demo sibling."""
    return folder.name if re.fullmatch(r"[0-9a-f]{40}", folder.name) else None


def _tokenizer_for_texts(spec: ModelSpec):
    """The tokenizer whose vocabulary is scanned with a function or a server; None where none is given."""
    return None if spec.tokenizer is None else load_tokenizer(spec, tokenizer_folder(spec))


def tokenizer_folder(spec: ModelSpec) -> Path:
    """The folder of `model.tokenizer` on this machine, fetched where it is a Hub repository."""
    if is_folder(spec.tokenizer):
        return Path(spec.tokenizer).expanduser()
    return snapshot(spec.tokenizer, None, local="model.tokenizer=DIR")


@dataclass
class HeldSpec(ModelSpec):
    """A model that is in memory already: it has no path."""

    def __post_init__(self):
        pass


@dataclass(frozen=True)
class HeldModel(RewardModel):
    """A reward model whose network is in memory already (see `wrap`)."""

    held: nn.Module | None = None

    @property
    def revision(self) -> None:
        return None

    def network(self, dtype: Dtype | None = None, which: int = 0) -> nn.Module:
        """The network itself; in another precision than its own a copy of it."""
        if dtype in (None, self.spec.dtype):
            return self.held
        return copy.deepcopy(self.held).to(getattr(torch, dtype.value))


def wrap(network: nn.Module, tokenizer, *, name: str = "model", output: int | str | None = None) -> HeldModel:
    """A reward model of a network and a tokenizer in memory: what a trainer has, or `from_pretrained` gave.

    The network is put into evaluation mode, and otherwise left as it is. Its digest is over the weights as they are now:
    wrap it again after a step of training.

    Args:
        network: a transformers model with a `config` and one output a sequence (or several, with `output`).
        tokenizer: its tokenizer, with a chat template or for pairs of texts.
        output: which of several outputs is the reward, its number or its label.

    Raises:
        ModelError: it has several outputs and `output` is not given, no chat template, or another precision than
            float32, bfloat16 and float16.
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


def load_tokenizer(spec: ModelSpec, folder: Path):
    """The tokenizer of a checkpoint folder, of the adapter's where it brings one; ModelError where there is none."""
    if (adapter := adapter_of(spec)) is not None and adapter.brings_tokenizer:
        folder = adapter.folder
    # A GGUF file's own where no other is there.
    file = (
        {} if spec.file is None or (folder / "tokenizer_config.json").is_file() else {"gguf_file": spec.file}
    )
    if spec.tokenizer is not None:
        folder, file = tokenizer_folder(spec), {}
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=spec.trust_remote_code, **file)
    except Exception as error:
        raise ModelError(f"the tokenizer of {spec.name!r} cannot be loaded from {folder}: {error}") from error
    if spec.chat_template is not None:
        tokenizer.chat_template = spec.chat_template
    return tokenizer


def _check_opens_a_response(spec: ModelSpec, tokenizer) -> None:
    if not tokenizer.chat_template and not takes_pairs(tokenizer):
        raise ModelError(
            f"the tokenizer of {spec.name!r} has no chat template, so there is no slot for a response. Give it one: "
            "tokenizer.chat_template = …; tokenizer.save_pretrained(folder)"
        )


def load_network(model: RewardModel, *, dtype: Dtype) -> nn.Module:
    """The network in evaluation mode, on the CPU; safetensors only. ModelError if it is no scalar reward model.

    Two attributes are added that its class does not have: `reward_output`, which of its outputs is the reward, and
    for heads that read the prompt `assistant_opening`, the ids between the user's turn and the response.
    """
    spec, folder, adapter = model.spec, model.folder, adapter_of(model.spec)
    shapes = weight_shapes(folder) if adapter is None else with_adapter(weight_shapes(folder), adapter)
    head = head_for(shapes)
    opening = assistant_opening(model.tokenizer) if head and head.gated else ()
    options = {"dtype": getattr(torch, dtype.value), "use_safetensors": True, "output_loading_info": True}
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=spec.trust_remote_code)
        options |= loading_options(spec, config, dtype)
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
            f"the model {spec.name!r} cannot be loaded from {folder}: {error}{_remote_hint(spec, folder)}"
        ) from error
    brought = load_value_head(network, folder) | set(adapter.full if adapter else ())
    missing = sorted(set(report["missing_keys"]) - brought)
    if missing:
        raise ModelError(
            f"the checkpoint of {spec.name!r} in {folder} lacks {missing[:5]}: these would be random. A language "
            "model without a reward head gives no rewards; give a sequence classifier, or type "
            f"model.kind=log_probability for its log-probabilities, model.kind=judge to ask it for a judgement.{_remote_hint(spec, folder)}"
        )
    if adapter is not None:
        network = load_adapter(network, adapter, name=spec.name)
    settle(network, name=spec.name, dtype=dtype)
    network.reward_output = spec.output or 0
    network.assistant_opening = opening
    return network.eval().requires_grad_(False)


def head_outputs(shapes: Shapes) -> int | None:
    """Outputs of the classification head by its weights; None where there is none of a known name.

    The configuration does not always say: published reward models leave it at the library's default of two.
    """
    names = ("score.weight", "classifier.weight", "classifier.out_proj.weight")  # the last is RoBERTa's
    return next((shapes[name][0] for name in names if name in shapes), None)


def _outputs(shapes: Shapes) -> int | None:
    """How many outputs weights of these names give; None where they have no head that is known."""
    return head_outputs(shapes) or (1 if head_for(shapes) else None)


def resolve_output(spec: ModelSpec, config, outputs: int | None) -> int | None:
    """The number of the output that is the reward, where the spec names it by its label; None where none is named.

    Args:
        spec: of the model.
        config: its transformers configuration, whose `id2label` names the outputs.
        outputs: how many there are; None where that is not known.

    Raises:
        ModelError: there are several and none is named, or no such one.
    """
    named, given = getattr(config, "id2label", None) or {}, spec.output
    labels = {str(label): int(number) for number, label in named.items() if str(label) != f"LABEL_{number}"}
    if isinstance(given, str):
        if given not in labels:
            there = ", ".join(labels) or "none; count them from 0"
            raise ModelError(
                f"model.output={given!r}, but {spec.name!r} has no output of this label. Labels: {there}."
                f"{did_you_mean(given, labels)}"
            )
        given = labels[given]
    if outputs is None:  # a head of another kind; without one, loading will say so
        return given
    if outputs > 1 and given is None:
        which = f"or its label, of {', '.join(labels)}" if labels else f"up to {outputs - 1}"
        raise ModelError(
            f"{spec.name!r} has {outputs} outputs; a reward model has one. Say which of them is the reward: "
            f"model.output=0 for the first, {which}"
        )
    if given is not None and given >= outputs:
        raise ModelError(
            f"model.output={spec.output}, but {spec.name!r} has {outputs} outputs: give 0 to {outputs - 1}"
        )
    return given


def _remote_hint(spec: ModelSpec, folder: Path) -> str:
    if spec.trust_remote_code or not list(folder.glob("modeling*.py")):
        return ""
    return (
        " The folder brings Python code of its own, which is not run unless asked for: model.trust_remote_code=true "
        "(for a Hub repository with model.revision=<full commit>)"
    )


def of_model(model: Reward) -> dict:
    """The fields of every provenance on the model and the software."""
    return {
        "revision": model.revision,
        **model.digests,
        "dtype": model.spec.dtype.value,
        "output": model.spec.output,
        "software": {
            "pessimal": __version__,
            "torch": torch.__version__,
            "transformers": version("transformers"),
        },
    }
