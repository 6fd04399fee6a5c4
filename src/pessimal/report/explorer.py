"""The token explorer's data: every token of the vocabularies behind a comparison, with its rewards and ranks.

Knows score tables and which of them go onto the page. Does not know where they were stored, nor HTML or JavaScript.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from pessimal.errors import InputError
from pessimal.report.packing import packed, packed_document, plain
from pessimal.tables import ScoreTable
from pessimal.tables.score_table import COLUMNS, KINDS, PLAIN_TEXT_ALL_THE_SAME, REWARD, ScoreProvenance
from pessimal.texts import literal, short_names

_KINDS = (*KINDS, "unknown")


@dataclass(frozen=True)
class Explorer:
    """What the page's script reads."""

    index: dict
    """Vocabularies, their columns (model, prompt) and where each one's data is; JSON. Empty without tables."""
    chunks: list[str]
    """base64 of deflated bytes, referred to by number."""
    notes: list[str] = field(default_factory=list)
    """Sentences on what is not in it."""


def chosen_prompts(provenances: Sequence[ScoreProvenance], *, wanted: Sequence[str] = ()) -> list[str]:
    """The prompts that go onto the page: those wanted; else those that the most models were asked, in order.

    Raises InputError where one is wanted that no table has.
    """
    models: dict[str, set[str]] = {}
    for provenance in provenances:
        models.setdefault(provenance.prompt, set()).add(provenance.model)
    if unknown := [prompt for prompt in wanted if prompt not in models]:
        raise InputError(
            f"explorer_prompts={unknown}: no score table behind what is shown has it; there are: "
            + (", ".join(sorted(models)) or "none")
        )
    if wanted:
        return list(dict.fromkeys(wanted))
    most = max(map(len, models.values()), default=0)
    return [prompt for prompt, asked in models.items() if len(asked) == most]


def explorer(tables: Sequence[ScoreTable], *, notes: Sequence[str] = ()) -> Explorer | None:
    """Pack the tables, one vocabulary (or item list) under another; None where there is nothing to show or to say.

    Tables belong to one vocabulary where ids, raw tokens, texts and kinds are the same. The vocabulary of most tables
    comes first; models and prompts keep the order in which they come.
    """
    if not tables:
        return Explorer({}, [], list(notes)) if notes else None
    chunks: list[str] = []
    vocabularies: list[tuple[list[ScoreTable], dict]] = []
    for table in tables:
        place = next((v for own, v in vocabularies if _same_candidates(own[0], table)), None)
        if place is None:
            place = _vocabulary(table, chunks)
            vocabularies.append(([table], place))
        place["columns"].append(_set_apart(_column(table, chunks), place["columns"]))
    vocabularies.sort(key=lambda pair: -len(pair[1]["columns"]))
    _name([place for _, place in vocabularies])
    index = {
        "vocabularies": [place for _, place in vocabularies],
        "prompts": {plain(t.provenance.prompt): plain(t.provenance.prompt_text) for t in tables},
        "models": {
            plain(model): plain(short)
            for model, short in short_names([table.provenance.model for table in tables]).items()
        },
        "kinds": _KINDS,
    }
    return Explorer(index, chunks, list(notes))


def _same_candidates(a: ScoreTable, b: ScoreTable) -> bool:
    if (a.provenance.candidates, len(a.rows)) != (b.provenance.candidates, len(b.rows)):
        return False
    return all(a.rows[c] is b.rows[c] or a.rows[c].equals(b.rows[c]) for c in COLUMNS)


def _vocabulary(table: ScoreTable, chunks: list[str]) -> dict:
    """The candidates of a table: their texts, and the raw tokens, ids and kinds where those say more."""
    rows = table.rows
    texts = [plain(text) for text in rows["text"]]
    tokens = [
        plain(token) if isinstance(token, str) else text
        for token, text in zip(rows["token"], texts, strict=True)
    ]
    ids = rows["candidate_id"].tolist()
    codes = pd.Categorical(rows["kind"], categories=KINDS).codes % len(
        _KINDS
    )  # −1, none of them, is the last
    document = {
        "texts": texts,
        "tokens": [0 if token == text else token for token, text in zip(tokens, texts, strict=True)],
        "ids": None if ids == list(range(len(ids))) else ids,
        "kinds": "".join(str(code) for code in codes),
    }
    chunks.append(packed_document(document))
    return {
        "candidates": plain(table.provenance.candidates),
        "rows": len(rows),
        "chunk": len(chunks) - 1,
        "columns": [],
    }


def _column(table: ScoreTable, chunks: list[str]) -> dict:
    """One (model, prompt): where its rewards are, and how they are rounded."""
    provenance, rows = table.provenance, table.rows
    survives = rows["survives"].astype("boolean")
    data = packed(
        rows["reward"].to_numpy(),
        certified=rows["certified"].fillna(False).to_numpy(dtype=bool),
        survives=survives.fillna(False).to_numpy(dtype=bool),
        survival_known=survives.notna().to_numpy(dtype=bool),
    )
    chunks.append(data.text)
    return {
        "model": plain(provenance.model),
        "prompt": plain(provenance.prompt),
        "variant": _variant(provenance),
        "plain_variant": _variant(provenance),
        "chunk": len(chunks) - 1,
        "decimals": data.decimals,
        "bits": data.bits,
        "mean": float(np.mean(rows["reward"])),
        "sd": float(np.std(rows["reward"])),
    }


def _variant(provenance: ScoreProvenance) -> str:
    """What sets this scan of a model apart from its usual one: mode, precision, kind of score."""
    unusual = [
        provenance.mode if provenance.mode not in ("ids", "published") else "",
        provenance.dtype if provenance.dtype not in (None, "float32") else "",
        "" if provenance.score == REWARD else provenance.score.replace("_", " "),
        "without template" if provenance.template_digest == PLAIN_TEXT_ALL_THE_SAME else "",
    ]
    return ", ".join(plain(part) for part in unusual if part)


def _set_apart(column: dict, others: list[dict]) -> dict:
    """The column, its variant numbered where another has the same model, prompt and variant."""
    alike = [c for c in others if all(c[key] == column[key] for key in ("model", "prompt", "plain_variant"))]
    return column | {"variant": f"{column['plain_variant']} ({len(alike) + 1})".strip()} if alike else column


def _name(vocabularies: list[dict]) -> None:
    """Say of each vocabulary whose it is and how many candidates it has."""
    for place in vocabularies:
        models = list(dict.fromkeys(column["model"] for column in place["columns"]))
        whose = (
            literal(models[0], limit=40)
            if len(models) == 1
            else f"{len(models)} models, {literal(models[0], limit=30)} …"
        )
        place["label"] = f"{literal(place['candidates'], limit=30)} of {place['rows']:,} ({whose})"
