"""The page of one model's explanations: which attributes move its preferences, how well that is known, and examples.

Knows the table of outcomes and what was computed from it. Does not know models, perturbers or registries.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pessimal.config.schema import ExplainConfig
from pessimal.contrast.attribute import Attribute
from pessimal.contrast.comparison import Comparison
from pessimal.contrast.compliance import compliance, flip_rates, off_target
from pessimal.contrast.distances import syntactic
from pessimal.contrast.embedding import embed
from pessimal.contrast.metrics import Pairwise, metrics
from pessimal.contrast.outcomes import COUNTERFACTUAL, PLACEBO
from pessimal.contrast.preferences import Which, preference_pairs
from pessimal.contrast.representatives import representative
from pessimal.contrast.sensitivity import sensitivity
from pessimal.figures import contrast_metrics
from pessimal.figures import off_target as off_target_figure
from pessimal.figures.sensitivity import sensitivity_forest
from pessimal.figures.words import significant
from pessimal.report.contents import Contents, Entry, Section
from pessimal.report.edits import to_json, views
from pessimal.tables.kinds import storable

PREFERENCES, COMPARISONS = "preferences.jsonl", "comparisons.jsonl"


@dataclass(frozen=True)
class Explained:
    """What an explanation found, before it is summarised."""

    model: str
    description: dict
    """What pins the model down, for the page's provenance."""
    comparisons: dict[str, Comparison]
    """Those that the model can read, by key."""
    attributes: dict[str, Attribute]
    detected: tuple[pd.DataFrame, pd.DataFrame]
    """What the detectors find in the texts before and after; rows labelled as the table."""
    table: pd.DataFrame
    """Outcomes, with distances and compliance."""
    smallest: pd.DataFrame | None
    """The least of each counterfactual that still flips; None where it was not looked for."""
    largest: pd.DataFrame | None
    """The most of each response that may be changed without a flip."""
    decided: Sequence[str]
    undecided: Sequence[str]
    too_long: Sequence[str]
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

    @property
    def perturber(self) -> str:
        return str(self.table["perturber"].iloc[0])


def explain_contents(found: Explained, config: ExplainConfig) -> Contents:
    """Sections, figures, tables, views, preference pairs and summary of one model's explanations."""
    drawn = {"replicates": config.replicates, "confidence": config.confidence, "seed": config.seed}
    sensitive = sensitivity(found.table, permutations=config.permutations, **drawn)
    own = sensitive[sensitive["perturber"] == found.perturber]
    quality = metrics(found.table, pairwise=pairwise(found.table), **drawn)
    contents = Contents()
    contents.add_table("outcomes", _storable(found.table))
    contents.add_table("sensitivity", sensitive)
    contents.add_table("metrics", quality)
    contents.add_table("provenance", _provenance(found))
    name = f"{found.model} · {config.comparisons.name} · {found.perturber}"
    section = contents.section(name, _asked(found, sensitive))
    _sensitivity(section, contents, found, sensitive, own, config)
    _examples(contents.section(f"{name} · to be read", _how_to_read(found)), contents, found, config)
    _quality(
        contents.section(f"{name} · how good the edits are", _made(found)), contents, found, quality, config
    )
    _export(contents, found)
    _summarise(contents, found, own, sensitive, quality)
    return contents


def _sensitivity(
    section: Section,
    contents: Contents,
    found: Explained,
    sensitive: pd.DataFrame,
    own: pd.DataFrame,
    config: ExplainConfig,
) -> None:
    placebo = sensitive[sensitive["attribute"] == PLACEBO]
    drawn = pd.concat([own[own["attribute"] != PLACEBO], placebo], ignore_index=True)
    contents.figures["sensitivity"] = sensitivity_forest(drawn, confidence=config.confidence)
    section.entries.append(
        Entry(
            "Which attributes move its preferences",
            f"{_leaders(own)} {_null(placebo)} A flip: the other response is preferred after the edit. q: corrected over the "
            f"attributes (Benjamini-Hochberg), against edits that keep the meaning. Intervals: {config.confidence:.0%}, over "
            "comparisons: of flip rates exact binomial at the number of edits that they are worth, of changes bootstrap.",
            figure="sensitivity",
            table="sensitivity",
        )
    )


def _leaders(own: pd.DataFrame) -> str:
    """The attributes that move the margin most, with their numbers; and how many are told from the placebo."""
    rows = own[own["attribute"] != PLACEBO].dropna(subset=["flip_rate"])
    if rows.empty:
        return "No edit came about, so nothing is known."
    first = rows.sort_values(["flip_rate", "change"], ascending=[False, True], kind="stable").head(3)
    told = "; ".join(
        f"{row.attribute} {row.flip_rate:.0%} ({row.counterfactuals} of {row.n} edits, {row.comparisons} comparisons; mean change "
        f"{significant(row.change)} SD)"
        for row in first.itertuples()
    )
    surely = [row.attribute for row in rows.itertuples() if row.flip_q < 0.05 or row.change_q < 0.05]
    against = (
        f"{len(surely)} of {len(rows)} attributes move it otherwise than the placebo (q < .05)"
        if rows["change_q"].notna().any()
        else "there is no placebo to hold them against"
    )
    return f"Flip rate, highest first: {told}. {against[0].upper()}{against[1:]}{': ' + ', '.join(surely) if surely else ''}."


def _null(placebo: pd.DataFrame) -> str:
    if placebo.empty or not placebo["n"].sum():
        return ""
    row = placebo.iloc[0]
    return (
        f"Edits that keep the meaning flip {row['flip_rate']:.1%} ({row['flip_low']:.1%} to {row['flip_high']:.1%}, n = {row['n']}): "
        "the grey band."
    )


def _examples(section: Section, contents: Contents, found: Explained, config: ExplainConfig) -> None:
    """The comparisons whose own ranking of attributes is most like the model's, in full; flips first."""
    ranking = representative(found.table, found.model, perturber=found.perturber)
    contents.add_table("representatives", ranking)
    keys = ranking["comparison"].head(config.examples).tolist()
    rows = found.table[found.table["edited"].notna() & (found.table["perturber"] == found.perturber)]
    shown = (
        pd.concat([_flips_first(rows[rows["comparison"] == key]) for key in keys]) if keys else rows.iloc[:0]
    )
    contents.files[COMPARISONS] = "".join(as_line(c) + "\n" for c in found.comparisons.values())
    contents.files["views/examples.json"] = to_json(views(shown, found.comparisons))
    best = ranking.iloc[0] if len(ranking) else None
    told = (
        ""
        if best is None or np.isnan(best["tau"])
        else f" The first: τ-b {best['tau']:.2f} over {best['attributes']} attributes."
    )
    section.entries.append(
        Entry(
            f"The {len(keys)} most representative comparisons",
            "Those in which the attributes stand in the same order as over all comparisons, by how far their edits move the "
            f"margin.{told} Of each response the edits that move it most come first.",
            table="representatives",
            views="examples",
        )
    )
    if found.smallest is not None and len(found.smallest):
        _smallest(section, contents, found.smallest)
    if found.largest is not None and len(found.largest):
        _largest(section, contents, found.largest)


def _flips_first(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.sort_values("change", kind="stable")


def _smallest(section: Section, contents: Contents, smallest: pd.DataFrame) -> None:
    contents.add_table("smallest_flips", _storable(smallest))
    fewer = smallest["tokens"] < smallest["tokens_before"]
    section.entries.append(
        Entry(
            "The least that still flips",
            f"Of {len(smallest):,} flips {int(fewer.sum()):,} need fewer changes than the edit made: the median falls from "
            f"{smallest['tokens_before'].median():.0f} changed tokens to {smallest['tokens'].median():.0f}. "
            f"{int(smallest['exact'].sum()):,} are the smallest choice of the edit's separate changes there is; of the others no single "
            "change can be taken back.",
            table="smallest_flips",
        )
    )


def _largest(section: Section, contents: Contents, largest: pd.DataFrame) -> None:
    contents.add_table("largest_holds", _storable(largest))
    section.entries.append(
        Entry(
            "The most that does not flip",
            f"{len(largest):,} responses, each begun at the edit that changes most without a flip and grown with the response's other "
            f"edits while the preference holds: the median rises from {largest['tokens_before'].median():.0f} changed tokens to "
            f"{largest['tokens'].median():.0f}.",
            table="largest_holds",
        )
    )


def _quality(
    section: Section, contents: Contents, found: Explained, quality: pd.DataFrame, config: ExplainConfig
) -> None:
    coverage = quality[(quality["metric"] == "coverage") & ~quality["placebo"]]
    contents.figures["coverage"] = contrast_metrics.coverage(
        coverage.rename(columns={"among": "kind", "value": "coverage"}), confidence=config.confidence
    )
    section.entries.append(
        Entry(
            "How many comparisons have an explanation", _covered(coverage), figure="coverage", table="metrics"
        )
    )
    made = found.table[found.table["edited"].notna()]
    if made["semantic"].notna().any():
        contents.figures["distances"] = contrast_metrics.distances(found.table)
        section.entries.append(
            Entry(
                "How far the edits go",
                "Syntactic: Levenshtein distance in tokens over the longer text's. Semantic: 1 − cosine of sentence embeddings "
                "(MiniLM). On all edits and on those that flip: flips alone would favour whoever flips little.",
                figure="distances",
            )
        )
    section.entries.append(
        Entry("Whether the edits did what was asked", _complied(found), table="compliance")
    )
    contents.add_table("compliance", compliance(found.table, confidence=config.confidence))
    contents.add_table("flip_rates", flip_rates(found.table, confidence=config.confidence))
    section.entries.append(
        Entry(
            "Flip rates among the edits that did",
            "An attribute whose edits seldom did what was asked says little about the model: its flip rate is over all edits, over those "
            "that did what was asked, and over the others.",
            table="flip_rates",
        )
    )
    _off_target(section, contents, found, config)


def _off_target(section: Section, contents: Contents, found: Explained, config: ExplainConfig) -> None:
    attributes = list(found.attributes.values())
    moved = off_target(found.table, *found.detected, attributes, confidence=config.confidence)
    contents.add_table("off_target", moved)
    if moved["mean"].isna().all():
        return
    order = [*found.attributes, PLACEBO]
    matrix = moved.pivot(index="asked", columns="detector", values="mean")
    matrix = matrix.loc[[name for name in order if name in matrix.index], [n for n in order if n in matrix]]
    counts = moved.groupby("asked")["n"].max()
    contents.figures["off_target"] = off_target_figure.off_target(
        matrix,
        label="mean change of what the detector counts, in its SD, as the asked attribute is raised",
        counts=counts,
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


def _covered(coverage: pd.DataFrame) -> str:
    def share(among: str, side: str) -> str:
        row = coverage[(coverage["among"] == among) & (coverage["side"] == side)].iloc[0]
        return f"{row['value']:.0%} ({row['low']:.0%} to {row['high']:.0%}) {side}"

    sides = ("chosen", "rejected", "both")
    n = int(coverage["n"].max())
    flips, holds = (", ".join(share(among, side) for side in sides) for among in (COUNTERFACTUAL, "SF"))
    return f"Of {n} decided comparisons at least one edit flips: {flips}. At least one holds: {holds}."


def _complied(found: Explained) -> str:
    asked = found.table[found.table["attribute"] != PLACEBO]
    judged = asked[asked["complied"].notna()]
    if judged.empty:
        return "The judge has no opinion on any of these attributes."
    did = judged["complied"].astype(bool)
    flips = (judged["outcome"] == COUNTERFACTUAL).groupby(did).mean()
    given = "; ".join(
        f"{flips[way]:.1%} of those that {'did' if way else 'did not'}"
        for way in (True, False)
        if way in flips
    )
    return (
        f"A judge that knows nothing of who made the edits finds that {did.mean():.0%} of {len(judged):,} moved their attribute the asked way. "
        f"Flips: {given}. A model that resists an edit which did nothing has not been tried."
    )


def _asked(found: Explained, sensitive: pd.DataFrame) -> str:
    edits = found.table[found.table["attribute"] != PLACEBO]
    said = [
        f"{len(found.decided)} comparisons in which the model prefers one response; the preferred one was made worse and the other "
        f"better along {edits['attribute'].nunique()} attributes, {int(edits['edited'].notna().sum()):,} edits in all"
    ]
    if found.undecided:
        said.append(
            f"{len(found.undecided)} comparisons are left out as ties (margin up to {significant(found.tie)})"
        )
    if found.too_long:
        said.append(f"{len(found.too_long)} as longer than the model reads")
    return "; ".join(said) + (
        f". Changes are in standard deviations of the model's rewards ({significant(found.reward_sd)}, over "
        f"{2 * (len(found.decided) + len(found.undecided))} responses)."
    )


def _how_to_read(found: Explained) -> str:
    return (
        "The margin is the preferred response's reward less the other's. An edit of either flips the preference where the margin falls "
        "below zero (a counterfactual); otherwise it holds (a semifactual)."
    )


def _made(found: Explained) -> str:
    edits = found.table[found.table["attribute"] != PLACEBO]
    counts = edits["status"].value_counts()
    told = ", ".join(f"{n:,} {status}" for status, n in counts.items())
    return f"{len(edits):,} edits were asked for: {told}."


def _export(contents: Contents, found: Explained) -> None:
    """Pairs on which the reward went against the edit: what TRL would train a bias away with."""
    pairs = preference_pairs(
        found.table,
        list(found.comparisons.values()),
        which=Which.both,
        complied_only=False,
        model=found.model,
    ).pairs
    contents.files[PREFERENCES] = "".join(json.dumps(pair) + "\n" for pair in pairs)


def _summarise(
    contents: Contents, found: Explained, own: pd.DataFrame, sensitive: pd.DataFrame, quality: pd.DataFrame
) -> None:
    summary = contents.summary
    summary |= {
        "decided": len(found.decided),
        "undecided": len(found.undecided),
        "edits": int(found.table["edited"].notna().sum()),
        "reward_sd": found.reward_sd,
        "tie": found.tie,
    }
    placebo = sensitive[sensitive["attribute"] == PLACEBO]
    if len(placebo):
        summary["placebo_flip_rate"] = float(placebo["flip_rate"].iloc[0])
    for row in own[own["attribute"] != PLACEBO].itertuples():
        summary[f"flip_rate/{row.attribute}"] = float(row.flip_rate)
        summary[f"change/{row.attribute}"] = float(row.change)
    covered = quality[(quality["metric"] == "coverage") & ~quality["placebo"]]
    for row in covered.itertuples():
        summary[f"coverage/{row.among}/{row.side}"] = float(row.value)


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
