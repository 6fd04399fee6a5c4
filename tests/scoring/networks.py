"""Tiny random networks of many architectures, and the rewards that nothing but the network
gives."""

import torch
from torch import nn
from transformers import AutoModelForSequenceClassification
from transformers.models.bert import BertConfig
from transformers.models.gemma2 import Gemma2Config
from transformers.models.gpt2 import GPT2Config
from transformers.models.gpt_neox import GPTNeoXConfig
from transformers.models.llama import LlamaConfig
from transformers.models.mistral import MistralConfig
from transformers.models.mixtral import MixtralConfig
from transformers.models.qwen2 import Qwen2Config
from transformers.models.qwen3 import Qwen3Config

CPU = torch.device("cpu")
PLAIN = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
SMALL = {**PLAIN, "num_key_value_heads": 2, "head_dim": 8}
GEMMA = {**SMALL, "query_pre_attn_scalar": 8, "attn_logit_softcapping": None}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.4}
WINDOWED = {
    "use_sliding_window": True,
    "max_window_layers": 1,
    "sliding_window": 6,
}  # in the second layer only
MIXTRAL = {**SMALL, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}
DECODERS = {
    "llama, a key for two queries": (LlamaConfig, SMALL),
    "llama, a key for each query": (LlamaConfig, {**SMALL, "num_key_value_heads": 4}),
    "llama, one key for all": (LlamaConfig, {**SMALL, "num_key_value_heads": 1}),
    "qwen2": (Qwen2Config, SMALL),
    "qwen2, a window in one layer": (Qwen2Config, {**SMALL, **WINDOWED}),
    "qwen3": (Qwen3Config, SMALL),
    "qwen3, a window in one layer": (Qwen3Config, {**SMALL, **WINDOWED}),
    "mistral": (MistralConfig, {**SMALL, "sliding_window": None}),
    "mistral, a window of two": (MistralConfig, {**SMALL, "sliding_window": 2}),
    "mistral, a window that cuts the prefix": (MistralConfig, {**SMALL, "sliding_window": 9}),
    "mistral, a window longer than everything": (MistralConfig, {**SMALL, "sliding_window": 100}),
    "gemma2": (Gemma2Config, {**GEMMA, "sliding_window": 100}),
    "gemma2, soft-capping": (
        Gemma2Config,
        {**GEMMA, "sliding_window": 100, "attn_logit_softcapping": 0.5},
    ),
    "gemma2, soft-capping and a window": (
        Gemma2Config,
        {**GEMMA, "sliding_window": 6, "attn_logit_softcapping": 0.5},
    ),
    "gpt-neox": (GPTNeoXConfig, PLAIN),
    "gpt-neox, one block after the other": (
        GPTNeoXConfig,
        {**PLAIN, "use_parallel_residual": False},
    ),
    "gpt2": (GPT2Config, GPT2),
    "gpt2, scaled by layer": (GPT2Config, {**GPT2, "scale_attn_by_inverse_layer_idx": True}),
    "mixtral": (MixtralConfig, MIXTRAL),
}


@torch.no_grad()
def made(
    kind, sizes: dict, rows: int, *, build=AutoModelForSequenceClassification.from_config
) -> nn.Module:
    """A random network whose biases and norms are not what they begin with."""
    # Enough for rewards that vary, and not so much that rounding grows from layer to layer.
    config = kind(
        **{"initializer_range": 0.2, **sizes}, vocab_size=rows, num_labels=1, pad_token_id=3
    )
    if sizes.get("attn_logit_softcapping"):  # which transformers before 5.21 leaves out otherwise
        config._attn_implementation = "eager"
    torch.manual_seed(0)
    network = build(config).eval().requires_grad_(False)
    for weight in network.parameters():
        weight.add_(0.1 * torch.randn(weight.shape))
    network.reward_output = 0
    return network


def encoder(rows: int) -> nn.Module:
    return made(BertConfig, {**PLAIN, "initializer_range": 0.4}, rows)


@torch.no_grad()
def own(network: nn.Module, wholes, **inputs) -> torch.Tensor:
    """Rewards (n,) of whole inputs, each alone, by nothing but the network."""
    pad, network.config.pad_token_id = network.config.pad_token_id, None
    rewards = [
        network(input_ids=torch.as_tensor(row)[None], **inputs).logits[0, 0] for row in wholes
    ]
    network.config.pad_token_id = pad
    return torch.stack(rewards)


def hooks(network: nn.Module) -> int:
    """Hooks that somebody left behind."""
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in network.modules())
