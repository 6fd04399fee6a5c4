"""Where each score comes from."""

from collections.abc import Sequence

import pandas as pd

from pessimal.tables import ScoreTable


def provenance(tables: Sequence[ScoreTable]) -> pd.DataFrame:
    """One row a score table: what was scored, how, and how far it can be trusted."""
    rows = []
    for table in tables:
        identity, trust = table.identity, table.measured.get("trust") or {}
        rows.append(
            {
                "model": identity.model,
                "prompt": identity.prompt,
                "candidates": identity.candidates,
                "n": len(table.rows),
                "score": identity.score,
                "mode": identity.mode,
                "source": identity.source,
                "dtype": identity.dtype,
                "attention": identity.attention,
                "largest_difference": trust.get("largest_difference"),
                "checked": trust.get("n"),
                "certified": float(table.rows["certified"].mean()),
                "survives": None
                if table.rows["survives"].isna().all()
                else float(table.rows["survives"].mean()),
                "base": table.description.base,
                "developer": table.description.developer,
                "parameters": table.description.parameters,
                "revision": identity.revision,
                "weights": (identity.weights_digest or "")[:12],
            }
        )
    return pd.DataFrame(rows).sort_values(["candidates", "model", "prompt"], ignore_index=True)
