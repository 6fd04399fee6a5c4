"""Models against people: rewards of named items beside the items' Elo.

The published scores come without errors: people's ranks are taken as they are.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd
from scipy.stats import rankdata
from scipy.stats import t as student

from pessimal.analyses.agreement import TAUS, agreement
from pessimal.analyses.analysis import (
    Heads,
    Needs,
    Options,
    align,
    analysis,
    check_rewards,
    check_varied,
    heads_of,
    notes_on_states,
    quoted,
    random_head_clause,
)
from pessimal.analyses.nulls import heads_on_ranks, intervals, p_values
from pessimal.analyses.ranks import ranked, spearman
from pessimal.errors import TableError
from pessimal.plots import Forest, Lines
from pessimal.statistics import LEVEL
from pessimal.tables import ScoreTable
from pessimal.tables.result import Effect, Estimate, Result
from pessimal.tables.table_set import MANY_PROMPTS, TableSet
from pessimal.texts import literal

ENDS = ("overvalued", "undervalued")
"""By models, as people see it."""
MAX_ROWS = 12
"""Items at each end of the figure of differences."""
TOP_ITEMS, FAR_ITEMS = 10, 5
"""Items that are followed from rater to rater: people's highest, and the farthest at each end."""
PEOPLE = "people"
FIRST, APART = "people's first ten", "farthest apart"
_COLUMNS = ["model_a", "model_b", "n", "kendall", "low", "high"]
DIFFERENCE = Effect(
    *("difference", "models' rank − people's rank"),
    p="p_corrected",
    correction="Benjamini-Hochberg",
    null=0.0,
    n="n_models",
    of="models",
)


def human_correlation(
    rewards: pd.DataFrame,
    elo: pd.Series,
    *,
    heads: Mapping[str, Callable[[Sequence[str]], np.ndarray]] | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Spearman's correlation of each model's rewards with the human scores; ties take mid-ranks.

    The intervals are over items (see `nulls.intervals`); the human scores' own error is not in
    them. Whether a head that nobody trained would agree as much is another question
    (`random_head`, see `nulls.heads_on_ranks`).

    Args:
        rewards: items × models.
        elo: human score per item, higher is better, indexed by the same items.
        heads: by model, items → the states (items, spaces, directions) that random heads would be
            on; of a model without them random_head is missing.
        confidence: of the intervals.

    Returns:
        One row per model: model, n, spearman, low, high, p, random_head, heads_within.

    Raises:
        TableError: see `analysis.check_rewards`; or the items differ, or the human scores do not
            vary.

    Source: Christian et al. 2025, Figure 5A.
    """
    check_rewards(rewards)
    check_varied(rewards)
    people = _people_like(rewards, elo)
    check_varied(people.to_frame("human scores"))
    human = ranked(people.to_numpy())
    rhos = [spearman(ranked(rewards[model].to_numpy()), human) for model in rewards]
    rho, low, high = intervals(rhos, confidence=confidence)
    numbers = {"spearman": rho, "low": low, "high": high, "p": p_values(rhos)}
    table = pd.DataFrame({"model": list(rewards), "n": len(rewards), **numbers})
    table = table.assign(random_head=np.nan, heads_within=np.nan)
    if heads:
        items, held = rewards.index.tolist(), table["model"].isin(list(heads)).to_numpy()
        states = [heads[model](items) for model in table["model"][held]]
        values, groups = rewards.to_numpy()[:, held], np.arange(len(items))
        untrained = heads_on_ranks(values, people.to_numpy(), groups, states)
        table.loc[held, ["random_head", "heads_within"]] = np.transpose(untrained)
    return table


def rank_difference(rewards: pd.DataFrame, elo: pd.Series, *, paper: bool = False) -> pd.DataFrame:
    """Each item's median rank over the models less its human rank; rank 1 is the highest, ties
    share their average.

    The people are not among the raters averaged; published was the median over models *and* people
    (`paper`), which pulls every difference towards zero. Noise alone pulls ranks to
    the middle: at both ends the test also finds the models' disagreement with one another. It takes
    models for independent draws; relatives of one base or developer are not.

    Args:
        rewards: items × models.
        elo: as in `human_correlation`.
        paper: count the people among the raters, as published; nothing is tested then.

    Returns:
        One row per item, in the order of `rewards`: name, human_rank, model_rank (median),
        difference (model − human: negative where models rank the item higher), lower_quartile and
        upper_quartile (of the models' differences), n_models, t (of the
        models' mean rank against people's: positive where models rank the item lower), p
        (two-sided), p_corrected (Benjamini & Hochberg over the items). The last three are NaN for
        one model, for models that all agree, and in `paper`.

    Raises:
        TableError: see `analysis.check_rewards`; or the items differ.

    Source: Christian et al. 2025, Figure 5B; Benjamini & Hochberg 1995.
    """
    check_rewards(rewards)
    human = rankdata(-_people_like(rewards, elo).to_numpy())
    differences = rankdata(-rewards.to_numpy(), axis=0) - human[:, None]  # (items, models)
    raters = np.column_stack([differences, np.zeros(len(human))]) if paper else differences
    difference = np.median(raters, axis=1)
    t = p = np.full(len(human), np.nan)
    if np.ptp(differences, axis=1).any() and not paper:
        with np.errstate(divide="ignore", invalid="ignore"):  # items that models agree on
            error = differences.std(axis=1, ddof=1) / rewards.shape[1] ** 0.5
            t = differences.mean(axis=1) / error
        p = 2 * student.sf(np.abs(t), rewards.shape[1] - 1)
    # The index as it is: a list of its items would become Arrow strings, which cannot hold a lone
    # surrogate.
    table = pd.DataFrame({"name": rewards.index}).assign(
        human_rank=human,
        model_rank=human + difference,
        difference=difference,
        lower_quartile=np.quantile(differences, 0.25, axis=1),
        upper_quartile=np.quantile(differences, 0.75, axis=1),
        n_models=rewards.shape[1],
        t=t,
        p=p,
    )
    return DIFFERENCE.correct(table)


def most_valued(difference: pd.DataFrame, *, k: int = 20) -> pd.DataFrame:
    """The items that models overvalue most, as people see it, and those they undervalue most.

    Of those whose corrected p is at most .05, with mean and median on one side; where nothing was
    tested (as published, or one model), of all. Items are picked for being far out, so their
    differences are more likely too large than too small.

    Returns:
        At most 2k rows of `rank_difference` with, in front: end (`overvalued`, `undervalued`), rank
        (1 = the farthest). Equal differences keep the order of the rows.
    """
    rows = difference
    if difference["p"].notna().any():
        same_side = np.sign(difference["t"]) == np.sign(difference["difference"])
        rows = difference[same_side & (difference["p_corrected"] <= LEVEL)]
    pieces = []
    for end, sign in zip(ENDS, (-1, 1), strict=True):
        far = rows[sign * rows["difference"] > 0]
        far = far.sort_values("difference", ascending=sign < 0, kind="stable").head(k)
        pieces.append(far.assign(end=end, rank=range(1, len(far) + 1)))
    ends = pd.concat(pieces, ignore_index=True)
    return ends[["end", "rank", *difference]]


def _people_like(rewards: pd.DataFrame, elo: pd.Series) -> pd.Series:
    """The human scores in the order of the rewards' items."""
    people = align(rewards, elo, left_name="the rewards", right_name="the human scores").astype(
        float
    )
    check_rewards(people.to_frame("human scores"))
    return people


@analysis("people", Needs(elo=True, prompts=0), place=140)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Agreement of models with the people who rated the items, and on which items they differ.

    Where bad words answer the prompt (polarity −1), a model agrees that rewards least what people
    rank highest; so rank 1 is then the lowest reward (`turned`), but in `paper`. Where the polarity
    is not known nothing is turned.

    Tables:
        people_agreement: How alike models and people order items; people are a row as the models
            are.
            - as everywhere: model_a, model_b, n, kendall, low, high, prompt, candidates
        human_correlation: Rank correlation of each model's rewards with people's Elo.
            - as everywhere: model, n, spearman, p, p_corrected, detectable, prompt, candidates,
                random_head, heads_within, states
            - low: lower end of the interval of ρ
            - high: upper end of the interval of ρ
        rank_difference: Each item's median rank over models less its human rank; 1 is the highest.
            - as everywhere: n_models, p, prompt, candidates
            - name: the item
            - human_rank: rank by Elo
            - model_rank: median rank over the models
            - difference: model_rank less human_rank, in ranks; negative where models rank it higher
            - lower_quartile: lower quartile of the models' ranks, less human_rank
            - upper_quartile: upper quartile of the models' ranks, less human_rank
            - t: Student's t of the models' mean rank against people's, positive where models rank
                the item lower
            - p_corrected: p corrected by Benjamini and Hochberg over the items
            - turned: whether the prompt was turned round, bad answers being asked for
        valued: The items that models over- and undervalue most.
            - as in rank_difference
            - end: overvalued or undervalued
            - rank: 1 is the farthest
    """
    members_of = {p: [t for t in tables.by_prompt[p] if t.has_elo] for p in tables.prompts}
    rated = {prompt: members for prompt, members in members_of.items() if members}
    if not rated:
        raise TableError("several wordings have Elo. Take one at a time: prompts=[KEY]")
    collected: list[list[pd.DataFrame]] = []
    notes = _left_out(tables, rated)
    meanings = heads_of({}, options)  # one for all: they are solved together
    heads: dict[str, Heads | None] = {}
    for prompt, members in rated.items():
        rewards = tables.matrix(prompt)[[table.provenance.model for table in members]]
        people = people_of(members, rewards.index, stripped=tables.stripped(members))
        elo, sign = people["elo"], tables.reading.polarity_of(prompt)
        for table in members:
            states = None if table.states is None else heads_of({prompt: [table]}, options)
            heads[table.model] = None if options.paper else states or meanings
        by_model = {m: partial(on, outcome=prompt) for m in rewards if (on := heads[m]) is not None}
        correlation = human_correlation(rewards, elo, heads=by_model, confidence=options.confidence)
        correlation["states"] = [on.of if (on := heads[m]) else "" for m in rewards]
        turned = sign == -1 and not options.paper
        rewards = -rewards if turned else rewards
        difference = rank_difference(rewards, elo, paper=options.paper).assign(turned=turned)
        valued = most_valued(difference, k=options.top)
        agreeing = correlation.sort_values("spearman", ascending=sign == -1, kind="stable")["model"]
        rhos = correlation.set_index("model")["spearman"] * (-1 if turned else 1)
        lines = _from_people_to_models(rewards[list(agreeing)], difference, valued, rhos)
        if rewards.shape[1] == 1:
            notes.append(
                f"{prompt}: of one model's scores it cannot be told which differences are noise"
            )
        raters = (-rewards if turned else rewards).assign(**{PEOPLE: elo})
        taus = agreement(raters, confidence=options.confidence)[_COLUMNS]
        frames = (correlation, taus, difference, valued, lines)
        collected.append(
            [frame.assign(prompt=prompt, candidates=tables.candidates) for frame in frames]
        )
    correlation, taus, difference, valued, lines = (
        pd.concat(frames, ignore_index=True) for frames in zip(*collected, strict=True)
    )
    notes += notes_on_states(heads, tables.labels)
    plot = Lines(
        data=lines,
        x="rater",
        y="rank",
        group="name",
        panel="group",
        falling=True,
        log_y=True,
        ends=True,
        marks=True,
        beside="ρ",
        ylabel="rank",
    )
    return [
        _correlation_result(tables, correlation, list(rated), notes),
        Result("people_agreement", taus, plot=TAUS, method="people"),
        Result("rank_difference", difference, plot=plot, method="people", effect=DIFFERENCE),
        _valued_result(valued, int((difference["prompt"] == difference["prompt"].iloc[0]).sum())),
    ]


def people_of(tables: list[ScoreTable], texts: pd.Index, *, stripped: bool) -> pd.DataFrame:
    """Elo and match counts of the items with these texts: index = texts; elo, elo_matches (NaN
    where not given).

    Raises:
        TableError: two tables that give the items different ones, as one order of people is
            compared with all models.
    """
    first, *rest = tables
    people = _people(first, stripped=stripped).reindex(texts)
    for other in rest:
        apart = people.compare(_people(other, stripped=stripped).reindex(texts))
        if len(apart):
            a, b = first.provenance.model, other.provenance.model
            raise TableError(
                f"score tables {first.name!r} and {other.name!r} give {len(apart):,} of "
                f"{len(people):,} items another Elo or number of matches (first: "
                f"{apart.index[0]!r}). Score or import one of them again from the "
                f"other's file, or compare them apart: models=[{a}], then models=[{b}]"
            )
    return people


def _people(table: ScoreTable, *, stripped: bool) -> pd.DataFrame:
    """Elo and match counts by text, for the texts that a reward matrix can hold."""
    rows = table.rows.drop_duplicates("text", keep=False)
    # As the reward matrix does: of texts that differ in outer white space only, the barest.
    if stripped:
        barest = rows.loc[rows["text"].str.len().sort_values(kind="stable").index]
        rows = barest.assign(text=barest["text"].str.strip()).drop_duplicates("text")
    return rows.set_index("text").reindex(columns=["elo", "elo_matches"]).astype(float)


def _left_out(tables: TableSet, rated: Mapping[str, list[ScoreTable]]) -> list[str]:
    """Notes on tables that have no Elo, and prompts on which the items have another one."""
    notes = []
    for prompt in tables.prompts:
        bare = [tables.labels[t.model] for t in tables.by_prompt[prompt] if not t.has_elo]
        if bare:
            notes.append(f"{prompt}: no Elo in the scores of {', '.join(bare)}")
    elo = {p: _people(members[0], stripped=False)["elo"] for p, members in rated.items()}
    first = next(iter(elo))
    for prompt in elo:
        if (elo[first] - elo[prompt]).abs().max() > 0:
            notes.append(f"{prompt}: the items have another Elo than on {first}")
    if n := len(tables.wordings):
        notes.append(f"{n} wordings looked at together: not compared with people")
    return notes


def _from_people_to_models(
    rewards: pd.DataFrame, difference: pd.DataFrame, listed: pd.DataFrame, rhos: pd.Series
) -> pd.DataFrame:
    """Some items' ranks by each rater, people first, then the models as given: group, name, rater,
    rank, ρ (the rater's correlation with people)."""
    ranks = pd.DataFrame(rankdata(-rewards.to_numpy(), axis=0), columns=list(rewards))
    ranks.insert(0, PEOPLE, difference["human_rank"].to_numpy())
    ranks.insert(0, "name", difference["name"].to_numpy(object))
    farthest = set(listed.loc[listed["rank"] <= FAR_ITEMS, "name"])
    groups = {
        FIRST: ranks.sort_values(PEOPLE, kind="stable").head(TOP_ITEMS),
        APART: ranks[ranks["name"].isin(farthest)],
    }
    pieces = [
        rows.assign(group=group).melt(["group", "name"], var_name="rater", value_name="rank")
        for group, rows in groups.items()
    ]
    lines = pd.concat(pieces, ignore_index=True)
    return lines.assign(**{"ρ": lines["rater"].map(rhos)})


def _correlation_result(
    tables: TableSet, correlation: pd.DataFrame, prompts: list[str], notes: list[str]
) -> Result:
    """Each model's correlation with people; the headline is on the first prompt whose polarity is
    known."""
    signs = {p: sign for p in prompts if (sign := tables.reading.polarity_of(p))}
    prompt = next(iter(signs), prompts[0])
    effect = Effect(
        "spearman",
        "ρ with people",
        "low",
        "high",
        p="p_corrected",
        family=("prompt",),
        null=0.0,
        of=tables.things,
        symbol="spearman",
        band="heads_within",
    )
    correlation = effect.correct(correlation)
    rows = correlation[correlation["prompt"] == prompt]
    rows = rows.assign(agreement=signs.get(prompt, 1) * rows["spearman"])
    apart = rows["p_corrected"] <= LEVEL
    agreeing = rows[apart & (rows["agreement"] > 0)]
    named_rows = agreeing if signs and len(agreeing) else rows[apart]
    how = ("disagree" if len(named_rows) and agreeing.empty else "agree") if signs else "correlate"
    sizes = named_rows["spearman"].abs() if len(named_rows) else rows["agreement"]
    row = rows.loc[sizes.idxmax()]
    label, number = tables.labels[row["model"]], f"ρ = {row['spearman']:.2f}"
    number += random_head_clause(row) or _interval(row)
    beyond = " more than random output layers do" if rows["random_head"].notna().any() else ""
    if named_rows.empty:
        verdict = f"no model is found to {how} with people{beyond}; nearest is {label}"
    elif len(rows) == 1:
        verdict = f"{label} {how}s with people"
    else:
        who = f"{len(named_rows)} of {len(rows)} models {how}{'s' * (len(named_rows) == 1)}"
        verdict = f"{who} with people{beyond}, {label} most"
    agreement = correlation["spearman"] * correlation["prompt"].map(signs).fillna(1)
    order = -agreement.groupby(correlation["model"]).transform("mean")  # closest to people first
    together = 1 < len(prompts) <= MANY_PROMPTS
    return Result.of_row(
        row,
        "human_correlation",
        correlation,
        effect,
        f"On {quoted(prompt)}, {verdict}: {number}.",
        plot=Forest.of(
            effect,
            data=correlation.iloc[order.argsort(kind="stable")],
            group="prompt" if together else None,
            tabs=("candidates",) if together else ("prompt",),
            xlabel="Spearman's ρ of rewards and people's Elo",
        ),
        method="people",
        notes=tuple(notes),
        summary={
            f"{r.prompt}/human_spearman/{r.model}": float(r.spearman)
            for r in correlation.itertuples()
        },
    )


def _interval(row: pd.Series) -> str:
    """` [low, high]`; empty where there are too few items for one."""
    return f" [{row['low']:.2f}, {row['high']:.2f}]" if np.isfinite(row["low"]) else ""


def _valued_result(valued: pd.DataFrame, items: int) -> Result:
    """The items at both ends; the headline names the farthest on the first prompt that has any."""
    if valued.empty:
        return Result("valued", valued, method="people")
    rows = valued[valued["rank"] <= MAX_ROWS].sort_values("difference", kind="stable")
    first = valued[(valued["prompt"] == valued["prompt"].iloc[0]) & (valued["rank"] == 1)]
    farthest = {
        r.end: f"{literal(r.name)} ({r.model_rank:,.0f} against {r.human_rank:,.0f})"
        for r in first.itertuples(index=False)
    }
    row = rows.loc[first["difference"].abs().idxmax()]
    number = Estimate("rank difference / items", float(row["difference"] / items), items, "items")
    return Result(
        "valued",
        valued,
        headline=f"On {quoted(row['prompt'])}, models rank {farthest.get(ENDS[0], 'no item')} "
        f"farthest above people, {farthest.get(ENDS[1], 'no item')} farthest below.",
        plot=Forest(
            data=rows,
            row="name",
            estimate="difference",
            low="lower_quartile",
            high="upper_quartile",
            xlabel="models' rank − people's rank: median and quartiles over models",
        ),
        method="people",
        weight=number.weight(share=1 / 2),
        estimate=number,
    )
