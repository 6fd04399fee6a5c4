"""The needs of a search of a model: its rewards as objectives, the tokens allowed, and the
responses that a text gives.

Knows models and scorers. Does not know what is searched for, configurations or the registry.
"""

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pessimal.conversation import MARK, Asked, Context, Turn, filled, turns_of
from pessimal.errors import ConfigError
from pessimal.rewards.base import NetworkReward
from pessimal.rewards.ceiling import Bounds
from pessimal.rewards.frame import shared_ids, slot_frame
from pessimal.rewards.log_probability import LogProbability
from pessimal.rewards.network import RewardNetwork
from pessimal.rewards.spec import Dtype, Mode
from pessimal.scoring.candidates import vocabulary
from pessimal.scoring.common_prefix import ResponseScorer, SummedScorer
from pessimal.scoring.identify import check_slot
from pessimal.scoring.texts import text_scorer
from pessimal.scoring.trust import numerical_noise
from pessimal.searching.allowed import RoundTrip, allowed_tokens
from pessimal.searching.climb import random_responses
from pessimal.searching.objective import (
    EditObjective,
    Edits,
    FluentObjective,
    Journal,
    Objective,
    RewardObjective,
)
from pessimal.searching.spec import Goal, Method, SearchSpec, Slot

NO_TEXT = -1000.0  # nats, of a response without a text
TIMED = 256  # tokens by which a rate is measured
NEIGHBOURS = 64  # single changes on which noise and rate are measured, at most


class SearchContext:
    """One model to be searched on some prompts, or in slots of some answers: its rewards as
    objectives, the tokens allowed, and which responses a text gives. The network is loaded at first
    use."""

    def __init__(
        self,
        model: NetworkReward,
        prompts: Mapping[str, Asked],
        spec: SearchSpec,
        *,
        mode: Mode = Mode.ids,
        seed: int = 0,
        device: torch.device | str = "cpu",
        batch_size: int | None = None,
        held_out: Mapping[str, Asked] | None = None,
        policy: LogProbability | None = None,
        prompts_name: str | None = None,
        is_policy: bool = False,
    ):
        """
        Args:
            held_out: what the result is scored on besides.
            policy: a language model, of `spec.fluency`.
            prompts_name: what the prompts are called together.
            is_policy: the model is another search's policy, of which only the response's own
                log-probability counts, wherever it stands.
        """
        self.model, self.spec = model, spec
        self.prompts = {key: asked_of(prompt, spec) for key, prompt in prompts.items()}
        self.held_out = {key: asked_of(prompt, spec) for key, prompt in (held_out or {}).items()}
        self.policy, self.prompts_name = policy, prompts_name or "+".join(prompts)
        self.mode, self.seed = mode, seed
        self.device, self.batch_size = torch.device(device), batch_size
        if spec.fluency and policy is None:
            raise ConfigError(f"search.fluency={spec.fluency:g} needs a model: type policy=NAME")
        self.vocabulary = vocabulary(model.tokenizer, size=model.embedding_rows)
        listed = Path(spec.allowed_path).expanduser() if spec.allowed_path else None
        rows, size = self.vocabulary.rows, model.embedding_rows
        self.mask = allowed_tokens(rows, spec.allowed, size=size, listed=listed)
        """bool (V,): tokens that a response may be made of."""
        for prompt in self.prompts.values():
            if isinstance(prompt, Context) and not is_policy:
                check_slot(model, prompt, mode)
        ways = [part.conversations for part in model.parts]
        self.frames = {
            key: [slot_frame(way, prompt, model.tokenizer) for way in ways]
            for key, prompt in self.prompts.items()
        }
        pairs = [pair for frames in self.frames.values() for pair in zip(ways, frames, strict=True)]
        self.edits: Edits | None = None
        """The changes that the ids of a response stand for, with search.slot=edit."""
        if spec.slot is Slot.edit and spec.answer:
            ids = shared_ids(spec.answer, pairs)
            if not ids:
                reason = "has not the same tokens in all prompts, or none: search one prompt"
                raise ConfigError(f"search.slot=edit: search.answer={spec.answer!r:.60} {reason}")
            self.edits = Edits(ids, size)
        whole = self.edits.apply if self.edits else None
        self.round_trip = RoundTrip(model.tokenizer, dict.fromkeys(pairs), whole)
        self.scorer = functools.cache(self._scorer)
        """The scorer of one prompt in one precision, kept."""
        self.fluent: SearchContext | TextLikelihood | None = None
        """The policy of search.fluency, by tokens where they are the model's, else by texts."""
        if spec.fluency and policy is not None:
            bare = replace(spec, goal=Goal.optimal, fluency=0.0, slot=None, answer=None)
            among: dict[str, Any] = {"device": self.device, "batch_size": batch_size}
            if policy.tokenizer.get_vocab() == model.tokenizer.get_vocab():
                bare = replace(bare, length=spec.length + self.longer)
                self.fluent = SearchContext(policy, self.prompts, bare, is_policy=True, **among)
            else:
                self.fluent = TextLikelihood(policy, self.prompts, model, **among)
        self.scanned: Callable[[str], tuple[np.ndarray, str] | None] = lambda key: None
        """Rewards float64 (V,) of single tokens on a prompt and where they are from, where a scan
        has them."""

    @property
    def allowed(self) -> Tensor:
        """bool (V,); of changes of an answer, one for each change."""
        tokens = torch.from_numpy(self.mask)
        return self.edits.allowed(tokens) if self.edits else tokens

    @property
    def named_slot(self) -> str | None:
        """`edit`, or where the response stands in an answer: after, before, inside; None for the
        whole answer."""
        if self.edits:
            return "edit"
        return next((a.slot for a in self.prompts.values() if isinstance(a, Context)), None)

    @property
    def longer(self) -> int:
        """Tokens that what is scored has besides the response's, at most."""
        return len(self.edits.answer) if self.edits else 0

    @property
    def is_scan(self) -> bool:
        """Whether all responses are single tokens, which are gone through whatever it costs."""
        whole = self.spec.length == 1 and self.edits is None
        return whole and self.spec.method is Method.all

    @property
    def retokenizes(self) -> RoundTrip | None:
        """The filter of responses besides the tokens allowed: in mode `text` those that a text
        gives."""
        return self.round_trip if self.mode is Mode.text else None

    @property
    def dtype(self) -> Dtype:
        return self.model.spec.dtype

    def network(self) -> RewardNetwork:
        """The first part's, in the model's own precision."""
        return _network(self.model, self.dtype)

    def objective(self, dtype: Dtype | None = None, folder: Path | None = None) -> Objective:
        """The mean reward over all prompts, with the goal's sign, in the model's own
        precision or another; with the policy's share, and by the changes of an answer, where these
        are asked for. Values are stored in the folder."""
        dtype = dtype or self.dtype
        scorers = [self.scorer(key, dtype) for key in self.prompts]
        objective: Objective = RewardObjective(scorers, self.spec.goal)
        if folder:
            objective = Journal(objective, folder / f"evaluations-{dtype.value}")
        if self.fluent is not None:
            likely = self.fluent.objective(dtype=dtype, folder=folder and folder / "policy")
            objective = FluentObjective(objective, likely, self.spec.fluency)
        return EditObjective(objective, self.edits) if self.edits else objective

    @property
    def bounds(self) -> Bounds:
        """The bounds of the reward of any response, in float32."""
        return self.scorer(next(iter(self.prompts)), Dtype.float32).bounds

    def own_rewards(self, responses: Tensor) -> np.ndarray:
        """Mean rewards float64 (n,) of `responses` (n, L) by the model's own forward in float32,
        one by one, no cache."""
        scorers = [self.scorer(key, Dtype.float32) for key in self.prompts]
        rows = self._whole(responses)
        each = [np.concatenate([scorer.own_rewards(ids) for ids in rows]) for scorer in scorers]
        return np.mean(each, axis=0)

    def likelihoods(self, responses: Tensor) -> np.ndarray:
        """Mean log-probabilities float64 (n,) by the policy's own forward; 0 where fluency is not
        asked for."""
        if self.fluent is None:
            return np.zeros(len(responses))
        return np.concatenate([self.fluent.own_rewards(ids) for ids in self._whole(responses)])

    def _whole(self, responses: Tensor) -> list[Tensor]:
        """The scored ids of responses (n, L), one after the other; of one length together."""
        if self.edits is None:
            return [responses]
        return [torch.tensor([ids]) for ids in self.edits.apply(responses)]

    def own_values(self, responses: Tensor) -> np.ndarray:
        """Values float64 (n,) by own forwards: sign × reward, and the policy's share."""
        likely = self.spec.fluency * self.likelihoods(responses)
        return self.spec.goal.sign * self.own_rewards(responses) + likely

    def scanned_rewards(self) -> tuple[np.ndarray, list[str]] | None:
        """Mean rewards float64 (V,) of single tokens, NaN where not allowed, and references of the
        tables they are from; None where not every prompt was scanned, and where what is searched is
        not their reward."""
        if self.edits or self.fluent:
            return None
        tables = [table for key in self.prompts if (table := self.scanned(key))]
        if len(tables) < len(self.prompts):
            return None
        rewards, references = zip(*tables, strict=True)
        return np.where(self.mask, np.mean(rewards, axis=0), np.nan), list(references)

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
        objective, began = self.objective(dtype=dtype), time.perf_counter()
        values = objective.values(changed, anchor=anchor)
        seconds = time.perf_counter() - began
        if dtype is Dtype.float32:
            exact = self.own_values(changed)
        else:
            exact = torch.cat([objective.values(row) for row in changed.split(1)]).numpy()
        return numerical_noise(values.numpy(), exact), len(changed) / seconds

    def _changes(self, n: int, *, at: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """A response (L,), and n random single changes of it (n, L)."""
        length, generator = self.spec.length, torch.Generator().manual_seed(0)
        draw = functools.partial(random_responses, allowed=self.allowed, generator=generator)
        anchor = draw(1, length=length)[0] if at is None else at
        changed, rows = anchor.repeat(n, 1), torch.arange(n)
        changed[rows, rows % length] = draw(n, length=1)[:, 0]
        return anchor, changed

    def _scorer(self, key: str, dtype: Dtype) -> ResponseScorer | SummedScorer:
        scorers = [
            ResponseScorer(
                # Transformers' own method refuses quantised networks, which are there already.
                torch.nn.Module.to(_network(self.model, dtype, part.network), self.device),
                frame,
                dtype=dtype,
                device=self.device,
                length=self.spec.length + self.longer,
                allowed=np.flatnonzero(self.mask),
                batch_size=self.batch_size,
            )
            for part, frame in zip(self.model.parts, self.frames[key], strict=True)
        ]
        weights = [part.weight for part in self.model.parts]
        if weights == [1.0]:
            return scorers[0]
        return SummedScorer(list(zip(weights, scorers, strict=True)))


class TextLikelihood:
    """Log-probabilities of token ids as texts, by a policy with tokens of its own: without a
    gradient."""

    def __init__(
        self,
        policy: LogProbability,
        prompts: Mapping[str, Asked],
        model: NetworkReward,
        **options: Any,
    ):
        self.prompts, self.rows = list(prompts.values()), model.embedding_rows
        self.text_of = RoundTrip(model.tokenizer, {}).text_of
        self.scorer = text_scorer(policy, [filled(self.prompts[0], " good")], **options)

    def objective(self, dtype: Dtype, folder: Path | None = None) -> Objective:
        return Journal(self, folder / "texts") if folder else self

    def values(self, responses: Tensor, *, anchor: Tensor | None = None) -> Tensor:
        """Mean log-probabilities (n,) over what is asked; NO_TEXT where there is no text."""
        texts = self.text_of(responses)
        some = [text for text in texts if text]
        values = torch.full((len(texts),), NO_TEXT, dtype=torch.float64)
        if some:
            filled_prompts = ([filled(prompt, text) for text in some] for prompt in self.prompts)
            each = [self.scorer.rewards(conversations) for conversations in filled_prompts]
            values[[bool(text) for text in texts]] = torch.from_numpy(np.mean(each, axis=0))
        return values

    def own_rewards(self, responses: Tensor) -> np.ndarray:
        return self.values(responses).numpy()

    def gradient(self, response: Tensor) -> Tensor:
        return torch.zeros(len(response), self.rows)


def asked_of(prompt: Asked, spec: SearchSpec) -> Asked:
    """The place of a response: the slot of a given answer to the prompt, where the options have
    one to be kept."""
    if spec.answer is None or spec.slot is Slot.edit or isinstance(prompt, Context):
        return prompt
    before, mark, after = (
        spec.answer.partition(MARK) if spec.slot is None else (spec.answer, "", "")
    )
    at = len(before) if mark or spec.slot is Slot.after else 0
    turns = (*turns_of(prompt), Turn("assistant", before + after))
    return Context(turns, len(turns) - 1, at)


# Kept from job to job, since the jobs of a sweep in one process use the same again.
_LOADED: dict[tuple, RewardNetwork] = {}


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
    """The key of a reward, apart from precision and prompt."""
    return (str(model.folder), *model.digests.values(), model.spec.output)
