"""Perturbations written by a causal language model on this machine: the two steps of `llm`, without an endpoint.

Knows transformers. Does not know wordings, nor whether a reply is of use.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge

from pessimal.errors import ModelError, WorkError
from pessimal.explain.chat.question import Question, Reply, Usage, digest_of
from pessimal.explain.perturbers import check_named, folder_of
from pessimal.explain.perturbers.llm import TwoSteps

_PROBE = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]


@dataclass(kw_only=True)
class Local(TwoSteps):
    """A Hub model or a local folder. ModelError where its files are no causal language model with a chat template."""

    model: str
    """Hub repository (`org/name`) or local folder of an instruction-tuned model."""
    revision: str | None = None
    """Commit, tag or branch of the repository."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of the weights; auto is as they are stored."""
    device: str = "auto"
    """cpu, cuda, cuda:N, mps, or auto: the first of cuda and cpu that is there."""
    temperature: Annotated[float, Ge(0)] = 1.0
    """Of sampling; 0 always takes the likeliest token."""
    max_tokens: Annotated[int, Ge(1)] = 1024
    """Most tokens of one answer."""

    name = "local"

    def __post_init__(self):
        check_named(self.model, self.revision)
        self.begin(OnMachine(self))


class OnMachine:
    """Answers one question after another (see `Transport`), sampled with its seed. The network is loaded when the first
    reply is needed."""

    def __init__(self, options: Local):
        from pessimal.models.digests import weights_digest

        self.options, self.usage, self.max_tokens = options, Usage(), options.max_tokens
        self.folder = folder_of(options.model, options.revision)
        self.tokenizer = _load_tokenizer(self.folder)
        self._takes_system = _takes_system(self.tokenizer, self.folder)
        self._weights = weights_digest(self.folder)

    def provenance(self) -> dict:
        """Weights, chat template and sampling options."""
        return {
            "model": self.options.model,
            "weights": self._weights,
            "template": digest_of(self.tokenizer.chat_template),
            "dtype": self.options.dtype,
            "temperature": self.options.temperature,
            "max_tokens": self.options.max_tokens,
        }

    def send(self, questions: Sequence[Question], keep: Callable[[int, Reply], None]) -> None:
        """One after another: a reply never depends on what else is asked, as it would within a padded batch."""
        for index, question in enumerate(questions):
            keep(index, self._reply(question))

    @cached_property
    def network(self):
        """The model, in evaluation mode."""
        return _load_network(self.options, self.folder)

    def ids(self, question: Question) -> list[int]:
        """The question in the chat template's tokens."""
        messages = question.sent(in_words=True)
        if not self._takes_system:
            (system, user), rest = messages[:2], messages[2:]
            messages = [{"role": "user", "content": f"{system['content']}\n\n{user['content']}"}, *rest]
        template: Any = self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=True
        )
        return list(template["input_ids"])

    def _reply(self, question: Question) -> Reply:
        import torch

        model, device, ids = self.options.model, self.network.device, self.ids(question)
        limit = getattr(self.network.config.get_text_config(), "max_position_embeddings", None)
        room = self.max_tokens if limit is None else min(self.max_tokens, limit - len(ids))
        if room < 1:
            return Reply(failure=f"the question is {len(ids):,} tokens long, and {model} reads {limit:,}")
        try:
            # `generate` draws from the global generator; the state that others use is put back.
            with (
                torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
                torch.inference_mode(),
            ):
                torch.manual_seed(int(digest_of(["local", question.seed])[:15], 16))
                written = self.network.generate(
                    torch.tensor([ids], device=device), generation_config=self._sampling(room)
                )[0, len(ids) :].tolist()
        except torch.OutOfMemoryError as error:
            return Reply(failure=f"the memory of {device} does not hold {len(ids):,} tokens: {error}")
        except RuntimeError as error:
            raise WorkError(
                f"{model} cannot write: {str(error).strip().splitlines()[0]}. Probabilities that are not numbers mean "
                "damaged weights, or a precision too low for them: try perturber.dtype=float32, or another model: "
                "perturber.model=DIR_OR_ID"
            ) from error
        ended = bool(written) and written[-1] in self._ends()
        text = self.tokenizer.decode(written, skip_special_tokens=True)
        reply = Reply(text, None, "stop" if ended else "length", len(ids), len(written))
        self.usage["calls"] += 1
        self.usage.meter(reply)
        return reply

    def _sampling(self, room: int):
        from transformers import GenerationConfig

        # None of the checkpoint's own sampling habits (top-k, penalties): the options say all.
        ends, padding = self._ends(), self.tokenizer.pad_token_id
        options: dict[str, Any] = {"max_new_tokens": room, "eos_token_id": sorted(ends)}
        options["pad_token_id"] = padding if padding is not None else min(ends, default=0)
        if self.options.temperature > 0:
            options |= {"do_sample": True, "temperature": self.options.temperature, "top_k": 0, "top_p": 1.0}
        return GenerationConfig(**options)

    def _ends(self) -> set[int]:
        own = getattr(self.network.generation_config, "eos_token_id", None)
        ends = set(own if isinstance(own, list) else [own]) | {self.tokenizer.eos_token_id}
        return {end for end in ends if end is not None}


def _load_tokenizer(folder: Path):
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except Exception as error:
        raise ModelError(f"the tokenizer in {folder} cannot be loaded: {error}") from error
    if not tokenizer.chat_template:
        raise ModelError(
            f"the tokenizer in {folder} has no chat template: it belongs to a base model, which answers nothing. Give an "
            "instruction-tuned one: perturber.model=DIR_OR_ID"
        )
    return tokenizer


def _takes_system(tokenizer, folder: Path) -> bool:
    """Whether the template takes a system message, as Gemma 2's does not."""
    for probe in (_PROBE, _PROBE[1:]):
        try:
            tokenizer.apply_chat_template(probe, tokenize=False)
            return probe is _PROBE
        except Exception as error:
            reason = error
    raise ModelError(
        f"the chat template in {folder} takes no conversation of one user's turn: {reason}"
    ) from reason


def _load_network(options: Local, folder: Path):
    import torch
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM

    from pessimal.models.digests import weight_shapes
    from pessimal.models.language import has_reward_head

    try:
        config = AutoConfig.from_pretrained(folder)
    except Exception as error:
        raise ModelError(f"the configuration in {folder} cannot be read: {error}") from error
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING or has_reward_head(weight_shapes(folder)):
        raise ModelError(
            f"{options.model!r} ({type(config).__name__}) is no causal language model: it writes no text. Give an "
            "instruction-tuned Llama, Gemma or Qwen, for example: perturber.model=DIR_OR_ID"
        )
    dtype = options.dtype if options.dtype == "auto" else getattr(torch, options.dtype)
    device = options.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        network, report = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, output_loading_info=True
        )
        network = network.to(device)
    except Exception as error:
        raise ModelError(
            f"the language model {options.model!r} cannot be loaded from {folder}: {error}"
        ) from error
    if missing := sorted(report["missing_keys"]):
        raise ModelError(f"the checkpoint in {folder} lacks {missing[:5]}: these would be random")
    return network.eval().requires_grad_(False)
