"""`pessimal compare searches=…`: what searches found, scored by every other model."""

import json
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from pessimal.catalogue import answers
from pessimal.config.schema import CompareConfig
from pessimal.conversation import MARK, Conversation, Turn
from pessimal.errors import ConfigError, InputError, UserError
from pessimal.plots import Heatmap
from pessimal.progress import quiet_libraries, steps
from pessimal.rewards.base import Reward
from pessimal.rewards.named import answering_to, spec_of
from pessimal.rewards.obtain import open_reward
from pessimal.rewards.spec import ModelSpec
from pessimal.scoring.texts import text_scorer
from pessimal.searching.elsewhere import HELD_OUT
from pessimal.searching.spec import Goal
from pessimal.tables.result import Estimate, Result
from pessimal.tracking.registry import Manifest, Registry

log = logging.getLogger(__name__)

SEARCH = {"model": str, "goal": str, "best_text": str}
"""What is read of a search's summary."""
EVERY = "all"
BEYOND = 0.95
Chosen = list[tuple[Path, Manifest]]


def chosen_searches(config: CompareConfig, registry: Registry) -> Chosen:
    """The searches that are asked for, by name or name:version, or the newest version of all.

    Raises:
        InputError: there is none of a name, or it does not say where its response stands.
    """
    named = {found[1].name: found for found in registry.latest("search-result", needs=SEARCH)}
    every = registry.manifests("search-result", needs=SEARCH)
    there = {found[1].reference.split("/", 1)[1]: found for found in every} | named
    asked = list(named) if config.searches == [EVERY] else config.searches
    names = [name.removeprefix("search-result/") for name in asked]
    if not names or (missing := [name for name in names if name not in there]):
        known = ", ".join(there) or "none: type pessimal search"
        raise InputError(
            f"searches={config.searches}: {missing if names else 'none'} is not in "
            f"{registry.root}; there are: {known}"
        )
    for name in names:
        if not _contexts(there[name][0]).exists():
            raise InputError(
                f"search-result/{name} was made by an earlier version, which did not keep where "
                "its response stands: search again with force=true"
            )
    return [there[name] for name in names]


def compare_searches(chosen: Chosen, config: CompareConfig, registry: Registry) -> list[Result]:
    """What each search found, put where it stood, by each model of `config.models`, or by all that
    the registry has searches and scores of; one that is no model by its name is that which was
    trained under it."""
    quiet_libraries()
    made = registry.manifests("search-result", needs=SEARCH)
    made += registry.manifests("score-table", needs={"model": str})
    known = dict.fromkeys(manifest.summary["model"] for _, manifest in made)
    asked = answering_to(config.models, known) or list(known)
    trained = {manifest.name: folder for folder, manifest in registry.latest("reward-model")}
    rows = []
    with steps("searches by other models", len(asked), bar=config.progress) as step:
        for name in asked:
            step(name)
            try:
                spec = registered_spec(name, trained)
                model = open_reward(spec, cache=config.paths.cache)
            except UserError as error:
                if config.models:
                    raise
                log.warning("%s is left out: %s", name, error)
                continue
            for folder, manifest in chosen:
                rows += _scored(model, folder, manifest)
    return [transfer(pd.DataFrame(rows))]


def registered_spec(name: str, trained: Mapping[str, Path]) -> ModelSpec:
    """The model of a name as it is typed, or else of one that was trained under it.

    Raises:
        ConfigError: it is neither.
    """
    try:
        return spec_of(name)
    except ConfigError:
        if name not in trained:
            raise
        return spec_of(str(trained[name]), name=name)


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
            found, *others = scorer.rewards(some)
            read = np.array(others)[np.isfinite(others)]
            z = sign * (found - read.mean()) / read.std(ddof=1)
            standings.append((found, z, float((sign * (found - read) > 0).mean())))
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
    shown = table[~held | (table["part"] == HELD_OUT)]
    others = shown[~shown["own"]]
    carried, n = int((others["above"] >= BEYOND).sum()), len(others)
    controls = int(table["n"].max())
    return Result(
        "transfer",
        table,
        method="search",
        headline=f"What {shown['search'].nunique()} searches found is beyond 95% of {controls} "
        f"ordinary answers in {carried} of {n} cases under other models.",
        plot=Heatmap(
            data=shown,
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
