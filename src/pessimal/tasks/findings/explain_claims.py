"""What may be said of one model's explanations: sentences, each with its n, its interval and what it does not say.

Knows the table of outcomes, what was computed from it, and English. Does not know figures, models or perturbers.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pessimal.contrast.attribute import PLACEBO
from pessimal.contrast.outcomes import TIE
from pessimal.figures.words import significant

LEADERS = 3
"""Attributes that a sentence names."""
NOTHING = "No edit came about, so nothing is known."


def counted(n: int, what: str) -> str:
    """1 edit, 2 edits."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def made_edits(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The edits that came about: those along attributes, and the placebo's."""
    made = table[table["edited"].notna()]
    placebo = made["attribute"] == PLACEBO
    return made[~placebo], made[placebo]


def different_texts(made: pd.DataFrame) -> int:
    """How many texts there are among edits; the same one in the place of another response is another."""
    return len(set(zip(made["comparison"], made["response"], made["edited"], strict=True)))


def of_texts(made: pd.DataFrame) -> str:
    """`, 14 different texts` where some edits have the same text; they are one observation that counts several times."""
    texts = different_texts(made)
    return "" if texts == len(made) else f", {counted(texts, 'different text')}"


def asked(
    table: pd.DataFrame,
    *,
    decided: int,
    undecided: int,
    too_long: int,
    left_out: Mapping[str, int],
    tie: float,
    reward_sd: float,
) -> str:
    """What was done to how many comparisons, and which were left out."""
    edits, placebo = made_edits(table)
    attributes = table.loc[table["attribute"] != PLACEBO, "attribute"].nunique()
    beside = f", and {counted(len(placebo), 'placebo edit')} that keep{'s' * (len(placebo) == 1)} the meaning"
    said = (
        f"{counted(decided, 'comparison')} in which the model prefers one response; the preferred one was made worse and the other "
        f"better along {counted(attributes, 'attribute')}: {counted(len(edits), 'edit')}{beside if len(placebo) else ''}."
    )
    gone = []
    if undecided:
        gone.append(
            f"{counted(undecided, 'comparison')} as {'a tie' if undecided == 1 else 'ties'} (margin up to {significant(tie)})"
        )
    if too_long:
        gone.append(f"{too_long:,} as longer than the model reads")
    if left_out:
        gone.append(
            "while the comparisons were read, " + ", ".join(f"{n:,} {what}" for what, n in left_out.items())
        )
    if gone:
        said += f" Left out: {'; '.join(gone)}."
    return (
        f"{said} Changes are in standard deviations of the model's rewards ({significant(reward_sd)}, over "
        f"{counted(2 * (decided + undecided), 'response')})."
    )


def sensitive(own: pd.DataFrame, placebo: pd.DataFrame, table: pd.DataFrame, *, confidence: float) -> str:
    """Which attributes flip most, which are told from the placebo, and how the numbers came about."""
    rows = own[own["attribute"] != PLACEBO].dropna(subset=["flip_rate"])
    if rows.empty:
        return NOTHING
    edits, null = made_edits(table)
    first = rows.sort_values(["flip_rate", "change"], ascending=[False, True], kind="stable").head(LEADERS)
    told = "; ".join(
        f"{row.attribute} {row.flip_rate:.0%} ({row.counterfactuals} of {counted(row.n, 'edit')}"
        f"{of_texts(edits[edits['attribute'] == row.attribute])}, {counted(row.comparisons, 'comparison')}; mean change "
        f"{significant(row.change)} SD)"
        for row in first.itertuples()
    )
    tested = rows["change_q"].notna().any() or rows["flip_q"].notna().any()
    q = (
        "q: corrected over the attributes (Benjamini-Hochberg), flips and changes apart, against edits that keep the meaning. "
        if tested
        else ""
    )
    return (
        f"Flip rate, highest first: {told}. {_against_placebo(rows)} {_null(placebo, null)}A flip: the other response is preferred "
        f"after the edit. {q}Intervals: {confidence:.0%}, over comparisons: of flip rates exact binomial at the number of edits that "
        "they are worth, of changes bootstrap."
    )


def _against_placebo(rows: pd.DataFrame) -> str:
    """Two families of tests, so two counts."""
    flips, changes = (rows.dropna(subset=[q]) for q in ("flip_q", "change_q"))
    if flips.empty and changes.empty:
        return "Nothing is tested: there is no placebo to hold the attributes against."

    def names(tested: pd.DataFrame, q: str) -> str:
        found = tested.loc[tested[q] < 0.05, "attribute"].tolist()
        return f" ({', '.join(found)})" if found else ""

    return (
        f"Told from the placebo at q < .05: by more flips {int((flips['flip_q'] < 0.05).sum())} of {counted(len(flips), 'attribute')}"
        f"{names(flips, 'flip_q')}, by another change of the margin {int((changes['change_q'] < 0.05).sum())} of "
        f"{counted(len(changes), 'attribute')}{names(changes, 'change_q')}."
    )


def _null(placebo: pd.DataFrame, made: pd.DataFrame) -> str:
    if placebo.empty or not placebo["n"].sum():
        return ""
    row = placebo.iloc[0]
    return (
        f"The placebo, edits that keep the meaning, flips {row['flip_rate']:.1%} ({row['flip_low']:.1%} to {row['flip_high']:.1%}, "
        f"n = {row['n']:,}{of_texts(made)}): the grey band. It is made by rule and keeps the length, to two words: “more than the "
        "placebo” is more than small edits do, not more than any edit would. The slopes tell length apart. "
    )


def slopes(told_apart: pd.DataFrame, table: pd.DataFrame) -> str:
    """What is rewarded in itself, or why that is not known."""
    known = told_apart.dropna(subset=["slope"])
    if known.empty:
        if told_apart.empty:
            return "Not known: no detector saw an edit move anything."
        n, attributes = int(told_apart["n"].iloc[0]), len(told_apart)
        return f"Not known: {counted(n, 'edit')} cannot tell {counted(attributes, 'attribute')} apart. More comparisons can."
    edits = int(known["n"].iloc[0])
    made = table[table["edited"].notna()]
    texts = of_texts(made) if len(made) == edits else ""
    null = " (the placebo's too)" if (made["attribute"] == PLACEBO).any() else ""
    first = known.loc[known["slope"].abs().sort_values(ascending=False, kind="stable").index].head(LEADERS)
    told = "; ".join(
        f"{row.attribute} {significant(row.slope)}{_known_how_well(row)}" for row in first.itertuples()
    )
    if known["slope_low"].isna().all():
        sure = (
            f" There are no intervals: {counted(int(known['comparisons'].iloc[0]), 'comparison')} "
            f"are too few for {counted(len(known), 'attribute')}."
        )
    else:
        sure = f" {int((known['slope_q'] < 0.05).sum())} of {len(known)} are told from 0 (q < .05)."
    explained = known["explained"].iloc[0]
    fit = f" R² {explained:.2f}." if np.isfinite(explained) else " No edit changed the reward."
    return (
        "Edits along one attribute move others along: more help is also more words. Here each is told apart, by a line through "
        f"{'the only edit' if edits == 1 else f'all {edits:,} edits'}{texts}{null} on what the detectors saw move: SDs of "
        f"reward per SD of the attribute, largest first: {told}.{sure}{fit} What no detector sees is credited to those that move along "
        "with it."
    )


def _known_how_well(row) -> str:
    """In brackets: the interval of a slope, and whether others could as well have it."""
    said = []
    if np.isfinite(row.slope_low):
        said.append(f"{significant(row.slope_low)} to {significant(row.slope_high)}")
    if row.inflation > 10:
        said.append(f"hardly told apart from others: inflation {row.inflation:.0f}")
    return f" ({'; '.join(said)})" if said else ""


def how_to_read(table: pd.DataFrame, *, tie: float) -> str:
    """What a margin, a flip and a tie are; and how many edits were ties."""
    ties = [
        f"{int((made['outcome'] == TIE).sum()):,} of {counted(len(made), what)}"
        for made, what in zip(made_edits(table), ("edit", "placebo edit"), strict=True)
        if len(made)
    ]
    bound = significant(tie)
    return (
        "The margin is the preferred response's reward less the other's. An edit of either flips the preference where the margin falls "
        f"below {f'−{bound}' if tie else 'zero'} (a counterfactual), and leaves it where the margin stays above {bound if tie else 'zero'} "
        "(a semifactual). Between them is a tie, which is neither and counts as no flip"
        + (f": {', and '.join(ties)} ended in one." if ties else ".")
    )


def examples(shown: pd.DataFrame) -> tuple[str, str]:
    """Title and sentence of the comparisons that are shown (rows of a ranking); none of them without a tau if any has one."""
    order = (
        "The edits of both responses stand together, by the margin after the edit, the lowest first: what brings the preference nearest "
        "to a flip, or furthest beyond one, leads, and what makes the preference firmer ends the list."
    )
    if shown["tau"].isna().any():
        reason = shown.loc[shown["attributes"].idxmax(), "reason"]
        return "Examples", f"Examples, widest margin first; no ranking: {reason}. {order}"
    best = shown.iloc[0]
    title = (
        "The most representative comparison"
        if len(shown) == 1
        else f"The {len(shown)} most representative comparisons"
    )
    return title, (
        "Those in which the attributes stand in the same order as over all comparisons, by how far their edits move the margin. The "
        f"first: τ-b {best['tau']:.2f} over {counted(int(best['attributes']), 'attribute')}. {order}"
    )


def smallest(found: pd.DataFrame) -> str:
    """How much of the flips was needed."""
    fewer = int((found["tokens"] < found["tokens_before"]).sum())
    before, after = found["tokens_before"].median(), found["tokens"].median()
    flips = counted(len(found), "flip")
    if fewer:
        moved = f"falls from {before:g} to {after:g}" if after < before else f"stays at {before:g}"
        said = f"Of {flips} {fewer:,} {'needs' if fewer == 1 else 'need'} fewer changes than the edit made; the median over all {moved} changed tokens."
    else:
        said = f"Of {flips} none needs fewer changes than the edit made; the median is {before:g} changed tokens."
    exact = int(found["exact"].sum())
    others = found[~found["exact"].astype(bool)]
    if exact == len(found):
        said += " No choice of the edit's separate changes that flips is smaller: all were tried."
    elif exact:
        said += f" {exact:,} {'is' if exact == 1 else 'are'} the smallest choice of the edit's separate changes there is."
    if minimal := int(others["minimal"].sum()):
        which = f"{counted(minimal, 'other') if exact else counted(minimal, 'flip')}"
        said += f" In {which}, of too many changes to try every choice, no single change can be taken back."
    if unknown := len(others) - int(others["minimal"].sum()):
        said += f" {unknown:,} did not flip when asked again, and {'was' if unknown == 1 else 'were'} left as made."
    return said


def largest(found: pd.DataFrame) -> str:
    """How much can be changed without a flip."""
    before, after = found["tokens_before"].median(), found["tokens"].median()
    moved = f"rises from {before:g} to {after:g}" if after > before else f"stays at {before:g}"
    return (
        f"{counted(len(found), 'response')}, each begun at the edit that changes most without a flip and grown with the response's other "
        f"edits while the preference holds: the median {moved} changed tokens."
    )
