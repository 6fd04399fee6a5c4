"""How far a verb is (`pessimal.progress`); the jobs of a sweep draw nothing, since they work side
by side."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from pessimal import progress
from pessimal.progress import Counter, console

__all__ = ["Counter", "console", "counted", "in_sweep", "steps"]


def in_sweep() -> bool:
    """Whether this is one of the jobs of `-m`, which print one line each."""
    return HydraConfig.initialized() and HydraConfig.get().mode is RunMode.MULTIRUN


def counted(
    label: str, *, unit: str, total: int | None = None, bar: bool = True
) -> AbstractContextManager[Counter]:
    """A bar with rate and time left over work that is counted in units; `total` where it is
    known."""
    return progress.counted(label, unit=unit, total=total, bar=bar and not in_sweep())


def steps(
    label: str, total: int, *, bar: bool = True
) -> AbstractContextManager[Callable[[str], None]]:
    """A bar over named steps, with the time that is left."""
    return progress.steps(label, total, bar=bar and not in_sweep())
