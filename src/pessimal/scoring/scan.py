"""The scan: one model, one prompt, one candidate set, to one score table.

The steps in order: frame, inputs, batches, the loop over what is missing, certification, the table. Knows neither
Hydra nor W&B nor the registry.
"""

import logging
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch

from pessimal import __version__
from pessimal.errors import ModelError
from pessimal.models.frame import Frame
from pessimal.models.load import RewardModel
from pessimal.models.spec import Dtype
from pessimal.scoring.candidates import Candidates, Inputs, batches, inputs
from pessimal.scoring.certify import Certified, certify, certify_tails
from pessimal.scoring.loop import CandidateBatches, CandidateData, ScanModule, ScanProgress, ShardWriter
from pessimal.scoring.mode import Mode
from pessimal.scoring.scorer import FrameScorer
from pessimal.scoring.shards import Shards
from pessimal.scoring.trust import noise_sample
from pessimal.tables import ScoreIdentity, ScoreTable

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScanSettings:
    """How to scan; none of it changes what a reward is."""

    batch_size: int
    """Candidates per batch."""
    certain: int
    """k: how many of the best and of the worst are made certain after a low-precision scan."""
    progress: bool
    """Draw a progress bar where there is a terminal."""


def identify(
    model: RewardModel, *, prompt: str, prompt_text: str, candidates: Candidates, mode: Mode, certain: int
) -> ScoreIdentity:
    """What the scores will depend on: known before the network is loaded, so that a finished table can be found."""
    return ScoreIdentity(
        model=model.name,
        prompt=prompt,
        prompt_text=prompt_text,
        candidates=candidates.name,
        candidates_digest=candidates.digest(),
        mode=mode.value,
        source="scan",
        revision=model.revision,
        weights_digest=model.weights_digest,
        tokenizer_digest=model.tokenizer_digest,
        template_digest=model.template_digest,
        dtype=model.spec.dtype.value,
        certain=None if model.spec.dtype is Dtype.float32 else certain,
        software={
            "pessimal": __version__,
            "torch": torch.__version__,
            "transformers": version("transformers"),
        },
    )


def scan(
    model: RewardModel,
    network: torch.nn.Module,
    identity: ScoreIdentity,
    candidates: Candidates,
    frame: Frame,
    *,
    settings: ScanSettings,
    work: Path,
    trainer: Callable[[Sequence[pl.Callback]], pl.Trainer],
) -> ScoreTable:
    """Score every candidate; what an earlier, interrupted scan left under `work` is not scored again.

    `trainer` makes a Lightning trainer with the given callbacks. Raises ModelError if a reward is not a number.
    """
    mode = Mode(identity.mode)
    to_score = inputs(model.tokenizer, frame, candidates, mode)
    plan = batches(to_score, size=settings.batch_size)

    shards = Shards(work / identity.key())
    rewards = np.full(len(to_score.responses), np.nan, dtype=np.float32)
    todo = _restore(shards, plan, range(len(plan)), rewards)
    if len(todo) < len(plan):
        log.info(
            "%s on %s: going on with %d of %d batches", model.name, identity.prompt, len(todo), len(plan)
        )

    module = ScanModule(network, frame=frame, inputs=to_score, dtype=model.spec.dtype)
    progress = ScanProgress(
        f"{model.name} · {identity.prompt}",
        done=int(np.isfinite(rewards).sum()),
        total=len(rewards),
        bar=settings.progress,
    )
    loop = trainer([ShardWriter(shards), progress])
    # Also when nothing is left to do: the trust check belongs to the table.
    loop.predict(
        module, CandidateData(CandidateBatches(to_score, plan, todo or [0])), return_predictions=False
    )
    missing = _restore(shards, plan, todo, rewards)
    if missing:
        raise ModelError(
            f"{len(missing)} of {len(plan)} batches did not reach {shards.folder}; run the scan again"
        )
    if not np.isfinite(rewards).all():
        first = candidates.rows["text"].iloc[int(np.flatnonzero(~np.isfinite(rewards))[0])]
        raise ModelError(
            f"{model.name!r} gives a reward that is not a number ({(~np.isfinite(rewards)).sum()} of {len(rewards)} "
            f"candidates, first {first!r}) in {model.spec.dtype.value}; try model.dtype=float32"
        )

    trust = module.scorer.trust
    result, noise = _certified(model, module.scorer, to_score, rewards, settings)
    measured = {
        "trust": asdict(trust) if trust else None,
        "noise": noise,
        "rescored_in_float32": 0 if model.spec.dtype is Dtype.float32 else int(result.exact.sum()),
        "largest_low_precision_error": result.largest_error,
        "certified": int(result.certified.sum()),
        "framed": int(to_score.framed.sum()),
        "prefix_tokens": len(frame.prefix),
        "suffix_tokens": len(frame.suffix),
    }
    rows = candidates.rows.assign(
        survives=None if to_score.survives is None else to_score.survives,
        reward=result.rewards,
        certified=result.certified,
    )
    rows["survives"] = rows["survives"].astype("boolean")
    log.info(
        "%s on %s: %d candidates, %.0f a second; trust check: largest difference %.2g on %d",
        model.name,
        identity.prompt,
        len(rows),
        progress.rate,
        trust.largest_difference if trust else 0,
        trust.n if trust else 0,
    )
    fields = asdict(identity) | {"attention": module.scorer.attention}
    return ScoreTable(ScoreIdentity(**fields), rows, model.description, measured)


def _certified(
    model: RewardModel, scorer: FrameScorer, to_score: Inputs, rewards: np.ndarray, settings: ScanSettings
) -> tuple[Certified, float]:
    """The rewards with certain tails and ranks, and the numerical error that the certificate allows for."""
    sample = noise_sample(len(rewards))
    if model.spec.dtype is Dtype.float32:
        noise = scorer.noise_of(to_score, sample, rewards[sample])
        return certify(rewards, noise=noise), noise
    exact = FrameScorer(model.network(Dtype.float32).to(scorer.device), scorer.frame, device=scorer.device)
    exact.establish_trust(to_score, dtype=Dtype.float32)

    def rescore(rows: np.ndarray) -> np.ndarray:
        return exact.score_rows(to_score, rows, batch_size=settings.batch_size)

    noise = exact.noise_of(to_score, sample, rescore(sample))
    return certify_tails(rewards, rescore, k=settings.certain, noise=noise), noise


def forget_work(work: Path, identity: ScoreIdentity) -> None:
    """Remove the shards of a table that is published."""
    shutil.rmtree(work / identity.key(), ignore_errors=True)


def _restore(
    shards: Shards, plan: list[tuple[bool, np.ndarray]], numbers: Iterable[int], rewards: np.ndarray
) -> list[int]:
    """Fill `rewards` from the finished shards among these batches; returns the numbers of those that are missing."""
    missing = []
    for number in numbers:
        _, rows = plan[number]
        stored = shards.read(number, rows)
        if stored is None:
            missing.append(number)
        else:
            rewards[rows] = stored
    return missing
