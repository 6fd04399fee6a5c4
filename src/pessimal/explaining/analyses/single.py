"""What the edits of one comparison say: length first, then the attributes that they were asked for.

Knows the table of outcomes with its texts. Does not know detectors. The units are edits of these
two responses, so that nothing here is said of other comparisons.
"""

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.explaining.analyses.slopes import LENGTH, ROUNDING, fitted_line
from pessimal.explaining.attribute import Amount
from pessimal.explaining.edits.distances import tokens
from pessimal.explaining.outcomes import CHOSEN, valid_rows

RETURNED = ["attribute", "n", "slope", "slope_low", "slope_high", "slope_p"]


def n_words(text: str) -> int:
    """Words of a text; a Chinese or Japanese character is one."""
    return sum(any(map(str.isalnum, token)) for token in tokens(text))


def single_slopes(
    table: pd.DataFrame, *, confidence: float = 0.95, permutations: int = 9999, seed: int = 0
) -> pd.DataFrame:
    """What raises the reward of one comparison's responses: twice the words, and more of each
    attribute with the change in words held.

    A least-squares line of the change of the edited response's reward, each text once, on the
    binary logarithm of words after over words before, both about their means over the edits of one
    response; and for every attribute such a line with +1 for edits asked for more of it and −1 for
    less. p draws the residuals of a response's edits in another order: for attributes the largest
    of all, which corrects for their number. Length and attributes share the error, half each.
    Assumed: without an effect the edits of a response are as likely in any order. Edits along one
    attribute are alike in wording, so the slope of length must also hold whichever of these are
    left out: its interval is the jackknife's over attributes, that of an attribute Student's,
    corrected for their number (Bonferroni), and no p is below what its interval gives.

    Args:
        table: of outcomes of one comparison; placebos are edits asked for nothing.

    Returns:
        Row 0 is `LENGTH`; then an attribute each, in the table's order: attribute, n (edits along
        it; of length all), slope (reward for twice the words, or an edit asked for more),
        slope_low, slope_high, slope_p. NaN where the edits say nothing: too few, or of one length.

    Source: Freedman & Lane 1983 (residuals drawn again); Westfall & Young 1993 (the largest).
    """
    rows = valid_rows(table).drop_duplicates(["response", "edited"])
    response, amount = rows["response"].to_numpy(), rows["amount"] == Amount.more.value
    sign = np.where(rows["side"] == CHOSEN, 1.0, -1.0)
    before, after = ([max(n_words(t), 1) for t in rows[name]] for name in ("original", "edited"))
    names = [name for name in dict.fromkeys(table["attribute"]) if name != LENGTH]
    along = np.array([rows["attribute"] == name for name in names]).reshape(len(names), len(rows)).T
    asked = along * np.where(amount, 1.0, -1.0)[:, None]  # (n, attributes)
    change = _centred(sign * rows["change"].to_numpy(dtype=float), response)
    length = _centred(np.log2(np.divide(after, before))[:, None], response)
    free = len(rows) - len(set(response)) - 1
    rng = np.random.default_rng(seed)
    orders = np.empty((permutations, len(rows)), dtype=np.intp)
    for one in set(response):
        places = np.flatnonzero(response == one)
        orders[:, places] = rng.permuted(np.tile(places, (permutations, 1)), axis=1)
    first = _tested(change, length, free, orders, confidence)
    index, kinds = pd.factorize(rows["attribute"])
    line = fitted_line(length, change, index, len(kinds))
    error, freedom = line["error"][0], line["freedom"][0]
    p = 2 * stats.t.sf(np.abs(first["slope"]) / max(error, ROUNDING), freedom)
    reach = stats.t.ppf((1 + confidence) / 2, freedom) * error
    first = first.assign(
        slope_low=first["slope"] - reach,
        slope_high=first["slope"] + reach,
        slope_p=np.maximum(first["slope_p"], p),
    )
    rest = _tested(
        _held(change[:, None], length)[:, 0],
        _held(_centred(asked, response), length),
        free - 1,
        orders,
        confidence,
    )
    counts = [len(rows), *along.sum(axis=0).tolist()]
    labels = pd.DataFrame({"attribute": [LENGTH, *names], "n": counts})
    return labels.join(pd.concat([first, rest], ignore_index=True))[RETURNED]


def _centred(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Values (n,) or (n, k), about their means over each group."""
    frame = pd.DataFrame(values)
    return (frame - frame.groupby(groups).transform("mean")).to_numpy().reshape(values.shape)


def _held(values: np.ndarray, length: np.ndarray) -> np.ndarray:
    """What of values (n, k) the change in words (n, 1) does not explain."""
    square = float((length**2).sum())
    return values - length @ (length.T @ values) / square if square > ROUNDING else values


def _tested(
    change: np.ndarray, moved: np.ndarray, free: int, orders: np.ndarray, confidence: float
) -> pd.DataFrame:
    """Slope, interval and p of the change (n,) on each column of what moved (n, k), a half of the
    error shared among them. `orders` (permutations, n): those in which changes are drawn again."""
    square, k = (moved**2).sum(axis=0), moved.shape[1]
    known = (square > ROUNDING) & (free > 0)
    root = np.sqrt(np.where(known, square, np.nan))
    size = np.abs(moved.T @ change) / root  # of what each column explains
    slope = moved.T @ change / root**2
    error = np.sqrt(((change[:, None] - moved * slope) ** 2).sum(axis=0) / max(free, 1)) / root
    reach = stats.t.isf((1 - confidence) / (4 * k), max(free, 1)) * error
    tail = 2 * stats.t.sf(np.abs(slope) / np.maximum(error, ROUNDING), max(free, 1)) * 2 * k
    drawn = np.zeros(len(orders))
    for column, scale in zip(moved.T[known], root[known], strict=True):
        drawn = np.maximum(drawn, np.abs(change[orders] @ column) / scale)
    as_large = (drawn[:, None] >= size - ROUNDING).sum(axis=0)
    p = np.maximum(2 * (1 + as_large) / (1 + len(orders)), tail)
    ends = {"slope_low": slope - reach, "slope_high": slope + reach}
    p = np.where(known, np.minimum(p, 1.0), np.nan)
    return pd.DataFrame({"slope": slope, **ends, "slope_p": p})
