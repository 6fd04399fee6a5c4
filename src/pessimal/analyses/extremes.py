"""The optimal and pessimal tokens of each model: both ends of its score tables."""

import pandas as pd

from pessimal.analyses.analysis import Needs, Options, analysis, by_prompt
from pessimal.errors import TableError
from pessimal.plots import TokenTable
from pessimal.tables.extremes import extremes
from pessimal.tables.result import Result
from pessimal.tables.table_set import TableSet
from pessimal.texts import literal

NEEDED = ("candidate_id", "text", "token", "reward")


@analysis("extremes", Needs(prompts=1), place=20)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """What each model wants most and least, of all candidates that it was given, and of those that
    all models share."""
    ends = pd.concat(
        extremes(t.rows, k=options.top).assign(
            model=t.provenance.model, prompt=p, candidates=tables.candidates
        )
        for p in tables.prompts
        for t in tables.by_prompt[p]
    )
    prompt = tables.prompts[0]
    first = ends[(ends["rank"] == 1) & (ends["prompt"] == prompt)].set_index(["end", "model"])[
        "text"
    ]
    most, least = first["top"], first["bottom"]
    shown = tables.labels[most.index[0]]
    best, worst = literal(most.iloc[0]), literal(least.iloc[0])
    headline = f"On {prompt}, {shown} wants {best} most and {worst} least"
    headline += (
        f"; {most.nunique()} optimal {tables.things} in {len(most)} models."
        if len(most) > 1
        else "."
    )
    named = {"top": "optimal", "bottom": "pessimal"}
    firsts = ends[ends["rank"] == 1].itertuples()
    summary = {f"{row.prompt}/{row.model}/{named[row.end]}": row.text for row in firsts}
    results = [Result("extremes", ends, headline, TokenTable(), method="extremes", summary=summary)]
    if len(shared := by_prompt(tables, lambda p: _shared(tables, p, k=options.top), models=2)):
        results.append(Result("extremes_shared", shared, plot=TokenTable(), method="extremes"))
    return results


def _shared(tables: TableSet, prompt: str, *, k: int) -> pd.DataFrame | None:
    """`extremes` of each model over the texts that all models share; None where a model has no
    others.

    Source: Christian et al. 2025, Table A7.
    """
    try:
        rewards = tables.matrix(prompt)
    except TableError:  # no common texts, which `agreement` reports
        return None
    if all(len(table.rows) == len(rewards) for table in tables.by_prompt[prompt]):
        return None
    texts = pd.DataFrame(
        {"candidate_id": range(len(rewards)), "text": rewards.index, "token": rewards.index}
    )
    ends = [
        extremes(texts.assign(reward=rewards[model].to_numpy()), k=k).assign(
            model=model, n=len(rewards)
        )
        for model in rewards
    ]
    return pd.concat(ends, ignore_index=True).drop(columns=["candidate_id", "token"])
