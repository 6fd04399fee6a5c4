"""Both ends of a score table."""

import pandas as pd


def extremes(table: pd.DataFrame, *, k: int) -> pd.DataFrame:
    """The k highest and the k lowest rewards, best first and worst first.

    Equal rewards are taken in the order of `candidate_id`, at both ends. Where the cut falls among
    equals, the choice of those listed is arbitrary, and the table says so: `tied` marks the listed
    candidates that share their reward with one left out, `tied_left_out` counts those left out with
    it.

    Args:
        table: candidate_id, text, token, reward, and whatever else is to be carried along.
        k: candidates per end, at least 1; a table of fewer is given whole.

    Returns:
        2k rows: end ("top" or "bottom"), rank (1 = the most extreme), text, token, reward, tied,
        tied_left_out, then the table's other columns.

    Source: Christian et al. 2025, Tables 2 and A6.
    """
    ends = pd.concat(
        [_end(table, k=k, highest=True), _end(table, k=k, highest=False)], ignore_index=True
    )
    first = ["end", "rank", "text", "token", "reward", "tied", "tied_left_out"]
    return ends[[*first, *(name for name in table.columns if name not in first)]]


def _end(table: pd.DataFrame, *, k: int, highest: bool) -> pd.DataFrame:
    """The k most extreme rows at one end, most extreme first."""
    ordered = table.sort_values(["reward", "candidate_id"], ascending=[not highest, True])
    listed, left_out = ordered.iloc[:k], ordered.iloc[k:]
    equals = left_out["reward"].eq(listed["reward"].iloc[-1]).sum() if len(listed) else 0
    tied = listed["reward"].eq(listed["reward"].iloc[-1]) & (equals > 0) if len(listed) else False
    return listed.assign(
        end="top" if highest else "bottom",
        rank=range(1, len(listed) + 1),
        tied=tied,
        tied_left_out=equals * tied,
    )
