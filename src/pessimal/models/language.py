"""Causal language models: which checkpoints are one, by their files, and how their network is loaded.

Knows configurations, names of weights and transformers' loading. Does not know prompts or probabilities.
"""

from pathlib import Path

import torch
from torch import nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
)

from pessimal.errors import ModelError
from pessimal.models.heads import Shapes, head_for
from pessimal.models.remote_code import load_with_own_code
from pessimal.models.spec import Dtype, ModelSpec

_HEADS = ("classifier.weight", "classifier.out_proj.weight")
"""Of classifiers, beside those of `heads`; the last is RoBERTa's."""


def has_reward_head(shapes: Shapes) -> bool:
    """Whether weights of these names hold a head that gives a reward."""
    return head_for(shapes) is not None or any(name in shapes for name in _HEADS)


def check_is_language_model(spec: ModelSpec, config, shapes: Shapes) -> None:
    """ModelError where a checkpoint, by its files, gives no next-token probabilities: a reward model, an encoder."""
    message = f"model.score=log_probability was asked of {spec.name!r}, "
    if has_reward_head(shapes):
        raise ModelError(
            f"{message}which is a reward model: its weights hold a reward head in place of a language model's. Leave out "
            "model.score for its rewards; for log-probabilities give the language model that it was made from"
        )
    if getattr(config, "is_encoder_decoder", False) or _is_encoder(config):
        raise ModelError(
            f"{message}which is {type(config).__name__.removesuffix('Config')}, no causal language model: it fills gaps, or "
            "reads a text as a whole, and has no next token. Give a decoder, such as a Llama, Gemma, GPT or Qwen"
        )
    own_code = spec.trust_remote_code and _brings_own_code(config)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and not own_code:
        raise ModelError(
            f"{message}whose kind ({type(config).__name__}) transformers knows no causal language model of. Give a decoder, "
            "such as a Llama, Gemma, GPT or Qwen"
        )


def check_is_no_language_model(spec: ModelSpec, config, shapes: Shapes, folder: Path) -> None:
    """ModelError where a checkpoint that was given as a reward model is a language model, by its files."""
    named = getattr(config, "architectures", None) or []
    causal = bool(named) and all(name.endswith(("ForCausalLM", "LMHeadModel")) for name in named)
    if not causal or has_reward_head(shapes) or spec.trust_remote_code:
        return
    raise ModelError(
        f"{spec.name!r} is a language model ({', '.join(named)}): {folder} lacks score.weight, a reward head, which would "
        "be random. For a reward give a sequence classifier; for the log-probabilities of the same tokens type: "
        "model.score=log_probability"
    )


def listed_rows(config, shapes: Shapes) -> int:
    """How many ids have both an input and an output embedding: ids from here on have no probability."""
    rows = config.get_text_config().vocab_size
    heads = [
        shape[0] for name, shape in shapes.items() if name.endswith(("lm_head.weight", "embed_out.weight"))
    ]
    return min([rows, *heads])


def load_language_network(spec: ModelSpec, folder: Path, *, dtype: Dtype) -> nn.Module:
    """The causal language model in evaluation mode, on the CPU; safetensors only. ModelError where it cannot be."""
    options = {"dtype": getattr(torch, dtype.value), "use_safetensors": True, "output_loading_info": True}
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=spec.trust_remote_code)
        if spec.trust_remote_code and _brings_own_code(config):
            network, report = load_with_own_code(AutoModelForCausalLM, folder, **options)
        else:
            network, report = AutoModelForCausalLM.from_pretrained(folder, **options)
    except Exception as error:
        raise ModelError(
            f"the language model {spec.name!r} cannot be loaded from {folder}: {error}"
        ) from error
    if missing := sorted(report["missing_keys"]):
        raise ModelError(
            f"the checkpoint of {spec.name!r} in {folder} lacks {missing[:5]}: these would be random, and so would its "
            "probabilities. Give a causal language model, as `save_pretrained` of an AutoModelForCausalLM wrote it"
        )
    return network.eval().requires_grad_(False)


def output_bytes(network: nn.Module) -> int:
    """Bytes of the float32 logits of one position."""
    return 4 * network.config.get_text_config().vocab_size


def _is_encoder(config) -> bool:
    masked = type(config) in MODEL_FOR_MASKED_LM_MAPPING
    return masked and not getattr(config, "is_decoder", False)


def _brings_own_code(config) -> bool:
    return "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
