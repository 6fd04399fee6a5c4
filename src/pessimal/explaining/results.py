"""Results of explanations, of one model and of several side by side: how often edits along each
attribute flip a preference, how well that is known, how alike models are in it, and examples.

Knows what `explain` gives, and tables of outcomes. Does not know models, perturbers or registries.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from pessimal.explaining.agreement import contested, model_agreement, representative
from pessimal.explaining.attribute import PLACEBO
from pessimal.explaining.distances import tokens
from pessimal.explaining.explain import CONTROLS, Explained
from pessimal.explaining.flips import (
    attribute_flip_rates,
    flips_beyond_words,
    liked,
    null_makers,
    slopes,
)
from pessimal.explaining.metrics import ALL, ANY, DISTANCES, metrics
from pessimal.explaining.outcomes import COUNTERFACTUAL, KEY, SEMIFACTUAL, against_polarity
from pessimal.plots import Forest, Heatmap
from pessimal.statistics import LEVEL
from pessimal.tables.result import Effect, Estimate, Result, weight_of
from pessimal.texts import literal, signed, significant, storable

METHOD, REASONS, EDITS, PAIR = "explain", "reasons", "edits", "pair"
FLIP_RATE = Effect(
    "flip_rate",
    "flip rate",
    "flip_low",
    "flip_high",
    "p_corrected",
    null=0.0,
    of="edits",
    symbol="flip rate",
)
"""Beside the rate of placebo edits, where there are any."""
COVERAGE = Effect("value", "coverage", "low", "high", n="comparisons", of="comparisons")
TAU = Effect("tau", "τ", n="attributes", of="attributes")
SUBSET_LABELS = {COUNTERFACTUAL: "flips", SEMIFACTUAL: "holds", "all": "all edits"}
"""Outcomes, as figures name them."""
GIVEN = ("chosen", "rejected")
"""Names of the two responses of a pair, as whoever gives them calls them."""
MAX_SMALLEST = 5
"""Edits of a pair that are shown word by word."""
MINOR = weight_of(0.1)
"""Weight of what describes the edits and not the model."""
CHANGE = "change"
"""The measure of agreement that is spoken of: mean changes of the margin, since flips tie
massively."""


@dataclass(frozen=True)
class Resampling:
    """Options of intervals and tests."""

    replicates: int = 2000
    permutations: int = 10_000
    confidence: float = 0.95
    seed: int = 0

    @property
    def bootstrap(self) -> dict[str, Any]:
        """Options of a bootstrap."""
        return {"replicates": self.replicates, "confidence": self.confidence, "seed": self.seed}


def explained_results(explained: Explained, options: Resampling) -> list[Result]:
    """The Results of one model's explanations.

    Metrics and representative comparisons are of edits against polarity, as published.
    """
    table = explained.table
    published = table[against_polarity(table)]
    rates = _rates(table, options)
    along = rates[(rates["perturber"] == explained.perturber) & (rates["n"] > 0)]
    along = along[~along["attribute"].isin(CONTROLS)]
    null = rates[(rates["attribute"] == PLACEBO) & (rates["n"] > 0)]
    null_rate = float(null["flip_rate"].iloc[0]) if len(null) else 0.0
    effect = replace(FLIP_RATE, null=null_rate)
    data = _add_taste(pd.concat([_order_by_rate(along, "attribute", "max"), null]))
    xlabel = "share of edits that flip the preference (line: placebo edits)"
    names = {explained.model: explained.model}
    return [
        _flip_rate_result(
            rates,
            along,
            names,
            effect,
            plot=Forest.of(
                effect, data=data, row="attribute", group="taste", tabs=(), xlabel=xlabel
            ),
            method=METHOD,
            summary=_summary(along, null, explained),
            notes=_left_out(explained),
        ),
        _slopes_result(table, METHOD),
        _representatives(published, explained),
        _coverage_result(published, options, EDITS, diversity=True),
        *_smallest_and_largest(explained),
        *_stored(explained),
    ]


def compared_results(
    outcomes: pd.DataFrame,
    provenance: pd.DataFrame,
    options: Resampling,
    *,
    labels: Mapping[str, str],
) -> list[Result]:
    """The Results over the outcomes of one or several models on one set of comparisons; `labels`:
    their names for people."""
    names = {model: labels.get(model, model) for model in dict.fromkeys(outcomes["model"])}
    published = outcomes[against_polarity(outcomes)]
    rates = _rates(outcomes, options)
    along = rates[~rates["attribute"].isin(CONTROLS)].dropna(subset=["flip_rate"])
    tastes = zip(along["liked"], along["attribute"], strict=True)
    along = along.assign(row=[f"{liking} {name}".strip() for liking, name in tastes])
    heatmap = Heatmap(
        data=_order_by_rate(along, "row", "mean"),
        row="row",
        column="model",
        value="flip_rate",
        tabs=("perturber",),
        label="flip rate",
    )
    once = outcomes[outcomes["edited"].notna()].drop_duplicates(KEY[1:])
    placebo = int((once["attribute"] == PLACEBO).sum())
    counts = {"models": len(names), "edits": len(once) - placebo, "placebo_edits": placebo}
    arms = published[(published["attribute"] == PLACEBO) | ~published["attribute"].isin(CONTROLS)]
    return [
        _flip_rate_result(
            rates, along, names, FLIP_RATE, plot=heatmap, method=REASONS, summary=counts
        ),
        _slopes_result(outcomes, REASONS),
        *(_agreement(arms, options, names) if len(names) > 1 else []),
        _coverage_result(published, options, REASONS),
        Result("provenance", provenance),
    ]


def _rates(table: pd.DataFrame, options: Resampling) -> pd.DataFrame:
    rates = attribute_flip_rates(table, permutations=options.permutations, **options.bootstrap)
    return flips_beyond_words(rates, table)


def _order_by_rate(rates: pd.DataFrame, column: str, by: str) -> pd.DataFrame:
    """Rows with the largest (or mean) flip rate of their column's value first."""
    order = rates.groupby(column)["flip_rate"].transform(by)
    return rates.iloc[(-order).argsort(kind="stable")]


def _liking(row: pd.Series) -> str:
    return f"{row['liked'] or 'better'} {row['attribute']}"


def _flip_rate_result(
    table: pd.DataFrame,
    along: pd.DataFrame,
    names: Mapping[str, str],
    effect: Effect,
    notes: tuple[str, ...] = (),
    **rest: Any,
) -> Result:
    """The rate at which edits along each attribute (`along`, rows of the table) flip each model's
    preference; the headline names one whose flips hold, if there is one."""
    if along.empty:
        return Result("sensitivity", table, **rest | {"plot": None}, notes=("No edit came about.",))
    holds, tested = along[along["p_corrected"] <= LEVEL], along["p_corrected"].notna().any()
    rows = (holds if len(holds) else along).sort_values(
        ["flip_rate", "change"], ascending=[False, True], kind="stable"
    )
    top = rows.iloc[0]
    rate, owner = f"{top['flip_rate']:.0%}", f"{names[top['model']]}'s preferences"
    null = table[(table["attribute"] == PLACEBO) & (table["n"] > 0)]
    alike = null["perturber"].isin(null_makers(top["perturber"])) & (null["model"] == top["model"])
    clause = "".join(f"; placebo edits {share:.0%}" for share in null[alike]["flip_rate"].head(1))
    flip = f"dits against liking {_liking(top)} flip {rate} of {owner}{clause}."
    headline = f"E{flip}" if tested else f"Seen, not tested: e{flip}"
    if tested and holds.empty:
        headline = (
            "No attribute's edits flip more than placebo edits and prices of words do; the most: "
            f"{rate} of {owner}, against liking {_liking(top)}."
        )
    if not tested:
        makers = ", ".join(sorted(set(null["perturber"]))) or "nobody"
        notes += (f"Nothing is tested: {top['perturber']} has no placebo edits (by {makers}).",)
    estimate = effect.estimate_row(top)
    weight = weight_of(top["flip_rate"], estimate.p)
    return Result(
        *("sensitivity", table, headline),
        effect=effect,
        estimate=estimate,
        weight=weight,
        notes=notes,
        **rest,
    )


def _add_taste(rates: pd.DataFrame) -> pd.DataFrame:
    """Flip rates with `taste`, what a model would have to like for these edits to speak against its
    preference."""
    words = {"more": "edits against liking more", "less": "edits against liking less"}
    taste = rates["liked"].map(words).where(rates["attribute"] != PLACEBO, "placebo edits")
    return rates.assign(taste=taste.fillna("edits against liking better"))


def _slopes_result(outcomes: pd.DataFrame, method: str) -> Result:
    """Slopes of each model's reward on the attributes: described, and nothing is named by them."""
    table = slopes(outcomes)
    if table["slope"].isna().all():
        note = f"Slopes of {len(table)} attributes need {len(table) + 2} comparisons."
        return Result("slopes", table, method=method, notes=(note,))
    forest = Forest(
        row="attribute",
        estimate="slope",
        low=None,
        high=None,
        group="model" if table["model"].nunique() > 1 else None,
        tabs=("perturber",),
        xlabel="reward per SD of the attribute, others held (SD of reward); a description",
    )
    return Result("slopes", table, plot=forest, method=method)


def _left_out(explained: Explained) -> tuple[str, ...]:
    """Notes on the comparisons that are not explained."""
    counts = {
        f"ties (margin up to {significant(explained.tie)})": len(explained.undecided),
        "longer than the model reads": len(explained.too_long),
        **explained.left_out,
    }
    left_out = ", ".join(f"{n:,} {reason}" for reason, n in counts.items() if n)
    return (f"Comparisons left out: {left_out}.",) if left_out else ()


def _summary(rates: pd.DataFrame, null: pd.DataFrame, explained: Explained) -> dict[str, float]:
    """The numbers by which explanations are listed; unknown ones are left out, as JSON has no
    NaN."""
    numbers = {
        "decided": len(explained.decided),
        "undecided": len(explained.undecided),
        "edits": len(explained.edits),
        "placebo_edits": int(null["n"].sum()),
        "reward_sd": explained.reward_sd,
        "tie": explained.tie,
    }
    if len(null):
        numbers["placebo_flip_rate"] = float(null["flip_rate"].iloc[0])
    for row in rates.itertuples():
        name = row.attribute if row.which_is == "better" else f"{row.attribute}/reversed"
        numbers[f"flip_rate/{name}"] = float(row.flip_rate)
        numbers[f"change/{name}"] = float(row.change)
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def _representatives(table: pd.DataFrame, explained: Explained) -> Result:
    """The comparisons whose own ranking of attributes is most like the model's."""
    rows = table[~table["attribute"].isin(CONTROLS)]
    ranking = representative(rows, explained.model, perturber=explained.perturber)
    top = ranking.iloc[0]
    if pd.isna(top["tau"]):
        reason = (
            "Comparisons are not ranked: that needs two of them, and five attributes with edits "
            "whose changes are not all equal."
        )
        return Result("representatives", ranking, method=METHOD, notes=(reason,))
    return Result(
        "representatives",
        ranking,
        "The comparison whose ranking of attributes is most like the model's: "
        f"{literal(top['comparison'], limit=40)} (τ = {signed(top['tau'])}).",
        method=METHOD,
        weight=MINOR,
        estimate=TAU.estimate_row(top),
    )


def _coverage_result(
    outcomes: pd.DataFrame, options: Resampling, method: str, *, diversity: bool = False
) -> Result:
    """Coverage: how many comparisons have an explanation; and how far the edits go."""
    table = metrics(outcomes, diversity=diversity, **options.bootstrap)
    rows = table[~table["placebo"].astype(bool) & table["value"].notna()]
    sides, coverage = rows["side"] == ANY, rows["metric"] == "coverage"
    panels = rows[rows["metric"].isin(["coverage", *DISTANCES, "fluent"]) & sides]
    labels = panels["among"].map(SUBSET_LABELS)
    panels = panels.assign(among=labels, who=panels["model"] + " · " + panels["perturber"])
    flips = rows[coverage & (rows["among"] == COUNTERFACTUAL) & sides & (rows["n"] > 0)]
    if flips.empty or not rows["metric"].isin(DISTANCES).any():
        reason = "No edit came about, so no comparison was tried."
        return Result("metrics", table, method=method, notes=(reason,))
    low, high = flips.loc[flips["value"].idxmin()], flips.loc[flips["value"].idxmax()]
    share = "" if len(flips) == 1 else f"{low['value']:.0%} to "
    alone = table["model"].nunique() == 1
    judged = rows[alone & (rows["metric"] == "complied") & sides & (rows["among"] == ALL)]
    return Result(
        "metrics",
        table,
        f"{share}{high['value']:.0%} of {int(high['comparisons'])} comparisons have at least one "
        "edit that flips the preference.",
        Forest(
            data=panels,
            row="who",
            estimate="value",
            group="among",
            panel="metric",
            tabs=(),
            reference=None,
            xlabel="share, or distance",
        ),
        method,
        MINOR,
        COVERAGE.estimate_row(high),
        tuple(f"{r.value:.0%} of {r.n:,} edits did what was asked." for r in judged.itertuples()),
        summary={
            f"coverage/{r.among}/{r.side}": float(r.value)
            for r in rows[alone & coverage].itertuples()
        },
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
    exact = "In {:,} of {:,} flips every choice of the edit's changes was tried."
    results = []
    for name, table, of, headline in (
        ("smallest_flips", explained.smallest, "flips", flip),
        ("largest_holds", explained.largest, "responses", hold),
    ):
        if table is None or table.empty:
            continue
        n, after = len(table), float(table["tokens"].median())
        result = Result(
            name,
            as_stored(table),
            headline.format(n=n, before=table["tokens_before"].median(), after=after),
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


def _agreement(
    outcomes: pd.DataFrame, options: Resampling, names: Mapping[str, str]
) -> list[Result]:
    """Agreement of models in what moves them; and of the least alike two, where their reasons
    differ most."""
    table = model_agreement(outcomes, **options.bootstrap)
    if table.empty:  # no perturber explained two of them
        return []
    taus = table[table["measure"] == CHANGE].dropna(subset=["tau"])
    if taus.empty:
        reason = "No τ is defined: that needs two attributes whose changes are not all equal."
        return [Result("model_agreement", table, method=REASONS, notes=(reason,))]
    low, high = taus.loc[taus["tau"].idxmin()], taus.loc[taus["tau"].idxmax()]
    closest = f"; most alike, {_pair(high, names, ' and ')}: {signed(high['tau'])}"
    headline = f"What moves {_pair(low, names, ' and ')} is ordered with τ = {signed(low['tau'])}"
    forest = Forest(
        data=table.assign(pair=[_pair(row, names, " · ") for _, row in table.iterrows()]),
        row="pair",
        estimate="tau",
        group="measure",
        tabs=("perturber",),
        xlabel="Kendall's τ-b of attributes",
    )
    agreement = Result(
        "model_agreement",
        table,
        headline + (closest if len(taus) > 1 else "") + ".",
        forest,
        REASONS,
        weight_of(1 - low["tau"]) / 2,
        replace(TAU, low="low", high="high").estimate_row(low),
    )
    rankings = []
    for perturber, rows in taus.groupby("perturber", sort=False):
        pair = rows.loc[rows["tau"].idxmin(), ["model_a", "model_b"]]
        ranking = contested(outcomes, *pair, perturber=perturber)
        if ranking["tau"].notna().any():
            rankings.append(ranking.assign(perturber=perturber, **pair))
    if not rankings:
        return [agreement]
    ranking = pd.concat(rankings, ignore_index=True)
    first = ranking.iloc[0]
    disagreement = Result(
        "contested",
        ranking,
        f"{_pair(first, names, ' and ')} prefer the same response to "
        f"{literal(first['comparison'], limit=40)}, for the most different reasons (τ = "
        f"{signed(first['tau'])}).",
        method=REASONS,
        weight=weight_of(0.2),
        estimate=TAU.estimate_row(first),
    )
    return [agreement, disagreement]


def _pair(pair: pd.Series, names: Mapping[str, str], between: str) -> str:
    return f"{names[pair['model_a']]}{between}{names[pair['model_b']]}"


def contested_outcomes(outcomes: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Outcomes of the most contested comparison of each perturber, to be read in full: by model,
    nearest to a flip first."""
    edits = outcomes[outcomes["edited"].notna() & (outcomes["attribute"] != PLACEBO)]
    rows = []
    for perturber, ranking in table.groupby("perturber", sort=False):
        first = ranking.iloc[0]
        pair = edits["model"].isin([first["model_a"], first["model_b"]])
        pair &= (edits["perturber"] == perturber) & (edits["comparison"] == first["comparison"])
        rows.append(edits[pair].sort_values(["model", "new_margin"], kind="stable"))
    return pd.concat(rows)


def pair_results(explained: Explained) -> list[Result]:
    """One preference in words and tables: rewards, and the changes of the margin by attribute. A
    description of the edits of this comparison; it says nothing of others."""
    [key] = explained.decided
    edits, margin = explained.edits, float(explained.table["margin"].iloc[0])
    first, second = explained.rewards[key]
    columns = edits[["attribute", "side", "amount"]].itertuples(index=False)
    words = [_n_words(b) - _n_words(a) for a, b in edits[["original", "edited"]].to_numpy()]
    edits = edits.assign(flips=edits["outcome"] == COUNTERFACTUAL, words=words)
    edits["liked"] = [liked(*row) for row in columns]
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
    )
    table = table.sort_values("change", kind="stable", ignore_index=True)
    flips, top = int(table["flips"].sum()), table.iloc[0]
    headline = f"{explained.model} prefers the response given as {GIVEN[int(second > first)]}, by "
    headline += f"{significant(margin)}; {flips or 'none'} of {len(edits)} edits "
    headline += f"flip{'s' * (flips == 1)} that."
    note = f"Rewards: {significant(first)} of chosen, {significant(second)} of rejected. The "
    note += f"lowest mean change of the margin is {signed(top['change'])}, by edits against liking "
    note += f"{_liking(top)}."
    summary = {"margin": margin, "flips": flips, "reward/chosen": first, "reward/rejected": second}
    result = Result(
        PAIR,
        table,
        headline,
        method=METHOD,
        weight=2.0,
        notes=(note,),
        summary=summary,
        estimate=Estimate("margin", margin, len(edits), "edits"),
    )
    return [result, *_smallest_and_largest(explained), *_stored(explained)]


def _n_words(text: str) -> int:
    """Words of a text; a Chinese or Japanese character is one."""
    return sum(any(map(str.isalnum, token)) for token in tokens(text))


def smallest_edits(explained: Explained, *, n: int = MAX_SMALLEST) -> pd.DataFrame:
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


def as_stored(table: pd.DataFrame) -> pd.DataFrame:
    """Texts as parquet can hold them; `complied` as a column that knows missing values."""
    texts = table.select_dtypes(object).drop(columns="complied", errors="ignore")
    escaped = texts.map(lambda each: storable(each) if isinstance(each, str) else each)
    table = table.assign(**{name: escaped[name].astype(object) for name in escaped})
    if "complied" in table:
        table["complied"] = table["complied"].astype("boolean")
    return table
