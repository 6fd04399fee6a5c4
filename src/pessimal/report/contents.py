"""The contents of a comparison: its findings in order, each a sentence with a figure or a table.

Knows names of figures and tables. Does not know what they show, nor HTML.
"""

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from pessimal import __version__
from pessimal.figures.save import save_all

CONTENTS = "contents.json"


@dataclass(frozen=True)
class Entry:
    """One finding."""

    title: str
    sentence: str
    """What is shown, on how many candidates it rests, and what it does not say."""
    figure: str | None = None
    """Stem of the figure's files under `figures/`."""
    table: str | None = None
    """Stem of the table under `tables/` that holds the numbers."""
    where: dict[str, str] = field(default_factory=dict)
    """Which of its rows: column and value."""
    views: str | None = None
    """Stem of the file under `views/` that holds comparisons to be read (see `report.edits`)."""


@dataclass(frozen=True)
class Section:
    """Findings that belong together: those on one prompt, say."""

    title: str
    sentence: str
    entries: list[Entry] = field(default_factory=list)


@dataclass
class Contents:
    """Everything that a comparison found, in memory, ready to be written into an artifact folder."""

    sections: list[Section] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)
    """By stem."""
    tables: dict[str, list[pd.DataFrame]] = field(default_factory=dict)
    """Pieces of each table, by stem; pieces are put under one another."""
    summary: dict[str, float | str | int] = field(default_factory=dict)
    """The figures by which comparisons are compared."""
    files: dict[str, str] = field(default_factory=dict)
    """What else belongs to the artifact: texts by their path in it."""

    def section(self, title: str, sentence: str) -> Section:
        """Begin a section."""
        self.sections.append(Section(title, sentence))
        return self.sections[-1]

    def add_table(self, name: str, piece: pd.DataFrame, **where: str) -> None:
        """Add a piece to table `name`, with columns that say where it belongs (prompt, candidates)."""
        self.tables.setdefault(name, []).append(piece.assign(**where))

    def captions(self) -> dict[str, str]:
        """The sentence under each figure, by its stem."""
        entries = (entry for section in self.sections for entry in section.entries)
        return {entry.figure: entry.sentence for entry in entries if entry.figure}

    def whole_tables(self) -> dict[str, pd.DataFrame]:
        """Each table in one piece."""
        return {name: pd.concat(pieces, ignore_index=True) for name, pieces in self.tables.items()}

    def write(self, folder: Path) -> None:
        """Write `tables/*.parquet`, `figures/*.svg|png`, the other files and `contents.json`."""
        (folder / "tables").mkdir()
        (folder / "figures").mkdir()
        for name, table in self.whole_tables().items():
            table.to_parquet(folder / "tables" / f"{name}.parquet", index=False)
        save_all(self.figures, folder / "figures")
        for path, text in self.files.items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        document = {
            "version": __version__,
            "sections": [asdict(section) for section in self.sections],
            # What is not a number is no JSON.
            "summary": {
                name: None if isinstance(value, float) and not math.isfinite(value) else value
                for name, value in self.summary.items()
            },
        }
        (folder / CONTENTS).write_text(json.dumps(document, indent=2, ensure_ascii=False))


def read_sections(folder: Path) -> tuple[list[Section], str]:
    """The sections of a published comparison, and the version of pessimal that made it."""
    document = json.loads((folder / CONTENTS).read_text())
    sections = [
        Section(s["title"], s["sentence"], [Entry(**entry) for entry in s["entries"]])
        for s in document["sections"]
    ]
    return sections, document["version"]
