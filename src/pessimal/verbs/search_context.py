"""The context of a search, what it needs of a model: its rewards as objectives, the tokens allowed, and which responses a text gives."""

import functools
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pessimal.config.schema import SearchConfig
from pessimal.models.load import RewardModel, open_model
from pessimal.models.spec import Dtype
from pessimal.scoring.candidates import vocabulary
from pessimal.scoring.mode import Mode
from pessimal.scoring.responses import ResponseScorer
from pessimal.scoring.scan import identify
from pessimal.search.allowed import allowed_tokens
from pessimal.search.evaluation_counter import GRADIENT_COST, EvaluationCounter
from pessimal.search.gcg import GCGOptions, gcg
from pessimal.search.objective import Objective, RewardObjective
from pessimal.search.round_trip import RoundTrip
from pessimal.search.starts import starts
from pessimal.tables import read_score_table
from pessimal.verbs.common import fetch, registry_of
from pessimal.verbs.trainer import make_trainer

log = logging.getLogger(__name__)

# `certain` is part of a low-precision table's provenance: the scan's default, and without certified tails.
_CERTAIN = (100, 0)


class SearchContext:
    """One model, opened; its network is loaded at first use."""

    def __init__(self, config: SearchConfig, prompts: Sequence[str]):
        self.config, self.spec = config, config.search
        self.model: RewardModel = open_model(
            config.model, fetch(config.model, cache=config.paths.cache, progress=config.progress)
        )
        self.frames = {key: self.model.frame(config.prompts[key]) for key in prompts}
        self.vocabulary = vocabulary(self.model.tokenizer, size=self.model.embedding_rows)
        listed = Path(self.spec.allowed_path).expanduser() if self.spec.allowed_path else None
        self.mask = allowed_tokens(
            self.vocabulary.rows, self.spec.allowed, size=self.model.embedding_rows, listed=listed
        )
        """bool (V,): tokens that a response may be made of."""
        self.round_trip = RoundTrip(
            self.model.tokenizer, list(self.frames.values()), closing=self.model.closing
        )
        self.device = make_trainer(config.trainer, root=config.paths.cache).strategy.root_device
        self.scorer = functools.cache(self._scorer)
        """The scorer of one prompt in one precision, kept."""
        self.advance: Callable[[int], None] = lambda evaluations: None
        """Called with the evaluations that were made, for a bar."""

    @property
    def allowed(self) -> Tensor:
        """bool (V,)"""
        return torch.from_numpy(self.mask)

    @property
    def retokenizes(self) -> Callable[[Tensor], Tensor] | None:
        """Which responses count besides the tokens allowed: in mode `text` those that a text gives."""
        return self.round_trip if self.config.mode is Mode.text else None

    def network(self) -> torch.nn.Module:
        """The network in the model's own precision."""
        return _network(self.model, self.model.spec.dtype)

    @property
    def shared_work(self) -> Path:
        """Where all that go through the pairs of this model, in this precision, keep what is finished: kept for the
        other goal and other lists of tokens, which is far less than the hour it takes."""
        model = self.model
        output = "" if model.spec.output is None else f"-{model.spec.output}"
        name = f"{model.weights_digest[:16]}-{model.config_digest[:8]}-{model.spec.dtype.value}{output}"
        return Path(self.config.paths.cache) / "pairs" / name

    @property
    def path(self) -> str:
        """The way that scores, of the first prompt."""
        return self.scorer(next(iter(self.frames)), self.model.spec.dtype).path

    def objective(self, prompts: Sequence[str], dtype: Dtype | None = None) -> Objective:
        """The mean reward over prompts, with the goal's sign, in the model's own precision or another."""
        dtype = dtype or self.model.spec.dtype
        rewards = RewardObjective([self.scorer(key, dtype) for key in prompts], self.spec.goal)
        return _Counted(rewards, self.advance)

    @property
    def expected(self) -> int:
        """Evaluations that a search will about take: how long polishing goes on is not known before."""
        spec, allowed = self.spec, int(self.mask.sum())
        if spec.length == 1:
            return spec.evaluations
        beam = (spec.length - 1) * spec.beam_width * allowed
        own = spec.evaluations + beam + 2 * spec.polish * spec.length * allowed
        return spec.evaluations + own * (4 if spec.baselines else 1)

    def own_rewards(self, prompts: Sequence[str], responses: Tensor) -> np.ndarray:
        """Mean rewards float64 (n,) of `responses` (n, L) by the model's own forward in float32, one by one, no cache."""
        return np.mean([self.scorer(key, Dtype.float32).own_rewards(responses) for key in prompts], axis=0)

    def single_rewards(self, prompts: Sequence[str]) -> tuple[np.ndarray, list[str], int]:
        """Mean rewards float64 (V,) of single tokens over prompts, NaN where not allowed; references of the score tables
        they are from; and how many evaluations were needed where there was no table."""
        rewards, references, evaluations = [], [], 0
        for key in prompts:
            scanned = self._table(key)
            if scanned is not None:
                folder, reference = scanned
                rows = read_score_table(folder).rows
                column = np.full(len(self.mask), np.nan)
                column[rows["candidate_id"]] = rows["reward"]
                references.append(reference)
                log.debug("single tokens on %s: from the scan %s", key, folder)
            else:
                column = self._scored(key)
                evaluations += int(self.mask.sum())
            rewards.append(column)
        mean = np.mean(rewards, axis=0)
        return np.where(self.mask, mean, np.nan), references, evaluations

    def _scored(self, key: str) -> np.ndarray:
        """Rewards float64 (V,) of single allowed tokens, NaN elsewhere; kept for later jobs of this process."""
        what = (*_model_key(self.model), self.model.spec.dtype, self.config.prompts[key], self.mask.tobytes())
        if what not in _SCORED:
            column = np.full(len(self.mask), np.nan)
            ids = torch.from_numpy(np.flatnonzero(self.mask)).unsqueeze(1)
            column[self.mask] = self.scorer(key, self.model.spec.dtype).rewards(ids).double().cpu().numpy()
            _SCORED[what] = column
        return _SCORED[what]

    def _table(self, key: str) -> tuple[Path, str] | None:
        """The finished scan of the vocabulary by token ids on this prompt, by exactly this model."""
        registry = registry_of(self.config)
        for certain in _CERTAIN:
            provenance = identify(
                self.model,
                prompt=key,
                prompt_text=self.config.prompts[key],
                candidates=self.vocabulary,
                mode=Mode.ids,
                certain=certain,
            )
            if table := registry.find("score-table", provenance.key()):
                return table[0], table[1].reference
        return None

    def _scorer(self, key: str, dtype: Dtype) -> ResponseScorer:
        scorer = ResponseScorer(
            _network(self.model, dtype),
            self.frames[key],
            dtype=dtype,
            device=self.device,
            length=self.spec.length,
            allowed=np.flatnonzero(self.mask),
            batch_size=self.config.batch_size,
        )
        trust = scorer.trust
        log.debug(
            "%s on %s: %s, %s; trust check: largest difference %.2g on %d",
            self.model.name, key, scorer.path, dtype.value,
            max(trust.largest_difference, scorer.common_prefix_difference), trust.n,
        )  # fmt: skip
        return scorer


class _Counted:
    """An objective that says how many evaluations were made."""

    def __init__(self, objective: Objective, advance: Callable[[int], None]):
        self.objective, self.advance = objective, advance

    def values(self, responses: Tensor, *, anchor: Tensor | None = None) -> Tensor:
        values = self.objective.values(responses, anchor=anchor)
        self.advance(len(responses))
        return values

    def gradient(self, response: Tensor) -> Tensor:
        gradient = self.objective.gradient(response)
        self.advance(GRADIENT_COST)
        return gradient


class TrialContext:
    """One search after the other at a fixed budget, in units that prompts share: what a study of options tries."""

    def __init__(self, context: SearchContext, prompts: Sequence[str]):
        self.context = context
        self.provenance = context.model.digests
        """Digests of the model: values of other weights are not to be compared with these."""
        self.objectives = {key: context.objective([key]) for key in prompts}
        self.scale = {}
        for key in prompts:
            single = context.single_rewards([key])[0]
            self.scale[key] = (float(np.nanmean(single)), float(np.nanstd(single)))

    def search(self, prompt: str, *, seed: int, budget: int) -> float:
        """What greedy coordinate gradient reaches from one random start within `budget` candidate evaluations: the best
        reward, in standard deviations of single tokens' rewards from their mean, positive towards the goal."""
        spec, context = self.context.spec, self.context
        mean, deviation = self.scale[prompt]
        sign = spec.goal.sign
        generator = torch.Generator().manual_seed(seed)
        [(_, start)] = starts(
            1, length=spec.length, allowed=context.allowed, generator=generator, winners=None, best_token=None,
            retokenizes=context.retokenizes,
        )  # fmt: skip
        best = gcg(
            EvaluationCounter(self.objectives[prompt], budget=budget),
            start,
            gcg_options(spec),
            allowed=context.allowed,
            budget=budget,
            generator=generator,
            retokenizes=context.retokenizes,
        )
        return (best.value - sign * mean) / deviation


def prepare(config: SearchConfig, prompts: list[str]) -> TrialContext:
    """The model of a configuration, ready to be searched on these prompts."""
    return TrialContext(SearchContext(config, prompts), prompts)


def gcg_options(spec) -> GCGOptions:
    """The options of greedy coordinate gradient among a search's."""
    return GCGOptions(
        search_width=spec.search_width,
        top_k=spec.top_k,
        step_size=spec.step_size,
        step_size_until=spec.step_size_until,
        momentum=spec.momentum,
        buffer_size=spec.buffer_size,
    )


# Kept from job to job, since the jobs of a sweep in one process use the same again.
_LOADED: dict[tuple, torch.nn.Module] = {}
_SCORED: dict[tuple, np.ndarray] = {}


def _network(model: RewardModel, dtype: Dtype) -> torch.nn.Module:
    """The model's network; only those of one model stay loaded."""
    mine = _model_key(model)
    for key in [key for key in _LOADED if key[:-1] != mine]:
        del _LOADED[key]
    key = (*mine, dtype)
    if key not in _LOADED:
        _LOADED[key] = model.network(dtype)
    return _LOADED[key]


def _model_key(model: RewardModel) -> tuple:
    """What a reward depends on, apart from precision and prompt."""
    return (str(model.folder), *model.digests.values(), model.spec.output)
