"""The step from one language model to another as a reward: log q − log p of each candidate, and its
weighted form.

Knows log-probabilities of the same candidates under two language models, and rewards to hold the
step against. Knows neither tokenizers nor which of the models was made from which.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from pessimal.analyses.analysis import Needs, Options, align, analysis, note_errors
from pessimal.analyses.base_models import correlation_result, reward_correlation, side_by_side
from pessimal.analyses.ranks import dependence
from pessimal.errors import TableError
from pessimal.plots import Forest, TokenTable
from pessimal.tables.result import Result
from pessimal.tables.score_table import ScoreTable, extremes
from pessimal.tables.table_set import TableSet, labels_of
from pessimal.texts import literal, signed

METHOD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
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
    values = pd.DataFrame({"log_p": p.to_numpy(float), "log_q": q.to_numpy(float)}, p.index)
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
    row = {"n": len(table), "mass_p": p.sum(), "mass_q": q.sum()}
    row |= {"kl_q_p": (q * ratio).sum(), "kl_p_q": -(p * ratio).sum()}
    row |= {"jeffreys": ((q - p) * ratio).sum(), "sum_mwlr": table["mwlr"].sum()}
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
    columns = ["measure", "end", "rank", "text", "value", "tied", "tied_left_out", "log_p", "log_q"]
    return pd.concat(ends, ignore_index=True).rename(columns={"reward": "value"})[columns]


def bases_first(tables: Sequence[ScoreTable]) -> list[ScoreTable]:
    """Models asked after plain text, as base models are, before those asked in a chat: p is then
    the base."""
    return sorted(tables, key=lambda t: (t.measured.get("asked") == "chat template", t.model))


def match(tables: TableSet, p: ScoreTable, q: ScoreTable) -> tuple[pd.DataFrame, str]:
    """Both log-probabilities candidate by candidate, and how they were matched: by id where the two
    have the same candidates, otherwise by text."""
    if p.provenance.candidates_digest == q.provenance.candidates_digest:
        columns = [t.text_rewards.astype(float) for t in (p, q)]
        return implicit_reward(*columns), "that are the same in both models"
    matrix = tables.shared([p, q])
    return implicit_reward(*(matrix[t.model] for t in (p, q))), "matched by their text"


@analysis("implicit_reward", Needs(models=0, prompts=0, language=True), place=231)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Every pair of language models as a reward."""
    label = labels_of([table for members in tables.language.values() for table in members])
    pieces: dict[str, list[pd.DataFrame]] = {}
    notes: list[str] = []
    steps: dict[str, str] = {}

    def add(table: str, piece: pd.DataFrame, **where: str) -> None:
        where |= {"prompt": prompt, "candidates": tables.candidates}
        pieces.setdefault(table, []).append(piece.assign(**where))

    for prompt, members in tables.language.items():
        if len(members) < 2:
            notes.append(f"{prompt}: one language model, and an implicit reward is between two")
        for p, q in combinations(bases_first(members), 2):
            pair = f"{p.model} → {q.model}"
            steps[pair] = f"{label[p.model]} to {label[q.model]}"
            with note_errors(notes, f"{pair} on {prompt}"):
                table, matched = match(tables, p, q)
                add("implicit_reward", implicit_extremes(table, k=options.top), pair=pair)
                words = word_mwlr(table, options.words)
                names = dict.fromkeys(word.strip().lower() for word in options.words)
                if unknown := [word for word in names if word not in set(words["word"])]:
                    notes.append(f"{pair}: no text of both models is {', '.join(unknown)}")
                if len(words):
                    add("word_mwlr", words, model_p=p.model, model_q=q.model, pair=pair)
                if tables.candidates == "vocabulary":  # items are not all that a model could say
                    add("language_divergence", divergence(table), matched=matched, pair=pair)
                with note_errors(notes, prompt):
                    rewards, scores = side_by_side(tables, prompt, [p, q])
                    measures = implicit_reward(scores[p.model], scores[q.model])[MEASURES]
                    measures = measures.set_axis(scores.index)
                    how = {"dependent": dependence(rewards.index, options.meanings)}
                    how |= {"confidence": options.confidence}
                    correlation = reward_correlation(rewards, measures, **how)
                    correlation = correlation.rename(columns={"score": "measure"})
                    add("implicit_correlation", correlation, pair=pair)
    if not pieces:
        raise TableError("; ".join(notes))
    joined = {name: pd.concat(frames, ignore_index=True) for name, frames in pieces.items()}
    first, *rest = _results(joined, tables, steps)
    return [replace(first, notes=tuple(dict.fromkeys(notes))), *rest]


def _results(
    tables_by_name: dict[str, pd.DataFrame], tables: TableSet, steps: dict[str, str]
) -> list[Result]:
    """The results of the joined tables; `steps` names pairs of language models."""
    ends = tables_by_name["implicit_reward"]
    firsts = ends[(ends["measure"] == "mwlr") & (ends["rank"] == 1)]
    row = firsts.loc[firsts["value"].abs().idxmax()]
    headline = (
        f"On {row['prompt']}, the step from {steps[row['pair']]} moves {literal(row['text'])} "
        f"most ({signed(row['value'], '+.2g')} nats, weighted by probability)."
    )
    names = {"implicit_reward": "log q − log p", "mwlr": "weighted by ½ (p + q)"}
    measures = ends.assign(measure=ends["measure"].map(names))
    tabs = ("prompt", "pair")
    tokens = TokenTable(data=measures, column="measure", value="value", tabs=tabs)
    results = [Result("implicit_reward", ends, headline, tokens, METHOD)]
    if (words := tables_by_name.get("word_mwlr")) is not None:
        row = words.loc[words["mwlr"].abs().idxmax()]
        headline = (
            f"On {row['prompt']}, the step from {steps[row['pair']]} moves {literal(row['word'])} "
            f"most of the words named ({signed(row['mwlr'], '+.2g')} nats, weighted by "
            "probability)."
        )
        label = "½ (p + q) (log q − log p), nats"
        rows = {"data": words.assign(step=words["pair"].map(steps)), "row": "step", "group": "word"}
        forest = Forest(estimate="mwlr", low=None, high=None, xlabel=label, **rows)
        results.append(Result("word_mwlr", words, headline, forest, METHOD))
    if (apart := tables_by_name.get("language_divergence")) is not None:
        results.append(Result("language_divergence", apart, method=METHOD))
    if (table := tables_by_name.get("implicit_correlation")) is not None:
        plot = {"group": "measure", "xlabel": "Kendall's τ-b with the step", "tabs": tabs}
        rows = table[table["measure"] == "implicit_reward"]
        where = {"method": METHOD, "plot": plot, "rows": rows}
        step = lambda row: f"the step from {steps[row['pair']]}"  # noqa: E731
        results.append(correlation_result("implicit_correlation", table, tables, step, **where))
    return results
