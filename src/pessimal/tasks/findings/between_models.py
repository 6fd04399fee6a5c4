"""How far models agree, where they stand to one another, and what agreement follows."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pessimal.analysis.agreement import agreement, as_matrix
from pessimal.analysis.descriptors import model_matrices
from pessimal.analysis.geometry import dissimilarity, mds
from pessimal.analysis.noise_floor import noise_floor
from pessimal.analysis.rsa import rsa
from pessimal.config.schema import CompareConfig
from pessimal.errors import TableError
from pessimal.figures.heatmap import heatmap, heatmaps
from pessimal.figures.mds import mds as model_map
from pessimal.figures.model_matrices import model_matrices as matrices_drawn
from pessimal.figures.rsa import rsa as factor_plot
from pessimal.report.contents import Entry
from pessimal.tables import ScoreTable
from pessimal.tasks.findings.group import Scene
from pessimal.tasks.findings.scans import Rescans

TAILS = ["rbo", "rbo_extrapolated", "top_overlap", "bottom_overlap"]
"""What only looks at the ends of two rankings."""


def agreement_of_models(
    scene: Scene, rescans: Mapping[str, Rescans], no_rescans: Sequence[str] = ()
) -> pd.DataFrame:
    """Kendall's tau-b (returned, model × model), Spearman's rho and overlaps of every two models, with intervals.

    `rescans` are further scans of the group's models, by model; they give the noise floor. `no_rescans` says which
    scans do not, and why.
    """
    group, config = scene.group, scene.config
    pairs = agreement(scene.rewards, **_options(config))
    scene.keep("agreement", pairs)
    matrices = {value: as_matrix(pairs, value) for value in ("kendall", "spearman", "rbo")}
    for value, matrix in matrices.items():
        scene.contents.add_table(f"{group.stem}-{value}", matrix.rename_axis("model").reset_index())
    tau = matrices["kendall"]
    floor = _noise_floor(scene, rescans)
    left_out = f" No rescans: {'; '.join(no_rescans)}." if no_rescans else ""
    closest, farthest = (
        _pair(group.labels(), pairs.loc[row])
        for row in (pairs["kendall"].idxmax(), pairs["kendall"].idxmin())
    )
    ends = f"Closest: {closest}; farthest: {farthest}." if len(pairs) > 1 else f"{closest}."
    scene.tell(
        "How far the models agree",
        f"Kendall's τ-b of every two models over the {scene.shared}. {ends} "
        f"Intervals ({config.confidence:.0%}) are a bootstrap over {group.things}: they say how far another draw of as "
        f"many would move the number, and nothing about another wording. {_told_floor(floor, scene)}{left_out}",
        name="agreement",
        figure=heatmap(
            group.relabelled(tau),
            descriptors=group.descriptors(shown=True),
            floor=floor["kendall"].rename(index=group.labels()),
            title=f"Agreement between models: {group.prompt}",
        ),
        table="agreement",
    )
    _other_statistics(scene, pairs, matrices)
    _raw_vocabularies(scene)
    scene.note("kendall_mean", float(pairs["kendall"].mean()))
    scene.note("shared", len(scene.rewards))
    return tau


def _other_statistics(scene: Scene, pairs: pd.DataFrame, matrices: Mapping[str, pd.DataFrame]) -> None:
    group, config = scene.group, scene.config
    top = int(pairs["top"].iloc[0])
    scene.tell(
        "Agreement over all ranks, and at the top",
        f"Spearman's ρ weighs all ranks alike; rank-biased overlap (p = {config.rbo_persistence:g}, to rank "
        f"{min(config.rbo_depth, len(scene.rewards)):,}, not extrapolated) weighs the first most. Two models share on "
        f"average {pairs['top_overlap'].mean():.0%} of their highest {top} and {pairs['bottom_overlap'].mean():.0%} of "
        f"their lowest {top} {group.things}. Ties are taken in every order. The table above has all of these, and the "
        "extrapolated overlap.",
        name="overlap",
        figure=heatmaps(
            {
                "Spearman's ρ": group.relabelled(matrices["spearman"]),
                "rank-biased overlap": group.relabelled(matrices["rbo"]),
            },
            title=f"Agreement over all ranks, and at the top: {group.prompt}",
        ),
    )


def _raw_vocabularies(scene: Scene) -> None:
    """Agreement over every token, special and repeated texts included, of models with one vocabulary."""
    group = scene.group
    same: dict[str, list[ScoreTable]] = {}
    for table in group.tables:
        same.setdefault(table.identity.candidates_digest, []).append(table)
    pieces = [
        agreement(
            pd.DataFrame({t.identity.model: _by_id(t) for t in tables}),
            **_options(scene.config),
        )
        for tables in same.values()
        if len(tables) > 1 and len(tables[0].rows) > len(scene.rewards)
    ]
    if not pieces:
        return
    raw = pd.concat(pieces)
    scene.keep("agreement_raw", raw)
    sizes = " or ".join(f"{n:,}" for n in sorted(raw["n"].unique()))
    scene.say(
        "The same over raw vocabularies",
        f"{len(raw)} {'pair' if len(raw) == 1 else 'pairs'} of models with one vocabulary: over all its {sizes} {group.things}, pieces, special and "
        f"repeated texts included, τ-b is {raw['kendall'].min():.2f} to {raw['kendall'].max():.2f}, mean "
        f"{raw['kendall'].mean():.2f}.",
        table="agreement_raw",
    )


def _noise_floor(scene: Scene, rescans: Mapping[str, Rescans]) -> pd.DataFrame:
    """Each model's least agreement with a rescan of its own: index = model; empty where there is no rescan."""
    pieces = []
    for table in scene.group.tables:
        others = rescans.get(table.identity.model, {})
        floors = noise_floor(
            _by_id(table), {name: _by_id(t) for name, t in others.items()}, **_options(scene.config)
        )
        if len(floors):  # where tails were scored again in float32, both ends agree by construction
            again = floors["rescan"].map(lambda name, others=others: bool(others[name].identity.certain))
            floors.loc[again, TAILS] = np.nan
            floors["tails_again"] = again
        pieces.append(floors.assign(model=table.identity.model))
    whole = pd.concat([piece for piece in pieces if len(piece)]) if any(map(len, pieces)) else pd.DataFrame()
    if whole.empty:
        return pd.DataFrame(columns=["rescan", "n", "kendall", "rbo"])
    scene.keep("noise_floor", whole)
    return whole.sort_values("kendall").drop_duplicates("model").set_index("model")


def _told_floor(floor: pd.DataFrame, scene: Scene) -> str:
    if floor.empty and all(table.identity.source != "scan" for table in scene.group.tables):
        return "No noise floor: these are published scores."
    if floor.empty:
        model = scene.group.tables[0].identity.model
        return (
            "No noise floor: no model was scanned again. A scan in another precision gives one: pessimal scan "
            f"model={model} model.dtype=bfloat16 certain=0"
        )
    worst = floor.iloc[0]
    return (
        f"The noise floor, a model against its own rescan, is known for {len(floor)}; the least is τ = "
        f"{worst['kendall']:.3f} ({scene.group.labels()[floor.index[0]]}, {worst['rescan']}, all {worst['n']:,} "
        f"{scene.group.things})."
    )


def _by_id(table: ScoreTable) -> pd.Series:
    return table.rows.set_index("candidate_id")["reward"].astype(float)


def _options(config: CompareConfig) -> dict:
    """What agreement is told by the configuration."""
    return {
        "replicates": config.replicates,
        "confidence": config.confidence,
        "seed": config.seed,
        "persistence": config.rbo_persistence,
        "depth": config.rbo_depth,
        "top": config.top,
    }


def map_of_models(scene: Scene, tau: pd.DataFrame) -> None:
    """Metric multidimensional scaling of 1 − tau."""
    group = scene.group
    places, stress = mds(dissimilarity(tau), seed=scene.config.seed)
    scene.keep("mds", places.assign(stress=stress))
    scene.tell(
        "Where the models stand",
        f"Metric multidimensional scaling of 1 − τ between {len(tau)} models, τ over the {scene.shared}. Distances mean "
        f"something, directions do not; normalised stress {stress:.2f} (0 exact, .2 poor).",
        name="map",
        figure=model_map(
            places.assign(model=places["model"].map(group.labels())),
            stress=stress,
            descriptors=group.descriptors(shown=True),
            title=f"Map of the models: {group.prompt}",
        ),
    )


def what_agreement_follows(scene: Scene, tau: pd.DataFrame) -> None:
    """Representational similarity analysis against base, developer, size and rank."""
    group, config = scene.group, scene.config
    title = "What agreement follows"
    try:
        table = rsa(
            tau, group.descriptors(), permutations=config.permutations, seed=config.seed, paper=config.paper
        )
    except TableError as error:
        scene.section.entries.append(Entry(title, f"No representational similarity analysis: {error}"))
        return
    scene.keep("rsa", table)
    estimated = table.dropna(subset="beta")
    strongest = estimated.loc[estimated["beta"].abs().idxmax()]
    found = ", ".join(
        f"{r.factor} β = {r.beta:.2f} (partial r = {r.partial_r:.2f}, p = {_p(r.p_value)})"
        for r in estimated.itertuples()
    )
    scene.tell(
        title,
        f"Representational similarity analysis: the τ of {strongest['n_dyads']} pairs of {strongest['n_models']} models "
        f"(each over {len(scene.rewards):,} {group.things}) regressed on what they have in common. {found}; strongest: "
        f"{strongest['factor']}; R² = {strongest['r_squared']:.2f}. p from {config.permutations:,} permutations of the "
        "models (MRQAP), since pairs that share a model are dependent.",
        name="rsa",
        figure=factor_plot(table, title=f"What agreement follows: {group.prompt}"),
        table="rsa",
    )
    matrices = model_matrices(group.descriptors().loc[tau.index], paper=config.paper)
    scene.tell(
        "Agreement beside what models have in common",
        f"The observed τ of {len(tau)} models, and for each factor how alike two models are in it, all in one order. The "
        "regression above asks which of these patterns the first one follows, the others being equal.",
        name="matrices",
        figure=matrices_drawn(
            group.relabelled(tau),
            {factor: group.relabelled(matrix) for factor, matrix in matrices.items()},
            table=table,
            title=f"Agreement, and what models have in common: {group.prompt}",
        ),
    )
    for row in estimated.itertuples():
        scene.note(f"rsa/{row.factor}/beta", float(row.beta))
        scene.note(f"rsa/{row.factor}/p", float(row.p_value))


def _pair(labels: dict[str, str], row: pd.Series) -> str:
    a, b = labels[row["model_a"]], labels[row["model_b"]]
    return f"{a} and {b}, τ = {row['kendall']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"


def _p(value: float) -> str:
    return f"{value:.4f}" if value < 0.001 else f"{value:.3f}"
