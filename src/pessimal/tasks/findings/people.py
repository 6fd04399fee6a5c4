"""How far models agree with people, where items have an Elo."""

from pessimal.analysis.human import human_correlation, rank_difference
from pessimal.figures.human import forest, rank_gaps
from pessimal.tasks.findings.group import Scene


def agreement_with_people(scene: Scene) -> None:
    """Rank correlation of each model with people, and the items on which they part."""
    group, config, rewards = scene.group, scene.config, scene.rewards
    rated = group.tables[0].rows.drop_duplicates("text", keep=False).set_index("text")
    elo = rated["elo"].reindex(rewards.index)
    correlation = human_correlation(
        rewards, elo, replicates=config.replicates, confidence=config.confidence, seed=config.seed
    )
    difference = rank_difference(rewards, elo, paper=config.paper)
    scene.keep("human_correlation", correlation)
    scene.keep("rank_difference", difference)
    shown = correlation.assign(model=correlation["model"].map(group.labels()))
    closest = shown.loc[shown["spearman"].idxmax()]
    scene.tell(
        "How far the models agree with people",
        f"Spearman's ρ between a model's rewards and people's Elo over {len(rewards):,} items, with "
        f"{config.confidence:.0%} intervals (bootstrap over items; the Elo's own error is not in them). Closest to "
        f"people: {closest['model']}, ρ = {closest['spearman']:.3f}.",
        name="people",
        figure=forest(shown, title=f"Agreement with people: {group.prompt}"),
        table="human_correlation",
    )
    averaged = "counted among the raters, as published" if config.paper else "not among the raters averaged"
    scene.tell(
        "Where models and people part",
        f"Items by the difference between their median rank over {rewards.shape[1]} models and their rank by people, of "
        f"{len(rewards):,}; the people are {averaged}.",
        name="people-items",
        figure=rank_gaps(difference),
    )
    for row in correlation.itertuples():
        scene.note(f"human_spearman/{row.model}", float(row.spearman))
