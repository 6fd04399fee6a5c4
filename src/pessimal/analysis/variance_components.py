"""One question in many wordings: how much of a reward is the token's, the model's, the wording's.

Knows rewards of the same tokens from the same models under wordings of one question. Everything here follows from
the means of the cells (model, wording) and their covariances over tokens, so 70 million rewards are read once and
become a matrix of 540 × 540; leaving out a model, a wording or a block of tokens is then arithmetic on that matrix.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from pessimal.analysis.cells import Cells, read_cells, select
from pessimal.analysis.checks import check_rewards
from pessimal.analysis.jackknife import interval, jackknife
from pessimal.analysis.strata import components, correlations, factors
from pessimal.errors import TableError

ALL_MODELS = "all models"
PARTS = {"positive": (1,), "negative": (-1,), "both frames": (1, -1)}


class Wordings(NamedTuple):
    """What one pass over the rewards says."""

    components: pd.DataFrame
    factors: pd.DataFrame
    """What within a frame the wording's components belong to: adjective, superlative, concision."""
    correlations: pd.DataFrame
    """The components as correlations that one should expect between two scans."""


def variance_components(
    rewards: Mapping[str, pd.DataFrame],
    *,
    frames: Mapping[str, int],
    levels: Mapping[str, Mapping[str, str]] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Wordings:
    """Random-effects analysis of variance of tokens × models × wordings, one reward a cell, all crossed.

    For each frame alone, tokens (T), models (M) and wordings (W) are random and the three-way interaction is what is
    left over, numerical noise included. For both frames together the frame (F) is fixed at ±1 and wordings lie within
    frames: *token* is then what is liked or disliked whatever the question, *token × frame* what turns round with the
    question. Estimates are those of the classical mean squares, in closed form; they are unbiased and may be negative,
    which is how a component of zero looks. Shares set negative ones to 0.

    Scales of models are not comparable, so over all models each model's rewards are standardised first, to mean 0 and
    standard deviation 1 over the tokens and wordings of the part; the model's main effect is 0 by that. Each model is
    also taken alone, in its own raw units: tokens × wordings.

    Intervals are jackknives over tokens (20 random blocks), over wordings, and, with three models or more, over models,
    their variances added; `covers` says which. They take wordings and models for draws from more of their kind. The
    wordings of a factorial are built from a few adjectives and phrases, so other adjectives may move a number further.
    Tied rewards need no treatment; duplicate inputs should be dropped first, as each row counts as one token.

    Args:
        rewards: by prompt, tokens × models, the same tokens and models in all.
        frames: 1 or −1 by prompt.
        levels: by prompt, the level of each factor of the wording. Without them there is no table of factors.
        confidence: of the intervals.
        seed: of the blocks of tokens.

    Returns:
        components: part ("positive", "negative", "both frames"), model ("all models", or one), units ("standardised",
        "raw"), component, estimate, se, low, high, share (of all components), share_low, share_high, order_share (of
        the components with the token in them, which alone decide what is optimal), order_share_low, order_share_high,
        tokens, models, wordings, covers.
        factors: the same columns but share, for positive and negative alone: the wording's components divided between
        its factors and `rest`, the interactions of factors. `order_share` is of the same whole. Intervals
        leave out tokens and models only: a factor with three levels leaves nothing to leave out.
        correlations: part, model, units, between, correlation, se, low, high, tokens, models, wordings, covers.
        A part is there if it has two wordings in each of its frames; a factor table if its factorial is complete.

    Raises:
        TableError: no part has two wordings, tables that do not hold the same tokens and models, or a missing frame.

    Source: Searle, Casella & McCulloch 1992, chapters 3 and 4; Christian et al. (follow-up, 2026) for the 54 prompts.
    """
    prompts, models = _checked(rewards, frames)
    signs = np.array([frames[prompt] for prompt in prompts])
    whole, without_block = read_cells(rewards, prompts, seed=seed)
    pieces: dict[str, list[pd.DataFrame]] = {"components": [], "factors": [], "correlations": []}
    for part, members in PARTS.items():
        kept = np.flatnonzero(np.isin(signs, members))
        if not all((signs[kept] == sign).sum() >= 2 for sign in members):
            continue
        design = [levels[prompts[place]] for place in kept] if levels and len(members) == 1 else None
        for who, columns in [(ALL_MODELS, range(len(models))), *((m, [i]) for i, m in enumerate(models))]:
            if who == ALL_MODELS and len(models) < 2:
                continue
            scene = _Scene(
                cells=select(whole, list(columns), kept),
                blocks=[select(block, list(columns), kept) for block in without_block],
                signs=signs[kept],
                standardise=who == ALL_MODELS,
                confidence=confidence,
                told={"part": part, "model": who, "units": "standardised" if who == ALL_MODELS else "raw"},
            )
            pieces["components"].append(_component_rows(scene))
            pieces["correlations"].append(_correlation_rows(scene))
            if design and _complete(design):
                pieces["factors"].append(_factor_rows(scene, design))
    return Wordings(**{name: _joined(found) for name, found in pieces.items()})


class _Scene(NamedTuple):
    """One part and one model, or all: what the rows of every table are computed from."""

    cells: Cells
    blocks: list[Cells]
    signs: np.ndarray
    standardise: bool
    confidence: float
    told: dict[str, str]


class _Measured(NamedTuple):
    """Numbers by name, in columns; of every replicate, so it is not worth a table."""

    names: list[str]
    columns: list[str]
    values: np.ndarray
    """(names, columns)."""


def _component_rows(scene: _Scene) -> pd.DataFrame:
    def measure(cells: Cells, signs: np.ndarray) -> _Measured:
        found = components(cells.mean, cells.covariance, cells.tokens, signs, standardised=scene.standardise)
        values = np.array(list(found.values()))
        of_order = np.where(["token" in name for name in found], values, 0)
        return _measured(
            found, {"estimate": values, "share": _shares(values), "order_share": _shares(of_order)}
        )

    rows, covers = _jackknifed(scene, measure, name="component", leave_wordings=True)
    without_token = ~rows["component"].str.contains("token")
    rows.loc[without_token, ["order_share", "order_share_low", "order_share_high"]] = np.nan
    if scene.standardise:  # 0 whatever is left out: an interval of no width would look like knowledge
        bounds = ["se", "low", "high", "share_low", "share_high"]
        rows.loc[rows["component"] == "model", bounds] = np.nan
    return _placed(rows, scene, covers)


def _factor_rows(scene: _Scene, design: Sequence[Mapping[str, str]]) -> pd.DataFrame:
    def measure(cells: Cells, signs: np.ndarray) -> _Measured:
        found = factors(cells.mean, cells.covariance, cells.tokens, design, standardised=scene.standardise)
        values = np.array(list(found.values()))
        return _measured(found, {"estimate": values, "order_share": _shares(values)})

    rows, covers = _jackknifed(scene, measure, name="component", leave_wordings=False)
    return _placed(rows, scene, covers)


def _correlation_rows(scene: _Scene) -> pd.DataFrame:
    def measure(cells: Cells, signs: np.ndarray) -> _Measured:
        found = components(cells.mean, cells.covariance, cells.tokens, signs, standardised=scene.standardise)
        expected = correlations(found)
        return _measured(expected, {"correlation": np.array(list(expected.values()))})

    rows, covers = _jackknifed(scene, measure, name="between", leave_wordings=True)
    return _placed(rows, scene, covers)


def _jackknifed(
    scene: _Scene, measure: Callable[[Cells, np.ndarray], _Measured], *, name: str, leave_wordings: bool
) -> tuple[pd.DataFrame, str]:
    """What is measured, with standard errors and bounds, and what was left out in turn to get them."""
    cells, signs = scene.cells, scene.signs
    n_models, n_wordings = cells.mean.shape
    everyone, every = list(range(n_models)), np.arange(n_wordings)
    ways = {"tokens": [measure(block, signs) for block in scene.blocks]}
    # Each frame must keep two wordings when it has lost one, and the models likewise.
    if leave_wordings and all((signs == sign).sum() >= 3 for sign in set(signs)):
        ways["wordings"] = [
            measure(select(cells, everyone, np.delete(every, place)), np.delete(signs, place))
            for place in every
        ]
    if n_models >= 3:
        ways["models"] = [
            measure(select(cells, everyone[:place] + everyone[place + 1 :], every), signs)
            for place in everyone
        ]
    spreads = [jackknife(np.stack([found.values for found in left])) for left in ways.values()]
    found = measure(cells, signs)
    se, low, high = interval(found.values, spreads, confidence=scene.confidence)
    rows = pd.DataFrame({name: found.names})
    for place, column in enumerate(found.columns):
        rows[column] = found.values[:, place]
        prefix, bounds = ("", (-np.inf, np.inf)) if column == "estimate" else (f"{column}_", (0, 1))
        if column == "correlation":
            prefix, bounds = "", (-1, 1)
        if not prefix:
            rows["se"] = se[:, place]
        rows[f"{prefix}low"], rows[f"{prefix}high"] = (
            low[:, place].clip(*bounds),
            high[:, place].clip(*bounds),
        )
    return rows, ", ".join(ways)


def _measured(names: Iterable[str], columns: dict[str, np.ndarray]) -> _Measured:
    return _Measured(list(names), list(columns), np.stack(list(columns.values()), axis=1))


def _shares(values: np.ndarray) -> np.ndarray:
    positive = np.maximum(values, 0)
    return positive / positive.sum() if positive.sum() else positive


def _placed(rows: pd.DataFrame, scene: _Scene, covers: str) -> pd.DataFrame:
    """The rows with what they are about before them, and what they rest on behind."""
    n_models, n_wordings = scene.cells.mean.shape
    about = pd.DataFrame([scene.told] * len(rows))
    return pd.concat([about, rows], axis=1).assign(
        tokens=scene.cells.tokens, models=n_models, wordings=n_wordings, covers=covers
    )


def _joined(pieces: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(pieces, ignore_index=True) if pieces else pd.DataFrame()


def _complete(design: Sequence[Mapping[str, str]]) -> bool:
    """Whether every combination of the levels is there once, and leaves something over for `rest`."""
    names = list(design[0])
    sizes = [len({row[name] for row in design}) for name in names]
    distinct = len({tuple(row[name] for name in names) for row in design})
    return distinct == len(design) == np.prod(sizes) and len(design) - 1 > sum(size - 1 for size in sizes)


def _checked(rewards: Mapping[str, pd.DataFrame], frames: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """Prompts and models; TableError where the tables are not one design."""
    if unknown := [prompt for prompt in rewards if frames.get(prompt) not in (1, -1)]:
        raise TableError(
            f"No frame for the prompts {', '.join(unknown)}; a frame is 1 (good words answer it) or -1 (bad words do)."
        )
    counts = {sign: sum(frames[prompt] == sign for prompt in rewards) for sign in (1, -1)}
    if max(counts.values()) < 2:
        raise TableError(
            f"Given were {counts[1]} positive and {counts[-1]} negative wordings; components need two of one frame. Scan "
            "more wordings: pessimal scan prompts=factorial54"
        )
    prompts = list(rewards)
    first = rewards[prompts[0]]
    for prompt in prompts:
        check_rewards(rewards[prompt])
        if not rewards[prompt].index.equals(first.index) or list(rewards[prompt]) != list(first):
            raise TableError(
                f"The rewards for {prompts[0]!r} and {prompt!r} do not hold the same tokens and models in the same order; "
                "keep those that every prompt has."
            )
    flat = [
        model for model in first if all(np.ptp(table[model].to_numpy()) == 0 for table in rewards.values())
    ]
    if flat:
        raise TableError(
            f"The same reward for every token from: {', '.join(map(str, flat))}. Leave them out."
        )
    return prompts, [str(model) for model in first]
