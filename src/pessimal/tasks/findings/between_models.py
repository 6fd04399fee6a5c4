"""How far models agree, where they stand to one another, and what agreement follows."""

import pandas as pd

from pessimal.analysis.agreement import agreement, as_matrix
from pessimal.analysis.geometry import dissimilarity, mds
from pessimal.analysis.rsa import rsa
from pessimal.errors import TableError
from pessimal.figures.heatmap import heatmap
from pessimal.figures.mds import mds as model_map
from pessimal.figures.rsa import rsa as factor_plot
from pessimal.report.contents import Entry
from pessimal.tasks.findings.group import Scene


def agreement_of_models(scene: Scene) -> pd.DataFrame:
    """Kendall's tau-b (returned, model × model), Spearman's rho and RBO of every two models, with intervals."""
    group, config = scene.group, scene.config
    pairs = agreement(
        scene.rewards, replicates=config.replicates, confidence=config.confidence, seed=config.seed
    )
    scene.keep("agreement", pairs)
    for statistic in ("kendall", "spearman"):
        matrix = as_matrix(pairs, statistic)
        scene.contents.add_table(f"{group.stem}-{statistic}", matrix.rename_axis("model").reset_index())
    tau = as_matrix(pairs, "kendall")
    closest, farthest = (
        _pair(group.labels(), pairs.loc[row])
        for row in (pairs["kendall"].idxmax(), pairs["kendall"].idxmin())
    )
    scene.tell(
        "How far the models agree",
        f"Kendall's τ-b of every two models over the {scene.shared}. Closest: {closest}; farthest: {farthest}. "
        f"Intervals ({config.confidence:.0%}) are a bootstrap over {group.things}: they say how far another draw of as "
        "many would move the number, and nothing about another wording. Spearman's ρ and rank-biased overlap stand in "
        "the same table.",
        name="agreement",
        figure=heatmap(
            group.relabelled(tau),
            descriptors=group.descriptors(shown=True),
            title=f"Agreement between models: {group.prompt}",
        ),
        table="agreement",
    )
    scene.note("kendall_mean", float(pairs["kendall"].mean()))
    scene.note("shared", len(scene.rewards))
    return tau


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
    found = ", ".join(f"{r.factor} β = {r.beta:.2f} (p = {_p(r.p_value)})" for r in estimated.itertuples())
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
    for row in estimated.itertuples():
        scene.note(f"rsa/{row.factor}/beta", float(row.beta))
        scene.note(f"rsa/{row.factor}/p", float(row.p_value))


def _pair(labels: dict[str, str], row: pd.Series) -> str:
    a, b = labels[row["model_a"]], labels[row["model_b"]]
    return f"{a} and {b}, τ = {row['kendall']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"


def _p(value: float) -> str:
    return f"{value:.4f}" if value < 0.001 else f"{value:.3f}"
