"""What explanations of several models report side by side: which attributes move which model, and
how alike they are in it.

Knows tables of outcomes. Does not know models, perturbers or registries.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pessimal.explaining.analyses.agreement import contested, model_agreement
from pessimal.explaining.analyses.flips import NULLS, attribute_flip_rates, flip_rates, null_makers
from pessimal.explaining.analyses.metrics import metrics
from pessimal.explaining.analyses.slopes import flips_beyond_words, slopes
from pessimal.explaining.attribute import PLACEBO
from pessimal.explaining.explain import CONTROLS
from pessimal.explaining.outcomes import KEY, against_polarity
from pessimal.explaining.results import (
    ENDS,
    FLIP_RATE,
    Resampling,
    coverage_result,
    estimated,
    fluency_results,
    slopes_result,
)
from pessimal.plots import Forest, Heatmap
from pessimal.statistics import LEVEL
from pessimal.tables.result import Result, weight_of
from pessimal.texts import literal, signed

METHOD = "reasons"
CHANGE = "change"
"""The measure of agreement that is spoken of: mean changes of the margin, since flips tie
massively."""
PAIRS = 10
"""More pairs of models are a heat map."""
SLOPES = Heatmap(
    row="attribute",
    column="model",
    value="slope",
    diverging=True,
    tabs=("perturber",),
    label="slope (SD per SD)",
)


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
    rates = attribute_flip_rates(outcomes, permutations=options.permutations, **options.bootstrap)
    rates = flips_beyond_words(rates, outcomes)
    fitted = slopes(outcomes, confidence=options.confidence)
    arms = published[(published["attribute"] == PLACEBO) | ~published["attribute"].isin(CONTROLS)]
    return [
        slopes_result(fitted, names, method=METHOD, plot=SLOPES),
        _flip_rate_result(rates, outcomes, names),
        *(_agreement(arms, options, names) if len(names) > 1 else []),
        coverage_result(metrics(published, **options.bootstrap), METHOD),
        *fluency_results(outcomes, options, method=METHOD),
        Result("flip_rates", flip_rates(published, confidence=options.confidence), method=METHOD),
        Result("provenance", provenance),
    ]


def shown_contested(outcomes: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Outcomes of the most contested comparison of each perturber, to be read in full: by model,
    nearest to a flip first."""
    edits = outcomes[outcomes["edited"].notna() & (outcomes["attribute"] != PLACEBO)]
    rows = []
    for perturber, ranking in table.groupby("perturber", sort=False):
        first = ranking.iloc[0]
        shown = edits["model"].isin([first["model_a"], first["model_b"]])
        shown &= edits["perturber"] == perturber
        shown &= edits["comparison"] == first["comparison"]
        rows.append(edits[shown].sort_values(["model", "new_margin"], kind="stable"))
    return pd.concat(rows)


def _flip_rate_result(
    table: pd.DataFrame, outcomes: pd.DataFrame, names: Mapping[str, str]
) -> Result:
    """Flip rates, attributes by models: a row for models that like more of an attribute, and one
    for those that like less."""
    once = outcomes[outcomes["edited"].notna()].drop_duplicates(KEY[1:])
    placebo = int((once["attribute"] == PLACEBO).sum())
    summary = {"models": len(names), "edits": len(once) - placebo, "placebo_edits": placebo}
    tastes = zip(table["liked"], table["attribute"], strict=True)
    shown = table.assign(row=[f"{liked} {name}".strip() for liked, name in tastes])
    rates = shown[~shown["attribute"].isin(CONTROLS)].dropna(subset=["flip_rate"])
    if rates.empty:
        why = ("No edit came about.",)
        return Result("sensitivity", table, method=METHOD, notes=why, summary=summary)
    means = rates.groupby("row")["flip_rate"].mean()
    order = means.sort_values(ascending=False, kind="stable").index.append(pd.Index([PLACEBO]))
    pieces = []
    for perturber, of_perturber in rates.groupby("perturber", sort=False):
        null = shown["attribute"] == PLACEBO
        same_kind = null & shown["perturber"].isin(null_makers(perturber))
        null = same_kind if same_kind.any() else null & shown["perturber"].isin(NULLS.values())
        rows = ((shown["perturber"] == perturber) | null) & shown["model"].isin(
            of_perturber["model"]
        )
        piece = shown[rows].assign(perturber=perturber)
        pieces.append(piece.sort_values("row", key=order.get_indexer))
    holds = rates[rates["beyond_q"] <= LEVEL]
    first = next(row for row in order if row in set(holds["row"]) or holds.empty)
    top = rates[rates["row"] == first]
    low, high = top.loc[top["flip_rate"].idxmin()], top.loc[top["flip_rate"].idxmax()]
    span = "" if len(top) == 1 else f", {names[low['model']]}'s least ({low['flip_rate']:.0%})"
    ends = high[["flip_low", "flip_high", "beyond_q"]]
    estimate = estimated("flip rate", high["flip_rate"], high["n"], "edits", ends)
    headline = (
        f"Edits against liking {first} flip {names[high['model']]}'s preference most often "
        f"({high['flip_rate']:.0%}){span}."
    )
    if holds.empty and estimate.p is not None:
        headline = (
            "No attribute found whose edits flip more than placebo edits and prices of words; "
            f"most, against liking {first}: {names[high['model']]} {high['flip_rate']:.0%}."
        )
    untested = "There are no placebo edits of the same kind, so nothing is tested."
    return Result(
        "sensitivity",
        table,
        headline=headline,
        plot=Heatmap(
            data=pd.concat(pieces),
            row="row",
            column="model",
            value="flip_rate",
            tabs=("perturber",),
            label="flip rate",
        ),
        method=METHOD,
        weight=weight_of(high["flip_rate"], estimate.p),
        estimate=estimate,
        effect=FLIP_RATE,
        notes=() if table["beyond_q"].notna().any() else (untested,),
        summary=summary,
    )


def _agreement(
    outcomes: pd.DataFrame, options: Resampling, names: Mapping[str, str]
) -> list[Result]:
    """How alike models are in what moves them; and of the least alike two, where their reasons
    differ most."""
    table = model_agreement(outcomes, **options.bootstrap)
    if table.empty:  # no perturber explained two of them
        return []
    taus = table[table["measure"] == CHANGE].dropna(subset=["tau"])
    if taus.empty:
        why = (f"No τ is defined: {'; '.join(dict.fromkeys(table['reason']))}.",)
        return [Result("model_agreement", table, method=METHOD, notes=why)]
    low, high = taus.loc[taus["tau"].idxmin()], taus.loc[taus["tau"].idxmax()]
    most = f"; most alike, {_both(high, names, ' and ')}: {signed(high['tau'])}"
    headline = f"What moves {_both(low, names, ' and ')} is ordered with τ = {signed(low['tau'])}"
    forest = Forest(
        data=table.assign(pair=[_both(row, names, " · ") for _, row in table.iterrows()]),
        row="pair",
        estimate="tau",
        group="measure",
        tabs=("perturber",),
        xlabel="Kendall's τ-b of attributes",
    )
    matrix = Heatmap(
        value="tau",
        symmetric=True,
        order=True,
        where={"measure": CHANGE},
        tabs=("perturber",),
        label="Kendall's τ-b of mean changes",
    )
    agreement = Result(
        "model_agreement",
        table,
        headline=headline + (most if len(taus) > 1 else "") + ".",
        plot=forest if len(taus) <= PAIRS else matrix,
        method=METHOD,
        weight=weight_of(1 - low["tau"]) / 2,
        estimate=estimated("τ", low["tau"], low["attributes"], "attributes", low[ENDS]),
    )
    rankings = []
    for perturber, of_perturber in taus.groupby("perturber", sort=False):
        pair = of_perturber.loc[of_perturber["tau"].idxmin()]
        ranking = contested(outcomes, pair["model_a"], pair["model_b"], perturber=perturber)
        if len(ranking) and np.isfinite(ranking["tau"].iloc[0]):
            rankings.append(ranking.assign(perturber=perturber, **pair[["model_a", "model_b"]]))
    if not rankings:
        return [agreement]
    return [agreement, _contested(pd.concat(rankings, ignore_index=True), names)]


def _contested(table: pd.DataFrame, names: Mapping[str, str]) -> Result:
    first = table.iloc[0]
    return Result(
        "contested",
        table,
        headline=f"{_both(first, names, ' and ')} prefer the same response to "
        f"{literal(first['comparison'], limit=40)}, for the most different reasons (τ = "
        f"{signed(first['tau'])}).",
        method=METHOD,
        weight=weight_of(0.2),
        estimate=estimated("τ", first["tau"], first["attributes"], "attributes"),
    )


def _both(pair: pd.Series, names: Mapping[str, str], between: str) -> str:
    return f"{names[pair['model_a']]}{between}{names[pair['model_b']]}"
