"""The round trip, ids → text → template → ids in the whole conversation: which responses a text
gives, and the best of them.

Knows tokenizers and frames. Does not know models, rewards or what is searched for.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from pessimal.rewards.base import Conversations
from pessimal.rewards.frame import Frame, slot_ids
from pessimal.tables.score_table import storable

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


class RoundTrip:
    """Whether a text gives exactly these ids, in the conversations of every prompt. Keeps its
    results."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        frames: Iterable[tuple[Conversations, Frame]],
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
        ids = [list(one) for one in responses]
        decoded = self.tokenizer.batch_decode(ids, clean_up_tokenization_spaces=False)
        return [storable(text) for text in decoded]

    def _check(self, responses: list[Ids]) -> dict[Ids, bool]:
        failed = dict.fromkeys(responses, False)
        texts = dict(zip(responses, self.decode(responses), strict=True))
        left = responses
        # Those that fail in one prompt's conversation are not tried in the next.
        for conversations, frame in self.frames:
            templated = slot_ids(conversations, frame.asked, [texts[ids] for ids in left])
            pairs = zip(left, templated, strict=True)
            left = [ids for ids, given in pairs if frame.inside(given) == list(ids)]
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
    chosen: list[int] = []
    first = count if retokenizes is None else min(max(count, _FIRST_CHECKED), _AT_ONCE)
    checked, at_once = 0, first
    total = int((values > above).sum())
    while checked < total and len(chosen) < count:
        rows = _ranked(values, above, min(checked + at_once, total))[checked:]
        chosen += (rows if retokenizes is None else rows[retokenizes(responses(rows))]).tolist()
        checked += len(rows)
        at_once = min(2 * at_once, _AT_ONCE)
    return torch.tensor(chosen[:count], dtype=torch.long)


def _ranked(values: Tensor, above: float, count: int) -> Tensor:
    """Rows (count,) of the largest values (n,) over `above`, largest first, ties in the order of
    rows."""
    eligible = (values > above).nonzero()[:, 0]
    least = values[eligible].topk(count).values[-1]
    rows = eligible[values[eligible] >= least]
    return rows[values[rows].argsort(descending=True, stable=True)][:count]
