"""A weighted sum of rewards: a rubric of judges, functions with weights, a panel whose further
members have a weight of 0.

Knows its terms. Does not know how they are scored: `scoring` does.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pessimal.errors import ConfigError
from pessimal.rewards.base import Reward
from pessimal.rewards.callable import about_texts
from pessimal.rewards.spec import Kind, ModelSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class SumReward(Reward):
    """Σ weight · reward. A term that does not apply to a response adds nothing, as in TRL; a sum of
    none does not apply."""

    terms: tuple[tuple[float, Reward], ...]

    @property
    def origin(self) -> str:
        """`sum:NAME@sha256:DIGEST` (of its terms)."""
        return f"sum:{self.name}@sha256:{self.weights_digest[:16]}"

    @property
    def is_exact(self) -> bool:
        """Whether every term's first pass is in float32 already."""
        return all(reward.is_exact for _, reward in self.terms)

    @property
    def is_pinned(self) -> bool:
        """Whether the digests of every term cover all that its rewards depend on."""
        return all(reward.is_pinned for _, reward in self.terms)


def sum_of(
    terms: Sequence[tuple[float, Reward]],
    *,
    name: str | None = None,
    spec: ModelSpec | None = None,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
) -> SumReward:
    """The sum of rewards with these weights.

    Args:
        name: of the sum, where there is no `spec`; by default its terms'.
        spec: what was asked for.
        tokenizer: whose vocabulary is scanned; by default that of the first term that has one.

    Raises:
        ConfigError: there are no terms, two of one name, or no weight but 0.
    """
    names = [reward.name for _, reward in terms]
    if twice := sorted({one for one in names if names.count(one) > 1}):
        raise ConfigError(f"two terms of a sum are called {twice[0]!r}: give each its own name")
    weights = [weight for weight, _ in terms]
    numbers = all(isinstance(one, int | float) and math.isfinite(one) for one in weights)
    if not numbers or not any(weights):
        raise ConfigError(
            f"weights={weights}: give each term a finite number, and not 0 to all of them"
        )
    if spec is None:
        parts = [
            {"model": one, "weight": weight} for one, weight in zip(names, weights, strict=True)
        ]
        spec = ModelSpec(name=name or "+".join(names), kind=Kind.sum, parts=parts)
    held = [reward.tokenizer for _, reward in terms if reward.tokenizer is not None]
    pinned = [(weight, reward.digests) for weight, reward in terms]
    digest = hashlib.sha256(json.dumps(pinned, sort_keys=True).encode()).hexdigest()
    return SumReward(
        spec=spec,
        weights_digest=digest,
        config_digest=hashlib.sha256(json.dumps(weights).encode()).hexdigest(),
        **about_texts(spec, tokenizer or next(iter(held), None)),
        terms=tuple((float(weight), reward) for weight, reward in terms),
    )
