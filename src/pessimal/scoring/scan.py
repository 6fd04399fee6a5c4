"""The scan: one model, one prompt, one candidate set, to one score table.

The steps of a network's, in order: inputs, the pass over all of them, in low precision the passes
over the tails, certification, the table. Knows neither Hydra nor W&B nor the registry.
"""

import functools
import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pessimal.conversation import Asked, Context
from pessimal.errors import InputError
from pessimal.rewards.base import NetworkReward, Reward
from pessimal.rewards.ceiling import weighted_sum
from pessimal.rewards.frame import Encoded, Frame, slot_frame, slot_ids
from pessimal.rewards.language import StatesNetwork, load_base
from pessimal.rewards.question import hardly_answers
from pessimal.rewards.spec import CheckpointSpec, Dtype, Mode
from pessimal.scoring.candidates import Candidates, Inputs, frame_responses, inputs
from pessimal.scoring.identify import (
    both_answers,
    engine_pass_provenance,
    gate,
    language_model_provenance,
    score_table,
    slot_entries,
)
from pessimal.scoring.loop import Loop, Pass
from pessimal.scoring.scan_texts import Scanner, ScanPlan, SumScanner, TextScanner
from pessimal.scoring.scorer import FrameScorer
from pessimal.scoring.states import DIMENSIONS, word_states, words_of
from pessimal.scoring.texts import NetworkTexts
from pessimal.scoring.trainer import is_first_process, make_trainer
from pessimal.scoring.trust import Trust, certify, certify_tails, nearest, uncertified
from pessimal.tables import ScoreProvenance, ScoreTable
from pessimal.tables.score_table import BASE, States

log = logging.getLogger(__name__)


def make_scanner(
    model: Reward,
    provenances: Sequence[ScoreProvenance],
    candidates: Candidates,
    plan: ScanPlan,
    *,
    before: ScoreTable | None = None,
    states: bool = True,
    base: tuple[CheckpointSpec, Path] | None = None,
    finished: Callable[[ScoreProvenance], ScoreTable | None] = lambda _: None,
) -> Scanner:
    """The scanner of a reward, by its form. Arguments and errors as of `NetworkScanner`,
    `TextScanner` and `SumScanner`."""
    if texts := model.as_texts:
        return TextScanner(texts, candidates, plan)
    if network := model.as_network:
        return NetworkScanner(
            network, provenances, candidates, plan, before=before, states=states, base=base
        )
    make = make_scanner
    return SumScanner(model, provenances, candidates, plan, make=make, finished=finished)


class Passes:
    """The passes of a reward's parts, and their weighted sum."""

    def __init__(self, terms: Sequence[tuple[float, Pass]]):
        self.terms = list(terms)
        self.values: list[np.ndarray] = []
        """Rewards by each pass in the last run, float32 (n,)."""

    def run(self, rows: np.ndarray, *, name: str) -> np.ndarray:
        """Rewards (n,) of sorted `rows` (n,), or (n, outputs), as `Pass.run` gives them."""
        self.values = [part.run(rows, name=name) for _, part in self.terms]
        if len(self.terms) == 1 and self.terms[0][0] == 1:
            return self.values[0]
        pairs = zip((weight for weight, _ in self.terms), self.values, strict=True)
        return np.sum([weight * values.astype(np.float64) for weight, values in pairs], axis=0)

    def noise(self) -> np.ndarray:
        """Bound on the numerical error, of each output where there are several: of the last run,
        where it was of all rows, else of a run of the sample."""
        noise = np.zeros(())
        for number, (weight, part) in enumerate(self.terms):
            if self.values and len(self.values[number]) == len(part.inputs):
                sampled = self.values[number][part.sample]
            else:
                sampled = part.run(part.sample, name="sample")
            noise = noise + abs(weight) * part.noise(sampled)
        return noise

    @property
    def trust(self) -> Trust:
        """Trust of the part that is nearest to what is allowed."""
        trust = nearest(part.trust for _, part in self.terms)
        assert trust is not None
        return trust

    @property
    def attention(self) -> str:
        return ", ".join(dict.fromkeys(part.attention for _, part in self.terms))


@dataclass
class _Scored:
    """All candidates on a prompt."""

    prompt: Asked
    inputs: Inputs
    first: Passes
    exact: Passes
    """In float32; the same where that is the model's precision."""
    rewards: np.ndarray
    """(n,), or (n, outputs) where every one is scanned."""
    noise: np.ndarray | None
    """() or (outputs,)."""
    states: States | None
    slot: tuple[np.ndarray, float] | None = None
    """Result of `NetworkScanner._untouched`, for a context."""
    rounds: Iterator[int] = field(default_factory=itertools.count)


class NetworkScanner(Scanner):
    """Scanner of a reward that networks give.

    Making one finds what stands around the answers to every prompt, then loads the network: what
    cannot be asked or loaded fails here, before anything is scored.

    Args:
        provenances: what is to be scored, of `identify`: one a prompt.
        before: a finished table of the same model and candidates: which tokens make the round trip
            does not depend on the prompt.
        states: keep the last hidden states of words, for what random heads on them would show.
        base: the model that reward training began from, and the folder of its files; where None,
            the model's own states are kept.

    Raises:
        InputError: an item cannot be asked.
        ModelError: a network cannot be loaded, or the base knows too few tokens.
    """

    def __init__(
        self,
        model: NetworkReward,
        provenances: Sequence[ScoreProvenance],
        candidates: Candidates,
        plan: ScanPlan,
        *,
        before: ScoreTable | None = None,
        states: bool = True,
        base: tuple[CheckpointSpec, Path] | None = None,
    ):
        self.model, self.candidates, self.plan = model, candidates, plan
        self.round_trips = None if before is None else _round_trips(before)
        self._last: _Scored | None = None
        self.warned_of_own_class = False
        texts = self.texts
        self.frames: dict[str, list[Frame]] = {}
        for provenance in provenances:
            double = provenance.mode == Mode.paper.value
            parts = [part.conversations for part in model.parts]
            self.frames[provenance.key()] = [
                slot_frame(part, provenance.question, model.tokenizer, double_bos=double)
                for part in parts
            ]
            if not candidates.is_vocabulary:  # an item that cannot be asked is named now
                slot_ids(parts[0], provenance.question, texts, double_bos=double)
        self.loop = Loop(
            trainer=make_trainer(plan.trainer, root=plan.root),
            batch_size=plan.batch_size,
            progress=plan.progress,
            find_threads=plan.trainer.threads is None,
            ignore_finished=plan.again,
            report=plan.report,
        )
        self.networks = functools.cache(model.network)
        for which in sorted({part.network for part in model.parts}):
            self.networks(model.spec.dtype, which)
        if self.loop.sharded and states:
            log.warning("states of words are not kept with trainer=sharded")
        self.whose = self._base_network(base) if states and not self.loop.sharded else None

    def scan(self, provenance: ScoreProvenance) -> ScoreTable:
        """The table of one of the provenances."""
        table = self._scan(provenance)
        self.round_trips = _round_trips(table)
        return table

    def _scored(self, provenance: ScoreProvenance) -> _Scored:
        """The passes over all candidates on a prompt: one for all outputs."""
        if self._last is not None and self._last.prompt == provenance.question:
            return self._last
        self._last = None
        model, texts = self.model, self.texts
        label = f"{model.name} · {provenance.prompt}"
        folder = self.plan.work / engine_pass_provenance(model, provenance).key()
        parts, frames, mode = model.parts, self.frames[provenance.key()], Mode(provenance.mode)
        to_score: list[Inputs] = []
        for part, frame in zip(parts, frames, strict=True):
            if to_score and part.conversations is parts[0].conversations:
                to_score.append(to_score[0])
            else:
                # Which tokens an answer before them is tied to depends on the answer.
                round_trips = None if provenance.slot else self.round_trips
                to_score.append(
                    inputs(part.conversations, frame, self.candidates, mode, prior=round_trips)
                )
            self._check_lengths(to_score[-1], part.network)

        def passes(dtype: Dtype) -> Passes:
            terms = []
            for number, part in enumerate(parts):
                several = len(parts) > 1
                part_pass = Pass(
                    self.networks(dtype, part.network),
                    frames[number],
                    to_score[number],
                    dtype=dtype,
                    texts=texts,
                    label=f"{label} · part {number + 1}" if several else label,
                    folder=folder / dtype.value / (f"part-{number}" if several else ""),
                    loop=self.loop,
                    outputs=len(model.outputs),
                )
                terms.append((part.weight, part_pass))
            return Passes(terms)

        first = passes(model.spec.dtype)
        rewards = first.run(np.arange(len(texts)), name="all")
        exact, noise = first, None
        if model.spec.dtype is Dtype.float32 or provenance.certain:
            exact = first if model.spec.dtype is Dtype.float32 else passes(Dtype.float32)
            noise = exact.noise()
        states = None
        if is_first_process():
            states = self._states(frames[0], to_score[0], label=label, folder=folder)
        self._last = _Scored(provenance.question, to_score[0], first, exact, rewards, noise, states)
        if isinstance(provenance.question, Context):
            dtype = Dtype.float32 if noise is not None else model.spec.dtype
            self._last.slot = self._untouched(provenance.question, frames, dtype)
        return self._last

    def _untouched(
        self, context: Context, frames: Sequence[Frame], dtype: Dtype
    ) -> tuple[np.ndarray, float]:
        """Rewards (2,) or (2, outputs) of the answer as it is and of the rejected one, by the
        model's own forward; and what a sum over the answer has before the slot, where the reward
        is such a sum."""
        model, device = self.model, self.loop.trainer.strategy.root_device
        rewards, before = np.zeros((2, *((len(model.outputs),) if model.outputs else ()))), 0.0
        for part, frame in zip(model.parts, frames, strict=True):
            network = self.networks(dtype, part.network)
            texts = NetworkTexts(model, part.conversations, network, [], device=device)
            for row, conversation in enumerate(both_answers(context)):
                reward = texts.own_rewards([conversation])[0] if conversation else np.nan
                rewards[row] += part.weight * reward
            if getattr(network, "sequence", False) and frame.answer:
                answer = Encoded(frame.prefix, None, frame.answer)
                before += part.weight * float(texts.whole([answer])[0])
        return rewards, before

    def _scan(self, provenance: ScoreProvenance) -> ScoreTable:
        model, outcome, frame = (
            self.model,
            self._scored(provenance),
            self.frames[provenance.key()][0],
        )
        numbers = [number for _, number in model.outputs]
        place = (numbers.index(provenance.output),) if numbers else ()
        rewards, noise = outcome.rewards[(..., *place)], None
        if outcome.noise is not None:
            noise = float(outcome.noise[place])

        def rescore(rows: np.ndarray) -> np.ndarray:
            return outcome.exact.run(rows, name=f"round-{next(outcome.rounds)}")[(..., *place)]

        if noise is None:
            result = uncertified(rewards)
        elif outcome.exact is outcome.first:
            result = certify(rewards, noise=noise)
        else:
            result = certify_tails(rewards, rescore, k=provenance.certain or 0, noise=noise)
        slot: dict[str, Any] = {}
        if outcome.slot is not None:
            untouched, before = outcome.slot
            slot = slot_entries(untouched[(..., *place)], model.tokenizer.eos_token_id)
            result = replace(result, rewards=result.rewards + before)
        scored, first = outcome.inputs, outcome.first
        measured = slot | language_model_provenance(
            model, provenance, self.candidates, scored, result.rewards
        )
        terms = [(weight, part.scorer.bounds(*place)) for weight, part in first.terms]
        if (bounds := weighted_sum(terms)).is_bounded:
            measured["ceiling"] = bounds.stored()
        measured |= model.describe_scan(first.values) | self._head_entries(provenance, outcome)
        if answers := [part.answers for _, part in first.terms if part.answers is not None]:
            rarest = min(answers, key=lambda answer: answer.mean)
            measured["answers"] = rarest.report(provenance.label, model.tokenizer)
        if hardly_answers(measured):
            result = replace(result, certified=np.zeros_like(result.certified))
        if outcome.states is not None:
            measured["states"] = outcome.states.about
        table = score_table(
            model,
            provenance,
            self.candidates,
            result,
            trust=first.trust,
            noise=noise,
            attention=first.attention,
            survives=scored.survives,
            frame_responses=int((scored.shared == len(frame.prefix)).sum()),
            prefix_tokens=len(frame.prefix),
            suffix_tokens=len(frame.suffix),
            **measured,
        )
        return replace(table, states=outcome.states)

    def _head_entries(self, provenance: ScoreProvenance, outcome: _Scored) -> dict[str, Any]:
        """Further entries of a reward model's table: whether its own class reads the reward
        elsewhere, and of a gated one what each objective adds."""
        model, scorer, measured = self.model, outcome.first.terms[0][1].scorer, {}
        if scorer.elsewhere:
            measured["own_class_differs"] = {"standard_deviations": scorer.elsewhere}
            if (
                not self.warned_of_own_class
                and model.spec.read is None
                and (not model.outputs or model.outputs[0][1] == provenance.output)
            ):
                self.warned_of_own_class = True
                log.warning(
                    "%s: the model's own class takes the token %r for padding and reads the reward "
                    "of the token before; these rewards are read at the last, and differ by up to "
                    "%.1f SD. Which of the two the model was trained for, its card says. Type "
                    "model.read=own for its class's, or model.read=end for these",
                    provenance.label,
                    model.tokenizer.decode([scorer.network.config.get_text_config().pad_token_id]),
                    scorer.elsewhere,
                )
        if model.outputs and provenance.output is None and scorer.coefficients is not None:
            labels = [label for label, _ in model.outputs[1:]]
            measured["gate"] = gate(outcome.rewards, scorer.coefficients, labels)
        return measured

    def rate(self, provenance: ScoreProvenance, *, n: int = 64) -> float | None:
        """Candidates a second on a prompt or context, measured on `n` before anything is scanned;
        None for what runs no network here."""
        device, seconds = self.loop.trainer.strategy.root_device, 0.0
        some = self.candidates.rows["candidate_id"].to_numpy()[-n:, None]
        for part, frame in zip(self.model.parts, self.frames[provenance.key()], strict=True):
            network = self.networks(self.model.spec.dtype, part.network).to(device)
            scorer = FrameScorer(network, frame, device=device)
            ids = frame_responses(frame, some if self.candidates.is_vocabulary else [[0]] * n)
            started = time.perf_counter()
            scorer.score_rows(ids, np.arange(len(ids)), batch_size=n)
            seconds += time.perf_counter() - started
        return len(some) / seconds

    def _check_lengths(self, to_score: Inputs, network: int) -> None:
        """InputError where a conversation has more tokens than the network has positions."""
        config = self.networks(self.model.spec.dtype, network).config.get_text_config()
        limit = getattr(config, "max_position_embeddings", None)
        lengths = to_score.shared + to_score.lengths
        row = int(lengths.argmax())
        if limit is not None and lengths[row] > limit:
            text = self.texts[row]
            raise InputError(
                f"{text!r:.80} ({len(text):,} characters) makes a "
                f"conversation of {lengths[row]:,} tokens, and {self.model.name!r} reads {limit:,}"
                ". Tokens by their ids are short: mode=ids; of a list, leave the item out"
            )

    def _base_network(
        self, base: tuple[CheckpointSpec, Path] | None
    ) -> tuple[StatesNetwork, str, str]:
        """The network whose states are kept, whose these are, and its name."""
        model, dtype = self.model, self.model.spec.dtype
        which, of, name = model.states_of
        if base is not None:
            spec, folder = base
            highest = [max(*frame.prefix, *frame.suffix) for [frame, *_] in self.frames.values()]
            if self.candidates.is_vocabulary:
                highest.append(int(self.candidates.rows["candidate_id"].max()))
            network = load_base(spec, folder, dtype=dtype, rows=max(highest) + 1)
            source = network, BASE, spec.name
        else:
            source = StatesNetwork(self.networks(dtype, which)), of, name
        self.words = words_of(self.candidates)
        width = min(source[0].config.get_text_config().hidden_size, DIMENSIONS)
        size = len(self.words) * 2 * width * 2 / 1e6  # two spaces, two bytes each
        log.log(
            logging.INFO if size >= 1 else logging.DEBUG,
            "states of %d words of %s are kept, %.0f MB a prompt (states=false leaves them out)",
            len(self.words),
            source[2],
            size,
        )
        return source

    def _states(self, frame: Frame, scored: Inputs, *, label: str, folder: Path) -> States | None:
        if self.whose is None:
            return None
        network, of, name = self.whose
        states = word_states(
            network,
            frame,
            scored,
            self.words,
            of=of,
            model=name,
            device=self.loop.trainer.strategy.root_device,
            label=label,
            folder=folder,
            again=self.plan.again,
            progress=self.plan.progress,
        )
        if states is None:
            self.whose = None  # said once
        return states


def _round_trips(table: ScoreTable) -> np.ndarray | None:
    """Whether each token makes the round trip (n,), for the next prompt; None for items."""
    survives = table.rows["survives"]
    return None if survives.isna().any() else survives.to_numpy(dtype=bool)
