"""A diagnosis of a server as checks: what was measured on its answers, what is allowed, and what to
do about it."""

import numpy as np

from pessimal.checking.checks import Check, at_most
from pessimal.checking.served import Diagnosis
from pessimal.checking.served_faults import FAULTS
from pessimal.rewards.spec import Dtype
from pessimal.scoring.trust import TOLERANCE, allowed

REPEATS = 8
"""Times that what a server differs from itself by is allowed: it is the largest of a few
differences."""


def checks_of(diagnosis: Diagnosis) -> list[Check]:
    """One row a question. Allowed is what rounding explains: in the model's precision, or in a
    lower one that is harmless."""
    lower = diagnosis.level not in ("", Dtype.float32.value)
    harmless = max(TOLERANCE.values()) * diagnosis.spread
    limit = harmless if lower else allowed(diagnosis.own, dtype=Dtype.float32)
    limit = max(limit, REPEATS * diagnosis.repeat_difference)
    notes, n = note_of(diagnosis), len(diagnosis.served)
    given, expected = diagnosis.outputs
    outputs = Check(
        "served_outputs",
        given == expected,
        float(given),
        float(expected),
        "outputs",
        n,
        "" if given == expected else notes,
    )
    rows = [outputs]
    for form in dict.fromkeys(diagnosis.forms):
        of = diagnosis.forms == form
        off = float(np.abs(diagnosis.served - diagnosis.own)[of].max())
        rows.append(at_most(f"served_{form}", off, limit, n=int(of.sum()), note=notes))
    rows.append(at_most("served_batch", diagnosis.batch_difference, limit, n=n, note=notes))
    rows.append(at_most("served_repeat", diagnosis.repeat_difference, harmless, n=n, note=notes))
    tau = diagnosis.kendall if np.isfinite(diagnosis.kendall) else None
    return [
        *rows,
        Check("served_order", measured=tau, unit="tau", n=n, note=notes if tau is None else ""),
    ]


def note_of(diagnosis: Diagnosis) -> str:
    """What is wrong and what to type, in one piece."""
    faults = [
        FAULTS[part.fault][0] + (f" ({part.detail})" if part.detail else "")
        for part in diagnosis.faults
    ]
    mend = [FAULTS[part.fault][1] for part in diagnosis.faults]
    others = " or ".join(diagnosis.remaining)
    either = [f"Or {others}; to tell: {diagnosis.apart}"] if others else []
    return ". ".join(dict.fromkeys(text.rstrip(".") for text in [*faults, *either, *mend]))
