"""What quantisation does to a model's ranking: each model against its quantised self, token by
token.

Knows the tables of two models on one prompt, and which is the other's quantised self, by what a
person says or by their names. Knows nothing of weights.
"""

import re
from collections.abc import Iterable, Mapping

import pandas as pd

from pessimal.analyses.agreement import agreement, tau_effect
from pessimal.analyses.analysis import Needs, Options, analysis, noted
from pessimal.errors import TableError, did_you_mean
from pessimal.plots import Forest
from pessimal.tables.result import Result
from pessimal.tables.table_set import TableSet
from pessimal.texts import literal

FAR = 0.01
"""A token has moved where its rank changes by more than this share of all ranks."""
_HOW = r"bnb|awq|gptq|gguf|quantized|int[48]|nf4|fp[48]|[48]bit|q\d\w*|w\d+a\d+|g\d+|marlin"
_SUFFIX = re.compile(rf"([-_.]({_HOW}))+", re.IGNORECASE)
ENDS = ["end", "change", "candidate_id", "token", "text", "kind"]


def quantised_pairs(models: Iterable[str], stated: Mapping[str, str]) -> dict[str, str]:
    """Each quantised model's name, and that of the model in full precision.

    Args:
        models: names there are.
        stated: pairs as a person gives them; the others go by their names: NAME-nf4, NAME-AWQ or
            NAME.Q4_1 is NAME quantised.

    Raises:
        TableError: a pair names a model that is not there.
    """
    models = list(models)
    if unknown := [name for pair in stated.items() for name in pair if name not in models]:
        raise TableError(
            f"quantised names the model {unknown[0]!r}, of which no score table is given; there "
            f"are: {', '.join(models)}.{did_you_mean(unknown[0], models)}"
        )
    pairs = {}
    for name in models:
        wholes = [o for o in models if name.startswith(o) and _SUFFIX.fullmatch(name[len(o) :])]
        if wholes:
            pairs[name] = max(wholes, key=len)
    return pairs | dict(stated)


def compare_quantised(
    whole: pd.DataFrame, quantised: pd.DataFrame, *, top: int = 20, **draws
) -> pd.Series:
    """How far a quantised model keeps the order of its tokens.

    Args:
        whole: rewards as `paired` gives them, of the model in full precision; candidates × (rank,
            reward).
        quantised: the same of its quantised self, in the same order.
        top: k, tokens at each end.
        draws: of the bootstrap (see `agreement`).

    Returns:
        n, kendall, low, high, spearman, moved (share of tokens whose rank changes by more than FAR
        of all ranks), largest_move (of a token, in ranks), top (k), top_overlap, bottom_overlap
        (shares of k).

    Raises:
        TableError: one of the two gives all tokens one reward.
    """
    rewards = pd.DataFrame({"whole": whole["reward"], "quantised": quantised["reward"]})
    row = agreement(rewards, top=top, **draws).iloc[0]
    moves = (whole["rank"] - quantised["rank"]).abs()
    columns = ["n", "kendall", "low", "high", "spearman", "top", "top_overlap", "bottom_overlap"]
    moved = {"moved": float((moves > FAR * len(moves)).mean()), "largest_move": float(moves.max())}
    return pd.concat([row[columns], pd.Series(moved)])


def paired(whole: pd.DataFrame, quantised: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tokens that two score tables share, by id and text, each with its rank (1 is the highest;
    ties share their mean).

    Raises:
        TableError: they share less than half of them, so that they are of different vocabularies.
    """
    keys = ["candidate_id", "text"]
    shared = whole[keys].merge(quantised[keys])
    if 2 * len(shared) < max(len(whole), len(quantised)):
        raise TableError(
            f"the two share {len(shared)} of {len(whole)} and {len(quantised)} tokens: they are of "
            "different vocabularies, so that neither is the other quantised"
        )
    both = []
    for rows in (whole, quantised):
        matched = shared.merge(rows).set_index("candidate_id")
        both.append(matched.assign(rank=matched["reward"].rank(ascending=False)))
    return both[0], both[1]


def changed_ends(whole: pd.DataFrame, quantised: pd.DataFrame, *, top: int = 20) -> pd.DataFrame:
    """The tokens that quantisation brings into the k highest or lowest, or takes out of them.

    Args:
        whole, quantised: of `paired`.
        top: k; tokens tied with the last of them are among them.

    Returns:
        end (top, bottom), change (enters, leaves), candidate_id, token, text, kind, rank_whole,
        rank_quantised, reward_whole, reward_quantised; the highest rank in the model in full
        precision first.
    """
    table = whole[["token", "text", "kind"]].assign(
        rank_whole=whole["rank"],
        rank_quantised=quantised["rank"],
        reward_whole=whole["reward"],
        reward_quantised=quantised["reward"],
    )
    pieces = []
    for end, highest in (("top", False), ("bottom", True)):
        before, after = (
            rows["reward"].rank(ascending=highest, method="min") <= top
            for rows in (whole, quantised)
        )
        for change, members in (("leaves", before & ~after), ("enters", after & ~before)):
            pieces.append(
                table[members]
                .sort_values("rank_whole", kind="stable")
                .assign(end=end, change=change)
            )
    changes = pd.concat(pieces).reset_index()
    return changes[[*ENDS, *(column for column in changes if column not in ENDS)]]


@analysis("quantisation", Needs(models=2), place=220)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Each model against its quantised self, prompt by prompt."""
    pairs = quantised_pairs(tables.models, options.quantised)
    if not pairs:
        raise TableError("needs a model and its quantised self: +quantised.QUANTISED_NAME=NAME")
    rows, ends = [], []
    notes: list[str] = []
    for prompt in tables.prompts:
        by_model = {table.model: table for table in tables.by_prompt[prompt]}
        for name, full in pairs.items():
            if name not in by_model or full not in by_model:
                continue
            where = {"model": name, "whole": full, "prompt": prompt}
            where["candidates"] = tables.candidates
            with noted(notes, f"{tables.labels[name]} on {prompt}"):
                both = paired(by_model[full].rows, by_model[name].rows)
                comparison = compare_quantised(*both, top=options.top, **options.draws)
                rows.append({**where, **comparison})
                ends.append(changed_ends(*both, top=options.top).assign(**where))
    if not rows:
        raise TableError(
            "; ".join(notes) or "no prompt was scanned with both a model and its quantised self"
        )
    table, changed = pd.DataFrame(rows), pd.concat(ends, ignore_index=True)
    table[["n", "top"]] = table[["n", "top"]].astype(int)
    least = table.sort_values("kendall", kind="stable").iloc[0]
    label, things = tables.labels[least["model"]], tables.things
    effect = tau_effect(things, null=1.0)
    results = [
        Result.of_row(
            least,
            "quantisation",
            table,
            effect,
            f"On {least['prompt']}, {label} orders {things} as in full precision to τ = "
            f"{least['kendall']:.3f}; {least['moved']:.0%} move by over 1% of ranks.",
            label="τ, lowest",
            plot=Forest.of(effect, xlabel="Kendall's τ-b with the model in full precision"),
            method="quantisation",
            notes=tuple(notes),
            summary={f"{r.prompt}/{r.model}/kendall": float(r.kendall) for r in table.itertuples()},
        )
    ]
    headline = "Quantisation leaves both ends of every ranking as they are."
    if len(changed):
        farthest = changed.loc[(changed["rank_whole"] - changed["rank_quantised"]).abs().idxmax()]
        headline = (
            f"On {farthest['prompt']}, {literal(farthest['text'])} {farthest['change']} the "
            f"{farthest['end']} {options.top} of {tables.labels[farthest['model']]}: rank "
            f"{farthest['rank_whole']:,.0f}, quantised {farthest['rank_quantised']:,.0f}."
        )
    results.append(Result("quantisation_ends", changed, headline=headline, method="quantisation"))
    return results
