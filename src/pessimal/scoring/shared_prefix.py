"""Attention over a prefix that all candidates of a batch share.

One joint softmax over the prefix's keys (held once, for the whole batch) and each candidate's own few keys. On a
25M-parameter Llama with a 43-token prefix this scored 1.4 to 1.8 times as many candidates a second as a cache copied
per candidate (`make bench`, `experiments/LOG.md`). Registered through transformers' AttentionInterface; knows nothing else of a model.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, DynamicCache

ATTENTION = "pessimal_shared_prefix"


@dataclass(frozen=True)
class Prefix:
    """Keys and values of the prefix, per layer, each (key-value heads, P, head size)."""

    keys: list[Tensor]
    values: list[Tensor]

    @property
    def length(self) -> int:
        return self.keys[0].shape[1]


@torch.inference_mode()
def run_prefix(backbone: nn.Module, ids: Tensor) -> Prefix:
    """Run the prefix ids (P,) once through the backbone and keep its keys and values."""
    cache = DynamicCache(config=backbone.config)
    backbone(input_ids=ids.unsqueeze(0), past_key_values=cache, use_cache=True)
    return Prefix(
        keys=[layer.keys[0].contiguous() for layer in cache.layers],
        values=[layer.values[0].contiguous() for layer in cache.layers],
    )


def shared_prefix_attention(
    module: nn.Module,
    query: Tensor,  # (B, H, T, D)
    key: Tensor,  # (B, K, T, D), the candidates' own; K key-value heads
    value: Tensor,  # (B, K, T, D)
    attention_mask: Tensor | None,
    *,
    scaling: float,
    shared_prefix: Prefix,
    **_,
) -> tuple[Tensor, None]:
    """Attention output (B, T, H, D) of the candidates' T tokens over prefix and own tokens, causal.

    Grouped heads stay grouped: the G = H / K queries of a group are rows of one product with their shared key.
    """
    prefix_key = shared_prefix.keys[module.layer_idx]  # (K, P, D)
    prefix_value = shared_prefix.values[module.layer_idx]
    batch, heads, length, size = query.shape
    groups = prefix_key.shape[0]
    per_group = heads // groups
    grouped = (query * scaling).view(batch, groups, per_group, length, size)

    # All candidates' queries of a group meet the prefix in one product: (K, B·G·T, D) x (K, D, P).
    rows = grouped.permute(1, 0, 2, 3, 4).reshape(groups, batch * per_group * length, size)
    on_prefix = torch.bmm(rows, prefix_key.transpose(1, 2))
    on_prefix = on_prefix.view(groups, batch, per_group * length, -1).transpose(0, 1)  # (B, K, G·T, P)

    on_own = grouped.reshape(batch, groups, per_group * length, size) @ key.transpose(2, 3)  # (B, K, G·T, T)
    future = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
    on_own = on_own.masked_fill(future.repeat(per_group, 1), torch.finfo(on_own.dtype).min)

    weights = torch.softmax(torch.cat([on_prefix, on_own], dim=-1), dim=-1, dtype=torch.float32).to(
        query.dtype
    )
    to_prefix, to_own = weights.split([prefix_key.shape[1], length], dim=-1)

    from_prefix = torch.bmm(
        to_prefix.transpose(0, 1).reshape(groups, batch * per_group * length, -1), prefix_value
    )  # (K, B·G·T, D)
    from_prefix = from_prefix.view(groups, batch, per_group * length, size).transpose(0, 1)
    output = (from_prefix + to_own @ value).reshape(batch, heads, length, size)
    return output.transpose(1, 2).contiguous(), None  # (B, T, H, D)


AttentionInterface.register(ATTENTION, shared_prefix_attention)
