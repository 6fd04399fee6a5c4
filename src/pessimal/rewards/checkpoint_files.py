"""What kinds of rewards share: reading a checkpoint's configuration, tokenizer, digests, weights.

Knows transformers' loading. Does not know prompts, candidates or how a score is computed.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from pessimal.errors import ModelError
from pessimal.progress import working
from pessimal.rewards.adapters import (
    adapted_digest,
    load_adapter,
    load_value_head,
    warn_if_untrained,
)
from pessimal.rewards.base import Reward
from pessimal.rewards.digests import (
    WRAPPERS,
    config_digest,
    missing_shards,
    parameter_count,
    rename_weights,
    tokenizer_digest,
    weight_shapes,
    weights_digest,
)
from pessimal.rewards.heads import head_for
from pessimal.rewards.heads.base import Shapes
from pessimal.rewards.obtain import adapter_of, check_weights, local_folder
from pessimal.rewards.quantised import (
    attention_options,
    gguf_shapes,
    loading_options,
    quantised_digest,
    settle,
)
from pessimal.rewards.rendering import ONE_TEXT, set_template_options
from pessimal.rewards.spec import CheckpointSpec, Dtype, ModelSpec
from pessimal.tables.files import sha256_of
from pessimal.version import __version__


def _read_config(spec: CheckpointSpec, folder: Path) -> PreTrainedConfig:
    file = {} if spec.file is None else {"gguf_file": spec.file}
    return AutoConfig.from_pretrained(folder, trust_remote_code=spec.trust_remote_code, **file)


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint folder holds, read before any weight is."""

    spec: CheckpointSpec
    folder: Path
    config: PreTrainedConfig
    shapes: Shapes

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        return load_tokenizer(self.spec, self.folder)

    def fields(self, setting: str | None = None) -> dict[str, Any]:
        """What it is, its digests and description, as fields of a `NetworkReward`; `setting` is
        what its numbers depend on besides the files."""
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
    shapes: Shapes
    try:
        stored = weight_shapes(folder)
        shapes = rename_weights(stored, name_mapping(stored, config))
        missing = missing_shards(folder)
    except Exception as error:
        message = f"the weights of {spec.name!r} in {folder} cannot be read: {error}"
        raise ModelError(message) from error
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
    what: str,
    advice: str,
) -> nn.Module:
    """The network of a checkpoint, its adapter merged, in evaluation mode, on the CPU; safetensors
    only.

    Args:
        make: from the configuration, and options of `from_pretrained`, the network and
            transformers' report.
        what: what is loaded, for errors.
        advice: what to do about weights that are missing.

    Raises:
        ModelError: it cannot be loaded, or lacks weights, which would be random.
    """
    adapter = adapter_of(spec)
    options = {
        "dtype": getattr(torch, dtype.value),
        "use_safetensors": True,
        "output_loading_info": True,
    }
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
        raise ModelError(f"the {what} in {folder} cannot be loaded: {reason}") from error
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
    return " It brings Python code, which model.trust_remote_code=true runs"


def of_model(model: Reward) -> dict[str, Any]:
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
