"""Every response of two tokens: the true best and worst, and where the other searches stand among all of them."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch

from pessimal.errors import WorkError
from pessimal.search.evaluation_counter import Point
from pessimal.search.exhaustive import Above, ExhaustivePairs, exhaustive_pairs
from pessimal.search.procedure import Final
from pessimal.verbs.search_context import SearchContext
from pessimal.verbs.search_stages import Report, search_by_stages
from pessimal.verbs.search_tables import Searched
from pessimal.verbs.trainer import is_first_process, make_trainer

# So many of the best pairs are scored again by the model's own forward, one by one; the first of them is the result.
_RESCORED = 16


def search_every_pair(context: SearchContext, work: Path, *, report: Report) -> Searched | None:
    """Score all pairs, all processes together; then, in the first, search as without them and say where that stands."""
    config = context.config
    (prompt,) = config.prompt_keys
    network, dtype = context.network(), context.model.spec.dtype
    every = exhaustive_pairs(
        network,
        context.frames[prompt],
        allowed=np.flatnonzero(context.mask),
        dtype=dtype,
        trainer=make_trainer(config.trainer, root=config.paths.cache),
        folder=context.shared_work,
        batch_size=config.batch_size,
        keep=context.spec.keep,
        label=f"{context.model.name} · {prompt}",
        progress=config.progress,
    )
    if not is_first_process():
        return None
    network.to(context.device)  # the trainer took it back to the CPU
    searched = search_by_stages(context, work, report=report, exact=_ends(context, every))
    searched.tables |= _tables(context, every, searched)
    return searched


def _ends(context: SearchContext, every: ExhaustivePairs) -> list[Final]:
    """The best pairs by the goal, of which the result is taken."""
    ends = every.top if context.spec.goal.sign > 0 else every.bottom
    responses = torch.from_numpy(ends[["first", "second"]].to_numpy().astype(np.int64))
    counted = (
        context.retokenizes(responses).numpy() if context.retokenizes else np.ones(len(ends), dtype=bool)
    )
    if not counted.any():
        raise WorkError(
            f"none of the {len(ends):,} {context.spec.goal.value} pairs is given by a text. Keep more of them: "
            f"search.keep={10 * len(ends)}; or type mode=ids"
        )
    return [
        Final(
            0, "exhaustive", Point(every.pairs, context.spec.goal.sign * row.reward, (row.first, row.second))
        )
        for row in ends[counted].head(_RESCORED).itertuples()
    ]


def _tables(context: SearchContext, every: ExhaustivePairs, searched: Searched) -> dict[str, pd.DataFrame]:
    return {
        "top_pairs": _named(context, every.top),
        "bottom_pairs": _named(context, every.bottom),
        "per_first": every.per_first,
        "per_second": every.per_second,
        "histogram": every.histogram.rename(columns={"pairs": "n"}),
        "standing": _standing(context, every, searched),
    }


def _named(context: SearchContext, pairs: pd.DataFrame) -> pd.DataFrame:
    texts = context.vocabulary.rows.set_index("candidate_id")["text"]
    responses = torch.from_numpy(pairs[["first", "second"]].to_numpy().astype(np.int64))
    return pd.DataFrame(
        {
            "rank": pairs["rank"],
            "first_id": pairs["first"],
            "second_id": pairs["second"],
            "first": pairs["first"].map(texts),
            "second": pairs["second"].map(texts),
            "text": context.round_trip.text_of(responses),
            "reward": pairs["reward"],
            "survives": context.round_trip(responses).tolist(),
        }
    )


def _standing(context: SearchContext, every: ExhaustivePairs, searched: Searched) -> pd.DataFrame:
    """Where the best of each other way stands among all pairs: its rank lies between `rank` and `rank_most`."""
    sign, noise = context.spec.goal.sign, searched.numbers["noise"]
    ends = (every.top if sign > 0 else every.bottom).set_index(["first", "second"])["rank"]
    rows = []
    for result, value, response in searched.ways:
        if response in ends.index:
            rank = most = int(ends.loc[response])
        else:
            better = _better(every, sign * value, sign, noise=noise)
            rank, most = 1 + better.least, 1 + better.most
        pair = context.round_trip.text_of(torch.tensor([response]))[0]
        rows.append((_way(result), pair, sign * value, rank, most, every.pairs))
    return pd.DataFrame(rows, columns=["result", "pair", "reward", "rank", "rank_most", "of"])


def _way(stage: str) -> str:
    """A stage's name as a reader wants it."""
    return {"pairs": "pruned exact search"}.get(stage, stage.replace("restart", "gradient, start"))


def _better(every: ExhaustivePairs, reward: float, sign: int, *, noise: float) -> Above:
    """How many pairs are better than one with this reward, which another batch gave: it may err by `noise`."""
    high, low = every.rank_of(reward + noise), every.rank_of(reward - noise)
    if sign > 0:
        return Above(high.least, low.most)
    return Above(every.pairs - low.most, every.pairs - high.least)
