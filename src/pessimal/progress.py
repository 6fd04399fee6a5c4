"""How far work is: a bar where there is a terminal, log lines every few seconds where there is
none."""

import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

log = logging.getLogger(__name__)

EVERY = 10
"""Seconds between two lines of progress where there is no terminal."""
WIDTH = 110
"""Of a table where there is no terminal."""


def console() -> Console:
    """Where people read while a verb works: stderr; stdout is for paths."""
    terminal = sys.stderr.isatty()
    return Console(
        stderr=True, highlight=False, soft_wrap=not terminal, width=None if terminal else WIDTH
    )


class Counter:
    """Work that is counted: how much is done, how fast it goes, how long the rest takes."""

    def __init__(self, bar: Progress, label: str, unit: str, total: int | None, *, done: int = 0):
        self.bar, self.label, self.unit, self.total = bar, label, unit, total
        self.done, self.before, self.name = done, done, ""
        self.begun = self.reported = time.monotonic()
        self.task = bar.add_task(label, total=total, completed=done, now="", rate="")

    def begin(self, name: str, *, total: int | None = None) -> None:
        """The next part, and how much there is in all where that is known by now."""
        self.name, self.total = name, total or self.total
        self._show()

    def advance(self, n: int = 1) -> None:
        """So much more is done; the total may have been an estimate."""
        self.done += n
        self._show()

    def _show(self) -> None:
        if self.total is not None:
            self.total = max(self.total, self.done)
        rate = f"{self.rate:,.0f} {self.unit}/s"
        self.bar.update(self.task, completed=self.done, total=self.total, now=self.name, rate=rate)
        if self.bar.disable and time.monotonic() - self.reported > EVERY:
            self.reported = time.monotonic()
            what = f"{self.label}, {self.name}" if self.name else self.label
            of = "" if self.total is None else f" of {self.total:,}"
            left = (
                ""
                if self.total is None
                else f", {(self.total - self.done) / self.rate:,.0f} s left"
            )
            log.info("%s: %s%s %s, %s%s", what, f"{self.done:,}", of, self.unit, rate, left)

    @property
    def rate(self) -> float:
        """Units a second since the beginning."""
        return max(self.done - self.before, 1) / max(time.monotonic() - self.begun, 1e-9)


@contextmanager
def counted(
    label: str, *, unit: str, total: int | None = None, done: int = 0, bar: bool = True
) -> Iterator[Counter]:
    """A bar with rate and time left over work that is counted in units; `total` where it is known,
    `done` of it before."""
    columns = (
        TextColumn("{task.description}: {task.fields[now]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with _progress(*columns, bar=bar) as progress:
        yield Counter(progress, label, unit, total, done=done)


@contextmanager
def steps(label: str, total: int, *, bar: bool = True) -> Iterator[Callable[[str], None]]:
    """A bar over named steps, with the time that is left."""
    columns = (
        TextColumn(f"{label}: {{task.fields[now]}}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with _progress(*columns, bar=bar) as progress:
        task = progress.add_task(label, total=total, now="")
        last, done = time.monotonic(), -1

        def step(name: str) -> None:
            nonlocal last, done
            done += 1
            progress.update(task, completed=done, now=name)
            if progress.disable and time.monotonic() - last > EVERY:
                last = time.monotonic()
                log.info("%s: %s (%d of %d)", label, name, done + 1, total)

        yield step
        progress.update(task, completed=total)


def _progress(*columns, bar: bool) -> Progress:
    return Progress(
        *columns, console=console(), transient=True, disable=not (bar and sys.stderr.isatty())
    )


def quiet_libraries(*, lightning: bool = True) -> None:
    """Send what libraries say about hardware, tips and their own deprecations to the run's log
    file; `lightning` False for verbs that do not use it, as its import takes seconds."""
    import transformers

    if lightning:
        import pytorch_lightning  # noqa: F401 its handlers are made when it is imported

    logging.captureWarnings(True)
    for name in ("pytorch_lightning", "lightning.pytorch", "lightning_fabric"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    for client in ("httpx", "httpx2", "openai"):
        logging.getLogger(client).setLevel(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_default_handler()
    transformers.utils.logging.enable_propagation()
    for message in (
        "Couldn't infer the batch indices",
        ".*does not have many workers",
        ".*LeafSpec.*",
    ):
        warnings.filterwarnings("ignore", message=message)
