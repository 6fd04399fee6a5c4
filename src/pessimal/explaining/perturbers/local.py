"""Perturbations written by a causal language model on this machine: the two steps of `llm`, without
an endpoint.

Knows transformers. Does not know wordings, nor whether a reply is of use.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from annotated_types import Ge

from pessimal.errors import ConfigError, ModelError, WorkError
from pessimal.explaining.chat import Question, Reply, Usage, digest_of
from pessimal.explaining.perturbers.llm import TwoSteps
from pessimal.rewards.rendering import rendered

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


@dataclass(kw_only=True)
class Local(TwoSteps, Checkpoint):
    """An instruction-tuned model. ModelError where its files are no causal language model with a
    chat template."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of the weights; auto is as they are stored."""
    temperature: Annotated[float, Ge(0)] = 1.0
    """Of sampling; 0 always takes the likeliest token."""
    max_tokens: Annotated[int, Ge(1)] = 1024
    """Most tokens of one answer."""

    name = "local"

    def __post_init__(self) -> None:
        Checkpoint.__post_init__(self)
        self.begin(OnMachine(self))


class OnMachine:
    """Answers one question after another (see `Transport`), sampled with its seed. The network is
    loaded when the first reply is needed."""

    def __init__(self, options: Local):
        self.options, self.usage = options, Usage()
        self.max_tokens: int | None = options.max_tokens
        self.tokenizer = options.tokenizer
        if not self.tokenizer.chat_template:
            raise ModelError(
                f"the tokenizer in {options.folder} has no chat template: it belongs to a base "
                "model, which answers nothing. Give an instruction-tuned one: "
                "perturber.model=DIR_OR_ID"
            )

    def provenance(self) -> dict[str, Any]:
        """Weights, chat template and sampling options."""
        names = ("model", "dtype", "temperature", "max_tokens")
        sampling = {name: getattr(self.options, name) for name in names}
        template = digest_of(self.tokenizer.chat_template)
        return sampling | {"weights": self.options.weights, "template": template}

    def send(self, questions: Sequence[Question], keep: Callable[[int, Reply], None]) -> None:
        """One after another: a reply never depends on what else is asked, as it would within a
        padded batch."""
        for index, question in enumerate(questions):
            keep(index, self._reply(question))

    @cached_property
    def network(self) -> "PreTrainedModel":
        """The model, in evaluation mode."""
        wanted = (
            "causal language model: it writes no text. Give an instruction-tuned Llama, Gemma or "
            "Qwen: perturber.model=DIR_OR_ID"
        )
        return self.options.load("CausalLM", wanted, dtype=self.options.dtype)

    def ids(self, question: Question) -> list[int]:
        """The question in the chat template's tokens."""
        # In one turn, as not every template (Gemma 2's) takes a system's.
        system, user, *rest = question.sent()
        messages = [{"role": "user", "content": f"{system['content']}\n\n{user['content']}"}, *rest]
        return rendered(self.tokenizer, messages, add_generation_prompt=True, tokenize=True)

    def _reply(self, question: Question) -> Reply:
        import torch

        from pessimal.rewards.language import set_sampling

        model, device, ids = self.options.model, self.network.device, self.ids(question)
        positions = getattr(self.network.config.get_text_config(), "max_position_embeddings", None)
        most = self.options.max_tokens
        room = most if positions is None else min(most, positions - len(ids))
        if room < 1:
            why = f"the question is {len(ids):,} tokens long, and {model} reads {positions:,}"
            return Reply(failure=why)
        ends = set_sampling(
            self.network, self.tokenizer, tokens=room, temperature=self.options.temperature
        )
        try:
            # `generate` draws from the global generator; the state that others use is put back.
            devices = [device] if device.type == "cuda" else []
            with torch.random.fork_rng(devices=devices), torch.inference_mode():
                torch.manual_seed(int(digest_of(["local", question.seed])[:15], 16))
                inputs = torch.tensor([ids], device=device)
                generate = cast(Any, self.network).generate
                written = generate(inputs)[0, len(ids) :].tolist()
        except torch.OutOfMemoryError as error:
            why = f"the memory of {device} does not hold {len(ids):,} tokens: {error}"
            return Reply(failure=why)
        except RuntimeError as error:
            raise WorkError(
                f"{model} cannot write: {str(error).strip().splitlines()[0]}. Probabilities that "
                "are not numbers mean damaged weights, or a precision too low for them: try "
                "perturber.dtype=float32, or another model: perturber.model=DIR_OR_ID"
            ) from error
        reason = "stop" if written and written[-1] in ends else "length"
        text = str(self.tokenizer.decode(written, skip_special_tokens=True))
        reply = Reply(text, None, reason, len(ids), len(written))
        self.usage["calls"] += 1
        self.usage.meter(reply)
        return reply
