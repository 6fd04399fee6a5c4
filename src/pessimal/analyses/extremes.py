"""The ends and the shape of each model's rewards: optimal and pessimal tokens; mean, variance and
skewness with standard errors, and densities for violins.

Rewards of different models are on different scales: compare skewness, not means.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.ndimage import gaussian_filter1d

from pessimal.analyses.analysis import Needs, Options, analysis, check_rewards, map_prompts, quoted
from pessimal.analyses.nulls import Dependence, interval
from pessimal.analyses.ranks import dependence
from pessimal.errors import TableError
from pessimal.plots import TokenTable, Violin
from pessimal.statistics import LEVEL, holm_confidence
from pessimal.tables.result import Effect, Result
from pessimal.tables.score_table import ScoreTable, extremes
from pessimal.tables.table_set import TableSet
from pessimal.texts import WORD, literal, signed

DAGGER = "†"
BINS = 512
MOMENTS = ("mean", "variance", "skewness")


@analysis("extremes", Needs(prompts=1), place=20)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Each model's most and least wanted candidates, of all candidates that it was given, and of
    those that all models share.

    Tables:
        extremes: The candidates at both ends, for each model and prompt.
            - as everywhere: end, text, token, reward, tied, tied_left_out, candidate_id, kind,
                survives, certified, model, prompt, candidates
            - rank: 1 is the most extreme
            - in_prompt: whether the text is a word of the prompt
            - elo: people's Elo score of the item, where they rated it
            - elo_matches: matches behind the Elo score
        extremes_shared: The ends among the candidates that all models share.
            - as everywhere: end, text, reward, tied, tied_left_out, model, prompt, candidates
            - rank: 1 is the most extreme
            - n: shared candidates
            - in_prompt: whether the text is a word of the prompt
    """
    ends = pd.concat(
        _marked(extremes(t.rows, k=options.top), t).assign(model=t.model, prompt=p)
        for p in tables.prompts
        for t in tables.by_prompt[p]
    ).assign(candidates=tables.candidates)
    prompt = tables.prompts[0]
    first = ends[(ends["rank"] == 1) & (ends["prompt"] == prompt)]
    best_rows, worst_rows = (first[first["end"] == end] for end in ("top", "bottom"))
    best, worst = (
        f'"{literal(rows["text"].iloc[0])}"'
        + " (a word of the prompt)" * bool(rows["in_prompt"].iloc[0])
        for rows in (best_rows, worst_rows)
    )
    label = tables.labels[best_rows["model"].iloc[0]]
    headline = f'On "{prompt}", {label} scores {best} highest and {worst} lowest'
    different, things = best_rows["text"].nunique(), tables.things
    count = f"{different} different best {things if different > 1 else things.removesuffix('s')}"
    headline += f"; {count} in {len(best_rows)} models." if len(best_rows) > 1 else "."
    names = {"top": "optimal", "bottom": "pessimal"}
    firsts = ends[ends["rank"] == 1].itertuples()
    summary = {f"{row.prompt}/{row.model}/{names[row.end]}": row.text for row in firsts}
    plot = TokenTable(data=_mark_prompt_words(ends))
    results = [Result("extremes", ends, headline, plot, method="extremes", summary=summary)]
    if len(shared := map_prompts(tables, lambda p: _shared(tables, p, k=options.top), models=2)):
        plot = TokenTable(data=_mark_prompt_words(shared))
        results.append(Result("extremes_shared", shared, plot=plot, method="extremes"))
    return results


def _mark_prompt_words(ends: pd.DataFrame) -> pd.DataFrame:
    """The drawn table: words of the prompt with a dagger behind them."""
    return ends.assign(text=ends["text"].where(~ends["in_prompt"], ends["text"] + DAGGER))


def _marked(ends: pd.DataFrame, table: ScoreTable) -> pd.DataFrame:
    """The rows with `in_prompt`: whether the text is a word of the prompt."""
    words = set(WORD.findall((table.provenance.prompt_text or "").lower()))
    return ends.assign(in_prompt=[text.strip().lower() in words for text in ends["text"].tolist()])


def _shared(tables: TableSet, prompt: str, *, k: int) -> pd.DataFrame | None:
    """`extremes` of each model over the texts that all models share; None where a model has no
    others.

    Source: Christian et al. 2025, Table A7.
    """
    try:
        rewards = tables.matrix(prompt)
    except TableError:  # no common texts, which `agreement` reports
        return None
    if all(len(table.rows) == len(rewards) for table in tables.by_prompt[prompt]):
        return None
    texts = pd.DataFrame(
        {"candidate_id": range(len(rewards)), "text": rewards.index, "token": rewards.index}
    )
    ends = [
        _marked(
            extremes(texts.assign(reward=rewards[model].to_numpy()), k=k),
            tables.by_prompt[prompt][0],
        ).assign(model=model, n=len(rewards))
        for model in rewards
    ]
    return pd.concat(ends, ignore_index=True).drop(columns=["candidate_id", "token"])


def moments(rewards: pd.DataFrame, *, dependent: Dependence | None = None) -> pd.DataFrame:
    """Mean, variance (ddof 0) and biased skewness of each model's rewards over the items.

    Standard errors come from influence values and so assume no shape, only independent clusters of
    items; a skewed reward's own skewness makes them several times the textbook √(6/n). Ties need no
    treatment; duplicate items count as often as they are given.

    Args:
        rewards: items × models.
        dependent: which items are not independent; all are where None.

    Returns:
        One row per model: model, n, mean, variance, skewness, mean_se, variance_se, skewness_se,
            units (as how many independent items the skewness is as sure as). The
        skewness of a model with one reward for all items is NaN.

    Raises:
        TableError: see `analysis.check_rewards`.

    Source: Christian et al. 2025, Table 3.
    """
    check_rewards(rewards)
    values = rewards.to_numpy(dtype=float)  # (items, models)
    n = len(values)
    mean = values.mean(axis=0)
    variance = values.var(axis=0)
    varied = np.ptp(values, axis=0) > 0
    z = (values - mean) / np.where(varied, np.sqrt(variance), np.nan)
    skewness = np.mean(z**3, axis=0)
    influences = {
        "mean": values - mean,
        "variance": (values - mean) ** 2 - variance,
        # The third moment's own influence, less what estimating the mean and the scale contributes.
        "skewness": z**3 - skewness - 3 * z - 1.5 * skewness * (z**2 - 1),
    }
    table = pd.DataFrame(
        {"model": list(rewards), "n": n, "mean": mean, "variance": variance, "skewness": skewness}
    )
    alike = [] if dependent is None else [dependent.alike(column) for column in values.T]
    for factors, name in enumerate(MOMENTS, start=1):
        influence, inflations = influences[name], np.ones(len(rewards.columns))
        if dependent is not None:
            # Of a mean nothing of it is left to see, as rewards are less their mean.
            likeness = np.array([dependent.likeness(*[m] * factors) for m in alike])
            influence, inflations = dependent.summed(influence, likeness * (name != "mean"))
        table[f"{name}_se"] = np.sqrt(np.mean(influence**2, axis=0) / len(influence))
    return table.assign(units=len(influence) / inflations)


def add_test(table: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """The table of `moments`, several under one another, with skewness_p (Student's, of a skewness
    of 0), and skewness_low and skewness_high at the level at which Holm's method corrects p."""
    freedom = np.maximum(table["units"] - 1, 1)
    numbers = table["skewness"], table["skewness_se"], freedom
    p = pd.Series(interval(*numbers, confidence=confidence)[2], index=table.index)
    low, high, _ = interval(*numbers, confidence=holm_confidence(p, confidence))
    return table.drop(columns="units").assign(skewness_low=low, skewness_high=high, skewness_p=p)


def density(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A Gaussian kernel density on a grid, highest point 1: (grid (BINS,), density (BINS,)).

    Binned first, so that 128,000 items cost as much as a thousand. Bandwidth: Silverman's rule of
    thumb (1986, equation 3.31), which takes the smaller of two measures of spread and so is not
    blown up by a long tail.
    """
    counts, edges = np.histogram(values, bins=BINS)
    upper, lower = np.percentile(values, [75, 25])
    spread = min(s for s in (values.std(), (upper - lower) / 1.34) if s > 0)
    bandwidth = 0.9 * spread * len(values) ** -0.2 / (edges[1] - edges[0])
    smooth = gaussian_filter1d(counts.astype(float), bandwidth, mode="constant")
    return (edges[:-1] + edges[1:]) / 2, smooth / smooth.max()


def _densities(rewards: pd.DataFrame) -> pd.DataFrame:
    """Densities of standardised rewards, every fourth point of the grid: model, x (standard
    deviations), density."""
    pieces = []
    for model in rewards:
        values = rewards[model].to_numpy(dtype=float)
        if np.ptp(values) > 0:
            grid, height = density((values - values.mean()) / values.std())
            columns = {"model": model, "x": grid, "density": height}
            pieces.append(pd.DataFrame(columns)[height > 0.002][::4])
    return pd.concat(pieces) if pieces else pd.DataFrame()


@analysis("moments", Needs(prompts=1), place=30)
def analyse_moments(tables: TableSet, options: Options) -> list[Result]:
    """The distribution of each model's rewards over the shared candidates.

    Tables:
        moments: How rewards are distributed, for each model and prompt.
            - as everywhere: model, n, detectable, prompt, candidates
            - mean: mean reward, in the model's units
            - variance: variance (divisor n), units squared
            - skewness: skewness, without a unit, biased as published
            - mean_se: standard error of the mean
            - variance_se: standard error of the variance
            - skewness_se: standard error of the skewness
            - skewness_low: lower end of its interval, corrected as skewness_p_corrected is
            - skewness_high: upper end of that interval
            - skewness_p: p value of a skewness of 0, not corrected
            - skewness_p_corrected: p value corrected by Holm over models and prompts
    """
    failed: list[str] = []

    def measure(prompt: str) -> pd.DataFrame:
        rewards = tables.matrix(prompt)
        return moments(rewards, dependent=dependence(rewards.index, options.meanings))

    table = map_prompts(tables, measure, failed=failed)
    effect = Effect(
        "skewness",
        "skewness",
        "skewness_low",
        "skewness_high",
        p="skewness_p_corrected",
        simultaneous=True,
        null=0.0,
        of=tables.things,
    )
    table = effect.correct(add_test(table, confidence=options.confidence))
    first = table[table["prompt"] == table["prompt"].iloc[0]]
    defined = first["skewness"].notna().any()
    row = first.loc[first["skewness"].abs().idxmax()] if defined else first.iloc[0]
    return [
        Result(
            "moments",
            table,
            headline=_headline(first, row, tables.labels),
            plot=Violin(
                data=map_prompts(tables, lambda prompt: _densities(tables.matrix(prompt))),
                ylabel="reward (standard deviations)",
            ),
            method="moments",
            notes=tuple(failed),
            estimate=effect.estimate_row(row, "skewness, farthest from 0"),
            effect=effect,
        )
    ]


def _headline(first: pd.DataFrame, row: pd.Series, label: Mapping[str, str]) -> str:
    """A sentence on the rows of one prompt, `row` the most skewed; only what holds after
    correction is asserted."""
    right = int(((first["skewness_p_corrected"] <= LEVEL) & (first["skewness"] > 0)).sum())
    value, *ends = (signed(row[f"skewness{end}"], "+.2f") for end in ("", "_low", "_high"))
    number = f"{value} [{', '.join(ends)}]"
    where, model = f"On {quoted(row['prompt'])}", label[row["model"]]
    if len(first) == 1:
        holds = row["skewness_p_corrected"] <= LEVEL
        verdict = "has a skewness of" if holds else "has no skewness found:"
        return f"{where}, the distribution of {model}'s rewards {verdict} {number}."
    verdict = f"{right} of {len(first)} models {'has' if right == 1 else 'have'}"
    verdict = verdict if right else "no model is found to have"
    return f"{where}, {verdict} a long tail of high rewards; most skewed is {model}, {number}."
