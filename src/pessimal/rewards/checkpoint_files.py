"""What kinds of rewards share: reading a checkpoint's configuration, tokenizer and digests.

Knows transformers' loading. Does not know prompts, candidates or how a score is computed.
"""

from importlib.metadata import version
from pathlib import Path

import torch
from transformers import AutoConfig, AutoTokenizer

from pessimal.catalogue import is_folder
from pessimal.errors import ModelError
from pessimal.rewards.adapters import adapted_digest, warn_if_untrained, with_adapter
from pessimal.rewards.base import Reward
from pessimal.rewards.digests import (
    config_digest,
    missing_shards,
    parameter_count,
    tokenizer_digest,
    weight_shapes,
    weights_digest,
)
from pessimal.rewards.heads import Shapes
from pessimal.rewards.hub import adapter_of, check_weights, snapshot
from pessimal.rewards.quantised import gguf_shapes, quantised_digest
from pessimal.rewards.spec import ModelSpec
from pessimal.tables import ModelDescription
from pessimal.tables.files import sha256_of
from pessimal.version import __version__


def read_checkpoint(spec: ModelSpec, folder: Path):
    """Configuration and shapes of weights of a checkpoint folder; ModelError where one cannot be
    read, or is not whole."""
    try:
        file = {} if spec.file is None else {"gguf_file": spec.file}
        config = AutoConfig.from_pretrained(
            folder, trust_remote_code=spec.trust_remote_code, **file
        )
    except Exception as error:
        raise ModelError(
            f"the configuration of {spec.name!r} cannot be read from {folder}: "
            f"{error}{remote_hint(spec, folder)}"
        ) from error
    check_weights(spec, folder)
    if spec.file is not None:
        return config, gguf_shapes(config)
    try:
        shapes, missing = weight_shapes(folder), missing_shards(folder)
    except Exception as error:
        raise ModelError(
            f"the weights of {spec.name!r} in {folder} cannot be read: {error}"
        ) from error
    if missing:
        raise ModelError(
            f"{folder} lacks {', '.join(missing[:5])}, weights that its index names: copy or "
            f"download {spec.name!r} again"
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


def tokenizer_folder(spec: ModelSpec) -> Path:
    """The folder of `model.tokenizer` on this machine, fetched where it is a Hub repository."""
    if is_folder(spec.tokenizer):
        return Path(spec.tokenizer).expanduser()
    return snapshot(spec.tokenizer, None, local="model.tokenizer=DIR")


def load_tokenizer(spec: ModelSpec, folder: Path):
    """The tokenizer of a checkpoint folder, of the adapter's where it brings one; ModelError where
    there is none."""
    if (adapter := adapter_of(spec)) is not None and adapter.brings_tokenizer:
        folder = adapter.folder
    # A GGUF file's own where no other is there.
    file = (
        {}
        if spec.file is None or (folder / "tokenizer_config.json").is_file()
        else {"gguf_file": spec.file}
    )
    if spec.tokenizer is not None:
        folder, file = tokenizer_folder(spec), {}
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=spec.trust_remote_code, **file
        )
    except Exception as error:
        raise ModelError(
            f"the tokenizer of {spec.name!r} cannot be loaded from {folder}: {error}"
        ) from error
    if spec.chat_template is not None:
        tokenizer.chat_template = spec.chat_template
    return tokenizer


def remote_hint(spec: ModelSpec, folder: Path) -> str:
    if spec.trust_remote_code or not list(folder.glob("modeling*.py")):
        return ""
    return (
        " The folder brings Python code of its own, which is not run unless asked for: "
        "model.trust_remote_code=true (for a Hub repository with model.revision=<full commit>)"
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
