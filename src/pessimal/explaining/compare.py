"""What explanations of several models report side by side: which attributes move which model, and
how alike they are in it.

Knows tables of outcomes. Does not know models, perturbers or registries.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pessimal.explaining.agreement import contested, model_agreement
from pessimal.explaining.attribute import PLACEBO
from pessimal.explaining.explain import CONTROLS
from pessimal.explaining.flips import NULLS, attribute_flip_rates, flip_rates, null_makers
from pessimal.explaining.metrics import metrics
from pessimal.explaining.outcomes import KEY, against_polarity
from pessimal.explaining.results import (
    FLIP_RATE,
    Options,
    coverage_result,
    estimated,
    fluency_results,
    slopes_result,
)
from pessimal.explaining.slopes import slopes
from pessimal.plots import Forest, Heatmap
from pessimal.tables.result import Result, weight_of
from pessimal.texts import literal

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
    outcomes: pd.DataFrame, provenance: pd.DataFrame, options: Options, *, labels: Mapping[str, str]
) -> list[Result]:
    """The Results over the outcomes of one or several models on one set of comparisons; `labels`:
    their names for people."""
    named = {model: labels.get(model, model) for model in dict.fromkeys(outcomes["model"])}
    published = outcomes[against_polarity(outcomes)]
    sensitive = attribute_flip_rates(outcomes, permutations=options.permutations, **options.drawn)
    measured = metrics(published, **options.drawn)
    arms = published[(published["attribute"] == PLACEBO) | ~published["attribute"].isin(CONTROLS)]
    return [
        slopes_result(
            slopes(outcomes, confidence=options.confidence), named, method=METHOD, plot=SLOPES
        ),
        _flip_rate_result(sensitive, outcomes, named),
        *(_agreement(arms, options, named) if len(named) > 1 else []),
        coverage_result(measured, METHOD),
        *fluency_results(outcomes, options, method=METHOD),
        Result("flip_rates", flip_rates(published, confidence=options.confidence), method=METHOD),
        Result("provenance", provenance),
    ]


def shown_contested(outcomes: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Outcomes of the most contested comparison of each perturber, to be read in full: by model,
    nearest to a flip first."""
    rows = []
    for perturber, ranking in table.groupby("perturber", sort=False):
        first = ranking.iloc[0]
        of_pair = outcomes["model"].isin([first["model_a"], first["model_b"]])
        of_edit = (outcomes["perturber"] == perturber) & (
            outcomes["comparison"] == first["comparison"]
        )
        made = outcomes["edited"].notna() & (outcomes["attribute"] != PLACEBO)
        rows.append(
            outcomes[of_pair & of_edit & made].sort_values(["model", "new_margin"], kind="stable")
        )
    return pd.concat(rows)


def _flip_rate_result(
    table: pd.DataFrame, outcomes: pd.DataFrame, named: Mapping[str, str]
) -> Result:
    """Flip rates, attributes by models: a row for models that like more of an attribute, and one
    for those that like less."""
    once = outcomes[outcomes["edited"].notna()].drop_duplicates(KEY[1:])
    placebo = int((once["attribute"] == PLACEBO).sum())
    summary = {"models": len(named), "edits": len(once) - placebo, "placebo_edits": placebo}
    tastes = zip(table["liked"], table["attribute"], strict=True)
    shown = table.assign(row=[f"{liked} {name}".strip() for liked, name in tastes])
    own = shown[~shown["attribute"].isin(CONTROLS)].dropna(subset=["flip_rate"])
    if own.empty:
        return Result(
            "sensitivity", table, method=METHOD, notes=("No edit came about.",), summary=summary
        )
    order = own.groupby("row")["flip_rate"].mean().sort_values(ascending=False, kind="stable").index
    order = order.append(pd.Index([PLACEBO]))
    pieces = []
    for perturber, made in own.groupby("perturber", sort=False):
        null = shown["attribute"] == PLACEBO
        like = null & shown["perturber"].isin(null_makers(perturber))
        null = like if like.any() else null & shown["perturber"].isin(NULLS.values())
        its = ((shown["perturber"] == perturber) | null) & shown["model"].isin(made["model"])
        rows = shown[its].assign(perturber=perturber)
        pieces.append(rows.sort_values("row", key=order.get_indexer))
    top = own[own["row"] == order[0]]
    low, high = top.loc[top["flip_rate"].idxmin()], top.loc[top["flip_rate"].idxmax()]
    span = "" if len(top) == 1 else f", {named[low['model']]}'s least ({low['flip_rate']:.0%})"
    ends = (high["flip_low"], high["flip_high"], high["flip_q"])
    estimate = estimated("flip rate", high["flip_rate"], high["n"], "edits", *ends)
    untested = "There are no placebo edits of the same kind, so nothing is tested."
    return Result(
        "sensitivity",
        table,
        headline=f"Edits against liking {order[0]} flip {named[high['model']]}'s preference most "
        f"often "
        f"({high['flip_rate']:.0%}){span}.",
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
        notes=() if table["flip_q"].notna().any() else (untested,),
        summary=summary,
    )


def _agreement(outcomes: pd.DataFrame, options: Options, named: Mapping[str, str]) -> list[Result]:
    """How alike models are in what moves them; and of the least alike two, where their reasons
    differ most."""
    table = model_agreement(outcomes, **options.drawn)
    if table.empty:  # no perturber explained two of them
        return []
    known = table[table["measure"] == CHANGE].dropna(subset=["tau"])
    if known.empty:
        reasons = dict.fromkeys(table["reason"])
        return [
            Result(
                "model_agreement",
                table,
                method=METHOD,
                notes=(f"No τ is defined: {'; '.join(reasons)}.",),
            )
        ]
    low, high = known.loc[known["tau"].idxmin()], known.loc[known["tau"].idxmax()]
    least = f"{named[low['model_a']]} and {named[low['model_b']]}"
    span = (
        ""
        if len(known) == 1
        else f"; most alike, {named[high['model_a']]} and {named[high['model_b']]}: "
        f"{high['tau']:.2f}"
    )
    pairs = [
        f"{named[a]} · {named[b]}" for a, b in zip(table["model_a"], table["model_b"], strict=True)
    ]
    forest = Forest(
        data=table.assign(pair=pairs),
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
    results = [
        Result(
            "model_agreement",
            table,
            headline=f"What moves {least} is ordered with τ = {low['tau']:.2f}{span}.".replace(
                "-0.", "−0."
            ),
            plot=forest if len(known) <= PAIRS else matrix,
            method=METHOD,
            weight=weight_of(1 - low["tau"]) / 2,
            estimate=estimated(
                "τ", low["tau"], low["attributes"], "attributes", low["low"], low["high"]
            ),
        )
    ]
    rankings = []
    for perturber, of_perturber in known.groupby("perturber", sort=False):
        pair = of_perturber.loc[of_perturber["tau"].idxmin()]
        ranking = contested(outcomes, pair["model_a"], pair["model_b"], perturber=perturber)
        if len(ranking) and np.isfinite(ranking["tau"].iloc[0]):
            rankings.append(ranking.assign(perturber=perturber, **pair[["model_a", "model_b"]]))
    if rankings:
        results.append(_contested(pd.concat(rankings, ignore_index=True), named))
    return results


def _contested(table: pd.DataFrame, named: Mapping[str, str]) -> Result:
    first = table.iloc[0]
    return Result(
        "contested",
        table,
        headline=f"{named[first['model_a']]} and {named[first['model_b']]} prefer the same "
        f"response to "
        f"{literal(first['comparison'], limit=40)}, for the most different reasons (τ = "
        f"{first['tau']:.2f}).".replace("-0.", "−0."),
        method=METHOD,
        weight=weight_of(0.2),
        estimate=estimated("τ", first["tau"], first["attributes"], "attributes"),
    )
