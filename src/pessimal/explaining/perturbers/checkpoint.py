"""A perturber's own network: a Hub repository or a folder on this machine, looked for when it is
first needed."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pessimal.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from pessimal.rewards.spec import ModelSpec

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+|[A-Za-z0-9][\w.-]*")


@dataclass(kw_only=True)
class Checkpoint:
    """Options of a perturber that is a network. Importing and making it loads no torch."""

    model: str
    """Hub repository (`org/name`), local folder, or a name of conf/model."""
    revision: str | None = None
    """Commit, tag or branch of the repository."""
    device: str = "auto"
    """cpu, cuda, cuda:N, mps; auto is cuda where there is one."""
    find: Callable[[str], Path | None] | None = None
    """Gives the folder of a model that has a name of its own (conf/model), None of any other."""

    def __post_init__(self) -> None:
        """ConfigError where the name can be neither a folder nor a repository."""
        folder = Path(self.model).expanduser().is_dir()
        if folder and self.revision is not None:
            raise ConfigError(
                f"perturber.revision={self.revision!r} was given for the local folder "
                f"{self.model!r}, which has none: leave it out"
            )
        if not folder and not _HUB_ID.fullmatch(self.model):
            raise ConfigError(
                f"perturber.model={self.model!r} is neither a folder on this machine nor a Hub "
                "repository of the form org/name"
            )

    @cached_property
    def folder(self) -> Path:
        """The files, fetched from the Hub where they are not here; ModelError where they cannot be
        had."""
        from pessimal.rewards.hub import local_folder

        own = self.find and self.find(self.model)
        return own or local_folder(self.model, self.revision, local="perturber.model=DIR")

    @cached_property
    def spec(self) -> "ModelSpec":
        """The same checkpoint as rewards are opened by."""
        from pessimal.rewards.spec import Kind, ModelSpec

        return ModelSpec(name=self.model, path=str(self.folder), kind=Kind.log_probability)

    @cached_property
    def weights(self) -> str:
        """Digest of the weights."""
        from pessimal.rewards.digests import weights_digest

        return weights_digest(self.folder)

    @cached_property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """Its tokenizer."""
        from pessimal.rewards.checkpoint_files import load_tokenizer

        return load_tokenizer(self.spec, self.folder)

    def load(self, task: str, wanted: str, *, dtype: str) -> "PreTrainedModel":
        """The network, in evaluation mode.

        Args:
            task: in the names of transformers, such as CausalLM.
            wanted: what it is to be, and what to give instead, for the error.
            dtype: auto, float32, bfloat16 or float16.

        Raises:
            ModelError: it is of another kind, cannot be read, or lacks weights.
        """
        import torch
        import transformers

        from pessimal.rewards.checkpoint_files import load_checkpoint, read_checkpoint
        from pessimal.rewards.language import has_reward_head
        from pessimal.rewards.spec import Dtype

        config, shapes = read_checkpoint(self.spec, self.folder)
        of_task = {"CausalLM": transformers.MODEL_FOR_CAUSAL_LM_MAPPING}
        of_task["MaskedLM"] = transformers.MODEL_FOR_MASKED_LM_MAPPING
        if type(config) not in of_task[task] or has_reward_head(shapes):
            raise ModelError(f"{self.model!r} ({type(config).__name__}) is no {wanted}")
        make = partial(getattr(transformers, f"AutoModelFor{task}").from_pretrained, self.folder)
        if dtype == "auto":
            dtype = str(config.dtype or torch.float32).removeprefix("torch.")
        network = load_checkpoint(
            self.spec,
            self.folder,
            lambda config, **options: make(config=config, **options),
            dtype=Dtype(dtype),
            what="model",
            advice=", and so would what it writes",
        )
        device = self.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        return cast("PreTrainedModel", network.to(device))
