"""The stages of one search, each kept on disk as soon as it is finished, so that a killed search goes on where it
stopped and gives the same result.

Knows the evaluation counter and JSON. Does not know what a stage does.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pessimal.search.evaluation_counter import EvaluationCounter, Point
from pessimal.search.objective import Objective
from pessimal.tables.files import write_atomically


@dataclass(frozen=True)
class Stage:
    """The result of one stage."""

    name: str
    """`beam`, `restart 0`, `polish 0` …"""
    phase: str
    """start, gradient, polish, baseline."""
    evaluations: int
    """Candidate evaluations made."""
    seconds: float
    """Wall-clock time."""
    curve: list[Point]
    """Improvements of the stage's own best value."""
    finals: list[Point]
    """The responses it hands on, best first."""
    details: dict = field(default_factory=dict)
    """Further figures, as JSON has them."""

    @property
    def best(self) -> Point:
        return self.finals[0]


Run = Callable[[EvaluationCounter], tuple[list[Point], dict]]
"""Does a stage's work on its evaluation counter; gives the responses it hands on, best first, and details."""


class Stages:
    """Runs stages over one objective, each once: what is finished in `folder` is read from there."""

    def __init__(
        self,
        objective: Objective,
        folder: Path | None = None,
        *,
        report: Callable[[Stage], None] | None = None,
    ):
        self.objective, self.folder, self.report = objective, folder, report or (lambda _stage: None)
        self.done: list[Stage] = []
        """In the order of the calls."""

    def run(self, name: str, phase: str, work: Run, **limits) -> Stage:
        """The stage of this name: as it was kept, or by doing its `work` on a fresh counter (`limits`: its options)."""
        stage = self._kept(name)
        if stage is None:
            started = time.perf_counter()
            fresh = EvaluationCounter(self.objective, **limits)
            finals, details = work(fresh)
            seconds = time.perf_counter() - started
            stage = Stage(name, phase, fresh.used, seconds, fresh.curve, finals, details)
            self._keep(stage)
        self.done.append(stage)
        self.report(stage)
        return stage

    def evaluations(self, *, phases: tuple[str, ...]) -> int:
        """Evaluations of the finished stages of these phases."""
        return sum(stage.evaluations for stage in self.done if stage.phase in phases)

    def _file(self, name: str) -> Path:
        return self.folder / f"{name.replace(' ', '-')}.json"

    def _kept(self, name: str) -> Stage | None:
        if self.folder is None or not self._file(name).exists():
            return None
        try:
            kept = json.loads(self._file(name).read_text())
            points = {key: [_point(p) for p in kept.pop(key)] for key in ("curve", "finals")}
            return Stage(**kept, **points)
        except (ValueError, KeyError, TypeError):  # torn by a crash, or of an earlier version: done again
            return None

    def _keep(self, stage: Stage) -> None:
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._file(stage.name), json.dumps(asdict(stage)).encode())


def joined(stages: list[Stage]) -> list[Point]:
    """The curve of stages that ran one after the other: the best value so far against all evaluations so far."""
    curve: list[Point] = []
    before = 0
    for stage in stages:
        for point in stage.curve:
            if not curve or point.value > curve[-1].value:
                curve.append(Point(before + point.evaluations, point.value, point.response))
        before += stage.evaluations
    return curve


def _point(kept: dict) -> Point:
    return Point(kept["evaluations"], kept["value"], tuple(kept["response"]))
