"""The token explorer's data: every token of the vocabularies behind a comparison, with its rewards
and exact ranks, packed.

Knows score tables and which of them go onto the page; `js/data.js` reads what is written here. Does
not know HTML.
"""

import base64
import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from pessimal.errors import InputError
from pessimal.tables import ScoreTable
from pessimal.tables.score_table import (
    COLUMNS,
    KINDS,
    PLAIN_TEXT_ALL_THE_SAME,
    REWARD,
    ScoreProvenance,
)
from pessimal.texts import literal, short_names, storable

_KINDS = (*KINDS, "unknown")
STEPS_PER_SD = 5000
"""Rewards are rounded to a power of ten that is at most the standard deviation of the table over
this."""
MOST_DECIMALS = 12
LARGEST = 2**50  # whole numbers that JavaScript holds exactly, with room to spare


@dataclass(frozen=True)
class Explorer:
    """Data that the page's script reads."""

    index: dict
    """Vocabularies, their columns (model, prompt) and where each one's data is; JSON. Empty without
    tables."""
    chunks: list[str]
    """base64 of deflated bytes, referred to by number."""
    notes: list[str] = field(default_factory=list)
    """Sentences on what is not in it."""


def chosen_prompts(
    provenances: Sequence[ScoreProvenance], *, wanted: Sequence[str] = ()
) -> list[str]:
    """The prompts that go onto the page: those wanted; else those that the most models were asked,
    in order.

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
    largest = max(map(len, models.values()), default=0)
    return [prompt for prompt, answering in models.items() if len(answering) == largest]


def explorer(tables: Sequence[ScoreTable], *, notes: Sequence[str] = ()) -> Explorer | None:
    """Pack the tables, one vocabulary (or item list) under another; None where there is nothing to
    show or to say.

    Tables belong to one vocabulary where ids, raw tokens, texts and kinds are the same. The
    vocabulary of most tables comes first; models and prompts keep the order in which they come.
    """
    if not tables:
        return Explorer({}, [], list(notes)) if notes else None
    chunks: list[str] = []
    vocabularies: list[tuple[ScoreTable, dict]] = []
    for table in tables:
        places = [place for first, place in vocabularies if _same_candidates(first, table)]
        if not places:
            places = [_vocabulary(table, chunks)]
            vocabularies.append((table, places[0]))
        columns = places[0]["columns"]
        columns.append(_set_apart(_column(table, chunks), columns))
    ordered = sorted((place for _, place in vocabularies), key=lambda v: -len(v["columns"]))
    _name(ordered)
    names = short_names([table.provenance.model for table in tables])
    index = {
        "vocabularies": ordered,
        "prompts": {plain(t.provenance.prompt): plain(t.provenance.prompt_text) for t in tables},
        "models": {plain(model): plain(short) for model, short in names.items()},
        "kinds": _KINDS,
    }
    return Explorer(index, chunks, list(notes))


def _same_candidates(a: ScoreTable, b: ScoreTable) -> bool:
    if (a.provenance.candidates, len(a.rows)) != (b.provenance.candidates, len(b.rows)):
        return False
    return all(a.rows[c] is b.rows[c] or a.rows[c].equals(b.rows[c]) for c in COLUMNS)


def _vocabulary(table: ScoreTable, chunks: list[str]) -> dict:
    """The candidates of a table: their texts, and the raw tokens, ids and kinds where those say
    more."""
    rows = table.rows
    texts = [plain(text) for text in rows["text"]]
    tokens = [
        0 if not isinstance(token, str) or plain(token) == text else plain(token)
        for token, text in zip(rows["token"], texts, strict=True)
    ]
    ids = rows["candidate_id"].tolist()
    # −1, none of them, is the last.
    codes = pd.Categorical(rows["kind"], categories=KINDS).codes % len(_KINDS)
    document = {
        "texts": texts,
        "tokens": tokens,
        "ids": None if ids == list(range(len(ids))) else ids,
        "kinds": "".join(str(code) for code in codes),
    }
    # As data in base64 no text in it can become markup.
    chunks.append(_deflated(json.dumps(document, separators=(",", ":")).encode("ascii")))
    candidates, chunk = plain(table.provenance.candidates), len(chunks) - 1
    return {"candidates": candidates, "rows": len(rows), "chunk": chunk, "columns": []}


def _column(table: ScoreTable, chunks: list[str]) -> dict:
    """One (model, prompt): where its rewards are, and how they are rounded."""
    provenance, rows = table.provenance, table.rows
    survives = rows["survives"].astype("boolean")
    text, decimals, bits = packed(
        rows["reward"].to_numpy(),
        certified=rows["certified"].fillna(False).to_numpy(dtype=bool),
        survives=survives.fillna(False).to_numpy(dtype=bool),
        survival_known=survives.notna().to_numpy(dtype=bool),
    )
    chunks.append(text)
    mean, sd = float(np.mean(rows["reward"])), float(np.std(rows["reward"]))
    column = {"model": plain(provenance.model), "prompt": plain(provenance.prompt)}
    column |= dict.fromkeys(("variant", "plain_variant"), _variant(provenance))
    packing = {"chunk": len(chunks) - 1, "decimals": decimals, "bits": bits}
    return column | packing | {"mean": mean, "sd": sd}


def _variant(provenance: ScoreProvenance) -> str:
    """Difference of this scan of a model from its usual one: mode, precision, kind of score."""
    unusual = [
        provenance.mode if provenance.mode not in ("ids", "published") else "",
        provenance.dtype if provenance.dtype not in (None, "float32") else "",
        "" if provenance.score == REWARD else provenance.score.replace("_", " "),
        "without template" if provenance.template_digest == PLAIN_TEXT_ALL_THE_SAME else "",
    ]
    return ", ".join(plain(part) for part in unusual if part)


def _set_apart(column: dict, columns: list[dict]) -> dict:
    """The column, its variant numbered where another has the same model, prompt and variant."""
    keys = ("model", "prompt", "plain_variant")
    alike = sum(all(other[key] == column[key] for key in keys) for other in columns)
    variant = f"{column['plain_variant']} ({alike + 1})".strip()
    return column | {"variant": variant} if alike else column


def _name(vocabularies: list[dict]) -> None:
    """Say of each vocabulary whose it is and how many candidates it has."""
    for place in vocabularies:
        models = list(dict.fromkeys(column["model"] for column in place["columns"]))
        owner = literal(models[0], limit=40)
        if len(models) > 1:
            owner = f"{len(models)} models, {literal(models[0], limit=30)} …"
        place["label"] = f"{literal(place['candidates'], limit=30)} of {place['rows']:,} ({owner})"


def packed(
    rewards: np.ndarray, *, certified: np.ndarray, survives: np.ndarray, survival_known: np.ndarray
) -> tuple[str, int, int]:
    """One table, rows in the order of its vocabulary, as base64 of deflated bytes; the decimals
    that rewards are rounded to; and the bits that a row takes in the order.

    Inside: the rows from the highest reward to the lowest, each in `bits` bits, lowest bit first
    (equal rewards in the order of the vocabulary); the steps between neighbours' rounded rewards,
    as LEB128, the first from zero (and that one zigzag); then four sets of one bit a row: equal to
    its predecessor in that order, certified, survives, known whether it survives.

    Args:
        rewards: (n,) float, finite.
        certified, survives, survival_known: (n,) bool, by row.
    """
    rewards = np.asarray(rewards, dtype=np.float64)
    n, places = len(rewards), decimals(rewards)
    order = np.argsort(-rewards, kind="stable")
    falling = rewards[order]
    ties = np.diff(falling, prepend=np.inf) == 0
    rounded = np.rint(falling * 10.0**places).astype(np.int64)
    steps = -np.diff(rounded, prepend=0)
    steps[:1] = np.where(rounded >= 0, 2 * rounded, -2 * rounded - 1)[:1]
    bits = max(1, (n - 1).bit_length())
    flags = [np.packbits(f, bitorder="little") for f in (ties, certified, survives, survival_known)]
    pieces = [_pack_bits(order, bits), _leb128(steps), *(flag.tobytes() for flag in flags)]
    return _deflated(b"".join(pieces)), places, bits


def decimals(rewards: np.ndarray) -> int:
    """Number of decimals that tell rewards apart well enough, and can be held exactly (0 …
    MOST_DECIMALS)."""
    spread, largest = float(np.std(rewards)), float(np.max(np.abs(rewards), initial=0.0))
    spread = spread if 0 < spread < math.inf else largest or 1.0
    wanted = math.ceil(-math.log10(spread / STEPS_PER_SD))
    possible = math.floor(math.log10(LARGEST / largest)) if largest else MOST_DECIMALS
    return max(0, min(wanted, possible, MOST_DECIMALS))


def _pack_bits(rows: np.ndarray, bits: int) -> bytes:
    """Whole numbers (n,) in `bits` bits each, lowest bit first."""
    each = ((rows[:, None] >> np.arange(bits)) & 1).astype(np.uint8)  # (n, bits)
    return np.packbits(each, bitorder="little").tobytes()


def _leb128(numbers: np.ndarray) -> bytes:
    """Whole numbers ≥ 0 in groups of seven bits, lowest first; the high bit says that another
    follows."""
    numbers = numbers.astype(np.uint64)
    widest = max(1, math.ceil(int(numbers.max(initial=0)).bit_length() / 7))
    left = numbers[:, None] >> np.arange(0, 7 * widest, 7, dtype=np.uint64)  # (n, widest)
    used, more = left > 0, left > 127
    used[:, 0] = True
    return ((left & np.uint64(127)).astype(np.uint8) | (more.astype(np.uint8) << 7))[used].tobytes()


def _deflated(data: bytes) -> str:
    # Level 9 takes sixteen times as long over rewards, for 0.4 % of the bytes.
    return base64.b64encode(zlib.compress(data, 6)).decode("ascii")


def plain(text: object) -> str:
    """A text as the page may hold it; what is missing is empty."""
    return storable(text) if isinstance(text, str) else ""
