"""One network, one frame: chooses the engine, checks it, and scores batches with it; and the
ceiling of a reward on that path: what its head reads, and how far that can go.

Where pessimal reads the head, the final norm and the head are known parts, and every reward is the
head of what that norm gives. Where the model's own forward scores, its last linear layer is found
by what goes in and comes out on a few random inputs, and bounded where what it reads is a norm's
output or a tanh. Knows engines and the trust check. Does not know tables, files or Lightning.
"""

import contextlib
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from pessimal.errors import FrameError, ModelError, UserError
from pessimal.rewards.base import NetworkReward
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
    unbounded,
    unit_box_interval,
    weighted_sum,
)
from pessimal.rewards.frame import Frame
from pessimal.rewards.heads import Head, float32_copy
from pessimal.rewards.heads.gated import GatedHead
from pessimal.rewards.language import JudgeNetwork, LanguageNetwork
from pessimal.rewards.network import RewardNetwork
from pessimal.rewards.spec import Dtype
from pessimal.scoring.candidates import Inputs, batches, frame_responses, vocabulary
from pessimal.scoring.engine import (
    Decoder,
    Engine,
    FullForward,
    OwnForward,
    SharedPrefix,
    own_rewards,
    prefix_context,
)
from pessimal.scoring.sequence import FullSequence, SharedSequence
from pessimal.scoring.trainer import within_memory
from pessimal.scoring.trust import (
    SAMPLE,
    Trust,
    allowed,
    judge,
    largest_difference,
    sample_rows,
)

log = logging.getLogger(__name__)


class FrameScorer:
    """Scores inputs of one network inside one frame, by the fastest engine that gives the model's
    own rewards."""

    @torch.no_grad()
    def __init__(self, network: RewardNetwork, frame: Frame, *, device: torch.device):
        """FrameError where the template writes ids that the network has no embedding of."""
        rows = network.config.get_text_config().vocab_size
        highest = max((*frame.prefix, *frame.suffix), default=0)
        if highest >= rows:
            raise FrameError(
                f"the chat template writes the token id {highest}, and the network's embedding has "
                f"{rows} rows: tokenizer and weights do not belong together. Put the tokenizer "
                "that it was trained with into its folder"
            )
        self.network, self.frame, self.device = network, frame, device
        self.trust: Trust | None = None
        """Result of `establish_trust`."""
        self.elsewhere = 0.0
        """Where the frame holds the configuration's pad token: the largest difference, in standard
        deviations of a sample's rewards, to what the network's own class reads then."""
        prefix = torch.tensor(frame.prefix, dtype=torch.long, device=device)
        self.own_forward = OwnForward(network, prefix, typed=frame.typed, answer=frame.answer)
        self.engines: list[Engine] = [*self._fast_engines(prefix), self.own_forward]
        while len(self.engines) > 1 and not self._runs(self.engines[0], prefix):
            self.engines.pop(0)
        """From the fastest to the model's own forward; the first is in use."""

    @property
    def attention(self) -> str:
        """Name of the path in use."""
        return self.engines[0].name

    @property
    def coefficients(self) -> np.ndarray | None:
        """Coefficients of a gated head by objective (objectives,) on this prompt; None for other
        heads, and where the network's own forward scores."""
        engine = self.engines[0]
        context = getattr(engine, "context", None)
        if context is None or not isinstance(engine, SharedPrefix | FullForward):
            return None
        head = engine.decoder.head
        assert isinstance(head, GatedHead)
        return head.coefficients(context).double().cpu().numpy()

    def bounds(self, column: int | None = None) -> Bounds:
        """Bounds on the reward of any response, by the path in use; `column` says which of several
        outputs."""
        return bounds_by(self.engines[0], column=column, suffix=self.frame.suffix)

    @torch.no_grad()
    def rewards(self, ids: Tensor, *, shared: int) -> Tensor:
        """Rewards (batch,) float32 of the prefix's first `shared` ids followed by `ids` (batch,
        length); (batch, outputs) where every output is scanned."""
        return within_memory(functools.partial(self.engines[0].rewards, shared=shared), ids)

    def score_rows(self, inputs: Inputs, rows: np.ndarray, *, batch_size: int) -> np.ndarray:
        """Rewards float64 (n,) of some `rows` (n,) of `inputs`, outside any loop."""
        return self._engine_rewards(inputs, rows, self.engines[0], batch_size)

    def own_rewards(self, inputs: Inputs, rows: np.ndarray) -> np.ndarray:
        """Rewards float64 (n,) of some `rows` (n,) of `inputs`: the model's own forward, batch 1,
        no cache."""
        return self._engine_rewards(inputs, rows, self.own_forward, 1)

    def establish_trust(self, inputs: Inputs, *, dtype: Dtype) -> np.ndarray:
        """Compare with the model's own forward on the sample of `sample_rows` (n = SAMPLE, seed =
        0); take the next slower engine where it differs. Gives its own rewards, float64 (n,)."""
        rows = sample_rows(inputs.kinds, n=SAMPLE, seed=0)
        sample_rewards = expected = self.own_rewards(inputs, rows)
        # The loop ends at a reward that is not a number, and names the candidate.
        finite = np.isfinite(expected).reshape(len(expected), -1).all(axis=1)
        if not finite.any():
            return sample_rewards
        rows, expected = rows[finite], expected[finite]

        self.elsewhere = self._elsewhere(inputs, rows, expected)

        score = functools.partial(self._engine_rewards, inputs, rows)

        def rounding() -> float:
            full = next(engine for engine in self.engines if engine.name != SharedPrefix.name)
            ways = [score(full, 1), score(self.own_forward, SAMPLE)]
            return max(largest_difference(rewards, expected) for rewards in ways)

        self.trust = first_trusted(
            self.network, self.engines, expected, score, rounding=rounding, dtype=dtype
        )
        if not self.trust.holds:
            log.warning(
                "The model's own forward differs between batches of one and of %d by %.3g "
                "(allowed: %.3g); the table records it. `pessimal check` says more.",
                SAMPLE,
                self.trust.largest_difference,
                self.trust.tolerance,
            )
        return sample_rewards

    @torch.no_grad()
    def _elsewhere(self, inputs: Inputs, rows: np.ndarray, expected: np.ndarray) -> float:
        pad = self.network.config.get_text_config().pad_token_id
        frame_responses = pad in (*self.frame.prefix, *self.frame.suffix)
        if not frame_responses or self.frame.typed or isinstance(self.network, LanguageNetwork):
            return 0.0
        published = [
            own_rewards(self.network, ids, n_response=int(inputs.lengths[row]), own_position=True)
            for row in rows
            for ids in [torch.tensor([inputs.ids(row)], device=self.device)]
        ]
        apart = np.abs(torch.cat(published).double().cpu().numpy() - expected)
        wrong = apart.max() > allowed(expected, dtype=Dtype.bfloat16)  # or it is rounding
        return float((apart.max(axis=0) / expected.std(axis=0).clip(1e-6)).max()) if wrong else 0.0

    def _runs(self, engine: Engine, prefix: Tensor) -> bool:
        """Whether an engine can run this network at all; says so where it cannot."""
        if not len(prefix):
            return True
        try:
            engine.rewards(prefix[-1:].expand(1, 2), shared=len(prefix))
        except (UserError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            log.warning(
                "The %s engine does not run %s (%s: %s); taking a slower one.",
                engine.name,
                type(self.network).__name__,
                type(error).__name__,
                error,
            )
            return False
        return True

    def _fast_engines(self, prefix: Tensor) -> list[Engine]:
        decoder = Decoder.find(self.network)
        if decoder is None:
            return []
        decoder.exact_norm.to(self.device)
        decoder.head.to(self.device)
        suits = SharedPrefix.suits(self.network)
        if decoder.head.sequence:
            full = FullSequence(decoder, prefix)
            return [SharedSequence.from_prefix(decoder, prefix), full] if suits else [full]
        shareable = suits and len(prefix)
        if not shareable and not decoder.head.gated:
            return [FullForward(decoder, prefix)]
        keys_and_values, context = prefix_context(decoder, prefix)
        forward = FullForward(decoder, prefix, context)
        if not shareable:
            return [forward]
        return [SharedPrefix(decoder, keys_and_values, context), forward]

    @torch.no_grad()
    def rewards_by(self, engine: Engine, inputs: Inputs, plan: Iterable[np.ndarray]) -> np.ndarray:
        """Rewards float64 (rows,) by one engine, in the batches of rows that `plan` lists; NaN for
        rows in none."""
        rewards = np.full(len(inputs), np.nan)
        for batch in plan:
            ids = torch.from_numpy(inputs.batch(batch)).to(self.device)
            values = engine.rewards(ids, shared=int(inputs.shared[batch[0]]))
            if values.dim() > rewards.ndim:
                rewards = np.full((len(inputs), values.shape[1]), np.nan)
            rewards[batch] = values.double().cpu().numpy()
        return rewards

    def _engine_rewards(
        self, inputs: Inputs, rows: np.ndarray, engine: Engine, batch_size: int
    ) -> np.ndarray:
        """Rewards float64 (n,) of some `rows` (n,) by one engine."""
        return self.rewards_by(engine, inputs, batches(inputs, size=batch_size, rows=rows))[rows]


def first_trusted(
    network: RewardNetwork,
    engines: list[Engine],
    expected: np.ndarray,
    by: Callable[[Engine, int], np.ndarray],
    *,
    rounding: Callable[[], float],
    dtype: Dtype,
) -> Trust:
    """Drop engines from the front of the list until the first gives the model's own rewards (n,) of
    a sample, the `expected` ones, or is the last; the check's result. `by` gives the sample's
    rewards (n,) by an engine in batches of some size; `rounding`, by how much full forwards differ
    from `expected`, is asked for in low precision alone."""
    if getattr(getattr(network, "causal", network), "is_loaded_in_8bit", False):
        dtype = Dtype.bfloat16  # int8 rounds what goes into each layer, about as much
    rounds = 0.0 if dtype is Dtype.float32 else rounding()
    while True:
        engine = engines[0]
        single = by(engine, 1)
        batched, repeated = (by(engine, SAMPLE) for _ in range(2))
        trust = judge(expected, single, batched, repeated, rounding=rounds, dtype=dtype)
        if trust.holds or len(engines) == 1:
            return trust
        log.warning(
            "The %s engine differs from the model's own forward by %.3g (allowed: %.3g) on %d "
            "random inputs. Falling back to %s: slower, but the model's own arithmetic.",
            engine.name,
            trust.largest_difference,
            trust.tolerance,
            trust.n,
            engines[1].name,
        )
        engines.pop(0)


def ceiling(
    model: NetworkReward,
    *,
    device: torch.device,
    network: Callable[[int], RewardNetwork] | None = None,
) -> Bounds:
    """Bounds on the reward of any response to any prompt, by the path that a scan would take: one
    that gives the model's own rewards of some random responses.

    `network` gives the networks that are loaded already, by their numbers.
    """
    words, random = vocabulary(model.tokenizer, size=model.embedding_rows), np.random.default_rng(0)
    ids = words.rows.loc[words.rows["kind"] == "normal", "candidate_id"].to_numpy()
    responses = [random.choice(ids, size=1 + n % 4) for n in range(SAMPLE // 2)]
    terms = []
    for part in model.parts:
        frame = part.conversations.frame("Why?")
        loaded = network(part.network) if network else model.network(which=part.network)
        scorer = FrameScorer(loaded.to(device), frame, device=device)
        scorer.establish_trust(frame_responses(frame, responses), dtype=model.spec.dtype)
        terms.append((part.weight, scorer.bounds()))
    return weighted_sum(terms)


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
        bounds = _own_forward_bounds(engine, column, suffix)
    else:
        bounds = unbounded(NO_HEAD) if decoder is None else _decoder_bounds(decoder, column)
    exact = network is None or network.dtype in (torch.float32, torch.float64)
    return bounds if exact else bounds.widened(LOW_PRECISION)


def _decoder_bounds(decoder: Decoder, column: int | None) -> Bounds:
    head, width = decoder.head, decoder.network.config.get_text_config().hidden_size
    if not isinstance(head, Head):
        return unbounded(NO_HEAD)
    states = NormalisedStates.probe_norm(decoder.exact_norm, width)
    if states is None:
        return unbounded(NO_NORM)
    return _bounds(head.bounds(states), head.output if column is None else column, NORMALISED)


def _bounds(interval: Interval | None, column: int | slice, how: str) -> Bounds:
    if interval is None or isinstance(column, slice):
        return unbounded(NO_HEAD)
    return Bounds(float(interval[0][column]), float(interval[1][column]), how)


# --- The model's own forward: which layer gives the reward, and what it reads.


class _Call:
    """Input and output of a module, in one forward: rows (positions, width)."""

    def __init__(self, module: nn.Module, inputs: Any, output: Any):
        self.module = module
        self.input, self.output = _rows(inputs[0] if inputs else None), _rows(output)


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
                    lambda module, inputs, output: calls.append(_Call(module, inputs, output))
                )
                hooks.callback(handle.remove)
        yield calls


@torch.no_grad()
def _own_forward_bounds(engine: OwnForward, column: int | None, suffix: Sequence[int]) -> Bounds:
    network = engine.network
    column = network.reward_output if column is None else column  # type: ignore[assignment]
    if not isinstance(column, int):
        return unbounded(NO_HEAD)
    embedding = cast(nn.Embedding, network.get_input_embeddings())
    generator, rows = torch.Generator().manual_seed(0), len(embedding.weight)
    runs, rewards = [], []
    for _ in range(PROBES):
        response = torch.randint(rows, (LENGTH,), generator=generator).tolist()
        ids = torch.tensor([[*response, *suffix]], device=engine.prefix.device)
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
            read = [call.input[at] for call in place]  # type: ignore[index]
            return _reader_bounds(module, column, read, places)
    return unbounded(ELSEWHERE)


def _gives(place: tuple[_Call, ...], rewards: list[float], column: int) -> int | None:
    """The row of a linear layer's output that holds the reward in every run; None where none
    does."""
    outputs = [call.output for call in place]
    if any(output is None or output.shape[-1] <= column for output in outputs):
        return None
    values = torch.stack([output[:, column] for output in outputs])  # type: ignore[index]
    wanted = torch.tensor(rewards)[:, None]
    close = ((values - wanted).abs() <= 1e-6 * (1 + wanted.abs())).all(dim=0)
    return int(close.nonzero()[0, 0]) if close.any() else None


def _reader_bounds(
    module: nn.Linear, column: int, read: list[Tensor], places: list[tuple[_Call, ...]]
) -> Bounds:
    """Bounds of a linear layer that reads these states, one a run, by which call gave them."""
    wanted, weight = torch.stack(read)[:, None], module.weight[column : column + 1]
    bias = None if module.bias is None else module.bias[column : column + 1]
    for place in places:
        outputs = [call.output for call in place]
        if any(output is None or output.shape[-1] != wanted.shape[-1] for output in outputs):
            continue
        values = torch.stack(outputs)  # type: ignore[arg-type]  # (runs, positions, width)
        if _same(values, wanted):
            states = NormalisedStates.probe_norm(float32_copy(place[0].module), wanted.shape[-1])
            if states is not None:
                return _bounds(states.linear(weight, bias), 0, NORMALISED)
        if _same(values.tanh(), wanted):
            return _bounds(unit_box_interval(weight, bias), 0, TANH)
    return unbounded(ELSEWHERE)


def _same(states: Tensor, wanted: Tensor) -> bool:
    """Whether in every run one position of `states` (runs, positions, width) equals `wanted`
    (runs, 1, width)."""
    close = (states - wanted).abs() <= 1e-5 * (1 + wanted.abs())
    return bool(close.all(dim=-1).all(dim=0).any())
