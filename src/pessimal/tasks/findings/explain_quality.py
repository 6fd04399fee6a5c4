"""How good the edits of one explanation are: what they cover, how far they go, and whether they did what was asked.

Knows the table of outcomes with distances and compliance. Does not know which attributes move the model.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pessimal.contrast.attribute import PLACEBO, Attribute
from pessimal.contrast.compliance import compliance, flip_rates, off_target
from pessimal.contrast.distances import syntactic
from pessimal.contrast.embedding import embed
from pessimal.contrast.metrics import Pairwise
from pessimal.contrast.outcomes import COUNTERFACTUAL, SEMIFACTUAL
from pessimal.figures import contrast_metrics
from pessimal.figures import off_target as off_target_figure
from pessimal.report.contents import Contents, Entry, Section
from pessimal.tasks.findings.explain_claims import counted, made_edits

OUTCOMES = {
    "complied": "of those that did",
    "not complied": "of those that did not",
    "not judged": "of those without an opinion",
}
"""What `flip_rates` calls its rows, and what a sentence does."""


def quality(
    section: Section,
    contents: Contents,
    table: pd.DataFrame,
    measured: pd.DataFrame,
    attributes: Mapping[str, Attribute],
    detected: tuple[pd.DataFrame, pd.DataFrame],
    *,
    confidence: float,
) -> None:
    """Coverage, distances, compliance, flip rates given it, and what else was moved."""
    edits, _ = made_edits(table)
    coverage = of_attributes(measured, "coverage")
    if len(edits):
        contents.figures["coverage"] = coverage_figure(coverage, confidence=confidence)
    section.entries.append(
        Entry(
            "How many comparisons have an explanation",
            covered(coverage, table),
            figure="coverage" if len(edits) else None,
            table="metrics",
        )
    )
    if np.isfinite(edits[["syntactic", "semantic"]].astype(float)).all(axis=1).any():
        contents.figures["distances"] = contrast_metrics.distances(table)
        section.entries.append(
            Entry(
                "How far the edits go",
                "Syntactic: Levenshtein distance in tokens over the longer text's. Semantic: 1 − cosine of sentence embeddings "
                "(MiniLM). On all edits and on those that flip: flips alone would favour whoever flips little.",
                figure="distances",
            )
        )
    contents.add_table("compliance", compliance(table, confidence=confidence))
    section.entries.append(
        Entry(
            "Whether the edits did what was asked",
            complied(table, confidence=confidence),
            table="compliance",
        )
    )
    contents.add_table("flip_rates", flip_rates(table, confidence=confidence))
    if edits["complied"].notna().any():
        section.entries.append(
            Entry(
                "Flip rates among the edits that did",
                "An attribute whose edits seldom did what was asked says little about the model: its flip rate is over all edits, over "
                "those that did what was asked, and over the others.",
                table="flip_rates",
            )
        )
    _off_target(section, contents, table, attributes, detected, confidence=confidence)


def _off_target(
    section: Section,
    contents: Contents,
    table: pd.DataFrame,
    attributes: Mapping[str, Attribute],
    detected: tuple[pd.DataFrame, pd.DataFrame],
    *,
    confidence: float,
) -> None:
    moved = off_target(table, *detected, list(attributes.values()), confidence=confidence)
    contents.add_table("off_target", moved)
    if moved["mean"].isna().all():
        return
    order = [*attributes, PLACEBO]
    matrix = moved.pivot(index="asked", columns="detector", values="mean")
    matrix = matrix.loc[[name for name in order if name in matrix.index], [n for n in order if n in matrix]]
    contents.figures["off_target"] = off_target_figure.off_target(
        matrix,
        label="mean change of what the detector counts, in its SD, as the asked attribute is raised",
        counts=moved.groupby("asked")["n"].max(),
    )
    section.entries.append(
        Entry(
            "What else the edits changed",
            "Rows: the attribute that was asked for. Columns: the detector. Framed: the attribute itself. What stands large beside a "
            "frame went along with it, and may be what the model reacts to.",
            figure="off_target",
            table="off_target",
        )
    )


def covered(coverage: pd.DataFrame, table: pd.DataFrame) -> str:
    """Shares of comparisons with a flip and with a hold; nothing where nothing was tried."""
    edits, _ = made_edits(table)
    if edits.empty:
        return "No edit came about, so no comparison was tried."

    def share(among: str, side: str) -> str:
        row = coverage[(coverage["among"] == among) & (coverage["side"] == side)].iloc[0]
        return f"{row['value']:.0%} ({row['low']:.0%} to {row['high']:.0%}) {side}"

    n, seeds = int(coverage["comparisons"].max()), int(coverage["seeds"].max())
    untried = n - len(set(edits["comparison"]))
    without = f" ({untried:,} without any edit, counted as not covered)" if untried else ""
    mean = f" (mean over {seeds} seeds)" if seeds > 1 else ""
    flips, holds = (
        ", ".join(share(among, side) for side in contrast_metrics.SIDES)
        for among in (COUNTERFACTUAL, SEMIFACTUAL)
    )
    return f"Of {counted(n, 'decided comparison')}{without} at least one edit flips{mean}: {flips}. At least one holds: {holds}."


def complied(table: pd.DataFrame, *, confidence: float) -> str:
    """Whether the edits along attributes did what was asked, and how often those flip that did."""
    tried = table[table["attribute"] != PLACEBO]
    row = compliance(tried, by=[], confidence=confidence).iloc[0]
    if not row["texts"]:
        return "There is no edit to judge."
    if not row["n"]:
        return "The judge has no opinion on any of these attributes."
    rates = flip_rates(tried, by=[], confidence=confidence).set_index("edits")
    given = "; ".join(
        f"{rate['share']:.1%} ({rate['low']:.1%} to {rate['high']:.1%}, n = {int(rate['n']):,}) {told}"
        for kind, told in OUTCOMES.items()
        if (rate := rates.loc[kind])["n"]
    )
    return (
        f"A judge that knows nothing of who made the edits finds that {row['share']:.0%} ({row['low']:.0%} to {row['high']:.0%}) of "
        f"{counted(int(row['n']), 'edit')} of {counted(int(row['comparisons']), 'comparison')} moved their attribute the asked way. "
        f"Flips: {given}. A model that resists an edit which did nothing has not been tried."
    )


def came_of_it(table: pd.DataFrame) -> str:
    """What came of the requests, and how many seeds gave a text again."""
    said = []
    for placebo, what in ((False, "edit"), (True, "placebo edit")):
        rows = table[(table["attribute"] == PLACEBO) == placebo]
        if rows.empty:
            continue
        told = ", ".join(f"{n:,} {status}" for status, n in rows["status"].value_counts().items())
        said.append(f"{counted(len(rows), what)} {'was' if len(rows) == 1 else 'were'} asked for: {told}.")
        if again := repeated(rows[rows["edited"].notna()]):
            said.append(
                f"{again:,} of them {'repeats' if again == 1 else 'repeat'} a text that another seed gave, and {'counts' if again == 1 else 'count'} "
                "again: more of these is no more evidence."
            )
    return " ".join(said)


def repeated(made: pd.DataFrame) -> int:
    """Edits whose text another seed gave before."""
    names = ("comparison", "response", "attribute", "edited")
    return len(made) - len(set(zip(*(made[name] for name in names), strict=True)))


def of_attributes(measured: pd.DataFrame, metric: str) -> pd.DataFrame:
    """One metric of the edits along attributes, without the placebo's."""
    return measured[(measured["metric"] == metric) & ~measured["placebo"].astype(bool)]


def coverage_figure(coverage: pd.DataFrame, *, confidence: float):
    """What `metrics` says of coverage, drawn; with one seed the unit is a comparison."""
    named = coverage.rename(columns={"among": "kind", "value": "coverage"})
    if coverage["seeds"].max() == 1:
        named = named.drop(columns="unit")
    return contrast_metrics.coverage(named, confidence=confidence)


def pairwise(table: pd.DataFrame) -> dict[str, Pairwise]:
    """How `metrics` measures the edited texts of one set against one another; each text is embedded once."""
    texts = list(dict.fromkeys(table["edited"].dropna()))
    vectors = dict(zip(texts, embed(texts).astype(float), strict=True)) if texts else {}

    def words(chosen: Sequence[str]) -> np.ndarray:
        return np.array([[syntactic(a, b) for b in chosen] for a in chosen])

    def meaning(chosen: Sequence[str]) -> np.ndarray:
        stacked = np.stack([vectors[text] for text in chosen])
        return np.clip(1 - stacked @ stacked.T, 0, 2)

    return {"syntactic": words, "semantic": meaning}
