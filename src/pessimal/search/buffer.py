"""The best few responses of a search, from which it goes on.

As in nanoGCG: the best candidate of each step enters where it is better than the worst that is kept, and the search
goes on from the best. The others serve when nothing new is left near that one; without that, any size from 1 would
search alike.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass
class _Kept:
    value: float
    response: Tensor  # (L,)
    level: int = 0


class Buffer:
    """Responses to go on from. Size 0 keeps the last alone, better or worse.

    Each has a level: how far from it is looked for new ones, 0 for near by. The lowest level goes first.
    """

    def __init__(self, size: int):
        self.size = size
        """Responses kept."""
        self._kept: list[_Kept] = []  # best first; of equals, the earlier

    def add(self, response: Tensor, value: float) -> None:
        """Offer one response (L,), the best of a step."""
        kept = [] if self.size == 0 else self._kept
        self._kept = sorted([*kept, _Kept(value, response)], key=lambda one: -one.value)[: max(1, self.size)]

    @property
    def point(self) -> Tensor:
        """The best response (L,) of the lowest level."""
        return self._next.response

    @property
    def level(self) -> int:
        """Its level."""
        return self._next.level

    def exhaust(self) -> None:
        """Nothing new is left at the level of `point`: it goes one up, behind those that are lower."""
        self._next.level += 1

    def renew(self) -> None:
        """Level 0 for all."""
        for one in self._kept:
            one.level = 0

    @property
    def _next(self) -> _Kept:
        return min(self._kept, key=lambda one: one.level)
