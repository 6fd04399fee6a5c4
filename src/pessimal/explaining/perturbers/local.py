"""Perturbations written by a causal language model on this machine: the two steps of `llm`, without
an endpoint.

Knows transformers. Does not know wordings, nor whether a reply is of use.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from annotated_types import Ge
from pydantic.dataclasses import dataclass

from pessimal.errors import ModelError, WorkError
from pessimal.explaining.chat import Client, Question, Reply, digest_of
from pessimal.explaining.perturbers.llm import TwoSteps
from pessimal.options import DESCRIBED
from pessimal.rewards.rendering import rendered, template_variables

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(kw_only=True, config=DESCRIBED)
class Local(TwoSteps):
    """An instruction-tuned model. ModelError where its files are no causal language model with a
    chat template."""

    model: str
    """Hub repository (`org/name`), local folder, or a name of conf/model."""
    revision: str | None = None
    """Commit, tag or branch of the repository."""
    device: str = "auto"
    """cpu, cuda, cuda:N, mps; auto is cuda where there is one."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of the weights; auto is as they are stored."""
    temperature: Annotated[float, Ge(0)] = 1.0
    """Temperature of sampling; 0 always takes the likeliest token."""
    max_tokens: Annotated[int, Ge(1)] = 1024
    """Most tokens of one answer."""

    name = "local"

    def __post_init__(self) -> None:
        self.begin(OnMachine)


class OnMachine(Client):
    """Answers one question after another, sampled with its seed. The network is loaded when the
    first reply is needed."""

    def __init__(self, options: Local, *, cache: Path | None, **rest: Any):
        from pessimal.rewards.checkpoint_files import load_tokenizer  # torch comes with it
        from pessimal.rewards.named import language_model_of
        from pessimal.rewards.obtain import fetch_files

        revision = {} if options.revision is None else {"revision": options.revision}
        self.options = options
        self.spec = language_model_of(options.model, **revision)
        folder = fetch_files(self.spec, cache=str(cache.parent if cache else "runs/cache"))
        assert folder is not None  # only functions and servers have none
        self.folder, self.tokenizer = folder, load_tokenizer(self.spec, folder)
        if not self.tokenizer.chat_template:
            raise ModelError(
                f"the tokenizer in {folder} has no chat template: it belongs to a base model, "
                "which answers nothing. Give an instruction-tuned one: perturber.model=DIR_OR_ID"
            )
        super().__init__(cache=cache, max_tokens=options.max_tokens, **rest)

    def sampling(self) -> dict[str, Any]:
        """Weights, chat template and sampling options."""
        from pessimal.rewards.weights import weights_digest

        names = ("model", "dtype", "temperature", "max_tokens")
        options = {name: getattr(self.options, name) for name in names}
        template = digest_of(self.tokenizer.chat_template)
        if variables := template_variables(self.tokenizer):
            template = digest_of(f"{template} {variables}")
        return options | {"weights": weights_digest(self.folder), "template": template}

    def send(self, questions: Sequence[Question], keep: Callable[[int, Reply], None]) -> None:
        """One after another: a reply never depends on what else is asked, as it would within a
        padded batch."""
        for index, question in enumerate(questions):
            keep(index, self._reply(question))

    @cached_property
    def network(self) -> "PreTrainedModel":
        """The model, in evaluation mode; ModelError where it is no causal language model."""
        import torch

        from pessimal.rewards.checkpoint_files import read_checkpoint
        from pessimal.rewards.language import check_is_language_model, load_language_network
        from pessimal.rewards.spec import Dtype

        checkpoint = read_checkpoint(self.spec, self.folder)
        config, shapes = checkpoint.config, checkpoint.shapes
        try:
            check_is_language_model(self.spec, config, shapes)
        except ModelError as error:
            raise ModelError(
                f"{self.options.model!r} ({type(config).__name__}) is no causal language model: it "
                "writes no text. Give an instruction-tuned Llama, Gemma or Qwen: "
                "perturber.model=DIR_OR_ID"
            ) from error
        dtype, device = str(self.options.dtype), self.options.device
        if dtype == "auto":
            dtype = str(config.dtype or torch.float32).removeprefix("torch.")
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        network = load_language_network(self.spec, self.folder, dtype=Dtype(dtype))
        return cast("PreTrainedModel", cast(Any, network).to(device))

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
        limit = self.options.max_tokens
        room = limit if positions is None else min(limit, positions - len(ids))
        if room < 1:
            reason = f"the question is {len(ids):,} tokens long, and {model} reads {positions:,}"
            return Reply(failure=reason)
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
            reason = f"the memory of {device} does not hold {len(ids):,} tokens: {error}"
            return Reply(failure=reason)
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
