"""One model under two prompts: is "worst" the mirror image of "best"?

A model that read the question would score the items along best − worst; one that likes some tokens
whatever is asked scores them along best + worst.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from operator import itemgetter

import numpy as np
import pandas as pd
from scipy.stats import kendalltau, t

from pessimal.analyses.analysis import (
    Heads,
    Meanings,
    Needs,
    Options,
    analysis,
    heads_of,
    of_random_heads,
    whose,
)
from pessimal.analyses.checks import align, check_rewards, check_varied
from pessimal.analyses.ranks import (
    LEAST,
    Dependence,
    Ranked,
    Statistic,
    dependence,
    fisher_interval,
    intervals,
    kendall,
    net_concordance,
    p_values,
    pearson,
    ranked,
    spearman,
)
from pessimal.analyses.regression import RULED_OUT, taste, with_states
from pessimal.errors import TableError
from pessimal.plots import Forest, Scatter, TokenTable
from pessimal.statistics import LEVEL, holm, holm_confidence
from pessimal.tables import ScoreTable
from pessimal.tables.result import Effect, Result
from pessimal.tables.states import MEANING
from pessimal.tables.table_set import TableSet
from pessimal.tables.word_lists import by_word, word_starts

PAIRS = (("best", "worst"), ("greatest", "worst"), ("greatest", "best"))
"""Prompts of the paper that are compared wherever they are there, the last as in its Figure A2."""
MOST_PAIRS = 6
"""So many pairs of prompts are compared unasked."""
AXES = ("difference", "sum")
STRAIGHT = 0.99
"""Rewards that correlate so highly are the same to the eye: no scatter of two prompts of one
polarity is drawn then, and none that would repeat another."""
NAMED = 2
"""Items named in a scatter at each end of x, y, x − y and x + y."""
HEADS, WORDS = 200, 1000
"""Random heads that are drawn, and words of which they order every two."""

Pair = tuple[pd.Series, pd.Series]


def reversals(
    pairs: Mapping[str, Pair], *, meanings: Meanings | None = None, confidence: float = 0.95
) -> pd.DataFrame:
    """How each model's rewards under two prompts hang together.

    The reversal score is the share of pairs of items whose order turns round from one prompt to the
    other: 1 for a mirror image, ½ for unrelated orders, 0 for one order whatever is asked. Pairs
    that either prompt scores alike are left out, and `tied` is their share. The shares divide the
    variance of raw rewards between the axis first − second and the orthogonal one, first + second;
    they add to one. Spearman takes mid-ranks, Kendall is tau-b. Intervals are over clusters of
    dependent items (see `ranks.fisher_interval`).

    Args:
        pairs: by model, its rewards under both prompts, the positive one first if they are
            opposite; same items, index = text.
        meanings: of words: those alike in meaning are not independent. None takes them for
            independent.
        confidence: of the intervals.

    Returns:
        One row per model, in the order given: model, n, reversal, reversal_low, reversal_high,
            tied, kendall,
        spearman, pearson, share_difference (of first − second), each of these four with _low and
        _high, share_sum.

    Raises:
        TableError: items differ, a reward is missing, or one column does not vary.

    Source: Christian et al. 2025, Figure 4; Goodman & Kruskal 1954 for the pairs that are left out.
    """
    rows = []
    for model, (first, second) in pairs.items():
        pair = _pair(first, second)
        check_varied(pair)
        dependent = dependence(pair.index, meanings)
        tied, statistics = _statistics(
            pair["first"].to_numpy(), pair["second"].to_numpy(), dependent
        )
        row = {"model": model, "n": len(pair), "tied": tied}
        columns = intervals(list(statistics.values()), dependent, confidence=confidence)
        for name, estimate, low, high in zip(statistics, *columns, strict=True):
            row |= {name: estimate, f"{name}_low": low, f"{name}_high": high}
        rows.append(row)
    table = pd.DataFrame(rows)
    head = ["model", "n", "reversal", "reversal_low", "reversal_high", "tied"]
    rest = [name for name in table if name not in head]
    return table[[*head, *rest]].assign(share_sum=1 - table["share_difference"])


def with_units(
    table: pd.DataFrame,
    units: Sequence[tuple[str, pd.DataFrame]],
    *,
    meanings: Meanings | None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """The table of `reversals` with the reversal score of what the question can be asked of.

    Most of a vocabulary's entries are pieces, bytes and unused ids, of which it makes no sense to
    say that they are the best or the worst. So a score of words, or of a list's items, stands
    beside that of all candidates, with its p against ½ and an interval that is corrected as p is:
    Holm's over the rows.

    Args:
        table: of `reversals`, several under one another.
        units: for each row, what they are (words, items), and their rewards under both prompts.

    Returns:
        The table with unit, unit_n, unit_reversal, unit_low, unit_high, unit_p, unit_p_adjusted.
            Fewer than `ranks.LEAST` independent units have no p.
    """
    found = []
    for what, pair in units:
        x, y = pair.to_numpy(dtype=float).T
        dependent = dependence(pair.index, meanings)
        statistic = _statistics(x, y, dependent)[1]["reversal"]
        found.append((what, len(pair), statistic, dependent))
    what, n, statistics, dependents = zip(*found, strict=True)
    p = pd.Series([p_values([s], d)[0] for s, d in zip(statistics, dependents, strict=True)])
    levels = holm_confidence(p, confidence)
    bounds = [
        fisher_interval([s], d, confidence=level)
        for s, d, level in zip(statistics, dependents, levels, strict=True)
    ]
    low, high = np.array(bounds)[:, :, 0].T
    return table.assign(
        unit=what,
        unit_n=n,
        unit_reversal=[statistic.estimate for statistic in statistics],
        unit_low=low,
        unit_high=high,
        unit_p=p.to_numpy(),
        unit_p_adjusted=holm(p).to_numpy(),
    )


def heads_reversing(pair: pd.DataFrame, heads: Heads) -> tuple[float, float]:
    """What random heads reverse: one direction of the states for both prompts, and noise of each,
    both as strong as they are in these rewards.

    Noise counts as independent between the prompts, so that heads reverse rather too much. Of
    the spaces that are not ruled out (as in `regression.heads_beyond`) the one counts whose heads
    reverse as many most often.

    Args:
        pair: rewards of words under both prompts.
        heads: on states of the columns `first` and `second`.

    Returns:
        Their mean reversal score, and the share of heads that reverse at least as many pairs of
        these words, were scores of heads normal; not a number where fewer than `ranks.LEAST`
        words have states.
    """
    states = [heads(pair.index, column) for column in ("first", "second")]
    present = np.flatnonzero(with_states(states))
    if len(present) < LEAST:
        return np.nan, np.nan
    random = np.random.default_rng(0)
    chosen = random.permutation(len(present))[:WORDS]
    own = (1 - kendalltau(*pair.to_numpy()[present].T).statistic) / 2
    drawn, unlikely = [], []
    for spaces in zip(*(np.moveaxis(one[present], 1, 0) for one in states), strict=True):
        directions = random.standard_normal((spaces[0].shape[1], HEADS))
        of_prompts, of_space = [], 0.0
        for rows, rewards in zip(spaces, pair.to_numpy(dtype=float)[present].T, strict=True):
            liking = taste(np.ones((len(rows), 1)), rewards[:, None], rows)
            of_space += liking.unlikely[0]
            noise = random.standard_normal((len(chosen), HEADS))
            moved = np.sqrt(liking.variance) * (rows - rows.mean(axis=0))[chosen] @ directions
            of_prompts.append(moved + np.sqrt(liking.noise) * noise)
        drawn.append(of_prompts)
        unlikely.append(of_space)
    found = []
    for of_prompts, of_space in zip(drawn, unlikely, strict=True):
        if of_space <= min(unlikely) + RULED_OUT:
            pairs = zip(*(one.T for one in of_prompts), strict=True)
            reversal = np.array([(1 - kendalltau(x, y).statistic) / 2 for x, y in pairs])
            away = (own - reversal.mean()) / (reversal.std(ddof=1) * np.sqrt(1 + 1 / HEADS))
            found.append((float(t.sf(away, HEADS - 1)), float(reversal.mean())))
    share, mean = max(found, key=itemgetter(0))
    return mean, share


def _beside_heads(table: pd.DataFrame, heads: Sequence[tuple[float, float, str]]) -> pd.DataFrame:
    """The table of `with_units` with heads_reversal and random_head of `heads_reversing`,
    random_head_holm and beyond_p: the larger of what other words and what random heads say; and
    whose states these are."""
    mean, share, states = zip(*heads, strict=True)
    corrected = holm(pd.Series(share, table.index))
    table = table.assign(heads_reversal=mean, random_head=share, random_head_holm=corrected)
    beyond = table[["unit_p_adjusted", "random_head_holm"]].max(axis=1)
    return table.assign(beyond_p=beyond, states=states)


def ends_of_axes(first: pd.Series, second: pd.Series, *, k: int = 20) -> pd.DataFrame:
    """The items at both ends of both axes: what the question moves most, and what is liked or
    disliked either way.

    Items may share a text where two tokens decode to one; they are listed as they are. Equal values
    keep the order of the rows; `tied` marks a value that is shared with an item that the cut left
    out.

    Args:
        first: reward per item under the one prompt.
        second: reward per item under the other, same items.
        k: items at each end; fewer where there are not so many.

    Returns:
        One row per listed item: axis (`difference`, first − second; `sum`, first + second), end
            (`top`, `bottom`),
        rank (1 = the outermost), text, reward_first, reward_second, value (on the axis), tied.

    Raises:
        TableError: the items differ, or a reward is missing.

    Source: Christian et al. 2025, Tables A8 (best + worst) and A9 (best − worst).
    """
    pair = _pair(first, second)
    x, y = pair["first"].to_numpy(), pair["second"].to_numpy()
    pieces = []
    for axis, values in zip(AXES, (x - y, x + y), strict=True):
        for end, sign in (("top", -1), ("bottom", 1)):
            listed = outermost(sign * values, count=k)
            last = values[listed[-1]]
            cut = np.sum(values == last) > np.sum(values[listed] == last)
            columns = {
                "axis": axis,
                "end": end,
                "rank": range(1, len(listed) + 1),
                "text": pair.index[listed],
                "reward_first": x[listed],
                "reward_second": y[listed],
                "value": values[listed],
                "tied": (values[listed] == last) & cut,
            }
            pieces.append(pd.DataFrame(columns))
    return pd.concat(pieces, ignore_index=True)


def outermost(values: np.ndarray, *, count: int) -> np.ndarray:
    """Row numbers of the `count` smallest values, smallest first, equals in the order of the
    rows."""
    if count >= len(values):
        return np.argsort(values, kind="stable")
    near = np.flatnonzero(values <= np.partition(values, count - 1)[count - 1])
    return near[np.argsort(values[near], kind="stable")][:count]


def _pair(first: pd.Series, second: pd.Series) -> pd.DataFrame:
    """Both columns, item by item."""
    second = align(first, second, left_name="the first prompt", right_name="the second")
    columns = {"first": first.to_numpy(dtype=float), "second": second.to_numpy(dtype=float)}
    pair = pd.DataFrame(columns, index=first.index)
    check_rewards(pair)
    return pair


def _statistics(
    x: np.ndarray, y: np.ndarray, dependent: Dependence
) -> tuple[float, dict[str, Statistic]]:
    """The share of tied pairs, and every statistic of one model with its influence values."""
    a, b = ranked(x), ranked(y)
    net = net_concordance(a, b)
    tied, reversal = _reversal(a, b, net)
    of_ranks = dependent.likeness(dependent.alike(a.centred), dependent.alike(b.centred))
    of_values = dependent.likeness(dependent.alike(x), dependent.alike(y))
    return tied, {
        "reversal": reversal._replace(likeness=of_ranks),
        "kendall": kendall(a, b, net, likeness=of_ranks),
        "spearman": spearman(a, b, likeness=of_ranks),
        "pearson": pearson(x, y, likeness=of_values),
        "share_difference": _share_of_difference(x, y)._replace(likeness=of_values),
    }


def _reversal(a: Ranked, b: Ranked, net: np.ndarray) -> tuple[float, Statistic]:
    """The share of pairs tied in a or in b; of the others the share in opposite order, with its
    influence values.

    Discordant over untied pairs, both U-statistics of order two (see `ranks.kendall`), joined by
    the delta method. Concordant and discordant pairs are counted exactly.
    """
    n = len(a.dense)
    alike = ranked(a.dense * n + b.dense).equal if a.tied and b.tied else 1
    # (n,): of all other items those that neither column ties with this one; those tied in both were
    # taken off twice.
    untied = n - a.equal - b.equal + alike
    turned = (untied - net) / 2  # whole numbers, so that no turned pair is exactly no turned pair
    # Never 0: were all pairs tied in one column or the other, one of the columns would be constant.
    share = turned.sum() / untied.sum()
    influence = 2 * (turned - share * untied) / untied.mean()
    return float(1 - untied.mean() / (n - 1)), Statistic(float(share), influence, share=True)


def _share_of_difference(x: np.ndarray, y: np.ndarray) -> Statistic:
    """The share of x − y in the variance along x − y and x + y together, and its influence
    values."""
    x, y = x - x.mean(), y - y.mean()
    difference, both = (x - y) ** 2, 2 * (x * x + y * y)
    share = difference.mean() / both.mean()
    return Statistic(float(share), (difference - share * both) / both.mean(), share=True)


@analysis("framing", Needs(prompts=2), place=70)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Each model's rewards under one prompt against its rewards under another, each model over all
    its own items; the ends of both axes over the shared items too."""
    pieces, ends, shared, points = [], [], [], []
    units: list[tuple[str, pd.DataFrame]] = []
    heads: dict[str, Heads | None] = {}
    beside: list[tuple[float, float, str]] = []
    notes: list[str] = []
    drawn: dict[str, list[Pair]] = {}
    for first, second in prompt_pairs(tables, notes):
        pairs = _pairs(tables, first, second, notes)
        if not pairs:
            continue
        where = {"first": first, "second": second, "candidates": tables.candidates}
        found = reversals(pairs, meanings=options.meanings, confidence=options.confidence)
        pieces.append(found.assign(**where))
        for model in found["model"]:
            both = [_of_model(tables.by_prompt[prompt], model) for prompt in (first, second)]
            units.append(_units(tables, both))
            columns = {"first": both[:1], "second": both[1:]}
            one = heads_of(columns, options)
            kept = one if one and one.of != MEANING and units[-1][0] == "words" else None
            heads[model] = kept
            reversing = heads_reversing(units[-1][1], kept) if kept else (np.nan, np.nan)
            beside.append((*reversing, kept.of if kept else ""))
        if len(pairs) > 1:
            try:
                ends_here = _shared_ends(tables, first, second, list(pairs), k=options.top)
                shared.append(ends_here.assign(**where))
            except TableError as error:  # vocabularies without common items
                notes.append(f"ends over shared items, {first} and {second}: {error}")
        same_polarity = _same_polarity(tables, first, second)
        for model, pair in pairs.items():
            ends.append(ends_of_axes(*pair, k=options.top).assign(model=model, **where))
            others = drawn.setdefault(model, [])
            repeated = any(_alike(pair[0], x) and _alike(pair[1], y) for x, y in others)
            alone = not repeated and not (same_polarity and _alike(*pair))
            others += [pair] if alone else []
            if alone or len(pairs) > 1:
                points.append(_points(*pair).assign(alone=alone, model=model, **where))
    if not pieces:
        raise TableError(
            "; ".join(notes)
            or "no two prompts are known to be opposites. State their polarity "
            "(+polarity.KEY=-1), or choose two: pairs=[[KEY,KEY]]"
        )
    table = with_units(
        pd.concat(pieces, ignore_index=True),
        units,
        meanings=options.meanings,
        confidence=options.confidence,
    )
    table = _beside_heads(table, beside)
    scattered = (
        pd.concat(points, ignore_index=True) if points else pd.DataFrame({"alone": [], "model": []})
    )
    shown = table.assign(prompts=table["first"] + " × " + table["second"])
    head = shown[shown["prompts"] == shown["prompts"].iloc[0]]
    most = head.loc[head["unit_reversal"].idxmax()]
    effect = Effect(
        "unit_reversal",
        "reversal score",
        "unit_low",
        "unit_high",
        p="beyond_p",
        null=0.5,
        n="unit_n",
        of=most["unit"],
        symbol="reversal",
    )
    headline = _headline(head, most, tables.labels)
    size = head["unit_reversal"].max() - head["unit_reversal"].min()
    return [
        Result.of_row(
            most,
            "framing",
            table,
            effect,
            headline,
            label="reversal score, highest",
            size=size,
            share=1 / 2,
            plot=Forest.of(effect, panel="prompts", tabs=(), data=shown, xlabel="reversal score"),
            method="framing",
            notes=(*notes, *whose(heads, tables.labels)),
            summary={
                f"{row.first}-{row.second}/{name}/{row.model}": float(value)
                for row in table.itertuples()
                for name, value in (
                    ("reversal", row.reversal),
                    ("unit_reversal", row.unit_reversal),
                    ("pearson", row.pearson),
                )
            },
        ),
        Result(
            "axes",
            pd.concat(ends, ignore_index=True),
            plot=Scatter(
                x="x",
                y="y",
                name="text",
                named="named",
                tabs=("first", "second", "model"),
                diagonal=True,
                xlabel="reward, first prompt",
                ylabel="reward, second prompt",
                data=scattered,
                where={"alone": True},
            )
            if scattered["alone"].any()
            else None,
            method="framing",
        ),
        *_over_models(shared, scattered),
    ]


def _headline(head: pd.DataFrame, most: pd.Series, label: Mapping[str, str]) -> str:
    """Of the rows of one pair of prompts, `most` the one that reverses most; only what holds after
    correction is asserted."""
    pairs = f"From {most['first']} to {most['second']}"
    model, units = label[most["model"]], most["unit"]
    share = f"{most['unit_reversal']:.0%}"
    interval = f" [{most['unit_low']:.0%}, {most['unit_high']:.0%}]"
    interval = "" if np.isnan(most["unit_low"]) else interval
    heads = of_random_heads(most)
    if len(head) == 1:
        if most["beyond_p"] <= LEVEL:
            return f"{pairs}, {model} reverses {share}{interval} of pairs of {units}{heads}."
        return (
            f"{pairs}, no reversal found: {model} turns {share}{interval} of pairs of "
            f"{units}{heads}."
        )
    reverse = head[(head["beyond_p"] <= LEVEL) & (head["unit_reversal"] > 0.5)]
    if reverse.empty:
        surely = ((head["unit_p_adjusted"] <= LEVEL) & (head["unit_reversal"] <= 0.5)).all()
        found = "no model reverses" if surely else "no model found to reverse"
        return f"{pairs}, {found} most pairs of {units}; most, {model} ({share}{interval}{heads})."
    least = head.loc[head["unit_reversal"].idxmin()]
    verb = "reverses" if len(reverse) == 1 else "reverse"
    return (
        f"{pairs}, {len(reverse)} of {len(head)} models {verb} most pairs of {units}; most, "
        f"{model} ({share}{heads}); least, {label[least['model']]} ({least['unit_reversal']:.0%})."
    )


def _of_model(tables: Sequence[ScoreTable], model: str) -> ScoreTable:
    return next(table for table in tables if table.provenance.model == model)


def _units(tables: TableSet, both: Sequence[ScoreTable]) -> tuple[str, pd.DataFrame]:
    """What the questions can be asked of, and a model's rewards under both: the items of a list,
    the words of a vocabulary that begin as words do, all tokens of one with too few words."""
    pair = _pair(*map(_rewards, both))
    if tables.candidates != "vocabulary":
        return tables.things, pair
    named = pair[(both[0].rows["kind"] == "normal").to_numpy()]
    words = by_word(named)
    words = words[words.index.isin(word_starts(named.index))]
    enough = len(words) >= LEAST and (words.nunique() > 1).all()
    return ("words", words) if enough else (tables.things, pair)


def _over_models(shared: list[pd.DataFrame], points: pd.DataFrame) -> list[Result]:
    """The models side by side: every item under both prompts, and the ends of both axes over shared
    items."""
    if points["model"].nunique() < 2:
        return []
    outermost = points.loc[
        points["outermost"],
        ["model", "text", "x", "y", "x_sd", "y_sd", "first", "second", "candidates"],
    ]
    results = [
        Result(
            "prompt_scatter",
            outermost.reset_index(drop=True),
            plot=Scatter(
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
                xlabel="reward on the first prompt (SD over both prompts)",
                ylabel="on the second",
            ),
            method="framing",
        )
    ]
    if shared:
        ends = pd.concat(shared, ignore_index=True)
        plot = TokenTable(
            value="value", tabs=("axis", "first", "second"), ends=("highest", "lowest")
        )
        results.append(Result("axes_shared", ends, plot=plot, method="framing"))
    return results


def _shared_ends(
    tables: TableSet, first: str, second: str, models: list[str], *, k: int
) -> pd.DataFrame:
    """`ends_of_axes` of each model over the items that all models share on both prompts.

    Raises:
        TableError: there are fewer than three such items.

    Source: Christian et al. 2025, Tables A8 and A9.
    """
    matrices = tables.matrix(first)[models], tables.matrix(second)[models]
    items = matrices[0].index.intersection(matrices[1].index, sort=False)
    first_rewards, second_rewards = (matrix.loc[items] for matrix in matrices)
    return pd.concat(
        ends_of_axes(first_rewards[model], second_rewards[model], k=k).assign(model=model)
        for model in models
    )


def prompt_pairs(tables: TableSet, notes: list[str]) -> list[tuple[str, str]]:
    """The prompts to compare two by two, positive ones first.

    The chosen pairs; else those of `PAIRS`, and every other two prompts of opposite polarity. Where
    these are more than `MOST_PAIRS`, the i-th positive prompt is compared with the i-th negative
    one only, and `notes` says so.
    """
    if tables.reading.pairs:
        return [pair for pair in tables.reading.pairs if set(pair) <= set(tables.prompts)]
    published = [pair for pair in PAIRS if set(pair) <= set(tables.prompts)]
    signs = {prompt: tables.reading.polarity_of(prompt) for prompt in tables.prompts}
    positive, negative = ([prompt for prompt in signs if signs[prompt] == sign] for sign in (1, -1))
    opposite = [pair for pair in product(positive, negative) if pair not in published]
    if len(published) + len(opposite) > MOST_PAIRS:
        all_of_them = len(published) + len(opposite)
        opposite = [pair for pair in zip(positive, negative, strict=False) if pair not in published]
        opposite = opposite[: MOST_PAIRS - len(published)]
        notes.append(
            f"{len(published) + len(opposite)} of {all_of_them} pairs of prompts are compared. To "
            "choose: pairs=[[KEY,KEY]]"
        )
    return [*published, *opposite]


def _pairs(tables: TableSet, first: str, second: str, notes: list[str]) -> dict[str, Pair]:
    """By model, its rewards under both prompts; none where the two were scanned in different
    modes."""
    others = {table.provenance.model: table for table in tables.by_prompt[second]}
    pairs = {}
    for table in tables.by_prompt[first]:
        model, mode = table.provenance.model, table.provenance.mode
        if model not in others:
            continue
        if others[model].provenance.mode == mode:
            pairs[model] = _rewards(table), _rewards(others[model])
        else:  # the mode would pass for the prompt
            notes.append(
                f"{tables.labels[model]}: {first} was scanned in mode {mode}, {second} in mode "
                f"{others[model].provenance.mode}; pessimal scan mode={mode} prompts=[{second}]"
            )
    return pairs


def _rewards(table: ScoreTable) -> pd.Series:
    """Rewards in order of candidate; two tokens may decode to one text, so the texts are names, not
    keys."""
    return pd.Series(
        table.rows["reward"].to_numpy(), index=pd.Index(table.rows["text"], name="text")
    )


def _same_polarity(tables: TableSet, first: str, second: str) -> bool:
    signs = {tables.reading.polarity_of(first), tables.reading.polarity_of(second)}
    return len(signs) == 1 and None not in signs


def _alike(a: pd.Series, b: pd.Series) -> bool:
    return len(a) == len(b) and np.corrcoef(a, b)[0, 1] >= STRAIGHT


def _points(first: pd.Series, second: pd.Series) -> pd.DataFrame:
    """What scatters show: text, x, y, named (the outermost in x, y, x − y and x + y); for models
    side by side x_sd, y_sd (both on one scale, of mean 0 and variance 1, so that x = y stays so)
    and outermost (in x − y and x + y, one at each end)."""
    pair = _pair(first, second)
    x, y = pair["first"].to_numpy(), pair["second"].to_numpy()
    both = pair.to_numpy()
    x_sd, y_sd = ((both - both.mean()) / (both.std() or 1.0)).astype(np.float32).T

    def ends(*axes: np.ndarray, count: int) -> np.ndarray:
        rows = [outermost(sign * values, count=count) for values in axes for sign in (-1, 1)]
        return np.isin(np.arange(len(x)), np.concatenate(rows))

    return pd.DataFrame(
        {
            "text": pair.index,
            "x": x,
            "y": y,
            "named": ends(x, y, x - y, x + y, count=NAMED),
            "x_sd": x_sd,
            "y_sd": y_sd,
            "outermost": ends(x - y, x + y, count=1),
        }
    )
