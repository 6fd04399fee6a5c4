"""The page of one model's explanations: which attributes move its preferences, how well that is known, and examples.

Knows the table of outcomes and what was computed from it. Does not know models, perturbers or registries; what is said of it
stands in `explain_claims`, how good the edits are in `explain_quality`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from pessimal.config.schema import ExplainConfig
from pessimal.contrast.attribute import PLACEBO, Attribute
from pessimal.contrast.comparison import Comparison
from pessimal.contrast.metrics import metrics
from pessimal.contrast.preferences import Which, as_lines, preference_pairs
from pessimal.contrast.representatives import representative
from pessimal.contrast.sensitivity import sensitivity
from pessimal.contrast.slopes import slopes
from pessimal.figures.sensitivity import sensitivity_forest
from pessimal.figures.slopes import slopes_forest
from pessimal.report.contents import Contents, Entry, Section
from pessimal.report.edits import to_json, views
from pessimal.tables.kinds import storable
from pessimal.tasks.findings import explain_claims as claims
from pessimal.tasks.findings.explain_quality import came_of_it, of_attributes, pairwise, quality

PREFERENCES, COMPARISONS = "preferences.jsonl", "comparisons.jsonl"


@dataclass(frozen=True)
class Explained:
    """What an explanation found, before it is summarised."""

    model: str
    perturber: str
    """Who made the edits along attributes."""
    description: dict
    """What pins the model down, for the page's provenance."""
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
    """What the check of that way found."""


def explain_contents(found: Explained, config: ExplainConfig) -> Contents:
    """Sections, figures, tables, views, preference pairs and summary of one model's explanations."""
    drawn = {"replicates": config.replicates, "confidence": config.confidence, "seed": config.seed}
    sensitive = sensitivity(found.table, permutations=config.permutations, **drawn)
    told_apart = slopes(found.table, confidence=config.confidence)
    measured = metrics(found.table, pairwise=pairwise(found.table), **drawn)
    contents = Contents()
    contents.add_table("outcomes", _storable(found.table))
    contents.add_table("sensitivity", sensitive)
    contents.add_table("slopes", told_apart)
    contents.add_table("metrics", measured)
    contents.add_table("provenance", _provenance(found))
    name = f"{found.model} · {config.comparisons.name} · {found.perturber}"
    asked = claims.asked(
        found.table,
        decided=len(found.decided),
        undecided=len(found.undecided),
        too_long=len(found.too_long),
        left_out=found.left_out,
        tie=found.tie,
        reward_sd=found.reward_sd,
    )
    section = contents.section(name, asked)
    _sensitivity(section, contents, found, sensitive, config)
    _slopes(section, contents, found, told_apart, config)
    to_be_read = contents.section(f"{name} · examples", claims.how_to_read(found.table, tie=found.tie))
    _examples(to_be_read, contents, found, config)
    edits = contents.section(f"{name} · the edits", came_of_it(found.table))
    quality(
        edits, contents, found.table, measured, found.attributes, found.detected, confidence=config.confidence
    )
    _export(contents, found)
    contents.summary |= _summary(found, sensitive, told_apart, measured)
    return contents


def _sensitivity(
    section: Section, contents: Contents, found: Explained, sensitive: pd.DataFrame, config: ExplainConfig
) -> None:
    own = _of_attributes(sensitive, found.perturber)
    placebo = sensitive[(sensitive["attribute"] == PLACEBO) & (sensitive["n"] > 0)]
    known = bool(own["n"].sum())
    if known:
        contents.figures["sensitivity"] = sensitivity_forest(
            pd.concat([own, placebo], ignore_index=True), confidence=config.confidence
        )
    section.entries.append(
        Entry(
            "Which attributes move its preferences",
            claims.sensitive(own, placebo, found.table, confidence=config.confidence),
            figure="sensitivity" if known else None,
            table="sensitivity",
        )
    )


def _slopes(
    section: Section, contents: Contents, found: Explained, told_apart: pd.DataFrame, config: ExplainConfig
) -> None:
    known = told_apart.dropna(subset=["slope"])
    if len(known):
        contents.figures["slopes"] = slopes_forest(known, confidence=config.confidence)
    section.entries.append(
        Entry(
            "What it rewards in itself",
            claims.slopes(told_apart, found.table),
            figure="slopes" if len(known) else None,
            table="slopes",
        )
    )


def _examples(section: Section, contents: Contents, found: Explained, config: ExplainConfig) -> None:
    """The comparisons whose own ranking of attributes is most like the model's, in full; nearest to a flip first."""
    contents.files[COMPARISONS] = "".join(as_line(c) + "\n" for c in found.comparisons.values())
    ranking = ranked(found)
    contents.add_table("representatives", ranking)
    edited = ranking[ranking["attributes"] > 0]
    if edited.empty:
        section.entries.append(Entry("Examples", claims.NOTHING, table="representatives"))
        return
    best = edited.dropna(subset=["tau"])
    shown = best if len(best) else edited.sort_values("margin", ascending=False, kind="stable")
    shown = shown.head(config.examples)
    made = found.table[found.table["edited"].notna() & (found.table["perturber"] == found.perturber)]
    # m′ and not Δm, though within one comparison the order is the same: it is what the sentence says.
    rows = [
        made[made["comparison"] == key].sort_values("new_margin", kind="stable")
        for key in shown["comparison"]
    ]
    contents.files["views/examples.json"] = to_json(views(pd.concat(rows), found.comparisons))
    title, sentence = claims.examples(shown)
    section.entries.append(Entry(title, sentence, table="representatives", views="examples"))
    if found.smallest is not None and len(found.smallest):
        contents.add_table("smallest_flips", _storable(found.smallest))
        section.entries.append(
            Entry("The least that still flips", claims.smallest(found.smallest), table="smallest_flips")
        )
    if found.largest is not None and len(found.largest):
        contents.add_table("largest_holds", _storable(found.largest))
        section.entries.append(
            Entry("The most that does not flip", claims.largest(found.largest), table="largest_holds")
        )


def ranked(found: Explained) -> pd.DataFrame:
    """The decided comparisons as `representative` ranks them; a single one with edits is compared with itself, which says
    nothing, so that it has no tau."""
    ranking = representative(found.table, found.model, perturber=found.perturber)
    if (ranking["attributes"] > 0).sum() < 2:
        known = ranking["tau"].notna()
        ranking["tau"] = float("nan")
        ranking.loc[known, "reason"] = "only one comparison has edits, and the whole ranking is its own"
    return ranking


def _export(contents: Contents, found: Explained) -> None:
    """Pairs on which the reward went against the edit: what TRL would train a bias away with."""
    pairs = preference_pairs(
        found.table,
        list(found.comparisons.values()),
        which=Which.both,
        complied_only=False,
        model=found.model,
    ).pairs
    contents.files[PREFERENCES] = as_lines(pairs)


def _summary(
    found: Explained, sensitive: pd.DataFrame, told_apart: pd.DataFrame, measured: pd.DataFrame
) -> dict[str, float]:
    """The numbers by which explanations are found again; what is not known is not among them, as JSON has no NaN."""
    edits, placebo_edits = claims.made_edits(found.table)
    told = {
        "decided": len(found.decided),
        "undecided": len(found.undecided),
        "edits": len(edits),
        "placebo_edits": len(placebo_edits),
        "reward_sd": found.reward_sd,
        "tie": found.tie,
    }
    for row in sensitive[sensitive["attribute"] == PLACEBO].itertuples():
        told["placebo_flip_rate"] = float(row.flip_rate)
    for row in _of_attributes(sensitive, found.perturber).itertuples():
        told[f"flip_rate/{row.attribute}"] = float(row.flip_rate)
        told[f"change/{row.attribute}"] = float(row.change)
    for row in told_apart.itertuples():
        told[f"slope/{row.attribute}"] = float(row.slope)
    if len(edits):  # without an edit nothing was tried, and a coverage of 0 would say otherwise
        for row in of_attributes(measured, "coverage").itertuples():
            told[f"coverage/{row.among}/{row.side}"] = float(row.value)
    return {name: value for name, value in told.items() if math.isfinite(value)}


def _of_attributes(sensitive: pd.DataFrame, perturber: str) -> pd.DataFrame:
    """Without the placebo's row."""
    return sensitive[(sensitive["perturber"] == perturber) & (sensitive["attribute"] != PLACEBO)]


def _provenance(found: Explained) -> pd.DataFrame:
    told = {name: value for name, value in found.description.items() if not isinstance(value, dict)}
    trust = {"largest_difference": found.trust.get("largest_difference"), "checked": found.trust.get("n")}
    row = {"model": found.model, "path": found.path, **trust, "noise": found.noise, "tie": found.tie, **told}
    return pd.DataFrame([row])


def as_line(comparison: Comparison) -> str:
    """One comparison as `sources.read_jsonl` reads it."""
    turns = [{"role": turn.role, "content": turn.content} for turn in comparison.turns]
    told = {"key": comparison.key, "prompt": turns, "responses": list(comparison.responses)}
    return json.dumps(told | ({} if comparison.preferred is None else {"preferred": comparison.preferred}))


def _storable(table: pd.DataFrame) -> pd.DataFrame:
    """Texts as parquet can hold them; `complied` as a column that knows missing values."""
    table = table.copy()
    for column in table:
        if table[column].dtype == object and column != "complied":
            table[column] = [storable(value) if isinstance(value, str) else value for value in table[column]]
    if "complied" in table:
        table["complied"] = table["complied"].astype("boolean")
    return table
