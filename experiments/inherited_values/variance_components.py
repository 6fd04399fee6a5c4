"""One question in many wordings: how much of a reward is the token's, the model's, the wording's.

Everything follows from the means of the cells (model, wording) and their covariances over tokens:
70 million rewards are read once and become a matrix of 540 × 540. What two models share on two
wordings is the covariance between them, so every component is a difference of averages over it; for
complete crossed designs these are the classical mean squares' estimates.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.inherited_values.resampling import crossed_interval, jackknife
from experiments.inherited_values.wording import check_polarity, design_of
from pessimal.analyses.analysis import Needs, Options, analysis, check_rewards
from pessimal.errors import TableError
from pessimal.plots import Forest
from pessimal.tables.result import Effect, Estimate, Result, weight_of
from pessimal.tables.table_set import TableSet

METHOD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
TOKEN_BLOCKS = 20
"""One is left out at a time: 19 degrees of freedom, and a matrix of 2.3 MB kept for each."""
Indices = Sequence[int] | np.ndarray
ALL_MODELS = "all models"
BOTH = "both frames"
PARTS = {"positive": (1,), "negative": (-1,), BOTH: (1, -1)}
SHARE = Effect("order_share", "share", "order_share_low", "order_share_high", n="tokens")
Components = dict[str, float]
"""By name, such as "token × model"; negative where a component of zero came out below."""


class Cells(NamedTuple):
    """Means and covariances of the cells over tokens."""

    tokens: int
    mean: np.ndarray
    """(models, wordings)."""
    covariance: np.ndarray
    """(models, wordings, models, wordings), divisor tokens − 1."""

    def select(self, models: Indices, wordings: Indices) -> "Cells":
        """Some models and wordings."""
        m, w = np.asarray(models), np.asarray(wordings)
        covariance = self.covariance[np.ix_(m, w, m, w)]
        return Cells(self.tokens, self.mean[np.ix_(m, w)], covariance)


class Wordings(NamedTuple):
    """What one pass over the rewards says."""

    components: pd.DataFrame
    factors: pd.DataFrame
    correlations: pd.DataFrame


def variance_components(
    rewards: Mapping[str, pd.DataFrame],
    *,
    polarity: Mapping[str, int],
    levels: Mapping[str, Mapping[str, str]] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Wordings:
    """Random-effects analysis of variance of tokens × models × wordings, one reward a cell, all
    crossed.

    For each polarity alone, tokens, models and wordings are random, and the three-way interaction
    is what is left over. For both together the polarity (*frame* in the tables) is fixed at ±1 and
    wordings are nested in it. Estimates are unbiased and may be negative; shares set negative ones
    to 0. Over all models each model's rewards are standardised first; each model is also taken
    alone, in raw units. Intervals are jackknives over tokens (20 random blocks), wordings and, with
    three models or more, models, their variances added; `covers` says which.

    Args:
        rewards: by prompt, tokens × models, the same tokens and models in all.
        polarity: 1 or −1 by prompt.
        levels: by prompt, the level of each factor of the wording. Without them there is no table
            of factors.
        confidence, seed: of the intervals; of the blocks of tokens.

    Returns:
        components: part ("positive", "negative", "both frames"), model ("all models", or one),
            units ("standardised",
        "raw"), component, estimate, se, low, high, share (of all components), order_share (of those
        with the token in them, which alone decide what is optimal), _low and _high of both, tokens,
        models, wordings, covers. factors: the same but share, for one polarity: the wording's
            components divided between its factors and `rest`,
        their interactions. Intervals leave out tokens and models only.
        correlations: expected between two scans; part, model, units, between, correlation, se, low,
            high, tokens, ….
        A part is there if it has two wordings of each polarity in it; a factor table if its
        factorial is complete.

    Raises:
        TableError: no part has two wordings, or a model gives every token the same reward.

    Source: Searle, Casella & McCulloch 1992, chapters 3 and 4; Christian et al. (follow-up, 2026)
        for the 54 prompts.
    """
    prompts, models = _checked(rewards, polarity)
    signs = np.array([polarity[prompt] for prompt in prompts])
    all_cells, without_block = read_cells(rewards, prompts, seed=seed)
    pieces: dict[str, list[pd.DataFrame]] = {name: [] for name in Wordings._fields}
    columns_of: dict[str, Indices] = {ALL_MODELS: range(len(models))} if len(models) > 1 else {}
    columns_of |= {model: [place] for place, model in enumerate(models)}
    for part, members in PARTS.items():
        wordings = np.flatnonzero(np.isin(signs, members))
        if not all((signs[wordings] == sign).sum() >= 2 for sign in members):
            continue
        one_polarity = levels and len(members) == 1
        design = [levels[prompts[place]] for place in wordings] if one_polarity else None
        for who, columns in columns_of.items():
            scaled = who == ALL_MODELS
            blocks = [block.select(columns, wordings) for block in without_block]
            scans = _Scans(all_cells.select(columns, wordings), blocks, signs[wordings], confidence)
            estimated = scans.leave_out(partial(components, standardised=scaled))
            table = scans.rows(estimated, _shares_of, name="component")
            tables = {"components": table}
            of_order = table.columns[table.columns.str.startswith("order_share")]
            table.loc[~table["component"].str.contains("token"), of_order] = np.nan
            # The model's is 0 whatever is left out: an interval of no width would look certain.
            if scaled:
                bounds = ["se", "low", "high", "share_low", "share_high"]
                table.loc[table["component"] == "model", bounds] = np.nan
            tables["correlations"] = scans.rows(estimated, _correlation_column, name="between")
            if design and _complete(design):
                estimate = partial(factors, design=design, standardised=scaled)
                rows = scans.rows(scans.leave_out(estimate, wordings=False), _shares_of)
                tables["factors"] = rows.drop(columns=["share", "share_low", "share_high"])
            about = {"part": part, "model": who, "units": "standardised" if scaled else "raw"}
            for name, table in tables.items():
                pieces[name].append(pd.DataFrame([about] * len(table)).join(table))
    tables = (pd.concat(p, ignore_index=True) if p else pd.DataFrame() for p in pieces.values())
    return Wordings(*tables)


def read_cells(
    rewards: Mapping[str, pd.DataFrame], prompts: Sequence[str], *, seed: int
) -> tuple[Cells, list[Cells]]:
    """Means and covariances over all tokens, and over all but each of the blocks."""
    n, n_models = rewards[prompts[0]].shape
    shape = (n_models, len(prompts))
    values = [rewards[prompt].to_numpy() for prompt in prompts]
    centre = np.stack([matrix.mean(axis=0) for matrix in values], axis=1).astype(float)
    blocks = np.array_split(np.random.default_rng(seed).permutation(n), min(TOKEN_BLOCKS, n))
    sums, products = [], []
    for block in blocks:
        # Centred on the overall mean first, so that products of large rewards do not eat up the
        # digits.
        members = np.sort(block)
        piece = np.stack([matrix[members] for matrix in values], axis=2) - centre
        flat = piece.reshape(len(members), -1)
        sums.append(flat.sum(axis=0))
        products.append(flat.T @ flat)
    total, product = np.sum(sums, axis=0), np.sum(products, axis=0)

    def cells(count: int, amount: np.ndarray, square: np.ndarray) -> Cells:
        mean = amount / count
        covariance = (square - count * np.outer(mean, mean)) / (count - 1)
        return Cells(count, centre + mean.reshape(shape), covariance.reshape(shape + shape))

    rest = zip(blocks, sums, products, strict=True)
    return cells(n, total, product), [cells(n - len(b), total - s, product - p) for b, s, p in rest]


def components(cells: Cells, signs: np.ndarray, *, standardised: bool) -> Components:
    """Variance components of the cells.

    Args:
        cells: of tokens × models × wordings.
        signs: (wordings,), 1 or −1; with both, the polarity is a fixed factor that takes these
            values.
        standardised: bring each model to mean 0 and standard deviation 1 first; its main effect is
            then 0.

    Source: Searle, Casella & McCulloch 1992, section 4.3 (nested and crossed); Cornfield & Tukey
        1956 (fixed factor).
    """
    cells = standardise(cells) if standardised else cells
    estimates = {
        f"{name}{wording}": value
        for name, matrix in _split_by_model(cells.covariance).items()
        for wording, value in _along_wordings(matrix, signs).items()
    }
    # Means over tokens are known only up to what another draw of tokens would add to them.
    noise = {name.removeprefix("token"): value / cells.tokens for name, value in estimates.items()}
    estimates |= _main_effects(cells.mean, signs, noise)
    return estimates | ({"model": 0.0} if standardised else {})


def factors(
    cells: Cells, signs: np.ndarray, *, design: Sequence[Mapping[str, str]], standardised: bool
) -> Components:
    """Components with the token in them, those of the wording divided between the factors it is
    made of.

    The covariance of two wordings is the token's own component, one more for each factor in which
    the two are alike, and `rest` where they are the same wording: a least-squares fit to all pairs,
    which of a complete design gives the classical mean squares' estimates.

    `design`: by wording, the level of each factor; every combination once. `signs` are all the
    same, and not used.
    """
    cells = standardise(cells) if standardised else cells
    alike = {"": np.ones((len(design), len(design)))}
    for factor in design[0]:
        levels = np.array([row[factor] for row in design])
        if len(set(levels)) > 1:
            alike[f" × {factor}"] = levels[:, None] == levels
    alike[" × rest"] = np.eye(len(design))
    terms = np.stack([matrix.ravel() for matrix in alike.values()], axis=1).astype(float)
    estimates: Components = {}
    for name, matrix in _split_by_model(cells.covariance).items():
        fitted = np.linalg.lstsq(terms, matrix.ravel())[0].tolist()
        estimates |= {f"{name}{term}": value for term, value in zip(alike, fitted, strict=True)}
    return estimates


def correlations(found: Components) -> Components:
    """The components as the correlation over tokens that two scans should show, both standardised.

    With both polarities: a model that understands the question turns round, and the one between
    opposite ones is negative.
    """
    parts = ("", " × model", " × frame", " × model × frame", " × wording")
    values = (found.get(f"token{name}", 0.0) for name in parts)
    token, model, token_frame, model_frame, token_wording = values
    total = sum(value for name, value in found.items() if name.startswith("token"))
    several, frame_responses = "token × model" in found, "token × frame" in found
    same, opposite = " of one frame" if frame_responses else "", "two wordings of opposite frames"
    shared = {f"one model, two wordings{same}": token + model + token_frame + model_frame}
    if frame_responses:
        shared[f"one model, {opposite}"] = token + model - token_frame - model_frame
    if several:
        shared["two models, one wording"] = token + token_frame + token_wording
        shared[f"two models, two wordings{same}"] = token + token_frame
    if several and frame_responses:
        shared[f"two models, {opposite}"] = token - token_frame
    return {name: value / total for name, value in shared.items()}


def standardise(cells: Cells) -> Cells:
    """As if each model's rewards had mean 0 and standard deviation 1 (divisor n) over all tokens
    and wordings."""
    tokens, mean, covariance = cells
    within = np.einsum("mwmw->mw", covariance).mean(axis=1) * (tokens - 1) / tokens
    scale = np.sqrt(within + mean.var(axis=1))  # (models,)
    return Cells(
        tokens,
        (mean - mean.mean(axis=1, keepdims=True)) / scale[:, None],
        covariance / scale[:, None, None, None] / scale[:, None],
    )


def _split_by_model(covariance: np.ndarray) -> dict[str, np.ndarray]:
    """Covariance between wordings, (wordings, wordings): between two models, on average; and what a
    model adds of its own. They add up to one model's."""
    models = len(covariance)
    mean_covariance = np.einsum("mwmv->wv", covariance) / models
    if models == 1:
        return {"token": mean_covariance}
    between = (covariance.sum(axis=(0, 2)) - models * mean_covariance) / (models * (models - 1))
    return {"token": between, "token × model": mean_covariance - between}


def _along_wordings(matrix: np.ndarray, signs: np.ndarray) -> Components:
    """What all wordings share, what turns round with the polarity, and what is one wording's
    own."""
    blocks = [matrix[np.ix_(signs == sign, signs == sign)] for sign in np.unique(signs)]
    alike = [(block.sum() - np.trace(block)) / (len(block) * (len(block) - 1)) for block in blocks]
    diagonal = [np.trace(block) / len(block) for block in blocks]
    variances = np.subtract(diagonal, alike)
    wording = float(np.average(variances, weights=[len(block) - 1 for block in blocks]))
    if len(blocks) == 1:
        return {"": float(alike[0]), " × wording": wording}
    same = float(np.mean(alike))
    opposite = float(matrix[np.ix_(signs == 1, signs == -1)].mean())
    return {"": (same + opposite) / 2, " × frame": (same - opposite) / 2, " × wording": wording}


def _main_effects(mean: np.ndarray, signs: np.ndarray, noise: Mapping[str, float]) -> Components:
    """Components of the cells' means, (models, wordings), less what the drawing of tokens puts into
    them.

    `noise` is a token's component over the number of tokens, by what else is in its name ("", " ×
    model × wording").
    """
    models = len(mean)
    per_frame = [mean[:, signs == sign] for sign in np.unique(signs)[::-1]]  # the positive first
    freedom = sum(frame.shape[1] - 1 for frame in per_frame)
    # Of one wording in the mean.
    left = 1 / len(per_frame) ** 2 * sum(1 / frame.shape[1] for frame in per_frame)
    across = [frame.mean(axis=0) for frame in per_frame]
    wordings = sum(float(np.sum((row - row.mean()) ** 2)) for row in across) / freedom
    effects, square = {}, 0.0
    if models > 1:
        for frame, row in zip(per_frame, across, strict=True):
            residual = frame - frame.mean(axis=1, keepdims=True) - row + row.mean()
            square += float(np.sum(residual**2)) / (freedom * (models - 1))
        level = np.mean([frame.mean(axis=1) for frame in per_frame], axis=0)  # (models,)
        effects["model"] = float(level.var(ddof=1)) - left * square - noise[" × model"]
    effects["wording"] = wordings - square / models - noise[" × wording"]
    if len(per_frame) == 2:
        half = (per_frame[0].mean(axis=1) - per_frame[1].mean(axis=1)) / 2  # (models,)
        sampling = left * (effects["wording"] + noise[" × wording"]) + noise[" × frame"]
        frame = float(half.mean()) ** 2 - sampling
        if models > 1:
            apart = float(half.var(ddof=1))
            effects["model × frame"] = apart - left * square - noise[" × model × frame"]
            frame -= apart / models
        effects["frame"] = frame
    if models > 1:
        effects["model × wording"] = square - noise[" × model × wording"]
    return effects


class _Scans(NamedTuple):
    """One part and one model, or all: cells, the same without each block of tokens, and each
    wording's polarity."""

    cells: Cells
    blocks: list[Cells]
    signs: np.ndarray
    confidence: float

    def leave_out(
        self, estimate: Callable[[Cells, np.ndarray], Components], *, wordings: bool = True
    ) -> tuple[Components, dict[str, list[Components]]]:
        """Estimates, and those with tokens, wordings and models left out in turn, by what was left
        out."""
        cells, signs = self.cells, self.signs
        models, every = np.arange(len(cells.mean)), np.arange(len(signs))
        out = {"tokens": [estimate(block, signs) for block in self.blocks]}
        # Each polarity must keep two wordings when it has lost one, and the models likewise.
        if wordings and all((signs == sign).sum() >= 3 for sign in set(signs)):
            rest = [np.delete(every, i) for i in every]
            out["wordings"] = [estimate(cells.select(models, w), signs[w]) for w in rest]
        if len(models) >= 3:
            rest = [np.delete(models, i) for i in models]
            out["models"] = [estimate(cells.select(m, every), signs) for m in rest]
        return estimate(cells, signs), out

    def rows(
        self,
        estimated: tuple[Components, dict[str, list[Components]]],
        derive: Callable[[Components], dict[str, Components]],
        name: str = "component",
    ) -> pd.DataFrame:
        """What is derived of the estimates, with jackknife intervals: a row for each name, columns
        for each number."""

        def values(found: Components) -> np.ndarray:  # (columns, names)
            return np.array([list(column.values()) for column in derive(found).values()])

        full, without = estimated
        spreads = [jackknife(np.stack([values(left) for left in out])) for out in without.values()]
        se, low, high = crossed_interval(values(full), spreads, confidence=self.confidence)
        derived = derive(full)
        table = pd.DataFrame({name: list(next(iter(derived.values())))})
        limits = {"estimate": (-np.inf, np.inf), "correlation": (-1, 1)}
        for place, (column, numbers) in enumerate(derived.items()):
            table[column] = list(numbers.values())
            # The first column's interval has no name of its own.
            prefix = f"{column}_" if place else ""
            table[f"{prefix}low"] = low[place].clip(*limits.get(column, (0, 1)))
            table[f"{prefix}high"] = high[place].clip(*limits.get(column, (0, 1)))
        table.insert(2, "se", se[0])
        models, wordings = self.cells.mean.shape
        return table.assign(
            tokens=self.cells.tokens, models=models, wordings=wordings, covers=", ".join(without)
        )


def _correlation_column(components: Components) -> dict[str, Components]:
    return {"correlation": correlations(components)}


def _shares_of(components: Components) -> dict[str, Components]:
    """Estimates; their shares of all; the shares of those with the token in them. Negative ones
    count as 0."""
    positive = {name: max(value, 0.0) for name, value in components.items()}
    of_order = {name: value * ("token" in name) for name, value in positive.items()}
    shares = {}
    for column, values in (("share", positive), ("order_share", of_order)):
        total = sum(values.values())
        shares[column] = {name: value / total if total else value for name, value in values.items()}
    return {"estimate": dict(components), **shares}


def _complete(design: Sequence[Mapping[str, str]]) -> bool:
    """Whether every combination of the levels is there once, and leaves something over for
    `rest`."""
    sizes = [len({row[name] for row in design}) for name in design[0]]
    distinct = len({tuple(row.values()) for row in design})
    left_over = len(design) - 1 - sum(size - 1 for size in sizes)
    return distinct == len(design) == np.prod(sizes) and left_over > 0


def _checked(
    rewards: Mapping[str, pd.DataFrame], polarity: Mapping[str, int]
) -> tuple[list[str], list[str]]:
    """Prompts and models; TableError where these are too few, or a model is constant."""
    prompts = list(rewards)
    check_polarity({prompt: polarity[prompt] for prompt in prompts})
    varied = False
    for table in rewards.values():
        check_rewards(table)
        varied |= np.ptp(table.to_numpy(), axis=0) > 0
    names = rewards[prompts[0]].columns.astype(str)
    if not varied.all():
        flat = ", ".join(names[~varied])
        raise TableError(f"The same reward for every token from: {flat}. Leave them out.")
    return prompts, [*names]


@analysis("variance_components", Needs(wordings=True, prompts=0), place=160)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """What decides the order of tokens: the question, the model, the wording and its factors."""
    design = design_of(tables)
    rewards = {prompt: tables.shared(members) for prompt, members in design.tables.items()}
    indexes = (matrix.index for matrix in rewards.values())
    shared = reduce(lambda a, b: a if a.equals(b) else a.intersection(b), indexes)
    found = variance_components(
        {p: m if m.index.equals(shared) else m.reindex(shared) for p, m in rewards.items()},
        polarity=design.polarity,
        levels=design.levels,
        confidence=options.confidence,
        seed=options.seed,
    )
    found = Wordings(*(table.assign(candidates=tables.candidates) for table in found))
    rows = found.components
    part = BOTH if BOTH in set(rows["part"]) else rows["part"].iloc[0]
    who = ALL_MODELS if ALL_MODELS in set(rows["model"]) else rows["model"].iloc[0]
    results = [_components_result(tables, rows, part, who, design.notes)]
    results.append(_correlations_result(tables, found.correlations, part, who))
    return results + ([_factors_result(tables, found.factors, who)] if len(found.factors) else [])


def _forest(table: pd.DataFrame, who: str) -> Forest:
    """Shares of the variance that moves tokens against one another."""
    names = [name for name in dict.fromkeys(table["component"]) if "token" in name]
    return Forest.of(
        SHARE,
        row="component",
        group="part",
        where={"model": who, "component": names},
        tabs=("candidates",),
        xlabel="share of the variance that has the token in it",
    )


def _components_result(
    tables: TableSet, table: pd.DataFrame, part: str, who: str, notes: list[str]
) -> Result:
    rows = table[(table["part"] == part) & (table["model"] == who)].set_index("component")
    main = rows.loc["token × frame" if part == BOTH else "token"]
    does = "turns round with the question" if part == BOTH else "stays whatever the wording"
    where = f"in all {main['models']} models" if who == ALL_MODELS else f"in {tables.labels[who]}"
    wording = rows["order_share"][rows.index.str.endswith("× wording")].sum()
    shares = table[table["model"] == who].dropna(subset="order_share")
    keys = "wording/" + shares["part"] + "/" + shares["component"]
    return Result.of_row(
        main,
        "variance_components",
        table,
        replace(SHARE, label=f"share of {main.name}", of=tables.things),
        f"{main['order_share']:.0%} of the variance that orders {tables.things} {does} {where}; "
        f"wording: {wording:.1%}.",
        share=1 / 2,
        plot=_forest(table, who),
        method=METHOD,
        notes=tuple(notes),
        summary=dict(zip(keys, shares["order_share"].tolist(), strict=True)),
    )


def _correlations_result(tables: TableSet, table: pd.DataFrame, part: str, who: str) -> Result:
    rows = table[(table["part"] == part) & (table["model"] == who)]
    one = rows.iloc[0]
    of_one = table[table["between"].str.startswith("one model, ")]
    two = rows.loc[rows["between"].str.startswith("two models, two wordings"), "correlation"]
    apart = f"; in two models at {two.iloc[0]:.2f}" if len(two) else ""
    effect = Effect("correlation", "r", "low", "high", null=0.0, n="tokens", of=tables.things)
    return Result.of_row(
        one,
        "wording_correlations",
        table,
        effect,
        "In one model, two wordings of one polarity correlate at r = "
        f"{one['correlation']:.2f}{apart}.",
        size=1 - one["correlation"],
        share=1 / 2,
        plot=Forest.of(
            effect,
            data=of_one.assign(between=of_one["between"].str.removeprefix("one model, ")),
            group="between",
            where={"part": part},
            tabs=("candidates",),
            xlabel="expected correlation of two scans of one model",
        ),
        method=METHOD,
    )


def _factors_result(tables: TableSet, table: pd.DataFrame, who: str) -> Result:
    rows = table[(table["model"] == who) & ~table["component"].isin(["token", "token × model"])]
    names = rows["component"].str.rsplit(" × ", n=1).str[-1]
    sums = rows.groupby(["part", names])["order_share"].sum()
    part, factor = sums.drop("rest", level=1).idxmax()
    share = float(sums[part, factor])
    return Result(
        "wording_factors",
        table,
        headline=f"Of the wording's factors, the {factor} matters most: {share:.1%} of the "
        f"variance that orders {tables.things} on {part} prompts.",
        plot=_forest(rows, who),
        method=METHOD,
        weight=weight_of(share, share=1 / 2),
        estimate=Estimate("share", share, int(rows["tokens"].iloc[0]), tables.things),
    )
