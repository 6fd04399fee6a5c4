"""The scan: one model, one prompt, one candidate set, to one score table.

The steps in order: inputs, the pass over all of them, in low precision the passes over the tails,
certification, the table. Knows neither Hydra nor W&B nor the registry.
"""

import contextlib
import functools
import itertools
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from pessimal.errors import ConfigError, WorkError
from pessimal.progress import counted
from pessimal.rewards.base import NetworkReward, Reward, TextReward
from pessimal.rewards.checkpoint_files import of_model
from pessimal.rewards.frame import Conversation, Frame, Turn
from pessimal.rewards.language import Continued
from pessimal.rewards.last_states import StatesNetwork, load_base
from pessimal.rewards.spec import Dtype, Kind, Mode, ModelSpec
from pessimal.scoring.candidates import Candidates, Inputs, inputs
from pessimal.scoring.certify import Certified, certify, certify_tails, uncertified
from pessimal.scoring.loop import Loop, Pass
from pessimal.scoring.spec import TrainerSpec
from pessimal.scoring.states import DIMENSIONS, word_states, words_of
from pessimal.scoring.texts import KeptRewards
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
    prompt_text: str,
    candidates: Candidates,
    mode: Mode,
    certain: int,
) -> ScoreProvenance:
    """What the scores will depend on: known before the network is loaded, so that a finished table
    can be looked up. ConfigError for mode=paper of another kind than a reward model."""
    kind = model.spec.kind
    if mode is Mode.paper and kind is not Kind.head:  # it would be mode=text, and called paper
        raise ConfigError(
            f"mode=paper is the published procedure for reward models; model.kind={kind.value} is "
            f"asked in another mode: mode={'ids' if 'ids' in model.can else 'text'}"
        )
    exact = model.spec.dtype is Dtype.float32 or "ids" not in model.can
    return ScoreProvenance(
        model=model.name,
        prompt=prompt,
        prompt_text=prompt_text,
        candidates=candidates.name,
        candidates_digest=candidates.digest(),
        mode=mode.value,
        source="scan",
        certain=None if exact else certain,
        score=LOG_PROBABILITY if kind is Kind.log_probability else REWARD,
        kind=kind.value,
        step=model.spec.step,
        **of_model(model),
    )


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
        """Rewards (n,) of sorted `rows` (n,), as `Pass.run` gives them."""
        self.values = [one.run(rows, name=name) for _, one in self.terms]
        if len(self.terms) == 1 and self.terms[0][0] == 1:
            return self.values[0]
        pairs = zip((weight for weight, _ in self.terms), self.values, strict=True)
        return np.sum([weight * values.astype(np.float64) for weight, values in pairs], axis=0)

    def noise(self) -> float:
        """Bound on the numerical error: of the last run, where it was of all rows, else of a run of
        the sample."""
        noise = 0.0
        for number, (weight, one) in enumerate(self.terms):
            if self.values and len(self.values[number]) == len(one.inputs):
                sampled = self.values[number][one.sample]
            else:
                sampled = one.run(one.sample, name="sample")
            noise += abs(weight) * one.noise(sampled)
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
        _, apart = conversations.continued(provenance.prompt_text or "", texts)
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
    ):
        self.model, self.candidates, self.work = model, candidates, work
        self.texts = candidates.rows["text"].tolist()
        self.progress, self.again, self.report = progress, again, report
        self.round_trips = None if before is None else _round_trips(before)
        if isinstance(model, TextReward):
            return
        assert isinstance(model, NetworkReward)
        self.frames: dict[str, list[Frame]] = {}
        for one in provenances:
            double = one.mode == Mode.paper.value
            parts = [part.conversations for part in model.parts]
            text = one.prompt_text or ""
            self.frames[one.key()] = [part.frame(text, double_bos=double) for part in parts]
            if not candidates.is_vocabulary:  # an item that cannot be asked is named now
                parts[0].ids(text, self.texts, double_bos=double)
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
        label = f"{self.model.name} · {provenance.prompt}"
        folder = self.work / provenance.key()
        if isinstance(self.model, TextReward):
            return self._scan_texts(self.model, provenance, label=label, folder=folder)
        assert isinstance(self.model, NetworkReward)
        table = self._scan_network(self.model, provenance, label=label, folder=folder)
        self.round_trips = _round_trips(table)
        return table

    def _scan_network(
        self, model: NetworkReward, provenance: ScoreProvenance, *, label: str, folder: Path
    ) -> ScoreTable:
        parts, frames, mode = model.parts, self.frames[provenance.key()], Mode(provenance.mode)
        to_score: list[Inputs] = []
        for part, frame in zip(parts, frames, strict=True):
            if to_score and part.conversations is parts[0].conversations:
                to_score.append(to_score[0])
            else:
                to_score.append(
                    inputs(part.conversations, frame, self.candidates, mode, known=self.round_trips)
                )

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
                )
                terms.append((part.weight, one))
            return Passes(terms)

        first = passes(model.spec.dtype)
        rewards = first.run(np.arange(len(self.texts)), name="all")
        noise: float | None = None
        if model.spec.dtype is Dtype.float32:
            noise = first.noise()
            result = certify(rewards, noise=noise)
        elif provenance.certain:
            exact, rounds = passes(Dtype.float32), itertools.count()
            noise = exact.noise()

            def rescore(rows: np.ndarray) -> np.ndarray:
                return exact.run(rows, name=f"round-{next(rounds)}")

            result = certify_tails(rewards, rescore, k=provenance.certain, noise=noise)
        else:
            result = uncertified(rewards)
        scored, prefix, suffix = to_score[0], frames[0].prefix, frames[0].suffix
        measured = _of_language_model(model, provenance, self.candidates, scored, result.rewards)
        if model.spec.kind is Kind.judge:
            measured["says_yes_above"] = model.spec.judge.says_yes_above
            if model.spec.judge.opponent is not None:
                measured["order_effect"] = order_effect(first.values)
        states = self._states(frames[0], scored, label=label) if is_first_process() else None
        if states is not None:
            measured["states"] = states.about
        table = score_table(
            model,
            provenance,
            self.candidates,
            result,
            trust=first.trust,
            noise=noise,
            attention=first.attention,
            survives=scored.survives,
            framed=int((scored.shared == len(prefix)).sum()),
            prefix_tokens=len(prefix),
            suffix_tokens=len(suffix),
            **measured,
        )
        return replace(table, states=states)

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
            len(self.words) * width * 2 / 1e6,
        )
        return whose

    def _states(self, frame: Frame, scored: Inputs, *, label: str) -> States | None:
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
        prompt, n = Turn("user", provenance.prompt_text or ""), len(self.texts)
        conversations: list[Conversation] = [
            (prompt, Turn("assistant", text)) for text in self.texts
        ]
        with counted(label, unit="candidates", total=n, bar=self.progress) as counter:

            def advance(n: int) -> None:
                counter.advance(n)
                if self.report:
                    self.report(counter.done, counter.rate, n)

            file = folder / "rewards.jsonl"
            if self.again:
                file.unlink(missing_ok=True)
            stored = KeptRewards(model, file, advance)
            todo = stored.unknown(conversations)
            if todo and (cost := model.cost(todo, timed=True)):
                log.info("%s: %s", label, cost)
            rewards = stored.rewards(conversations)
        sample = np.sort(np.random.default_rng(1).permutation(n)[:NOISE_SAMPLE])
        once, twice = rewards[sample], model.rewards([conversations[i] for i in sample], again=True)
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
            self.candidates,
            certify(rewards, noise=noise),
            trust=trust,
            noise=noise,
            attention="texts",
        )


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
