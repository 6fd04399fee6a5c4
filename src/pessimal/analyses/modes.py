"""Ids or text: what the way of putting a token into the response does to its reward.

Knows the scans of one model on one prompt, one a mode; knows nothing of templates or tokenizers,
which make them differ. Tokens are matched by id, so a token is compared with itself.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd

from pessimal.analyses.agreement import RBO_DEPTH, agreement, head, tau_effect, top_overlap
from pessimal.analyses.analysis import Needs, Options, analysis, noted
from pessimal.analyses.checks import check_rewards
from pessimal.errors import TableError
from pessimal.plots import Forest, Scatter
from pessimal.tables.result import Result, weight_of
from pessimal.tables.score_table import ScoreTable
from pessimal.tables.table_set import TableSet
from pessimal.texts import literal

STATISTICS = ["kendall", "low", "high", "spearman", "spearman_low", "spearman_high", "rbo"]


class SideBySide(NamedTuple):
    """The scans of one model and prompt in several modes, token by token; both indexed by
    candidate_id."""

    tokens: pd.DataFrame
    """token, text, kind, survives (boolean: in every mode; missing where it was not asked)."""
    rewards: pd.DataFrame
    """candidates × modes, float, none missing."""

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Every two modes, in the order of the columns."""
        return list(combinations(self.rewards, 2))


def side_by_side(scans: Mapping[str, pd.DataFrame]) -> SideBySide:
    """Match the rows of one model's score tables by candidate_id; `scans` are by mode, at least
    two.

    Raises:
        TableError: other candidates in one than in another, or a reward is missing.
    """
    by_id = {mode: rows.set_index("candidate_id").sort_index() for mode, rows in scans.items()}
    first, *others = by_id
    for mode in others:
        if not by_id[first][["text"]].equals(by_id[mode][["text"]]):
            raise TableError(
                f"The scans in modes {first} and {mode} are not of the same candidates "
                f"({len(by_id[first])} and {len(by_id[mode])}). Scan both again: force=true"
            )
    rewards = pd.DataFrame({mode: rows["reward"].astype(float) for mode, rows in by_id.items()})
    check_rewards(rewards, least_models=2)
    survives = by_id[first]["survives"].astype("boolean")
    for mode in others:
        survives &= by_id[mode]["survives"].astype("boolean")
    return SideBySide(by_id[first][["token", "text", "kind"]].assign(survives=survives), rewards)


def compare_modes(scans: SideBySide, *, top: int = 20, **draws) -> pd.DataFrame:
    """How far two modes give one model the same order of tokens, over all tokens and over parts of
    them.

    Parts are `all`; `surviving` (typed as text they become the same ids again, so ids and text are
    one input) and `changed`, where that is known; and each `kind` of token. Ties, of which text has
    many: tau-b corrects for them, rho takes mid-ranks, rank-biased overlap and the shared ends are
    means over all orders of tied tokens. Intervals are item bootstraps (see `agreement`); shares
    are of the whole vocabulary, which is no sample, and so have none.

    Args:
        scans: of `side_by_side`.
        top: k, tokens at each end.
        draws: of the bootstrap (see `ranks.bootstrapped`); the same serve every pair.

    Returns:
        One row per pair of modes and part: mode_a, mode_b, tokens (the part), n, surviving (share),
            kendall, low,
        high, spearman, spearman_low, spearman_high, rbo, rbo_depth (rbo is at most 1 − .9^depth),
        top (k, less where the part is smaller), top_overlap and bottom_overlap (share of the k
        highest, lowest in a that are so in b), largest_difference (of two rewards of a token),
        equal (share of tokens with exactly one reward in both), distinct_a, distinct_b (rewards),
        tied_a, tied_b (tokens whose reward in this mode is exactly another's, in this part).
        Correlations are missing where a mode gives all tokens of a part one reward, or n < 3.

    Source: the two flaws of the published scan (Christian et al. 2025, code), measured.
    """
    pieces: dict[tuple[str, str], list[dict]] = {pair: [] for pair in scans.pairs}
    for part, members in _parts(scans.tokens):
        rewards, survives = scans.rewards[members], scans.tokens.loc[members, "survives"]
        correlations = _correlations(rewards, **draws)
        tied = rewards.apply(lambda column: column.duplicated(keep=False).sum())
        distinct = rewards.nunique()
        k = min(top, len(rewards))
        best, worst = (
            {m: head(sign * rewards[m].to_numpy(), depth=k) for m in rewards} for sign in (1, -1)
        )
        for (a, b), rows in pieces.items():
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
                    "top_overlap": top_overlap(best[a], best[b], k=k),
                    "bottom_overlap": top_overlap(worst[a], worst[b], k=k),
                    "largest_difference": float(np.abs(x - y).max()),
                    "equal": float(np.mean(x == y)),
                    "distinct_a": int(distinct[a]),
                    "distinct_b": int(distinct[b]),
                    "tied_a": int(tied[a]),
                    "tied_b": int(tied[b]),
                }
            )
    return pd.DataFrame([row for rows in pieces.values() for row in rows])


def moved(scans: SideBySide, *, top: int = 20) -> pd.DataFrame:
    """The tokens whose rank one mode lifts most above, or drops most below, their rank in another.

    Rank 1 is the highest reward; ties share their average rank. Of tokens with one text (the many
    that decode to U+FFFD) only the farthest is listed, the lowest id first, and `same_text` says
    how many there are.

    Args:
        scans: of `side_by_side`.
        top: tokens listed each way, fewer where fewer move.

    Returns:
        For each pair of modes those that b lifts, then those that b drops, farthest first:
        candidate_id, token, text, kind, survives, same_text, rank_a, rank_b, moved (ranks gained in
        b), reward_a, reward_b, mode_a, mode_b.
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
    return pd.concat(pieces).reset_index()


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


def _correlations(rewards: pd.DataFrame, **draws) -> dict[tuple[str, str], dict[str, float]]:
    """`agreement` of every two modes (candidates × modes) in which these tokens differ."""
    varied = rewards.loc[:, rewards.nunique() > 1]
    if len(varied) < 3 or varied.shape[1] < 2:
        return {}
    table = agreement(varied, **draws).set_index(["model_a", "model_b"])
    return table[STATISTICS].to_dict("index")


@analysis("modes", Needs(modes=True), place=210)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Each model that was scanned in several modes, against itself."""
    compared, farthest, drawn = [], [], []
    notes: list[str] = []
    several = [
        key for key, scans in tables.modes.items() if len(scans) > 1 and key[0] in tables.prompts
    ]
    for prompt, model in sorted(several, key=lambda key: (tables.prompts.index(key[0]), key[1])):
        scans = tables.modes[prompt, model]
        where = {"model": model, "prompt": prompt, "candidates": tables.candidates}
        with noted(notes, about := f"{tables.labels[model]} on {prompt}"):
            tokens = side_by_side({mode: table.rows for mode, table in scans.items()})
            table = compare_modes(tokens, top=options.top, **options.draws)
            noise = {mode: _noise(scan) for mode, scan in scans.items()}
            table["noise"] = table["mode_a"].map(noise) + table["mode_b"].map(noise)
            notes += _disagreement(table, about)
            compared.append(table.assign(**where))
            farthest.append(moved(tokens, top=options.top).assign(**where))
            drawn.append(_ranks(tokens, farthest[-1]).assign(**where))
    if not compared:
        raise TableError(
            "; ".join(notes) or "modes of wordings are not compared; name one: prompts=[KEY]"
        )
    comparisons, movers = (
        pd.concat(compared, ignore_index=True),
        pd.concat(farthest, ignore_index=True),
    )
    pairs = comparisons[comparisons["tokens"] == "all"].assign(
        modes=comparisons["mode_a"] + " and " + comparisons["mode_b"]
    )
    # A mode that gives all tokens one reward has no τ: nothing is farther from the other mode.
    least, things = pairs.sort_values("kendall", na_position="first").iloc[0], tables.things
    size = 1 - np.nan_to_num(least["kendall"], nan=0.0)
    defined = np.isfinite(least["kendall"])
    tau = f"{least['kendall']:.3f}" if defined else "undefined, one reward for all in a mode"
    effect = tau_effect(things, null=1.0)
    results = [
        Result.of_row(
            least,
            "sensitivity",
            comparisons,
            effect,
            f"On {least['prompt']}, modes {least['modes']} order "
            f"{tables.labels[least['model']]}'s {things} with τ = {tau}; "
            f"{round(least['top_overlap'] * least['top'])} of the {least['top']} best are the "
            "same.",
            label="τ, lowest",
            size=size,
            plot=Forest.of(effect, data=pairs, group="modes", xlabel="Kendall's τ-b"),
            method="modes",
            notes=tuple(notes),
            summary={
                f"{r.prompt}/{r.model}/{r.mode_a}-{r.mode_b}/kendall": float(r.kendall)
                for r in pairs.itertuples()
            },
        )
    ]
    if movers.empty:
        return [*results, Result("moved", movers, method="modes")]
    most = movers.loc[movers["moved"].abs().idxmax()]
    results.append(
        Result(
            "moved",
            movers,
            headline=f"On {most['prompt']}, mode {most['mode_b']} moves {literal(most['text'])} "
            f"from rank {most['rank_a']:,.0f} to {most['rank_b']:,.0f} for "
            f"{tables.labels[most['model']]}.",
            plot=Scatter(
                tabs=("prompt", "model"),
                data=pd.concat(drawn, ignore_index=True),
                x="rank_a",
                y="rank_b",
                name="text",
                named="named",
                group="group",
                panel="modes",
                diagonal=True,
                xlabel="rank in the first mode (1 = best)",
                ylabel="rank in the second mode (1 = best)",
            ),
            method="modes",
            weight=weight_of(size, share=1 / 2),
        )
    )
    return results


def _ranks(scans: SideBySide, farthest: pd.DataFrame) -> pd.DataFrame:
    """Every token's ranks in the first two modes: text, modes, rank_a, rank_b, group, named (the
    farthest each way)."""
    a, b = scans.pairs[0]
    ranks = scans.rewards[[a, b]].rank(ascending=False).set_axis(["rank_a", "rank_b"], axis=1)
    farthest_here = farthest[(farthest["mode_a"] == a) & (farthest["mode_b"] == b)]
    named = farthest_here.groupby(farthest_here["moved"] > 0)["candidate_id"].head(4)
    group = (
        scans.tokens["survives"]
        .map({True: "same ids again", False: "other ids"})
        .fillna("not asked")
    )
    ranks = ranks.assign(text=scans.tokens["text"], group=group, named=ranks.index.isin(named))
    return ranks.assign(modes=f"{a} and {b}").reset_index(drop=True)


def _noise(table: ScoreTable) -> float:
    """Largest numerical error that a scan knows of, in units of reward; NaN where it was not
    measured."""
    measured = [table.measured.get(name) for name in ("noise", "largest_low_precision_error")]
    return float(sum(float("nan") if error is None else error for error in measured))


def _disagreement(table: pd.DataFrame, what: str) -> list[str]:
    """A note where ids and text differ on tokens that are one input in both, by more than numerical
    error."""
    same = table[
        (table["mode_a"] == "ids") & (table["mode_b"] == "text") & (table["tokens"] == "surviving")
    ]
    return [
        f"{what}: tokens that are one input in ids and text differ by up to "
        f"{row.largest_difference:.2g}, more than the scans' numerical error of {row.noise:.2g} "
        "(of which low precision measures only a part); scan both again on one machine: force=true"
        for row in same.itertuples()
        if row.largest_difference > row.noise
    ]
