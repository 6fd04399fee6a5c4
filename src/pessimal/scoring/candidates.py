"""Candidates: what is scored, and as which token ids it stands in the response slot.

Knows tokenizers and frames. Does not know networks.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from pessimal.errors import InputError
from pessimal.models.frame import Frame, templated
from pessimal.scoring.mode import Mode
from pessimal.tables.kinds import storable, token_kind
from pessimal.tables.published import numbers, whole_numbers
from pessimal.tables.score_table import items_digest


@dataclass(frozen=True)
class Candidates:
    """A named set of candidate responses."""

    name: str
    """`vocabulary`, or the item list's name."""
    rows: pd.DataFrame
    """candidate_id, token, text, kind (and elo, elo_matches for rated items), as in a score table."""

    @property
    def is_vocabulary(self) -> bool:
        return self.name == "vocabulary"

    def digest(self) -> str:
        """sha256 over ids and texts."""
        return items_digest(self.rows)


def vocabulary(tokenizer, *, size: int) -> Candidates:
    """Every id of the tokenizer that has a row in the embedding (`size` rows), in order of id.

    Special, added, unused and byte tokens are included, as in Christian et al. (2025); `kind` tells them apart.
    """
    names = {i: token for token, i in tokenizer.get_vocab().items() if i < size}
    ids = sorted(names)
    decoded = tokenizer.batch_decode([[i] for i in ids], clean_up_tokenization_spaces=False)
    texts = [storable(text) for text in decoded]
    special = set(tokenizer.all_special_ids) | {
        i for i, added in tokenizer.added_tokens_decoder.items() if added.special
    }
    rows = pd.DataFrame(
        {
            "candidate_id": np.array(ids, dtype=np.int32),
            "token": [storable(names[i]) for i in ids],
            "text": texts,
            "kind": [
                token_kind(names[i], text, special=i in special) for i, text in zip(ids, texts, strict=True)
            ],
        }
    )
    return Candidates(name="vocabulary", rows=rows)


def items(path: Path, *, name: str) -> Candidates:
    """Named items, one a line in a .txt file, or the `name` column of a .csv file (with `elo_score`, `elo_matches`
    where people have rated them), verbatim. Raises InputError on an empty, unreadable or repeating list."""
    try:
        if path.suffix == ".csv":
            table = pd.read_csv(path, dtype=str, na_filter=False, encoding="utf-8-sig")
            if "name" not in table:
                raise InputError(
                    f"{path} has the columns {list(table.columns)}; a list of items needs a column `name`"
                )
        else:
            lines = path.read_text(encoding="utf-8-sig").split("\n")
            table = pd.DataFrame({"name": [line for line in lines if line.strip()]}, dtype=str)
    except (OSError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise InputError(
            f"candidates.path={str(path)!r} cannot be read as a list of items: {error}"
        ) from error
    texts = table["name"]
    if texts.empty:
        raise InputError(f"candidates.path={str(path)!r} holds no items; write one a line")
    if texts.duplicated().any():
        raise InputError(f"{path} names {texts[texts.duplicated()].iloc[0]!r} more than once; each item once")
    rows = pd.DataFrame(
        {"candidate_id": np.arange(len(texts), dtype=np.int32), "token": None, "text": texts, "kind": "item"}
    )
    if "elo_score" in table:
        rows["elo"] = numbers(path, table, "elo_score")
        rows["elo_matches"] = whole_numbers(path, table, "elo_matches") if "elo_matches" in table else 0
    return Candidates(name=name, rows=rows)


@dataclass(frozen=True)
class Inputs:
    """Token ids of every candidate in one frame; row order is the candidates'."""

    responses: list[list[int]]
    """Ids in the response slot; whole conversations where `framed` is False."""
    framed: np.ndarray
    """bool (candidates,): the ids stand between the frame's prefix and suffix."""
    survives: np.ndarray | None
    """bool (candidates,): ids → text → template → ids gives the same ids; None for items."""


def inputs(tokenizer, frame: Frame, candidates: Candidates, mode: Mode) -> Inputs:
    """The ids to score. In mode `ids` a token is its own id; otherwise the text goes through the chat template.

    A text that the template or the tokenizer ties to its surroundings (its conversation does not start and end
    like the frame) is scored as that whole conversation.
    """
    texts = candidates.rows["text"].tolist()
    ids = candidates.rows["candidate_id"].tolist()
    double = mode is Mode.paper
    conversations = templated(tokenizer, frame.prompt, texts, double_bos=double)
    slots = [frame.inside(conversation) for conversation in conversations]
    survives = None
    if candidates.is_vocabulary:
        survives = np.array([slot == [i] for slot, i in zip(slots, ids, strict=True)])
        if mode is Mode.ids:
            return Inputs([[i] for i in ids], np.ones(len(ids), dtype=bool), survives)
    framed = np.array([slot is not None for slot in slots])
    responses = [
        slot if slot is not None else conversation
        for slot, conversation in zip(slots, conversations, strict=True)
    ]
    return Inputs(responses, framed, survives)


def batches(inputs: Inputs, *, size: int) -> list[tuple[bool, np.ndarray]]:
    """Fixed batches of at most `size` rows, each of one length and either all framed or all not: no padding.

    The division depends on nothing but the inputs and `size`, so a resumed scan meets the same batches.
    """
    groups: dict[tuple[bool, int], list[int]] = {}
    for row, (response, framed) in enumerate(zip(inputs.responses, inputs.framed, strict=True)):
        groups.setdefault((bool(framed), len(response)), []).append(row)
    return [
        (framed, np.array(rows[start : start + size]))
        for (framed, _), rows in sorted(groups.items())
        for start in range(0, len(rows), size)
    ]
