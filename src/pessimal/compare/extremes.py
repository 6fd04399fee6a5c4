"""The optimal and pessimal tokens of each model: both ends of its score tables."""

import pandas as pd

from pessimal.compare.analysis import Needs, Options, analysis, by_prompt
from pessimal.errors import TableError
from pessimal.plots import TokenTable
from pessimal.tables.result import Result
from pessimal.tables.table_set import TableSet
from pessimal.texts import literal

NEEDED = ("candidate_id", "text", "token", "reward")


def extremes(table: pd.DataFrame, *, k: int) -> pd.DataFrame:
    """The k highest and the k lowest rewards, best first and worst first.

    Equal rewards are taken in the order of `candidate_id`, at both ends. Where the cut falls among equals, the
    choice of those listed is arbitrary, and the table says so: `tied` marks the listed candidates that share
    their reward with one left out, `tied_left_out` counts those left out with it.

    Args:
        table: candidate_id, text, token, reward, and whatever else is to be carried along.
        k: candidates per end, at least 1; a table of fewer is given whole.

    Returns:
        2k rows: end ("top" or "bottom"), rank (1 = the most extreme), text, token, reward, tied,
        tied_left_out, then the table's other columns.

    Raises:
        TableError: a column is missing, k is not positive, or a reward is missing.

    Source: Christian et al. 2025, Tables 2 and A6.
    """
    if missing := [name for name in NEEDED if name not in table]:
        raise TableError(
            f"The score table lacks {', '.join(missing)}; it has {', '.join(map(str, table.columns))}."
        )
    if k < 1:
        raise TableError(f"k={k} candidates per end cannot be listed; ask for at least 1.")
    if lost := int(table["reward"].isna().sum()):
        raise TableError(f"{lost} of {len(table)} rewards are missing; finish the scan, or drop these rows.")
    ends = pd.concat([_end(table, k=k, highest=True), _end(table, k=k, highest=False)], ignore_index=True)
    first = ["end", "rank", "text", "token", "reward", "tied", "tied_left_out"]
    return ends[[*first, *(name for name in table.columns if name not in first)]]


def _end(table: pd.DataFrame, *, k: int, highest: bool) -> pd.DataFrame:
    """The k most extreme rows at one end, most extreme first."""
    ordered = table.sort_values(["reward", "candidate_id"], ascending=[not highest, True])
    kept, left_out = ordered.iloc[:k], ordered.iloc[k:]
    equals = left_out["reward"].eq(kept["reward"].iloc[-1]).sum() if len(kept) else 0
    tied = kept["reward"].eq(kept["reward"].iloc[-1]) & (equals > 0) if len(kept) else False
    return kept.assign(
        end="top" if highest else "bottom",
        rank=range(1, len(kept) + 1),
        tied=tied,
        tied_left_out=equals * tied,
    )


@analysis("extremes", Needs(prompts=1))
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """What each model wants most and least, of all candidates that it was given, and of those that all models share."""
    ends = pd.concat(
        extremes(t.rows, k=options.top).assign(
            model=t.provenance.model, prompt=p, candidates=tables.candidates
        )
        for p in tables.prompts
        for t in tables.by_prompt[p]
    )
    prompt = tables.prompts[0]
    first = ends[(ends["rank"] == 1) & (ends["prompt"] == prompt)].set_index(["end", "model"])["text"]
    most, least = first["top"], first["bottom"]
    shown = tables.labels[most.index[0]]
    headline = f"On {prompt}, {shown} wants {literal(most.iloc[0])} most and {literal(least.iloc[0])} least"
    headline += f"; {most.nunique()} optimal {tables.things} in {len(most)} models." if len(most) > 1 else "."
    named = {"top": "optimal", "bottom": "pessimal"}
    firsts = ends[ends["rank"] == 1].itertuples()
    summary = {f"{row.prompt}/{row.model}/{named[row.end]}": row.text for row in firsts}
    found = [Result("extremes", ends, headline, TokenTable(), method="extremes", summary=summary)]
    if len(shared := by_prompt(tables, lambda p: _shared(tables, p, k=options.top), models=2)):
        found.append(Result("extremes_shared", shared, plot=TokenTable(), method="extremes"))
    return found


def _shared(tables: TableSet, prompt: str, *, k: int) -> pd.DataFrame | None:
    """`extremes` of each model over the texts that all models share; None where a model has no others.

    Source: Christian et al. 2025, Table A7.
    """
    try:
        rewards = tables.matrix(prompt)
    except TableError:  # no common texts, which `agreement` reports
        return None
    if all(len(table.rows) == len(rewards) for table in tables.by_prompt[prompt]):
        return None
    texts = pd.DataFrame({"candidate_id": range(len(rewards)), "text": rewards.index, "token": rewards.index})
    ends = [
        extremes(texts.assign(reward=rewards[model].to_numpy()), k=k).assign(model=model, n=len(rewards))
        for model in rewards
    ]
    return pd.concat(ends, ignore_index=True).drop(columns=["candidate_id", "token"])
