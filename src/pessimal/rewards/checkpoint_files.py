"""Code that kinds of rewards share: reading a checkpoint's configuration, tokenizer, digests,
weights; and networks whose class transformers does not have.

ArmoRM, QRM and GRM came with Python code of their own, written against older versions of
transformers. Their weights are all that is needed (`NativeRewardModel`). Where such code is run all
the same (`trust_remote_code`), newer versions fail on it, or silently get it wrong;
`load_with_own_code` makes up for that. Knows no prompts, and not how a score is computed.
"""

import contextlib
import copy
import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast
from unittest import mock

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.initialization import no_init_weights
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import logging

from pessimal.errors import ModelError
from pessimal.progress import working
from pessimal.rewards.base import Reward
from pessimal.rewards.heads import Head, Shapes, head_for
from pessimal.rewards.network import RewardNetwork
from pessimal.rewards.obtain import adapter_of, check_weights, local_folder
from pessimal.rewards.rendering import ONE_TEXT, set_template_options
from pessimal.rewards.spec import CheckpointSpec, Dtype, ModelSpec
from pessimal.rewards.weights import (
    WRAPPERS,
    adapted_digest,
    attention_options,
    config_digest,
    gguf_shapes,
    load_adapter,
    load_value_head,
    loading_options,
    missing_shards,
    parameter_count,
    quantised_digest,
    rename_weights,
    settle,
    tokenizer_digest,
    warn_if_untrained,
    weight_shapes,
    weights_digest,
)
from pessimal.tables.files import sha256_of
from pessimal.version import __version__


def _read_config(spec: CheckpointSpec, folder: Path) -> PreTrainedConfig:
    file = {} if spec.file is None else {"gguf_file": spec.file}
    return AutoConfig.from_pretrained(folder, trust_remote_code=spec.trust_remote_code, **file)


@dataclass(frozen=True)
class Checkpoint:
    """Content of a checkpoint folder, read before any weight is."""

    spec: CheckpointSpec
    folder: Path
    config: PreTrainedConfig
    shapes: Shapes

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        return load_tokenizer(self.spec, self.folder)

    def fields(self, setting: str | None = None) -> dict[str, Any]:
        """Its spec, digests and description, as fields of a `NetworkReward`; its numbers depend on
        `setting` besides the files."""
        spec, folder = self.spec, self.folder
        with working(f"reading the weights of {spec.name} for their digest", after=2):
            weights = weights_digest(folder) if spec.file is None else sha256_of(folder / spec.file)
        # A GGUF file holds its configuration.
        config = weights if spec.file else config_digest(folder, own_code=spec.trust_remote_code)
        if setting is not None:
            config = sha256(f"{config} {setting}".encode()).hexdigest()
        weights = quantised_digest(weights, spec)
        if (adapter := adapter_of(spec)) is not None:
            warn_if_untrained(spec.name, adapter)
            weights = adapted_digest(weights, adapter)
        return {
            "spec": spec,
            "folder": folder,
            "tokenizer": self.tokenizer,
            "weights_digest": weights,
            "config_digest": config,
            "tokenizer_digest": tokenizer_digest(self.tokenizer),
            "description": spec.describe(float(parameter_count(self.shapes))),
        }


def name_mapping(shapes: dict[str, list[int]], config: PreTrainedConfig) -> dict[str, str]:
    """`key_mapping` of `from_pretrained` for weights that a trainer named otherwise: without what
    wraps all of them, and with a head that only `config.value_head_prefix` (OpenRLHF's) names as
    `value_head`. Empty for most."""
    wrapped = bool(shapes) and all(re.match(WRAPPERS, name) for name in shapes)
    mapping = {WRAPPERS: ""} if wrapped else {}
    prefix, names = getattr(config, "value_head_prefix", None), rename_weights(shapes, mapping)
    if prefix and head_for(names) is None and any(name.startswith(f"{prefix}.") for name in names):
        mapping[rf"^{re.escape(prefix)}\."] = "value_head."
    return mapping


def read_checkpoint(spec: CheckpointSpec, folder: Path) -> Checkpoint:
    """A checkpoint folder; ModelError where its configuration or weights cannot be read, or are not
    whole."""
    try:
        config = _read_config(spec, folder)
    except Exception as error:
        reason = f"{error}{remote_hint(spec, folder)}"
        raise ModelError(f"{folder}: the configuration cannot be read: {reason}") from error
    check_weights(spec, folder)
    if spec.file is not None:
        return Checkpoint(spec, folder, config, gguf_shapes(config))
    try:
        stored, missing = weight_shapes(folder), missing_shards(folder)
        shapes: Shapes = rename_weights(stored, name_mapping(stored, config))
    except Exception as error:
        place = f"the weights of {spec.name!r} in {folder}"
        raise ModelError(f"{place} cannot be read: {error}") from error
    if missing:
        raise ModelError(f"{spec.name!r} in {folder} lacks {', '.join(missing[:5])}: copy it again")
    if (adapter := adapter_of(spec)) is not None:
        shapes = {**shapes, **adapter.full}
        if adapter.rows:
            config.get_text_config().vocab_size = adapter.rows
    return Checkpoint(spec, folder, config, shapes)


def load_checkpoint(
    spec: CheckpointSpec,
    folder: Path,
    make: Callable[..., tuple[PreTrainedModel, dict[str, Any]]],
    *,
    dtype: Dtype,
    noun: str,
    advice: str,
) -> nn.Module:
    """The network of a checkpoint, its adapter merged, in evaluation mode, on the CPU; safetensors
    only.

    Args:
        make: from the configuration, and options of `from_pretrained`, the network and
            transformers' report.
        noun: what is loaded, for errors.
        advice: what to do about weights that are missing.

    Raises:
        ModelError: it cannot be loaded, or lacks weights, which would be random.
    """
    adapter = adapter_of(spec)
    options: dict[str, Any] = {"use_safetensors": True, "output_loading_info": True}
    options["dtype"] = getattr(torch, dtype.value)
    verbosity = logging.get_verbosity()
    if adapter is not None and adapter.full:
        logging.set_verbosity_error()  # weights that its base lacks are read afterwards
    try:
        config = _read_config(spec, folder)
        options |= loading_options(spec, config, dtype) | attention_options(config)
        if spec.file is None and (mapping := name_mapping(weight_shapes(folder), config)):
            options["key_mapping"] = mapping
        size = sum(file.stat().st_size for file in folder.glob(spec.file or "*.safetensors")) / 1e9
        label = f"loading {spec.name} in {dtype.value}, {size:.2f} GB on disk"
        with working(label, after=0 if size > 0.1 else 1):
            network, report = make(config, **options)
    except ModelError:
        raise
    except Exception as error:
        reason = f"{error}{remote_hint(spec, folder)}"
        raise ModelError(f"the {noun} in {folder} cannot be loaded: {reason}") from error
    finally:
        logging.set_verbosity(verbosity)
    elsewhere = load_value_head(network, folder) | set(adapter.full if adapter else ())
    if missing := sorted(set(report["missing_keys"]) - elsewhere):
        advice = f"these would be random{advice}{remote_hint(spec, folder)}"
        raise ModelError(f"{spec.name!r} in {folder} lacks {missing[:5]}: {advice}")
    merged = network if adapter is None else load_adapter(network, adapter, name=spec.name)
    settle(merged, name=spec.name, dtype=dtype)
    return merged.eval().requires_grad_(False)


def load_tokenizer(spec: ModelSpec, folder: Path | None = None) -> PreTrainedTokenizerBase:
    """The tokenizer that `model.tokenizer` names, else the adapter's where it brings one, else that
    of the checkpoint `folder`; ModelError where there is none."""
    file = {}
    if spec.tokenizer is not None:
        folder = local_folder(spec.tokenizer, local="model.tokenizer=DIR")
    elif (adapter := adapter_of(spec)) is not None and adapter.brings_tokenizer:
        folder = adapter.folder
    elif spec.file is not None and folder and not (folder / "tokenizer_config.json").is_file():
        file = {"gguf_file": spec.file}
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=spec.trust_remote_code, **file
        )
    except Exception as error:
        place = f"{folder}, the tokenizer of {spec.name!r}"
        raise ModelError(f"{place}, cannot be loaded: {error}") from error
    if spec.chat_template is not None:
        tokenizer.chat_template = spec.chat_template
    if spec.one_text:
        tokenizer.chat_template = ONE_TEXT
    set_template_options(tokenizer, spec.template_options or {}, name=spec.name)
    return tokenizer


def remote_hint(spec: CheckpointSpec, folder: Path) -> str:
    """The option that runs the code of a folder, where it brings any; else empty."""
    if spec.trust_remote_code or not list(folder.glob("modeling*.py")):
        return ""
    return " It brings code: model.trust_remote_code=true, of a repository model.revision=COMMIT"


def model_fields(model: Reward) -> dict[str, Any]:
    """The fields of every provenance on the model and the software."""
    software = {"pessimal": __version__, "torch": torch.__version__}
    software["transformers"] = version("transformers")
    about = {"revision": model.revision, "dtype": model.spec.dtype.value}
    return about | model.digests | {"output": model.spec.output, "software": software}


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
    with patch_older_names():
        network, report = kind.from_pretrained(folder, trust_remote_code=True, **options)
        restore_what_is_not_stored(network)
    # Published code makes caches in ways that transformers no longer knows (InternLM2's
    # `from_legacy_cache`).
    network.config.use_cache = False
    return network, report


@contextlib.contextmanager
def patch_older_names() -> Iterator[None]:
    """While a repository's own code is loaded, give transformers the names that it expects there.

    ArmoRM and QRM import docstrings that were since removed. GRM's class never calls `post_init`,
    which newer versions rely on for the list of tied weights; without it there are none.
    """
    names: list[tuple[Any, str, Any]] = [(PreTrainedModel, "all_tied_weights_keys", {})]
    for family in ("llama", "gemma2"):
        module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
        docs = [f"{family.upper()}_{part}_DOCSTRING" for part in ("START", "INPUTS")]
        names += [(module, name, "") for name in docs]
    with contextlib.ExitStack() as stack:
        for owner, name, value in names:
            if not hasattr(owner, name):
                stack.enter_context(mock.patch.object(owner, name, value, create=True))
        yield


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
