"""Which trials are ended early: those whose running median has fallen behind the others' at the same search.

Optuna's MedianPruner would not do: it compares a trial's best running median so far, and the first, from one prompt where
rewards are high, stays the best for ever. Here every trial goes through the same searches in the same order, from the same
starts, so running medians at one search can be compared.
"""

from statistics import median

import optuna
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, TrialState


class FallenBehind(BasePruner):
    """Prunes a trial below the median of the others that came as far, failed ones aside."""

    def __init__(self, *, searches: int, trials: int = 5):
        self.searches = searches
        """Searches that every trial may make: each prompt once, or one prompt would decide."""
        self.trials = trials
        """Other trials that must have come as far."""

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        step = trial.last_step
        if step is None or step + 1 < self.searches:
            return False
        others = [
            other.intermediate_values[step]
            for other in study.get_trials(deepcopy=False)
            if other.number != trial.number
            and other.state is not TrialState.FAIL
            and step in other.intermediate_values
        ]
        return len(others) >= self.trials and trial.intermediate_values[step] < median(others)
