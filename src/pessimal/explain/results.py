"""What the explanations of one model report: which attributes move its preferences, how well that is known, and examples.

Knows the table of outcomes and what was measured of it. Does not know models, perturbers or registries.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pessimal.explain.attribute import PLACEBO, Attribute
from pessimal.explain.comparison import Comparison
from pessimal.explain.compliance import compliance, flip_rates, off_target
from pessimal.explain.distances import syntactic
from pessimal.explain.embedding import embed
from pessimal.explain.flip_rate import attribute_flip_rates
from pessimal.explain.metrics import DISTANCES, Pairwise, metrics
from pessimal.explain.outcomes import COUNTERFACTUAL, SEMIFACTUAL
from pessimal.explain.representatives import ranked
from pessimal.explain.slopes import slopes
from pessimal.plots import Forest, Heatmap
from pessimal.tables.kinds import storable
from pessimal.tables.result import Estimate, Result, weight_of
from pessimal.texts import literal, significant

METHOD, EDITS = "explain", "edits"
SUBSET_LABELS = {COUNTERFACTUAL: "flips", SEMIFACTUAL: "holds", "all": "all edits"}
"""Outcomes, as figures name them."""


@dataclass(frozen=True)
class Options:
    """How intervals and tests are drawn."""

    replicates: int
    permutations: int
    confidence: float
    seed: int

    @property
    def drawn(self) -> dict:
        """What a bootstrap needs."""
        return {"replicates": self.replicates, "confidence": self.confidence, "seed": self.seed}


@dataclass(frozen=True)
class Explained:
    """An explanation before it is summarised."""

    model: str
    perturber: str
    """Who made the edits along attributes."""
    description: dict
    """What pins the model down, for the provenance."""
    comparisons: dict[str, Comparison]
    """Those that the model can read, by key."""
    attributes: dict[str, Attribute]
    detected: tuple[pd.DataFrame, pd.DataFrame]
    """What the detectors find in the texts before and after; rows labelled as the table."""
    table: pd.DataFrame
    """Outcomes, with distances and compliance; at least one comparison is decided, but maybe no edit came about."""
    smallest: pd.DataFrame | None
    """The least of each counterfactual that still flips; None where it was not looked for."""
    largest: pd.DataFrame | None
    """The most of each response that may be changed without a flip."""
    decided: Sequence[str]
    undecided: Sequence[str]
    too_long: Sequence[str]
    left_out: Mapping[str, int]
    """Comparisons left out while they were read: how many by what they are ("with an empty text")."""
    reward_sd: float
    """Standard deviation of the rewards of all responses as they stand."""
    tie: float
    """Margins up to this are ties, in units of reward."""
    noise: float
    """Bound on the numerical error of one reward."""
    path: str
    """The way that scored."""
    trust: dict
    """Result of the check of that path."""

    @property
    def edits(self) -> pd.DataFrame:
        """Outcomes of the edits along attributes that came about."""
        return self.table[self.table["edited"].notna() & (self.table["attribute"] != PLACEBO)]


def explained_results(explained: Explained, options: Options) -> list[Result]:
    """The Results of one model's explanations, sensitivities first."""
    sensitive = attribute_flip_rates(explained.table, permutations=options.permutations, **options.drawn)
    fitted = slopes(explained.table, confidence=options.confidence)
    measured = metrics(explained.table, pairwise=pairwise(explained.table), **options.drawn)
    results = [
        _flip_rate_result(sensitive, explained),
        _slopes(fitted, explained),
        _representatives(explained),
        coverage_result(measured, EDITS),
        _compliance(explained, options),
        Result("flip_rates", flip_rates(explained.table, confidence=options.confidence), method=EDITS),
        _off_target(explained, options),
    ]
    if explained.smallest is not None and len(explained.smallest):
        results.append(_smallest(as_stored(explained.smallest)))
    if explained.largest is not None and len(explained.largest):
        results.append(_largest(as_stored(explained.largest)))
    results.append(Result("outcomes", as_stored(explained.table), method=EDITS))
    results.append(Result("provenance", _provenance(explained)))
    return results


def of_attributes(sensitive: pd.DataFrame, perturber: str) -> pd.DataFrame:
    """The rows of the edits along attributes, without the placebo's."""
    return sensitive[(sensitive["perturber"] == perturber) & (sensitive["attribute"] != PLACEBO)]


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


def _flip_rate_result(table: pd.DataFrame, explained: Explained) -> Result:
    """How often edits along each attribute flip the preference, against the placebo's."""
    own = of_attributes(table, explained.perturber).dropna(subset=["flip_rate"])
    null = table[(table["attribute"] == PLACEBO) & (table["n"] > 0)]
    placebo = float(null["flip_rate"].iloc[0]) if len(null) else None
    summary = _summary(table, explained)
    notes = _left_out(explained) + (() if placebo is not None else ("No placebo, so nothing is tested.",))
    if own.empty:
        return Result(
            "sensitivity", table, method=METHOD, notes=(*notes, "No edit came about."), summary=summary
        )
    top = own.sort_values(["flip_rate", "change"], ascending=[False, True], kind="stable").iloc[0]
    against = "" if placebo is None else f", placebo edits {placebo:.0%}"
    q = None if pd.isna(top["flip_q"]) else float(top["flip_q"])
    return Result(
        "sensitivity",
        table,
        headline=f"{top['attribute'].capitalize()} edits flip {explained.model}'s preference most often: {top['flip_rate']:.0%} "
        f"of {int(top['n'])} edits{against}.",
        plot=Forest(
            data=pd.concat([own.sort_values("flip_rate", ascending=False, kind="stable"), null]),
            row="attribute", estimate="flip_rate", low="flip_low", high="flip_high", p="flip_q", tabs=(),
            reference=placebo or 0.0, xlabel="share of edits that flip the preference (line: placebo edits)",
        ),
        method=METHOD,
        weight=weight_of(top["flip_rate"], q),
        estimate=Estimate(
            "flip rate", float(top["flip_rate"]), int(top["n"]), "edits", float(top["flip_low"]), float(top["flip_high"]), q
        ),
        notes=notes,
        summary=summary,
    )  # fmt: skip


def _left_out(explained: Explained) -> tuple[str, ...]:
    """Which comparisons are not among those explained."""
    counts = {
        f"ties (margin up to {significant(explained.tie)})": len(explained.undecided),
        "longer than the model reads": len(explained.too_long),
        **explained.left_out,
    }
    left_out = ", ".join(f"{n:,} {what}" for what, n in counts.items() if n)
    return (f"Comparisons left out: {left_out}.",) if left_out else ()


def _summary(sensitive: pd.DataFrame, explained: Explained) -> dict[str, float]:
    """The numbers by which explanations are listed; unknown ones are left out, as JSON has no NaN."""
    made = explained.table[explained.table["edited"].notna()]
    numbers = {
        "decided": len(explained.decided),
        "undecided": len(explained.undecided),
        "edits": len(explained.edits),
        "placebo_edits": len(made) - len(explained.edits),
        "reward_sd": explained.reward_sd,
        "tie": explained.tie,
    }
    for row in sensitive[sensitive["attribute"] == PLACEBO].itertuples():
        numbers["placebo_flip_rate"] = float(row.flip_rate)
    for row in of_attributes(sensitive, explained.perturber).itertuples():
        numbers[f"flip_rate/{row.attribute}"] = float(row.flip_rate)
        numbers[f"change/{row.attribute}"] = float(row.change)
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def _slopes(table: pd.DataFrame, explained: Explained) -> Result:
    """What the reward gains with each attribute while the others are held."""
    known = table.dropna(subset=["slope"])
    if known.empty or explained.edits.empty:  # a line through placebo edits alone says nothing of attributes
        why = "Slopes are not known: too few edits for so many attributes, or no detector saw one move."
        return Result("slopes", table, method=METHOD, notes=(why,))
    top = known.loc[known["slope"].abs().idxmax()]
    q = None if pd.isna(top["slope_q"]) else float(top["slope_q"])
    few = "Slopes have no intervals: too few comparisons for so many attributes."
    ends = (float(top["slope_low"]), float(top["slope_high"])) if q is not None else (None, None)
    finite = {f"slope/{r.attribute}": float(r.slope) for r in known.itertuples() if math.isfinite(r.slope)}
    return Result(
        "slopes",
        table,
        headline=f"With the others held, {top['attribute']} moves {explained.model}'s reward most: "
        f"{_signed(top['slope'])} SD per SD.",
        plot=Forest(
            data=known, row="attribute", estimate="slope", low="slope_low", high="slope_high", p="slope_q", sort=True,
            tabs=(), xlabel="reward gained per SD of the attribute, others held (SD of reward)",
        ),
        method=METHOD,
        weight=weight_of(top["slope"], q),
        estimate=Estimate("slope, SD per SD", float(top["slope"]), int(top["n"]), "edits", *ends, q),
        notes=() if q is not None else (few,),
        summary=finite,
    )  # fmt: skip


def _representatives(explained: Explained) -> Result:
    """The comparisons whose own ranking of attributes is most like the model's."""
    table = ranked(explained.table, explained.model, perturber=explained.perturber)
    best = table.dropna(subset=["tau"])
    if best.empty:
        reasons = dict.fromkeys(reason for reason in table["reason"] if reason)
        return Result("representatives", table, method=METHOD, notes=(f"Comparisons are not ranked: {'; '.join(reasons)}.",))  # fmt: skip
    top = best.iloc[0]
    return Result(
        "representatives",
        table,
        headline=f"The comparison whose ranking of attributes is most like the model's: {literal(top['comparison'], limit=40)} "
        f"(τ = {top['tau']:.2f}).",
        method=METHOD,
        weight=weight_of(0.1),
        estimate=Estimate("τ", float(top["tau"]), int(top["attributes"]), "attributes"),
    )  # fmt: skip


def coverage_result(measured: pd.DataFrame, method: str) -> Result:
    """How many comparisons have an explanation, and how far the edits go."""
    own = measured[~measured["placebo"].astype(bool) & measured["value"].notna()]
    drawn = own[own["metric"].isin(["coverage", *DISTANCES]) & (own["side"] == "any")]
    drawn = drawn.assign(
        among=drawn["among"].map(SUBSET_LABELS), who=drawn["model"] + " · " + drawn["perturber"]
    )
    flips = own[
        (own["metric"] == "coverage") & (own["among"] == COUNTERFACTUAL) & (own["side"] == "any") & (own["n"] > 0)
    ]  # fmt: skip
    tried = (own["metric"].isin(DISTANCES) & (own["n"] > 0)).any()
    if flips.empty or not tried:
        return Result("metrics", measured, method=method, notes=("No edit came about, so no comparison was tried.",))  # fmt: skip
    low, high = flips.loc[flips["value"].idxmin()], flips.loc[flips["value"].idxmax()]
    share = f"{low['value']:.0%}" if len(flips) == 1 else f"{low['value']:.0%} to {high['value']:.0%}"
    return Result(
        "metrics",
        measured,
        headline=f"{share} of {int(high['comparisons'])} comparisons have at least one edit that flips the preference.",
        plot=Forest(
            data=drawn, row="who", estimate="value", group="among", panel="metric", tabs=(), reference=None,
            xlabel="share, or distance",
        ),
        method=method,
        weight=weight_of(0.1),
        estimate=Estimate(
            "coverage", float(high["value"]), int(high["comparisons"]), "comparisons", float(high["low"]), float(high["high"])
        ),
        summary={
            f"coverage/{row.among}/{row.side}": float(row.value)
            for row in own[own["metric"] == "coverage"].itertuples()
        } if measured["model"].nunique() == 1 else {},
    )  # fmt: skip


def _compliance(explained: Explained, options: Options) -> Result:
    """Whether the edits did what was asked."""
    table = compliance(explained.table, confidence=options.confidence)
    whole = compliance(
        explained.table[explained.table["attribute"] != PLACEBO], by=[], confidence=options.confidence
    ).iloc[0]
    if not whole["n"]:
        return Result("compliance", table, method=EDITS, notes=("No edit was judged.",))
    return Result(
        "compliance",
        table,
        headline=f"{whole['share']:.0%} of {int(whole['n']):,} edits did what was asked, by a judge that knows nothing of "
        "their making.",
        plot=Forest(
            data=table.dropna(subset=["share"]), row="attribute", estimate="share", group="side", tabs=(), reference=None,
            xlabel="share of edits that moved their attribute the asked way",
        ),
        method=EDITS,
        weight=weight_of(0.1),
        estimate=Estimate(
            "share of edits", float(whole["share"]), int(whole["n"]), "edits", float(whole["low"]), float(whole["high"])
        ),
    )  # fmt: skip


def _off_target(explained: Explained, options: Options) -> Result:
    """What else the edits changed."""
    table = off_target(
        explained.table,
        *explained.detected,
        list(explained.attributes.values()),
        confidence=options.confidence,
    )
    others = table[~table["on_target"].astype(bool) & (table["asked"] != PLACEBO)].dropna(subset=["mean"])
    if others.empty:
        return Result("off_target", table, method=EDITS)
    top = others.loc[others["mean"].abs().idxmax()]
    return Result(
        "off_target",
        table,
        headline=f"Off target, edits that raise {top['asked']} move {top['detector']} most: {_signed(top['mean'])} SD.",
        plot=Heatmap(
            row="asked", column="detector", value="mean", diverging=True, tabs=(),
            label="change of the detector (SD), asked for more of the row",
        ),
        method=EDITS,
        weight=weight_of(0.1),
        estimate=Estimate(
            "change, SD", float(top["mean"]), int(top["n"]), "edits", float(top["low"]), float(top["high"])
        ),
    )  # fmt: skip


def _smallest(table: pd.DataFrame) -> Result:
    """The least of each flip that still flips."""
    before, after, exact = (
        table["tokens_before"].median(),
        table["tokens"].median(),
        int(table["exact"].sum()),
    )
    return Result(
        "smallest_flips",
        table,
        headline=f"A flip needs {after:g} changed tokens (median of {len(table):,}), of the {before:g} that edits made.",
        method=EDITS,
        weight=weight_of(0.1),
        estimate=Estimate("changed tokens", float(after), len(table), "flips"),
        notes=(f"In {exact:,} of {len(table):,} flips every choice of the edit's changes was tried.",),
    )  # fmt: skip


def _largest(table: pd.DataFrame) -> Result:
    """The most of each response that can be changed without a flip."""
    before, after = table["tokens_before"].median(), table["tokens"].median()
    return Result(
        "largest_holds",
        table,
        headline=f"A response takes {after:g} changed tokens (median of {len(table):,}) without a flip; single edits change {before:g}.",
        method=EDITS,
        weight=weight_of(0.1),
        estimate=Estimate("changed tokens", float(after), len(table), "responses"),
    )  # fmt: skip


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _provenance(explained: Explained) -> pd.DataFrame:
    known = {name: value for name, value in explained.description.items() if not isinstance(value, dict)}
    trust = {
        "largest_difference": explained.trust.get("largest_difference"),
        "checked": explained.trust.get("n"),
    }
    row = {
        "model": explained.model,
        "path": explained.path,
        **trust,
        "noise": explained.noise,
        "tie": explained.tie,
        **known,
    }
    return pd.DataFrame([row])


def as_stored(table: pd.DataFrame) -> pd.DataFrame:
    """Texts as parquet can hold them; `complied` as a column that knows missing values."""
    table = table.copy()
    for column in table:
        if table[column].dtype == object and column != "complied":
            table[column] = [storable(value) if isinstance(value, str) else value for value in table[column]]
    if "complied" in table:
        table["complied"] = table["complied"].astype("boolean")
    return table
