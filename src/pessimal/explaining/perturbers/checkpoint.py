"""A perturber's own network: a Hub repository or a folder on this machine, looked for when it is
first needed."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pessimal.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

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
        from pessimal.rewards.digests import missing_shards
        from pessimal.rewards.hub import snapshot

        folder = (self.find and self.find(self.model)) or Path(self.model).expanduser()
        if not folder.is_dir():
            folder = snapshot(self.model, self.revision, local="perturber.model=DIR")
        for name in ("config.json", "*.safetensors"):
            if not list(folder.glob(name)):
                raise ModelError(
                    f"{folder} holds no {name}; give the folder that `save_pretrained` wrote: "
                    "perturber.model=DIR"
                )
        if missing := missing_shards(folder):
            raise ModelError(
                f"{folder} lacks {', '.join(missing[:5])}, which its index names: copy it again"
            )
        return folder

    @cached_property
    def weights(self) -> str:
        """Digest of the weights."""
        from pessimal.rewards.digests import weights_digest

        return weights_digest(self.folder)

    @cached_property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """Its tokenizer."""
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(self.folder)
        except Exception as error:
            raise ModelError(f"the tokenizer in {self.folder} cannot be loaded: {error}") from error

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

        from pessimal.rewards.digests import weight_shapes
        from pessimal.rewards.hub import check_counts
        from pessimal.rewards.language import has_reward_head

        check_counts(self.folder, name=self.model)
        try:
            config = transformers.AutoConfig.from_pretrained(self.folder)
        except Exception as error:
            raise ModelError(
                f"the configuration in {self.folder} cannot be read: {error}"
            ) from error
        of_task = {"CausalLM": transformers.MODEL_FOR_CAUSAL_LM_MAPPING}
        of_task["MaskedLM"] = transformers.MODEL_FOR_MASKED_LM_MAPPING
        if type(config) not in of_task[task] or has_reward_head(weight_shapes(self.folder)):
            raise ModelError(f"{self.model!r} ({type(config).__name__}) is no {wanted}")
        device = self.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            network, report = getattr(transformers, f"AutoModelFor{task}").from_pretrained(
                self.folder, dtype=dtype, use_safetensors=True, output_loading_info=True
            )
            network = network.to(device)
        except Exception as error:
            raise ModelError(
                f"{self.model!r} cannot be loaded from {self.folder}: {error}"
            ) from error
        if missing := sorted(report["missing_keys"]):
            raise ModelError(
                f"the checkpoint in {self.folder} lacks {missing[:5]}: these would be random, and "
                "so would what it writes"
            )
        return network.eval().requires_grad_(False)
