"""The responses that count: which tokens they may be made of, by filters and by a file; and whether
a text gives them, by the round trip ids → text → template → ids in the whole conversation.

Knows vocabularies, tokenizers and frames. Does not know models, rewards or what is searched for.
"""

import hashlib
import logging
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from pessimal.errors import ConfigError, InputError
from pessimal.rewards.frame import Format, Frame, slot_ids
from pessimal.searching.spec import Filter
from pessimal.texts import storable

log = logging.getLogger(__name__)

_HOW_TO_WRITE = (
    "Write one token a line: as it is decoded (love stands for 'love' and for ' love'), as the "
    "vocabulary writes it (Ġlove, ##ing), or as its id (id:1234)"
)
_MAX_LINES = 5
Ids = tuple[int, ...]
Retokenizes = Callable[[Tensor], Tensor]
"""bool (n,) of responses (n, L): which of them make the round trip, or count for another reason."""

# Conversations templated at once: their ids as Python lists take a few kB each.
_AT_ONCE = 4096
# Results kept, of some 200 bytes each; a search repeats few but its latest.
_KEPT = 1_000_000
# Best-first checks begin with few, since templating a response costs more than scoring one on a
# demo model, and double.
_FIRST_CHECKED = 8


def allowed_tokens(
    rows: pd.DataFrame, filters: Sequence[Filter], *, size: int, listed: Path | None = None
) -> np.ndarray:
    """bool (size,): the tokens that pass every filter and, where a file of tokens is given, are
    `listed` in it.

    Args:
        rows: candidate_id, token, text, kind, as `scoring.candidates.vocabulary` gives them.
        size: rows of the embedding; ids without a row in `rows` (padding) are never allowed.
        listed: one token a line. A line `id:1234` is an id. Any other is taken as decoded text,
            with or without a space before it, and only where no token has that text as the
            vocabulary's own spelling: '7' is the token whose text is 7, never the seventh. Token
            texts with line breaks can be given by id alone.

    Raises InputError for a file that cannot be read, is empty or names what is no token,
    ConfigError where nothing is left.
    """
    passing, names = np.ones(len(rows), dtype=bool), ",".join(filter_.name for filter_ in filters)
    for filter_ in filters:
        passing &= np.array([_CHECKS[filter_](row) for row in rows.itertuples()], dtype=bool)
    in_file = np.ones(len(rows), dtype=bool) if listed is None else _listed(rows, listed)
    if listed is not None and (left_out := int((in_file & ~passing).sum())):
        text = "%s: %d of %d tokens are left out by search.allowed=[%s]; type search.allowed=[]"
        log.warning(text, listed, left_out, in_file.sum(), names)
    allowed = passing & in_file
    if not allowed.any():
        among = f"{len(rows)} tokens" if listed is None else f"those in {listed}"
        raise ConfigError(
            f"search.allowed=[{names}] leaves none of {among}: type search.allowed=[]"
        )
    mask = np.zeros(size, dtype=bool)
    mask[rows["candidate_id"].to_numpy()[allowed]] = True
    return mask


def digest(mask: np.ndarray) -> str:
    """Short name of a set of tokens: 16 hexadecimal digits of sha256 over its ids, whatever rows
    the embedding has."""
    return hashlib.sha256(np.flatnonzero(mask).astype("<i8").tobytes()).hexdigest()[:16]


def is_word(text: str) -> bool:
    """Letters of any script (and the marks that some write vowels with), with or without a space
    before them.

    Pieces that a WordPiece vocabulary marks (##ing) are none; pieces that nothing marks cannot be
    distinguished from words.
    """
    bare = text[1:] if text[:1] in (" ", "▁") else text
    kinds = [unicodedata.category(character)[0] for character in bare]
    return kinds[:1] == ["L"] and set(kinds) <= {"L", "M"}


_CHECKS = {
    Filter.no_special: lambda row: row.kind not in ("special", "unused"),
    Filter.ascii: lambda row: row.text != "" and row.text.isascii() and row.text.isprintable(),
    Filter.words: lambda row: is_word(row.text),
}


def _listed(rows: pd.DataFrame, path: Path) -> np.ndarray:
    """bool (n,) of the rows: those that the file's lines stand for."""
    try:
        # Not `splitlines`, which also splits at characters that tokens are made of.
        lines = [line for line in path.read_text(encoding="utf-8-sig").split("\n") if line]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"search.allowed_path={str(path)!r} cannot be read as a list of tokens: {error}"
        ) from error
    if not lines:
        raise InputError(f"search.allowed_path={str(path)!r} holds no tokens. {_HOW_TO_WRITE}")
    by_text, by_token = rows.groupby("text").indices, rows.groupby("token").indices
    by_id = {f"id:{number}": [place] for place, number in enumerate(rows["candidate_id"])}

    def places(line: str) -> list[int]:
        """The rows that a line stands for."""
        if line in by_id:
            return by_id[line]
        spaced = [] if line.startswith(" ") else by_text.get(" " + line, [])
        return [*by_text.get(line, []), *spaced] or [*by_token.get(line, [])]

    matched = [places(line) for line in lines]
    if unknown := [repr(line) for line, at in zip(lines, matched, strict=True) if not at]:
        some = f"{len(unknown)} of {len(lines)} lines are no tokens of this model, "
        some += ", ".join(unknown[:_MAX_LINES])
        raise InputError(f"search.allowed_path={str(path)!r}: {some}. {_HOW_TO_WRITE}")
    mask = np.zeros(len(rows), dtype=bool)
    mask[[place for at in matched for place in at]] = True
    return mask


# --- Which responses a text gives, and the best of them.


class RoundTrip:
    """Whether a text gives exactly these ids, in the conversations of every prompt. Keeps its
    results."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        frames: Iterable[tuple[Format, Frame]],
        whole: Callable[[Tensor], Sequence[Ids]] | None = None,
    ):
        self.tokenizer, self.frames = tokenizer, list(frames)
        self.whole = whole or (lambda responses: [tuple(ids) for ids in responses.tolist()])
        """The ids that each response (n, L) stands for."""
        self._results: dict[Ids, bool] = {}

    def __call__(self, responses: Tensor) -> Tensor:
        """bool (n,) of responses (n, L)."""
        all_ids = self.whole(responses)
        new = [ids for ids in dict.fromkeys(all_ids) if ids not in self._results]
        results = {ids: self._results[ids] for ids in all_ids if ids in self._results}
        for start in range(0, len(new), _AT_ONCE):
            results |= self._check(new[start : start + _AT_ONCE])
        if len(self._results) + len(new) > _KEPT:
            self._results.clear()
        self._results |= results
        return torch.tensor([results[ids] for ids in all_ids], dtype=torch.bool)

    def text_of(self, responses: Tensor) -> list[str]:
        """The text of each response (n, L), as it goes into the template."""
        return self.decode(self.whole(responses))

    def decode(self, responses: Sequence[Ids]) -> list[str]:
        """The text of each row of ids, as tables store it."""
        ids = list(map(list, responses))
        decoded = self.tokenizer.batch_decode(ids, clean_up_tokenization_spaces=False)
        return [storable(text) for text in decoded]

    def _check(self, responses: list[Ids]) -> dict[Ids, bool]:
        failed = dict.fromkeys(responses, False)
        texts = dict(zip(responses, self.decode(responses), strict=True))
        left = responses
        # Those that fail in one prompt's conversation are not tried in the next.
        for conversations, frame in self.frames:
            templated = slot_ids(conversations, frame.question, [texts[ids] for ids in left])
            pairs = zip(left, templated, strict=True)
            left = [ids for ids, whole in pairs if frame.inside(whole) == list(ids)]
            if not left:
                break
        return failed | dict.fromkeys(left, True)


def best_retokenizing(
    values: Tensor,
    responses: Callable[[Tensor], Tensor],
    *,
    count: int,
    retokenizes: Retokenizes | None,
    above: float = -torch.inf,
) -> Tensor:
    """Rows (k,) of the `count` best `values` (n,) whose response retokenizes, best first; earlier
    rows win ties.

    Only values over `above` count (values that are no numbers never do). `responses` makes the
    responses (m, L) of some rows (m,): they are made, and checked, from the best downward and no
    further than need be.
    """
    best: list[int] = []
    first = count if retokenizes is None else min(max(count, _FIRST_CHECKED), _AT_ONCE)
    checked, at_once = 0, first
    total = int((values > above).sum())
    while checked < total and len(best) < count:
        rows = _ranked(values, above, min(checked + at_once, total))[checked:]
        best += (rows if retokenizes is None else rows[retokenizes(responses(rows))]).tolist()
        checked += len(rows)
        at_once = min(2 * at_once, _AT_ONCE)
    return torch.tensor(best[:count], dtype=torch.long)


def _ranked(values: Tensor, above: float, count: int) -> Tensor:
    """Rows (count,) of the largest values (n,) over `above`, largest first, ties in the order of
    rows."""
    eligible = (values > above).nonzero()[:, 0]
    threshold = values[eligible].topk(count).values[-1]
    rows = eligible[values[eligible] >= threshold]
    return rows[values[rows].argsort(descending=True, stable=True)][:count]
