"""Published score files as score tables, one reader a layout.

Knows the layouts of the files that came with Christian et al. (2025) and its follow-up. Tokens are
data: `null`, `nan`, `NA` and the empty string stay the tokens they are. Every reader returns one
table for each (model, prompt).
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from pessimal.catalogue import spellings
from pessimal.errors import InputError, did_you_mean
from pessimal.tables.files import check_cells, read_csv, sha256_of
from pessimal.tables.score_table import (
    LOG_PROBABILITY,
    REWARD,
    ModelDescription,
    ScoreProvenance,
    ScoreTable,
    items_digest,
    token_kind,
)

log = logging.getLogger(__name__)

ACROSS = "_across_checkpoints_"
"""Between prompt and model in the name of a file of checkpoints."""
REWARDS = "_rewards_"
"""Between word list and model in the name of a file of rewards under many wordings."""
MASS = 0.01
"""Distance by which the probabilities of a whole vocabulary may be from adding up to 1; what 16-bit
precision leaves."""
MANY = 100
"""Least number of candidates for a sum of their exponentials of 1 to say something."""
_ELO_COLUMNS = ["elo_rank", "elo_score", "name", "elo_matches"]
_TOKEN_COLUMNS = ["token_id", "token_name", "token_decoded"]
_STEP = re.compile(r"step-(\d+)")


@dataclass(frozen=True)
class Facts:
    """Facts about a file that it does not hold, from the catalogue and the user."""

    prompts: Mapping[str, str] = field(default_factory=dict)
    """Wordings by key."""
    models: Mapping[str, ModelDescription] = field(default_factory=dict)
    """Descriptions by repository."""
    score: str | None = None
    """Kind of the numbers, `reward` or `log_probability`; None where nobody said, which is a
    reward."""
    tokens: frozenset[str] | None = None
    """Texts of the tokens that are kept; None for all of them."""


NO_FACTS = Facts()


def read_eloeverything(
    path: Path, *, prompt: str | None = None, facts: Facts = NO_FACTS, items: str | None = None
) -> list[ScoreTable]:
    """Items with human Elo: elo_rank, elo_score, name, elo_matches, then one column a model (a Hub
    repository).

    `prompt` is by default the key that the file's name is, or whose wording it is; `items` names
    the list. Raises InputError on another layout, and where nothing says the prompt.
    """
    table = read_csv(path)
    scored = _scored(path, table, _ELO_COLUMNS)
    prompt = prompt or _prompt_of(path, path.stem, facts)
    rows = _items(table["name"]).assign(
        elo=numbers(path, table, "elo_score"), elo_matches=whole_numbers(path, table, "elo_matches")
    )
    columns = {column: (model_named(column, facts.models) or column, prompt) for column in scored}
    return _tables(path, rows, table, columns, facts, items or "eloeverything")


def read_factorial54(
    path: Path, *, facts: Facts = NO_FACTS, model: str | None = None, items: str | None = None
) -> list[ScoreTable]:
    """One model's rewards of a word list under many wordings: `response`, then one column a prompt
    (CSV or parquet).

    The model is by default the Hub repository that ends the file's name
    (`…_rewards_OWNER_NAME.parquet`), the word list what begins it. Raises InputError on another
    layout, and where nothing says the model.
    """
    table = _read(path)
    scored = _scored(path, table, ["response"])
    words, _, name = path.stem.rpartition(REWARDS)
    model = _model_of(path, model, name, facts)
    try:
        rows = _items(table["response"].astype(str))
    except UnicodeError as error:  # a column of bytes
        raise InputError(f"{path}, column 'response', is not UTF-8 text: {error}") from error
    check_cells(
        f"{path}, column 'response'", rows["text"], table["response"].isna(), "is a missing text"
    )
    columns = {prompt: (model, prompt) for prompt in scored}
    return _tables(path, rows, table, columns, facts, items or words or "words")


def read_vocabulary(
    path: Path, *, facts: Facts = NO_FACTS, model: str | None = None
) -> list[ScoreTable]:
    """One model's vocabulary: token_id, token_name, token_decoded, then one column a prompt
    (greatest, best, worst).

    `model` is by default the file's name. Raises InputError on another layout, and where nothing
    says the model.
    """
    table = _read(path)
    scored = _scored(path, table, _TOKEN_COLUMNS)
    if steps := [column for column in scored if _STEP.fullmatch(column)]:
        raise InputError(f"{path} has the column {steps[0]!r}: type format=checkpoints")
    model = _model_of(path, model, path.stem, facts)
    rows, texts_used = _tokens(path, table, facts)
    return _tables(
        path, rows, texts_used, {prompt: (model, prompt) for prompt in scored}, facts, "vocabulary"
    )


def read_checkpoints(
    path: Path, *, prompt: str | None = None, facts: Facts = NO_FACTS, model: str | None = None
) -> list[ScoreTable]:
    """One model's vocabulary while it was trained: the token columns, then a column `step-N` for
    each checkpoint.

    The checkpoint after N steps is the model `MODEL@step-N`, and its provenance says the step. A
    file `PROMPT_across_checkpoints_MODEL` says prompt and model itself. Raises InputError on
    another layout, and where nothing says prompt or model.
    """
    table = _read(path)
    scored = _scored(path, table, _TOKEN_COLUMNS)
    steps = {column: int(match[1]) for column in scored if (match := _STEP.fullmatch(column))}
    if not steps:
        raise InputError(f"{path} has no column step-N: type format=vocabulary")
    if left_out := [column for column in scored if column not in steps]:
        log.warning("%s: left out are the columns %s, which are no step-N", path.name, left_out)
    prompt_part, _, name = path.stem.partition(ACROSS)
    prompt = prompt or _prompt_of(path, prompt_part, facts)
    model = _model_of(path, model, name or path.stem, facts)
    rows, texts_used = _tokens(path, table, facts)
    columns = dict.fromkeys(sorted(steps, key=lambda column: steps[column]), (model, prompt))
    tables = _tables(path, rows, texts_used, columns, facts, "vocabulary")
    return [
        _checkpoint_table(table, steps[column])
        for table, column in zip(tables, columns, strict=True)
    ]


def _checkpoint_table(table: ScoreTable, step: int) -> ScoreTable:
    """The table of a model as that of its checkpoint after so many steps."""
    provenance, label = table.provenance, table.description.label
    return replace(
        table,
        provenance=replace(provenance, model=f"{provenance.model}@step-{step}", step=step),
        description=replace(table.description, label=label and f"{label}, step {step:,}"),
    )


def model_named(name: str, models: Mapping[str, ModelDescription]) -> str | None:
    """The repository that a file, a column or a person names: a known model by repository or label,
    or any OWNER--NAME.

    OWNER_NAME alone does not say where the owner ends, so it is only matched with known models.
    """
    for repository, description in models.items():
        if name in spellings(repository, description.label):
            return repository
    owner, dashes, rest = name.partition("--")
    return f"{owner}/{rest}" if dashes and owner and rest and "--" not in rest else None


def _words_of(wording: str) -> list[str]:
    """Words that a wording and a file named after it share: such a name has no question mark, and
    other signs only on some systems."""
    return re.findall(r"\w+", wording.lower())


def _model_of(path: Path, override: str | None, name: str, facts: Facts) -> str:
    """The model: what the user typed, else what `name`, a part of the file's name, says."""
    if override is not None:
        return model_named(override, facts.models) or override
    if label := model_named(name, facts.models):
        return label
    if not name or "_" in name:
        underscored = [repository.replace("/", "_") for repository in facts.models]
        raise InputError(
            f"{path}: the file's name does not say which model it is of ({name!r}). "
            f"Type model=OWNER/NAME.{did_you_mean(name, underscored)}"
        )
    return name


def _prompt_of(path: Path, name: str, facts: Facts) -> str:
    """The prompt's key, where a part of the file's name is one of `facts`, or its wording (of
    several keys with one wording the first); a score is never filed under a guess."""
    if name in facts.prompts:
        return name
    words = _words_of(name)
    for key, wording in facts.prompts.items():
        if words and _words_of(wording) == words:
            return key
    keys = list(facts.prompts)
    begun = [key for key in keys if name.startswith(f"{key}_")]
    guess = f" Did you mean {max(begun, key=len)!r}?" if begun else did_you_mean(name, keys)
    raise InputError(
        f"{path}: the file's name is no known prompt.{guess} Type prompt=KEY, of "
        f"{', '.join(keys[:9])} …, or with a wording: prompt=KEY +prompts.KEY='the user turn'"
    )


def _read(path: Path) -> pd.DataFrame:
    """A CSV file, every cell a text; or a parquet file."""
    if path.suffix.lower() != ".parquet":
        return read_csv(path)
    try:
        return pd.read_parquet(path)
    except (OSError, pa.ArrowException, UnicodeError) as error:
        raise InputError(f"{path} cannot be read as a parquet file: {error}") from error


def _tokens(path: Path, table: pd.DataFrame, facts: Facts) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The candidates of a vocabulary, and the rows of its table that they stand in."""
    # Of a parquet file: pandas took `null` and `NA` for missing.
    if missing := int(table["token_decoded"].isna().sum()):
        log.warning("%s: %d tokens have no text and stand as the empty text", path.name, missing)
    texts = table[["token_name", "token_decoded"]].fillna("").astype(str)
    names, texts = texts["token_name"], texts["token_decoded"]
    ids, kinds = whole_numbers(path, table, "token_id"), list(map(token_kind, names, texts))
    rows = pd.DataFrame({"candidate_id": ids, "token": names, "text": texts, "kind": kinds})
    if facts.tokens is None:
        return rows, table
    wanted = texts.isin(facts.tokens)
    if not wanted.any():
        raise InputError(f"{path}: none of its {len(texts)} tokens is in the list of tokens=")
    return rows[wanted].reset_index(drop=True), table[wanted].reset_index(drop=True)


def _items(texts: pd.Series) -> pd.DataFrame:
    ids = np.arange(len(texts), dtype=np.int32)
    return pd.DataFrame({"candidate_id": ids, "token": None, "text": texts, "kind": "item"})


def _scored(path: Path, table: pd.DataFrame, columns: list[str]) -> list[str]:
    """The columns of rewards, which are all but these; InputError where there is none, or one of
    these is missing."""
    scored = [column for column in table.columns if column not in columns]
    if len(table.columns) - len(scored) < len(columns) or not scored or table.empty:
        raise InputError(
            f"{path} has {len(table)} rows and the columns {list(table.columns)[:8]}; expected "
            f"{columns} and one of rewards. Is `format=` right?"
        )
    return scored


def numbers(path: Path, table: pd.DataFrame, column: str) -> pd.Series:
    """A column of text as numbers; InputError naming the first row that is none."""
    values = pd.to_numeric(table[column], errors="coerce")
    check_cells(f"{path}, column {column!r}", table[column], values.isna(), "is not a number")
    return values


def whole_numbers(path: Path, table: pd.DataFrame, column: str) -> pd.Series:
    """A column of text as int32; InputError naming the first row that is no whole number of that
    range."""
    values = numbers(path, table, column)
    wrong = (values != values.round()) | (values < 0) | (values > np.iinfo(np.int32).max)
    message = "is not a whole number from 0 to 2^31 - 1"
    check_cells(f"{path}, column {column!r}", table[column], wrong, message)
    return values.astype("int32")


def _tables(
    path: Path,
    rows: pd.DataFrame,
    table: pd.DataFrame,
    columns: Mapping[str, tuple[str, str]],
    facts: Facts,
    candidates: str,
) -> list[ScoreTable]:
    """The score tables of a file's columns; `columns` says model and prompt of each, `rows` what
    its rows are."""
    common: dict[str, Any] = {
        "candidates": candidates,
        "candidates_digest": items_digest(rows),
        "mode": "published",
        "source": path.name,
        "weights_digest": sha256_of(path),
        "score": facts.score or REWARD,
    }
    whole = candidates == "vocabulary" and facts.tokens is None
    tables = []
    for column, (model, prompt) in columns.items():
        scores = numbers(path, table, column).astype(float)
        _check_score(path, column, scores, facts.score, whole=whole)
        provenance = ScoreProvenance(
            model=model, prompt=prompt, prompt_text=facts.prompts.get(prompt), **common
        )
        untested = pd.array([None] * len(rows), dtype="boolean")
        of_column = rows.assign(survives=untested, reward=scores, certified=False)
        tables.append(
            ScoreTable(provenance, of_column, facts.models.get(model, ModelDescription()))
        )
    return tables


def _check_score(
    path: Path, column: str, scores: pd.Series, score: str | None, *, whole: bool
) -> None:
    """InputError where log-probabilities are none, or rewards of a `whole` vocabulary, of which
    nobody said that they are, are log-probabilities.

    Log-probabilities of a `whole` vocabulary whose probabilities add up to less than 1 are only
    warned of.
    """
    where = f"{path}, column {column!r}"
    positive = scores > 1e-6  # rounding may leave log 1 above zero
    with np.errstate(over="ignore"):
        mass = float(np.exp(scores).sum())
    # Of a list of items, or of some tokens, nothing says that the probabilities add up to 1.
    looks = whole and len(scores) >= MANY and not positive.any() and abs(mass - 1) < MASS
    if score is None and looks:
        raise InputError(
            f"{where}: exponentials add up to {mass:.4f}, as of log-probabilities: type "
            "score=log_probability, or score=reward"
        )
    if score != LOG_PROBABILITY:
        return
    message = "is no log-probability, which is at most 0. Leave score=log_probability out"
    check_cells(where, scores.map("{:g}".format), positive, message)
    if mass > 1 + MASS:
        reason = "more than 1: leave score=log_probability out"
        raise InputError(f"{where}: the probabilities add up to {mass:.3f}, {reason}")
    if whole and mass < 1 - MASS:
        log.warning("%s: the probabilities add up to %.3f: tokens are missing", where, mass)
