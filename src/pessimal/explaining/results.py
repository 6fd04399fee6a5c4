"""What the explanations of one model report: which attributes move its preferences, how well that
is known, and examples.

Knows what `explain` found. Does not know models, perturbers or registries.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from pessimal.explaining.analyses.agreement import representative
from pessimal.explaining.analyses.flips import (
    attribute_flip_rates,
    compliance,
    flip_rates,
    liked,
    null_makers,
    off_target,
)
from pessimal.explaining.analyses.fluency import FLUENT, RATIO, fluency
from pessimal.explaining.analyses.single import n_words, single_slopes
from pessimal.explaining.analyses.slopes import (
    LEAST,
    LENGTH,
    OTHERS,
    flips_beyond_words,
    slopes,
)
from pessimal.explaining.attribute import PLACEBO
from pessimal.explaining.edits.differences import described
from pessimal.explaining.explain import CONTROLS, Explained
from pessimal.explaining.outcomes import COUNTERFACTUAL, KEY, SEMIFACTUAL, against_polarity
from pessimal.plots import Forest, Heatmap
from pessimal.statistics import LEVEL
from pessimal.tables.result import Effect, Estimate, Result, weight_of
from pessimal.tables.score_table import storable
from pessimal.texts import literal, signed, significant

METHOD, EDITS, PAIR = "explain", "edits", "pair"
_OF_EDITS: dict[str, Any] = {"null": 0.0, "of": "edits"}
SLOPE = Effect(
    "slope",
    "slope, SD per SD",
    "slope_q_low",
    "slope_q_high",
    "beyond_q",
    symbol="slope",
    **_OF_EDITS,
)
FLIP_RATE = Effect(
    "flip_rate", "flip rate", "flip_low", "flip_high", "beyond_q", symbol="flip rate", **_OF_EDITS
)
"""Beside the rate of placebo edits, where there are any."""
DISTANCES = ("syntactic", "semantic")
ENDS = ["low", "high"]
SUBSET_LABELS = {COUNTERFACTUAL: "flips", SEMIFACTUAL: "holds", "all": "all edits"}
"""Outcomes, as figures name them."""
GIVEN = ("chosen", "rejected")
"""What the two responses of a pair are called by whoever gives them."""
SMALLEST = 5
"""Edits of a pair that are shown word by word."""
MINOR = weight_of(0.1)
"""Weight of what describes the edits and not the model."""


@dataclass(frozen=True)
class Resampling:
    """How intervals and tests are drawn."""

    replicates: int = 2000
    permutations: int = 10_000
    confidence: float = 0.95
    seed: int = 0

    @property
    def bootstrap(self) -> dict[str, Any]:
        """What a bootstrap needs."""
        return {"replicates": self.replicates, "confidence": self.confidence, "seed": self.seed}


def explained_results(explained: Explained, options: Resampling) -> list[Result]:
    """The Results of one model's explanations: slopes, which separate the attributes, before flip
    rates, which do not.

    Metrics, representative comparisons and flip rates by judgement are of edits against polarity,
    as published.
    """
    from pessimal.explaining.analyses.metrics import metrics  # an encoder comes with it

    table, confidence = explained.table, options.confidence
    published = table[against_polarity(table)]
    rates = attribute_flip_rates(table, permutations=options.permutations, **options.bootstrap)
    rates = flips_beyond_words(rates, table)
    fitted = slopes(table, confidence=confidence)
    forest = Forest.of(
        SLOPE,
        row="attribute",
        sort=True,
        tabs=(),
        xlabel="reward gained per SD of the attribute, others held (SD of reward)",
    )
    first = slopes_result(fitted, {explained.model: explained.model}, method=METHOD, plot=forest)
    top = _strongest(fitted)["attribute"] if (fitted["beyond_q"] <= LEVEL).any() else None
    second = _flip_rates(rates, explained, top)
    if first.headline:
        gains = fitted.dropna(subset=["slope"]).itertuples()
        first = replace(first, summary={f"slope/{r.attribute}": float(r.slope) for r in gains})
        second = replace(second, weight=min(second.weight, first.weight))
    return [
        first,
        second,
        _representatives(published, explained),
        coverage_result(metrics(published, diversity=True, **options.bootstrap), EDITS),
        _compliance(table, confidence),
        *fluency_results(table, options, method=EDITS),
        Result("flip_rates", flip_rates(published, confidence=confidence), method=EDITS),
        _off_target(table, confidence),
        *_smallest_and_largest(explained),
        *_stored(explained),
    ]


def with_taste(rates: pd.DataFrame) -> pd.DataFrame:
    """Flip rates with `taste`, what a model would have to like for these edits to speak against its
    preference; without the bounds 0 and 1 of a single comparison, which say nothing."""
    words = {"more": "edits against liking more", "less": "edits against liking less"}
    taste = rates["liked"].map(words).where(rates["attribute"] != PLACEBO, "placebo edits")
    several = rates["comparisons"] > 1
    ends = {end: rates[end].where(several) for end in ("flip_low", "flip_high")}
    return rates.assign(taste=taste.fillna("edits against liking better"), **ends)


def estimated(
    label: str, value: float, n: int, of: str, ends: Iterable[float | None] = ()
) -> Estimate:
    """An estimate of numbers as tables have them; `ends`: low, high and p, where what is missing is
    None in the estimate."""
    given = [None if x is None or pd.isna(x) else float(x) for x in ends]
    return Estimate(label, float(value), int(n), of, *given)


def slopes_result(
    table: pd.DataFrame, labels: Mapping[str, str], *, method: str, plot: Forest | Heatmap
) -> Result:
    """What each model's reward gains with each attribute while the others are held; `plot` is of
    the slopes that could be fitted."""
    fitted = table.dropna(subset=["slope"])
    if fitted.empty:
        why = (
            f"Slopes are not known: no detector saw an edit move, or {len(table)} attributes need "
            f"more than {len(table) + 1} edits."
        )
        return Result("slopes", table, method=method, notes=(why,))
    top = _strongest(fitted)
    estimate = SLOPE.at(top)
    interval = _interval(top["slope_q_low"], top["slope_q_high"])
    few = f"Slopes have no intervals: {int(top['comparisons'])} of the {LEAST} comparisons needed."
    likes = "more" if top["slope"] > 0 else "less"
    number = f"{signed(top['slope'], '+.2f')} SD of reward per SD"
    if estimate.p is None:
        headline = (
            f"What moves {labels[top['model']]}'s reward was not tested: that needs {LEAST} "
            f"comparisons, and are {int(top['comparisons'])}."
        )
    elif estimate.p > LEVEL:
        headline = (
            f"No attribute found that moves {labels[top['model']]}'s reward beyond prices of "
            f"words; strongest, {top['attribute']}: {number} {interval}."
        )
    else:
        headline = (
            f"{labels[top['model']]} likes {likes} {top['attribute']}: {number} "
            f"{interval}, {top['held']} held."
        )
    return Result.of_row(
        top,
        "slopes",
        table,
        SLOPE,
        headline,
        plot=replace(plot, data=fitted),
        method=method,
        notes=() if pd.notna(top["beyond_q"]) else (few,),
    )


def _strongest(fitted: pd.DataFrame) -> pd.Series:
    """The slope to speak of: of those that hold, or of all where none does, the one that explains
    most, and of lines with all attributes the steepest."""
    holds = fitted[fitted["beyond_q"] <= LEVEL]
    rows = (holds if len(holds) else fitted).assign(size=lambda each: each["slope"].abs())
    alone = rows["explained"].where(rows["held"] != OTHERS, 0.0)
    return rows.assign(alone=alone).sort_values(["alone", "size"], kind="stable").iloc[-1]


def _flip_rates(table: pd.DataFrame, explained: Explained, named: str | None) -> Result:
    """How often edits along each attribute flip the preference, in either direction; of the
    attribute that slopes name in the headline, where there is one."""
    rates = table[(table["perturber"] == explained.perturber) & ~table["attribute"].isin(CONTROLS)]
    rates = rates.dropna(subset=["flip_rate"])
    null = table[(table["attribute"] == PLACEBO) & (table["n"] > 0)]
    holds, tested = rates[rates["beyond_q"] <= LEVEL], rates["beyond_q"].notna().any()
    among = holds if len(holds) else rates
    about = among[among["attribute"] == named] if named in set(among["attribute"]) else among
    top = about.sort_values(["flip_rate", "change"], ascending=[False, True], kind="stable").iloc[0]
    same = rates["attribute"] == top["attribute"]
    liking = f"liking {top['liked'] or 'better'} {top['attribute']}"
    clauses = [
        f"Edits against {liking} flip {top['flip_rate']:.0%} of preferences",
        *(
            f"against liking {other.liked}, {other.flip_rate:.0%}"
            for other in rates[same & (rates["which_is"] != top["which_is"])].itertuples()
        ),
        *(f"placebo edits {placebo:.0%}" for placebo in null["flip_rate"].head(1)),
    ]
    null_rate = float(null["flip_rate"].iloc[0]) if len(null) else 0.0
    ends = (top["flip_low"], top["flip_high"]) if top["comparisons"] > 1 else (None, None)
    estimate = estimated("flip rate", top["flip_rate"], top["n"], "edits", [*ends, top["beyond_q"]])
    if not tested:
        clauses[0] = f"Seen, not tested: e{clauses[0][1:]}"
    elif holds.empty:
        clauses = [
            f"No attribute found whose edits flip more than placebo edits ({null_rate:.0%}) and "
            f"prices of words (up to {top['words_within']:.0%})",
            f"most, against {liking}: {top['flip_rate']:.0%}",
        ]
    largest = rates.groupby("attribute")["flip_rate"].max()
    order = largest.sort_values(ascending=False, kind="stable").index
    drawn = rates.sort_values("attribute", key=order.get_indexer, kind="stable")
    effect = replace(FLIP_RATE, null=null_rate)
    return Result(
        "sensitivity",
        table,
        headline="; ".join(clauses) + ".",
        plot=Forest.of(
            effect,
            data=with_taste(pd.concat([drawn, null])),
            row="attribute",
            group="taste",
            tabs=(),
            xlabel="share of edits that flip the preference (line: placebo edits)",
        ),
        method=METHOD,
        weight=weight_of(top["flip_rate"], estimate.p),
        estimate=estimate,
        effect=effect,
        notes=(*_left_out(explained), *_untested(null, explained.perturber)),
        summary=_summary(rates, null, explained),
    )


def _untested(null: pd.DataFrame, perturber: str) -> tuple[str, ...]:
    """Why flip rates have no p, where they have none."""
    if null.empty:
        return ("There are no placebo edits, so nothing is tested.",)
    makers = sorted(set(null["perturber"]))
    if null_makers(perturber) & set(makers):
        return ()
    return (
        f"Placebo edits are by {', '.join(makers)}, of another kind than those of {perturber}: "
        "nothing is tested.",
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


def _summary(rates: pd.DataFrame, null: pd.DataFrame, explained: Explained) -> dict[str, float]:
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
    for row in rates.itertuples():
        which = row.attribute if row.which_is == "better" else f"{row.attribute}/reversed"
        numbers[f"flip_rate/{which}"] = float(row.flip_rate)
        numbers[f"change/{which}"] = float(row.change)
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def _representatives(table: pd.DataFrame, explained: Explained) -> Result:
    """The comparisons whose own ranking of attributes is most like the model's."""
    of_attributes = table[~table["attribute"].isin(CONTROLS)]
    ranking = representative(of_attributes, explained.model, perturber=explained.perturber)
    best = ranking.dropna(subset=["tau"])
    if best.empty:
        reasons = "; ".join(dict.fromkeys(reason for reason in ranking["reason"] if reason))
        why = (f"Comparisons are not ranked: {reasons}.",)
        return Result("representatives", ranking, method=METHOD, notes=why)
    top = best.iloc[0]
    return Result(
        "representatives",
        ranking,
        headline="The comparison whose ranking of attributes is most like the model's: "
        f"{literal(top['comparison'], limit=40)} (τ = {signed(top['tau'])}).",
        method=METHOD,
        weight=MINOR,
        estimate=estimated("τ", top["tau"], top["attributes"], "attributes"),
    )


def coverage_result(metrics: pd.DataFrame, method: str) -> Result:
    """How many comparisons have an explanation, and how far the edits go."""
    rows = metrics[~metrics["placebo"].astype(bool) & metrics["value"].notna()]
    any_side, coverage = rows["side"] == "any", rows["metric"] == "coverage"
    drawn = rows[rows["metric"].isin(["coverage", *DISTANCES, "fluent"]) & any_side]
    drawn = drawn.assign(
        among=drawn["among"].map(SUBSET_LABELS), who=drawn["model"] + " · " + drawn["perturber"]
    )
    flips = rows[coverage & (rows["among"] == COUNTERFACTUAL) & any_side & (rows["n"] > 0)]
    if flips.empty or not (rows["metric"].isin(DISTANCES) & (rows["n"] > 0)).any():
        why = ("No edit came about, so no comparison was tried.",)
        return Result("metrics", metrics, method=method, notes=why)
    low, high = flips.loc[flips["value"].idxmin()], flips.loc[flips["value"].idxmax()]
    share = f"{high['value']:.0%}"
    share = share if len(flips) == 1 else f"{low['value']:.0%} to {share}"
    ends = (high["low"], high["high"]) if high["comparisons"] > 1 else ()
    listed = rows[coverage] if metrics["model"].nunique() == 1 else rows.head(0)
    return Result(
        "metrics",
        metrics,
        headline=f"{share} of {int(high['comparisons'])} comparisons have at least one edit that "
        "flips the preference.",
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
        weight=MINOR,
        estimate=estimated("coverage", high["value"], high["comparisons"], "comparisons", ends),
        summary={f"coverage/{r.among}/{r.side}": float(r.value) for r in listed.itertuples()},
    )


def fluency_results(outcomes: pd.DataFrame, options: Resampling, *, method: str) -> list[Result]:
    """How fluent the edits along each attribute are, each edit once, whichever models were asked
    about it; none where fluency was not measured."""
    if RATIO not in outcomes or outcomes[RATIO].isna().all():
        return []
    once = outcomes.dropna(subset=[RATIO]).drop_duplicates(KEY[1:])
    table = fluency(once, **options.bootstrap)
    of_attributes = once[~once["attribute"].isin(CONTROLS)]
    by_perturber = fluency(of_attributes, by=["perturber"], **options.bootstrap)
    if by_perturber.empty:
        why = ("No edit along an attribute has a ratio.",)
        return [Result("fluency", table, method=method, notes=why)]
    shares = by_perturber["share"]
    low, high = by_perturber.loc[shares.idxmin()], by_perturber.loc[shares.idxmax()]
    span = f" by {high['perturber']}, {low['share']:.0%} by {low['perturber']},"
    return [
        Result(
            "fluency",
            table,
            headline=f"{high['share']:.0%} of {int(high['n']):,} edits"
            f"{span if len(by_perturber) > 1 else ''} are fluent: perplexity at most {FLUENT:g} "
            f"times the response's (median {high['median']:.2f} times).",
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
            weight=MINOR,
            estimate=estimated("fluent edits", high["share"], high["n"], "edits", high[ENDS]),
            summary={f"fluent/{r.perturber}": float(r.share) for r in by_perturber.itertuples()},
        )
    ]


def _compliance(outcomes: pd.DataFrame, confidence: float) -> Result:
    """Whether the edits did what was asked."""
    table = compliance(outcomes, confidence=confidence)
    of_attributes = outcomes[~outcomes["attribute"].isin(CONTROLS)]
    whole = compliance(of_attributes, by=[], confidence=confidence).iloc[0]
    if not whole["n"]:
        return Result("compliance", table, method=EDITS, notes=("No edit was judged.",))
    return Result(
        "compliance",
        table,
        headline=f"{whole['share']:.0%} of {int(whole['n']):,} edits moved what the judge measures "
        "the asked way; by detectors this is a smoke test.",
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
        weight=MINOR,
        estimate=estimated("share of edits", whole["share"], whole["n"], "edits", whole[ENDS]),
    )


def _off_target(outcomes: pd.DataFrame, confidence: float) -> Result:
    """What else the edits changed."""
    table = off_target(outcomes, confidence=confidence)
    others = table[~table["on_target"].astype(bool) & ~table["asked"].isin(CONTROLS)]
    others = others.dropna(subset=["mean"])
    if others.empty:
        return Result("off_target", table, method=EDITS)
    top = others.loc[others["mean"].abs().idxmax()]
    return Result(
        "off_target",
        table,
        headline=f"Off target, edits that raise {top['asked']} move {top['detector']} most: "
        f"{signed(top['mean'], '+.2f')} SD.",
        plot=Heatmap(
            row="asked",
            column="detector",
            value="mean",
            diverging=True,
            tabs=(),
            label="change of the detector (SD), asked for more of the row",
        ),
        method=EDITS,
        weight=MINOR,
        estimate=estimated("change, SD", top["mean"], top["n"], "edits", top[ENDS]),
    )


def _smallest_and_largest(explained: Explained) -> list[Result]:
    """The least of each flip that still flips, and the most of each response that can be changed
    without one."""
    flip = (
        "A flip needs {after:g} changed tokens (median of {n:,}), of the {before:g} that edits "
        "made."
    )
    hold = (
        "A response takes {after:g} changed tokens (median of {n:,}) without a flip; single edits "
        "change {before:g}."
    )
    results = []
    for name, table, of, headline in (
        ("smallest_flips", explained.smallest, "flips", flip),
        ("largest_holds", explained.largest, "responses", hold),
    ):
        if table is None or table.empty:
            continue
        n, after = len(table), float(table["tokens"].median())
        exact = "In {:,} of {:,} flips every choice of the edit's changes was tried."
        result = Result(
            name,
            as_stored(table),
            headline=headline.format(n=n, before=table["tokens_before"].median(), after=after),
            method=EDITS,
            weight=MINOR,
            estimate=Estimate("changed tokens", after, n, of),
            notes=(exact.format(table["exact"].sum(), n),) if "exact" in table else (),
        )
        results.append(result)
    return results


def _stored(explained: Explained) -> list[Result]:
    """The tables behind the others."""
    provenance = pd.DataFrame([dict(explained.provenance) | {"tie": explained.tie}])
    outcomes = Result("outcomes", as_stored(explained.table), method=EDITS)
    return [outcomes, Result("provenance", provenance)]


def pair_results(explained: Explained) -> list[Result]:
    """One preference in words and tables: why this response, in this model. Intervals are over the
    edits of this comparison, and say nothing of others."""
    [key] = explained.decided
    edits, margin = explained.edits, float(explained.table["margin"].iloc[0])
    rewards = explained.rewards[key]
    preferred = GIVEN[int(rewards[1] > rewards[0])]
    columns = (edits[name] for name in ("attribute", "side", "amount"))
    edits = edits.assign(
        liked=[liked(*row) for row in zip(*columns, strict=True)],
        flips=edits["outcome"] == COUNTERFACTUAL,
        words=[n_words(b) - n_words(a) for a, b in edits[["original", "edited"]].to_numpy()],
    )
    by_attribute = single_slopes(edits).drop(columns="n")
    table = (
        edits.groupby(["attribute", "liked"], sort=False)
        .agg(
            edits=("change", "size"),
            flips=("flips", "sum"),
            change=("change", "mean"),
            lowest=("new_margin", "min"),
            words=("words", "mean"),
        )
        .reset_index()
        .merge(by_attribute, on="attribute", how="outer")
        .fillna({"liked": "", "edits": 0, "flips": 0})
        .astype({"edits": int, "flips": int})
        .sort_values(["slope_p", "change"], kind="stable", ignore_index=True)
    )
    top, flips = table.iloc[0], int(table["flips"].sum())
    length = by_attribute.iloc[0]
    ends = ["slope_low", "slope_high"]
    if top["slope_p"] <= LEVEL:
        unit = "for twice the words" if top["attribute"] == LENGTH else "an edit, length held"
        why = (
            f"it likes {'more' if top['slope'] > 0 else 'less'} {top['attribute']}: "
            f"{signed(top['slope'], '+.2f')} {_interval(*top[ends])} {unit}"
        )
    elif math.isfinite(length["slope_p"]):
        number = f"{signed(length['slope'], '+.2f')} {_interval(*length[ends])}"
        why = f"no attribute found that moves it; twice the words: {number}"
    else:
        why = "what moves it was not tested: that needs four edits that change its length"
    worst = edits.loc[edits["change"].idxmin()]
    costliest = (
        f"The costliest edit, {worst['amount']} {worst['attribute']} in "
        f"{GIVEN[worst['response']]}=, {described(worst['original'], worst['edited'])}: margin "
        f"{significant(margin)} → {significant(worst['new_margin'])}."
    )
    both = {"reward/chosen": rewards[0], "reward/rejected": rewards[1]}
    return [
        Result(
            PAIR,
            table,
            headline=f"{explained.model} prefers the response given as {preferred}, by "
            f"{significant(margin)}; {why}.",
            method=METHOD,
            weight=2.0,
            estimate=Estimate("margin", margin, len(edits), "edits"),
            notes=(
                f"Rewards: {significant(rewards[0])} of chosen, {significant(rewards[1])} of "
                "rejected. "
                f"{flips or 'None'} of {len(edits)} edits flip{'s' * (flips == 1)} the preference.",
                *([costliest] if worst["change"] < 0 else []),
            ),
            summary={"margin": margin, **both, "flips": flips},
        ),
        *_smallest_and_largest(explained),
        *_stored(explained),
    ]


def smallest_edits(explained: Explained, *, n: int = SMALLEST) -> pd.DataFrame:
    """The smallest different edits that flip a preference, as rows of outcomes, the fewest changed
    tokens first; where none flips, those that come nearest."""
    flips = explained.smallest
    if flips is None or flips.empty:
        edits = explained.edits.drop_duplicates(["response", "edited"])
        return edits.sort_values("new_margin", kind="stable").head(n)
    rows = flips.sort_values(["tokens", "new_margin"], kind="stable")
    rows = rows.drop_duplicates(["response", "smallest"]).head(n)
    keys = zip(rows["comparison"], rows["response"], strict=True)
    return rows.assign(
        edited=rows["smallest"],
        status="changed",
        note=[f"smallest of the edits: {t} token{'s' * (t != 1)}" for t in rows["tokens"]],
        reward=[explained.rewards[key][response] for key, response in keys],
        change_in_sd=(rows["new_margin"] - rows["margin"]) / explained.reward_sd,
        outcome=COUNTERFACTUAL,
    )


def _interval(low: float, high: float) -> str:
    return f"[{signed(low)}, {signed(high)}]"


def as_stored(table: pd.DataFrame) -> pd.DataFrame:
    """Texts as parquet can hold them; `complied` as a column that knows missing values."""
    texts = [name for name in table if table[name].dtype == object and name != "complied"]
    table = table.assign(
        **{
            name: [storable(each) if isinstance(each, str) else each for each in table[name]]
            for name in texts
        }
    )
    if "complied" in table:
        table["complied"] = table["complied"].astype("boolean")
    return table


def overview(results: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One row an attribute, the strongest slope first: slope, slope_q_low, slope_q_high, beyond_q,
    more and less (flip rates of edits that speak against liking more or less of it), n; the placebo
    last."""
    rates, fitted = results["sensitivity"], results["slopes"]
    placebo = rates["attribute"] == PLACEBO
    numbers = ["slope", "slope_q_low", "slope_q_high", "beyond_q"]
    rows = fitted.set_index("attribute")[numbers]
    for taste in ("more", "less"):
        of_taste = rates[~placebo & (rates["liked"] == taste)].set_index("attribute")
        rows = rows.join(of_taste["flip_rate"].rename(taste), how="outer")
    rows = rows.join(rates[~placebo].groupby("attribute")["n"].sum())
    strongest = {"key": lambda values: -values.abs(), "kind": "stable", "na_position": "last"}
    rows = rows.sort_values("slope", **strongest)
    null = rates[placebo & (rates["n"] > 0)].set_index("attribute")
    whole = pd.concat([rows, null[["n"]].assign(more=null["flip_rate"])])
    return whole.rename_axis("attribute").reset_index()
