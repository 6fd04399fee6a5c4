"""Items on which models and people part, and how items travel from people to models.

Takes the table of `analysis.human.rank_difference`, in which models are turned round already where they should be.
"""

import pandas as pd

from pessimal.analysis.human import ENDS
from pessimal.config.schema import CompareConfig
from pessimal.figures.human import rank_gaps
from pessimal.figures.trajectories import trajectories
from pessimal.figures.words import literal
from pessimal.tasks.findings.group import Scene

FOLLOWED, FARTHEST = 10, 5
"""Items drawn from rater to rater: those that people rank highest, and those at either end of the differences."""


def parting(
    scene: Scene, difference: pd.DataFrame, valued: pd.DataFrame, unsure: str, sign: int | None
) -> None:
    """The items that models over- and undervalue most, as people see it."""
    models, turned = scene.rewards.shape[1], bool(difference["turned"].iloc[0])
    scene.keep("valued", valued)
    told = [
        f"Items by the difference between their {'rank by the model' if models == 1 else f'median rank over {models} models'} "
        f"and their rank by people, of {len(difference):,}; rank 1 is people's highest and the models' "
        f"{'LOWEST reward, as bad words answer this prompt' if turned else 'highest reward'}."
    ]
    if sign is None:
        told.append(
            "Whether good words answer this prompt or bad ones is not stated, so rewards are not turned round: if bad ones "
            "do, an item far out is one that models and people agree on."
        )
    elif sign == -1 and not turned:
        told.append(
            "As published, rewards are not turned round though bad words answer this prompt: an item far out is one that "
            "models and people agree on."
        )
    if scene.config.paper:
        told.append("The people are counted among the raters, as published, and there are no intervals.")
    else:
        told.append(
            "The people are not among the raters averaged; the published way, which counts them, stands beside "
            f"(difference_published). {_covered(difference, scene.config, unsure)} Listed are items whose "
            f"{'interval leaves out zero and whose ' if _sure(difference) else ''}difference has the same sign when the "
            "medians are ranked once more (consensus_rank), since medians shrink to the middle. They are picked for being "
            "far out, so the differences are rather too large."
        )
    if sign == 1 or turned:
        heads = {end: f"Most {end} by models" for end in ENDS}
    else:
        heads = dict(zip(ENDS, ("Farthest above people's rank", "Farthest below it"), strict=True))
    for end in ENDS:
        rows = valued[valued["end"] == end].head(3)
        named = ", ".join(
            f"{literal(name)} ({people:,.0f} → {model:,.0f})"
            for name, people, model in zip(rows["name"], rows["human_rank"], rows["model_rank"], strict=True)
        )
        told.append(f"{heads[end]}: {named or 'none'}.")
    scene.tell(
        "Where models and people part",
        " ".join(told),
        name="people-items",
        figure=rank_gaps(
            difference,
            ends=valued,
            turned=turned,
            title=f"Where models and people part: {_asked(scene, turned)}",
        ),
        table="valued",
    )


def _sure(difference: pd.DataFrame) -> bool:
    """Whether there are intervals, so that items were listed for being sure."""
    return bool(difference[["people_low", "models_low"]].notna().any(axis=None))


def _covered(difference: pd.DataFrame, config: CompareConfig, unsure: str) -> str:
    """What the intervals hold."""
    people, models = difference["people_low"].notna().any(), difference["models_low"].notna().any()
    level = f"Intervals ({config.confidence:.0%}, one item at a time)"
    least = "the least error that people's ranks have by their match counts"
    independent = "other models in place of these (as if independent, which models of one base are not)"
    if people and models:
        return f"{level} hold {least}, and {independent}."
    if people:
        return f"{level} hold {least}; too few models for an interval that holds other models as well."
    if models:
        return f"{level} hold {independent}, and no error of people's ranks: {unsure}"
    return f"There are no intervals, as there are too few models, and of people's error nothing is known: {unsure}"


def from_people_to_models(
    scene: Scene,
    rewards: pd.DataFrame,
    elo: pd.Series,
    difference: pd.DataFrame,
    valued: pd.DataFrame,
    sign: int | None,
) -> None:
    """Some items' ranks, from people through the models; `rewards` has the models in order of agreement, or of ρ."""
    models, turned = rewards.shape[1], bool(difference["turned"].iloc[0])
    order = "by falling ρ" if sign is None else "by falling agreement with people"
    ranks = rewards.rename(columns=scene.group.labels()).rank(ascending=False)
    ranks.insert(0, "people", elo.rank(ascending=False))
    highest = list(difference.sort_values("human_rank", kind="stable")["name"].head(FOLLOWED))
    groups = {f"the {len(highest)} items that people rank highest": highest}
    farthest = list(valued.loc[valued["rank"] <= FARTHEST, "name"])
    if farthest:
        groups[f"those farthest out{', of the items whose difference is sure' * _sure(difference)}"] = (
            farthest
        )
    asked = ""
    if turned:
        asked = "Rank 1 of a model is its LOWEST reward. "
    elif sign == -1:
        asked = "Bad words answer this prompt and rewards are not turned round, so a model that agrees ranks people's first last. "
    scene.tell(
        "From people to models",
        f"Each line is an item, at its rank by people and then by the {models_in_words(models)}, of {len(ranks):,} "
        f"items{f'; models {order}' if models > 1 else ''}. {asked}"
        "A few items chosen for their ranks: they show how models depart from people, not how often.",
        name="people-trajectories",
        figure=trajectories(
            ranks,
            groups,
            order=order,
            turned=turned,
            title=f"From people to models: {_asked(scene, turned)}",
        ),
    )


def _asked(scene: Scene, turned: bool) -> str:
    """The prompt, and which of the models' rewards counts as rank 1 where this is not the highest."""
    return f"{scene.group.prompt}, lowest reward first" if turned else scene.group.prompt


def models_in_words(count: int) -> str:
    """How many models, for sentences."""
    return f"{count} models" if count > 1 else "one model"
