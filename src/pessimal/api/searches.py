"""`pessimal compare searches=…`: what searches found, scored by every other model."""

import json
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from pessimal.api.compare import publish_comparison
from pessimal.api.store import Artifact, Store, registered_spec
from pessimal.catalogue import answers
from pessimal.conversation import MARK, Conversation, Turn
from pessimal.errors import InputError, UserError
from pessimal.plots import Heatmap
from pessimal.progress import quiet_libraries, steps
from pessimal.rewards.base import Reward
from pessimal.rewards.named import answering_to
from pessimal.rewards.obtain import open_reward
from pessimal.scoring.texts import text_scorer
from pessimal.searching.elsewhere import HELD_OUT
from pessimal.searching.spec import Goal
from pessimal.tables.result import Estimate, Result, Results
from pessimal.tracking.registry import Manifest

log = logging.getLogger(__name__)

SEARCH = {"model": str, "goal": str, "best_text": str}
"""The figures of a search's summary that are read."""
BEYOND = 0.95


def compare_searches(
    names: Sequence[str],
    models: Sequence[str],
    *,
    name: str,
    store: Store,
    cache: str = "runs/cache",
    progress: bool = True,
) -> Results:
    """The result of each search, put where it stood, scored by each model, and published as a
    `comparison`.

    Args:
        names: searches of the registry, or ["all"].
        models: by any of their names; all that the registry has searches and scores of where none
            is given. One that is no model by its name is that which was trained under it.
        name: of the artifact.
        store: where the searches are, and where the comparison is published.
        cache: folder for models that are fetched.
        progress: draw a bar where there is a terminal.

    Raises:
        InputError: there is none of a name, or it does not say where its response stands.
    """
    quiet_libraries()
    registry = store.registry
    searches = registry.choose("search-result", names, needs=SEARCH)
    for folder, manifest in searches:
        if not _contexts(folder).exists():
            raise InputError(
                f"{manifest.reference} was made by an earlier version, which did not keep where "
                "its response stands: search again with force=true"
            )
    scored = registry.manifests("search-result", needs=SEARCH)
    scored += registry.manifests("score-table", needs={"model": str})
    scored_models = dict.fromkeys(manifest.summary["model"] for _, manifest in scored)
    scorers = answering_to(models, scored_models) or list(scored_models)
    rows = []
    with steps("searches by other models", len(scorers), bar=progress) as step:
        for model in scorers:
            step(model)
            try:
                reward = open_reward(registered_spec(registry, model), cache=cache)
            except UserError as error:
                if models:
                    raise
                log.warning("%s is left out: %s", model, error)
                continue
            for folder, manifest in searches:
                rows += _scored(reward, folder, manifest)
    inputs, counts = [manifest.reference for _, manifest in searches], {"searches": len(searches)}
    artifact = Artifact("comparison", name, inputs=inputs, summary=counts)
    results = [transfer(pd.DataFrame(rows))]
    return publish_comparison(artifact, results, store=store, progress=progress)


def _scored(model: Reward, folder: Path, manifest: Manifest) -> list[dict]:
    """One row a part of a search's contexts: the mean reward of what was found, and how it stands
    among ordinary answers in its place, in their standard deviations, positive towards the
    search's goal."""
    summary, control = manifest.summary, answers()
    sign = Goal(summary["goal"]).sign
    rows = []
    for part, table in pd.read_parquet(_contexts(folder)).groupby("part", sort=False):
        standings = []
        for conversation in table["conversation"].map(json.loads):
            put = partial(_put, conversation)
            some = [put(text) for text in (summary["best_text"], *control)]
            scorer = text_scorer(model, some[:8], device=torch.device("cpu"))
            reward, *controls = scorer.rewards(some)
            read = np.array(controls)[np.isfinite(controls)]
            z = sign * (reward - read.mean()) / read.std(ddof=1)
            standings.append((reward, z, float((sign * (reward - read) > 0).mean())))
        reward, z, above = np.mean(standings, axis=0)
        rows.append(
            {"search": manifest.name, "model": model.name, "part": part}
            | {"own": model.name == summary["model"], "reward": reward, "z": z, "above": above}
            | {"contexts": len(standings), "n": len(control)}
        )
    return rows


def transfer(table: pd.DataFrame) -> Result:
    """The matrix, of held-out contexts where there are some."""
    held = table.groupby(["search", "model"])["part"].transform(
        lambda parts: HELD_OUT in set(parts)
    )
    rows = table[~held | (table["part"] == HELD_OUT)]
    transferred = rows[~rows["own"]]
    carried, n = int((transferred["above"] >= BEYOND).sum()), len(transferred)
    controls = int(table["n"].max())
    return Result(
        "transfer",
        table,
        method="search",
        headline=f"What {rows['search'].nunique()} searches found is beyond 95% of {controls} "
        f"ordinary answers in {carried} of {n} cases under other models.",
        plot=Heatmap(
            data=rows,
            row="search",
            column="model",
            value="z",
            diverging=True,
            label=f"SD of {controls} ordinary answers in its place, towards the search's goal",
        ),
        estimate=Estimate("cases beyond 95% of ordinary answers", carried, n, "cases"),
        weight=2.0,
    )


def _contexts(folder: Path) -> Path:
    return folder / "tables" / "contexts.parquet"


def _put(turns: list[dict[str, str]], text: str) -> Conversation:
    return tuple(Turn(turn["role"], turn["content"].replace(MARK, text)) for turn in turns)
