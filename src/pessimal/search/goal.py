"""Which end of the reward is searched for."""

from enum import Enum


class Goal(Enum):
    """optimal: the highest reward; pessimal: the lowest."""

    optimal = "optimal"
    pessimal = "pessimal"

    @property
    def sign(self) -> int:
        return 1 if self is Goal.optimal else -1
