"""Attention over a prefix that all candidates of a batch share.

One joint softmax over the prefix's keys (held once, for the whole batch) and each candidate's own
few keys; grouped heads, soft-capping and sliding windows included. Registered through transformers'
AttentionInterface; knows nothing else of a model. `make bench` measures it against a cache copied
per candidate; `experiments/LOG.md` has the figures.
"""

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, DynamicCache

ATTENTION = "pessimal_shared_prefix"

# A network that has no window says None; one that says nothing has it in its mask alone.
_NO_WINDOW_GIVEN = -1
# What networks hand on to every attention, and what changes nothing here.
_HARMLESS = {
    "cache_position",
    "dropout",
    "is_causal",
    "output_attentions",
    "output_hidden_states",
    "position_embeddings",
    "position_ids",
    "return_dict",
    "use_cache",
}


class CannotShareError(Exception):
    """This network's attention is another than what is shared here."""


@dataclass(frozen=True)
class Prefix:
    """Keys and values of the prefix, per layer, each (key-value heads, P, head size)."""

    keys: list[Tensor]
    values: list[Tensor]

    @property
    def length(self) -> int:
        return self.keys[0].shape[1]

    def start(self, length: int) -> "Prefix":
        """Its first `length` positions: views, nothing is copied."""
        return Prefix([k[:, :length] for k in self.keys], [v[:, :length] for v in self.values])


@torch.no_grad()
def run_prefix(backbone: nn.Module, ids: Tensor) -> tuple[Prefix, Tensor]:
    """Run the prefix ids (P,) once; its keys and values, and its last hidden states (P, hidden)."""
    return continue_prefix(backbone, Prefix([], []), ids)


@torch.no_grad()
def continue_prefix(backbone: nn.Module, prefix: Prefix, ids: Tensor) -> tuple[Prefix, Tensor]:
    """The prefix with ids (T,) behind it, and their last hidden states (T, hidden): only these are
    run."""
    # Not made from the configuration: layers with a sliding window would drop what lies before
    # their window.
    cache = DynamicCache()
    for layer, (key, value) in enumerate(zip(prefix.keys, prefix.values, strict=True)):
        cache.update(key.unsqueeze(0), value.unsqueeze(0), layer)
    output = backbone(input_ids=ids.unsqueeze(0), past_key_values=cache, use_cache=True)
    layers: list[Any] = cache.layers
    keys = [layer.keys[0].contiguous() for layer in layers]
    values = [layer.values[0].contiguous() for layer in layers]
    return Prefix(keys, values), output.last_hidden_state[0]


def shared_prefix_attention(
    module: nn.Module,
    query: Tensor,  # (B, H, T, D)
    key: Tensor,  # (B, K, T, D), the candidates' own; K key-value heads
    value: Tensor,  # (B, K, T, D)
    attention_mask: Tensor | None,
    *,
    scaling: float,
    shared_prefix: Prefix,
    softcap: float | None = None,
    sliding_window: int | None = _NO_WINDOW_GIVEN,
    **others: object,
) -> tuple[Tensor, None]:
    """Attention output (B, T, H, D) of the candidates' T tokens over prefix and own tokens, causal.

    Grouped heads stay grouped: the G = H / K queries of a group are rows of one product with their
    shared key. Raises CannotShareError where the network asks for something else (attention sinks,
    position biases, a window that is only in its mask).
    """
    _refuse_what_is_not_shared(module, sliding_window, others)
    layer: Any = module.layer_idx
    prefix_key, prefix_value = shared_prefix.keys[layer], shared_prefix.values[layer]  # (K, P, D)
    batch, heads, length, size = query.shape
    groups, before, _size = prefix_key.shape
    per_group = heads // groups
    small = (groups * batch, length * per_group)  # one product for each candidate and group

    # All candidates' queries of a group meet the prefix in one product: (K, B·T·G, D) x (K, D, P).
    rows = query.transpose(1, 2).reshape(batch * length, groups, per_group * size)
    rows = rows.transpose(0, 1).reshape(groups, batch * length * per_group, size)
    own_key = key.transpose(0, 1).reshape(groups * batch, length, size)
    own_value = value.transpose(0, 1).reshape(groups * batch, length, size)
    on_prefix = _scaled_product(rows, prefix_key, scaling)
    on_own = _scaled_product(rows.reshape(*small, size), own_key, scaling)
    scores = torch.cat([on_prefix, on_own.view(groups, -1, length)], dim=-1)  # (K, B·T·G, P + T)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    unseen = _unseen(before, length, per_group, sliding_window, query.device)
    if unseen is not None:
        scores.view(*small, -1).masked_fill_(unseen, float("-inf"))
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)

    from_prefix = torch.bmm(weights[..., :before], prefix_value).view(*small, size)
    output = torch.baddbmm(from_prefix, weights[..., before:].reshape(*small, length), own_value)
    output = output.view(groups, batch * length, per_group * size)
    return output.transpose(0, 1).reshape(batch, length, heads, size), None


def _refuse_what_is_not_shared(
    module: nn.Module, sliding_window: int | None, others: dict[str, object]
) -> None:
    options = {name for name, value in others.items() if value is not None}
    if unknown := sorted(options - _HARMLESS):
        raise CannotShareError(f"its attention takes {', '.join(unknown)}")
    config = getattr(module, "config", None)
    window = getattr(config, "sliding_window", None)
    windowed = window and getattr(config, "use_sliding_window", True)
    if sliding_window == _NO_WINDOW_GIVEN and windowed:
        raise CannotShareError("its attention is not given the sliding window")


def _scaled_product(rows: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """rows (n, m, D) times keys (n, l, D) transposed, times `scaling`, in one step."""
    nothing = rows.new_zeros(1, 1, 1)
    return torch.baddbmm(nothing, rows, keys.transpose(1, 2), beta=0, alpha=scaling)


@functools.lru_cache(maxsize=64)
@torch.inference_mode(False)  # kept from scans, which have it, for gradients, which cannot
def _unseen(
    before: int, length: int, per_group: int, window: int | None, device: torch.device
) -> Tensor | None:
    """bool (T·G, P + T): keys that a query does not see, later ones and those outside its sliding
    window."""
    query = torch.arange(before, before + length, device=device).unsqueeze(1)
    key = torch.arange(before + length, device=device).unsqueeze(0)
    unseen = key > query
    if window is not None and window != _NO_WINDOW_GIVEN:
        unseen |= key <= query - window
    return unseen.repeat_interleave(per_group, dim=0) if unseen.any() else None


AttentionInterface.register(ATTENTION, shared_prefix_attention)
