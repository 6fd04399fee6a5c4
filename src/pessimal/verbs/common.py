"""The frame of every verb: where it publishes, and how it prints. Hostile texts and
numbers as a terminal, a spreadsheet and JSON may have them."""

import contextlib
import functools
import io
import json
import logging
import math
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pessimal.api.store import Store
from pessimal.config.compose import config_hash, plain, request
from pessimal.config.schema import TaskConfig, TrackingMode
from pessimal.progress import console, working
from pessimal.scoring.spec import TrainerSpec
from pessimal.tables.result import LEGEND, Result
from pessimal.texts import interval, readable, storable
from pessimal.tracking.mirror import Mirror, Target, open_mirror
from pessimal.tracking.registry import Registry, checkout

if TYPE_CHECKING:
    import torch


log = logging.getLogger(__name__)

_NOT_ASKED = ("task", "tracking", "paths", "progress", "force", "hydra", "tuning.")
"""Options that do not say what a run is about."""


def is_sweep() -> bool:
    """Whether this is one of the jobs of `-m`, which print one line each."""
    return HydraConfig.initialized() and HydraConfig.get().mode is RunMode.MULTIRUN


@contextlib.contextmanager
def tracked(
    config: TaskConfig,
    *,
    name: str,
    inputs: Sequence[str] = (),
    task: str | None = None,
    group: str | None = None,
    first: bool = True,
) -> Iterator[Mirror]:
    """The W&B run of one task; of several processes only the `first` has one. Jobs of a sweep share
    a group, and are called after their overrides; parts of another task are of its `group`."""
    tracking, (_, overrides) = config.tracking, _sweep(config)
    code = checkout()._asdict()
    with contextlib.ExitStack() as stack:
        run = open_mirror(
            target_of(config, group),
            mode=tracking.mode.value if first else TrackingMode.off.value,
            job_type=task or config.task,
            name=" ".join([name, *overrides]),
            config=plain(config)
            | {"config_hash": config_hash(config), "inputs": list(inputs), "code": code},
            patience=tracking.patience,
        )
        yield stack.enter_context(run)
        with working("sending what is left to W&B", after=2):
            stack.close()


def target_of(config: TaskConfig, group: str | None = None) -> Target:
    """Where at W&B a configuration sends its run."""
    tracking = config.tracking
    group = tracking.group or group or _sweep(config)[0]
    folder = Path(config.paths.wandb)
    return Target(tracking.project, folder, tracking.entity, group, tracking.tags)


def _sweep(config: TaskConfig) -> tuple[str | None, list[str]]:
    """The name of the sweep that a job of `-m` is of, the same in all its jobs, and the job's
    overrides that matter."""
    if not is_sweep():
        return None, []
    hydra = HydraConfig.get()
    overrides = [o for o in hydra.overrides.task if not o.lstrip("+~").startswith(_NOT_ASKED)]
    return f"{config.task} {Path(hydra.sweep.dir).name.removeprefix('multirun_')}", overrides


def device_of(trainer: TrainerSpec, cache: str) -> "torch.device":
    """Where a model runs. On a CPU without Lightning, whose import takes longer than one pair."""
    import torch

    if trainer.accelerator != "cpu":
        from pessimal.scoring.trainer import begin_process, make_trainer

        begin_process(trainer)
        return make_trainer(trainer, root=cache).strategy.root_device
    torch.set_num_threads(trainer.threads or torch.get_num_threads())
    return torch.device("cpu")


def store_of(config: TaskConfig) -> Store:
    """Where a verb publishes: its registry, and a W&B run of its own."""
    return Store(registry_of(config), functools.partial(tracked, config), config.force)


def registry_of(config: TaskConfig) -> Registry:
    """The registry that a configuration names; what is published there keeps what the configuration
    asks for."""
    options = request(config)
    return Registry(Path(config.paths.registry), config=options)


_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
"""A cell that begins so, a spreadsheet may take for a formula."""


def visible(text: str) -> str:
    """`text` on one line: control characters, marks of direction and half characters become their
    escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def cell_text(value: Any) -> str:
    """A value for a person: six figures of a number, nothing for None, texts without control
    characters, in quotes where they are empty or white space at their ends would go unseen."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(cell_text, value))
    text = str(value)
    return visible(text) if text and text == text.strip() else f'"{visible(text)}"'


def is_number(value: Any) -> bool:
    """Whether `value` is a number; a truth is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def table_text(
    header: Sequence[str], rows: Sequence[Sequence[Any]], *, width: int | None, keep: int = 0
) -> str:
    """Rows below their header (none where it is empty), numbers to the right. Where `width` is
    given, columns after the first `keep` are cut to fit it."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(header))
    columns = list(zip(*rows, strict=True)) or [()] * len(header)
    for i, (name, values) in enumerate(zip(header, columns, strict=True)):
        numbers = [is_number(value) for value in values if value is not None]
        widest = max(Text(text).cell_len for text in (visible(name), *map(cell_text, values)))
        table.add_column(
            visible(name),
            justify="right" if numbers and all(numbers) else "left",
            min_width=widest if i < keep else None,
            no_wrap=i < keep,
        )
    for row in rows:
        table.add_row(*(Text(cell_text(value), no_wrap=True, overflow="ellipsis") for value in row))
    file = io.StringIO()
    space = 1_000_000 if width is None else max(width, 1)
    Console(file=file, width=space, color_system=None, markup=False, emoji=False).print(table)
    return "\n".join(map(str.rstrip, file.getvalue().rstrip("\n").split("\n")))


def cell(value: Any) -> Any:
    """A value for a spreadsheet: a number stays one; a text that could be taken for a formula gets
    a ' before it."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or value is pd.NA or isinstance(value, int | float):
        return None if value is pd.NA or value != value else value
    value = value.tolist() if isinstance(value, np.ndarray) else value
    text = storable(json.dumps(value) if isinstance(value, list) else str(value))
    return f"'{text}" if text.startswith(_FORMULA) else text


def as_csv(frame: pd.DataFrame) -> str:
    """A row a row, safe to open in a spreadsheet."""
    cells = [[cell(value) for value in row] for row in frame.astype(object).to_numpy(dtype=object)]
    # As objects, so that whole numbers stay whole.
    plain = pd.DataFrame(cells, columns=list(map(cell, frame)), dtype=object)
    # Lines that end in a line feed alone would leave a carriage return in a cell unquoted: the row
    # would be torn in two.
    return plain.to_csv(index=False, lineterminator="\r\n").rstrip("\r\n")


def as_json(value: Any) -> str:
    """JSON in ASCII; a number that JSON cannot have becomes the text "NaN", "Infinity" or
    "-Infinity"."""

    def finite(value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        if isinstance(value, dict):
            return {name: finite(item) for name, item in value.items()}
        return [finite(item) for item in value] if isinstance(value, list | tuple) else value

    return json.dumps(finite(value), indent=2)


def terminal_width() -> int | None:
    """Columns of the terminal; None where the output goes elsewhere, and nothing is to be cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def write_out(text: str) -> None:
    """Print `text`; what the output's encoding does not have becomes its escape, and on a terminal
    what would steer it."""
    if sys.stdout.isatty():
        text = readable(text.replace("\r\n", "\n"))
    encoding = sys.stdout.encoding or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except BrokenPipeError:
        # `pessimal runs | head` has read enough; Python would complain once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


HEADLINES = 6
PRINTED: set[Path] = set()
"""Paths that were printed."""


def print_headlines(results: Sequence[Result], *, title: str, first: str = "") -> None:
    """The heaviest headlines with their numbers, on stderr: at most `HEADLINES` lines, that of the
    result `first` above all."""
    headed = [result for result in results if result.headline]
    headed.sort(key=lambda result: (result.name != first, -np.nan_to_num(result.weight)))
    show(Text(f"{title}: {len(headed)} finding{'s' * (len(headed) != 1)}"))
    for result in headed[:HEADLINES]:
        show(Text(result.headline))
        show(Text(f"    {number(result)}", "dim"))
    if len(headed) > HEADLINES:
        show(f"{len(headed) - HEADLINES} more on the page.")
    if any(result.estimate and result.estimate.heads is not None for result in headed[:HEADLINES]):
        show(Text(LEGEND, "dim"))


def number(result: Result) -> str:
    """A result's estimate in a few characters: `0.79 [0.79, 0.80], n 6,963 tokens`."""
    e, p = result.estimate, ""
    if e is None:
        return ""
    if e.p is not None and e.p == e.p:
        size = f"{e.p:.3f}" if e.p >= 0.001 else "<.001"
        p = f", p {size}"
    miss = f"; {e.miss}" if e.miss else ""
    return f"{interval(e.value, e.low, e.high)}{p}, n {e.n:,} {e.of}{miss}"


def print_path(path: Path) -> None:
    """Print the path of an artifact, last, on stdout; one that the jobs of a sweep share once."""
    if not is_sweep() or path not in PRINTED:
        write_out(str(path))
    PRINTED.add(path)


def show(renderable: object) -> None:
    """Print the end of a verb on stderr; nothing in a job of a sweep."""
    if not is_sweep():
        console().print(renderable)
