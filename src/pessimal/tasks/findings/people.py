"""How far models agree with people, where items have an Elo."""

from collections.abc import Mapping

import pandas as pd

from pessimal.analysis.elo import reliability
from pessimal.analysis.human import corrected_for_error, human_correlation, most_valued, rank_difference
from pessimal.config.schema import CompareConfig
from pessimal.errors import TableError
from pessimal.figures.human import by_prompt, forest
from pessimal.report.contents import Contents, Entry
from pessimal.tasks.findings.factorial import sign_of, some
from pessimal.tasks.findings.group import Group, Scene
from pessimal.tasks.findings.people_items import from_people_to_models, models_in_words, parting
from pessimal.tasks.findings.rated import only_rated, other_people, people_of


def agreement_with_people(scene: Scene) -> None:
    """Rank correlation of each model with people, and the items on which they part.

    People said what is great. Where bad words answer the prompt (its sign is −1), a model agrees with them that
    rewards least what they rank highest; so for items, rank 1 is then the lowest reward (unless `paper`). Where the
    sign is not known nothing is turned round, and no model is called closest. Raises TableError where tables give the
    items different Elo.
    """
    scene = only_rated(scene)
    config, sign = scene.config, sign_of(scene.group.prompt, scene.config)
    elo, matches, unsure = _rated(scene)
    correlation = _correlation(scene, elo, matches, unsure, sign)
    turned = sign == -1 and not config.paper
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
    parting(scene, difference, valued, unsure, sign)
    agreeing = correlation.sort_values("spearman", ascending=sign == -1, kind="stable")["model"]
    from_people_to_models(scene, rewards[list(agreeing)], elo, difference, valued, sign)


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
    if len(set(labels.values())) < len(labels):  # two models that the figure would show as one
        labels = {model: model for model in labels}
    signs = {prompt: sign_of(prompt, config) for prompt in members}
    stem = f"{candidates}-people"
    prompts = list(dict.fromkeys(correlation["prompt"]))
    contents.figures[stem] = by_prompt(
        correlation.assign(model=correlation["model"].map(labels)),
        signs={prompt: sign for prompt, sign in signs.items() if sign is not None},
        title="Agreement with people, prompt by prompt",
    )
    section = contents.section(
        f"people across prompts · {candidates}",
        "People said once which items are greater. A model that reads the prompt agrees with them where good words answer "
        "it, and disagrees as much where bad words do.",
    )
    told = [_on_prompt(correlation[correlation["prompt"] == prompt], signs[prompt]) for prompt in prompts]
    told.append(_in_all_prompts(correlation, signs))
    if bare := [prompt for prompt in members if prompt not in prompts]:
        told.append(f"No score table with people's Elo: {some(bare)}.")
    if others := other_people({prompt: members[prompt] for prompt in prompts}):
        told.append(
            f"The Elo scores under {some(others)} are not those under {prompts[0]}, so that differences between these "
            "prompts may be people's."
        )
    section.entries.append(
        Entry(
            "How far the models agree with people under each prompt",
            f"Spearman's ρ with people's Elo. {' '.join(told)} How each model's own order changes from prompt to prompt "
            "(Kendall's τ, reversal score) stands in the sections on two prompts.",
            figure=stem,
            table="human_correlation",
            where={"candidates": candidates},
        )
    )


def _rated(scene: Scene) -> tuple[pd.Series, pd.Series | None, str]:
    """Elo and match counts of the items compared, or no match counts and why."""
    people = people_of(scene)
    try:
        reliability(people["elo"], people["elo_matches"])
    except TableError as error:
        return people["elo"], None, str(error)
    return people["elo"], people["elo_matches"], ""


def _correlation(
    scene: Scene, elo: pd.Series, matches: pd.Series | None, unsure: str, sign: int | None
) -> pd.DataFrame:
    """The finding on correlations; returns their table."""
    group, config, rewards = scene.group, scene.config, scene.rewards
    correlation = human_correlation(
        rewards, elo, replicates=config.replicates, confidence=config.confidence, seed=config.seed
    )
    error = f"How surely people's ranks are known cannot be said: {unsure}"
    if matches is not None:
        known = reliability(elo, matches)
        correlation = corrected_for_error(correlation, known)
        error = (
            f"From the match counts at most {known:.1%} of the variance in Elo is not error, so that with people's true "
            f"order every ρ would be stronger by {known**-0.5 - 1:.1%} or more (spearman_corrected, with an interval that "
            "takes this share as known)."
        )
    scene.keep("human_correlation", correlation)
    shown = correlation.assign(model=correlation["model"].map(group.labels()))
    scene.tell(
        "How far the models agree with people",
        f"Spearman's ρ between a model's rewards and people's Elo over {len(rewards):,} items, with "
        f"{config.confidence:.0%} intervals (bootstrap over items; the Elo's own error is not in them). "
        f"{_closest(shown, group.prompt, sign)} {error} The people who ranked the items are not those who trained the "
        "models.",
        name="people",
        figure=forest(shown, sign=sign, title=f"Agreement with people: {group.prompt}"),
        table="human_correlation",
    )
    for row in correlation.itertuples():
        scene.note(f"human_spearman/{row.model}", float(row.spearman))
    return correlation


def _closest(shown: pd.DataFrame, prompt: str, sign: int | None) -> str:
    """Which model agrees with people most, as far as the prompt's sign is known."""

    def numbers(place: int) -> str:
        row = shown.loc[place]
        return f"{row['model']}, ρ = {row['spearman']:.3f} [{row['low']:.3f}, {row['high']:.3f}], τ-b = {row['kendall']:.3f}"

    if sign is None:
        told = f"Highest: {numbers(shown['spearman'].idxmax())}."
        if len(shown) > 1:
            told += f" Lowest: {numbers(shown['spearman'].idxmin())}."
        return (
            "Whether good words answer this prompt or bad ones is not stated, so that no model can be called closest to "
            f"people (type +frames.{prompt}=1 or -1). {told}"
        )
    asked = "Bad words answer this prompt, so agreement is a negative ρ. " if sign == -1 else ""
    agreement = sign * shown["spearman"]
    told = f"{asked}{'Closest to people: ' if len(shown) > 1 else ''}{numbers(agreement.idxmax())}."
    if agreement.max() > 0:
        return told
    return f"{told} That is no agreement: {'no model has' if len(shown) > 1 else 'it does not have'} the expected sign."


def _on_prompt(correlation: pd.DataFrame, sign: int | None) -> str:
    """The range of models under one prompt."""
    prompt, n = correlation["prompt"].iloc[0], correlation["n"].iloc[0]
    expected = {1: "expected positive", -1: "expected negative", None: "frame not stated"}[sign]
    low, high = correlation["spearman"].min(), correlation["spearman"].max()
    found = f"{low:.2f}" if len(correlation) == 1 else f"{low:.2f} to {high:.2f}"
    return f"{prompt} ({expected}): {found} over {models_in_words(len(correlation))} and {n:,} items."


def _in_all_prompts(correlation: pd.DataFrame, signs: Mapping[str, int | None]) -> str:
    """How many models have, surely, the expected sign under every prompt, of those that have them all."""
    sign = correlation["prompt"].map({prompt: sign for prompt, sign in signs.items() if sign is not None})
    unknown = list(dict.fromkeys(correlation.loc[sign.isna(), "prompt"]))
    known = correlation.assign(sign=sign)[sign.notna()]
    untold = f"the frame of {some(unknown)} is not stated (type +frames.PROMPT=1 or -1)"
    if known.empty:
        return f"Which sign to expect cannot be said: {untold}."
    prompts = known["prompt"].nunique()
    whole = known.groupby("model")["prompt"].transform("nunique") == prompts
    sure = known["low"].where(known["sign"] == 1, -known["high"]) > 0
    right = sure[whole].groupby(known["model"]).all()
    fewer = correlation["model"].nunique() - len(right)
    told = f"The expected sign under every prompt{' whose frame is stated' if unknown else ''}, surely: "
    if len(right):
        told += f"{int(right.sum())} of {len(right)} model{'s' * (len(right) != 1)}"
        if fewer:
            there = f"a ρ under {f'all {prompts} of them' if prompts > 1 else 'it'}"
            told += f" ({fewer} without {there} {'is' if fewer == 1 else 'are'} not counted)"
    else:
        told += f"cannot be said, as no model has a ρ under all {prompts} of them"
    return f"{told}; {untold}." if unknown else f"{told}."
