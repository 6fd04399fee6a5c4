"""Does the optimal token stay optimal under another wording of the same question?"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from experiments.inherited_values.resampling import crossed_interval, jackknife
from pessimal.analyses.analysis import (
    Needs,
    Options,
    analysis,
    check_rewards,
    check_varied,
    note_errors,
)
from pessimal.errors import TableError
from pessimal.plots import Forest, TokenTable
from pessimal.tables import ScoreTable
from pessimal.tables.result import Effect, Estimate, Result, weight_of
from pessimal.tables.table_set import TableSet

METHOD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
SIGN_NAMES = {1: "positive", -1: "negative"}
ANY, OPPOSITE = "any wording of the frame", "opposite frame"
ENDS = {"optimal": 1, "pessimal": -1}
QUARTILES = ("median_rank", "lower_quartile", "upper_quartile")


class Paraphrases(NamedTuple):
    """What one pass over a model's wordings says."""

    shares: pd.DataFrame
    tokens: pd.DataFrame


def paraphrase(
    rewards: pd.DataFrame,
    *,
    polarity: Mapping[str, int],
    levels: Mapping[str, Mapping[str, str]] | None = None,
    top: int = 20,
    confidence: float = 0.95,
) -> Paraphrases:
    """Where the optimal and the pessimal candidate of one wording stand under another, over ordered
    pairs of wordings.

    Ties: of several candidates that share the extreme the first row stands for them (`tied` counts
    the wordings where that happens); its rank elsewhere is 1 + the number of strictly more extreme
    candidates. Spearman takes mid-ranks. Pairs that share a wording are dependent, so intervals are
    jackknives over wordings (Student t), never narrower than if all pairs were independent; where
    all pairs say the same, Wilson's for as many trials as wordings.

    Args:
        rewards: candidates × prompts of one model.
        polarity: 1 or −1 by prompt.
        levels: by prompt, the level of each factor of the wording.
        top: k of `in_top`.

    Returns:
        shares: frame (polarity of the first wording), changed ("any wording of the frame", "only
            ADJECTIVE" for each
        factor, "opposite frame"), end ("optimal", "pessimal"), wordings, pairs, survives (share of
        pairs), in_top (share with the candidate among the k most extreme), spearman (mean), _low
        and _high of these three, top, median_rank, lower_quartile, upper_quartile (of the rank),
        candidates, tied. tokens: frame, end, text, wordings (where it is the extreme; the most
            frequent first), of (wordings of the
        polarity), distinct (candidates that are the extreme of some wording).

    Raises:
        TableError: fewer than two wordings of a polarity, or see `analysis.check_rewards`.
    """
    check_rewards(rewards)
    check_varied(rewards)
    signs = {prompt: polarity[prompt] for prompt in rewards}
    check_polarity(signs)
    prompts, values = list(signs), rewards.to_numpy(dtype=float)
    of_prompt = np.array(list(signs.values()))
    correlation = spearman_matrix(values)
    shares, tokens = [], []
    for end, direction in ENDS.items():
        first, rank, tied = _ranks_of_extremes(direction * values)
        # (3, wordings, wordings)
        numbers = np.stack([rank == 1, rank <= top, correlation]).astype(float)
        for frame, changed, chosen in _kinds(prompts, of_prompt, levels):
            row = {"frame": frame, "changed": changed, "end": end}
            row |= _shares(numbers, chosen, confidence)
            quartiles = np.quantile(rank[chosen], [0.5, 0.25, 0.75]).tolist()
            row |= {"top": top, "candidates": len(values)}
            row |= dict(zip(QUARTILES, quartiles, strict=True))
            shares.append(row | {"tied": int(tied[chosen.any(axis=1)].sum())})
        for sign, frame in SIGN_NAMES.items():
            extreme_rows, counts = np.unique(first[of_prompt == sign], return_counts=True)
            order = np.argsort(-counts, kind="stable")
            texts = {"text": rewards.index[extreme_rows[order]], "wordings": counts[order]}
            totals = {"of": counts.sum(), "distinct": len(counts)}
            tokens.append(pd.DataFrame({"frame": frame, "end": end} | texts | totals))
    return Paraphrases(pd.DataFrame(shares), pd.concat(tokens, ignore_index=True))


def spearman_matrix(values: np.ndarray) -> np.ndarray:
    """Spearman's rho of every two columns of (n, m), mid-ranks for ties: one ranking a column, one
    matrix product."""
    return np.corrcoef(stats.rankdata(values, axis=0), rowvar=False)


def _ranks_of_extremes(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each column (m): the row of its highest value; that row's rank in every column (m, m);
    whether it ties."""
    first = values.argmax(axis=0)
    ranks = [1 + (column[:, None] > column[first]).sum(axis=0) for column in values.T]
    return first, np.stack(ranks, axis=1), (values == values.max(axis=0)).sum(axis=0) > 1


def _kinds(
    prompts: list[str], signs: np.ndarray, levels: Mapping[str, Mapping[str, str]] | None
) -> Iterator[tuple[str, str, np.ndarray]]:
    """Which ordered pairs count (bool), by the polarity of the first and by what differs in the
    second."""
    same = (signs[:, None] == signs) & ~np.eye(len(signs), dtype=bool)
    levels = levels or {}
    differs = {
        name: np.array([[levels[a][name] != levels[b][name] for b in prompts] for a in prompts])
        for name in levels.get(prompts[0], ())
    }
    for sign, frame in SIGN_NAMES.items():
        of_frame = (signs == sign)[:, None]
        kinds = {ANY: same & of_frame}
        for name, differ in differs.items():
            kinds[f"only {name}"] = same & of_frame & differ & (sum(differs.values()) == 1)
        kinds[OPPOSITE] = (signs[:, None] != signs) & of_frame
        yield from ((frame, changed, chosen) for changed, chosen in kinds.items() if chosen.any())


def _shares(numbers: np.ndarray, chosen: np.ndarray, confidence: float) -> dict[str, float]:
    """Means over the chosen pairs, with intervals: two shares, and a correlation."""
    estimates = numbers[:, chosen].mean(axis=1)
    units = np.flatnonzero(chosen.any(axis=0) | chosen.any(axis=1))
    low, high = np.full((2, 3), np.nan)
    replicates = []
    for unit in units:
        left = chosen.copy()
        left[unit] = left[:, unit] = False
        if left.any():
            replicates.append(numbers[:, left].mean(axis=1))
    if len(units) >= 3 and len(replicates) == len(units):
        spread = jackknife(np.stack(replicates))
        # Three tokens that are optimal nine times each: whichever wording is left out, the share
        # stays the same.
        floor = numbers[:, chosen].var(axis=1) / (chosen.sum() / 2)
        spread = spread._replace(variance=np.maximum(spread.variance, floor))
        _, low, high = crossed_interval(estimates, [spread], confidence=confidence)
        for place in np.flatnonzero(np.ptp(numbers[:2, chosen], axis=1) == 0).tolist():
            trials = stats.binomtest(round(estimates[place] * len(units)), len(units))
            low[place], high[place] = trials.proportion_ci(confidence, method="wilson")
    low, high = np.maximum(low, (0, 0, -1)), np.minimum(high, 1)
    row: dict[str, float] = {"wordings": int(chosen.any(axis=1).sum()), "pairs": int(chosen.sum())}
    for place, name in enumerate(("survives", "in_top", "spearman")):
        row |= {name: estimates[place], f"{name}_low": low[place], f"{name}_high": high[place]}
    return row


def check_polarity(polarity: Mapping[str, int]) -> None:
    """TableError where no two wordings have the same polarity, which is 1 or −1."""
    counts = [list(polarity.values()).count(sign) for sign in (1, -1)]
    if max(counts) < 2:
        raise TableError(
            f"Here are {counts[0]} positive and {counts[1]} negative wordings, and two of one "
            "polarity are needed. Scan more wordings: pessimal scan prompts=factorial54"
        )


class Design(NamedTuple):
    """The wordings that are used, by prompt in every field."""

    tables: dict[str, list[ScoreTable]]
    """Of the same models in all."""
    polarity: dict[str, int]
    levels: dict[str, dict[str, str]]
    """The level of each factor of the wording."""
    notes: list[str]
    """What is left out."""


def design_of(tables: TableSet) -> Design:
    """The wordings that the models with most wordings share, with these models only.

    A model that was scanned in several modes is left out: the mode would pass for the wording.

    Raises:
        TableError: no two wordings of one polarity.
    """
    polarity = {p: tables.reading.polarity_of(p) for p in tables.wordings}
    signs = {p: sign for p, sign in polarity.items() if sign}
    scans = pd.DataFrame(
        [(t.model, t.provenance.mode) for prompt in signs for t in tables.by_prompt[prompt]],
        columns=["model", "mode"],
    )
    counts = scans.groupby("model")["mode"].agg(["size", "nunique"])
    several = set(counts.index[counts["nunique"] > 1])
    wordings = counts.loc[counts["nunique"] == 1, "size"]
    models = set(wordings.index[wordings == wordings.max()])
    used = {p: [t for t in tables.by_prompt[p] if t.model in models] for p in signs}
    used = {p: members for p, members in used.items() if 0 < len(members) == len(models)}
    left_out = {
        "models scanned in several modes": several,
        "models with fewer wordings": set(counts.index) - models - several,
        "wordings that not all of these models have": set(signs) - set(used),
        "wordings of unknown polarity (+polarity.LEVEL=1 or -1)": set(polarity) - set(signs),
    }
    of_used = {prompt: signs[prompt] for prompt in used}
    check_polarity(of_used)
    return Design(
        used,
        of_used,
        {prompt: tables.reading.levels_of(prompt) or {} for prompt in used},
        [f"{why}: {', '.join(sorted(names))}" for why, names in left_out.items() if names],
    )


def _own_rewards(used: Mapping[str, list[ScoreTable]], model: str) -> pd.DataFrame:
    """One model's rewards, candidates × prompts, index = text; candidates that every scan holds, by
    their id."""
    tables = {p: next(t.rows for t in members if t.model == model) for p, members in used.items()}
    rows = {prompt: table.set_index("candidate_id") for prompt, table in tables.items()}
    columns = {prompt: table["reward"] for prompt, table in rows.items()}
    rewards = pd.concat(columns, axis=1, join="inner").sort_index()
    texts = next(iter(rows.values()))["text"].reindex(rewards.index)
    return rewards.set_axis(pd.Index(texts, dtype=object, name="text"))


@analysis("wording", Needs(wordings=True, prompts=0), place=150)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """How often the extreme candidates of one wording are those of another, for each model in its
    whole set."""
    design, pieces = design_of(tables), []
    how = {"polarity": design.polarity, "levels": design.levels, "top": options.top}
    for model in (table.model for table in next(iter(design.tables.values()))):
        with note_errors(design.notes, tables.labels[model]):
            rewards = _own_rewards(design.tables, model)
            paraphrases = paraphrase(rewards, **how, confidence=options.confidence)
            where = {"model": model, "candidates": tables.candidates}
            pieces.append([table.assign(**where) for table in paraphrases])
    if not pieces:
        raise TableError("; ".join(design.notes))
    shares, tokens = (pd.concat(parts, ignore_index=True) for parts in zip(*pieces, strict=True))
    rows, thing = shares[shares["changed"] == ANY], tables.things.removesuffix("s")
    optimal, pessimal = (rows[rows["end"] == end] for end in ENDS)
    share, n = float(optimal["survives"].mean()), int(optimal["pairs"].sum())
    changes = [changed for changed in dict.fromkeys(shares["changed"]) if changed != OPPOSITE]
    ranked = tokens.assign(
        end=tokens["end"].map({"optimal": "top", "pessimal": "bottom"}),
        rank=tokens.groupby(["model", "frame", "end"]).cumcount() + 1,
    )
    forest = Forest.of(
        Effect("survives", "share", "survives_low", "survives_high"),
        group="changed",
        panel="frame",
        where={"changed": changes},
        tabs=("candidates", "end"),
        xlabel=f"share of pairs of wordings with the same {thing}",
    )
    keys = "wording/" + rows["end"] + "/" + rows["frame"] + "/survives/" + rows["model"]
    result = Result(
        "paraphrase",
        shares,
        f"Under another wording of the same polarity, the optimal {thing} stays optimal in "
        f"{share:.0%} of pairs, the pessimal one in {pessimal['survives'].mean():.0%}.",
        forest,
        METHOD,
        weight=weight_of(1 - share, share=1 / 2),
        estimate=Estimate("share of pairs, optimal", share, n, "pairs of wordings"),
        notes=tuple(design.notes),
        summary=dict(zip(keys, rows["survives"].tolist(), strict=True)),
    )
    table = TokenTable(data=ranked, value="wordings", shown=5, tabs=("candidates", "frame"))
    return [result, Result("paraphrase_tokens", tokens, plot=table, method=METHOD)]
