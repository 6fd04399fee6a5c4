"""A causal language model on this machine as the one that is asked: one conversation after another, sampled with a seed.

Knows transformers. Does not know what is asked, nor whether a reply is of use.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pessimal.errors import ConfigError, ModelError, WorkError
from pessimal.explain.chat.checkpoints import check_named, folder_of
from pessimal.explain.chat.protocol import with_schema
from pessimal.explain.chat.question import Keep, Question, Reply, digest_of, sendable
from pessimal.explain.chat.usage import Usage
from pessimal.models.digests import weights_digest

_PROBE = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]


@dataclass(frozen=True)
class OnMachineSpec:
    """A causal language model in a folder or on the Hub."""

    model: str | None = None
    """Hub repository (`org/name`) or local folder."""
    revision: str | None = None
    """Commit, tag or branch of the repository."""
    dtype: str = "auto"
    """Precision of the weights: auto (as they are stored), float32, bfloat16 or float16."""
    device: str = "auto"
    """cpu, cuda, cuda:N, mps, or auto: the first of cuda and cpu that is there."""
    temperature: float = 1.0
    """Of the sampling; 0 always takes the likeliest token."""
    max_tokens: int = 1024
    """Longest reply, in tokens."""

    def __post_init__(self):
        check_named(
            self.model,
            self.revision,
            kind="an instruction-tuned causal language model",
            example="Qwen/Qwen2.5-7B-Instruct",
        )
        if self.dtype not in ("auto", "float32", "bfloat16", "float16"):
            raise ConfigError(f"perturber.dtype={self.dtype!r}: give auto, float32, bfloat16 or float16")
        if not self.temperature >= 0:
            raise ConfigError(f"perturber.temperature={self.temperature}, but at least 0 is needed")
        if self.max_tokens < 1:
            raise ConfigError(f"perturber.max_tokens={self.max_tokens}, but at least 1 is needed")


class OnMachine:
    """Carries questions to such a model (see `Transport`); its network is loaded when the first reply is needed."""

    def __init__(self, spec: OnMachineSpec, *, usage: Usage):
        """ModelError where the files are no causal language model with a chat template."""
        self.spec, self.usage, self.address = spec, usage, spec.model
        self._folder = folder_of(spec.model, spec.revision)
        self._tokenizer = _load_tokenizer(self._folder)
        self._takes_system = _takes_system(self._tokenizer, self._folder)
        self._weights = weights_digest(self._folder)
        self._network = None

    def provenance(self) -> dict:
        """Weights, chat template and sampling options."""
        return {
            "model": self.spec.model,
            "weights": self._weights,
            "template": digest_of(self._tokenizer.chat_template),
            "dtype": self.spec.dtype,
            "temperature": self.spec.temperature,
            "max_tokens": self.spec.max_tokens,
        }

    def send(self, questions: Sequence[Question], keep: Keep) -> None:
        """One after another: a reply never depends on what else is asked, as it would within a padded batch."""
        for index, question in enumerate(questions):
            keep(index, self._reply(question))

    def _reply(self, question: Question) -> Reply:
        import torch

        if self._network is None:
            self._network = _load_network(self.spec, self._folder)
        ids = self._ids(question)
        limit = getattr(self._network.config.get_text_config(), "max_position_embeddings", None)
        room = self.spec.max_tokens if limit is None else min(self.spec.max_tokens, limit - len(ids))
        if room < 1:
            return Reply(
                failure=f"the question is {len(ids):,} tokens long, and {self.spec.model} reads {limit:,}"
            )
        device = self._network.device
        # `generate` draws from the global generator; the state that others use is put back.
        seed = int(digest_of(["local", question.seed])[:15], 16)
        try:
            with (
                torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
                torch.inference_mode(),
            ):
                torch.manual_seed(seed)
                written = self._network.generate(
                    torch.tensor([ids], device=device), generation_config=self._sampling(room)
                )[0, len(ids) :].tolist()
        except torch.OutOfMemoryError as error:
            return Reply(
                failure=f"the memory of {device} does not hold a question of {len(ids):,} tokens: {error}"
            )
        except RuntimeError as error:
            raise WorkError(
                f"{self.spec.model} cannot write: {str(error).strip().splitlines()[0]}. Probabilities that are not numbers "
                "mean damaged weights, or a precision too low for them: try the model in float32, or another one: "
                "perturber.model=DIR_OR_ID"
            ) from error
        self.usage.calls += 1
        self.usage.written += 1
        self.usage.prompt_tokens += len(ids)
        self.usage.completion_tokens += len(written)
        ended = bool(written) and written[-1] in self._ends()
        text = self._tokenizer.decode(written, skip_special_tokens=True)
        return Reply(
            text=text,
            finish_reason="stop" if ended else "length",
            prompt_tokens=len(ids),
            completion_tokens=len(written),
        )

    def _ids(self, question: Question) -> list[int]:
        messages = with_schema([dict(message) for message in question.messages], question)
        messages = [{**message, "content": sendable(message["content"])} for message in messages]
        if not self._takes_system:
            (first, second), rest = messages[:2], messages[2:]
            content = f"{first['content']}\n\n{second['content']}"
            messages = [{"role": "user", "content": content}, *rest]
        return list(
            self._tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=True, return_dict=True
            )["input_ids"]
        )

    def _sampling(self, room: int):
        from transformers import GenerationConfig

        # None of the checkpoint's own sampling habits (top-k, penalties): the options say all.
        options = {"max_new_tokens": room, "eos_token_id": sorted(self._ends()), "top_k": 0, "top_p": 1.0}
        padding = self._tokenizer.pad_token_id
        options["pad_token_id"] = padding if padding is not None else min(self._ends(), default=0)
        if self.spec.temperature > 0:
            return GenerationConfig(do_sample=True, temperature=self.spec.temperature, **options)
        del options["top_k"], options["top_p"]
        return GenerationConfig(do_sample=False, **options)

    def _ends(self) -> set[int]:
        own = getattr(self._network.generation_config, "eos_token_id", None)
        ends = set(own if isinstance(own, list) else [own]) | {self._tokenizer.eos_token_id}
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
    try:
        tokenizer.apply_chat_template(_PROBE, tokenize=False)
        return True
    except Exception:
        pass
    try:
        tokenizer.apply_chat_template(_PROBE[1:], tokenize=False)
        return False
    except Exception as error:
        raise ModelError(
            f"the chat template in {folder} takes no conversation of one user's turn: {error}"
        ) from error


def _load_network(spec: OnMachineSpec, folder: Path):
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
            f"{spec.model!r} ({type(config).__name__}) is no causal language model: it writes no text. Give an "
            "instruction-tuned Llama, Gemma or Qwen, for example: perturber.model=DIR_OR_ID"
        )
    dtype = spec.dtype if spec.dtype == "auto" else getattr(torch, spec.dtype)
    try:
        network, report = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, output_loading_info=True
        )
        device = spec.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        network = network.to(device)
    except Exception as error:
        raise ModelError(
            f"the language model {spec.model!r} cannot be loaded from {folder}: {error}"
        ) from error
    if missing := sorted(report["missing_keys"]):
        raise ModelError(f"the checkpoint in {folder} lacks {missing[:5]}: these would be random")
    return network.eval().requires_grad_(False)
