"""Which table a scan makes: its provenance, known before a network is loaded, and the folder that
holds its shards until it is published.

Knows rewards, prompts and candidates by what they are. Scores nothing.
"""

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pessimal.catalogue import run_of
from pessimal.conversation import Asked, Context, Prefixed, plain_text
from pessimal.errors import ConfigError, WorkError
from pessimal.rewards.base import Reward
from pessimal.rewards.checkpoint_files import of_model
from pessimal.rewards.spec import Mode
from pessimal.scoring.candidates import Candidates
from pessimal.tables import ScoreProvenance


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
    said, slot = prompt_text, None
    if isinstance(said, Context):
        check_slot(model, said, mode)
        slot = {"where": said.slot, "turn": said.turn, "at": said.at, "rejected": said.rejected}
        said = said.turns
    model.spec.check_mode(mode)
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


def check_slot(model: Reward, context: Context, mode: Mode) -> None:
    """ConfigError where a reward cannot be read with candidates in this slot."""
    why = model.slot_fault(is_last=context.turn == len(context.turns) - 1)
    if mode is Mode.paper:
        why = "mode=paper is the published procedure for whole answers: leave it out"
    if why is not None:
        raise ConfigError(f"slot={context.slot} with model.kind={model.spec.kind}: {why}")


def _of_reward(model: Reward, certain: int | None) -> dict[str, Any]:
    """What a provenance says of a reward, whatever it is asked."""
    return {
        "certain": None if model.is_exact else certain,
        "score": model.score,
        "kind": model.spec.kind,
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
    outputs, behind = model.outputs or (None,), prefixed or {}
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


def of_term(term: Reward, provenance: ScoreProvenance) -> ScoreProvenance:
    """The provenance of a term's table, from that of its sum."""
    return replace(provenance, model=term.name, **_of_reward(term, provenance.certain))


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
