"""Causal language models: which checkpoints are one, how their network is loaded, and what one has
read when it is asked for its next token.

Knows configurations, names of weights, transformers' loading, tokenizers and templates. Does not
know probabilities.
"""

from pathlib import Path
from typing import Any, cast

from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from pessimal.errors import ModelError
from pessimal.rewards.checkpoint_files import load_checkpoint
from pessimal.rewards.digests import template_digest
from pessimal.rewards.heads import ENCODERS, Shapes, head_for
from pessimal.rewards.own_code import load_with_own_code
from pessimal.rewards.spec import CheckpointSpec, Dtype
from pessimal.tables.score_table import PLAIN_TEXT, PLAIN_TEXT_ALL_THE_SAME


def has_reward_head(shapes: Shapes) -> bool:
    """Whether weights of these names hold a head that gives a reward."""
    return head_for(shapes) is not None or any(name in shapes for name in ENCODERS)


def check_is_language_model(spec: CheckpointSpec, config: PreTrainedConfig, shapes: Shapes) -> None:
    """ModelError where a checkpoint, by its files, gives no next-token probabilities: a reward
    model, an encoder."""
    message = f"model.kind={spec.kind} was asked of {spec.name!r}, "
    if has_reward_head(shapes):
        raise ModelError(
            f"{message}which is a reward model: its weights hold a reward head in place of a "
            "language model's. Leave out model.kind for its rewards"
        )
    if getattr(config, "is_encoder_decoder", False) or _is_encoder(config):
        raise ModelError(
            f"{message}which is {type(config).__name__.removesuffix('Config')}, no causal language "
            "model: it fills gaps, or reads a text as a whole, and has no next token. Give a "
            "decoder, such as a Llama, Gemma, GPT or Qwen"
        )
    own_code = spec.trust_remote_code and _brings_own_code(config)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and not own_code:
        raise ModelError(
            f"{message}whose kind ({type(config).__name__}) transformers knows no causal language "
            "model of. Give a decoder, such as a Llama, Gemma, GPT or Qwen"
        )


def listed_rows(config: PreTrainedConfig, shapes: Shapes) -> int:
    """How many ids have both an input and an output embedding: ids from here on have no
    probability."""
    names = [name for name in shapes if name.endswith(("lm_head.weight", "embed_out.weight"))]
    return min([config.get_text_config().vocab_size, *(shapes[name][0] for name in names)])


def load_language_network(
    spec: CheckpointSpec, folder: Path, *, dtype: Dtype, kind: type = AutoModelForCausalLM
) -> PreTrainedModel:
    """The language model in evaluation mode, on the CPU; safetensors only. ModelError where it
    cannot be."""

    def make(config: PreTrainedConfig, **options: Any) -> tuple[PreTrainedModel, dict[str, Any]]:
        if spec.trust_remote_code and _brings_own_code(config):
            return load_with_own_code(kind, folder, **options)
        loaded: Any = kind
        return loaded.from_pretrained(folder, config=config, **options)

    advice = (
        ", and so would its probabilities. Give a causal language model, as `save_pretrained` of "
        "an AutoModelForCausalLM wrote it."
    )
    network = load_checkpoint(spec, folder, make, dtype=dtype, what="language model", advice=advice)
    return cast(PreTrainedModel, network)


def _is_encoder(config: PreTrainedConfig) -> bool:
    masked = type(config) in MODEL_FOR_MASKED_LM_MAPPING
    return masked and not getattr(config, "is_decoder", False)


def _brings_own_code(config: PreTrainedConfig) -> bool:
    return "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})


def context_digest(tokenizer: PreTrainedTokenizerBase, *, chat: bool) -> str:
    """`template_digest` in a table's provenance: the template's sha256, or PLAIN_TEXT where none
    was in use."""
    if chat:
        return template_digest(tokenizer)
    return PLAIN_TEXT_ALL_THE_SAME if tokenizer.chat_template else PLAIN_TEXT


def set_sampling(
    causal: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    tokens: int,
    temperature: float = 1.0,
    **more: Any,
) -> set[int]:
    """Have `generate` write at most so many tokens; gives those that end a reply. In place of the
    checkpoint's own sampling habits (top-k, penalties), which would fill what is left open: the
    temperature says all."""
    end = getattr(causal.generation_config, "eos_token_id", None)
    ends = {*(end if isinstance(end, list) else [end]), tokenizer.eos_token_id} - {None}
    padding = tokenizer.pad_token_id
    options: dict[str, Any] = {"max_new_tokens": tokens, "eos_token_id": sorted(ends) or None}
    options["pad_token_id"] = padding if padding is not None else min(ends, default=0)
    if temperature > 0:
        options |= {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    causal.generation_config = GenerationConfig(**options, **more)
    return ends
