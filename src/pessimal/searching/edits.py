"""Minimal edits of a given answer as responses that the stages can search: one id is one change, a
token that stands in place of the answer's, or is put in before it.

Knows token ids. Does not know models or texts.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from pessimal.searching.objective import Objective
from pessimal.searching.round_trip import Ids


class Edits:
    """Changes of an answer of n tokens, over `rows` ids: change = place × rows + token. Places 0 to
    n − 1 replace a token of the answer; places n to 2n put one in before it, the last behind the
    answer."""

    def __init__(self, answer: Ids, rows: int):
        self.answer, self.rows = answer, rows

    @property
    def places(self) -> int:
        return 2 * len(self.answer) + 1

    def allowed(self, tokens: Tensor) -> Tensor:
        """bool (places × rows,): changes by tokens of a bool mask (rows,), but for those that leave
        the answer as it is."""
        allowed = tokens.repeat(self.places)
        for place, token in enumerate(self.answer):
            allowed[place * self.rows + token] = False
        return allowed

    def apply(self, changes: Tensor) -> list[Ids]:
        """The answer after each row of changes (n, L); of two that replace one token the last
        counts, and tokens put into one place stand in the order of the changes."""
        return [self._edited(row)[0] for row in changes.tolist()]

    def named(self, change: int, texts: Mapping[int, str]) -> str:
        """A change in words, by the texts of tokens."""
        place, token = divmod(change, self.rows)
        n, new = len(self.answer), repr(texts[token])
        if place < n:
            return f"{texts[self.answer[place]]!r} → {new} at {place}"
        return f"{new} put in at {place - n}"

    def slope(self, gradient: Tensor, changes: Tensor) -> Tensor:
        """(L, places × rows) of each change: how much it would bring to first order, from the
        gradient (n', rows) of the edited answer. A token that is put in is taken to replace the one
        that it stands before, which only orders what is tried."""
        edited, at = self._edited(changes.tolist())
        places = torch.tensor([*at, *at, min(len(edited), len(gradient)) - 1])
        here = torch.tensor(edited)[places]
        slopes = gradient.cpu()[places, : self.rows]  # (places, rows)
        slopes = slopes - slopes.gather(1, here[:, None])
        return slopes.flatten().expand(len(changes), -1)

    def _edited(self, changes: list[int]) -> tuple[Ids, list[int]]:
        """The edited answer, and where the tokens of the answer stand in it."""
        n, answer = len(self.answer), list(self.answer)
        before: list[list[int]] = [[] for _ in range(n + 1)]
        for change in changes:
            place, token = divmod(change, self.rows)
            if place < n:
                answer[place] = token
            else:
                before[place - n].append(token)
        edited: list[int] = []
        at = []
        for put_in, here in zip(before, [*([token] for token in answer), []], strict=True):
            edited += put_in
            at.append(len(edited))
            edited += here
        return tuple(edited), at[:-1]


class EditObjective:
    """The value of an answer by the changes that are made in it."""

    def __init__(self, objective: Objective, edits: Edits):
        self.objective, self.edits = objective, edits

    def values(self, responses: Tensor, *, anchor: Tensor | None = None) -> Tensor:
        """Values (n,) float64 of changes (n, L). Answers of one length go together; what they share
        with the first of them is computed once."""
        answers = self.edits.apply(responses)
        lengths = torch.tensor([len(answer) for answer in answers])
        values = torch.empty(len(answers), dtype=torch.float64)
        for length in lengths.unique().tolist():
            rows = (lengths == length).nonzero()[:, 0]
            some = torch.tensor([answers[row] for row in rows.tolist()])
            values[rows] = self.objective.values(some, anchor=some[0])
        return values

    def gradient(self, response: Tensor) -> Tensor:
        [answer] = self.edits.apply(response[None])
        return self.edits.slope(self.objective.gradient(torch.tensor(answer)), response)
