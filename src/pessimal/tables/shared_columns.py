"""Score tables of one vocabulary hold one copy of its texts: 540 scans of a Llama-sized vocabulary fit in memory.

Knows which columns are the candidates' and not the scan's.
"""

from dataclasses import replace

import pandas as pd

from pessimal.tables.score_table import ScoreTable

COLUMNS = ("candidate_id", "token", "text", "kind")


class SharedColumns:
    """Remembers the candidates of every vocabulary that it has seen."""

    def __init__(self):
        self._seen: dict[tuple[str | None, ...], pd.DataFrame] = {}

    def of(self, table: ScoreTable) -> ScoreTable:
        """The same table, its candidates' columns taken from the first table with exactly these candidates."""
        key = (table.provenance.candidates_digest, table.provenance.tokenizer_digest)
        first = self._seen.setdefault(key, table.rows[list(COLUMNS)])
        # Published scores state no tokenizer, so equal ids and texts do not prove equal raw tokens.
        if not all(first[c].equals(table.rows[c]) for c in COLUMNS):
            return table
        own = [column for column in table.rows if column not in COLUMNS]
        rows = pd.concat([first, table.rows[own]], axis="columns")[list(table.rows)]
        return replace(table, rows=rows)
