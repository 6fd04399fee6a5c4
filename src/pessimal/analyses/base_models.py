"""Language models beside reward models: what they would say, and whether rewards follow it.

Knows log-probabilities of the same candidates under language models, and rewards to hold them
against. Knows neither tokenizers nor which of the models was made from which.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from pessimal.analyses.agreement import tau_effect
from pessimal.analyses.analysis import (
    Needs,
    Options,
    align,
    analysis,
    check_rewards,
    check_varied,
    note_errors,
    quoted,
)
from pessimal.analyses.framing import ENDS_OF_AXES, PAIRS, align_prompts, ends_of_axes
from pessimal.analyses.nulls import Dependence
from pessimal.analyses.ranks import dependence, rank_correlations, ranked, spearman
from pessimal.errors import TableError
from pessimal.plots import Forest, TokenTable
from pessimal.tables.result import Result
from pessimal.tables.score_table import ScoreTable, extremes
from pessimal.tables.table_set import TableSet, labels_of, renamed
from pessimal.texts import literal, signed


def reward_correlation(
    rewards: pd.DataFrame,
    scores: pd.DataFrame,
    *,
    dependent: Dependence | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Rank correlation of each reward model with each score that language models give the same
    candidates.

    Ties are corrected for (Kendall's tau-b) and take mid-ranks (Spearman). Intervals are over
    clusters of `dependent` candidates, or over candidates where it is None. All rows rest on the
    same candidates, so differences between them are surer than overlapping intervals suggest.

    Args:
        rewards: candidates × reward models.
        scores: candidates × scores (log-probabilities of a model, implicit rewards of a pair), same
            candidates.
        confidence: of the intervals.

    Returns:
        One row per pair: model, score, n, kendall, low, high (of tau), spearman, spearman_low,
            spearman_high.

    Raises:
        TableError: see `analysis.check_rewards` and `check_varied`; or the candidates differ.
    """
    for matrix in (rewards, scores):
        check_rewards(matrix)
        check_varied(matrix)
    # A model and a score may have the same name.
    ranks = {("model", name): ranked(rewards[name].to_numpy()) for name in rewards}
    for name in scores:
        score = align(
            rewards, scores[name], left_name="the rewards", right_name=f"the score {name}"
        )
        ranks["score", name] = ranked(score.to_numpy())
    pairs = list(product(rewards, scores))
    columns = rank_correlations(
        ranks,
        [(("model", model), ("score", score)) for model, score in pairs],
        dependent,
        measures=[spearman],
        confidence=confidence,
    )
    return pd.DataFrame(pairs, columns=["model", "score"]).assign(n=len(rewards), **columns)


@analysis("base_models", Needs(models=0, prompts=0, language=True), place=230)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Likeliest answers of language models to each prompt, beside the rewards on it.

    Tables:
        language_extremes: What each language model would say most and least.
            - as everywhere: end, text, tied, certified, model, prompt, candidates
            - rank: 1 is the most extreme
            - log_probability: nats
            - probability: its exponential
        language_axes: What each language model says more under the first of two prompts than under
            the second, and what under both.
            - as everywhere: end, text, model, candidates
            - axis: difference (first − second) or sum, of log-probabilities
            - rank: 1 is the outermost
            - log_p_first: log-probability under the first prompt, nats
            - log_p_second: log-probability under the second prompt
            - value: place on the axis, nats
            - first: the first prompt
            - second: the second prompt
        language_correlation: Do rewards follow log-probabilities?
            - as everywhere: model, n, kendall, spearman, spearman_low, spearman_high, prompt,
                candidates
            - language_model: the language model
            - low: lower end of the interval of τ
            - high: upper end of the interval of τ
    """
    # Not among the reward models' labels: a reward model may go by the name of the model that it
    # was made from.
    label = labels_of([table for members in tables.language.values() for table in members])
    spoken = "log p, " + pd.Series(label)  # a name of their own: a reward model may have the same
    ends, correlations = [], []
    notes: list[str] = []
    for prompt, members in tables.language.items():
        where = {"prompt": prompt, "candidates": tables.candidates}
        for table in members:
            rows = extremes(table.rows, k=options.top).rename(columns={"reward": "log_probability"})
            rows["probability"] = np.exp(rows["log_probability"])
            columns = ["end", "rank", "text", "log_probability", "probability", "tied", "certified"]
            ends.append(rows[columns].assign(model=table.model, **where))
        with note_errors(notes, prompt):
            rewards, scores = side_by_side(tables, prompt, members)
            dependent = dependence(rewards.index, options.meanings)
            rhos = reward_correlation(
                rewards, scores, dependent=dependent, confidence=options.confidence
            ).assign(**where)
            correlations.append(rhos.rename(columns={"score": "language_model"}))
    table = pd.concat(ends, ignore_index=True)
    firsts = table[(table["end"] == "top") & (table["rank"] == 1)]
    surest = firsts.loc[firsts["probability"].idxmax()]
    headline = f"On {quoted(surest['prompt'])}, {label[surest['model']]} would most likely say "
    headline += f"{literal(surest['text'])} (probability {surest['probability']:.2g})."
    tokens = TokenTable(
        value="log_probability", data=table.assign(model=table["model"].map(spoken))
    )
    results = [
        Result(
            "language_extremes",
            table,
            headline,
            tokens,
            method="base_models",
            notes=tuple(dict.fromkeys(notes)),
            summary={f"{r.prompt}/likeliest/{r.model}": r.text for r in firsts.itertuples()},
        )
    ]
    if axes := _axes(tables, k=options.top):
        table = pd.concat(axes, ignore_index=True)
        data = table.assign(model=table["model"].map(spoken))
        tokens = replace(ENDS_OF_AXES, data=data)
        results.append(Result("language_axes", table, plot=tokens, method="base_models"))
    if correlations:
        table = pd.concat(correlations, ignore_index=True)
        plot = {
            "data": table.assign(language_model=table["language_model"].map(spoken)),
            "group": "language_model",
            "xlabel": "Kendall's τ-b with log-probabilities",
        }
        summary = {
            f"{r.prompt}/language_kendall/{r.language_model}/{r.model}": float(r.kendall)
            for r in table.itertuples()
        }
        results.append(
            correlation_result(
                "language_correlation",
                table,
                tables,
                lambda row: f"the log-probabilities of {label[row['language_model']]}",
                method="base_models",
                summary=summary,
                plot=plot,
            )
        )
    return results


def _axes(tables: TableSet, *, k: int) -> list[pd.DataFrame]:
    """Texts that each language model says more on one prompt than on the other, and what on both:
    the ends of the difference and of the sum of its log-probabilities, over all its tokens.

    Source: Christian et al. 2025, Tables A4 (best + worst) and A5 (best − worst).
    """
    log_p = {
        prompt: {(t.model, t.provenance.candidates_digest): t.text_rewards for t in members}
        for prompt, members in tables.language.items()
    }
    names = {"reward_first": "log_p_first", "reward_second": "log_p_second"}
    return [
        ends_of_axes(align_prompts(values, log_p[second][table]), k=k)
        .rename(columns=names)
        .assign(model=table[0], first=first, second=second, candidates=tables.candidates)
        for first, second in tables.reading.pairs or PAIRS
        for table, values in log_p.get(first, {}).items()
        if table in log_p.get(second, {})
    ]


def side_by_side(
    tables: TableSet, prompt: str, language: Sequence[ScoreTable]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rewards and log-probabilities of the candidates that all models share.

    Raises:
        TableError: no reward model on this prompt, another question under its key, or too few
            shared candidates.
    """
    rewarded = tables.by_prompt.get(prompt)
    if not rewarded:
        raise TableError("no reward model was scanned on this prompt and these candidates")
    question, other = (members[0].provenance.prompt_text for members in (language, rewarded))
    if question and other and question != other:
        raise TableError(f"reward models were asked something else under this key: {other!r}")
    names = {f"language model {t.model}": t.model for t in language}
    matrix = tables.shared([*rewarded, *map(renamed, language, names)])
    return matrix.drop(columns=list(names)), matrix[list(names)].rename(columns=names)


def correlation_result(
    name: str,
    table: pd.DataFrame,
    tables: TableSet,
    describe: Callable[[pd.Series], str],
    *,
    plot: Mapping[str, Any],
    method: str,
    summary: Mapping[str, float] | None = None,
    rows: pd.DataFrame | None = None,
) -> Result:
    """The Result of rows of `reward_correlation`; the headline has the τ furthest from 0, and
    asserts nothing where its interval holds 0.

    Args:
        describe: a row → the score that rewards are correlated with, for people.
        plot: fields of the `Forest`.
        rows: those that the headline is chosen from; all where None.
    """
    rows = table if rows is None else rows
    row = rows.loc[rows["kendall"].abs().idxmax()]
    tau, low, high = (signed(row[column], ".2f") for column in ("kendall", "low", "high"))
    number = f"τ = {tau}" if np.isnan(row["low"]) else f"τ = {tau} [{low}, {high}]"
    model, how = tables.labels[row["model"]], "with" if row["kendall"] > 0 else "against"
    verdict = f"{model}'s rewards go most {how} {describe(row)}: {number}"
    if row["low"] <= 0 <= row["high"]:
        verdict = f"no model's rewards are found to go with {describe(row)} or against"
        verdict += f"; nearest, {model}: {number}"
    effect = tau_effect(tables.things, symbol="kendall")
    return Result.of_row(
        row,
        name,
        table,
        effect,
        f"On {quoted(row['prompt'])}, {verdict}.",
        label="τ, furthest from 0",
        plot=Forest.of(effect, **plot),
        method=method,
        summary=summary or {},
    )
