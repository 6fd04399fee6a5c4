"""Labelled pairs of answers: where they come from, and a frame of their rewards for
`analyses.preferences`.

Knows comparisons and a scorer. Does not know what gives the rewards.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pessimal.analyses.preferences import LENGTHS, better_margins, preference_results
from pessimal.errors import InputError
from pessimal.explaining.outcomes import Scorer
from pessimal.tables.comparisons import Comparison, choose, digest, load
from pessimal.tables.result import Result

log = logging.getLogger(__name__)

EMBEDDED = "pairs"
"""The source of the pairs that come with the package."""
PARQUET = "pairs.parquet"
"""The file of an artifact `scored-pairs`."""
UNKNOWN = (float("nan"), float("nan"))
"""Rewards of a pair that a model was not asked."""
MAX_PAIRS = 2_000
"""Pairs of a large file that are asked, drawn at random."""
MAX_ROWS = 200
"""Wrongly ranked pairs that are kept to be read."""


def labelled_pairs(
    path: str | None, *, n: int | None = MAX_PAIRS, seed: int = 0
) -> list[Comparison]:
    """Comparisons of which the better answer is known: those of a file, or the embedded ones.

    Args:
        n: draw this many at random of a larger file; None takes all.

    Raises:
        InputError: the file cannot be read, or none of its comparisons has a label.
    """
    file = Path(path or "").expanduser()
    loaded = load("jsonl", path=file, option="pairs") if path else load(EMBEDDED)
    labelled = [pair for pair in loaded.comparisons if pair.preferred is not None]
    left_out = loaded.left_out | {"without a label": len(loaded.comparisons) - len(labelled)}
    if texts := [f"{count:,} {reason}" for reason, count in left_out.items() if count]:
        log.warning("pairs of %s that are left out: %s", path or EMBEDDED, ", ".join(texts))
    if not labelled:
        raise InputError(
            f"pairs={path!r}: no row says which answer is better. A row has prompt, chosen and "
            "rejected, or prompt, responses and preferred (0 or 1)"
        )
    return choose(labelled, n=n, seed=seed)


def pairs_digest(pairs: Sequence[Comparison]) -> str:
    """sha256 over pairs and categories."""
    categories = "\n".join(str(pair.category) for pair in pairs)
    return hashlib.sha256(f"{digest(pairs)}\n{categories}".encode()).hexdigest()


def score_pairs(scorer: Scorer, pairs: Sequence[Comparison], *, model: str) -> pd.DataFrame:
    """Rewards of both answers of each pair, as `pair_frame` has them; not a number for an answer
    that the reward cannot be asked."""
    conversations = [pair.conversation(text) for pair in pairs for text in pair.responses]
    return pair_frame(np.asarray(scorer.rewards(conversations), dtype=float), pairs, model=model)


def published_rewards(pairs: Sequence[Comparison]) -> dict[str, np.ndarray]:
    """Rewards float64 (pairs, 2) by each model of which the pairs' source has some; not a number
    where it has none."""
    models = dict.fromkeys(model for pair in pairs for model in pair.scores)
    return {
        model: np.array([pair.scores.get(model, UNKNOWN) for pair in pairs]) for model in models
    }


def pair_frame(rewards: np.ndarray, pairs: Sequence[Comparison], *, model: str) -> pd.DataFrame:
    """A row per pair, with the columns `COLUMNS` and `LENGTHS` of `analyses.preferences`. Pairs
    that share an answer to a prompt, as nine of RM-Bench do, or both answers are one cluster.

    Args:
        rewards: of both answers of each pair, in their order.
    """
    conversations = [pair.conversation(text) for pair in pairs for text in pair.responses]
    numbers, together = np.arange(len(pairs)), [frozenset(pair.responses) for pair in pairs]
    links: list[tuple[np.ndarray, Sequence]] = [(np.repeat(numbers, 2), conversations)]
    links.append((numbers, together))
    table = pd.DataFrame({"model": model, "key": [pair.key for pair in pairs]})
    table["cluster"] = _components(links, len(pairs))
    table["category"] = [pair.category or "uncategorised" for pair in pairs]
    table["preferred"] = [pair.preferred for pair in pairs]
    table[["first", "second"]] = rewards.reshape(-1, 2)
    table[[*LENGTHS]] = [[len(text) for text in pair.responses] for pair in pairs]
    return table


def _components(links: Sequence[tuple[np.ndarray, Sequence]], size: int) -> np.ndarray:
    """Number of the connected component of each of `size` pairs, which labels connect."""
    labels = [pd.factorize(pd.Series(names))[0] for _, names in links]
    starts = size + np.cumsum([0, *(int(column.max()) + 1 for column in labels)])
    columns = [column + start for column, start in zip(labels, starts, strict=False)]
    ends = (np.concatenate([rows for rows, _ in links]), np.concatenate(columns))
    graph = coo_array((np.ones(len(ends[0])), ends), shape=(starts[-1], starts[-1]))
    return connected_components(graph, directed=False)[1][:size]


def wrong_pairs(scored: pd.DataFrame, pairs: Sequence[Comparison]) -> Result:
    """The pairs that a reward ranks against their labels or gives the same reward, the widest
    margins first: a Result to read.

    Args:
        scored: one model's rows of `score_pairs`, in the order of `pairs`.
    """
    margins = better_margins(scored)
    better = [pair.responses[pair.preferred or 0] for pair in pairs]
    worse = [pair.responses[1 - (pair.preferred or 0)] for pair in pairs]
    table = scored[["model", "key", "category"]].assign(
        margin=margins.to_numpy(),
        prompt=[pair.prompt for pair in pairs],
        better=better,
        worse=worse,
    )
    table = table[table["margin"] <= 0].sort_values("margin", kind="stable", ignore_index=True)
    return Result("preference_pairs", table.head(MAX_ROWS), method="preferences")


def accuracy_results(
    tables: Sequence[pd.DataFrame],
    pairs: Sequence[Comparison],
    *,
    source: str = "",
    confidence: float = 0.95,
) -> list[Result]:
    """Results of `preference_results`, `preference_pairs` (pairs that a model ranks against their
    labels) and `scored_pairs`: every reward, so that the numbers can be computed again.

    Args:
        tables: frames of `pair_frame`, one for each model, in the order of `pairs`.
        source: what the pairs are, for the notes.

    Raises:
        TableError: no pair has a label and two finite rewards.
    """
    scored = pd.concat(tables, ignore_index=True)
    results = preference_results(scored, source=source, confidence=confidence)
    prefix = "{model}/" if len(tables) > 1 else ""
    summary = {
        f"{prefix}accuracy/{{category}}".format(**row): row["accuracy"]
        for row in results[0].table.to_dict("records")
    }
    wrong = pd.concat([wrong_pairs(table, pairs).table for table in tables], ignore_index=True)
    results[0] = replace(results[0], summary=summary)
    return [
        *results,
        Result("preference_pairs", wrong, method="preferences"),
        Result("scored_pairs", scored, method="preferences"),
    ]


def scored_rows(pairs: Sequence[Comparison]) -> pd.DataFrame:
    """Pairs with their models' rewards as a table that `labelled_pairs` reads from a parquet file:
    key, prompt, responses, preferred, category, and `MODEL:a` and `MODEL:b` for each model."""
    rows = [json.loads(pair.as_line()) for pair in pairs]
    table = pd.DataFrame(rows, columns=["key", "prompt", "responses", "preferred", "category"])
    table["preferred"] = table["preferred"].astype("Int64")
    for model, rewards in published_rewards(pairs).items():
        table[f"{model}:a"], table[f"{model}:b"] = rewards.T
    return table
