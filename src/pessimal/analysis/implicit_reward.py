"""Two language models as a reward model: what the step from one to the other rewards, token by token.

Knows log-probabilities of the same candidates under two models, and reward matrices to hold them against. Knows neither
tokenizers nor which of the models was made from which.
"""

import numpy as np
import pandas as pd

from pessimal.analysis import influence
from pessimal.analysis.bootstrap import intervals
from pessimal.analysis.checks import align, check_rewards, check_varied
from pessimal.analysis.extremes import extremes
from pessimal.analysis.ranks import ranked
from pessimal.errors import TableError

MEASURES = ("implicit_reward", "mwlr")


def implicit_reward(p: pd.Series, q: pd.Series) -> pd.DataFrame:
    """What the step from model 1 (p) to model 2 (q) does to each candidate.

    The implicit reward is log q − log p: up to a factor and a constant it is the reward for which q is the best policy
    that does not stray from p (Rafailov et al. 2023, equation 5). It weighs a candidate that neither model would ever
    say like one that both would; the mixture-weighted log ratio, ½ (p + q) (log q − log p), does not, and names those
    on which the two differ in what they say. Both are positive where model 2 says a candidate more than model 1 (the
    published figures subtract the other way round), and both change sign when the models change places.

    Candidates named twice in both series, in one order, are kept as they are: each is an outcome of its own.

    Args:
        p: log-probability of each candidate under model 1, in nats, index = text.
        q: under model 2, same candidates.

    Returns:
        One row per candidate, in the order of `p`: text, log_p, log_q, implicit_reward (nats), mwlr (nats).

    Raises:
        TableError: the candidates differ, or a value is no log-probability (missing, infinite or above 0).

    Source: Christian et al. 2026 (arXiv 2601.20838), the section on implicit rewards.
    """
    q = align(p, q, left_name="model 1", right_name="model 2")
    values = pd.DataFrame({"log_p": p.to_numpy(dtype=float), "log_q": q.to_numpy(dtype=float)}, index=p.index)
    _check_log_probabilities(values)
    ratio = values["log_q"] - values["log_p"]
    mixture = (np.exp(values["log_p"]) + np.exp(values["log_q"])) / 2
    table = values.assign(implicit_reward=ratio, mwlr=mixture * ratio).reset_index(drop=True)
    # The index as it is: reset as a column it would become Arrow strings, which cannot hold a lone surrogate.
    table.insert(0, "text", p.index)
    return table


def divergence(table: pd.DataFrame) -> pd.DataFrame:
    """How far two language models are apart on the candidates of one table, in nats.

    The candidates' mixture-weighted log ratios add up to *half the difference* of the two Kullback–Leibler divergences,
    ½ (KL(q‖p) − KL(p‖q)), not to half their sum: Σ ½ (p + q) log(q/p) = ½ Σ q log(q/p) − ½ Σ p log(p/q). So a sum near
    zero says nothing of the models being alike; Jeffreys' divergence, KL(q‖p) + KL(p‖q) = Σ (q − p) log(q/p), does.

    Nothing is estimated here, so there is no interval: over all tokens these are the divergences. Over some of them
    (`mass_p`, `mass_q` below 1) the two `kl` columns are those tokens' contributions, which may be negative, and
    `jeffreys` is a lower bound, since every token adds to it.

    Args:
        table: of `implicit_reward`.

    Returns:
        One row: n, mass_p, mass_q (sums of the probabilities), kl_q_p, kl_p_q, jeffreys, sum_mwlr.

    Raises:
        TableError: a column is missing.
    """
    _check_columns(table)
    p, q = np.exp(table["log_p"]), np.exp(table["log_q"])
    ratio = table["implicit_reward"]
    row = {
        "n": len(table),
        "mass_p": p.sum(),
        "mass_q": q.sum(),
        "kl_q_p": (q * ratio).sum(),
        "kl_p_q": -(p * ratio).sum(),
        "jeffreys": ((q - p) * ratio).sum(),
        "sum_mwlr": table["mwlr"].sum(),
    }
    return pd.DataFrame([row])


def implicit_extremes(table: pd.DataFrame, *, k: int) -> pd.DataFrame:
    """The k candidates at either end of the implicit reward, and of the mixture-weighted log ratio.

    Equals are taken in the order of the rows; where the cut falls among them the table says so (see `extremes`).

    Args:
        table: of `implicit_reward`.
        k: candidates per end, at least 1.

    Returns:
        Up to 4k rows: measure ("implicit_reward" or "mwlr"), end ("top" where model 2 says it more, or "bottom"), rank
        (1 = the most extreme), text, value (nats), tied, tied_left_out, log_p, log_q.

    Raises:
        TableError: a column is missing, or k is not positive.
    """
    _check_columns(table)
    found = []
    for measure in MEASURES:
        named = table.assign(candidate_id=range(len(table)), token=table["text"], reward=table[measure])
        found.append(extremes(named, k=k).assign(measure=measure))
    whole = pd.concat(found, ignore_index=True).rename(columns={"reward": "value"})
    columns = ["measure", "end", "rank", "text", "value", "tied", "tied_left_out", "log_p", "log_q"]
    return whole[columns]


def reward_correlation(
    rewards: pd.DataFrame,
    scores: pd.DataFrame,
    *,
    replicates: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Rank correlation of each reward model with each score that language models give the same candidates.

    Ties are corrected for (Kendall's tau-b) and take mid-ranks (Spearman). Intervals are item bootstraps of the
    linearised statistics: how far another draw of as many candidates would move the number, taking candidates as
    independent, which spellings of one word are not. All rows rest on the same candidates, so differences between them
    are surer than overlapping intervals suggest. Every candidate counts alike, however improbable.

    Args:
        rewards: candidates × reward models.
        scores: candidates × scores (log-probabilities of a model, implicit rewards of a pair), same candidates.
        replicates: bootstrap draws of candidates.
        confidence: of the intervals.
        seed: of the draws.

    Returns:
        One row per reward model and score: model, score, n, kendall, low, high (of Kendall's tau), spearman,
        spearman_low, spearman_high.

    Raises:
        TableError: see `checks.check_rewards` and `check_varied`; or the candidates differ.
    """
    for matrix in (rewards, scores):
        check_rewards(matrix)
        check_varied(matrix)
    matched = {
        name: align(rewards, scores[name], left_name="the rewards", right_name=f"the score {name}")
        for name in scores
    }
    ranks = {name: ranked(values.to_numpy()) for name, values in matched.items()}
    rows, statistics = [], []
    for model in rewards:
        own = ranked(rewards[model].to_numpy())
        for name, other in ranks.items():
            rows.append({"model": model, "score": name, "n": len(rewards)})
            statistics += [influence.kendall(own, other), influence.spearman(own, other)]
    estimates = np.array([statistic.estimate for statistic in statistics])
    influences = np.stack([statistic.influence for statistic in statistics], axis=1)  # (n, 2 · rows)
    low, high = intervals(estimates, influences, replicates=replicates, confidence=confidence, seed=seed)
    return pd.DataFrame(rows).assign(
        kendall=estimates[::2],
        low=low[::2],
        high=high[::2],
        spearman=estimates[1::2],
        spearman_low=low[1::2],
        spearman_high=high[1::2],
    )


def _check_log_probabilities(values: pd.DataFrame) -> None:
    # Rounding may leave the surest of tokens a hair above zero.
    wrong = ~(np.isfinite(values.to_numpy()) & (values.to_numpy() <= 1e-6))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise TableError(
            f"{wrong.sum()} values are no log-probabilities (first: {values.iat[row, column]} for "
            f"{values.index[row]!r}, model {column + 1}): they must be finite and at most 0. Give tables of "
            "`pessimal scan model.score=log_probability`."
        )


def _check_columns(table: pd.DataFrame) -> None:
    needed = ("text", "log_p", "log_q", *MEASURES)
    if missing := [name for name in needed if name not in table]:
        raise TableError(
            f"The table lacks {', '.join(missing)}; it has {', '.join(map(str, table.columns))}. Give one of "
            "`implicit_reward`."
        )
