"""From a ModelSpec to a RewardModel: the one place where weights are read.

Knows transformers' loading. Does not know prompts, candidates or how a score is computed.
"""

import logging
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from pessimal.errors import ModelError
from pessimal.models.digests import (
    head_outputs,
    parameter_count,
    template_digest,
    tokenizer_digest,
    weights_digest,
)
from pessimal.models.spec import Dtype, ModelSpec
from pessimal.tables import ModelDescription

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RewardModel:
    """A reward model on this machine's disk: tokenizer, what pins it down, and how to load its network."""

    spec: ModelSpec
    folder: Path
    """Where its files are."""
    tokenizer: object
    embedding_rows: int
    """Rows of the input embedding: ids from here on cannot be scored."""
    weights_digest: str
    tokenizer_digest: str
    template_digest: str
    description: ModelDescription

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def revision(self) -> str | None:
        """The Hub commit, which names the snapshot's folder; None for a local folder or a demo sibling."""
        return self.folder.name if re.fullmatch(r"[0-9a-f]{40}", self.folder.name) else None

    def network(self, dtype: Dtype | None = None) -> torch.nn.Module:
        """Load the network (in the spec's precision where `dtype` is None)."""
        return load_network(self.spec, self.folder, dtype=dtype or self.spec.dtype)


def open_model(spec: ModelSpec, folder: Path) -> RewardModel:
    """The model in a checkpoint folder on this machine; its weights are digested, not yet loaded."""
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=spec.trust_remote_code)
    except Exception as error:
        raise ModelError(
            f"the configuration of {spec.name!r} cannot be read from {folder}: {error}"
        ) from error
    if not list(folder.glob("*.safetensors")):
        raise ModelError(
            f"{folder} holds no *.safetensors; weights are read from nothing else. To convert: "
            "AutoModelForSequenceClassification.from_pretrained(DIR).save_pretrained(NEW_DIR)"
        )
    outputs = head_outputs(folder)
    if outputs not in (None, 1):  # without a head, loading will say so
        raise ModelError(
            f"{spec.name!r} has {outputs} outputs; a reward model has one. Models with several attributes "
            "need an adapter that says which scalar is the reward."
        )
    tokenizer = load_tokenizer(spec, folder)
    return RewardModel(
        spec=spec,
        folder=folder,
        tokenizer=tokenizer,
        embedding_rows=config.get_text_config().vocab_size,
        weights_digest=weights_digest(folder),
        tokenizer_digest=tokenizer_digest(tokenizer),
        template_digest=template_digest(tokenizer),
        description=ModelDescription(
            base=spec.base,
            developer=spec.developer,
            parameters=spec.parameters or float(parameter_count(folder)),
            rank=spec.rank,
        ),
    )


def load_tokenizer(spec: ModelSpec, folder: Path):
    """The tokenizer of a checkpoint folder; ModelError if it has no chat template."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=spec.trust_remote_code)
    except Exception as error:
        raise ModelError(f"the tokenizer of {spec.name!r} cannot be loaded from {folder}: {error}") from error
    if not tokenizer.chat_template:
        raise ModelError(
            f"the tokenizer of {spec.name!r} has no chat template, so there is no slot for a response. Give it one: "
            "tokenizer.chat_template = …; tokenizer.save_pretrained(folder)"
        )
    return tokenizer


def load_network(spec: ModelSpec, folder: Path, *, dtype: Dtype) -> torch.nn.Module:
    """The network in evaluation mode, on the CPU; safetensors only. ModelError if it is no scalar reward model."""
    try:
        network, report = AutoModelForSequenceClassification.from_pretrained(
            folder,
            dtype=getattr(torch, dtype.value),
            num_labels=1,
            trust_remote_code=spec.trust_remote_code,
            use_safetensors=True,
            output_loading_info=True,
        )
    except Exception as error:
        raise ModelError(f"the model {spec.name!r} cannot be loaded from {folder}: {error}") from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(
            f"the checkpoint of {spec.name!r} in {folder} lacks {missing[:5]}: these would be random. A language "
            "model without a reward head cannot be scanned; give a sequence classifier."
        )
    return network.eval().requires_grad_(False)


def hub_snapshot(spec: ModelSpec) -> Path:
    """The local copy of a Hub repository at the spec's revision; ModelError where it cannot be fetched."""
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(
                spec.path,
                revision=spec.revision,
                allow_patterns=["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.py"],
            )
        )
    except Exception as error:
        reason = str(error).strip().splitlines()
        raise ModelError(
            f"the Hub repository {spec.path!r} (revision {spec.revision or 'default'}) cannot be fetched: "
            f"{type(error).__name__}: {reason[0] if reason else 'no reason given'}. Check the name, your connection "
            "and `hf auth login`; or give a local folder: model=auto model.path=DIR"
        ) from error
