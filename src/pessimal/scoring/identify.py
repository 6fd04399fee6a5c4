"""The table that a scan makes: its provenance, known before a network is loaded, the folder that
holds its shards until it is published, and what it records beside the rewards.

Knows rewards, prompts and candidates by what they are. Scores nothing.
"""

import contextlib
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from pessimal.catalogue import run_of
from pessimal.conversation import Asked, Context, Conversation, Prefixed, plain_text
from pessimal.errors import ConfigError, ModelError, WorkError
from pessimal.rewards.base import NetworkReward, Reward
from pessimal.rewards.checkpoint_files import model_fields
from pessimal.rewards.formats import Continued
from pessimal.rewards.spec import Dtype, Mode
from pessimal.scoring.candidates import Candidates, Inputs
from pessimal.scoring.trust import Certified, Trust
from pessimal.tables import ScoreProvenance, ScoreTable
from pessimal.tables.score_table import LOG_PROBABILITY
from pessimal.texts import storable

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
    """Everything that the scores depend on, before the network is loaded, so that a finished table
    can be looked up. Name and number of an `output`, where every one is scanned, stand for a model
    of its own. ConfigError for mode=paper of another kind than a reward model, and for a slot in a
    kind of reward that is read elsewhere."""
    wording, slot = prompt_text, None
    if isinstance(wording, Context):
        check_slot(model, wording, mode)
        slot = {
            "where": wording.slot,
            "turn": wording.turn,
            "at": wording.at,
            "rejected": wording.rejected,
        }
        wording = wording.turns
    model.spec.check_mode(mode)
    label, number = output or ("", model.spec.output)
    run = run_of(model.name)
    return ScoreProvenance(
        model=f"{run}.{label}{model.name.removeprefix(run)}" if label else model.name,
        prompt=prompt,
        prompt_text=plain_text(wording),
        prefixed=None if prefixed is None else vars(prefixed),
        turns=None if isinstance(wording, str) else [vars(turn) for turn in wording],
        slot=slot,
        candidates=candidates.name,
        candidates_digest=candidates.digest(),
        mode=mode.value,
        source="scan",
        **_reward_fields(model, certain) | {"output": number},
    )


def check_slot(model: Reward, context: Context, mode: Mode) -> None:
    """ConfigError where a reward cannot be read with candidates in this slot."""
    reason = model.slot_fault(is_last=context.turn == len(context.turns) - 1)
    if mode is Mode.paper:
        reason = "mode=paper is the published procedure for whole answers: leave it out"
    if reason is not None:
        raise ConfigError(f"slot={context.slot} with model.kind={model.spec.kind}: {reason}")


def _reward_fields(model: Reward, certain: int | None) -> dict[str, Any]:
    """Fields of a provenance on a reward, whatever it is asked."""
    return {
        "certain": None if model.is_exact else certain,
        "score": model.score,
        "kind": model.spec.kind,
        "step": model.spec.step,
        **model_fields(model),
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
    outputs, prefixes = model.outputs or (None,), prefixed or {}
    return [
        identify(
            model,
            prompt=key,
            prompt_text=text,
            output=output,
            prefixed=prefixes.get(key),
            **options,
        )
        for key, text in prompts.items()
        for output in outputs
    ]


def engine_pass_provenance(model: Reward, provenance: ScoreProvenance) -> ScoreProvenance:
    """Provenance under which the pass that gives a table is kept: one for all outputs, where every
    one is scanned."""
    return replace(provenance, model=model.name, output=model.spec.output)


def term_provenance(term: Reward, provenance: ScoreProvenance) -> ScoreProvenance:
    """The provenance of a term's table, from that of its sum."""
    return replace(provenance, model=term.name, **_reward_fields(term, provenance.certain))


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
            "Wait for it, and give this one again: it scans what is left"
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


SLOT = ("untouched", "rejected")
"""Names of a context's rewards in its table: of the answer as it is, and of the rejected one."""


def language_model_provenance(
    model: NetworkReward,
    provenance: ScoreProvenance,
    candidates: Candidates,
    scored: Inputs,
    values: np.ndarray,
) -> dict[str, Any]:
    """Further entries of a language model's table: how it was asked, and what its numbers are
    of."""
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
        if not isinstance(provenance.question, Context):
            _, apart = conversations.continued(provenance.question, texts)
        lengths = scored.lengths - len(conversations.closing)
        measured["tokens_per_item"] = {
            "least": int(lengths.min()),
            "median": float(np.median(lengths)),
            "most": int(lengths.max()),
        }
        measured["tokenised_apart"] = len(apart)
        measured["tokenised_apart_examples"] = [storable(answer) for answer in apart[:5]]
    elif provenance.score == LOG_PROBABILITY:
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
    """The weight of each objective in a mixture, by its label: the gate's `coefficients`
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


def both_answers(context: Context) -> list[Conversation | None]:
    """The conversation as it is, and with the rejected answer."""
    *before, answer = context.turns
    rejected = context.rejected
    return [
        context.turns,
        None if rejected is None else (*before, replace(answer, content=rejected)),
    ]


def slot_entries(rewards: np.ndarray, end: int | None = None) -> dict[str, Any]:
    """Entries of a context's table: the rewards of its answers (2,), and which token ends a turn.
    ModelError where the reward of the answer itself is not a number."""
    if not np.isfinite(rewards[0]):
        raise ModelError(
            "the reward of the answer as it is, with nothing in the slot, is not a number: leave "
            "this context out, or try model.dtype=float32"
        )
    values = [float(reward) if np.isfinite(reward) else None for reward in rewards]
    return {"slot": dict(zip(SLOT, values, strict=True)) | {"end_of_turn": end}}


def answered(
    model: Reward, candidates: Candidates, rewards: np.ndarray
) -> tuple[Candidates, np.ndarray, dict[str, Any]]:
    """The candidates that have a reward, their rows, and what a table records of the others, to
    which a function does not apply.

    Raises:
        ModelError: it applies to none.
    """
    places = np.flatnonzero(np.isfinite(rewards))
    missing = candidates.rows["text"][~np.isfinite(rewards)].tolist()
    if not missing:
        return candidates, places, {}
    message = f"{model.name} does not apply (None) to {len(missing)} of {len(rewards)} candidates"
    if not len(places):
        raise ModelError(f"{message}: there is nothing to compare. Give candidates that it rewards")
    log.warning("%s, the first %r: they are left out", message, missing[0][:60])
    rows = candidates.rows.iloc[places].reset_index(drop=True)
    counted = {"missing": len(missing), "missing_examples": missing[:5]}
    return Candidates(candidates.name, rows), places, counted
