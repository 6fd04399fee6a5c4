"""What the verdicts of an audit rest on, collected part by part: a part that a reward does not
allow leaves the others standing."""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from pessimal.errors import UserError
from pessimal.tables import ScoreTable
from pessimal.tables.result import Result

log = logging.getLogger(__name__)


@dataclass
class Evidence:
    """Results of the other verbs, and what could not be measured."""

    results: list[Result] = field(default_factory=list)
    left_out: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Reason, and the command that would measure it, by check that was not measured."""
    scope: dict[str, str] = field(default_factory=dict)
    """What each part looked at, in words."""
    tables: list[ScoreTable] = field(default_factory=list)
    """Score tables of the prompts."""
    inputs: list[str] = field(default_factory=list)
    """References of the input artifacts."""
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def by_name(self) -> dict[str, Result]:
        """The results by name."""
        return {result.name: result for result in self.results}

    @contextlib.contextmanager
    def measure(self, *checks: str) -> Iterator[None]:
        """A part that this reward may not allow, such as answers longer than it reads: its checks
        are then not measured, and the others stay."""
        try:
            yield
        except UserError as error:
            log.warning("%s: not measured: %s", ", ".join(checks), error)
            self.left_out |= dict.fromkeys(checks, (str(error), ""))
