"""What the explanations of one model report: which attributes move its preferences, how well that
is known, and examples.

Knows what `explain` found. Does not know models, perturbers or registries.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pandas as pd

from pessimal.explaining.agreement import representative
from pessimal.explaining.attribute import PLACEBO
from pessimal.explaining.explain import CONTROLS, Explained
from pessimal.explaining.flips import (
    OTHER,
    attribute_flip_rates,
    compliance,
    flip_rates,
    liked,
    null_makers,
    off_target,
)
from pessimal.explaining.fluency import FLUENT, RATIO, fluency
from pessimal.explaining.outcomes import COUNTERFACTUAL, KEY, SEMIFACTUAL, against_polarity
from pessimal.explaining.slopes import slopes
from pessimal.plots import Forest, Heatmap
from pessimal.tables.result import Effect, Estimate, Result, weight_of
from pessimal.tables.score_table import storable
from pessimal.texts import literal, significant

METHOD, EDITS, PAIR = "explain", "edits", "pair"
SLOPE = Effect(
    column="slope",
    label="slope, SD per SD",
    low="slope_low",
    high="slope_high",
    p="slope_q",
    null=0.0,
    of="edits",
    symbol="slope",
)
FLIP_RATE = Effect(
    "flip_rate",
    "flip rate",
    "flip_low",
    "flip_high",
    p="flip_q",
    null=0.0,
    of="edits",
    symbol="flip rate",
)
"""Beside the rate of placebo edits, where there are any."""
DISTANCES = ("syntactic", "semantic")
SUBSET_LABELS = {COUNTERFACTUAL: "flips", SEMIFACTUAL: "holds", "all": "all edits"}
"""Outcomes, as figures name them."""
SMALLEST = 5
"""Edits of a pair that are shown word by word."""


@dataclass(frozen=True)
class Options:
    """How intervals and tests are drawn."""

    replicates: int = 2000
    permutations: int = 10_000
    confidence: float = 0.95
    seed: int = 0

    @property
    def drawn(self) -> dict:
        """What a bootstrap needs."""
        return {"replicates": self.replicates, "confidence": self.confidence, "seed": self.seed}


def explained_results(explained: Explained, options: Options) -> list[Result]:
    """The Results of one model's explanations: slopes, which separate the attributes, before flip
    rates, which do not.

    Metrics, representative comparisons and flip rates by judgement are of edits against polarity,
    as published.
    """
    from pessimal.explaining.metrics import metrics

    published = explained.table[against_polarity(explained.table)]
    sensitive = attribute_flip_rates(
        explained.table, permutations=options.permutations, **options.drawn
    )
    fitted = slopes(explained.table, confidence=options.confidence)
    forest = Forest(
        row="attribute",
        estimate="slope",
        low="slope_low",
        high="slope_high",
        p="slope_q",
        sort=True,
        tabs=(),
        xlabel="reward gained per SD of the attribute, others held (SD of reward)",
    )
    first = slopes_result(fitted, {explained.model: explained.model}, method=METHOD, plot=forest)
    named = fitted.loc[fitted["slope"].abs().idxmax(), "attribute"] if first.headline else None
    second = _flip_rates(sensitive, explained, named)
    if first.headline:
        known = fitted.dropna(subset=["slope"]).set_index("attribute")["slope"]
        first = replace(
            first, summary={f"slope/{name}": float(slope) for name, slope in known.items()}
        )
        second = replace(second, weight=min(second.weight, first.weight))
    return [
        first,
        second,
        _representatives(published, explained),
        coverage_result(metrics(published, diversity=True, **options.drawn), EDITS),
        _compliance(explained, options),
        *fluency_results(explained.table, options, method=EDITS),
        Result("flip_rates", flip_rates(published, confidence=options.confidence), method=EDITS),
        _off_target(explained, options),
        *_smallest_and_largest(explained),
        Result("outcomes", as_stored(explained.table), method=EDITS),
        Result("provenance", pd.DataFrame([dict(explained.provenance) | {"tie": explained.tie}])),
    ]


def with_taste(sensitive: pd.DataFrame) -> pd.DataFrame:
    """Flip rates with `taste`, what a model would have to like for these edits to speak against its
    preference; without the bounds 0 and 1 of a single comparison, which say nothing."""
    words = {"more": "if it likes more", "less": "if it likes less"}
    taste = sensitive["liked"].map(words).where(sensitive["attribute"] != PLACEBO, "placebo edits")
    known = sensitive["comparisons"] > 1
    ends = {end: sensitive[end].where(known) for end in ("flip_low", "flip_high")}
    return sensitive.assign(taste=taste.fillna("if it likes better"), **ends)


def estimated(
    label: str,
    value: float,
    n: int,
    of: str,
    low: object = None,
    high: object = None,
    p: object = None,
) -> Estimate:
    """An estimate of numbers as tables have them: what is missing in these is None in it."""
    return Estimate(
        label, float(value), int(n), of, *(None if pd.isna(x) else float(x) for x in (low, high, p))
    )


def slopes_result(
    table: pd.DataFrame, named: Mapping[str, str], *, method: str, plot: Forest | Heatmap
) -> Result:
    """What each model's reward gains with each attribute while the others are held; `plot` is of
    the known slopes."""
    known = table.dropna(subset=["slope"])
    if known.empty:
        why = "Slopes are not known: too few edits for so many attributes, or no detector saw one move."
        return Result("slopes", table, method=method, notes=(why,))
    top = known.loc[known["slope"].abs().idxmax()]
    ends = (top["slope_low"], top["slope_high"], top["slope_q"])
    estimate = estimated("slope, SD per SD", top["slope"], top["n"], "edits", *ends)
    few = "Slopes have no intervals: too few comparisons for so many attributes."
    likes = "more" if top["slope"] > 0 else "less"
    return Result(
        "slopes",
        table,
        headline=f"{named[top['model']]} likes {likes} {top['attribute']}: {_signed(top['slope'])} "
        f"SD of reward per SD, the other "
        "attributes held.",
        plot=replace(plot, data=known),
        method=method,
        weight=weight_of(top["slope"], estimate.p),
        estimate=estimate,
        effect=SLOPE,
        notes=() if estimate.p is not None else (few,),
    )


def _flip_rates(table: pd.DataFrame, explained: Explained, named: str | None) -> Result:
    """How often edits along each attribute flip the preference, in either direction; of the
    attribute that slopes name in the headline, where there is one."""
    own = table[(table["perturber"] == explained.perturber) & ~table["attribute"].isin(CONTROLS)]
    own = own.dropna(subset=["flip_rate"])
    null = table[(table["attribute"] == PLACEBO) & (table["n"] > 0)]
    about = own[own["attribute"] == named] if named in set(own["attribute"]) else own
    top = about.sort_values(["flip_rate", "change"], ascending=[False, True], kind="stable").iloc[0]
    other = own[(own["attribute"] == top["attribute"]) & (own["which_is"] != top["which_is"])]
    headline = f"If it liked {top['liked']} {top['attribute']}, {top['flip_rate']:.0%} of edits flip its preference"
    headline += "".join(f"; if {r.liked}, {r.flip_rate:.0%}" for r in other.itertuples())
    headline += (
        "".join(f"; placebo edits {r.flip_rate:.0%}" for r in null.head(1).itertuples()) + "."
    )
    null_rate = float(null["flip_rate"].iloc[0]) if len(null) else 0.0
    ends = (top["flip_low"], top["flip_high"]) if top["comparisons"] > 1 else (None, None)
    estimate = estimated("flip rate", top["flip_rate"], top["n"], "edits", *ends, top["flip_q"])
    order = (
        own.groupby("attribute")["flip_rate"]
        .max()
        .sort_values(ascending=False, kind="stable")
        .index
    )
    drawn = own.sort_values("attribute", key=order.get_indexer, kind="stable")
    return Result(
        "sensitivity",
        table,
        headline=headline,
        plot=Forest(
            data=with_taste(pd.concat([drawn, null])),
            row="attribute",
            estimate="flip_rate",
            low="flip_low",
            high="flip_high",
            p="flip_q",
            group="taste",
            tabs=(),
            reference=null_rate,
            xlabel="share of edits that flip the preference (line: placebo edits)",
        ),
        method=METHOD,
        weight=weight_of(top["flip_rate"], estimate.p),
        estimate=estimate,
        effect=replace(FLIP_RATE, null=null_rate),
        notes=(*_left_out(explained), *_untested(null, explained)),
        summary=_summary(own, null, explained),
    )


def _untested(null: pd.DataFrame, explained: Explained) -> tuple[str, ...]:
    """Why flip rates have no p, where they have none."""
    if null.empty:
        return ("There are no placebo edits, so nothing is tested.",)
    makers, own = sorted(set(null["perturber"])), explained.perturber
    if null_makers(own) & set(makers):
        return ()
    return (
        f"Placebo edits are by {', '.join(makers)}, of another kind than those of {own}: nothing "
        f"is tested.",
    )


def _left_out(explained: Explained) -> tuple[str, ...]:
    """Which comparisons are not among those explained."""
    counts = {
        f"ties (margin up to {significant(explained.tie)})": len(explained.undecided),
        "longer than the model reads": len(explained.too_long),
        **explained.left_out,
    }
    left_out = ", ".join(f"{n:,} {what}" for what, n in counts.items() if n)
    return (f"Comparisons left out: {left_out}.",) if left_out else ()


def _summary(own: pd.DataFrame, null: pd.DataFrame, explained: Explained) -> dict[str, float]:
    """The numbers by which explanations are listed; unknown ones are left out, as JSON has no
    NaN."""
    placebo = explained.table["edited"].notna() & (explained.table["attribute"] == PLACEBO)
    numbers = {
        "decided": len(explained.decided),
        "undecided": len(explained.undecided),
        "edits": len(explained.edits),
        "placebo_edits": int(placebo.sum()),
        "reward_sd": explained.reward_sd,
        "tie": explained.tie,
    }
    if len(null):
        numbers["placebo_flip_rate"] = float(null["flip_rate"].iloc[0])
    for row in own.itertuples():
        which = row.attribute if row.which_is == "better" else f"{row.attribute}/reversed"
        numbers |= {
            f"flip_rate/{which}": float(row.flip_rate),
            f"change/{which}": float(row.change),
        }
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def _representatives(table: pd.DataFrame, explained: Explained) -> Result:
    """The comparisons whose own ranking of attributes is most like the model's."""
    controls = table["attribute"].isin(CONTROLS)
    ranking = representative(table[~controls], explained.model, perturber=explained.perturber)
    best = ranking.dropna(subset=["tau"])
    if best.empty:
        reasons = "; ".join(dict.fromkeys(reason for reason in ranking["reason"] if reason))
        why = (f"Comparisons are not ranked: {reasons}.",)
        return Result("representatives", ranking, method=METHOD, notes=why)
    top = best.iloc[0]
    return Result(
        "representatives",
        ranking,
        headline=f"The comparison whose ranking of attributes is most like the model's: "
        f"{literal(top['comparison'], limit=40)} "
        f"(τ = {top['tau']:.2f}).",
        method=METHOD,
        weight=weight_of(0.1),
        estimate=estimated("τ", top["tau"], top["attributes"], "attributes"),
    )


def coverage_result(measured: pd.DataFrame, method: str) -> Result:
    """How many comparisons have an explanation, and how far the edits go."""
    own = measured[~measured["placebo"].astype(bool) & measured["value"].notna()]
    drawn = own[own["metric"].isin(["coverage", *DISTANCES, "fluent"]) & (own["side"] == "any")]
    drawn = drawn.assign(
        among=drawn["among"].map(SUBSET_LABELS), who=drawn["model"] + " · " + drawn["perturber"]
    )
    flips = own[
        (own["metric"] == "coverage") & (own["among"] == COUNTERFACTUAL) & (own["side"] == "any")
    ]
    flips = flips[flips["n"] > 0]
    if flips.empty or not (own["metric"].isin(DISTANCES) & (own["n"] > 0)).any():
        return Result(
            "metrics",
            measured,
            method=method,
            notes=("No edit came about, so no comparison was tried.",),
        )
    low, high = flips.loc[flips["value"].idxmin()], flips.loc[flips["value"].idxmax()]
    share = (
        f"{low['value']:.0%}" if len(flips) == 1 else f"{low['value']:.0%} to {high['value']:.0%}"
    )
    ends = (high["low"], high["high"]) if high["comparisons"] > 1 else (None, None)
    coverage = own[own["metric"] == "coverage"] if measured["model"].nunique() == 1 else own.head(0)
    return Result(
        "metrics",
        measured,
        headline=f"{share} of {int(high['comparisons'])} comparisons have at least one edit that "
        f"flips the preference.",
        plot=Forest(
            data=drawn,
            row="who",
            estimate="value",
            group="among",
            panel="metric",
            tabs=(),
            reference=None,
            xlabel="share, or distance",
        ),
        method=method,
        weight=weight_of(0.1),
        estimate=estimated("coverage", high["value"], high["comparisons"], "comparisons", *ends),
        summary={
            f"coverage/{row.among}/{row.side}": float(row.value) for row in coverage.itertuples()
        },
    )


def fluency_results(outcomes: pd.DataFrame, options: Options, *, method: str) -> list[Result]:
    """How fluent the edits along each attribute are, each edit once, whichever models were asked
    about it; none where fluency was not measured."""
    if RATIO not in outcomes or outcomes[RATIO].isna().all():
        return []
    once = outcomes.dropna(subset=[RATIO]).drop_duplicates(KEY[1:])
    table = fluency(once, **options.drawn)
    whole = fluency(once[~once["attribute"].isin(CONTROLS)], by=["perturber"], **options.drawn)
    if whole.empty:
        return [
            Result(
                "fluency", table, method=method, notes=("No edit along an attribute has a ratio.",)
            )
        ]
    low, high = whole.loc[whole["share"].idxmin()], whole.loc[whole["share"].idxmax()]
    rest = (
        ""
        if len(whole) == 1
        else f" by {high['perturber']}, {low['share']:.0%} by {low['perturber']},"
    )
    return [
        Result(
            "fluency",
            table,
            headline=f"{high['share']:.0%} of {int(high['n']):,} edits{rest} are fluent: "
            f"perplexity at most {FLUENT:g} times the "
            f"response's (median {high['median']:.2f} times).",
            plot=Forest(
                row="attribute",
                estimate="median",
                low="median_low",
                high="median_high",
                group="perturber",
                tabs=(),
                reference=1.0,
                xlabel="perplexity of the edited response over that of the response (median)",
            ),
            method=method,
            weight=weight_of(0.1),
            estimate=estimated(
                "fluent edits", high["share"], high["n"], "edits", high["low"], high["high"]
            ),
            summary={f"fluent/{row.perturber}": float(row.share) for row in whole.itertuples()},
        )
    ]


def _compliance(explained: Explained, options: Options) -> Result:
    """Whether the edits did what was asked."""
    table = compliance(explained.table, confidence=options.confidence)
    own = explained.table[~explained.table["attribute"].isin(CONTROLS)]
    whole = compliance(own, by=[], confidence=options.confidence).iloc[0]
    if not whole["n"]:
        return Result("compliance", table, method=EDITS, notes=("No edit was judged.",))
    return Result(
        "compliance",
        table,
        headline=f"{whole['share']:.0%} of {int(whole['n']):,} edits moved what the judge measures "
        f"the asked way; "
        "by detectors this is a smoke test.",
        plot=Forest(
            data=table.dropna(subset=["share"]),
            row="attribute",
            estimate="share",
            group="side",
            tabs=(),
            reference=None,
            xlabel="share of edits that moved their attribute the asked way",
        ),
        method=EDITS,
        weight=weight_of(0.1),
        estimate=estimated(
            "share of edits", whole["share"], whole["n"], "edits", whole["low"], whole["high"]
        ),
    )


def _off_target(explained: Explained, options: Options) -> Result:
    """What else the edits changed."""
    table = off_target(explained.table, confidence=options.confidence)
    others = table[~table["on_target"].astype(bool) & ~table["asked"].isin(CONTROLS)].dropna(
        subset=["mean"]
    )
    if others.empty:
        return Result("off_target", table, method=EDITS)
    top = others.loc[others["mean"].abs().idxmax()]
    return Result(
        "off_target",
        table,
        headline=f"Off target, edits that raise {top['asked']} move {top['detector']} most: "
        f"{_signed(top['mean'])} SD.",
        plot=Heatmap(
            row="asked",
            column="detector",
            value="mean",
            diverging=True,
            tabs=(),
            label="change of the detector (SD), asked for more of the row",
        ),
        method=EDITS,
        weight=weight_of(0.1),
        estimate=estimated("change, SD", top["mean"], top["n"], "edits", top["low"], top["high"]),
    )


def _smallest_and_largest(explained: Explained) -> list[Result]:
    """The least of each flip that still flips, and the most of each response that can be changed
    without one."""
    results = []
    for name, found, of, headline in (
        (
            "smallest_flips",
            explained.smallest,
            "flips",
            "A flip needs {after:g} changed tokens (median of {n:,}), of the {before:g} that edits "
            "made.",
        ),
        (
            "largest_holds",
            explained.largest,
            "responses",
            "A response takes {after:g} changed tokens (median of {n:,}) without a flip; single "
            "edits change {before:g}.",
        ),
    ):
        if found is None or found.empty:
            continue
        n, before, after = (
            len(found),
            found["tokens_before"].median(),
            float(found["tokens"].median()),
        )
        tried = "In {:,} of {:,} flips every choice of the edit's changes was tried."
        results.append(
            Result(
                name,
                as_stored(found),
                headline=headline.format(n=n, before=before, after=after),
                method=EDITS,
                weight=weight_of(0.1),
                estimate=Estimate("changed tokens", after, n, of),
                notes=(tried.format(found["exact"].sum(), n),) if "exact" in found else (),
            )
        )
    return results


def pair_results(explained: Explained) -> list[Result]:
    """One preference in words and tables: why this response, in this model. Nothing here has an
    interval: one comparison is no sample."""
    [key] = explained.decided
    own, margin = explained.edits, float(explained.table["margin"].iloc[0])
    rewards = explained.rewards[key]
    preferred = ("chosen", "rejected")[int(rewards[1] > rewards[0])]
    tastes = [liked(*row) for row in zip(own["attribute"], own["side"], own["amount"], strict=True)]
    moved = (
        own.assign(liked=tastes, flips=own["outcome"] == COUNTERFACTUAL)
        .groupby(["attribute", "liked"], sort=False)
        .agg(
            edits=("change", "size"),
            flips=("flips", "sum"),
            change=("change", "mean"),
            lowest=("new_margin", "min"),
        )
        .reset_index()
        .sort_values("change", kind="stable", ignore_index=True)
    )
    top = moved.iloc[0]
    flips = int(moved["flips"].sum())
    count = f"{flips or 'none'} of {len(own)} edits flip it"
    why = f"{OTHER[top['liked']]} {top['attribute']} would cost it most ({_signed(top['change'])} an edit)"
    return [
        Result(
            PAIR,
            moved,
            headline=f"{explained.model} prefers the {preferred} response by "
            f"{significant(margin)}: {why}; {count}.",
            method=METHOD,
            weight=2.0,
            estimate=Estimate("margin", margin, len(own), "edits"),
            notes=(
                f"Rewards: chosen {significant(rewards[0])}, rejected {significant(rewards[1])}.",
            ),
            summary={
                "margin": margin,
                "reward/chosen": rewards[0],
                "reward/rejected": rewards[1],
                "flips": flips,
            },
        ),
        *_smallest_and_largest(explained),
        Result("outcomes", as_stored(explained.table), method=EDITS),
        Result("provenance", pd.DataFrame([dict(explained.provenance) | {"tie": explained.tie}])),
    ]


def smallest_edits(explained: Explained, *, n: int = SMALLEST) -> pd.DataFrame:
    """The smallest different edits that flip a preference, as rows of outcomes, the fewest changed
    tokens first; where none flips, those that come nearest."""
    found = explained.smallest
    if found is None or found.empty:
        edits = explained.edits.drop_duplicates(["response", "edited"])
        return edits.sort_values("new_margin", kind="stable").head(n)
    rows = (
        found.sort_values(["tokens", "new_margin"], kind="stable")
        .drop_duplicates(["response", "smallest"])
        .head(n)
    )
    change = rows["new_margin"] - rows["margin"]
    rewards = [
        explained.rewards[key][r]
        for key, r in zip(rows["comparison"], rows["response"], strict=True)
    ]
    return rows.assign(
        edited=rows["smallest"],
        status="changed",
        note=[f"smallest of the edits: {t} token{'s' * (t != 1)}" for t in rows["tokens"]],
        reward=rewards,
        change_in_sd=change / explained.reward_sd,
        outcome=COUNTERFACTUAL,
    )


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def as_stored(table: pd.DataFrame) -> pd.DataFrame:
    """Texts as parquet can hold them; `complied` as a column that knows missing values."""
    table = table.copy()
    for column in table:
        if table[column].dtype == object and column != "complied":
            table[column] = [
                storable(value) if isinstance(value, str) else value for value in table[column]
            ]
    if "complied" in table:
        table["complied"] = table["complied"].astype("boolean")
    return table


def overview(results: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One row an attribute, the strongest slope first: slope, slope_low, slope_high, slope_q, more
    and less (flip rates of edits that speak against liking more or less of it), n; the placebo
    last."""
    rates, fitted = results["sensitivity"], results["slopes"]
    placebo = rates["attribute"] == PLACEBO
    rows = fitted.set_index("attribute")[["slope", "slope_low", "slope_high", "slope_q"]]
    for taste in ("more", "less"):
        own = rates[~placebo & (rates["liked"] == taste)].set_index("attribute")["flip_rate"]
        rows = rows.join(own.rename(taste), how="outer")
    rows = rows.join(rates[~placebo].groupby("attribute")["n"].sum())
    rows = rows.sort_values(
        "slope", key=lambda values: -values.abs(), kind="stable", na_position="last"
    )
    null = rates[placebo & (rates["n"] > 0)].set_index("attribute")
    whole = pd.concat([rows, null[["n"]].assign(more=null["flip_rate"])])
    return whole.rename_axis("attribute").reset_index()
