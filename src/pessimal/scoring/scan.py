"""The scan: one model, one prompt, one candidate set, to one score table.

The steps in order: inputs, the pass over all of them, in low precision the passes over the tails, certification, the
table. Knows neither Hydra nor W&B nor the registry.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch

from pessimal.errors import WorkError
from pessimal.rewards.frame import Frame
from pessimal.rewards.load import RewardModel, of_model
from pessimal.rewards.spec import Dtype, Mode, Score
from pessimal.scoring.candidates import Candidates, inputs
from pessimal.scoring.certify import Certified, certify, certify_tails, uncertified
from pessimal.scoring.loop import Loop, Pass
from pessimal.scoring.trust import Trust
from pessimal.tables import ScoreProvenance, ScoreTable


def identify(
    model: RewardModel, *, prompt: str, prompt_text: str, candidates: Candidates, mode: Mode, certain: int
) -> ScoreProvenance:
    """What the scores will depend on: known before the network is loaded, so that a finished table can be looked up.

    A language model's tails are not scored again, whatever `certain`: see `language_model`.
    """
    if model.spec.score is Score.log_probability:
        certain = 0
    return ScoreProvenance(
        model=model.name,
        prompt=prompt,
        prompt_text=prompt_text,
        candidates=candidates.name,
        candidates_digest=candidates.digest(),
        mode=mode.value,
        source="scan",
        certain=None if model.spec.dtype is Dtype.float32 else certain,
        score=model.spec.score.value,
        **of_model(model),
    )


def scan(
    model: RewardModel,
    networks: Callable[[Dtype], torch.nn.Module],
    provenance: ScoreProvenance,
    candidates: Candidates,
    frame: Frame,
    *,
    work: Path,
    loop: Loop,
    known_round_trips: np.ndarray | None = None,
) -> ScoreTable:
    """Score every candidate; what an earlier, interrupted scan left under `work` is not scored again.

    `networks` gives the model's network in a precision, the same one at each call; `known_round_trips` are another
    prompt's (see `inputs`). Where the loop has several processes, all of them call this and get the same table. Raises
    ModelError if a reward is not a number.
    """
    to_score = inputs(
        model.tokenizer,
        frame,
        candidates,
        Mode(provenance.mode),
        closing=model.closing,
        known=known_round_trips,
    )

    def passing(dtype: Dtype) -> Pass:
        return Pass(
            networks(dtype),
            frame,
            to_score,
            dtype=dtype,
            texts=candidates.rows["text"].tolist(),
            label=f"{model.name} · {provenance.prompt}",
            folder=work / provenance.key() / dtype.value,
            loop=loop,
        )

    first = passing(model.spec.dtype)
    rewards = first.run(np.arange(len(to_score)), name="all")
    if model.spec.dtype is Dtype.float32:
        noise = first.noise(rewards[first.sample])
        result = certify(rewards, noise=noise)
    elif provenance.certain:
        result, noise = _certified_tails(rewards, passing(Dtype.float32), k=provenance.certain)
    else:
        result, noise = uncertified(rewards), None
    return score_table(
        model,
        provenance,
        candidates,
        result,
        trust=first.trust,
        noise=noise,
        attention=first.attention,
        survives=to_score.survives,
        framed=int((to_score.shared == len(frame.prefix)).sum()),
        prefix_tokens=len(frame.prefix),
        suffix_tokens=len(frame.suffix),
    )


def score_table(
    model: RewardModel,
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
    """The table of these rewards, with what was measured beside them. `attention` is the path that scored, `survives`
    bool (n,) which tokens make the round trip."""
    rows = candidates.rows.assign(survives=survives, reward=result.rewards, certified=result.certified)
    rows["survives"] = rows["survives"].astype("boolean")
    known = {
        "trust": asdict(trust),
        "noise": noise,
        "rescored_in_float32": 0 if model.spec.dtype is Dtype.float32 else int(result.exact.sum()),
        "largest_low_precision_error": result.largest_error,
        "certified": int(result.certified.sum()),
    }
    return ScoreTable(replace(provenance, attention=attention), rows, model.description, known | measured)


def _certified_tails(rewards: np.ndarray, exact: Pass, *, k: int) -> tuple[Certified, float]:
    """Rewards (n,) of a low-precision pass with their tails from the float32 one, and that one's numerical error."""
    rounds = iter(range(len(rewards)))

    def rescore(rows: np.ndarray) -> np.ndarray:
        return exact.run(rows, name=f"round-{next(rounds)}")

    noise = exact.noise(rescore(exact.sample))
    return certify_tails(rewards, rescore, k=k, noise=noise), noise


@contextlib.contextmanager
def locked(work: Path, provenance: ScoreProvenance) -> Iterator[None]:
    """While this table is scanned, keep other commands from scanning it too: the first to finish would remove the
    other's shards. WorkError where another command does; ends with the process, however that ends."""
    folder = work / provenance.key()
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks cannot lock
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise WorkError(
                    f"another command is scanning {provenance.model} on {provenance.prompt} into {work}. Wait for it, and "
                    "give this one again: what is finished then is named, and the rest is scanned"
                ) from error
        yield
    finally:
        os.close(handle)
        with contextlib.suppress(OSError):  # nothing was to be done after all
            folder.rmdir()


def forget_work(work: Path, provenance: ScoreProvenance, *, published: Path | None = None) -> None:
    """Remove the shards of a table that is published; where `published` names its folder only those that are older,
    which a process left that was killed right after publishing: newer ones belong to a scan that runs now."""
    shards = work / provenance.key()
    if published is not None:
        times = [file.stat().st_mtime for file in shards.rglob("*") if file.is_file()]
        if max(times, default=0) > (published / "manifest.json").stat().st_mtime:
            return
    shutil.rmtree(shards, ignore_errors=True)
