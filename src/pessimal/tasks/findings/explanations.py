"""The page of several models' explanations: which attributes move which model, and how alike the models are in that.

Knows tables of outcomes. Does not know models, perturbers or registries.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pessimal.config.schema import CompareConfig
from pessimal.contrast.attribute import PLACEBO
from pessimal.contrast.comparison import Comparison
from pessimal.contrast.compliance import PERTURBATION, flip_rates
from pessimal.contrast.metrics import metrics
from pessimal.contrast.model_agreement import model_agreement
from pessimal.contrast.representatives import contested
from pessimal.contrast.sensitivity import sensitivity
from pessimal.contrast.slopes import slopes
from pessimal.figures.heatmap import heatmap
from pessimal.figures.sensitivity import least_to_most, sensitivity_heatmap
from pessimal.figures.words import literal
from pessimal.report.contents import Contents, Entry, Section
from pessimal.report.edits import to_json, views
from pessimal.tasks.findings.explain_claims import counted, different_texts, made_edits
from pessimal.tasks.findings.explain_quality import coverage_figure, of_attributes

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
    told_apart = slopes(outcomes, confidence=config.confidence)
    contents.add_table("slopes", told_apart)
    contents.add_table("flip_rates", flip_rates(outcomes, confidence=config.confidence))
    contents.add_table("provenance", provenance)
    models = list(dict.fromkeys(outcomes["model"]))
    agreement = model_agreement(outcomes, **drawn) if len(models) > 1 else None
    for perturber in dict.fromkeys(outcomes.loc[outcomes["attribute"] != PLACEBO, "perturber"]):
        rows = outcomes[(outcomes["perturber"] == perturber) & (outcomes["attribute"] != PLACEBO)]
        shown = list(dict.fromkeys(rows["model"]))
        section = contents.section(
            f"{counted(len(shown), 'model')} · edits by {perturber}",
            f"{counted(rows['comparison'].nunique(), 'comparison')}, {_edits(rows)}. The response that a model prefers was made worse and "
            "the other better, along one attribute at a time.",
        )
        # A model that others' edits explain has placebo rows too, which have no place among these.
        own = sensitive[
            sensitive["model"].isin(shown)
            & ((sensitive["perturber"] == perturber) | (sensitive["attribute"] == PLACEBO))
        ]
        _heatmaps(section, contents, own, perturber)
        _slopes(section, contents, told_apart[told_apart["perturber"] == perturber], perturber)
        if agreement is not None and (agreement["perturber"] == perturber).any():
            of_edits = agreement[agreement["perturber"] == perturber]
            _agreement(section, contents, of_edits, perturber)
            _contested(section, contents, outcomes, comparisons, of_edits, perturber)
    _coverage(contents, outcomes, drawn)
    edits, placebo_edits = (len(_once(made)) for made in made_edits(outcomes))
    contents.summary |= {"models": len(models), "edits": edits, "placebo_edits": placebo_edits}
    return contents


def _once(made: pd.DataFrame) -> set[tuple]:
    """Edits, one that several models were shown once."""
    return set(zip(*(made[name] for name in PERTURBATION), strict=True))


def _edits(rows: pd.DataFrame) -> str:
    """How many edits there are, and how many texts, where some gave the same one."""
    made = rows[rows["edited"].notna()]
    edits, texts = len(_once(made)), different_texts(made)
    return counted(edits, "edit") + ("" if texts == edits else f" ({counted(texts, 'different text')})")


def _heatmaps(section: Section, contents: Contents, own: pd.DataFrame, perturber: str) -> None:
    for measure, (stem, title) in MEASURES.items():
        name = f"{stem}_{perturber}"
        contents.figures[name] = sensitivity_heatmap(own, measure=measure)
        rows = own[own["attribute"] != PLACEBO].dropna(subset=[measure])
        section.entries.append(
            Entry(
                title,
                f"{_told_from_placebo(rows, measure)} {_unit(rows, measure)}",
                figure=name,
                table="sensitivity",
            )
        )


def _told_from_placebo(rows: pd.DataFrame, measure: str) -> str:
    if rows.empty:
        return "No edit came about, so nothing is known."
    q = rows["flip_q" if measure == "flip_rate" else "change_q"].dropna()
    if q.empty:
        return "Nothing is tested: there is no placebo to hold the attributes against."
    how = "flip more often than" if measure == "flip_rate" else "move the margin otherwise than"
    return (
        f"{int((q < 0.05).sum())} of {counted(len(q), 'cell')} {how} edits that keep the meaning and the length (q < .05, corrected "
        "within each model); the others are pale."
    )


def _unit(rows: pd.DataFrame, measure: str) -> str:
    if measure == "change":
        return "Changes are in standard deviations of each model's own rewards."
    ties, edits = int(rows["ties"].sum()), int(rows["n"].sum())
    return "A flip: the other response is preferred after the edit. A tie is none" + (
        f"; {ties:,} of {edits:,} edits, each counted for every model that was shown it, are ties."
        if ties
        else "."
    )


def _slopes(section: Section, contents: Contents, told_apart: pd.DataFrame, perturber: str) -> None:
    known = told_apart.dropna(subset=["slope"])
    title = "What each model rewards in itself"
    if known.empty:
        sentence = "Not known: too few edits, or none that moves what a detector sees."
        section.entries.append(Entry(title, sentence, table="slopes"))
        return
    name = f"slopes_by_model_{perturber}"
    contents.figures[name] = sensitivity_heatmap(known, measure="slope")
    explained = known.drop_duplicates("model")["explained"].dropna()
    low, high = (f"{end:.2f}" for end in (explained.min(), explained.max()))
    fit = f" (R² {low if low == high else f'{low} to {high}'})" if len(explained) else ""
    q = known["slope_q"].dropna()
    sure = (
        f" {int((q < 0.05).sum())} of {counted(len(q), 'cell')} are told from 0 (q < .05, corrected within each model)."
        if len(q)
        else " Nothing is tested: the comparisons are too few for so many attributes."
    )
    section.entries.append(
        Entry(
            title,
            "SDs of reward per SD of the attribute with all others held: edits along one attribute move others along, and here they are "
            f"told apart by a line through all edits on what the detectors saw move{fit}.{sure}",
            figure=name,
            table="slopes",
        )
    )


def _agreement(section: Section, contents: Contents, agreement: pd.DataFrame, perturber: str) -> None:
    contents.add_table("model_agreement", agreement)
    rows = agreement[agreement["measure"] == "change"]
    known = rows.dropna(subset=["tau"])
    if known.empty:
        section.entries.append(
            Entry(
                "How alike the models are in what moves them",
                f"No rank correlation is defined: {'; '.join(dict.fromkeys(rows['reason']))}.",
                table="model_agreement",
            )
        )
        return
    models = list(dict.fromkeys([*rows["model_a"], *rows["model_b"]]))
    matrix = pd.DataFrame(np.eye(len(models)), index=models, columns=models)
    for row in rows.itertuples():
        matrix.loc[row.model_a, row.model_b] = matrix.loc[row.model_b, row.model_a] = row.tau
    ends = known.sort_values("tau")
    low, high = ends.iloc[0], ends.iloc[-1]
    told = f"Most alike: {_pair(high)}; least: {_pair(low)}." if len(known) > 1 else f"{_pair(high)}."
    if undefined := len(rows) - len(known):
        told += f" For {counted(undefined, 'pair')} it is not defined."
    name = f"model_agreement_{perturber}"
    drawable = len(models) > 2 and not matrix.isna().any(axis=None)
    if drawable:
        contents.figures[name] = heatmap(matrix, title="Agreement of models on which attributes matter")
    section.entries.append(
        Entry(
            "How alike the models are in what moves them",
            f"Kendall's τ-b of the mean changes over attributes. {told}"
            + (
                " Intervals: bootstrap over comparisons that both models decided."
                if known["low"].notna().any()
                else ""
            ),
            figure=name if drawable else None,
            table="model_agreement",
        )
    )


def _pair(row: pd.Series) -> str:
    comparisons = counted(int(row["comparisons"]), "comparison")
    rests = f"{counted(int(row['attributes']), 'attribute')}, {comparisons}"
    if np.isfinite(row["low"]):
        rests = f"{row['low']:.2f} to {row['high']:.2f}; {rests}"
    else:
        rests += ": too few for an interval"
    return f"{literal(row['model_a'], limit=40)} and {literal(row['model_b'], limit=40)}, {row['tau']:.2f} ({rests})"


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
    ranking = ranking.assign(perturber=perturber, model_a=pair["model_a"], model_b=pair["model_b"])
    contents.add_table("contested", ranking)
    key = ranking["comparison"].iloc[0]
    rows = outcomes[
        outcomes["model"].isin([pair["model_a"], pair["model_b"]])
        & (outcomes["perturber"] == perturber)
        & (outcomes["comparison"] == key)
        & (outcomes["attribute"] != PLACEBO)
        & outcomes["edited"].notna()
    ].sort_values(["model", "new_margin"], kind="stable")
    stem = f"contested_{perturber}"
    contents.files[f"views/{stem}.json"] = to_json(views(rows, comparisons))
    section.entries.append(
        Entry(
            f"One preference, two reasons: {pair['model_a']} and {pair['model_b']}",
            f"Both prefer the same response to {key}, and edits move them in the most different order (τ-b {ranking['tau'].iloc[0]:.2f} over "
            f"{counted(int(ranking['attributes'].iloc[0]), 'attribute')}). The edits of both responses stand together, by the margin after "
            "the edit, the lowest first.",
            table="contested",
            views=stem,
        )
    )


def _coverage(contents: Contents, outcomes: pd.DataFrame, drawn: dict) -> None:
    measured = metrics(outcomes, distances=("syntactic", "semantic"), **drawn)
    contents.add_table("metrics", measured)
    section = contents.section(
        "How many comparisons have an explanation", "By model and by who made the edits."
    )
    coverage = of_attributes(measured, "coverage")
    tried = made_edits(outcomes)[0]
    if tried.empty:
        section.entries.append(
            Entry("Coverage", "No edit came about, so no comparison was tried.", table="metrics")
        )
        return
    contents.figures["coverage"] = coverage_figure(coverage, confidence=drawn["confidence"])
    seeds = int(coverage["seeds"].max())
    section.entries.append(
        Entry(
            "Coverage",
            f"The share of {least_to_most(coverage['comparisons'], 'decided comparison')} of which at least one edit flips the "
            f"preference, on either side and on both{f' (mean over {seeds} seeds)' if seeds > 1 else ''}. One without any edit is "
            "counted as not covered.",
            figure="coverage",
            table="metrics",
        )
    )
