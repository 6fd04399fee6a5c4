"""Published score files as score tables, one reader a layout.

Knows the layouts of the files that came with Christian et al. (2025) and its follow-up. Tokens are data: `null`,
`nan`, `NA` and the empty string stay the tokens they are. Every reader returns one table for each (model, prompt).
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from pessimal.errors import InputError
from pessimal.tables.files import check_cells, read_csv, sha256_of
from pessimal.tables.score_table import (
    ModelDescription,
    ScoreProvenance,
    ScoreTable,
    items_digest,
    token_kind,
)

_ELO_COLUMNS = ["elo_rank", "elo_score", "name", "elo_matches"]
_TOKEN_COLUMNS = ["token_id", "token_name", "token_decoded"]


def read_eloeverything(
    path: Path, *, prompt: str, prompts: Mapping[str, str], models: Mapping[str, ModelDescription]
) -> list[ScoreTable]:
    """Items with human Elo: elo_rank, elo_score, name, elo_matches, then one column a model (a Hub repository).

    `prompts` are wordings by key, `models` descriptions by repository. Raises InputError on another layout.
    """
    table = read_csv(path)
    scored = _scored(path, table, _ELO_COLUMNS)
    rows = _items(table["name"]).assign(
        elo=numbers(path, table, "elo_score"), elo_matches=whole_numbers(path, table, "elo_matches")
    )
    return [
        _table(path, rows, numbers(path, table, model), model, prompt, prompts, "eloeverything", models)
        for model in scored
    ]


def read_factorial54(
    path: Path, *, prompts: Mapping[str, str], models: Mapping[str, ModelDescription]
) -> list[ScoreTable]:
    """One model's rewards of a word list under many wordings: `response`, then one column a prompt (parquet).

    The model is the Hub repository that ends the file's name (`…_rewards_OWNER_NAME.parquet`), the word list what
    begins it. Raises InputError on another layout.
    """
    try:
        table = pd.read_parquet(path)
    except (OSError, pa.ArrowException, UnicodeError) as error:
        raise InputError(f"{path} cannot be read as a parquet file: {error}") from error
    scored = _scored(path, table, ["response"])
    try:
        rows = _items(table["response"].astype(str))
    except UnicodeError as error:  # a column of bytes
        raise InputError(f"{path}, column 'response', is not UTF-8 text: {error}") from error
    words, _, owner = path.stem.rpartition("_rewards_")
    model = next((known for known in models if known.replace("/", "_") == owner), owner or path.stem)
    return [
        _table(path, rows, numbers(path, table, prompt), model, prompt, prompts, words or "words", models)
        for prompt in scored
    ]


def read_vocabulary(
    path: Path, *, model: str | None, prompts: Mapping[str, str], models: Mapping[str, ModelDescription]
) -> list[ScoreTable]:
    """One model's vocabulary: token_id, token_name, token_decoded, then one column a prompt (greatest, best, worst).

    `model` is by default the file's name. Raises InputError on another layout.
    """
    table = read_csv(path)
    scored = _scored(path, table, _TOKEN_COLUMNS)
    names, texts = table["token_name"], table["token_decoded"]
    rows = pd.DataFrame(
        {
            "candidate_id": whole_numbers(path, table, "token_id"),
            "token": names,
            "text": texts,
            "kind": [token_kind(name, text) for name, text in zip(names, texts, strict=True)],
        }
    )
    model = model or path.stem
    return [
        _table(path, rows, numbers(path, table, prompt), model, prompt, prompts, "vocabulary", models)
        for prompt in scored
    ]


def _items(texts: pd.Series) -> pd.DataFrame:
    ids = np.arange(len(texts), dtype=np.int32)
    return pd.DataFrame({"candidate_id": ids, "token": None, "text": texts, "kind": "item"})


def _scored(path: Path, table: pd.DataFrame, columns: list[str]) -> list[str]:
    """The columns of rewards, which are all but these; InputError where there is none, or one of these is missing."""
    scored = [column for column in table.columns if column not in columns]
    if len(table.columns) - len(scored) < len(columns) or not scored or table.empty:
        raise InputError(
            f"{path} has {len(table)} rows and the columns {list(table.columns)[:8]}; expected {columns} and at least "
            "one column of rewards. Is `format=` right? The formats are eloeverything, factorial54 and vocabulary."
        )
    return scored


def numbers(path: Path, table: pd.DataFrame, column: str) -> pd.Series:
    """A column of text as numbers; InputError naming the first row that is none."""
    values = pd.to_numeric(table[column], errors="coerce")
    check_cells(f"{path}, column {column!r}", table[column], values.isna(), "is not a number")
    return values


def whole_numbers(path: Path, table: pd.DataFrame, column: str) -> pd.Series:
    """A column of text as int32; InputError naming the first row that is no whole number of that range."""
    values = numbers(path, table, column)
    wrong = (values != values.round()) | (values < 0) | (values > np.iinfo(np.int32).max)
    check_cells(
        f"{path}, column {column!r}", table[column], wrong, "is not a whole number from 0 to 2^31 - 1"
    )
    return values.astype("int32")


def _table(
    path: Path,
    rows: pd.DataFrame,
    rewards: pd.Series,
    model: str,
    prompt: str,
    prompts: Mapping[str, str],
    candidates: str,
    models: Mapping[str, ModelDescription],
) -> ScoreTable:
    rows = rows.assign(
        survives=pd.array([None] * len(rows), dtype="boolean"), reward=rewards.astype(float), certified=False
    )
    provenance = ScoreProvenance(
        model=model,
        prompt=prompt,
        prompt_text=prompts.get(prompt),
        candidates=candidates,
        candidates_digest=items_digest(rows),
        mode="published",
        source=path.name,
        weights_digest=sha256_of(path),
    )
    return ScoreTable(provenance, rows, models.get(model, ModelDescription()))
