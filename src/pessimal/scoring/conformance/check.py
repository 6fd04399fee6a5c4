"""One check of the suite, and many as a table."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Check:
    """What one check measured and what is allowed."""

    check: str
    """Identifier, the same for every model."""
    what: str
    """What is held to be true, in one sentence."""
    passed: bool | None
    """None where the check does not apply, or only reports a number."""
    measured: float | None
    """The measured value; None where nothing could be measured."""
    allowed: float | None
    """Largest value that passes; None where there is nothing to pass."""
    unit: str
    """Of `measured` and `allowed`: `reward` (units of the model's reward), `SD` (of the rewards), or what is counted."""
    n: int
    """Responses, texts or tokens that it rests on."""
    note: str = ""
    """Of a failed check: what it means and what to type. Otherwise a remark."""

    @property
    def result(self) -> str:
        """`pass`, `FAIL`, `info` (a number without a limit) or `n/a` (does not apply)."""
        if self.passed is None:
            return "n/a" if self.measured is None else "info"
        return "pass" if self.passed else "FAIL"


def at_most(
    check: str,
    what: str,
    measured: float,
    allowed: float,
    *,
    n: int,
    unit: str,
    note: str,
    otherwise: str = "",
) -> Check:
    """A check that passes up to `allowed`; `note` is for when it fails. What is not a number does not pass."""
    passed = bool(measured <= allowed)
    return Check(
        check=check,
        what=what,
        passed=passed,
        measured=float(measured) if np.isfinite(measured) else None,
        allowed=float(allowed),
        unit=unit,
        n=n,
        note=otherwise if passed else note,
    )


def does_not_apply(check: str, what: str, why: str, *, unit: str = "reward") -> Check:
    """A row for a check that this model, or this machine, gives no occasion for."""
    return Check(check=check, what=what, passed=None, measured=None, allowed=None, unit=unit, n=0, note=why)


def as_table(checks: Sequence[Check]) -> pd.DataFrame:
    """One row a check; `passed` is nullable."""
    table = pd.DataFrame([asdict(check) for check in checks])
    return table.astype({"passed": "boolean", "measured": "float64", "allowed": "float64", "n": "int64"})


def largest_difference(a: np.ndarray, b: np.ndarray) -> float:
    """Largest |a − b| of two sets of rewards (n,); not a number where one of them is none."""
    return float(np.abs(np.asarray(a, dtype=np.float64) - b).max())
