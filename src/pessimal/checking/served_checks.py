"""A diagnosis of a server as checks: what was measured on its answers, what is allowed, and what to
do about it."""

import numpy as np

from pessimal.checking.checks import Check, at_most
from pessimal.checking.served import HARMLESS, ROUNDED, Diagnosis
from pessimal.checking.served_faults import FAULTS
from pessimal.rewards.spec import Dtype
from pessimal.scoring.trust import allowed


def checks_of(diagnosis: Diagnosis) -> list[Check]:
    """One row a question. Allowed is what rounding explains: in the model's precision, or in a
    lower one that is harmless; `notes` of a failed one say how many inputs differ by more."""
    harmless = HARMLESS * diagnosis.spread
    limit = max(allowed(diagnosis.own, dtype=Dtype.float32), min(diagnosis.limit, harmless))
    if diagnosis.faults and {part.fault for part in diagnosis.faults} <= ROUNDED:
        limit = harmless
    off = np.abs(diagnosis.served - diagnosis.own)
    off = np.where(np.isfinite(off), off, np.inf)
    given, expected = diagnosis.outputs
    wrong = "" if given == expected else note_of(diagnosis)
    rows = [Check("served_outputs", not wrong, given, expected, "outputs", len(off), wrong)]

    def row(name: str, which: np.ndarray) -> None:
        several = f"{(off[which] > limit).sum()} of {which.sum()} differ. {note_of(diagnosis)}"
        rows.append(at_most(name, float(off[which].max()), limit, n=int(which.sum()), note=several))

    alone, long = diagnosis.kinds == "alone", diagnosis.kinds == "long"
    for form in dict.fromkeys(diagnosis.forms):
        row(f"served_{form}", (diagnosis.forms == form) & alone)
    if long.any():
        row("served_long", long)
    if diagnosis.refused:
        forms = ", ".join(f"{words} words as {form}" for form, words in diagnosis.refused)
        rows.append(Check("served_refused", n=len(diagnosis.refused), note=forms))
    differences = {
        "batch": diagnosis.batch_difference,
        "again": diagnosis.repeat_difference,
    }
    for kind, difference in differences.items():
        n, name = int((diagnosis.kinds == kind).sum()), "repeat" if kind == "again" else kind
        rows.append(at_most(f"served_{name}", difference, limit, n=n, note=note_of(diagnosis)))
    if diagnosis.bounds.known:
        beyond = diagnosis.bounds.beyond(diagnosis.served[np.isfinite(diagnosis.served)])
        several = "No input gets such a score from this model: another head, or another scale"
        rows.append(at_most("served_ceiling", beyond, 0.0, n=len(off), note=several))
    tau = diagnosis.kendall if np.isfinite(diagnosis.kendall) else None
    return [*rows, Check("served_order", measured=tau, unit="tau", n=len(off))]


def note_of(diagnosis: Diagnosis) -> str:
    """What is wrong and what to type, in one piece."""
    faults = [
        FAULTS[part.fault]["what"] + (f" ({part.detail})" if part.detail else "")
        for part in diagnosis.faults
    ]
    mend = [FAULTS[part.fault]["mend"] for part in diagnosis.faults]
    return ". ".join(dict.fromkeys(text.rstrip(".") for text in [*faults, *mend]))
