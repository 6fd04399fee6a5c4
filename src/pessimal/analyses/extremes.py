"""The optimal and pessimal tokens of each model: both ends of its score tables."""

import pandas as pd

from pessimal.analyses.analysis import Needs, Options, analysis, by_prompt
from pessimal.errors import TableError
from pessimal.plots import TokenTable
from pessimal.tables.result import Result
from pessimal.tables.score_table import ScoreTable, extremes
from pessimal.tables.table_set import TableSet
from pessimal.texts import WORD, literal

DAGGER = "†"


@analysis("extremes", Needs(prompts=1), place=20)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """What each model wants most and least, of all candidates that it was given, and of those that
    all models share."""
    ends = pd.concat(
        _marked(extremes(t.rows, k=options.top), t).assign(
            model=t.model, prompt=p, candidates=tables.candidates
        )
        for p in tables.prompts
        for t in tables.by_prompt[p]
    )
    prompt = tables.prompts[0]
    first = ends[(ends["rank"] == 1) & (ends["prompt"] == prompt)]
    most, least = (first[first["end"] == end] for end in ("top", "bottom"))
    best, worst = (
        f'"{literal(rows["text"].iloc[0])}"'
        + " (a word of the prompt)" * bool(rows["in_prompt"].iloc[0])
        for rows in (most, least)
    )
    shown = tables.labels[most["model"].iloc[0]]
    headline = f'On "{prompt}", {shown} scores {best} highest and {worst} lowest'
    different, things = most["text"].nunique(), tables.things
    count = f"{different} optimal {things if different > 1 else things.removesuffix('s')}"
    headline += f"; {count} in {len(most)} models." if len(most) > 1 else "."
    named = {"top": "optimal", "bottom": "pessimal"}
    firsts = ends[ends["rank"] == 1].itertuples()
    summary = {f"{row.prompt}/{row.model}/{named[row.end]}": row.text for row in firsts}
    drawn = TokenTable(data=_with_daggers(ends))
    results = [Result("extremes", ends, headline, drawn, method="extremes", summary=summary)]
    if len(shared := by_prompt(tables, lambda p: _shared(tables, p, k=options.top), models=2)):
        drawn = TokenTable(data=_with_daggers(shared))
        results.append(Result("extremes_shared", shared, plot=drawn, method="extremes"))
    return results


def _with_daggers(ends: pd.DataFrame) -> pd.DataFrame:
    """What is drawn: words of the prompt with a dagger behind them."""
    return ends.assign(text=ends["text"].where(~ends["in_prompt"], ends["text"] + DAGGER))


def _marked(ends: pd.DataFrame, table: ScoreTable) -> pd.DataFrame:
    """The rows with `in_prompt`: whether the text is a word of the prompt."""
    words = set(WORD.findall((table.provenance.prompt_text or "").lower()))
    return ends.assign(in_prompt=[text.strip().lower() in words for text in ends["text"].tolist()])


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
        _marked(
            extremes(texts.assign(reward=rewards[model].to_numpy()), k=k),
            tables.by_prompt[prompt][0],
        ).assign(model=model, n=len(rewards))
        for model in rewards
    ]
    return pd.concat(ends, ignore_index=True).drop(columns=["candidate_id", "token"])
