"""Candidates: what is scored, and as which token ids it stands in the response slot.

Knows tokenizers and frames. Does not know networks.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pessimal.conversation import filled
from pessimal.errors import InputError
from pessimal.rewards.base import Reward
from pessimal.rewards.frame import SENTINEL, Format, Frame, slot_ids
from pessimal.rewards.spec import Mode
from pessimal.tables.files import read_csv
from pessimal.tables.published import numbers, whole_numbers
from pessimal.tables.score_table import items_digest, token_kind
from pessimal.texts import storable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Candidates:
    """A named set of candidate responses."""

    name: str
    """`vocabulary`, `frequent5000` for its most frequent tokens, or the item list's name."""
    rows: pd.DataFrame
    """candidate_id, token, text, kind (and elo, elo_matches for rated items), as in a score
    table."""

    @property
    def is_vocabulary(self) -> bool:
        """Whether these are tokens of the model's."""
        return bool(self.rows["token"].notna().all())

    def frequent(self, n: int, besides: Sequence[int] = ()) -> "Candidates":
        """The `n` most frequent tokens of a vocabulary, its special ones, and those whose ids are
        given besides; all where there are no more. The most frequent are the first by id: so BPE
        and unigram tokenizers number them. InputError where an id is of no token."""
        if unknown := sorted(set(besides).difference(self.rows["candidate_id"])):
            raise InputError(f"candidates.ids: no token has the id {unknown[0]}")
        if n >= len(self.rows):
            return self
        kind = self.rows["kind"]
        first = self.rows.index[~kind.isin(["special", "unused"])][:n]
        wanted = self.rows.index.isin(first) | self.rows["candidate_id"].isin(besides)
        name = f"frequent{n}-{len(set(besides))}" if besides else f"frequent{n}"
        return Candidates(name, self.rows[kind.eq("special") | wanted].reset_index(drop=True))

    def digest(self) -> str:
        """sha256 over ids and texts."""
        return items_digest(self.rows)


def vocabulary_of(model: Reward) -> Candidates:
    """Every token that a reward can be asked (see `vocabulary`)."""
    assert model.tokenizer is not None  # whoever scans a vocabulary has given it
    return vocabulary(model.tokenizer, size=model.rows)


def vocabulary(tokenizer: "PreTrainedTokenizerBase", *, size: int) -> Candidates:
    """Every id of the tokenizer that has a row in the embedding (`size` rows), in order of id.

    Special, added, unused and byte tokens are included, as in Christian et al. (2025); `kind`
    distinguishes them.
    """
    names = {i: token for token, i in tokenizer.get_vocab().items() if i < size}
    ids = sorted(names)
    decoded = tokenizer.batch_decode([[i] for i in ids], clean_up_tokenization_spaces=False)
    added = tokenizer.added_tokens_decoder.items()
    special = {*tokenizer.all_special_ids, *(i for i, token in added if token.special)}
    pairs = zip(ids, decoded, strict=True)
    kinds = [token_kind(names[i], text, special=i in special) for i, text in pairs]
    rows = pd.DataFrame(
        {
            "candidate_id": np.array(ids, dtype=np.int32),
            "token": [storable(names[i]) for i in ids],
            "text": [storable(text) for text in decoded],
            "kind": kinds,
        }
    )
    return Candidates(name="vocabulary", rows=rows)


def tokens_for(model: Reward, tokens: Candidates, *, name: str) -> Candidates | None:
    """Tokens of a policy's vocabulary as candidates for a reward: None where the reward has the
    same vocabulary and takes ids; else their texts that are more than white space, each once."""
    if (
        "ids" in model.can
        and model.tokenizer is not None
        and vocabulary_of(model).digest() == tokens.digest()
    ):
        return None
    texts = dict.fromkeys(tokens.rows["text"].tolist())
    return item_candidates([text for text in texts if text.strip()], name=name)


def read_items(path: Path, *, name: str) -> Candidates:
    """Named items, one a line in a .txt file, or the `name` column of a .csv file (with
    `elo_score`, `elo_matches` where people have rated them), verbatim. Raises InputError on an
    empty, unreadable or repeating list."""
    try:
        if path.suffix == ".csv":
            table = read_csv(path)
            if "name" not in table and "token_decoded" in table:  # the published token intersection
                table = table.rename(columns={"token_decoded": "name"})
            if "name" not in table:
                raise InputError(
                    f"{path} has the columns {list(table.columns)}; a list of items needs a column "
                    "`name`"
                )
        else:
            lines = path.read_text(encoding="utf-8-sig").split("\n")
            table = pd.DataFrame({"name": [line for line in lines if line.strip()]}, dtype=str)
    except (OSError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        message = f"candidates.path={str(path)!r} cannot be read as a list of items: {error}"
        raise InputError(message) from error
    if table.empty:
        raise InputError(f"candidates.path={str(path)!r} holds no items; write one a line")
    rows = item_candidates(table["name"], name=name, where=str(path)).rows
    if "elo_score" in table:
        rows["elo"] = numbers(path, table, "elo_score")
        rows["elo_matches"] = 0
        if "elo_matches" in table:
            rows["elo_matches"] = whole_numbers(path, table, "elo_matches")
    return Candidates(name=name, rows=rows)


def item_candidates(
    texts: Sequence[str], *, name: str, where: str = "the list of items"
) -> Candidates:
    """These texts as candidates. Raises InputError where there is none, or one stands there
    twice."""
    column = pd.Series(list(texts), dtype=str)
    if column.empty:
        raise InputError(f"{where} holds nothing; each item once")
    if len(twice := column[column.duplicated()]):
        raise InputError(f"{where} names {twice.iloc[0]!r} more than once; each item once")
    ids = np.arange(len(column), dtype=np.int32)
    rows = pd.DataFrame({"candidate_id": ids, "token": None, "text": column, "kind": "item"})
    return Candidates(name, rows)


@dataclass(frozen=True)
class Inputs:
    """Token ids of every candidate's conversation, in the candidates' order; what they begin with
    is kept once."""

    prefix: tuple[int, ...]
    """The frame's ids before the response."""
    shared: np.ndarray
    """int32 (n,): how many of the prefix's ids a conversation begins with."""
    rest: np.ndarray
    """int32 (total,): the ids after those, one conversation after the other; at least one each."""
    ends: np.ndarray
    """int64 (n,): where each conversation's ids end in `rest`."""
    survives: np.ndarray | None
    """bool (n,): ids → text → template → ids gives the same ids; None for items."""

    def __len__(self) -> int:
        return len(self.shared)

    @property
    def lengths(self) -> np.ndarray:
        """int64 (n,): ids of each conversation after what it shares with the prefix."""
        return np.diff(self.ends, prepend=0)

    @property
    def kinds(self) -> np.ndarray:
        """int (n, 2): what decides on a conversation's way through an engine: how much it shares,
        and how many ids follow."""
        return np.column_stack([self.shared, self.lengths])

    def batch(self, rows: np.ndarray) -> np.ndarray:
        """int64 (n, length): the ids of conversations of one length after what each shares with the
        prefix."""
        starts = np.where(rows > 0, self.ends[rows - 1], 0)
        [length] = np.unique(self.ends[rows] - starts)
        return self.rest[starts[:, None] + np.arange(length)].astype(np.int64)

    def ids(self, row: int) -> list[int]:
        """All ids of one conversation."""
        return [*self.prefix[: self.shared[row]], *self.batch(np.array([row]))[0].tolist()]


# Conversations templated at once: their ids as Python lists take a few kB each.
_AT_ONCE = 4096
_SAMPLED = 1024
# Tokens whose round trip is tried in the whole conversation too, of those that make it in a part.
_SAMPLED_NEAR = 256


def inputs(
    conversations: Format,
    frame: Frame,
    candidates: Candidates,
    mode: Mode,
    *,
    prior: np.ndarray | None = None,
) -> Inputs:
    """The ids to score. In mode `ids` a token is its own id; otherwise the text goes through the
    chat template.

    A text that the template or the tokenizer ties to its surroundings shares less of the frame's
    prefix. `prior` (n,) bool says which tokens make the round trip in another prompt's frame:
    templating every token takes longer than scoring it on a fast card, so where a sample of 1,024
    agrees, the rest is taken from there.
    """
    ids = candidates.rows["candidate_id"].to_numpy()

    def written(rows: np.ndarray) -> Iterator[tuple[int, list[int]]]:
        for start in range(0, len(rows), _AT_ONCE):
            some = rows[start : start + _AT_ONCE]
            texts = candidates.rows["text"].iloc[some].tolist()
            inputs = slot_ids(conversations, frame.question, texts, double_bos=mode is Mode.paper)
            yield from zip(some.tolist(), inputs, strict=True)

    def whole_trips(rows: np.ndarray) -> np.ndarray:
        trips = [frame.inside(sequence) == [ids[row]] for row, sequence in written(rows)]
        return np.array(trips, dtype=bool)

    def round_trips() -> np.ndarray:
        trips = _near_trips(conversations, frame, candidates.rows)
        sample = np.random.default_rng(0).permutation(np.flatnonzero(trips))[:_SAMPLED_NEAR]
        agree = whole_trips(sample)
        rest = ~trips if agree.all() else np.ones(len(trips), dtype=bool)
        trips[sample], rest[sample] = agree, False
        trips[rest] = whole_trips(np.flatnonzero(rest))
        return trips

    everything = np.arange(len(ids))
    if mode is Mode.ids:
        survives = None
        if conversations.round_trips and prior is not None:
            sample = np.sort(np.random.default_rng(0).permutation(len(ids))[:_SAMPLED])
            survives = prior if np.array_equal(whole_trips(sample), prior[sample]) else None
        if conversations.round_trips and survives is None:
            survives = round_trips()
        suffix = np.tile(np.array(frame.suffix, dtype=np.int32), (len(ids), 1))
        rests = np.column_stack([ids.astype(np.int32), suffix])
        starts = np.full(len(ids), len(frame.prefix))
        pad = getattr(conversations, "pad", None)
        if pad is not None and not frame.suffix:  # the pad token goes unseen
            padded = ids == pad
            starts[padded], rests[padded] = len(frame.prefix) - 1, frame.prefix[-1]
        return _together(frame, starts, rests, survives)
    shared, parts, same = [], [], []
    for row, sequence in written(everything):
        shared.append(_alike(frame.prefix, sequence))
        parts.append(np.array(sequence[shared[-1] :], dtype=np.int32))
        same.append(frame.inside(sequence) == [ids[row]])
    return _together(frame, shared, parts, np.array(same) if candidates.is_vocabulary else None)


def _near_trips(conversations: Format, frame: Frame, tokens: pd.DataFrame) -> np.ndarray:
    """Whether each token is known to make the round trip by the words next to the slot, bool (n,).
    A tokenizer that cuts at white space reads no further, and a whole conversation takes ten times
    as long.

    The template is run for tokens that are more than letters and digits, since it may strip white
    space or look for marks.
    """
    trips = np.zeros(len(tokens), dtype=bool)
    text = conversations.plain(filled(frame.question, SENTINEL)) or ""
    if text.count(SENTINEL) != 1:
        return trips
    before, _, after = text.partition(SENTINEL)
    *_, start = re.finditer(r"(?<!\s)\s|^", before.rstrip())
    near, close = before[start.start() :], re.sub(r"(?<=\S)\s.*", "", after, flags=re.DOTALL)
    texts = tokens["text"].tolist()
    tokenizer: Any = conversations.tokenizer
    start_ids, end_ids, *inputs = tokenizer(
        [near, close, *(near + text + close for text in texts)],
        add_special_tokens=False,
        return_attention_mask=False,
    )["input_ids"]
    fits = list(frame.prefix[len(frame.prefix) - len(start_ids) :]) == start_ids
    if not fits or list(frame.suffix[: len(end_ids)]) != end_ids:
        return trips
    rows = enumerate(zip(tokens["candidate_id"].tolist(), texts, inputs, strict=True))
    for row, (token, text, ids) in rows:
        trips[row] = ids == [*start_ids, token, *end_ids] and (
            text.removeprefix(" ").isalnum()
            or conversations.plain(filled(frame.question, text)) == before + text + after
        )
    return trips


def frame_responses(frame: Frame, responses: Sequence[Sequence[int] | np.ndarray]) -> Inputs:
    """The ids of responses in a frame, as in mode `ids`: each shares the whole prefix."""
    rests = [np.array([*response, *frame.suffix], dtype=np.int32) for response in responses]
    return _together(frame, [len(frame.prefix)] * len(rests), rests, None)


def _together(
    frame: Frame,
    shared: Sequence[int] | np.ndarray,
    rests: Sequence[np.ndarray] | np.ndarray,
    survives: np.ndarray | None,
) -> Inputs:
    ends = np.cumsum([len(rest) for rest in rests])
    ids = np.concatenate(rests)
    return Inputs(frame.prefix, np.array(shared, dtype=np.int32), ids, ends, survives)


def batches(inputs: Inputs, *, size: int, rows: np.ndarray | None = None) -> list[np.ndarray]:
    """Fixed batches of at most `size` rows (of all rows, or of some): no padding, since each batch
    is of one length and shares one start.

    The division depends on nothing but the inputs, the rows and `size`, so a resumed scan meets the
    same batches.
    """
    rows = np.arange(len(inputs)) if rows is None else np.sort(rows)
    kinds = inputs.kinds[rows]
    order = np.lexsort((rows, kinds[:, 1], kinds[:, 0]))
    edges = np.flatnonzero((np.diff(kinds[order], axis=0) != 0).any(axis=1)) + 1
    return [
        group[start : start + size]
        for group in np.split(rows[order], edges)
        for start in range(0, len(group), size)
    ]


def _alike(prefix: Sequence[int], ids: Sequence[int]) -> int:
    """The number of leading ids that a conversation shares with the prefix; one id is always its
    own."""
    if tuple(ids[: len(prefix)]) == tuple(prefix):
        return min(len(prefix), len(ids) - 1)
    pairs = enumerate(zip(prefix, ids, strict=False))
    return next((i for i, (a, b) in pairs if a != b), len(ids) - 1)
