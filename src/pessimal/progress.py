"""Progress of work: a bar where there is a terminal, log lines every few seconds where there is
none. Nothing is silent for longer."""

import logging
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any, TypeVar

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.segment import Segment

from pessimal.errors import bounded
from pessimal.texts import readable, speed

log = logging.getLogger(__name__)

EVERY, SELDOM = 5, 30
"""Seconds between two lines of progress where there is no terminal, or no bar: a tenth of what has
passed, within these."""
WIDTH = 110
"""Characters of a table's lines where there is no terminal."""


class SafeConsole(Console):
    """A console that writes its own escapes, and none that a text brings along."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Segments with readable texts."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else readable(text), style, control)


class Messages(logging.Formatter):
    """Log lines as a person may have them (`errors.bounded`)."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, with what was raised below it."""
        return bounded(super().format(record))


def console() -> Console:
    """Where people read while a verb works: stderr; stdout is for paths."""
    terminal = sys.stderr.isatty()
    return SafeConsole(
        stderr=True, highlight=False, soft_wrap=not terminal, width=None if terminal else WIDTH
    )


class Counter:
    """Work that is counted: how much is done, how fast it goes (where it has a `unit`), how long
    the rest takes."""

    def __init__(self, bar: Progress, label: str, unit: str, total: int | None, *, done: int = 0):
        self.bar, self.label, self.unit, self.total = bar, label, unit, total
        self.done, self.before, self.name = done, done, ""
        self.begun = time.monotonic()
        self.task = bar.add_task(label, total=total, completed=done, now="", rate="", left="")

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
        rate = f"{speed(self.rate)} {self.unit}/s" if self.unit else ""
        left = timedelta(seconds=round(self.left)) if self.left is not None else ""
        fields: dict[str, Any] = {"now": self.name, "rate": rate, "left": str(left)}
        self.bar.update(self.task, completed=self.done, total=self.total, **fields)

    def log(self) -> None:
        """The same as a line."""
        name = f"{self.label}, {self.name}" if self.name else self.label
        of = "" if self.total is None else f" of {self.total:,}"
        unit = f" {self.unit}" if self.unit else ""
        rate = f", {speed(self.rate)}{unit}/s" if unit and self.done > self.before else ""
        left = "" if self.left is None else f", {self.left:,.0f} s left"
        log.info("%s: %s%s%s%s%s", name, f"{self.done:,}", of, unit, rate, left)

    @property
    def left(self) -> float | None:
        """Seconds to the end at the rate so far; None before anything is done."""
        if self.total is None or self.done == self.before:
            return None
        return (self.total - self.done) / self.rate

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
        TextColumn("{task.fields[left]}"),  # rich's own would wait for a second batch
    )
    hidden = not (bar and sys.stderr.isatty())
    with Progress(*columns, console=console(), transient=True, disable=hidden) as progress:
        counter = Counter(progress, label, unit, total, done=done)
        with beating(lambda _: counter.log()) if hidden else nullcontext():
            yield counter


@contextmanager
def steps(label: str, total: int, *, bar: bool = True) -> Iterator[Callable[[str], None]]:
    """A bar over named steps, with the time that is left."""
    with counted(label, unit="", total=total, bar=bar) as counter:

        def step(name: str) -> None:
            if counter.name:
                counter.advance()
            counter.begin(name)

        yield step
        counter.advance()


@contextmanager
def working(label: str, *, after: float = 0.0) -> Iterator[None]:
    """Log lines about work that nothing counts: one `after` so many seconds, then how long it
    lasts."""
    if not after:
        log.info("%s", label)
    with beating(lambda lasts: log.info("%s: %.0f s so far", label, lasts), first=after or None):
        yield


@contextmanager
def beating(line: Callable[[float], None], *, first: float | None = None) -> Iterator[None]:
    """Call `line` with the seconds that have passed: after the `first`, then every few."""
    ended, begun = threading.Event(), time.monotonic()

    def beat() -> None:
        wait = EVERY if first is None else first
        while not ended.wait(wait):
            lasts = time.monotonic() - begun
            line(lasts)
            wait = min(max(EVERY, lasts / 10), SELDOM)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


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


T = TypeVar("T")


def call_within(seconds: float, call: Callable[[], T], *, task: str) -> T:
    """The value that `call` returns, or what it raises; TimeoutError naming `task` where that takes
    longer than `seconds`.

    For calls that have no limit of their own. What does not come back in time goes on in a thread
    that dies with this process.
    """
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True, name=task).start()
    if not wait([future], max(seconds, 0.01)).done:
        raise TimeoutError(f"{task} took longer than {seconds:.0f} seconds")
    return future.result()
