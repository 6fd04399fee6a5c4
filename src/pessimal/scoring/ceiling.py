"""The ceiling of a reward on the path that scores it: what its head reads, and how far that can go.

Where pessimal reads the head, the final norm and the head are known parts, and every reward is the
head of what that norm gives. Where the model's own forward scores, its last linear layer is found
by what goes in and comes out on a few random inputs, and bounded where what it reads is a norm's
output or a tanh.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from pessimal.errors import ModelError
from pessimal.rewards.ceiling import (
    AT_MOST_0,
    ELSEWHERE,
    LOW_PRECISION,
    NO_HEAD,
    NO_NORM,
    NORMALISED,
    PROBABILITY,
    RATINGS,
    TANH,
    Bounds,
    Interval,
    NormalisedStates,
    of_unit_box,
    unbounded,
)
from pessimal.rewards.heads import Head, in_float32
from pessimal.rewards.language import JudgeNetwork
from pessimal.scoring.engine import Decoder, Engine, OwnForward

PROBES, LENGTH = 4, 3
"""Random responses, and their tokens, on which layers of a network's own forward are matched."""


def bounds_by(engine: Engine, *, column: int | None = None, suffix: Sequence[int] = ()) -> Bounds:
    """The bounds on the rewards that an engine gives, with room for its network's rounding;
    `column` says which of several outputs, `suffix` what stands behind every response."""
    decoder = getattr(engine, "decoder", None)
    network = (
        engine.network if isinstance(engine, OwnForward) else getattr(decoder, "network", None)
    )
    if getattr(network, "sequence", False):
        return Bounds(-torch.inf, 0.0, AT_MOST_0)
    if getattr(network, "steps", None) is not None:
        return Bounds(0.0, 1.0, PROBABILITY)
    if isinstance(network, JudgeNetwork) and (values := network.reading.values):
        return Bounds(min(values), max(values), RATINGS)
    if isinstance(engine, OwnForward):
        bounds = _of_own_forward(engine, column, suffix)
    else:
        bounds = unbounded(NO_HEAD) if decoder is None else _of_decoder(decoder, column)
    exact = network is None or network.dtype in (torch.float32, torch.float64)
    return bounds if exact else bounds.widened(LOW_PRECISION)


def _of_decoder(decoder: Decoder, column: int | None) -> Bounds:
    head, width = decoder.head, decoder.network.config.get_text_config().hidden_size
    if not isinstance(head, Head):
        return unbounded(NO_HEAD)
    states = NormalisedStates.of(decoder.exact_norm, width)
    if states is None:
        return unbounded(NO_NORM)
    return _bounds(head.bounds(states), head.output if column is None else column, NORMALISED)


def _bounds(interval: Interval | None, column: int | slice, how: str) -> Bounds:
    if interval is None or isinstance(column, slice):
        return unbounded(NO_HEAD)
    return Bounds(float(interval[0][column]), float(interval[1][column]), how)


# --- The model's own forward: which layer gives the reward, and what it reads.


class _Call:
    """What a module was given and gave, in one forward: rows (positions, width)."""

    def __init__(self, module: nn.Module, given: Any, output: Any):
        self.module = module
        self.given, self.output = _rows(given[0] if given else None), _rows(output)


def _rows(value: Any) -> Tensor | None:
    if not (isinstance(value, Tensor) and value.is_floating_point() and value.dim() >= 1):
        return None
    return value.detach().reshape(-1, value.shape[-1]).float().cpu()


@contextlib.contextmanager
def _recorded(network: nn.Module) -> Iterator[list[_Call]]:
    """The calls of all modules without parts, in order, while this lasts."""
    calls: list[_Call] = []
    with contextlib.ExitStack() as hooks:
        for module in network.modules():
            if not any(module.children()):
                handle = module.register_forward_hook(
                    lambda module, given, output: calls.append(_Call(module, given, output))
                )
                hooks.callback(handle.remove)
        yield calls


@torch.no_grad()
def _of_own_forward(engine: OwnForward, column: int | None, suffix: Sequence[int]) -> Bounds:
    network = engine.network
    column = network.reward_output if column is None else column  # type: ignore[assignment]
    if not isinstance(column, int):
        return unbounded(NO_HEAD)
    embedding = cast(nn.Embedding, network.get_input_embeddings())
    generator, rows = torch.Generator().manual_seed(0), len(embedding.weight)
    runs, rewards = [], []
    for _ in range(PROBES):
        drawn = torch.randint(rows, (LENGTH,), generator=generator).tolist()
        ids = torch.tensor([[*drawn, *suffix]], device=engine.prefix.device)
        try:
            with _recorded(network) as calls:
                values = engine.rewards(ids, shared=len(engine.prefix)).reshape(-1)
        except ModelError:  # a class that does not read some special token among them
            return unbounded(ELSEWHERE)
        runs.append(calls)
        rewards.append(float(values[column if len(values) > 1 else 0]))
    if len({len(calls) for calls in runs}) > 1:
        return unbounded(ELSEWHERE)
    places = list(zip(*runs, strict=True))  # the same call in each run
    for place in places:
        module = place[0].module
        if isinstance(module, nn.Linear) and (at := _gives(place, rewards, column)) is not None:
            read = [call.given[at] for call in place]  # type: ignore[index]
            return _of_reader(module, column, read, places)
    return unbounded(ELSEWHERE)


def _gives(place: tuple[_Call, ...], rewards: list[float], column: int) -> int | None:
    """The row of a linear layer's output that holds the reward in every run; None where none
    does."""
    outputs = [call.output for call in place]
    if any(one is None or one.shape[-1] <= column for one in outputs):
        return None
    given = torch.stack([one[:, column] for one in outputs])  # type: ignore[index]
    wanted = torch.tensor(rewards)[:, None]
    close = ((given - wanted).abs() <= 1e-6 * (1 + wanted.abs())).all(dim=0)
    return int(close.nonzero()[0, 0]) if close.any() else None


def _of_reader(
    module: nn.Linear, column: int, read: list[Tensor], places: list[tuple[_Call, ...]]
) -> Bounds:
    """Bounds of a linear layer that reads these states, one a run, by which call gave them."""
    wanted, weight = torch.stack(read)[:, None], module.weight[column : column + 1]
    bias = None if module.bias is None else module.bias[column : column + 1]
    for place in places:
        outputs = [call.output for call in place]
        if any(one is None or one.shape[-1] != wanted.shape[-1] for one in outputs):
            continue
        given = torch.stack(outputs)  # type: ignore[arg-type]  # (runs, positions, width)
        if _same(given, wanted):
            states = NormalisedStates.of(in_float32(place[0].module), wanted.shape[-1])
            if states is not None:
                return _bounds(states.linear(weight, bias), 0, NORMALISED)
        if _same(given.tanh(), wanted):
            return _bounds(of_unit_box(weight, bias), 0, TANH)
    return unbounded(ELSEWHERE)


def _same(given: Tensor, wanted: Tensor) -> bool:
    """Whether some position of `given` (runs, positions, width) is `wanted` (runs, 1, width) in
    every run."""
    close = (given - wanted).abs() <= 1e-5 * (1 + wanted.abs())
    return bool(close.all(dim=-1).all(dim=0).any())
