"""The page of several models' explanations: which attributes move which model, and how alike the models are in that.

Knows tables of outcomes. Does not know models, perturbers or registries.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pessimal.config.schema import CompareConfig
from pessimal.contrast.comparison import Comparison
from pessimal.contrast.compliance import flip_rates
from pessimal.contrast.metrics import metrics
from pessimal.contrast.model_agreement import model_agreement
from pessimal.contrast.outcomes import PLACEBO
from pessimal.contrast.representatives import contested
from pessimal.contrast.sensitivity import sensitivity
from pessimal.figures import contrast_metrics
from pessimal.figures.heatmap import heatmap
from pessimal.figures.sensitivity import sensitivity_heatmap
from pessimal.figures.words import literal
from pessimal.report.contents import Contents, Entry, Section
from pessimal.report.edits import to_json, views

MEASURES = {
    "flip_rate": ("flip_rates_by_model", "How often an edit flips the preference"),
    "change": ("changes_by_model", "How far an edit moves the margin"),
}


def explanations_contents(
    outcomes: pd.DataFrame,
    comparisons: Mapping[str, Comparison],
    provenance: pd.DataFrame,
    config: CompareConfig,
) -> Contents:
    """Sections, figures and tables over the outcomes of one or several models on one set of comparisons."""
    contents = Contents()
    drawn = {"replicates": config.replicates, "confidence": config.confidence, "seed": config.seed}
    sensitive = sensitivity(outcomes, permutations=config.permutations, **drawn)
    contents.add_table("sensitivity", sensitive)
    contents.add_table("flip_rates", flip_rates(outcomes, confidence=config.confidence))
    contents.add_table("provenance", provenance)
    models = list(dict.fromkeys(outcomes["model"]))
    agreement = model_agreement(outcomes, **drawn) if len(models) > 1 else None
    for perturber in dict.fromkeys(outcomes.loc[outcomes["attribute"] != PLACEBO, "perturber"]):
        rows = outcomes[outcomes["perturber"] == perturber]
        section = contents.section(
            f"{rows['model'].nunique()} models · edits by {perturber}",
            f"{rows['comparison'].nunique()} comparisons, {int(rows['edited'].notna().sum()):,} edits. The response that a model prefers was "
            "made worse and the other better, along one attribute at a time.",
        )
        own = sensitive[(sensitive["perturber"] == perturber) | (sensitive["attribute"] == PLACEBO)]
        _heatmaps(section, contents, own, perturber)
        if agreement is not None:
            of_edits = agreement[agreement["perturber"] == perturber]
            _agreement(section, contents, of_edits, perturber)
            _contested(section, contents, outcomes, comparisons, of_edits, perturber)
    _coverage(contents, outcomes, drawn)
    contents.summary |= {"models": len(models)}
    return contents


def _heatmaps(section: Section, contents: Contents, own: pd.DataFrame, perturber: str) -> None:
    for measure, (stem, title) in MEASURES.items():
        name = f"{stem}_{perturber}"
        contents.figures[name] = sensitivity_heatmap(own, measure=measure)
        rows = own[own["attribute"] != PLACEBO].dropna(subset=[measure])
        q = "flip_q" if measure == "flip_rate" else "change_q"
        section.entries.append(
            Entry(
                title,
                f"{int((rows[q] < 0.05).sum())} of {len(rows)} cells differ from edits that keep the meaning (q < .05, corrected within each "
                "model); the others are pale. "
                + (
                    "Changes are in standard deviations of each model's own rewards."
                    if measure == "change"
                    else "A flip: the other response is preferred after the edit."
                ),
                figure=name,
                table="sensitivity",
            )
        )


def _agreement(section: Section, contents: Contents, agreement: pd.DataFrame, perturber: str) -> None:
    contents.add_table("model_agreement", agreement)
    rows = agreement[agreement["measure"] == "change"]
    known = rows.dropna(subset=["tau"])
    if known.empty:
        section.entries.append(
            Entry("How alike the models are", "No rank correlation is defined: " + rows["reason"].iloc[0])
        )
        return
    models = list(dict.fromkeys([*rows["model_a"], *rows["model_b"]]))
    matrix = pd.DataFrame(np.eye(len(models)), index=models, columns=models)
    for row in rows.itertuples():
        matrix.loc[row.model_a, row.model_b] = matrix.loc[row.model_b, row.model_a] = row.tau
    ends = known.sort_values("tau")
    low, high = ends.iloc[0], ends.iloc[-1]
    name = f"model_agreement_{perturber}"
    drawable = len(models) > 2 and not matrix.isna().any(axis=None)
    if drawable:
        contents.figures[name] = heatmap(matrix, title="Agreement of models on which attributes matter")
    section.entries.append(
        Entry(
            "How alike the models are in what moves them",
            f"Kendall's τ-b of the mean changes over attributes. Most alike: {_pair(high)}; least: {_pair(low)}. Intervals: bootstrap over "
            "comparisons that both models decided.",
            figure=name if drawable else None,
            table="model_agreement",
        )
    )


def _pair(row: pd.Series) -> str:
    return (
        f"{literal(row['model_a'], limit=40)} and {literal(row['model_b'], limit=40)}, {row['tau']:.2f} ({row['low']:.2f} to {row['high']:.2f}; "
        f"{row['attributes']} attributes, {row['comparisons']} comparisons)"
    )


def _contested(
    section: Section,
    contents: Contents,
    outcomes: pd.DataFrame,
    comparisons: Mapping[str, Comparison],
    agreement: pd.DataFrame,
    perturber: str,
) -> None:
    """Of the two models that are least alike, a comparison on which they agree for the most different reasons."""
    known = agreement[agreement["measure"] == "change"].dropna(subset=["tau"])
    if known.empty:
        return
    pair = known.loc[known["tau"].idxmin()]
    ranking = contested(outcomes, pair["model_a"], pair["model_b"], perturber=perturber)
    if ranking.empty or np.isnan(ranking["tau"].iloc[0]):
        return
    ranking = ranking.assign(model_a=pair["model_a"], model_b=pair["model_b"])
    contents.add_table("contested", ranking)
    key = ranking["comparison"].iloc[0]
    rows = outcomes[
        outcomes["model"].isin([pair["model_a"], pair["model_b"]])
        & (outcomes["perturber"] == perturber)
        & (outcomes["comparison"] == key)
        & outcomes["edited"].notna()
    ].sort_values(["model", "change"], kind="stable")
    stem = f"contested_{perturber}"
    contents.files[f"views/{stem}.json"] = to_json(views(rows, comparisons))
    section.entries.append(
        Entry(
            f"One preference, two reasons: {pair['model_a']} and {pair['model_b']}",
            f"Both prefer the same response to {key}, and edits move them in the most different order (τ-b {ranking['tau'].iloc[0]:.2f} over "
            f"{ranking['attributes'].iloc[0]} attributes).",
            table="contested",
            views=stem,
        )
    )


def _coverage(contents: Contents, outcomes: pd.DataFrame, drawn: dict) -> None:
    measured = metrics(outcomes, distances=("syntactic", "semantic"), **drawn)
    contents.add_table("metrics", measured)
    coverage = measured[(measured["metric"] == "coverage") & ~measured["placebo"]]
    contents.figures["coverage"] = contrast_metrics.coverage(
        coverage.rename(columns={"among": "kind", "value": "coverage"}), confidence=drawn["confidence"]
    )
    contents.section(
        "How many comparisons have an explanation", "By model and by who made the edits."
    ).entries.append(
        Entry(
            "Coverage",
            "The share of decided comparisons of which at least one edit flips the preference, on either side and on both.",
            figure="coverage",
            table="metrics",
        )
    )
