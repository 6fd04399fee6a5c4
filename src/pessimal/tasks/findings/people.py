"""How far models agree with people, where items have an Elo."""

from collections.abc import Mapping

import pandas as pd

from pessimal.analysis.elo import reliability
from pessimal.analysis.human import ENDS, human_correlation, most_valued, rank_difference
from pessimal.config.schema import CompareConfig, Join
from pessimal.errors import TableError
from pessimal.figures.human import by_prompt, forest, rank_gaps
from pessimal.figures.trajectories import trajectories
from pessimal.figures.words import literal
from pessimal.report.contents import Contents, Entry
from pessimal.tasks.findings.group import Group, Scene

FOLLOWED, FARTHEST = 10, 5
"""Items drawn from rater to rater: those that people rank highest, and those at either end of the differences."""


def agreement_with_people(scene: Scene) -> None:
    """Rank correlation of each model with people, and the items on which they part.

    People said what is great. Where bad words answer the prompt (frames: −1), a model agrees with them that rewards
    least what they rank highest; so for items, rank 1 is then the lowest reward (unless `paper`).
    """
    config = scene.config
    elo, matches, unsure = _rated(scene)
    correlation = _correlation(scene, elo, matches, unsure)
    turned = config.frames.get(scene.group.prompt) == -1 and not config.paper
    rewards = -scene.rewards if turned else scene.rewards
    difference = rank_difference(
        rewards,
        elo,
        matches=matches,
        draws=config.replicates,
        confidence=config.confidence,
        seed=config.seed,
        paper=config.paper,
    ).assign(turned=turned)
    scene.keep("rank_difference", difference)
    valued = most_valued(difference, k=config.top)
    _parting(scene, difference, valued, unsure, turned=turned)
    agreeing = correlation.sort_values("spearman", ascending=turned, kind="stable")["model"]
    _trajectories(scene, rewards[list(agreeing)], elo, difference, valued, turned=turned)


def people_across_prompts(members: Mapping[str, Group], config: CompareConfig, contents: Contents) -> None:
    """Models and people under each prompt side by side: a section, where several prompts have items with an Elo.

    Takes the correlations that `agreement_with_people` kept, so it comes after that.
    """
    candidates = next(iter(members.values())).candidates
    pieces = [
        piece
        for piece in contents.tables.get("human_correlation", [])
        if piece["candidates"].iloc[0] == candidates and piece["prompt"].iloc[0] in members
    ]
    if len(pieces) < 2:
        return
    correlation = pd.concat(pieces, ignore_index=True)
    labels = {model: label for group in members.values() for model, label in group.labels().items()}
    stem = f"{candidates}-people"
    prompts = list(dict.fromkeys(correlation["prompt"]))
    contents.figures[stem] = by_prompt(
        correlation.assign(model=correlation["model"].map(labels)),
        signs=config.frames,
        title="Agreement with people, prompt by prompt",
    )
    section = contents.section(
        f"people across prompts · {candidates}",
        "People said once which items are greater. A model that reads the prompt agrees with them where good words answer "
        "it, and disagrees as much where bad words do.",
    )
    told = " ".join(_on_prompt(correlation[correlation["prompt"] == prompt], config) for prompt in prompts)
    right = _in_all_prompts(correlation, config)
    section.entries.append(
        Entry(
            "How far the models agree with people under each prompt",
            f"Spearman's ρ with people's Elo. {told} {right}How each model's own order changes from prompt to prompt "
            "(Kendall's τ, reversal score) stands in the sections on two prompts.",
            figure=stem,
            table="human_correlation",
            where={"candidates": candidates},
        )
    )


def _rated(scene: Scene) -> tuple[pd.Series, pd.Series | None, str]:
    """Elo and match counts of the items compared, or no match counts and why."""
    rows = scene.group.tables[0].rows.drop_duplicates("text", keep=False)
    if scene.config.join is Join.stripped:
        # As the reward matrix does: of texts that differ in outer white space only, the barest.
        barest = rows.loc[rows["text"].str.len().sort_values(kind="stable").index]
        rows = barest.assign(text=barest["text"].str.strip()).drop_duplicates("text")
    rated = rows.set_index("text").reindex(scene.rewards.index)
    try:
        reliability(rated["elo"], rated["elo_matches"])
    except TableError as error:
        return rated["elo"], None, str(error)
    return rated["elo"], rated["elo_matches"], ""


def _correlation(scene: Scene, elo: pd.Series, matches: pd.Series | None, unsure: str) -> pd.DataFrame:
    """The finding on correlations; returns their table."""
    group, config, rewards = scene.group, scene.config, scene.rewards
    correlation = human_correlation(
        rewards, elo, replicates=config.replicates, confidence=config.confidence, seed=config.seed
    )
    error = f"How surely people's ranks are known cannot be said: {unsure}"
    if matches is not None:
        known = reliability(elo, matches)
        correlation["reliability_at_most"] = known
        correlation["spearman_corrected"] = correlation["spearman"] / known**0.5
        error = (
            f"From the match counts at most {known:.1%} of the variance in Elo is not error, so that with people's true "
            f"order every ρ would be stronger by {known**-0.5 - 1:.1%} or more (spearman_corrected)."
        )
    scene.keep("human_correlation", correlation)
    shown = correlation.assign(model=correlation["model"].map(group.labels()))
    sign = config.frames.get(group.prompt, 1)
    closest = shown.loc[(sign * shown["spearman"]).idxmax()]
    scene.tell(
        "How far the models agree with people",
        f"Spearman's ρ between a model's rewards and people's Elo over {len(rewards):,} items, with "
        f"{config.confidence:.0%} intervals (bootstrap over items; the Elo's own error is not in them). "
        f"{'Bad words answer this prompt, so agreement is a negative ρ. ' if sign == -1 else ''}Closest to people: "
        f"{closest['model']}, ρ = {closest['spearman']:.3f} [{closest['low']:.3f}, {closest['high']:.3f}], "
        f"τ-b = {closest['kendall']:.3f}. {error} The people who ranked the items are not those who trained the models.",
        name="people",
        figure=forest(shown, title=f"Agreement with people: {group.prompt}"),
        table="human_correlation",
    )
    for row in correlation.itertuples():
        scene.note(f"human_spearman/{row.model}", float(row.spearman))
    return correlation


def _parting(
    scene: Scene, difference: pd.DataFrame, valued: pd.DataFrame, unsure: str, *, turned: bool
) -> None:
    """The items that models over- and undervalue most, as people see it."""
    models = scene.rewards.shape[1]
    scene.keep("valued", valued)
    told = [
        f"Items by the difference between their {'rank by the model' if models == 1 else f'median rank over {models} models'} "
        f"and their rank by people, of {len(difference):,}; rank 1 is people's highest and the models' "
        f"{'LOWEST reward, as bad words answer this prompt' if turned else 'highest reward'}."
    ]
    if scene.config.paper:
        told.append("The people are counted among the raters, as published, and there are no intervals.")
    else:
        told.append(
            "The people are not among the raters averaged; the published way, which counts them, stands beside "
            f"(difference_published). {_covered(difference, scene.config, unsure)} Listed are items whose interval leaves "
            "out zero and whose difference has the same sign when the medians are ranked once more (consensus_rank), "
            "since medians shrink to the middle. They are picked for being far out, so the differences are rather too "
            "large."
        )
    for end in ENDS:
        rows = valued[valued["end"] == end].head(3)
        named = ", ".join(
            f"{literal(name)} ({people:,.0f} → {model:,.0f})"
            for name, people, model in zip(rows["name"], rows["human_rank"], rows["model_rank"], strict=True)
        )
        told.append(f"Most {end} by models: {named or 'none'}.")
    scene.tell(
        "Where models and people part",
        " ".join(told),
        name="people-items",
        figure=rank_gaps(
            difference,
            ends=valued,
            title=f"Where models and people part: {_asked(scene, turned)}",
        ),
        table="valued",
    )


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


def _trajectories(
    scene: Scene,
    rewards: pd.DataFrame,
    elo: pd.Series,
    difference: pd.DataFrame,
    valued: pd.DataFrame,
    *,
    turned: bool,
) -> None:
    """Some items' ranks, from people through the models; `rewards` has the models in order of agreement."""
    ranks = rewards.rename(columns=scene.group.labels()).rank(ascending=False)
    ranks.insert(0, "people", elo.rank(ascending=False))
    highest = list(difference.sort_values("human_rank", kind="stable")["name"].head(FOLLOWED))
    groups = {f"the {len(highest)} items that people rank highest": highest}
    farthest = list(valued.loc[valued["rank"] <= FARTHEST, "name"])
    if farthest:
        groups[f"the {FARTHEST} at either end of the differences"] = farthest
    scene.tell(
        "From people to models",
        f"Each line is an item, at its rank by people and then by the {_models(rewards.shape[1])}, of {len(ranks):,} "
        f"items; models by falling agreement with people. {'Rank 1 of a model is its LOWEST reward. ' if turned else ''}"
        "A few items chosen for their ranks: they show how models depart from people, not how often.",
        name="people-trajectories",
        figure=trajectories(ranks, groups, title=f"From people to models: {_asked(scene, turned)}"),
    )


def _asked(scene: Scene, turned: bool) -> str:
    """The prompt, and which of the models' rewards counts as rank 1 where this is not the highest."""
    return f"{scene.group.prompt}, lowest reward first" if turned else scene.group.prompt


def _on_prompt(correlation: pd.DataFrame, config: CompareConfig) -> str:
    """The range of models under one prompt."""
    prompt, n = correlation["prompt"].iloc[0], correlation["n"].iloc[0]
    sign = config.frames.get(prompt)
    expected = {1: "expected positive", -1: "expected negative", None: "frame not stated"}[sign]
    low, high = correlation["spearman"].min(), correlation["spearman"].max()
    return f"{prompt} ({expected}): {low:.2f} to {high:.2f} over {_models(len(correlation))} and {n:,} items."


def _models(count: int) -> str:
    return f"{count} models" if count > 1 else "one model"


def _in_all_prompts(correlation: pd.DataFrame, config: CompareConfig) -> str:
    """How many models have, surely, the expected sign under every prompt whose frame is known."""
    sign = correlation["prompt"].map(config.frames)
    known = correlation[sign.notna()].assign(sign=sign)
    if known.empty:
        return ""
    sure = known["low"].where(known["sign"] == 1, -known["high"]) > 0
    right = sure.groupby(known["model"]).all()
    return f"The expected sign under every prompt, surely: {int(right.sum())} of {len(right)} models. "
