"""Language models beside reward models: what they would say, whether rewards follow it, and what
the step from one language model to another rewards.

Knows log-probabilities of the same candidates under language models, and rewards to hold them
against. Knows neither tokenizers nor which of the models was made from which.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd

from pessimal.analyses.agreement import tau_effect
from pessimal.analyses.analysis import Needs, Options, analysis, noted
from pessimal.analyses.checks import align, check_rewards, check_varied
from pessimal.analyses.framing import PAIRS, ends_of_axes
from pessimal.analyses.ranks import Dependence, dependence, rank_correlations, ranked, spearman
from pessimal.errors import TableError
from pessimal.plots import Forest, TokenTable
from pessimal.tables.extremes import extremes
from pessimal.tables.result import Result
from pessimal.tables.score_table import ScoreTable
from pessimal.tables.table_set import TableSet, labels_of, renamed
from pessimal.texts import literal, signed

MEASURES = ["implicit_reward", "mwlr"]
COLUMNS = ["text", "log_p", "log_q", *MEASURES]


def implicit_reward(p: pd.Series, q: pd.Series) -> pd.DataFrame:
    """What the step from model 1 (p) to model 2 (q) does to each candidate.

    The implicit reward is log q − log p: up to a factor and a constant it is the reward for which q
    is the best policy that does not stray from p (Rafailov et al. 2023, equation 5). It weighs a
    candidate that neither model would ever say like one that both would; the mixture-weighted log
    ratio, ½ (p + q) (log q − log p), does not. Both are positive where model 2 says a candidate
    more than model 1 (the published figures subtract the other way round).

    Args:
        p: log-probability of each candidate under model 1, in nats, index = text; may repeat (each
            is an outcome).
        q: under model 2, same candidates.

    Returns:
        One row per candidate, in the order of `p`: text, log_p, log_q, implicit_reward, mwlr
            (nats).

    Raises:
        TableError: the candidates differ, or a value is no log-probability (missing, infinite or
            above 0).

    Source: Christian et al. 2026 (arXiv 2601.20838), the section on implicit rewards.
    """
    q = align(p, q, left_name="model 1", right_name="model 2")
    values = pd.DataFrame(
        {"log_p": p.to_numpy(dtype=float), "log_q": q.to_numpy(dtype=float)}, index=p.index
    )
    # Rounding may leave it above zero.
    wrong = ~(np.isfinite(values.to_numpy()) & (values.to_numpy() <= 1e-6))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise TableError(
            f"{wrong.sum()} values are no log-probabilities (first: {values.iat[row, column]} for "
            f"{values.index[row]!r}, model {column + 1}): they must be finite and at most 0. Give "
            "tables of `pessimal scan model.score=log_probability`."
        )
    ratio = values["log_q"] - values["log_p"]
    mixture = (np.exp(values["log_p"]) + np.exp(values["log_q"])) / 2
    table = values.assign(implicit_reward=ratio, mwlr=mixture * ratio).reset_index(drop=True)
    # The index as it is: reset as a column it would become Arrow strings, which cannot hold a lone
    # surrogate.
    table.insert(0, "text", p.index)
    return table


def word_mwlr(table: pd.DataFrame, words: Sequence[str]) -> pd.DataFrame:
    """What the step from model 1 to model 2 does to named words.

    A word is every text that is the word without outer white space and in lower case (' Love',
    'love'); its probability is what these add up to. The published number is the mean of the
    mixture-weighted log ratio over them; their sum is what they add to `sum_mwlr` of `divergence`.

    Args:
        table: of `implicit_reward`.
        words: as people write them.

    Returns:
        One row per word that some text spells, in the order given: word (in lower case), tokens
            (texts that spell it), log_p,
        log_q (of the word, nats), implicit_reward (log q − log p), mwlr (mean over its tokens, as
        published, nats), mwlr_sum.

    Source: Christian et al. 2026 (arXiv 2601.20838), Figure 3; there p is Gemma and q is Llama.
    """
    spelled = pd.Series([text.strip().lower() for text in table["text"].tolist()], dtype=object)
    rows = []
    for word in dict.fromkeys(word.strip().lower() for word in words):
        spellings = table[(spelled == word).to_numpy()]
        if spellings.empty:
            continue
        log_p, log_q = (float(np.logaddexp.reduce(spellings[name])) for name in ("log_p", "log_q"))
        mwlr = {"mwlr": float(spellings["mwlr"].mean()), "mwlr_sum": float(spellings["mwlr"].sum())}
        step = {"log_p": log_p, "log_q": log_q, "implicit_reward": log_q - log_p}
        rows.append({"word": word, "tokens": len(spellings), **step, **mwlr})
    return pd.DataFrame(rows, columns=["word", "tokens", *COLUMNS[1:], "mwlr_sum"])


def divergence(table: pd.DataFrame) -> pd.DataFrame:
    """How far two language models are apart on the candidates of one table, in nats.

    The mixture-weighted log ratios add up to *half the difference* of the two Kullback–Leibler
    divergences, ½ (KL(q‖p) − KL(p‖q)), so a sum near zero does not say that the models are alike;
    Jeffreys' divergence, KL(q‖p) + KL(p‖q) = Σ (q − p) log(q/p), does. Over all tokens these are
    the divergences, without sampling error. Over some of them (`mass_p`, `mass_q` below 1) the `kl`
    columns are those tokens' contributions, which may be negative, and `jeffreys` is a lower bound,
    since every token adds to it.

    Returns:
        Of a table of `implicit_reward` one row: n, mass_p, mass_q (sums of the probabilities),
            kl_q_p, kl_p_q, jeffreys,
        sum_mwlr.
    """
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

    Equals are taken in the order of the rows; where the cut falls among them the table says so (see
    `extremes`).

    Returns:
        Of a table of `implicit_reward` up to 4k rows: measure ("implicit_reward" or "mwlr"), end
            ("top" where model 2 says
        it more, or "bottom"), rank (1 = the most extreme), text, value (nats), tied, tied_left_out,
        log_p, log_q.
    """
    named = table.assign(candidate_id=range(len(table)), token=table["text"])
    ends = [extremes(named.assign(reward=table[m], measure=m), k=k) for m in MEASURES]
    extremes_of_both = pd.concat(ends, ignore_index=True).rename(columns={"reward": "value"})
    return extremes_of_both[
        ["measure", "end", "rank", "text", "value", "tied", "tied_left_out", "log_p", "log_q"]
    ]


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
        TableError: see `checks.check_rewards` and `check_varied`; or the candidates differ.
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
    """What language models would say to each prompt, beside the rewards on it; and every pair of
    them as a reward."""
    # Not among the reward models' labels: a reward model may go by the name of the model that it
    # was made from.
    label = labels_of([table for members in tables.language.values() for table in members])
    pieces: dict[str, list[pd.DataFrame]] = {}
    notes: list[str] = []
    steps: dict[str, str] = {}

    def keep(table: str, piece: pd.DataFrame, **where: str) -> None:
        where |= {"prompt": prompt, "candidates": tables.candidates}
        pieces.setdefault(table, []).append(piece.assign(**where))

    def how(rewards: pd.DataFrame) -> dict[str, Any]:
        dependent = dependence(rewards.index, options.meanings)
        return {"dependent": dependent, "confidence": options.confidence}

    for prompt, members in tables.language.items():
        for table in members:
            ends = extremes(table.rows, k=options.top).rename(columns={"reward": "log_probability"})
            ends["probability"] = np.exp(ends["log_probability"])
            columns = ["end", "rank", "text", "log_probability", "probability", "tied", "certified"]
            keep("language_extremes", ends[columns], model=table.model)
        with noted(notes, prompt):
            rewards, scores = side_by_side(tables, prompt, members)
            correlation = reward_correlation(rewards, scores, **how(rewards))
            keep("language_correlation", correlation.rename(columns={"score": "language_model"}))
        if len(members) < 2:
            notes.append(f"{prompt}: one language model, and an implicit reward is between two")
        for p, q in combinations(bases_first(members), 2):
            pair = f"{p.model} → {q.model}"
            steps[pair] = f"{label[p.model]} to {label[q.model]}"
            with noted(notes, f"{pair} on {prompt}"):
                table, matched = match(tables, p, q)
                keep("implicit_reward", implicit_extremes(table, k=options.top), pair=pair)
                named = word_mwlr(table, options.words)
                words = dict.fromkeys(word.strip().lower() for word in options.words)
                if unknown := [word for word in words if word not in set(named["word"])]:
                    notes.append(f"{pair}: no text of both models is {', '.join(unknown)}")
                if len(named):
                    keep("word_mwlr", named, model_p=p.model, model_q=q.model, pair=pair)
                if tables.candidates == "vocabulary":  # items are not all that a model could say
                    keep("language_divergence", divergence(table), matched=matched, pair=pair)
                with noted(notes, prompt):
                    rewards, scores = side_by_side(tables, prompt, [p, q])
                    measures = implicit_reward(scores[p.model], scores[q.model])[MEASURES]
                    correlation = reward_correlation(
                        rewards, measures.set_axis(scores.index), **how(rewards)
                    ).rename(columns={"score": "measure"})
                    keep("implicit_correlation", correlation, pair=pair)
    if axes := _axes(tables, k=options.top):
        pieces["language_axes"] = axes
    joined = {name: pd.concat(frames, ignore_index=True) for name, frames in pieces.items()}
    first, *others = _results(joined, tables, label, steps)
    return [replace(first, notes=tuple(dict.fromkeys(notes))), *others]


def _axes(tables: TableSet, *, k: int) -> list[pd.DataFrame]:
    """What each language model says more on one prompt than on the other, and what on both: the
    ends of the difference and of the sum of its log-probabilities, over all its tokens.

    Source: Christian et al. 2025, Tables A4 (best + worst) and A5 (best − worst).
    """
    log_p = {
        prompt: {(t.model, t.provenance.candidates_digest): t.by_text for t in members}
        for prompt, members in tables.language.items()
    }
    names = {"reward_first": "log_p_first", "reward_second": "log_p_second"}
    return [
        ends_of_axes(values, log_p[second][table], k=k)
        .rename(columns=names)
        .assign(model=table[0], first=first, second=second, candidates=tables.candidates)
        for first, second in tables.reading.pairs or PAIRS
        for table, values in log_p.get(first, {}).items()
        if table in log_p.get(second, {})
    ]


def bases_first(tables: Sequence[ScoreTable]) -> list[ScoreTable]:
    """Models asked after plain text, as base models are, before those asked in a chat: p is then
    the base."""
    return sorted(tables, key=lambda t: (t.measured.get("asked") == "chat template", t.model))


def match(tables: TableSet, p: ScoreTable, q: ScoreTable) -> tuple[pd.DataFrame, str]:
    """Both log-probabilities candidate by candidate, and how they were matched: by id where the two
    have the same candidates, otherwise by text."""
    if p.provenance.candidates_digest == q.provenance.candidates_digest:
        columns = [t.by_text.astype(float) for t in (p, q)]
        return implicit_reward(*columns), "that are the same in both models"
    matrix = tables.shared([p, q])
    return implicit_reward(*(matrix[t.model] for t in (p, q))), "matched by their text"


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


def _furthest(correlations: pd.DataFrame) -> pd.Series:
    return correlations.loc[correlations["kendall"].abs().idxmax()]


def _goes(row: pd.Series, with_what: str, tables: TableSet) -> str:
    """The headline of the furthest τ, with its interval; said where that holds 0."""
    tau, low, high = (signed(row[name], ".2f") for name in ("kendall", "low", "high"))
    number = f"τ = {tau}"
    if not np.isnan(row["low"]):
        beside = ", not told from 0" if row["low"] <= 0 <= row["high"] else ""
        number += f" [{low}, {high}]{beside}"
    return (
        f"On {row['prompt']}, {tables.labels[row['model']]}'s rewards go furthest with or against "
        f"{with_what} ({number})."
    )


def _results(
    tables_by_name: Mapping[str, pd.DataFrame],
    tables: TableSet,
    label: Mapping[str, str],
    steps: Mapping[str, str],
) -> list[Result]:
    """`label` names language models, `steps` pairs of them."""
    results: list[Result] = []
    method: str = "base_models"
    plot: dict[str, Any] = {"tabs": ("prompt", "pair")}
    tau = tau_effect(tables.things, symbol="kendall")
    furthest = "τ, furthest from 0"
    fields: dict[str, Any]
    ends = tables_by_name["language_extremes"]
    firsts = ends[(ends["end"] == "top") & (ends["rank"] == 1)]
    surest = firsts.loc[firsts["probability"].idxmax()]
    headline = (
        f"On {surest['prompt']}, {label[surest['model']]} would most likely say "
        f"{literal(surest['text'])} (probability {surest['probability']:.2g})."
    )
    summary = {f"{row.prompt}/likeliest/{row.model}": row.text for row in firsts.itertuples()}
    spoken = "log p, " + pd.Series(label)  # a name of their own: a reward model may have the same
    tokens = TokenTable(value="log_probability", data=ends.assign(model=ends["model"].map(spoken)))
    results.append(Result("language_extremes", ends, headline, tokens, method, summary=summary))
    if (table := tables_by_name.get("language_axes")) is not None:
        tokens = TokenTable(
            value="value",
            tabs=("axis", "first", "second"),
            ends=("highest", "lowest"),
            data=table.assign(model=table["model"].map(spoken)),
        )
        results.append(Result("language_axes", table, plot=tokens, method=method))
    if (table := tables_by_name.get("language_correlation")) is not None:
        summary = {
            f"{row.prompt}/language_kendall/{row.language_model}/{row.model}": float(row.kendall)
            for row in table.itertuples()
        }
        forest = Forest.of(
            tau,
            data=table.assign(language_model=table["language_model"].map(spoken)),
            group="language_model",
            xlabel="Kendall's τ-b with log-probabilities",
        )
        row = _furthest(table)
        with_what = f"the log-probabilities of {label[row['language_model']]}"
        headline = _goes(row, with_what, tables)
        fields = {"label": furthest, "plot": forest, "method": method, "summary": summary}
        results.append(Result.of_row(row, "language_correlation", table, tau, headline, **fields))
    if (ends := tables_by_name.get("implicit_reward")) is not None:
        firsts = ends[(ends["measure"] == "mwlr") & (ends["rank"] == 1)]
        most = firsts.loc[firsts["value"].abs().idxmax()]
        headline = (
            f"On {most['prompt']}, the step from {steps[most['pair']]} moves "
            f"{literal(most['text'])} most ({signed(most['value'], '+.2g')} nats, weighted by "
            "probability)."
        )
        names = {"implicit_reward": "log q − log p", "mwlr": "weighted by ½ (p + q)"}
        measures = ends.assign(measure=ends["measure"].map(names))
        tokens = TokenTable(data=measures, column="measure", value="value", **plot)
        results.append(Result("implicit_reward", ends, headline, tokens, method))
    if (named := tables_by_name.get("word_mwlr")) is not None:
        most = named.loc[named["mwlr"].abs().idxmax()]
        headline = (
            f"On {most['prompt']}, the step from {steps[most['pair']]} moves "
            f"{literal(most['word'])} most of the words named ({signed(most['mwlr'], '+.2g')} "
            "nats, weighted by probability)."
        )
        forest = Forest(
            data=named.assign(step=named["pair"].map(steps)),
            row="step",
            estimate="mwlr",
            low=None,
            high=None,
            group="word",
            xlabel="½ (p + q) (log q − log p), nats",
        )
        results.append(Result("word_mwlr", named, headline, forest, method))
    if (apart := tables_by_name.get("language_divergence")) is not None:
        results.append(Result("language_divergence", apart, method=method))
    if (table := tables_by_name.get("implicit_correlation")) is not None:
        row = _furthest(table[table["measure"] == "implicit_reward"])
        headline = _goes(row, f"the step from {steps[row['pair']]}", tables)
        forest = Forest.of(tau, group="measure", xlabel="Kendall's τ-b with the step", **plot)
        fields = {"label": furthest, "plot": forest, "method": method}
        results.append(Result.of_row(row, "implicit_correlation", table, tau, headline, **fields))
    return results
