"""One model under two prompts: is "worst" the mirror image of "best"?

A model that read the question would score the items along best − worst; one that likes some tokens
whatever is asked scores them along best + worst.
"""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd
from scipy.stats import norm

from pessimal.analyses.analysis import (
    Meanings,
    Needs,
    Options,
    States,
    align,
    analysis,
    check_rewards,
    check_varied,
    found_in,
    heads_of,
    note_errors,
    notes_on_states,
    quoted,
    random_head_clause,
)
from pessimal.analyses.nulls import (
    LEAST,
    Dependence,
    Statistic,
    draw_heads,
    fit_directions,
    have_states,
    intervals,
    p_values,
)
from pessimal.analyses.ranks import dependence, net_concordance, ranked
from pessimal.errors import TableError
from pessimal.plots import Forest, Scatter, TokenTable
from pessimal.statistics import LEVEL, holm_confidence
from pessimal.tables import ScoreTable
from pessimal.tables.result import Effect, Result
from pessimal.tables.score_table import MEANING
from pessimal.tables.table_set import TableSet
from pessimal.tables.word_lists import word_means, word_starts

PAIRS = (("best", "worst"), ("greatest", "worst"), ("greatest", "best"))
"""Prompts of the paper that are compared wherever they are there, the last as in its Figure A2."""
ENDS_OF_AXES = TokenTable(
    value="value", tabs=("axis", "first", "second"), ends=("highest", "lowest")
)
MAX_PAIRS = 6
"""Number of pairs of prompts that are compared where none are chosen."""
SAMPLED_PAIRS, SAMPLED_HEADS = 20_000, 250
"""Pairs of words over which the reversal of random heads is counted, and heads. Rewards of all are
written out here: pairs decide how exact a score is, and a normal tail needs few heads."""


def reversals(
    pairs: Sequence[pd.DataFrame], *, meanings: Meanings | None = None, confidence: float = 0.95
) -> pd.DataFrame:
    """The reversal score of rewards under two prompts, its interval, and its p against ½.

    The score is the share of pairs of items whose order turns round from one prompt to the other: 1
    for a mirror image, ½ for unrelated orders, 0 for one order whatever is asked. Pairs that either
    prompt scores alike are left out, and `tied` is their share. Intervals are over clusters of
    dependent items (see `nulls.intervals`), each at the level of its p, which Holm's method
    corrects over the rows.

    Args:
        pairs: rewards under both prompts, two columns, the positive one first if they are opposite;
            index = text.
        meanings: of words: those alike in meaning are not independent. None takes them for
            independent.
        confidence: of the intervals.

    Returns:
        One row per pair: n, reversal, low, high, p, tied. Fewer than `nulls.LEAST`
        independent items have no p.

    Raises:
        TableError: a reward is missing, or one column does not vary.

    Source: Christian et al. 2025, Figure 4; Goodman & Kruskal 1954 for the pairs that are left out.
    """
    rows, statistics = [], []
    for pair in pairs:
        check_rewards(pair)
        check_varied(pair)
        dependent = dependence(pair.index, meanings)
        statistic, tied = _reversal(pair, dependent)
        statistics.append(([statistic], dependent))
        p = p_values([statistic], dependent)[0]
        rows.append({"n": len(pair), "reversal": statistic.estimate, "tied": tied, "p": p})
    table = pd.DataFrame(rows)
    levels = zip(statistics, holm_confidence(table["p"], confidence), strict=True)
    bounds = [intervals(*statistic, confidence=level) for statistic, level in levels]
    _, low, high = np.array(bounds)[:, :, 0].T
    return table.assign(low=low, high=high)


def _reversal(pair: pd.DataFrame, dependent: Dependence) -> tuple[Statistic, float]:
    """The share of discordant pairs of those untied, with its influence values; and the share of
    tied pairs.

    Both are U-statistics of order two (see `ranks.kendall`), joined by the delta method. Concordant
    and discordant pairs are counted exactly.
    """
    a, b = (ranked(column) for column in pair.to_numpy(dtype=float).T)
    n = len(pair)
    alike = ranked(a.dense * n + b.dense).equal if a.tied and b.tied else 1
    # (n,): of all other items those that neither column ties with this one; those tied in both were
    # taken off twice.
    untied = n - a.equal - b.equal + alike
    turned = (untied - net_concordance(a, b)) / 2  # whole numbers, exactly 0 where none turns
    # Never 0: were all pairs tied in one column or the other, one of the columns would be constant.
    share = turned.sum() / untied.sum()
    influence = 2 * (turned - share * untied) / untied.mean()
    likeness = dependent.likeness(dependent.alike(a.centred), dependent.alike(b.centred))
    statistic = Statistic(float(share), influence, share=True, likeness=likeness)
    return statistic, float(1 - untied.mean() / (n - 1))


def reversing_heads(pair: pd.DataFrame, heads: States) -> tuple[float, float]:
    """The mean reversal score of random heads on both prompts' states, one direction for both; and
    the share of heads that reverse at least as many pairs of these words, by a normal tail.

    Noise counts as independent between the prompts, so that heads reverse rather too much. Not
    `nulls.random_heads`, as a reversal is no linear effect; its level is in `experiments/nulls`.

    Args:
        pair: rewards of words under both prompts.
        heads: states of words for the outcomes `first` and `second`.

    Returns:
        Both are not a number where fewer than `nulls.LEAST` words have states.
    """
    states = [heads(pair.index.tolist(), column) for column in ("first", "second")]
    present = have_states(states)
    n = int(present.sum())
    if n < LEAST:
        return np.nan, np.nan
    i, j = np.random.default_rng(0).integers(0, n, (2, SAMPLED_PAIRS))

    def turned(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        product = (first[i] - first[j]) * (second[i] - second[j])
        return (product < 0).sum(axis=0) / (product != 0).sum(axis=0)

    rewards = pair.to_numpy(dtype=float)[present]
    vectors = [prompt[present] for prompt in states]
    fits = fit_directions(rewards, vectors, np.ones((n, 1)))
    spaces = draw_heads(fits, vectors, np.arange(n), draws=SAMPLED_HEADS)
    scores = [turned(*(prompt.rewards() for prompt in prompts)) for prompts in spaces]
    score = turned(*rewards.T)
    shares = [(float(norm.sf(score, x.mean(), x.std())), float(x.mean())) for x in scores]
    share, mean = max(shares)
    return mean, share


def ends_of_axes(pair: pd.DataFrame, *, k: int = 20) -> pd.DataFrame:
    """The items at both ends of both axes: what the question moves most, and what is liked or
    disliked either way.

    Items may share a text where two tokens decode to one; they are listed as they are. Equal values
    keep the order of the rows.

    Args:
        pair: rewards under both prompts (see `align_prompts`).
        k: items at each end; fewer where there are not so many.

    Returns:
        One row per listed item: axis (`difference`, first − second; `sum`, first + second), end
        (`top`, `bottom`), rank (1 = the outermost), text, reward_first, reward_second, value (on
        the axis).

    Source: Christian et al. 2025, Tables A8 (best + worst) and A9 (best − worst).
    """
    x, y = pair.to_numpy().T
    pieces = []
    for axis, values in {"difference": x - y, "sum": x + y}.items():
        for end, sign in (("top", -1), ("bottom", 1)):
            rows = np.argsort(sign * values, kind="stable")[:k]
            columns = {
                "axis": axis,
                "end": end,
                "rank": range(1, len(rows) + 1),
                "text": pair.index[rows],
                "reward_first": x[rows],
                "reward_second": y[rows],
                "value": values[rows],
            }
            pieces.append(pd.DataFrame(columns))
    return pd.concat(pieces, ignore_index=True)


def align_prompts(first: pd.Series, second: pd.Series) -> pd.DataFrame:
    """Rewards under both prompts item by item, columns `first` and `second`.

    Raises:
        TableError: the items differ, or a reward is missing.
    """
    second = align(first, second, left_name="the first prompt", right_name="the second")
    columns = {"first": first.to_numpy(dtype=float), "second": second.to_numpy(dtype=float)}
    pair = pd.DataFrame(columns, index=first.index)
    check_rewards(pair)
    return pair


@analysis("framing", Needs(prompts=2), place=70)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Each model's rewards under one prompt against its rewards under another, each model over all
    its own items; the ends of both axes over the shared items too.

    Tables:
        framing: How a model's rewards under two prompts hang together.
            - as everywhere: model, n, candidates, detectable, states
            - reversal: share of pairs of candidates that the second prompt orders the other way
            - tied: share of pairs tied under a prompt
            - pearson: Pearson's r
            - first: the first prompt
            - second: the second prompt
            - unit: what the next columns count, words of a vocabulary or items of a list; tokens
                where too few are words
            - unit_n: how many of them
            - unit_reversal: the reversal score over them
            - unit_low: lower end of its interval, at the level at which Holm corrects unit_p
            - unit_high: upper end of that interval
            - unit_p: p value of a reversal score of ½, not corrected
            - unit_p_corrected: the larger of unit_p and random_head, corrected by Holm over models
                and pairs of prompts
            - heads_reversal: mean reversal score of random heads on `states`, one direction for
                both prompts and noise of each; none without states
            - random_head: share of random heads that reverse at least as many pairs
        axes: Candidates at the ends of first − second and first + second.
            - as everywhere: end, text, model, candidates
            - axis: difference (first − second) or sum
            - rank: 1 is the outermost
            - reward_first: reward under the first prompt
            - reward_second: reward under the second prompt
            - value: place on the axis, in units of reward
            - first: the first prompt
            - second: the second prompt
        axes_shared: The same among the candidates that all models share, as the published tables.
            - as in axes
        prompt_scatter: The candidates that are named in the figure of all models under two prompts.
            - as everywhere: text, model, candidates
            - x: reward under the first prompt
            - y: reward under the second prompt
            - x_sd: x in the model's standard deviations over both prompts
            - y_sd: y, likewise
            - first: the first prompt
            - second: the second prompt
    """
    rows, pairs, units, ends, shared, points = [], [], [], [], [], []
    heads = {}
    notes: list[str] = []
    for first, second in prompt_pairs(tables, notes):
        where = {"first": first, "second": second, "candidates": tables.candidates}
        scans = _scans_of_both(tables, first, second, notes)
        for model, both_scans in scans.items():
            pair = align_prompts(*map(_rewards, both_scans))
            unit, unit_pair = _units(tables, both_scans[0], pair)
            columns = dict(zip(("first", "second"), ([table] for table in both_scans), strict=True))
            on = heads_of(columns, options)
            heads[model] = on = on if on and on.of != MEANING and unit == "words" else None
            mean, share = reversing_heads(unit_pair, on) if on else (np.nan, np.nan)
            random = {"heads_reversal": mean, "random_head": share, "states": on.of if on else ""}
            rows.append({"model": model, **where, "unit": unit, **random})
            pairs.append(pair)
            units.append(unit_pair)
            ends.append(ends_of_axes(pair, k=options.top).assign(model=model, **where))
            points.append(_points(pair).assign(model=model, **where))
        if len(scans) > 1:
            with note_errors(notes, f"ends over shared items, {first} and {second}"):
                a, b = (tables.matrix(prompt)[[*scans]] for prompt in (first, second))
                items = a.index.intersection(b.index, sort=False)
                for model in scans:
                    pair = align_prompts(a.loc[items, model], b.loc[items, model])
                    shared.append(ends_of_axes(pair, k=options.top).assign(model=model, **where))
    if not rows:
        raise TableError(
            "; ".join(notes)
            or "no two prompts are known to be opposites. State their polarity "
            "(+polarity.KEY=-1), or choose two: pairs=[[KEY,KEY]]"
        )
    everything = reversals(pairs)[["n", "reversal", "tied"]]
    of_units = reversals(units, meanings=options.meanings, confidence=options.confidence)
    of_units = of_units.drop(columns="tied").add_prefix("unit_")
    table = pd.concat([pd.DataFrame(rows), everything, of_units], axis=1)
    table["pearson"] = [pair["first"].corr(pair["second"]) for pair in pairs]
    results = [
        _reversal_result(tables, table, (*notes, *notes_on_states(heads, tables.labels))),
        Result("axes", pd.concat(ends, ignore_index=True), method="framing"),
        _scatter(pd.concat(points, ignore_index=True)),
    ]
    if shared:
        table = pd.concat(shared, ignore_index=True)
        results.append(Result("axes_shared", table, plot=ENDS_OF_AXES, method="framing"))
    return results


def _reversal_result(tables: TableSet, table: pd.DataFrame, notes: tuple[str, ...]) -> Result:
    """The scores of every model and pair of prompts; the headline is about the first pair."""
    effect = Effect(
        "unit_reversal",
        "reversal score",
        "unit_low",
        "unit_high",
        p="unit_p_corrected",
        null=0.5,
        n="unit_n",
        of=table["unit"].iloc[0],
        simultaneous=True,
        symbol="reversal",
    )
    table = effect.correct(table)
    data = table.assign(prompts=table["first"] + " × " + table["second"])
    head = data[data["prompts"] == data["prompts"].iloc[0]]
    largest = head.loc[head["unit_reversal"].idxmax()]
    return Result.of_row(
        largest,
        "framing",
        table,
        effect,
        _headline(head, largest, tables.labels),
        label="reversal score, highest",
        size=head["unit_reversal"].max() - head["unit_reversal"].min(),
        share=1 / 2,
        plot=Forest.of(effect, panel="prompts", tabs=(), data=data, xlabel="reversal score"),
        method="framing",
        notes=notes,
        summary={
            f"{row.first}-{row.second}/{name}/{row.model}": float(getattr(row, name))
            for row in table.itertuples()
            for name in ("reversal", "unit_reversal", "pearson")
        },
    )


def _headline(head: pd.DataFrame, largest: pd.Series, label: Mapping[str, str]) -> str:
    """One sentence on the rows of one pair of prompts, of which `largest` reverses most; only what
    holds after correction is asserted."""
    prompts = f"As {quoted(largest['first'])} becomes {quoted(largest['second'])}"
    model, units = label[largest["model"]], largest["unit"]
    share = f"{largest['unit_reversal']:.0%}"
    if not np.isnan(largest["unit_low"]):
        share += f" [{largest['unit_low']:.0%}, {largest['unit_high']:.0%}]"
    share += random_head_clause(largest)
    holds = (head["unit_p_corrected"] <= LEVEL) & (head["unit_reversal"] > 0.5)
    order = f"the order of most pairs of {units}"
    if not holds.any():
        return f"{prompts}, no model is found to reverse {order}; nearest, {model}: {share}."
    return f"{prompts}, {model} reverses {order}: {share}{found_in(holds)}."


def _units(tables: TableSet, scan: ScoreTable, pair: pd.DataFrame) -> tuple[str, pd.DataFrame]:
    """Words or items that are compared: the items of a list, the words of a vocabulary that begin
    as words do, all tokens of one with too few words."""
    if tables.candidates != "vocabulary":
        return tables.things, pair
    tokens = pair[(scan.rows["kind"] == "normal").to_numpy()]
    words = word_means(tokens)
    words = words[word_starts(tokens.index).get_indexer(words.index) >= 0]
    enough = len(words) >= LEAST and (words.nunique() > 1).all()
    return ("words", words) if enough else (tables.things, pair)


def _scatter(points: pd.DataFrame) -> Result:
    """The models side by side: every item under both prompts, the outermost named."""
    outermost = points[points["outermost"]].drop(columns="outermost").reset_index(drop=True)
    plot = Scatter(
        x="x_sd",
        y="y_sd",
        name="text",
        named="outermost",
        tabs=("first", "second"),
        panel="model",
        across=5,
        diagonal=True,
        equal=True,
        data=points,
        xlabel="reward on {first} (SD over both prompts)",
        ylabel="reward on {second}",
    )
    return Result("prompt_scatter", outermost, plot=plot, method="framing")


def _points(pair: pd.DataFrame) -> pd.DataFrame:
    """Points of a scatter: text, x, y; x_sd, y_sd (both on one scale, of mean 0 and variance 1, so
    that x = y stays so); and outermost (in x − y and x + y, one at each end)."""
    rewards = pair.to_numpy()
    x, y = rewards.T
    x_sd, y_sd = ((rewards - rewards.mean()) / (rewards.std() or 1.0)).astype(np.float32).T
    ends = [place for axis in (x - y, x + y) for place in (axis.argmin(), axis.argmax())]
    outermost = np.isin(np.arange(len(x)), ends)
    columns = {"text": pair.index, "x": x, "y": y, "x_sd": x_sd, "y_sd": y_sd}
    return pd.DataFrame(columns | {"outermost": outermost})


def prompt_pairs(tables: TableSet, notes: list[str]) -> list[tuple[str, str]]:
    """The prompts to compare two by two, positive ones first.

    The chosen pairs; else those of `PAIRS`, and every other two prompts of opposite polarity. Where
    these are more than `MAX_PAIRS`, the i-th positive prompt is compared with the i-th negative
    one only, and `notes` says so.
    """
    if tables.reading.pairs:
        return [pair for pair in tables.reading.pairs if set(pair) <= set(tables.prompts)]
    published = [pair for pair in PAIRS if set(pair) <= set(tables.prompts)]
    signs = {prompt: tables.reading.polarity_of(prompt) for prompt in tables.prompts}
    positive, negative = ([prompt for prompt in signs if signs[prompt] == sign] for sign in (1, -1))
    every = list(dict.fromkeys([*published, *product(positive, negative)]))
    if len(every) <= MAX_PAIRS:
        return every
    pairs = list(dict.fromkeys([*published, *zip(positive, negative, strict=False)]))[:MAX_PAIRS]
    notes.append(
        f"{len(pairs)} of {len(every)} pairs of prompts are compared. To choose: pairs=[[KEY,KEY]]"
    )
    return pairs


def _scans_of_both(
    tables: TableSet, first: str, second: str, notes: list[str]
) -> dict[str, tuple[ScoreTable, ScoreTable]]:
    """By model, its scans under both prompts; none where the two were scanned in different modes,
    as the mode would pass for the prompt."""
    seconds = {table.provenance.model: table for table in tables.by_prompt[second]}
    scans = {}
    for table in tables.by_prompt[first]:
        model, mode = table.provenance.model, table.provenance.mode
        if model not in seconds:
            continue
        if seconds[model].provenance.mode == mode:
            scans[model] = table, seconds[model]
        else:
            notes.append(
                f"{tables.labels[model]}: {first} was scanned in mode {mode}, {second} in mode "
                f"{seconds[model].provenance.mode}; pessimal scan mode={mode} prompts=[{second}]"
            )
    return scans


def _rewards(table: ScoreTable) -> pd.Series:
    """Rewards in order of candidate; two tokens may decode to one text, so the texts are names, not
    keys."""
    return table.rows.set_index("text")["reward"]
