"""The scan: one model, one prompt, one candidate set, to one score table.

The steps in order: inputs, the pass over all of them, in low precision the passes over the tails,
certification, the table. Knows neither Hydra nor W&B nor the registry.
"""

import contextlib
import fcntl
import functools
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch

from pessimal.errors import ConfigError, WorkError
from pessimal.progress import counted
from pessimal.rewards.base import NetworkReward, Reward, TextReward
from pessimal.rewards.checkpoint_files import of_model
from pessimal.rewards.frame import Frame, Turn
from pessimal.rewards.language import Continued
from pessimal.rewards.spec import Dtype, Kind, Mode
from pessimal.scoring.candidates import Candidates, Inputs, inputs
from pessimal.scoring.certify import Certified, certify, certify_tails, uncertified
from pessimal.scoring.loop import Loop, Pass
from pessimal.scoring.spec import TrainerSpec
from pessimal.scoring.texts import KeptRewards
from pessimal.scoring.trainer import make_trainer
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


def scan(
    model: NetworkReward,
    networks: Callable[..., torch.nn.Module],
    provenance: ScoreProvenance,
    candidates: Candidates,
    frames: Sequence[Frame],
    *,
    work: Path,
    loop: Loop,
    known_round_trips: np.ndarray | None = None,
) -> ScoreTable:
    """Score every candidate; what an earlier, interrupted scan left under `work` is not scored
    again.

    `networks` gives the model's network in a precision and of a number, the same one at each call;
    `frames` are those of its parts; `known_round_trips` are another prompt's (see `inputs`). Where
    the loop has several processes, all of them call this and get the same table. Raises ModelError
    if a reward is not a number.
    """
    mode, to_score = Mode(provenance.mode), []
    for part, frame in zip(model.parts, frames, strict=True):
        alike = to_score and part.conversations is model.parts[0].conversations
        to_score.append(
            to_score[0]
            if alike
            else inputs(part.conversations, frame, candidates, mode, known=known_round_trips)
        )
    texts, several = candidates.rows["text"].tolist(), len(model.parts) > 1

    def passing(dtype: Dtype) -> Terms:
        terms = []
        for number, part in enumerate(model.parts):
            label, folder = (
                f"{model.name} · {provenance.prompt}",
                work / provenance.key() / dtype.value,
            )
            one = Pass(
                networks(dtype, part.network),
                frames[number],
                to_score[number],
                dtype=dtype,
                texts=texts,
                label=f"{label} · part {number + 1}" if several else label,
                folder=folder / f"part-{number}" if several else folder,
                loop=loop,
            )
            terms.append((part.weight, one))
        return Terms(terms)

    first = passing(model.spec.dtype)
    rewards = first.run(np.arange(len(texts)), name="all")
    if model.spec.dtype is Dtype.float32:
        result = certify(rewards, noise=(noise := first.noise()))
    elif provenance.certain:
        result, noise = _certified_tails(rewards, passing(Dtype.float32), k=provenance.certain)
    else:
        result, noise = uncertified(rewards), None
    measured = _of_language_model(model, provenance, candidates, to_score[0], result.rewards)
    if model.spec.kind is Kind.judge:
        measured["says_yes_above"] = model.spec.judge.says_yes_above
        if model.spec.judge.opponent is not None:
            measured["order_effect"] = order_effect(first.values)
    return score_table(
        model,
        provenance,
        candidates,
        result,
        trust=first.trust,
        noise=noise,
        attention=first.attention,
        survives=to_score[0].survives,
        framed=int((to_score[0].shared == len(frames[0].prefix)).sum()),
        prefix_tokens=len(frames[0].prefix),
        suffix_tokens=len(frames[0].suffix),
        **measured,
    )


def scan_texts(
    model: TextReward,
    provenance: ScoreProvenance,
    candidates: Candidates,
    *,
    work: Path,
    progress: bool,
    report: Callable[[int, float, int], None] | None = None,
    again: bool = False,
) -> ScoreTable:
    """Score every candidate with a reward that takes texts; what an interrupted scan was answered
    is not asked again, unless `again`.

    No rank is certain unless the reward gives the same numbers twice: a sample is asked again.
    """
    texts = candidates.rows["text"].tolist()
    conversations = [
        (Turn("user", provenance.prompt_text), Turn("assistant", text)) for text in texts
    ]
    label = f"{model.name} · {provenance.prompt}"
    with counted(label, unit="candidates", total=len(texts), bar=progress) as counter:

        def advance(n: int) -> None:
            counter.advance(n)
            if report:
                report(counter.done, counter.rate, n)

        file = work / provenance.key() / "rewards.jsonl"
        if again:
            file.unlink(missing_ok=True)
        kept = KeptRewards(model, file, advance)
        todo = kept.unknown(conversations)
        if todo and (cost := model.cost(todo, timed=True)):
            log.info("%s: %s", label, cost)
        rewards = kept.rewards(conversations)
    sample = np.sort(np.random.default_rng(1).permutation(len(texts))[:NOISE_SAMPLE])
    again = model.rewards([conversations[row] for row in sample], again=True)
    noise, difference = (
        measure(rewards[sample], again) for measure in (numerical_noise, largest_difference)
    )
    trust = Trust(
        n=len(sample),
        largest_difference=difference,
        batch_difference=difference,
        repeat_difference=difference,
        spread=float(rewards[sample].std()),
        kendall=rank_agreement(again, rewards[sample]),
        tolerance=allowed(rewards[sample], dtype=Dtype.float32),
    )
    return score_table(
        model,
        provenance,
        candidates,
        certify(rewards, noise=noise),
        trust=trust,
        noise=noise,
        attention="texts",
    )


class Terms:
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
        return sum(
            weight * values.astype(np.float64)
            for (weight, _), values in zip(self.terms, self.values, strict=True)
        )

    def noise(self) -> float:
        """Bound on the numerical error: of the last run, where it was of all rows, else of a run of
        the sample."""
        bounds = []
        for number, (weight, one) in enumerate(self.terms):
            whole = self.values and len(self.values[number]) == len(one.inputs)
            sampled = (
                self.values[number][one.sample] if whole else one.run(one.sample, name="sample")
            )
            bounds.append(abs(weight) * one.noise(sampled))
        return sum(bounds)

    @property
    def trust(self) -> Trust:
        """Of the part that is nearest to what is allowed."""
        return nearest(one.trust for _, one in self.terms)

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
) -> dict:
    """What the table of a language model records besides: how it was asked, and of what its numbers
    are."""
    conversations = model.parts[0].conversations
    if not isinstance(conversations, Continued):
        return {}
    context = model.tokenizer.decode(list(scored.prefix), clean_up_tokenization_spaces=False)
    found = {
        "asked": "chat template" if conversations.chat else "plain text",
        "context": storable(context),
    }
    if not candidates.is_vocabulary:
        _, apart = conversations.continued(provenance.prompt_text, candidates.rows["text"].tolist())
        lengths = scored.lengths - len(conversations.closing)
        found["tokens_per_item"] = {
            "least": int(lengths.min()),
            "median": float(np.median(lengths)),
            "most": int(lengths.max()),
        }
        found["tokenised_apart"] = len(apart)
        found["tokenised_apart_examples"] = [storable(answer) for answer in apart[:5]]
    elif model.spec.kind is Kind.log_probability:
        found["total_probability"] = float(np.exp(values).sum())
    return found


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
    **measured,
) -> ScoreTable:
    """The table of these rewards, with what was measured beside them. `attention` is the path that
    scored, `survives` bool (n,) which tokens make the round trip."""
    rows = candidates.rows.assign(
        survives=survives, reward=result.rewards, certified=result.certified
    )
    rows["survives"] = rows["survives"].astype("boolean")
    known = {
        "trust": asdict(trust),
        "noise": noise,
        "rescored_in_float32": 0 if model.spec.dtype is Dtype.float32 else int(result.exact.sum()),
        "largest_low_precision_error": result.largest_error,
        "certified": int(result.certified.sum()),
    }
    return ScoreTable(
        replace(provenance, attention=attention), rows, model.description, known | measured
    )


def _certified_tails(rewards: np.ndarray, exact: Terms, *, k: int) -> tuple[Certified, float]:
    """Rewards (n,) of a low-precision pass with their tails from the float32 one, and that one's
    numerical error."""
    rounds = iter(range(len(rewards)))

    def rescore(rows: np.ndarray) -> np.ndarray:
        return exact.run(rows, name=f"round-{next(rounds)}")

    noise = exact.noise()
    return certify_tails(rewards, rescore, k=k, noise=noise), noise


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

    Raises:
        InputError: an item cannot be asked.
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
    ):
        self.model, self.candidates, self.work = model, candidates, work
        self.progress, self.again, self.report = progress, again, report
        self.round_trips = None if before is None else _round_trips(before)
        if isinstance(model, TextReward):
            return
        assert isinstance(model, NetworkReward)
        self.frames = {}
        for one in provenances:
            double = one.mode == Mode.paper.value
            parts = [part.conversations for part in model.parts]
            self.frames[one.key()] = [p.frame(one.prompt_text, double_bos=double) for p in parts]
            if not candidates.is_vocabulary:  # an item that cannot be asked is named now
                texts = candidates.rows["text"].tolist()
                parts[0].ids(one.prompt_text, texts, double_bos=double)
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

    def scan(self, provenance: ScoreProvenance) -> ScoreTable:
        """The table of one of the provenances."""
        if isinstance(self.model, TextReward):
            return scan_texts(
                self.model,
                provenance,
                self.candidates,
                work=self.work,
                progress=self.progress,
                report=self.report,
                again=self.again,
            )
        assert isinstance(self.model, NetworkReward)
        table = scan(
            self.model,
            self.networks,
            provenance,
            self.candidates,
            self.frames[provenance.key()],
            work=self.work,
            loop=self.loop,
            known_round_trips=self.round_trips,
        )
        self.round_trips = _round_trips(table)
        return table


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
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks cannot lock
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise WorkError(
                    f"another command is scanning {provenance.model} on {provenance.prompt} into "
                    f"{work}. Wait for it, and "
                    "give this one again: what is finished then is named, and the rest is scanned"
                ) from error
        yield
    finally:
        os.close(handle)
        with contextlib.suppress(OSError):  # nothing was to be done after all
            folder.rmdir()


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
