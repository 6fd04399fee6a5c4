"""What a search needs of a model: its rewards as objectives, the tokens allowed, and which
responses a text gives; and the searches of a study's trial.

Knows models and scorers. Does not know what is searched for, configurations or the registry.
"""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pessimal.conversation import Prompt
from pessimal.rewards.base import NetworkReward
from pessimal.rewards.ceiling import Bounds
from pessimal.rewards.network import RewardNetwork
from pessimal.rewards.spec import Dtype, Mode
from pessimal.scoring.candidates import vocabulary
from pessimal.scoring.common_prefix import ResponseScorer, SummedScorer
from pessimal.scoring.trust import numerical_noise
from pessimal.searching.allowed import allowed_tokens
from pessimal.searching.climb import GRADIENT, climb
from pessimal.searching.gcg import random_responses
from pessimal.searching.objective import EvaluationCounter, RewardObjective
from pessimal.searching.round_trip import RoundTrip
from pessimal.searching.spec import SearchSpec

TIMED = 256  # tokens by which a rate is measured
NEIGHBOURS = 64  # single changes on which noise and rate are measured, at most


class SearchContext:
    """One model to be searched on some prompts: its rewards as objectives, the tokens allowed, and
    which responses a text gives. The network is loaded at first use."""

    def __init__(
        self,
        model: NetworkReward,
        prompts: Mapping[str, Prompt],
        spec: SearchSpec,
        *,
        mode: Mode = Mode.ids,
        seed: int = 0,
        device: torch.device | str = "cpu",
        batch_size: int | None = None,
    ):
        self.model, self.prompts, self.spec = model, dict(prompts), spec
        self.mode, self.seed = mode, seed
        self.device, self.batch_size = torch.device(device), batch_size
        ways = {key: [part.conversations for part in model.parts] for key in prompts}
        self.frames = {key: [way.frame(text) for way in ways[key]] for key, text in prompts.items()}
        self.vocabulary = vocabulary(model.tokenizer, size=model.embedding_rows)
        listed = Path(spec.allowed_path).expanduser() if spec.allowed_path else None
        rows, size = self.vocabulary.rows, model.embedding_rows
        self.mask = allowed_tokens(rows, spec.allowed, size=size, listed=listed)
        """bool (V,): tokens that a response may be made of."""
        pairs = [pair for key in prompts for pair in zip(ways[key], self.frames[key], strict=True)]
        self.round_trip = RoundTrip(model.tokenizer, dict.fromkeys(pairs))
        self.scorer = functools.cache(self._scorer)
        """The scorer of one prompt in one precision, kept."""
        self.scanned: Callable[[str], tuple[np.ndarray, str] | None] = lambda key: None
        """Rewards float64 (V,) of single tokens on a prompt and where they are from, where a scan
        has them."""

    @property
    def allowed(self) -> Tensor:
        """bool (V,)"""
        return torch.from_numpy(self.mask)

    @property
    def retokenizes(self) -> RoundTrip | None:
        """Which responses count besides the tokens allowed: in mode `text` those that a text
        gives."""
        return self.round_trip if self.mode is Mode.text else None

    @property
    def dtype(self) -> Dtype:
        return self.model.spec.dtype

    def network(self) -> RewardNetwork:
        """The first part's, in the model's own precision."""
        return _network(self.model, self.dtype)

    def objective(self, prompts: Sequence[str] = (), dtype: Dtype | None = None) -> RewardObjective:
        """The mean reward over some prompts or all, with the goal's sign, in the model's own
        precision or another."""
        scorers = [self.scorer(key, dtype or self.dtype) for key in prompts or self.prompts]
        return RewardObjective(scorers, self.spec.goal)

    @property
    def bounds(self) -> Bounds:
        """How far the reward of any response can go, in float32."""
        return self.scorer(next(iter(self.prompts)), Dtype.float32).bounds

    def own_rewards(self, responses: Tensor) -> np.ndarray:
        """Mean rewards float64 (n,) of `responses` (n, L) by the model's own forward in float32,
        one by one, no cache."""
        scorers = [self.scorer(key, Dtype.float32) for key in self.prompts]
        return np.mean([scorer.own_rewards(responses) for scorer in scorers], axis=0)

    def single_rewards(
        self, prompts: Sequence[str] = (), *, most: float = np.inf
    ) -> tuple[np.ndarray, list[str], int] | None:
        """Mean rewards float64 (V,) of single tokens, NaN where not allowed; references of the
        tables they are from; and the evaluations where there was no table. None where these would
        be more than `most`."""
        scanned = {key: self.scanned(key) for key in prompts or self.prompts}
        evaluations = 0 if all(scanned.values()) else int(self.mask.sum())
        if evaluations > most:
            return None
        rewards = [table[0] if table else self._scored(key) for key, table in scanned.items()]
        references = [table[1] for table in scanned.values() if table]
        return np.where(self.mask, np.mean(rewards, axis=0), np.nan), references, evaluations

    @property
    def samples(self) -> int:
        """Single changes on which the noise is measured, as many as the budget has room for."""
        return max(2, min(NEIGHBOURS, self.spec.evaluations // 200))

    def token_rate(self) -> float:
        """Single tokens a second, on the first prompt; counts to no budget."""
        scorer = self.scorer(next(iter(self.prompts)), self.dtype)
        tokens = self.allowed.nonzero()[:TIMED]
        scorer.rewards(tokens).sum().item()  # as the first call of a network is slower
        began = time.perf_counter()
        scorer.rewards(tokens).sum().item()
        return len(tokens) / (time.perf_counter() - began)

    def noise(self, dtype: Dtype, *, at: Tensor | None = None) -> tuple[float, float]:
        """Bound on the numerical error of a value in this precision, and evaluations a second:
        random single changes of one response (L,), with a common prefix, against the model's own
        forward (for low precision, against the engine without an anchor: rounding of the weights is
        no noise between responses). Takes 2 × `samples` evaluations."""
        anchor, changed = self._changes(self.samples, at=at)
        errors, seconds = [], 0.0
        for key in self.prompts:
            scorer = self.scorer(key, dtype)
            began = time.perf_counter()
            rewards = scorer.rewards(changed, anchor=anchor).double().cpu().numpy()
            seconds += time.perf_counter() - began
            if dtype is Dtype.float32:
                own = scorer.own_rewards(changed)
            else:
                alone = torch.cat([scorer.rewards(row) for row in changed.split(1)])
                own = alone.double().cpu().numpy()
            errors.append(numerical_noise(rewards, own))
        return max(errors), len(changed) / seconds

    def _changes(self, n: int, *, at: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """A response (L,), and n random single changes of it (n, L)."""
        length, generator = self.spec.length, torch.Generator().manual_seed(0)
        draw = functools.partial(random_responses, allowed=self.allowed, generator=generator)
        anchor = draw(1, length=length)[0] if at is None else at
        changed, rows = anchor.repeat(n, 1), torch.arange(n)
        changed[rows, rows % length] = draw(n, length=1)[:, 0]
        return anchor, changed

    def _scored(self, key: str) -> np.ndarray:
        """Rewards float64 (V,) of single allowed tokens, NaN elsewhere; kept for later jobs of this
        process."""
        what = (*_model_key(self.model), self.dtype, self.prompts[key], self.mask.tobytes())
        if what not in _SCORED:
            ids = torch.from_numpy(np.flatnonzero(self.mask)).unsqueeze(1)
            column = np.full(len(self.mask), np.nan)
            column[self.mask] = self.scorer(key, self.dtype).rewards(ids).double().cpu().numpy()
            _SCORED[what] = column
        return _SCORED[what]

    def _scorer(self, key: str, dtype: Dtype) -> ResponseScorer | SummedScorer:
        scorers = [
            ResponseScorer(
                _network(self.model, dtype, part.network),
                frame,
                dtype=dtype,
                device=self.device,
                length=self.spec.length,
                allowed=np.flatnonzero(self.mask),
                batch_size=self.batch_size,
            )
            for part, frame in zip(self.model.parts, self.frames[key], strict=True)
        ]
        weights = [part.weight for part in self.model.parts]
        if weights == [1.0]:
            return scorers[0]
        return SummedScorer(list(zip(weights, scorers, strict=True)))


class TrialContext:
    """One gradient search after the other at a fixed budget, in units that prompts share."""

    def __init__(self, context: SearchContext, prompts: Sequence[str]):
        self.context = context
        self.provenance = context.model.digests  # values of other weights are not to be compared
        self.objectives = {key: context.objective([key]) for key in prompts}
        self.scale = {
            key: (float(np.nanmean(single[0])), float(np.nanstd(single[0])))
            for key in prompts
            if (single := context.single_rewards([key])) is not None  # without `most`, always
        }

    def search(self, prompt: str, *, seed: int, budget: int) -> float:
        """What the gradient's draws alone reach from a random start within `budget` candidate
        evaluations: the best reward, in standard deviations of single tokens' rewards from their
        mean, positive towards the goal."""
        spec = self.context.spec
        mean, deviation = self.scale[prompt]
        counter = EvaluationCounter(self.objectives[prompt], budget=budget)
        climb(
            counter,
            spec,
            length=spec.length,
            allowed=self.context.allowed,
            generator=torch.Generator().manual_seed(seed),
            retokenizes=self.context.retokenizes,
            ways=(GRADIENT,),
        )
        return (counter.best.value - spec.goal.sign * mean) / deviation


# Kept from job to job, since the jobs of a sweep in one process use the same again.
_LOADED: dict[tuple, RewardNetwork] = {}
_SCORED: dict[tuple, np.ndarray] = {}


def _network(model: NetworkReward, dtype: Dtype, which: int = 0) -> RewardNetwork:
    """A network of the model; only those of one model stay loaded."""
    this = _model_key(model)
    for key in [key for key in _LOADED if key[:-2] != this]:
        del _LOADED[key]
    key = (*this, dtype, which)
    if key not in _LOADED:
        _LOADED[key] = model.network(dtype, which)
    return _LOADED[key]


def _model_key(model: NetworkReward) -> tuple:
    """What a reward depends on, apart from precision and prompt."""
    return (str(model.folder), *model.digests.values(), model.spec.output)
