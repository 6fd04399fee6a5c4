"""Does the optimal token survive another wording of the same question?

Knows one model's rewards of the same candidates under several wordings; knows nothing of other models.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.analysis.checks import check_rewards, check_varied
from pessimal.analysis.jackknife import interval, jackknife
from pessimal.errors import TableError

SIGN_NAMES = {1: "positive", -1: "negative"}
ANY, OPPOSITE = "any wording of the frame", "opposite frame"
ENDS = {"optimal": 1, "pessimal": -1}


class Paraphrases(NamedTuple):
    """What one pass over a model's wordings says."""

    survival: pd.DataFrame
    tokens: pd.DataFrame
    """The optimal and pessimal candidates over all wordings of a frame, the most frequent first."""


class _Pairs(NamedTuple):
    """Ordered pairs of wordings (from, to): the rank of one's extreme among the other's; and which pairs count."""

    rank: np.ndarray
    """(wordings, wordings), 1 = the extreme there too."""
    spearman: np.ndarray
    """(wordings, wordings)."""
    chosen: np.ndarray
    """(wordings, wordings) bool."""


def paraphrase(
    rewards: pd.DataFrame,
    *,
    frames: Mapping[str, int],
    levels: Mapping[str, Mapping[str, str]] | None = None,
    top: int = 20,
    confidence: float = 0.95,
) -> Paraphrases:
    """Where the optimal and the pessimal candidate of one wording stand under another.

    Over all ordered pairs of wordings of one frame, over those that differ in one factor only, and over those of
    opposite frames, where a model that understands the question lets nothing survive. Ties: of several candidates that
    share the extreme the first row stands for them (`tied` counts the wordings where that happens); its rank
    elsewhere is 1 + the number of strictly more extreme candidates, so what ties with the extreme there survives.
    Spearman takes mid-ranks over all candidates. Duplicate inputs count as often as given.

    Pairs that share a wording are dependent, so intervals are jackknives over wordings (Student t), and never narrower
    than they would be were all pairs independent. Where all pairs say the same, a jackknife sees no spread: there the interval is Wilson's for as many independent
    trials as there are wordings. The wordings of a factorial are few phrases recombined: other phrases may do worse.

    Args:
        rewards: candidates × prompts of one model.
        frames: 1 or −1 by prompt.
        levels: by prompt, the level of each factor of the wording.
        top: k of `in_top`.
        confidence: of the intervals.

    Returns:
        survival: frame (of the first wording: "positive", "negative"), changed ("any wording of the frame", "only
        ADJECTIVE" for each factor, "opposite frame"), end ("optimal", "pessimal"), wordings, pairs, survives (share
        of pairs), survives_low, survives_high, in_top (share of pairs with the candidate among the k most extreme),
        in_top_low, in_top_high, top, median_rank, lower_quartile, upper_quartile (of the rank, over pairs), spearman
        (mean over pairs), spearman_low, spearman_high, candidates, tied.
        tokens: frame, end, text, wordings (where it is the extreme), of (wordings of the frame), distinct
        (candidates that are the extreme of some wording).

    Raises:
        TableError: fewer than two wordings of a frame, a missing frame, or see `checks.check_rewards`.
    """
    prompts = [str(prompt) for prompt in rewards]
    signs = _checked(rewards, frames)
    values = rewards.to_numpy(dtype=float)
    correlation = spearman_matrix(values)
    survival, tokens = [], []
    for end, direction in ENDS.items():
        first, rank, tied = _ranks_of_extremes(direction * values)
        for frame, changed, chosen in _kinds(prompts, signs, levels):
            row = {"frame": frame, "changed": changed, "end": end}
            row |= _survival(_Pairs(rank, correlation, chosen), top=top, confidence=confidence)
            members = chosen.any(axis=1)
            survival.append(row | {"candidates": len(values), "tied": int(tied[members].sum())})
        for sign, frame in SIGN_NAMES.items():
            tokens += _frequent(rewards.index, first[signs == sign], {"frame": frame, "end": end})
    return Paraphrases(pd.DataFrame(survival), pd.DataFrame(tokens))


def spearman_matrix(values: np.ndarray) -> np.ndarray:
    """Spearman's rho of every two columns of (n, m), mid-ranks for ties: one ranking a column, one matrix product."""
    ranks = np.empty(values.shape)
    for place, column in enumerate(values.T):
        ranks[:, place] = stats.rankdata(column)
    ranks -= ranks.mean(axis=0)
    ranks /= np.sqrt((ranks**2).sum(axis=0))
    return np.clip(ranks.T @ ranks, -1, 1)


def _ranks_of_extremes(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each column (m): the row of its highest value; that row's rank in every column (m, m); whether it ties."""
    first = values.argmax(axis=0)
    ascending = np.sort(values, axis=0)
    tied = ascending[-1] == ascending[-2]
    rank = np.empty((len(first), len(first)))
    for place in range(len(first)):
        not_above = np.searchsorted(ascending[:, place], values[first, place], side="right")
        rank[:, place] = 1 + len(values) - not_above
    return first, rank, tied


def _kinds(
    prompts: list[str], signs: np.ndarray, levels: Mapping[str, Mapping[str, str]] | None
) -> Iterator[tuple[str, str, np.ndarray]]:
    """Which ordered pairs count, by the frame of the first and by what differs in the second."""
    same = (signs[:, None] == signs) & ~np.eye(len(signs), dtype=bool)
    names = list(levels[prompts[0]]) if levels else []
    differs = {
        name: np.array([[levels[a][name] != levels[b][name] for b in prompts] for a in prompts])
        for name in names
    }
    count = sum(differs.values()) if names else None
    for sign, frame in SIGN_NAMES.items():
        of_frame = (signs == sign)[:, None]
        kinds = {ANY: same & of_frame}
        kinds |= {f"only {name}": same & of_frame & differs[name] & (count == 1) for name in names}
        kinds[OPPOSITE] = (signs[:, None] != signs) & of_frame
        yield from ((frame, changed, chosen) for changed, chosen in kinds.items() if chosen.any())


def _survival(pairs: _Pairs, *, top: int, confidence: float) -> dict[str, float]:
    """The numbers of one row: shares and mean correlation with intervals, and quartiles of the rank."""
    rank = pairs.rank[pairs.chosen]
    numbers = np.stack([pairs.rank == 1, pairs.rank <= top, pairs.spearman]).astype(float)  # (3, m, m)
    estimates = numbers[:, pairs.chosen].mean(axis=1)
    units = np.flatnonzero(pairs.chosen.any(axis=0) | pairs.chosen.any(axis=1))
    low, high = np.full((2, 3), np.nan)
    replicates = []
    for unit in units:
        left = pairs.chosen.copy()
        left[unit] = left[:, unit] = False
        if left.any():
            replicates.append(numbers[:, left].mean(axis=1))
    if len(units) >= 3 and len(replicates) == len(units):
        spread = jackknife(np.stack(replicates))
        # Three tokens that are optimal nine times each: whichever wording is left out, the share stays the same.
        floor = numbers[:, pairs.chosen].var(axis=1) / (pairs.chosen.sum() / 2)
        spread = spread._replace(variance=np.maximum(spread.variance, floor))
        _, low, high = interval(estimates, [spread], confidence=confidence)
        for place in range(2):
            if np.ptp(numbers[place, pairs.chosen]) == 0:
                low[place], high[place] = _wilson(estimates[place], len(units), confidence)
    low, high = np.maximum(low, (0, 0, -1)), np.minimum(high, 1)
    quartiles = np.quantile(rank, [0.5, 0.25, 0.75])
    row = {"wordings": int(pairs.chosen.any(axis=1).sum()), "pairs": int(pairs.chosen.sum())}
    for place, name in enumerate(("survives", "in_top", "spearman")):
        row |= {name: estimates[place], f"{name}_low": low[place], f"{name}_high": high[place]}
    row["top"] = top
    return row | dict(
        zip(("median_rank", "lower_quartile", "upper_quartile"), quartiles.tolist(), strict=True)
    )


def _wilson(share: float, n: int, confidence: float) -> tuple[float, float]:
    """Wilson's score interval of a share of n."""
    found = stats.binomtest(round(share * n), n).proportion_ci(confidence, method="wilson")
    return found.low, found.high


def _frequent(texts: pd.Index, rows: np.ndarray, where: dict[str, str]) -> list[dict]:
    """The candidates at one end over the wordings of one frame, the most frequent first, then in order of the rows."""
    found, counts = np.unique(rows, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return [
        where | {"text": texts[found[i]], "wordings": int(counts[i]), "of": len(rows), "distinct": len(found)}
        for i in order
    ]


def _checked(rewards: pd.DataFrame, frames: Mapping[str, int]) -> np.ndarray:
    """The sign of each column; TableError where there is none, or nothing to pair."""
    check_rewards(rewards)
    check_varied(rewards)
    if unknown := [str(prompt) for prompt in rewards if frames.get(prompt) not in (1, -1)]:
        raise TableError(
            f"No frame for the prompts {', '.join(unknown)}; a frame is 1 (good words answer it) or -1 (bad words do)."
        )
    signs = np.array([frames[prompt] for prompt in rewards])
    if max((signs == 1).sum(), (signs == -1).sum()) < 2:
        raise TableError(
            f"Given were {(signs == 1).sum()} positive and {(signs == -1).sum()} negative wordings; a paraphrase needs two "
            "of one frame. Scan more wordings: pessimal scan prompts=factorial54"
        )
    return signs
