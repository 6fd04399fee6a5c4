"""One model under two prompts: is "worst" the mirror image of "best"?

A model that read the question would score the items along best − worst; one that likes some tokens
whatever is asked scores them along best + worst.
"""

from collections.abc import Mapping
from itertools import product

import numpy as np
import pandas as pd

from pessimal.analyses.analysis import Needs, Options, analysis
from pessimal.analyses.checks import align, check_rewards, check_varied
from pessimal.analyses.ranks import (
    Ranked,
    Statistic,
    bootstrapped,
    kendall,
    net_concordance,
    pearson,
    ranked,
    spearman,
)
from pessimal.errors import TableError
from pessimal.plots import Forest, Scatter, TokenTable
from pessimal.tables import ScoreTable
from pessimal.tables.result import Effect, Result
from pessimal.tables.table_set import TableSet

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

Pair = tuple[pd.Series, pd.Series]


def reversals(
    pairs: Mapping[str, Pair], *, replicates: int = 1000, confidence: float = 0.95, seed: int = 0
) -> pd.DataFrame:
    """How each model's rewards under two prompts hang together.

    The reversal score is the share of pairs of items whose order turns round from one prompt to the
    other: 1 for a mirror image, ½ for unrelated orders, 0 for one order whatever is asked. Pairs
    that either prompt scores alike are left out, and `tied` is their share. The shares divide the
    variance of raw rewards between the axis first − second and the orthogonal one, first + second;
    they add to one. Spearman takes mid-ranks, Kendall is tau-b. Intervals are item bootstraps of
    the linearised statistics; models with as many items share the draws.

    Args:
        pairs: by model, its rewards under both prompts, the positive one first if they are
            opposite; same items.

    Returns:
        One row per model, in the order given: model, n, reversal, reversal_low, reversal_high,
            tied, kendall,
        spearman, pearson, share_difference (of first − second), each of these four with _low and
        _high, share_sum.

    Raises:
        TableError: there are no models, items differ, a reward is missing, or one column does not
            vary.

    Source: Christian et al. 2025, Figure 4; Goodman & Kruskal 1954 for the pairs that are left out.
    """
    if not pairs:
        raise TableError("No model was given; two prompts are compared within one model at least.")
    rows: dict[str, dict[str, str | float]] = {}
    by_size: dict[int, dict[tuple[str, str], Statistic]] = {}
    for model, (first, second) in pairs.items():
        pair = _pair(first, second)
        check_varied(pair)
        tied, statistics_of = _statistics(pair["first"].to_numpy(), pair["second"].to_numpy())
        rows[model] = {"model": model, "n": len(pair), "tied": tied}
        by_size.setdefault(len(pair), {}).update(
            {(model, name): one for name, one in statistics_of.items()}
        )
    for statistics in by_size.values():
        draws = {"replicates": replicates, "confidence": confidence, "seed": seed}
        columns = bootstrapped(list(statistics.values()), **draws)
        for (model, name), estimate, low, high in zip(statistics, *columns, strict=True):
            low = max(low, 0.0) if name in ("reversal", "share_difference") else low  # a share
            rows[model] |= {name: estimate, f"{name}_low": low, f"{name}_high": high}
    table = pd.DataFrame(list(rows.values()))
    head = ["model", "n", "reversal", "reversal_low", "reversal_high", "tied"]
    rest = [name for name in table if name not in head]
    return table[[*head, *rest]].assign(share_sum=1 - table["share_difference"])


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
        TableError: the items differ, a reward is missing, or k is below 1.

    Source: Christian et al. 2025, Tables A8 (best + worst) and A9 (best − worst).
    """
    if k < 1:
        raise TableError(f"k={k} items at each end; give at least 1.")
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


def _statistics(x: np.ndarray, y: np.ndarray) -> tuple[float, dict[str, Statistic]]:
    """The share of tied pairs, and every statistic of one model with its influence values."""
    a, b = ranked(x), ranked(y)
    net = net_concordance(a, b)
    tied, reversal = _reversal(a, b, net)
    return tied, {
        "reversal": reversal,
        "kendall": kendall(a, b, net),
        "spearman": spearman(a, b),
        "pearson": pearson(x, y),
        "share_difference": _share_of_difference(x, y),
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
    notes: list[str] = []
    drawn: dict[str, list[Pair]] = {}
    for first, second in prompt_pairs(tables, notes):
        pairs = _pairs(tables, first, second, notes)
        if not pairs:
            continue
        where = {"first": first, "second": second, "candidates": tables.candidates}
        pieces.append(reversals(pairs, **options.draws).assign(**where))
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
    table = pd.concat(pieces, ignore_index=True)
    scattered = (
        pd.concat(points, ignore_index=True) if points else pd.DataFrame({"alone": [], "model": []})
    )
    shown = table.assign(prompts=table["first"] + " × " + table["second"])
    first, second = table["first"].iloc[0], table["second"].iloc[0]
    head = shown[shown["prompts"] == shown["prompts"].iloc[0]]
    most, least = head.loc[head["reversal"].idxmax()], head.loc[head["reversal"].idxmin()]
    turning = int((head["reversal_low"] > 0.5).sum())
    label = tables.labels
    headline = (
        f"From {first} to {second}, {turning} of {len(head)} models reverse most pairs of "
        f"{tables.things}; most, {label[most['model']]} ({most['reversal']:.0%}); least, "
        f"{label[least['model']]} ({least['reversal']:.0%})."
    )
    if len(head) == 1:
        share = f"{most['reversal']:.0%} of pairs of {tables.things}"
        headline = f"From {first} to {second}, {label[most['model']]} reverses {share}."
    effect = Effect(
        "reversal",
        "reversal score",
        "reversal_low",
        "reversal_high",
        null=0.5,
        of=tables.things,
        symbol="reversal",
    )
    return [
        Result.of_row(
            most,
            "framing",
            table,
            effect,
            headline,
            label="reversal score, highest",
            size=most["reversal"] - least["reversal"],
            share=1 / 2,
            plot=Forest.of(effect, panel="prompts", tabs=(), data=shown, xlabel="reversal score"),
            method="framing",
            notes=tuple(notes),
            summary={
                f"{row.first}-{row.second}/{name}/{row.model}": float(value)
                for row in table.itertuples()
                for name, value in (("reversal", row.reversal), ("pearson", row.pearson))
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
