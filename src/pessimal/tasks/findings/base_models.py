"""Language models beside reward models: what they would say, how far rewards follow that, and what the step from one to
another rewards."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from pessimal.analysis.extremes import extremes
from pessimal.analysis.implicit_reward import (
    divergence,
    implicit_extremes,
    implicit_reward,
    reward_correlation,
)
from pessimal.config.schema import CompareConfig
from pessimal.errors import TableError
from pessimal.figures.implicit_reward import implicit_bars, reward_forest
from pessimal.figures.words import literal
from pessimal.report.contents import Contents, Entry, Section
from pessimal.tables import ScoreTable
from pessimal.tasks.findings.group import Group, groups
from pessimal.tasks.findings.language_tables import bases_first, matched, one_a_model, side_by_side
from pessimal.tracking.registry import safe_name

WHOLE = 0.999
"""Share of the probability from which on the candidates of a pair count as all that the models could say."""
FIGURES = 12
"""Pairs on prompts that get a figure each; of more, all have their tables and none a figure."""


def base_models(
    language: Sequence[ScoreTable], members: Mapping[str, Group], config: CompareConfig, contents: Contents
) -> None:
    """A section on every prompt that language models were asked.

    Args:
        language: tables of log-probabilities of one candidate set.
        members: the reward models' groups of that set, by prompt.
        config: of the comparison.
        contents: to add to.

    Raises:
        TableError: two tables of one prompt cannot be put side by side, or see `one_a_model`.
    """
    asked = groups(one_a_model(language))
    scans = Counter((table.identity.prompt, table.identity.model) for table in language)
    pairs = sum(len(group.tables) * (len(group.tables) - 1) // 2 for group in asked)
    for group in asked:
        again = [model for model in group.labels() if scans[group.prompt, model] > 1]
        section = contents.section(
            f"Base models · {group.prompt} · {group.candidates}", _how_asked(group, again)
        )
        section.entries.append(_what_they_would_say(group, config, contents))
        rewarded = members.get(group.prompt)
        section.entries.append(_rewards_and_probabilities(group, rewarded, config, contents))
        for p, q in combinations(bases_first(group.tables), 2):
            entry = _step(group, p, q, rewarded, config, contents, drawn=pairs <= FIGURES)
            section.entries.append(entry)
        _say_where_there_is_no_pair(section, group)


def _how_asked(group: Group, again: Sequence[str]) -> str:
    wording = group.tables[0].identity.prompt_text
    asked: dict[str, list[str]] = {}
    for table in group.tables:
        way = table.measured.get("asked", "way not stated")
        asked.setdefault(way, []).append(group.labels()[table.identity.model])
    ways = "; ".join(f"{way}: {', '.join(map(_named, names))}" for way, names in asked.items())
    of = (
        "the next token's"
        if group.candidates == "vocabulary"
        else "the item's as a continuation, summed over its tokens; longer items are less likely for that alone"
    )
    several = (
        f" Scanned more than once: {', '.join(_named(group.labels()[model]) for model in again)}; shown is one in "
        "float32 where there is one."
        if again
        else ""
    )
    return (
        f"Log-probabilities of language models after “{wording}”, in nats: {of}. Asked as {ways}.{several} What a model would say "
        "first is not what it values: function words, line breaks and the first pieces of longer answers come before any."
    )


def _what_they_would_say(group: Group, config: CompareConfig, contents: Contents) -> Entry:
    """The likeliest and the unlikeliest candidates of every model (Christian et al. 2025, Tables A1–A5)."""
    told = []
    for table in group.tables:
        model = table.identity.model
        ends = extremes(table.rows, k=config.top)
        piece = ends.assign(probability=np.exp(ends["reward"])).rename(columns={"reward": "log_probability"})
        columns = ["end", "rank", "text", "log_probability", "probability", "tied", "certified"]
        contents.add_table("language_extremes", piece[columns].assign(model=model), **group.where)
        contents.summary[f"{group.stem}/likeliest/{model}"] = ends["text"].iloc[0]
        first = piece[piece["end"] == "top"]
        told.append(
            f"{_named(group.labels()[model])} “{literal(first['text'].iloc[0])}” (p = {first['probability'].iloc[0]:.2g}; the "
            f"first {len(first)} hold {_percent(first['probability'].sum())})"
        )
    certain = all(table.identity.dtype == "float32" for table in group.tables)
    noise = (
        "" if certain else " Low-precision models certify no rank: at the lower end theirs are mostly noise."
    )
    return Entry(
        "What the language models would say",
        f"The likeliest and the unlikeliest {group.things} of each model, of all it has. Likeliest: {'; '.join(told)}.{noise}",
        table="language_extremes",
        where=group.where,
    )


def _rewards_and_probabilities(
    group: Group, rewarded: Group | None, config: CompareConfig, contents: Contents
) -> Entry:
    """Each reward model's correlation with each language model."""
    title = "Do rewards follow log-probabilities?"
    found = side_by_side(group, rewarded, config)
    if isinstance(found, str):
        return Entry(title, found)
    rewards, scores = found
    try:
        table = _correlated(rewards, scores, config)
    except TableError as error:
        return Entry(title, f"Not computed: {error}")
    table = table.rename(columns={"score": "language_model"})
    contents.add_table("language_correlation", table, **group.where)
    for row in table.itertuples():
        key = f"{group.stem}/language_kendall/{row.language_model}/{row.model}"
        contents.summary[key] = float(row.kendall)
    shown = table.assign(
        model=table["model"].map(rewarded.labels()), score=table["language_model"].map(group.labels())
    )
    stem = f"{group.stem}-language-correlation"
    contents.figures[stem] = reward_forest(shown, title=f"{title} {group.prompt}")
    best = shown.loc[shown["kendall"].idxmax()]
    return Entry(
        title,
        f"Kendall's τ-b over the {len(rewards):,} {group.things} that all {rewards.shape[1] + scores.shape[1]} models share, with "
        f"{config.confidence:.0%} intervals (bootstrap over {group.things}). Highest: the rewards of {_named(best['model'])} with {_named(best['score'])}, "
        f"τ = {best['kendall']:.2f} [{best['low']:.2f}, {best['high']:.2f}]. Every one counts alike, also those that no model "
        "would say. Frequent words are likely under any model, so a correlation alone does not show that a reward was "
        "inherited: compare a reward model's own base with the others.",
        figure=stem,
        table="language_correlation",
        where=group.where,
    )


def _step(
    group: Group,
    p: ScoreTable,
    q: ScoreTable,
    rewarded: Group | None,
    config: CompareConfig,
    contents: Contents,
    *,
    drawn: bool,
) -> Entry:
    """The implicit reward of one pair of language models."""
    labels = group.labels()
    first, second = (labels[table.identity.model] for table in (p, q))
    title, pair = f"From {_named(first)} to {_named(second)}", f"{p.identity.model} → {q.identity.model}"
    where = group.where | {"pair": pair}
    try:
        table, how = matched(p, q, config)
        ends = implicit_extremes(table, k=config.top)
    except TableError as error:
        return Entry(title, f"Not compared: {error}")
    contents.add_table("implicit_reward", ends, **where)
    distance = _distance(table, how, group, contents, where)
    follows = _follows(group, p, q, rewarded, config, contents, where)
    stem = None
    if drawn:
        stem = f"{group.stem}-implicit-{safe_name(p.identity.model)}-{safe_name(q.identity.model)}"
        contents.figures[stem] = implicit_bars(ends, p_name=first, q_name=second, n=len(table))
    weighted = ends[ends["measure"] == "mwlr"]
    more, less = (
        literal(weighted[weighted["end"] == end]["text"].iloc[0], limit=24) for end in ("top", "bottom")
    )
    undrawn = "" if drawn else f" No figure: there are more than {FIGURES} pairs and prompts."
    return Entry(
        title,
        f"The implicit reward log q − log p of {_named(second)} (q) over {_named(first)} (p), and weighted by what the two "
        f"would say (MWLR), over {len(table):,} {group.things} {how}. By weight, {_named(second)} most raises “{more}” and "
        f"most lowers “{less}”. {distance}{follows}{undrawn}",
        figure=stem,
        table="implicit_reward",
        where=where,
    )


def _follows(
    group: Group,
    p: ScoreTable,
    q: ScoreTable,
    rewarded: Group | None,
    config: CompareConfig,
    contents: Contents,
    where: Mapping[str, str],
) -> str:
    """Correlates the reward models with the pair's measures; a sentence on it."""
    pair = Group(group.candidates, group.prompt, [p, q])
    found = side_by_side(pair, rewarded, config)
    if isinstance(found, str):
        return f" {found}"
    rewards, scores = found
    try:
        measures = implicit_reward(scores[p.identity.model], scores[q.identity.model])
        measures = measures[["implicit_reward", "mwlr"]].set_axis(scores.index)
        table = _correlated(rewards, measures, config)
    except TableError as error:
        return f" Reward models were not compared with it: {error}"
    contents.add_table("implicit_correlation", table.rename(columns={"score": "measure"}), **where)
    implicit = table[table["score"] == "implicit_reward"]
    best = implicit.loc[implicit["kendall"].abs().idxmax()]
    return (
        f" Of the reward models {_named(rewarded.labels()[best['model']])} goes furthest with the implicit reward or against "
        f"it: τ = {best['kendall']:.2f} [{best['low']:.2f}, {best['high']:.2f}] over {int(best['n']):,} shared {group.things}."
    )


def _correlated(rewards: pd.DataFrame, scores: pd.DataFrame, config: CompareConfig) -> pd.DataFrame:
    return reward_correlation(
        rewards, scores, replicates=config.replicates, confidence=config.confidence, seed=config.seed
    )


def _distance(
    table: pd.DataFrame, how: str, group: Group, contents: Contents, where: Mapping[str, str]
) -> str:
    """How far a pair is apart; a sentence on it."""
    if group.candidates != "vocabulary":
        return "Items are not all that the models could say, so no divergence is stated."
    found = divergence(table)
    contents.add_table("language_divergence", found.assign(matched=how), **where)
    apart = found.iloc[0]
    if min(apart["mass_p"], apart["mass_q"]) < WHOLE:
        return (
            f"These hold {apart['mass_p']:.1%} of p and {apart['mass_q']:.1%} of q, so Jeffreys' divergence is at least "
            f"{apart['jeffreys']:.3g} nats; what lies outside is not seen."
        )
    return (
        f"KL(q‖p) = {apart['kl_q_p']:.3g} and KL(p‖q) = {apart['kl_p_q']:.3g} nats, computed over the whole vocabulary and "
        "so without sampling error."
    )


def _say_where_there_is_no_pair(section: Section, group: Group) -> None:
    if len(group.tables) < 2:
        section.entries.append(
            Entry(
                "Implicit rewards",
                "Not computed: an implicit reward is between two language models, and one was asked. Scan another, such as "
                "the instruction-tuned model of the same base: pessimal scan model=auto model.path=DIR_OR_ID "
                "model.score=log_probability",
            )
        )


def _percent(share: float) -> str:
    """Whole percents, and of less than one two digits: items have next to nothing."""
    return f"{share:.0%}" if share >= 0.01 else f"{100 * share:.2g}%"


def _named(model: str) -> str:
    """A model's name in a sentence."""
    return literal(model, limit=60)
