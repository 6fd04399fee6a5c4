"""Inputs that share beginnings of different lengths, in one pass: their tokens stand in one row, one after the other.

All but attention looks at one token at a time, so the weights are read once for all of them; attention goes group by
group. Knows shared prefixes and token ids. Does not know what is scored.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from pessimal.scoring.engine import ONE_POSITION, SharedPrefix, exchanged_attention, hooked
from pessimal.scoring.shared_prefix import Prefix, shared_prefix_attention

log = logging.getLogger(__name__)

PACKED = "pessimal_packed"


@dataclass(frozen=True)
class Group:
    """Inputs of one length that share their beginning."""

    ids: Tensor
    """What each has of its own (n, T)."""
    shared: int
    """Tokens of the engine's prefix that each begins with."""


def packed_rewards(engine: SharedPrefix, groups: Sequence[Group]) -> Tensor:
    """Rewards (n of all groups,) float32, group after group, as `engine.rewards` gives them for each."""
    decoder = engine.decoder
    ids = torch.cat([group.ids.flatten() for group in groups]).unsqueeze(0)  # (1, N)
    lengths = torch.cat([torch.full_like(group.ids[:, 0], group.ids.shape[1]) for group in groups])
    read = lengths.cumsum(0) - 1  # where each input ends, (n of all groups,)
    positions = [
        torch.arange(group.shared, group.shared + group.ids.shape[1], device=ids.device).repeat(
            len(group.ids)
        )
        for group in groups
    ]
    spans = [(engine.prefix.start(group.shared), *group.ids.shape) for group in groups]
    final = []

    def keep(_, arguments):
        final.append(arguments[0][0, read].float())  # (n of all groups, hidden)

    with contextlib.ExitStack() as hooks:
        hooks.enter_context(hooked(decoder.norm, keep))
        for name, module in decoder.layers[-1].named_modules():
            if name in ONE_POSITION:
                hooks.enter_context(_only_at(read, module))
        hooks.enter_context(exchanged_attention(decoder.backbone, PACKED))
        decoder.backbone(
            input_ids=ids,
            position_ids=torch.cat(positions).unsqueeze(0),
            shared_prefix=spans,
            use_cache=False,
        )
    return decoder.head.read(decoder.exact_norm(final[0]), engine.context)


def packed_in_memory(engine: SharedPrefix, groups: Sequence[Group]) -> Tensor:
    """`packed_rewards`; a pass that does not fit into a card's memory is halved until it does."""
    try:
        return packed_rewards(engine, groups)
    except torch.OutOfMemoryError:
        if sum(len(group.ids) for group in groups) == 1:
            raise
    log.warning(
        "out of memory with %d candidates at once; going on with half of them",
        sum(len(g.ids) for g in groups),
    )
    torch.cuda.empty_cache()
    if len(groups) == 1:
        halves = [[Group(ids, groups[0].shared)] for ids in groups[0].ids.chunk(2)]
    else:
        halves = [groups[: len(groups) // 2], groups[len(groups) // 2 :]]
    return torch.cat([packed_in_memory(engine, half) for half in halves])


def packed_attention(
    module: nn.Module,
    query: Tensor,  # (1, H, N, D)
    key: Tensor,  # (1, K, N, D)
    value: Tensor,  # (1, K, N, D)
    attention_mask: Tensor | None,
    *,
    shared_prefix: Sequence[tuple[Prefix, int, int]],
    **options,
) -> tuple[Tensor, None]:
    """Attention output (1, N, H, D): `shared_prefix_attention` of each group, of n inputs with T tokens, by itself."""
    widths = [n * length for _, n, length in shared_prefix]
    outputs = []
    for (prefix, n, length), *own in zip(
        shared_prefix, *(states[0].split(widths, dim=1) for states in (query, key, value)), strict=True
    ):
        by_input = [states.unflatten(1, (n, length)).transpose(0, 1) for states in own]  # (n, H or K, T, D)
        output, _ = shared_prefix_attention(module, *by_input, None, shared_prefix=prefix, **options)
        outputs.append(output.flatten(0, 1))
    return torch.cat(outputs).unsqueeze(0), None


@contextlib.contextmanager
def _only_at(positions: Tensor, module: nn.Module) -> Iterator[None]:
    """The module runs at some positions (n,) of its input (1, N, hidden) alone; elsewhere its output is zero, which nobody
    reads."""
    width = 0

    def take(_, arguments):
        nonlocal width
        width = arguments[0].shape[1]
        return (arguments[0][:, positions], *arguments[1:])

    def put_back(_module, _arguments, output):
        # A mixture of experts gives more than its output.
        computed, *rest = (output,) if isinstance(output, Tensor) else output
        whole = computed.new_zeros(1, width, computed.shape[-1])
        whole[0, positions] = computed.view(len(positions), -1)
        return (whole, *rest) if rest else whole

    handle = module.register_forward_hook(put_back)
    try:
        with hooked(module, take):
            yield
    finally:
        handle.remove()


AttentionInterface.register(PACKED, packed_attention)
