"""How alike one model orders the items under two prompts, for every two of its prompts."""

from itertools import combinations

import numpy as np
import pandas as pd

from pessimal.analyses.agreement import tau_effect
from pessimal.analyses.analysis import Needs, Options, analysis, noted
from pessimal.analyses.checks import check_rewards, check_varied
from pessimal.analyses.dependence import Dependence, dependence
from pessimal.analyses.ranks import rank_correlations, ranked
from pessimal.errors import TableError
from pessimal.plots import Heatmap
from pessimal.tables.result import Result
from pessimal.tables.table_set import TableSet


def prompt_agreement(
    rewards: pd.DataFrame, *, dependent: Dependence | None = None, **draws
) -> pd.DataFrame:
    """Kendall's tau-b of one model's rewards under every two prompts.

    Args:
        rewards: items × prompts, float, none missing.
        dependent: which items are not independent; all are where None.
        draws: of the bootstrap (see `ranks.bootstrapped`).

    Returns:
        One row per two prompts, in the order of the columns: prompt_a, prompt_b, n (items),
            kendall, low, high.

    Raises:
        TableError: fewer than three items, a missing reward, or one reward for all items on a
            prompt.

    Source: Christian et al. 2025, Figure A6.
    """
    check_rewards(rewards, least_models=2)
    check_varied(rewards)
    ranks = {prompt: ranked(rewards[prompt].to_numpy()) for prompt in rewards}
    pairs = list(combinations(ranks, 2))
    table = pd.DataFrame(pairs, columns=["prompt_a", "prompt_b"])
    return table.assign(n=len(rewards), **rank_correlations(ranks, pairs, dependent, **draws))


@analysis("prompt_agreement", Needs(prompts=2), place=80)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """For each model, over all its own items: tau-b of every two of its prompts."""
    pieces: list[pd.DataFrame] = []
    notes: list[str] = []
    for model in tables.models:
        by_prompt = tables.of_model(model)
        if len(by_prompt) < 2:
            continue
        rewards = pd.DataFrame({prompt: table.rewards for prompt, table in by_prompt.items()})
        texts = next(iter(by_prompt.values())).rows["text"]
        dependent = dependence(texts, options.meanings)
        with noted(notes, tables.labels[model]):
            piece = prompt_agreement(rewards, dependent=dependent, **options.draws)
            pieces.append(piece.assign(model=model, candidates=tables.candidates))
    if not pieces:
        raise TableError("; ".join(notes) or "no model was scanned on two prompts in one mode")
    table = pd.concat(pieces, ignore_index=True)
    ordered = table.iloc[np.argsort(-table["kendall"].to_numpy(), kind="stable")]
    most, least = ordered.iloc[0], ordered.iloc[-1]
    headline = (
        f"{_named(tables, most)} most alike (τ = {most['kendall']:.2f}); {_named(tables, least)} "
        f"least ({least['kendall']:.2f})."
        if len(table) > 1
        else f"{_named(tables, most)} alike to τ = {most['kendall']:.2f}."
    )
    heatmap = Heatmap(
        row="prompt_a",
        column="prompt_b",
        value="kendall",
        panel="model",
        tabs=(),
        across=5,
        symmetric=True,
        diverging=True,
    )
    return [
        Result.of_row(
            most,
            "prompt_agreement",
            table,
            tau_effect(tables.things),
            headline,
            label="τ, highest",
            size=most["kendall"] - least["kendall"],
            share=1 / 4,
            plot=heatmap,
            method="prompt_agreement",
            notes=tuple(notes),
        )
    ]


def _named(tables: TableSet, row: pd.Series) -> str:
    """The model and the two prompts of a row."""
    return f"{tables.labels[row['model']]} answers {row['prompt_a']} and {row['prompt_b']}"
