"""The scan: one model, one prompt, one candidate set, to one score table.

The steps in order: inputs, the pass over all of them, in low precision the passes over the tails,
certification, the table. Knows neither Hydra nor W&B nor the registry.
"""

import contextlib
import functools
import itertools
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from pessimal.catalogue import run_of
from pessimal.conversation import Asked, Context, Conversation, Prefixed, filled, plain_text
from pessimal.errors import ConfigError, InputError, ModelError, WorkError
from pessimal.progress import counted
from pessimal.rewards.base import NetworkReward, Reward, TextReward
from pessimal.rewards.ceiling import read_bounds, weighted_sum
from pessimal.rewards.checkpoint_files import of_model
from pessimal.rewards.frame import Encoded, Frame, slot_frame, slot_ids
from pessimal.rewards.judge import HARDLY
from pessimal.rewards.language import Continued
from pessimal.rewards.last_states import StatesNetwork, load_base
from pessimal.rewards.spec import Dtype, Kind, Mode, ModelSpec
from pessimal.rewards.sum import SumReward
from pessimal.scoring.candidates import Candidates, Inputs, framed, inputs
from pessimal.scoring.certify import Certified, certify, certify_tails, uncertified
from pessimal.scoring.loop import Loop, Pass
from pessimal.scoring.scorer import FrameScorer
from pessimal.scoring.spec import TrainerSpec
from pessimal.scoring.states import DIMENSIONS, word_states, words_of
from pessimal.scoring.texts import AskedAgain, KeptRewards, NetworkTexts
from pessimal.scoring.trainer import is_first_process, make_trainer
from pessimal.scoring.trust import (
    NOISE_SAMPLE,
    Trust,
    allowed,
    largest_difference,
    nearest,
    numerical_noise,
    rank_agreement,
)
from pessimal.tables import ScoreProvenance, ScoreTable
from pessimal.tables.score_table import LOG_PROBABILITY, REWARD, storable
from pessimal.tables.states import BASE, ITSELF, TRAINED, States

log = logging.getLogger(__name__)


def identify(
    model: Reward,
    *,
    prompt: str,
    prompt_text: Asked,
    candidates: Candidates,
    mode: Mode,
    certain: int,
    output: tuple[str, int | None] | None = None,
    prefixed: Prefixed | None = None,
) -> ScoreProvenance:
    """What the scores will depend on: known before the network is loaded, so that a finished table
    can be looked up. Name and number of an `output`, where every one is scanned, stand for a model
    of its own. ConfigError for mode=paper of another kind than a reward model, and for a slot in a
    kind of reward that is read elsewhere."""
    kind = model.spec.kind
    said, slot = prompt_text, None
    if isinstance(said, Context):
        _check_slot(model, said, mode)
        slot = {"where": said.slot, "turn": said.turn, "at": said.at, "rejected": said.rejected}
        said = said.turns
    if mode is Mode.paper and kind is not Kind.head:  # it would be mode=text, and called paper
        raise ConfigError(
            f"mode=paper is the published procedure for reward models; model.kind={kind.value} is "
            f"asked in another mode: mode={'ids' if 'ids' in model.can else 'text'}"
        )
    label, number = output or ("", model.spec.output)
    run = run_of(model.name)
    return ScoreProvenance(
        model=f"{run}.{label}{model.name.removeprefix(run)}" if label else model.name,
        prompt=prompt,
        prompt_text=plain_text(said),
        prefixed=None if prefixed is None else vars(prefixed),
        turns=None if isinstance(said, str) else [vars(turn) for turn in said],
        slot=slot,
        candidates=candidates.name,
        candidates_digest=candidates.digest(),
        mode=mode.value,
        source="scan",
        **_of_reward(model, certain) | {"output": number},
    )


def _check_slot(model: Reward, context: Context, mode: Mode) -> None:
    """ConfigError where a reward cannot be read with candidates in this slot."""
    kind, last = model.spec.kind, context.turn == len(context.turns) - 1
    why = None
    if mode is Mode.paper:
        why = "mode=paper is the published procedure for whole answers: leave it out"
    elif kind is Kind.log_probability:
        why = "a log-probability is the answer's, and no reward of a conversation"
    elif model.spec.step_token is not None:
        why = "model.step_token reads the steps of whole answers"
    elif kind is Kind.implicit and not last:
        why = "an implicit reward is the answer's: put the slot behind, before or into it"
    if why is not None:
        raise ConfigError(f"slot={context.slot} with model.kind={kind.value}: {why}")


def _of_reward(model: Reward, certain: int | None) -> dict[str, Any]:
    """What a provenance says of a reward, whatever it is asked."""
    kind = model.spec.kind
    return {
        "certain": None if _is_exact(model) else certain,
        "score": LOG_PROBABILITY if kind is Kind.log_probability else REWARD,
        "kind": kind.value,
        "step": model.spec.step,
        **of_model(model),
    }


def identify_all(
    model: Reward,
    prompts: Mapping[str, Asked],
    *,
    prefixed: Mapping[str, Prefixed] | None = None,
    **options: Any,
) -> list[ScoreProvenance]:
    """`identify` for each of the prompts or contexts by key, some behind a prefix, and for each
    output where every one is scanned."""
    several = model.outputs if isinstance(model, NetworkReward) else ()
    outputs, behind = several or (None,), prefixed or {}
    return [
        identify(
            model,
            prompt=key,
            prompt_text=text,
            output=output,
            prefixed=behind.get(key),
            **options,
        )
        for key, text in prompts.items()
        for output in outputs
    ]


def of_pass(model: Reward, provenance: ScoreProvenance) -> ScoreProvenance:
    """What the pass that gives a table is kept under: one for all outputs, where every one is
    scanned."""
    return replace(provenance, model=model.name, output=model.spec.output)


def _is_exact(model: Reward) -> bool:
    """Whether the first pass is in float32 already."""
    if isinstance(model, SumReward):
        return all(_is_exact(term) for _, term in model.terms)
    return model.spec.dtype is Dtype.float32 or "ids" not in model.can


def keeps_states(model: Reward, candidates: Candidates, wanted: bool | None) -> bool:
    """Whether a scan keeps states of words where that is `wanted`, or not said."""
    if not isinstance(model, NetworkReward):
        return False
    free = model.spec.kind is not Kind.log_probability or not candidates.is_vocabulary
    return free if wanted is None else wanted


class Passes:
    """The passes of a reward's parts, and their weighted sum."""

    def __init__(self, terms: Sequence[tuple[float, Pass]]):
        self.terms = list(terms)
        self.values: list[np.ndarray] = []
        """Of the last run: what each pass gave, float32 (n,)."""

    def run(self, rows: np.ndarray, *, name: str) -> np.ndarray:
        """Rewards (n,) of sorted `rows` (n,), or (n, outputs), as `Pass.run` gives them."""
        self.values = [one.run(rows, name=name) for _, one in self.terms]
        if len(self.terms) == 1 and self.terms[0][0] == 1:
            return self.values[0]
        pairs = zip((weight for weight, _ in self.terms), self.values, strict=True)
        return np.sum([weight * values.astype(np.float64) for weight, values in pairs], axis=0)

    def noise(self) -> np.ndarray:
        """Bound on the numerical error, of each output where there are several: of the last run,
        where it was of all rows, else of a run of the sample."""
        noise = np.zeros(())
        for number, (weight, one) in enumerate(self.terms):
            if self.values and len(self.values[number]) == len(one.inputs):
                sampled = self.values[number][one.sample]
            else:
                sampled = one.run(one.sample, name="sample")
            noise = noise + abs(weight) * one.noise(sampled)
        return noise

    @property
    def trust(self) -> Trust:
        """Of the part that is nearest to what is allowed."""
        trust = nearest(one.trust for _, one in self.terms)
        assert trust is not None
        return trust

    @property
    def attention(self) -> str:
        return ", ".join(dict.fromkeys(one.attention for _, one in self.terms))


def order_effect(values: Sequence[np.ndarray]) -> dict[str, float]:
    """How much a judge of two prefers the first, whichever it is: mean and standard deviation, over
    candidates, of half the sum of its log-odds in both orders (in nats). The reward is half their
    difference."""
    first = (values[0].astype(np.float64) + values[1]) / 2
    return {"mean": float(first.mean()), "standard_deviation": float(first.std())}


def _of_language_model(
    model: NetworkReward,
    provenance: ScoreProvenance,
    candidates: Candidates,
    scored: Inputs,
    values: np.ndarray,
) -> dict[str, Any]:
    """What the table of a language model records besides: how it was asked, and of what its numbers
    are."""
    conversations = model.parts[0].conversations
    if not isinstance(conversations, Continued):
        return {}
    context = str(model.tokenizer.decode(list(scored.prefix), clean_up_tokenization_spaces=False))
    measured: dict[str, Any] = {
        "asked": "chat template" if conversations.chat else "plain text",
        "context": storable(context),
    }
    if not candidates.is_vocabulary:
        texts = candidates.rows["text"].tolist()
        apart: list[str] = []
        if not isinstance(provenance.asked, Context):
            _, apart = conversations.continued(provenance.asked, texts)
        lengths = scored.lengths - len(conversations.closing)
        measured["tokens_per_item"] = {
            "least": int(lengths.min()),
            "median": float(np.median(lengths)),
            "most": int(lengths.max()),
        }
        measured["tokenised_apart"] = len(apart)
        measured["tokenised_apart_examples"] = [storable(answer) for answer in apart[:5]]
    elif model.spec.kind is Kind.log_probability:
        measured["total_probability"] = float(np.exp(values).sum())
    return measured


def score_table(
    model: Reward,
    provenance: ScoreProvenance,
    candidates: Candidates,
    result: Certified,
    *,
    trust: Trust,
    noise: float | None,
    attention: str,
    survives: np.ndarray | None = None,
    **measured: Any,
) -> ScoreTable:
    """The table of these rewards, with what was measured beside them. `attention` is the path that
    scored, `survives` bool (n,) which tokens make the round trip."""
    columns = {"survives": survives, "reward": result.rewards, "certified": result.certified}
    rows = candidates.rows.assign(**columns).astype({"survives": "boolean"})
    checks = {
        "trust": asdict(trust),
        "noise": noise,
        "rescored_in_float32": 0 if model.spec.dtype is Dtype.float32 else int(result.exact.sum()),
        "largest_low_precision_error": result.largest_error,
        "certified": int(result.certified.sum()),
    }
    provenance = replace(provenance, attention=attention)
    return ScoreTable(provenance, rows, model.description, checks | measured)


def gate(columns: np.ndarray, coefficients: np.ndarray, labels: Sequence[str]) -> dict[str, Any]:
    """Which objective decides in a mixture: of each, by the label, the gate's `coefficients`
    (objectives,) and its share in the variance of the reward over the candidates.

    `columns` (n, 1 + objectives) are the mixture and the objectives. A share is the covariance of
    coefficient times objective with the mixture over the mixture's variance; they add up to 1.
    """
    columns = columns.astype(np.float64)
    mixed = columns[:, 0] - columns[:, 0].mean()
    parts = coefficients * (columns[:, 1:] - columns[:, 1:].mean(axis=0))
    shares = parts.T @ mixed / max(float(mixed @ mixed), np.finfo(np.float64).tiny)
    return {
        "decides": labels[int(shares.argmax())],
        "share": dict(zip(labels, shares.tolist(), strict=True)),
        "coefficient": dict(zip(labels, coefficients.tolist(), strict=True)),
    }


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
    """Of a context: `Scanner._untouched`."""
    rounds: Iterator[int] = field(default_factory=itertools.count)


class Scanner:
    """Scores candidates on prompts with one model.

    Making one finds what stands around the answers to every prompt, then loads the network: what
    cannot be asked or loaded fails here, before anything is scored.

    Args:
        model: of any kind.
        provenances: what is to be scored, of `identify`: one a prompt.
        candidates: the same for all of them.
        work: folder of what an interrupted scan left, and leaves.
        trainer: where the loop runs.
        root: folder for what Lightning writes.
        batch_size: candidates a batch; found from the memory there is where None.
        again: score anew what an interrupted scan has finished.
        report: called every few seconds with the candidates scored, how many a second, and the
            batch size.
        before: a finished table of the same model and candidates: which tokens make the round trip
            does not depend on the prompt.
        states: keep the last hidden states of words, for what random heads on them would show.
        base: the model that reward training began from, and the folder of its files; where None,
            the model's own states are kept.
        finished: the table of a term of a sum that has been scored before; None where there is
            none.

    Raises:
        InputError: an item cannot be asked.
        ModelError: a network cannot be loaded, or the base knows too few tokens.
    """

    def __init__(
        self,
        model: Reward,
        provenances: Sequence[ScoreProvenance],
        candidates: Candidates,
        *,
        work: Path,
        trainer: TrainerSpec,
        root: Path | str,
        batch_size: int | None = None,
        progress: bool = True,
        again: bool = False,
        report: Callable[[int, float, int], None] | None = None,
        before: ScoreTable | None = None,
        states: bool = True,
        base: tuple[ModelSpec, Path] | None = None,
        finished: Callable[[ScoreProvenance], ScoreTable | None] = lambda _: None,
    ):
        self.model, self.candidates, self.work = model, candidates, work
        self.texts = candidates.rows["text"].tolist()
        self.progress, self.again, self.report = progress, again, report
        self.round_trips = None if before is None else _round_trips(before)
        self.terms: dict[str, list[ScoreTable]] = {}
        """Of a sum: the tables of its terms, by the key of the sum's."""
        if isinstance(model, SumReward):
            self.term = functools.partial(
                Scanner,
                candidates=candidates,
                trainer=trainer,
                root=root,
                batch_size=batch_size,
                progress=progress,
                again=again,
                report=report,
                states=False,
            )
            self.finished = finished
            self.scanners = [self._of_term(term, provenances) for _, term in model.terms]
            return
        if isinstance(model, TextReward):
            return
        assert isinstance(model, NetworkReward)
        self._last: _Scored | None = None
        self.frames: dict[str, list[Frame]] = {}
        for one in provenances:
            double = one.mode == Mode.paper.value
            parts = [part.conversations for part in model.parts]
            self.frames[one.key()] = [
                slot_frame(part, one.asked, model.tokenizer, double_bos=double) for part in parts
            ]
            if not candidates.is_vocabulary:  # an item that cannot be asked is named now
                slot_ids(parts[0], one.asked, self.texts, double_bos=double)
        self.loop = Loop(
            trainer=make_trainer(trainer, root=root),
            batch_size=batch_size,
            progress=progress,
            find_threads=trainer.threads is None,
            ignore_finished=again,
            report=report,
        )
        self.networks = functools.cache(model.network)
        for which in sorted({part.network for part in model.parts}):
            self.networks(model.spec.dtype, which)
        if self.loop.sharded and states:
            log.warning("states of words are not kept with trainer=sharded")
        self.whose = self._whose(model, base) if states and not self.loop.sharded else None

    def scan(self, provenance: ScoreProvenance) -> ScoreTable:
        """The table of one of the provenances; what an earlier, interrupted scan left is not scored
        again. Where the loop has several processes, all of them call this and get the same.

        Raises:
            ModelError: a reward is not a number.
        """
        if isinstance(self.model, TextReward):
            return self._scan_texts(
                self.model,
                provenance,
                label=self.label(provenance),
                folder=self.work / provenance.key(),
            )
        if isinstance(self.model, SumReward):
            return self._scan_sum(self.model, provenance, folder=self.work / provenance.key())
        assert isinstance(self.model, NetworkReward)
        table = self._scan_network(self.model, provenance)
        self.round_trips = _round_trips(table)
        return table

    def _scored(self, model: NetworkReward, provenance: ScoreProvenance) -> "_Scored":
        """The passes over all candidates on a prompt: one for all outputs."""
        if self._last is not None and self._last.prompt == provenance.asked:
            return self._last
        self._last = None
        label = f"{model.name} · {provenance.prompt}"
        folder = self.work / of_pass(model, provenance).key()
        parts, frames, mode = model.parts, self.frames[provenance.key()], Mode(provenance.mode)
        to_score: list[Inputs] = []
        for part, frame in zip(parts, frames, strict=True):
            if to_score and part.conversations is parts[0].conversations:
                to_score.append(to_score[0])
            else:
                # Which tokens an answer before them is tied to depends on the answer.
                known = None if provenance.slot else self.round_trips
                to_score.append(
                    inputs(part.conversations, frame, self.candidates, mode, known=known)
                )
            self._check_lengths(to_score[-1], part.network)

        def passes(dtype: Dtype) -> Passes:
            terms = []
            for number, part in enumerate(parts):
                several = len(parts) > 1
                one = Pass(
                    self.networks(dtype, part.network),
                    frames[number],
                    to_score[number],
                    dtype=dtype,
                    texts=self.texts,
                    label=f"{label} · part {number + 1}" if several else label,
                    folder=folder / dtype.value / (f"part-{number}" if several else ""),
                    loop=self.loop,
                    outputs=len(model.outputs),
                )
                terms.append((part.weight, one))
            return Passes(terms)

        first = passes(model.spec.dtype)
        rewards = first.run(np.arange(len(self.texts)), name="all")
        exact, noise = first, None
        if model.spec.dtype is Dtype.float32 or provenance.certain:
            exact = first if model.spec.dtype is Dtype.float32 else passes(Dtype.float32)
            noise = exact.noise()
        states = None
        if is_first_process():
            states = self._states(frames[0], to_score[0], label=label, folder=folder)
        self._last = _Scored(provenance.asked, to_score[0], first, exact, rewards, noise, states)
        if isinstance(provenance.asked, Context):
            dtype = Dtype.float32 if noise is not None else model.spec.dtype
            self._last.slot = self._untouched(model, provenance.asked, frames, dtype)
        return self._last

    def _untouched(
        self, model: NetworkReward, context: Context, frames: Sequence[Frame], dtype: Dtype
    ) -> tuple[np.ndarray, float]:
        """Rewards (2,) or (2, outputs) of the answer as it is and of the rejected one, by the
        model's own forward; and what a sum over the answer has before the slot, where the reward
        is such a sum."""
        device = self.loop.trainer.strategy.root_device
        rewards, before = np.zeros((2, *((len(model.outputs),) if model.outputs else ()))), 0.0
        for part, frame in zip(model.parts, frames, strict=True):
            network = self.networks(dtype, part.network)
            texts = NetworkTexts(model, part.conversations, network, [], device=device)
            for row, conversation in enumerate(_untouched(context)):
                one = texts.own_rewards([conversation])[0] if conversation else np.nan
                rewards[row] += part.weight * one
            if getattr(network, "sequence", False) and frame.answer:
                said = Encoded(frame.prefix, None, frame.answer)
                before += part.weight * float(texts.whole([said])[0])
        return rewards, before

    def _scan_network(self, model: NetworkReward, provenance: ScoreProvenance) -> ScoreTable:
        one, frame = self._scored(model, provenance), self.frames[provenance.key()][0]
        numbers = [number for _, number in model.outputs]
        place = (numbers.index(provenance.output),) if numbers else ()
        rewards, noise = one.rewards[(..., *place)], None
        if one.noise is not None:
            noise = float(one.noise[place])

        def rescore(rows: np.ndarray) -> np.ndarray:
            return one.exact.run(rows, name=f"round-{next(one.rounds)}")[(..., *place)]

        if noise is None:
            result = uncertified(rewards)
        elif one.exact is one.first:
            result = certify(rewards, noise=noise)
        else:
            result = certify_tails(rewards, rescore, k=provenance.certain or 0, noise=noise)
        slot: dict[str, Any] = {}
        if one.slot is not None:
            untouched, before = one.slot
            slot = _measured(untouched[(..., *place)], model.tokenizer.eos_token_id)
            result = replace(result, rewards=result.rewards + before)
        scored, first = one.inputs, one.first
        measured = slot | _of_language_model(
            model, provenance, self.candidates, scored, result.rewards
        )
        terms = [(weight, part.scorer.bounds(*place)) for weight, part in first.terms]
        if (bounds := weighted_sum(terms)).known:
            measured["ceiling"] = bounds.stored()
        if model.spec.kind is Kind.judge:
            measured["says_yes_above"] = model.spec.judge.says_yes_above
            if model.spec.judge.opponent is not None:
                measured["order_effect"] = order_effect(first.values)
            answers = [part.answers for _, part in first.terms if part.answers is not None]
            if answers:
                least = min(answers, key=lambda one: one.mean)
                measured["answers"] = least.report(self.label(provenance), model.tokenizer)
                if least.mean < HARDLY:
                    result = replace(result, certified=np.zeros_like(result.certified))
        if model.spec.kind is Kind.head:
            measured |= self._of_head(model, provenance, one, frame)
        if one.states is not None:
            measured["states"] = one.states.about
        table = score_table(
            model,
            provenance,
            self.candidates,
            result,
            trust=first.trust,
            noise=noise,
            attention=first.attention,
            survives=scored.survives,
            framed=int((scored.shared == len(frame.prefix)).sum()),
            prefix_tokens=len(frame.prefix),
            suffix_tokens=len(frame.suffix),
            **measured,
        )
        return replace(table, states=one.states)

    def _of_head(
        self, model: NetworkReward, provenance: ScoreProvenance, one: "_Scored", frame: Frame
    ) -> dict[str, Any]:
        """What the table of a reward model records besides: whether its own class reads the reward
        elsewhere, and of a gated one what each objective adds."""
        scorer, measured = one.first.terms[0][1].scorer, {}
        if scorer.elsewhere:
            measured["own_class_differs"] = {"standard_deviations": scorer.elsewhere}
            if model.spec.read is None and (
                not model.outputs or model.outputs[0][1] == provenance.output
            ):
                log.warning(
                    "%s: the model's own class takes the token %r for padding and reads the reward "
                    "of the token before; these rewards are read at the last, and differ by up to "
                    "%.1f SD. Which of the two the model was trained for, its card says. Type "
                    "model.read=own for its class's, or model.read=end for these",
                    self.label(provenance),
                    model.tokenizer.decode([scorer.network.config.get_text_config().pad_token_id]),
                    scorer.elsewhere,
                )
        if model.outputs and provenance.output is None and scorer.coefficients is not None:
            labels = [label for label, _ in model.outputs[1:]]
            measured["gate"] = gate(one.rewards, scorer.coefficients, labels)
        return measured

    def rate(self, provenance: ScoreProvenance, *, n: int = 64) -> float | None:
        """Candidates a second on a prompt or context, measured on `n` before anything is scanned;
        None for what runs no network here."""
        if not isinstance(self.model, NetworkReward):
            return None
        device, seconds = self.loop.trainer.strategy.root_device, 0.0
        some = self.candidates.rows["candidate_id"].to_numpy()[-n:, None]
        for part, frame in zip(self.model.parts, self.frames[provenance.key()], strict=True):
            network = self.networks(self.model.spec.dtype, part.network).to(device)
            scorer = FrameScorer(network, frame, device=device)
            ids = framed(frame, some if self.candidates.is_vocabulary else [[0]] * n)
            started = time.perf_counter()
            scorer.score_rows(ids, np.arange(len(ids)), batch_size=n)
            seconds += time.perf_counter() - started
        return len(some) / seconds

    def label(self, provenance: ScoreProvenance) -> str:
        """What is said of a table, for messages."""
        return f"{provenance.model} · {provenance.prompt}"

    def _check_lengths(self, to_score: Inputs, network: int) -> None:
        """InputError where a conversation has more tokens than the network has positions."""
        config = self.networks(self.model.spec.dtype, network).config.get_text_config()
        most = getattr(config, "max_position_embeddings", None)
        lengths = to_score.shared + to_score.lengths
        row = int(lengths.argmax())
        if most is not None and lengths[row] > most:
            raise InputError(
                f"{self.texts[row]!r:.80} ({len(self.texts[row]):,} characters) makes a "
                f"conversation of {lengths[row]:,} tokens, and {self.model.name!r} reads {most:,}. "
                "Tokens by their ids are short: mode=ids; of a list, leave the item out"
            )

    def _whose(
        self, model: NetworkReward, base: tuple[ModelSpec, Path] | None
    ) -> tuple[StatesNetwork, str, str]:
        """The network whose states are kept, whose these are, and its name."""
        dtype, kind = model.spec.dtype, model.spec.kind
        if base is not None:
            spec, folder = base
            highest = [max(*frame.prefix, *frame.suffix) for [frame, *_] in self.frames.values()]
            if self.candidates.is_vocabulary:
                highest.append(int(self.candidates.rows["candidate_id"].max()))
            network = load_base(spec, folder, dtype=dtype, rows=max(highest) + 1)
            whose = network, BASE, spec.name
        elif kind is Kind.implicit:
            whose = StatesNetwork(self.networks(dtype, 1)), BASE, f"{model.name} reference"
        else:
            of = TRAINED if kind is Kind.head else ITSELF
            whose = StatesNetwork(self.networks(dtype, model.parts[0].network)), of, model.name
        self.words = words_of(self.candidates)
        width = min(whose[0].config.get_text_config().hidden_size, DIMENSIONS)
        log.info(
            "states of %d words of %s are kept, %.0f MB a prompt (states=false leaves them out)",
            len(self.words),
            whose[2],
            len(self.words) * 2 * width * 2 / 1e6,  # two spaces, two bytes each
        )
        return whose

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
            again=self.again,
            progress=self.progress,
        )
        if states is None:
            self.whose = None  # said once
        return states

    def _scan_texts(
        self, model: TextReward, provenance: ScoreProvenance, *, label: str, folder: Path
    ) -> ScoreTable:
        """No rank is certain unless the reward gives the same numbers twice: a sample is asked
        again."""
        asked, n = provenance.asked, len(self.texts)
        conversations: list[Conversation] = [filled(asked, text) for text in self.texts]
        others = _untouched(asked) if isinstance(asked, Context) else []
        with counted(label, unit="candidates", total=n, bar=self.progress) as counter:

            def advance(n: int) -> None:
                counter.advance(n)
                if self.report:
                    self.report(counter.done, counter.rate, n)

            file = folder / "rewards.jsonl"
            if self.again:
                file.unlink(missing_ok=True)
                (folder / "again.jsonl").unlink(missing_ok=True)
            stored = KeptRewards(model, file, advance)
            todo = stored.unknown(conversations)
            some = [conversations[i] for i in _sampled(np.arange(n))]
            second = KeptRewards(AskedAgain(model), folder / "again.jsonl")
            if todo and (cost := model.cost(todo, again=second.unknown(some), timed=True)):
                log.info("%s: %s", label, cost)
            rewards = stored.rewards(conversations)
        candidates, known, measured = _answered(model, self.candidates, rewards)
        if others:
            kept = KeptRewards(model, file)
            untouched = [kept.rewards([one])[0] if one else np.nan for one in others]
            measured |= _measured(np.array(untouched))
        # Where all were answered, the sample whose cost was announced.
        sample = _sampled(known)
        once, twice = rewards[sample], second.rewards([conversations[i] for i in sample])
        noise, difference = numerical_noise(once, twice), largest_difference(once, twice)
        trust = Trust(
            n=len(sample),
            largest_difference=difference,
            batch_difference=difference,
            repeat_difference=difference,
            spread=float(once.std()),
            kendall=rank_agreement(twice, once),
            tolerance=allowed(once, dtype=Dtype.float32),
        )
        return score_table(
            model,
            provenance,
            candidates,
            certify(rewards[known], noise=noise),
            trust=trust,
            noise=noise,
            attention="texts",
            **measured,
        )

    def _of_term(self, term: Reward, provenances: Sequence[ScoreProvenance]) -> "Scanner | None":
        """What scores a term of a sum; None where all of its tables are finished."""
        todo = [one for one in (_of(term, p) for p in provenances) if not self.finished(one)]
        return self.term(term, todo, work=self.work) if todo else None

    def _scan_sum(
        self, model: SumReward, provenance: ScoreProvenance, *, folder: Path
    ) -> ScoreTable:
        """A table of each term, and their sum: what a term says nothing of adds nothing."""
        tables = []
        for (_, term), scanner in zip(model.terms, self.scanners, strict=True):
            table = self.finished(_of(term, provenance))
            if table is None:
                assert scanner is not None
                scanner.work = folder
                table = scanner.scan(_of(term, provenance))
            tables.append(table)
        self.terms[provenance.key()] = tables
        ids = self.candidates.rows["candidate_id"]
        values = np.array(
            [one.rows.set_index("candidate_id")["reward"].reindex(ids) for one in tables]
        )
        weights = np.array([weight for weight, _ in model.terms])
        rewards = np.nansum(weights[:, None] * values, axis=0)
        rewards[np.isnan(values[weights != 0]).all(axis=0)] = np.nan
        candidates, known, measured = _answered(model, self.candidates, rewards)
        if provenance.slot is not None:
            terms = [[t.measured["slot"][name] for t in tables] for name in SLOT]
            measured |= _measured(np.array(terms, dtype=float) @ weights)
        each = zip(weights, tables, strict=True)
        bounds = weighted_sum((w, read_bounds(one.measured.get("ceiling"))) for w, one in each)
        if bounds.known:
            measured["ceiling"] = bounds.stored()
        noise = float(np.dot(np.abs(weights), [one.measured["noise"] or 0.0 for one in tables]))
        exact = provenance.certain is None
        trust = nearest(Trust(**one.measured["trust"]) for one in tables)
        assert trust is not None
        return score_table(
            model,
            provenance,
            candidates,
            certify(rewards[known], noise=noise) if exact else uncertified(rewards[known]),
            trust=trust,
            noise=noise,
            attention=", ".join(dict.fromkeys(one.provenance.attention or "" for one in tables)),
            terms=[
                {"model": term.name, "weight": weight, "key": one.provenance.key()}
                for (weight, term), one in zip(model.terms, tables, strict=True)
            ],
            **measured,
        )


def _of(term: Reward, provenance: ScoreProvenance) -> ScoreProvenance:
    """The provenance of a term's table, from that of its sum."""
    return replace(provenance, model=term.name, **_of_reward(term, provenance.certain))


SLOT = ("untouched", "rejected")
"""Of a context's table: the rewards of the answer as it is, and of the rejected one."""


def _untouched(context: Context) -> list[Conversation | None]:
    """The conversation as it is, and with the rejected answer."""
    *before, answer = context.turns
    rejected = context.rejected
    return [
        context.turns,
        None if rejected is None else (*before, replace(answer, content=rejected)),
    ]


def _measured(rewards: np.ndarray, end: int | None = None) -> dict[str, Any]:
    """What a context's table records: the rewards of its answers (2,), and which token ends a turn.
    ModelError where the reward of the
    answer itself is not a number."""
    if not np.isfinite(rewards[0]):
        raise ModelError(
            "the reward of the answer as it is, with nothing in the slot, is not a number: leave "
            "this context out, or try model.dtype=float32"
        )
    values = [float(one) if np.isfinite(one) else None for one in rewards]
    return {"slot": dict(zip(SLOT, values, strict=True)) | {"end_of_turn": end}}


def _answered(
    model: Reward, candidates: Candidates, rewards: np.ndarray
) -> tuple[Candidates, np.ndarray, dict[str, Any]]:
    """The candidates that have a reward, their rows, and what a table records of the others, to
    which a function does not apply.

    Raises:
        ModelError: it applies to none.
    """
    known = np.flatnonzero(np.isfinite(rewards))
    missing = candidates.rows["text"][~np.isfinite(rewards)].tolist()
    if not missing:
        return candidates, known, {}
    said = f"{model.name} does not apply (None) to {len(missing)} of {len(rewards)} candidates"
    if not len(known):
        raise ModelError(f"{said}: there is nothing to compare. Give candidates that it rewards")
    log.warning("%s, the first %r: they are left out", said, missing[0][:60])
    rows = candidates.rows.iloc[known].reset_index(drop=True)
    counted = {"missing": len(missing), "missing_examples": missing[:5]}
    return Candidates(candidates.name, rows), known, counted


def _sampled(rows: np.ndarray) -> np.ndarray:
    """The rows that are asked again, in their order."""
    return rows[np.sort(np.random.default_rng(1).permutation(len(rows))[:NOISE_SAMPLE])]


def _round_trips(table: ScoreTable) -> np.ndarray | None:
    """Which tokens make the round trip (n,), for the next prompt; None for items."""
    survives = table.rows["survives"]
    return None if survives.isna().any() else survives.to_numpy(dtype=bool)


@contextlib.contextmanager
def locked(work: Path, provenance: ScoreProvenance) -> Iterator[None]:
    """While this table is scanned, keep other commands from scanning it too: the first to finish
    would remove the other's shards. WorkError where another command does; ends with the process,
    however that ends."""
    folder = work / provenance.key()
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", blocking=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise WorkError(
            f"another command is scanning {provenance.model} on {provenance.prompt} into {work}. "
            "Wait for it, and give this one again: what is finished then is named, and the rest is "
            "scanned"
        ) from error
    except (OSError, NotImplementedError):  # a file system without locks
        pass
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            (folder / ".lock").unlink()
            folder.rmdir()  # where nothing was to be done after all
        lock.release()


def forget_work(work: Path, provenance: ScoreProvenance, *, published: Path | None = None) -> None:
    """Remove the shards of a table that is published; where `published` names its folder only those
    that are older, which a process left that was killed right after publishing: newer ones belong
    to a scan that runs now."""
    shards = work / provenance.key()
    if published is not None:
        times = [file.stat().st_mtime for file in shards.rglob("*") if file.is_file()]
        if max(times, default=0) > (published / "manifest.json").stat().st_mtime:
            return
    shutil.rmtree(shards, ignore_errors=True)
