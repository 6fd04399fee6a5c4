"""The range of a reward: bounds on the reward of every response of every length, by what its head
can make of any state that a norm gives.

Arithmetic over weights; what a norm computes is measured on the norm itself, never taken from its
name. Knows no network: `scoring.scorer` finds what a head reads.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Interval = tuple[Tensor, Tensor]
"""Lowest and highest values (columns,) float64."""
_UNIT = 2.0**-24
"""Largest relative error of one float32 operation."""
LOW_PRECISION = 2.0**-6
"""Share of a bound that rounding to bfloat16 may add: of state, weight, product and sum, twice."""
_PROBES, _LARGE, _SMALL = 16, (10.0, 300.0, 1e4), 1e-3
"""Random states that a norm is asked for, their sizes, and one at which its ε counts."""
_SPECTRAL = 2**22
"""Largest matrix whose largest singular value is computed."""

NORMALISED = "a head on a normalised state"
TANH = "a head on a tanh"
PROBABILITY = "a probability"
RATINGS = "a mean of ratings"
AT_MOST_0 = "a log-probability is at most 0, and has no least value"
NO_HEAD = "its head has no known bound"
NO_NORM = "its final norm is neither RMSNorm nor LayerNorm"
ELSEWHERE = "its head reads no normalised state"
TEXTS = "only texts are known of it"


@dataclass(frozen=True)
class Bounds:
    """The lowest and the highest reward of any response; infinite where none is known."""

    low: float
    high: float
    how: str

    @property
    def finite(self) -> bool:
        """Whether there are both."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def is_bounded(self) -> bool:
        """Whether at least one is finite."""
        return math.isfinite(self.low) or math.isfinite(self.high)

    def share(self, reward: float) -> float:
        """Distance of a reward from the middle of both bounds, −1 at the lower and 1 at the upper:
        of a linear head on an RMSNorm the cosine of the state with the head's direction, since a
        state orthogonal to it gets the middle. NaN without both bounds."""
        if not self.finite or self.low == self.high:
            return math.nan
        return (2 * reward - self.low - self.high) / (self.high - self.low)

    def beyond(self, rewards: Iterable[float]) -> float:
        """By how much the farthest of these rewards lies outside, in units of reward; 0 where none
        does."""
        return max((max(self.low - r, r - self.high, 0.0) for r in rewards), default=0.0)

    def widened(self, share: float) -> "Bounds":
        """With room for rounding in a lower precision."""
        room = share * max(abs(end) for end in (self.low, self.high, 0.0) if math.isfinite(end))
        return Bounds(self.low - room, self.high + room, self.how)

    def stored(self) -> dict[str, Any]:
        """As a score table keeps them: null where there is none."""
        values = {"low": self.low, "high": self.high}
        return {k: v if math.isfinite(v) else None for k, v in values.items()} | {"how": self.how}


def unbounded(reason: str) -> Bounds:
    """No bounds, and the reason."""
    return Bounds(-math.inf, math.inf, reason)


def read_bounds(stored: Mapping[str, Any] | None) -> Bounds:
    """Bounds from what `Bounds.stored` gave; none where a table keeps none."""
    if stored is None:
        return unbounded(TEXTS)
    low, high = stored["low"], stored["high"]
    return Bounds(
        -math.inf if low is None else low, math.inf if high is None else high, stored["how"]
    )


def weighted_sum(terms: Iterable[tuple[float, Bounds]]) -> Bounds:
    """Bounds of Σ weight · reward. Where a side is unbounded, the reasons are those of the terms
    without it."""
    weighted = [(weight, bounds) for weight, bounds in terms if weight]
    ends = [sorted((weight * bounds.low, weight * bounds.high)) for weight, bounds in weighted]
    low, high = (math.fsum(side) for side in zip(*ends, strict=True))
    open_ended = [bounds.how for _, bounds in weighted if not bounds.finite]
    return Bounds(low, high, "; ".join(dict.fromkeys(open_ended or [o.how for _, o in weighted])))


@dataclass(frozen=True)
class NormalisedStates:
    """Every state scale ∘ z + shift with ‖z‖ ≤ √d, and of a LayerNorm z ⟂ 1: all that an RMSNorm or
    LayerNorm can give, whatever it is given."""

    scale: Tensor  # (d,) float64
    shift: Tensor  # (d,) float64
    centred: bool

    @classmethod
    def probe_norm(cls, norm: nn.Module, width: int) -> "NormalisedStates | None":
        """States that a norm of `width` numbers gives, by asking it in float32; None where it is
        neither of the two, or cannot be asked."""
        generator = torch.Generator().manual_seed(0)
        states = torch.randn(_PROBES, width, generator=generator)
        states[: _PROBES // 4] += 1.0  # a mean that is not 0
        states[0, 0] = 30.0  # an outlier, as real states have
        device = next((p.device for p in norm.parameters()), torch.device("cpu"))

        def apply(x: Tensor) -> Tensor:
            return norm(x.to(device)).double().cpu()

        with torch.no_grad():
            try:
                shift = apply(torch.zeros(1, width))[0]
                large = torch.cat([size * states for size in _LARGE])
                outputs, near_0 = apply(large) - shift, apply(_SMALL * states) - shift
            except (RuntimeError, TypeError, ValueError, IndexError):
                return None
        if outputs.shape != large.shape or not torch.cat([outputs, shift[None]]).isfinite().all():
            return None
        for centred in (False, True):
            z = large.double()
            z = z - z.mean(dim=-1, keepdim=True) if centred else z
            z = z / z.pow(2).mean(dim=-1, keepdim=True).sqrt()
            scale = (outputs * z).sum(dim=0) / (z * z).sum(dim=0)
            tolerance = 1e-4 * (scale * z).abs() + 1e-5 * scale.abs().max() + 1e-6 * shift.abs()
            less = near_0.abs() <= (scale * z[:_PROBES]).abs() + tolerance[:_PROBES]
            if bool(((outputs - scale * z).abs() <= tolerance).all()) and bool(less.all()):
                return cls(scale, shift, centred)
        return None

    def _directions(self, weight: Tensor) -> Tensor:
        rows = weight.double().cpu() * self.scale
        return rows - rows.mean(dim=-1, keepdim=True) if self.centred else rows

    def linear(self, weight: Tensor, bias: Tensor | None) -> Interval:
        """Interval of a linear layer (k, d) over them, with room for float32's rounding."""
        exact, radius = weight.double().cpu(), math.sqrt(len(self.scale))
        offset = 0.0 if bias is None else bias.double().cpu()
        middle, half = exact @ self.shift + offset, radius * self._directions(weight).norm(dim=-1)
        size = radius * (exact * self.scale).norm(dim=-1) + exact.abs() @ self.shift.abs()
        room = 2 * (len(self.scale) + 16) * _UNIT * (size + abs(offset))
        return middle - half - room, middle + half + room

    def layers(self, module: nn.Module) -> Interval | None:
        """Interval of linear layers with ReLU between them over these states; None for other
        layers. Behind a hidden layer the better of two bounds: each unit by itself, and all by
        their length."""
        first, *rest = module if isinstance(module, nn.Sequential) else [module]
        if not isinstance(first, nn.Linear):
            return None
        low, high = self.linear(first.weight, first.bias)
        length = math.nan
        if rest:
            stretch = _stretch(self._directions(first.weight))
            length = math.sqrt(len(self.scale)) * stretch + float(((low + high) / 2).norm())
        for layer in rest:
            if isinstance(layer, nn.ReLU):
                low, high = low.clamp(min=0), high.clamp(min=0)
            elif isinstance(layer, nn.Linear):
                weight = layer.weight.double().cpu()
                bias = torch.zeros(len(weight)) if layer.bias is None else layer.bias.double().cpu()
                up, down = weight.clamp(min=0), weight.clamp(max=0)
                rows = weight.norm(dim=-1) * length
                low, high = (
                    torch.maximum(up @ low + down @ high, -rows) + bias,
                    torch.minimum(up @ high + down @ low, rows) + bias,
                )
                room = 2 * (weight.shape[1] + 16) * _UNIT * torch.maximum(low.abs(), high.abs())
                low, high = low - room, high + room
                if layer is not rest[-1]:
                    length = _stretch(weight) * length + float(bias.norm())
            elif not isinstance(layer, nn.Identity | nn.Dropout):
                return None
        return low, high


def _stretch(weight: Tensor) -> float:
    """At most how many times as long as its input a matrix's output is: exactly so, where that
    takes no more than seconds."""
    how: Any = 2 if weight.numel() <= _SPECTRAL else "fro"
    return float(torch.linalg.matrix_norm(weight, ord=how)) * (1 + 1e-9)


def unit_box_interval(weight: Tensor, bias: Tensor | None) -> Interval:
    """Interval of a linear layer (k, d) over d numbers between −1 and 1."""
    offset = torch.zeros(len(weight)) if bias is None else bias.detach().double().cpu()
    half = weight.detach().double().cpu().abs().sum(dim=-1)
    room = 2 * (weight.shape[1] + 16) * _UNIT * (half + offset.abs())
    return offset - half - room, offset + half + room
