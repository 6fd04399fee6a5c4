"""A weighted sum of rewards: a rubric of judges, functions with weights, a panel whose further
members have a weight of 0.

Knows its terms. Does not know how they are scored: `scoring` does.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic.dataclasses import dataclass as options_dataclass

from pessimal.errors import ConfigError
from pessimal.rewards.base import Reward
from pessimal.rewards.callable import CallableReward, about_texts, read_tokenizer
from pessimal.rewards.named import spec_of
from pessimal.rewards.obtain import fetch_files, open_reward
from pessimal.rewards.spec import ModelSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@options_dataclass
class SumSpec(ModelSpec):
    """A weighted sum of rewards of any kinds."""

    takes_tasks: ClassVar[bool] = True

    kind: str = "sum"
    parts: list[Any] = field(default_factory=list)
    """The terms, each a model's name as it is typed, or its options with `weight` (1 where not
    given), such as {model: org/name, weight: 0.5}. A weight of 0 is scored and not added."""
    tasks: str | None = None
    """JSONL file of tasks, whose columns the functions among the terms are given."""

    def check(self) -> None:
        super().check()
        if not self.parts:
            raise ConfigError("give model.parts=[{model: org/name, weight: 0.5}, {model: f.py:f}]")

    @property
    def terms(self) -> list[ModelSpec]:
        """The models whose files a sum needs. ConfigError where one is no model."""
        return [spec for _, spec in self.weighted()]

    @property
    def has_vocabulary(self) -> bool:
        """Whether a tokenizer comes with the sum or with one of its terms."""
        return self.tokenizer is not None or any(spec.has_vocabulary for spec in self.terms)

    def weighted(self) -> list[tuple[float, ModelSpec]]:
        """Weight and model of each term.

        Raises:
            ConfigError: one is no model, or its weight no number.
        """
        return [_read_term(part, self.tasks) for part in self.parts]

    def open(self, folder: Path | None, *, cache: str) -> "SumReward":
        """The sum; the files of every term are fetched before the first is opened."""
        specs = self.weighted()
        for _, spec in specs:
            fetch_files(spec, cache=cache)
        tokenizer = read_tokenizer(self)
        rewards = [(weight, open_reward(spec, cache=cache)) for weight, spec in specs]
        return sum_of(rewards, spec=self, tokenizer=tokenizer)


def _read_term(part: Any, tasks: str | None) -> tuple[float, ModelSpec]:
    options = part if isinstance(part, Mapping) else {"model": part}
    changes = {str(name): value for name, value in options.items()}
    weight, name = changes.pop("weight", 1.0), changes.pop("model", None)
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not is_number or not isinstance(name, str | None):
        raise ConfigError(f"model.parts: {part!r} is no term, such as {{model: NAME, weight: 1}}")
    return float(weight), spec_of(name, **changes).add_tasks(tasks)


@dataclass(frozen=True)
class SumReward(Reward):
    """Σ weight · reward. A term that does not apply to a response adds nothing, as in TRL; a sum of
    none does not apply."""

    weighted: tuple[tuple[float, Reward], ...]

    @property
    def terms(self) -> tuple[tuple[float, Reward], ...]:
        """Weights and rewards that it is the sum of."""
        return self.weighted

    @property
    def origin(self) -> str:
        """`sum:NAME@sha256:DIGEST` (of its terms)."""
        return f"sum:{self.name}@sha256:{self.weights_digest[:16]}"

    @property
    def functions(self) -> tuple[CallableReward, ...]:
        """The functions among its terms."""
        return tuple(function for _, term in self.terms for function in term.functions)

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
    spec: SumSpec | None = None,
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
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"two terms of a sum are called {twice[0]!r}: give each its own name")
    weights = [float(weight) for weight, _ in terms]
    if not any(weights) or not all(map(math.isfinite, weights)):
        raise ConfigError(f"weights={weights}: give finite numbers, and not 0 to all")
    if spec is None:
        pairs = zip(names, weights, strict=True)
        parts = [{"model": term, "weight": weight} for term, weight in pairs]
        spec = SumSpec(name=name or "+".join(names), parts=parts)
    tokenizers = [tokenizer, *(reward.tokenizer for _, reward in terms)]
    pinned = [(weight, reward.digests) for weight, reward in terms]
    digest = hashlib.sha256(json.dumps(pinned, sort_keys=True).encode()).hexdigest()
    return SumReward(
        spec=spec,
        weights_digest=digest,
        config_digest=hashlib.sha256(json.dumps(weights).encode()).hexdigest(),
        **about_texts(spec, next((each for each in tokenizers if each is not None), None)),
        weighted=tuple((float(weight), reward) for weight, reward in terms),
    )
