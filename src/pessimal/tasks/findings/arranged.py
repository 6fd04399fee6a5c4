"""Score tables in the order in which findings want them: whatever cannot be put side by side is told here, before work
begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pessimal.tables import ScoreTable
from pessimal.tables.score_table import REWARD
from pessimal.tasks.findings.group import Group, groups
from pessimal.tasks.findings.language_tables import one_a_model
from pessimal.tasks.findings.scans import Key, Modes, Rescans, by_mode, rescans


@dataclass(frozen=True)
class Arranged:
    """What is compared."""

    tables: list[ScoreTable]
    groups: list[Group]
    """Rewards by candidate set and prompt, one table a model: the first of `scans.MODES` stands for it."""
    scans: dict[Key, Modes]
    """Every mode that a model was scanned in."""
    rescans: dict[Key, Rescans]
    no_rescans: dict[Key, list[str]]
    """Scans that are not compared with the one that stands for the model, and why."""
    language: list[ScoreTable]
    """Log-probabilities of language models."""


def arrange(tables: Sequence[ScoreTable]) -> Arranged:
    """Sort score tables by what they are. Raises TableError where they cannot be put side by side."""
    rewards = [table for table in tables if table.identity.score == REWARD]
    scans = by_mode(rewards)
    again, none = rescans(rewards, scans)
    language = [table for table in tables if table.identity.score != REWARD]
    groups(one_a_model(language))  # what cannot be put side by side is told now
    return Arranged(
        tables=list(tables),
        groups=groups([next(iter(modes.values())) for modes in scans.values()]),
        scans=scans,
        rescans=again,
        no_rescans=none,
        language=language,
    )
