"""Ids or text: what the way of putting a token into the response slot does to its reward.

Knows the scans of one model on one prompt, one a mode; knows nothing of templates or tokenizers, which made them
differ. Tokens are matched by id, so a token is compared with itself.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd

from pessimal.analysis.agreement import RBO_DEPTH, agreement
from pessimal.analysis.checks import check_rewards
from pessimal.analysis.overlap import head, top_overlap
from pessimal.errors import TableError

TOLD = ["token", "text", "kind", "survives"]
STATISTICS = ["kendall", "low", "high", "spearman", "spearman_low", "spearman_high", "rbo"]


class SideBySide(NamedTuple):
    """The scans of one model and prompt in several modes, token by token; both indexed by candidate_id."""

    tokens: pd.DataFrame
    """token, text, kind, survives (boolean: in every mode; missing where it was not asked)."""
    rewards: pd.DataFrame
    """candidates × modes, float, none missing."""

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Every two modes, in the order of the columns."""
        return list(combinations(self.rewards, 2))


def side_by_side(scans: Mapping[str, pd.DataFrame]) -> SideBySide:
    """Match the rows of score tables (candidate_id, token, text, kind, survives, reward) by candidate_id.

    Args:
        scans: rows by mode, at least two modes, of one model, prompt and candidate set.

    Raises:
        TableError: fewer than two modes, other candidates in one than in another, or a reward is missing.
    """
    if len(scans) < 2:
        raise TableError(
            f"Modes are compared with one another; given was {', '.join(scans) or 'none'}. Scan the same model and "
            "prompt again in another: pessimal scan mode=text"
        )
    by_id = {mode: rows.set_index("candidate_id").sort_index() for mode, rows in scans.items()}
    first, *others = by_id
    for mode in others:
        if not by_id[first][["text"]].equals(by_id[mode][["text"]]):
            raise TableError(
                f"The scans in modes {first} and {mode} are not of the same candidates ({len(by_id[first])} and "
                f"{len(by_id[mode])}, ids or texts differ). Scan both with one model and one version: force=true"
            )
    rewards = pd.DataFrame({mode: rows["reward"].astype(float) for mode, rows in by_id.items()})
    check_rewards(rewards, least_models=2)
    tokens = by_id[first][TOLD].copy()
    survives = tokens["survives"].astype("boolean")
    for mode in others:
        survives &= by_id[mode]["survives"].astype("boolean")
    return SideBySide(tokens.assign(survives=survives), rewards)


def sensitivity(
    scans: SideBySide, *, top: int = 20, replicates: int = 1000, confidence: float = 0.95, seed: int = 0
) -> pd.DataFrame:
    """How far two modes give one model the same order of tokens, over all tokens and over parts of them.

    Parts are `all`; `surviving` (ids → text → template → ids gives the same ids) and `changed`, where that is known;
    and each `kind` of token. A surviving token has the same ids in modes ids and text, so there its rewards may
    differ by numerical noise only. Ties: tau-b corrects for them, rho takes mid-ranks, rank-biased overlap and
    the shared ends are means over all orders of tied tokens, and text has many (`tied_b`): ' love' and 'love' are one
    input once trimmed. Ties are exact ones; one input scored twice in batches of other sizes may differ in its last
    bit, so there may be more. Intervals are item bootstraps (see `agreement`); shares are of the whole vocabulary,
    which is no sample, and so have none.

    Args:
        scans: of `side_by_side`.
        top: k, tokens at each end.
        replicates: bootstrap draws of tokens.
        confidence: of the intervals.
        seed: of the draws; the same draws serve every pair.

    Returns:
        One row per pair of modes and part: mode_a, mode_b, tokens (the part), n, surviving (share), kendall, low,
        high, spearman, spearman_low, spearman_high, rbo, rbo_depth (rbo is at most 1 − .9^depth), top (k, less where
        the part is smaller), top_overlap and bottom_overlap (share of the k highest, lowest in a that are so in b),
        largest_difference (of two rewards of a token), equal (share of tokens with exactly one reward in both),
        distinct_a, distinct_b (rewards), tied_a, tied_b (tokens whose reward in this mode is exactly another's, in
        this part). Correlations are missing where a mode gives all tokens of a part one reward, or n < 3.

    Source: the two flaws of the published scan (Christian et al. 2025, code), measured.
    """
    rows = []
    for part, members in _parts(scans.tokens):
        rewards, survives = scans.rewards[members], scans.tokens.loc[members, "survives"]
        correlations = _correlations(rewards, replicates=replicates, confidence=confidence, seed=seed)
        tied = rewards.apply(lambda column: column.duplicated(keep=False).sum())
        distinct = rewards.nunique()
        k = min(top, len(rewards))
        for a, b in scans.pairs:
            x, y = rewards[a].to_numpy(), rewards[b].to_numpy()
            rows.append(
                {
                    "mode_a": a,
                    "mode_b": b,
                    "tokens": part,
                    "n": len(rewards),
                    "surviving": float(survives.mean()) if survives.notna().all() else np.nan,
                    **correlations.get((a, b), dict.fromkeys(STATISTICS, np.nan)),
                    "rbo_depth": min(RBO_DEPTH, len(rewards)),
                    "top": k,
                    "top_overlap": _overlap(x, y, k=k),
                    "bottom_overlap": _overlap(-x, -y, k=k),
                    "largest_difference": float(np.abs(x - y).max()),
                    "equal": float(np.mean(x == y)),
                    "distinct_a": int(distinct[a]),
                    "distinct_b": int(distinct[b]),
                    "tied_a": int(tied[a]),
                    "tied_b": int(tied[b]),
                }
            )
    return pd.DataFrame(rows).sort_values(
        ["mode_a", "mode_b"], key=_place(scans), kind="stable", ignore_index=True
    )


def moved(scans: SideBySide, *, top: int = 20) -> pd.DataFrame:
    """The tokens whose rank one mode lifts most above, or drops most below, their rank in another.

    Rank 1 is the highest reward; ties share their average rank. Of tokens with one text (the many that decode to
    U+FFFD) only the farthest is listed, the lowest id first, and `same_text` says how many there are.

    Args:
        scans: of `side_by_side`.
        top: tokens listed each way, fewer where fewer move.

    Returns:
        For each pair of modes those that b lifts, then those that b drops, farthest first: mode_a, mode_b,
        candidate_id, token, text, kind, survives, same_text, rank_a, rank_b, moved (ranks gained in b; negative where
        lost), reward_a, reward_b.
    """
    ranks = scans.rewards.rank(ascending=False, method="average")
    same_text = scans.tokens["text"].map(Counter(scans.tokens["text"]))
    pieces = []
    for a, b in scans.pairs:
        table = scans.tokens.assign(
            same_text=same_text,
            rank_a=ranks[a],
            rank_b=ranks[b],
            moved=ranks[a] - ranks[b],
            reward_a=scans.rewards[a],
            reward_b=scans.rewards[b],
        )
        for lifted in (True, False):
            way = table[table["moved"] > 0 if lifted else table["moved"] < 0]
            farthest = way.sort_values("moved", ascending=not lifted, kind="stable")
            pieces.append(farthest.drop_duplicates("text").head(top).assign(mode_a=a, mode_b=b))
    whole = pd.concat(pieces).reset_index()
    first = ["mode_a", "mode_b", "candidate_id"]
    return whole[[*first, *(name for name in whole if name not in first)]]


def _parts(tokens: pd.DataFrame) -> Iterator[tuple[str, np.ndarray]]:
    """Named parts of the tokens, none empty, each as a mask (n,)."""
    yield "all", np.ones(len(tokens), dtype=bool)
    if tokens["survives"].notna().all():
        survives = tokens["survives"].to_numpy(dtype=bool)
        for part, members in (("surviving", survives), ("changed", ~survives)):
            if members.any():
                yield part, members
    kinds = sorted(tokens["kind"].unique())
    if len(kinds) > 1:
        for kind in kinds:
            yield kind, (tokens["kind"] == kind).to_numpy()


def _correlations(rewards: pd.DataFrame, **bootstrap) -> dict[tuple[str, str], dict[str, float]]:
    """`agreement` of every two modes (candidates × modes) that tell these tokens apart."""
    varied = rewards.loc[:, rewards.nunique() > 1]
    if len(varied) < 3 or varied.shape[1] < 2:
        return {}
    table = agreement(varied, **bootstrap).set_index(["model_a", "model_b"])
    return table[STATISTICS].to_dict("index")


def _overlap(x: np.ndarray, y: np.ndarray, *, k: int) -> float:
    """Share of the k highest in x that are among the k highest in y."""
    return top_overlap(head(x, depth=k), head(y, depth=k), k=k)


def _place(scans: SideBySide):
    """Modes in the order in which they were given, not that of the alphabet."""
    order = {mode: place for place, mode in enumerate(scans.rewards)}
    return lambda column: column.map(order)
