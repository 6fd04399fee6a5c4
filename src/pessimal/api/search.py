"""`pessimal.search`, the best and the worst answers, and what others make of them;
`pessimal.ceiling`, how far any can go."""

import json
import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from pessimal.api.compare import publish_comparison
from pessimal.api.load import device_of, open_policy, to_reward
from pessimal.api.store import Artifact, Store, publish, registered_spec, reward_inputs
from pessimal.catalogue import answers, named_prompts
from pessimal.conversation import MARK, Context, Conversation, Turn
from pessimal.errors import InputError, UserError
from pessimal.plots import Heatmap
from pessimal.progress import Counter, counted, quiet_libraries, steps
from pessimal.rewards.base import Reward, require_network
from pessimal.rewards.ceiling import TEXTS, Bounds, unbounded, weighted_sum
from pessimal.rewards.named import match_models
from pessimal.rewards.obtain import open_reward
from pessimal.rewards.spec import Mode
from pessimal.scoring.contexts import find_contexts, halves
from pessimal.scoring.identify import identify
from pessimal.scoring.scorer import ceiling as of_networks
from pessimal.scoring.texts import text_scorer
from pessimal.searching.context import SearchContext
from pessimal.searching.elsewhere import HELD_OUT
from pessimal.searching.results import SearchResult
from pessimal.searching.run import SearchProvenance, run
from pessimal.searching.run import identify as identify_search
from pessimal.searching.run import search as search_one
from pessimal.searching.spec import Goal, Method
from pessimal.tables import read_score_table
from pessimal.tables.result import Estimate, Result, Results
from pessimal.tracking.mirror import Mirror
from pessimal.tracking.registry import Manifest, Registry

log = logging.getLogger(__name__)

SEARCH_RESULT = "search-result"
_SAME = ("model", "goal", "length", "mode", "weights_digest", "allowed_digest", "objective")
"""The fields that two searches share, besides prompts, where one begins from the other's result."""


def search(
    model: Reward | str | Path | Any,
    prompts: str | Sequence[str] | Mapping[str, str] = "greatest",
    *,
    length: int = 2,
    goal: str = "optimal",
    contexts: str | Path | None = None,
    held_out: str | Sequence[str] | Mapping[str, str] = (),
    policy: Reward | str | Path | None = None,
    **options,
) -> SearchResult:
    """The best or the worst response of a length that a budget of evaluations finds, certified.

    Args:
        model: of `load` or `reward`, or what these take, but a network, which needs its tokenizer.
        prompts: as for `scan`; of several, the mean reward is searched.
        length: tokens of the response, 1 to 16.
        goal: `optimal` or `pessimal`.
        contexts: JSONL file of real answers, in whose `slot` (after, before; None where they have
            the mark {slot}) the response stands; half of them are held out.
        held_out: prompts that what is found is scored on besides.
        policy: a language model, of `fluency=β`.
        options: as of `pessimal search`, such as evaluations=50_000; and mode="text", seed=1,
            batch_size=64.

    Returns:
        A SearchResult: `.text`, `.reward`, `.verdict`, `.results`.
    """
    network = require_network(to_reward(model), "search", "gradient")
    searched: Mapping[str, Any] = {}
    unseen: Mapping[str, Any] = {}
    if contexts is not None:
        searched, unseen = halves(find_contexts(contexts, options.get("slot")))
    else:
        searched, unseen = named_prompts(prompts), named_prompts(held_out) if held_out else {}
    about: dict[str, Any] = {"length": length, "goal": goal, "held_out": unseen}
    about |= {"policy": policy and open_policy(policy), "device": device_of(network)}
    return search_one(network, searched, **about | options)


def ceiling(model: Reward | str | Path | Any, **options) -> Bounds:
    """The lowest and the highest reward that any response of any length to any prompt can have, by
    the head alone.

    Args:
        model: of `load` or `reward`, or what these take.
        options: of `load` or `reward`.

    Returns:
        Bounds `low` and `high`, infinite where none is known, and `how`: what they rest on, or why
        there are none. `.share(reward)` is how far a reward is from the middle of both, −1 to 1.
    """
    model = to_reward(model, **options)
    if network := model.as_network:
        return of_networks(network, device=device_of(model))
    if model.as_texts:
        return unbounded(TEXTS)
    return weighted_sum((weight, ceiling(term)) for weight, term in model.terms)


def scanned_rewards(
    registry: Registry, context: SearchContext, key: str
) -> tuple[np.ndarray, str] | None:
    """Rewards float64 (V,) of the finished scan of the vocabulary by token ids on this prompt, by
    exactly this model; and its reference."""
    if isinstance(context.prompts[key], Context):
        return None
    request: dict[str, Any] = {"prompt": key, "prompt_text": context.prompts[key], "mode": Mode.ids}
    # `certain` is part of a low-precision table's provenance: the scan's default, and without
    # certified tails.
    for certain in (100, 0):
        request |= {"certain": certain, "candidates": context.vocabulary}
        provenance = identify(context.model, **request)
        if published := registry.find("score-table", provenance.key()):
            folder, manifest = published
            rows = read_score_table(folder).rows
            column = np.full(len(context.mask), np.nan)
            column[rows["candidate_id"]] = rows["reward"]
            return column, manifest.reference
    return None


@dataclass(frozen=True)
class Search:
    """A search that is done."""

    result: SearchResult | None
    """None where it was published before."""
    best: float | None
    """The best reward with the goal's sign: more is better."""
    folder: Path
    """Where it is published."""
    origins: Mapping[tuple[int, ...], str] = field(default_factory=dict)
    """References of earlier results that it began from, by response."""


def run_search(
    context: SearchContext, *, store: Store, cache: str = "runs/cache", progress: bool = True
) -> Search:
    """The search of a context, published as a `search-result` artifact: it begins from the best
    response that the store holds, and is set beside those of other lengths there.

    A killed search goes on where it was; one that is finished already is given again.

    Args:
        context: the reward and what is asked of it.
        store: where the result is published.
        cache: folder of what was evaluated.
        progress: draw a bar where there is a terminal.
    """
    provenance = identify_search(context)
    if published := store.find(SEARCH_RESULT, provenance.key()):
        folder, manifest = published
        log.info("this search is finished already: %s (force=true searches again)", folder)
        return Search(None, manifest.summary.get("best_value"), folder)
    work = Path(cache) / "searches" / provenance.key()
    if store.force:
        shutil.rmtree(work, ignore_errors=True)
    inputs, source = reward_inputs(store.registry, context.model)
    with store.track(name=f"search {provenance.name}", inputs=inputs) as mirror:
        total = context.spec.evaluations
        with counted(provenance.name, unit="evaluations", total=total, bar=progress) as counter:
            live = _Live(counter, mirror, sign=context.spec.goal.sign)
            earlier = {}
            if context.spec.from_registry and context.spec.method is Method.all:
                earlier = best_known(store.registry, provenance)
            result = run(
                context,
                folder=work,
                warm_starts=earlier,
                on_cost=live.cost,
                on_begin=live.begin,
                on_best=live.best,
                on_count=counter.advance,
            )
        best = context.spec.goal.sign * result.reward
        about = {name: getattr(provenance, name) for name in _SAME}
        about |= {"prompts": list(provenance.prompts), "best_value": best, **source}
        summary = {key: value for part in result.results for key, value in part.summary.items()}
        inputs = [*inputs, *result.inputs]
        identity = SEARCH_RESULT, provenance.name, provenance.key()
        artifact = Artifact(*identity, inputs, summary | about)
        folder, _ = publish(store.registry, mirror, artifact, result.results, progress=progress)
        live.best(result.evaluations, best, final=True)
        mirror.summary({name: about[name] for name in ("best_value", "mode", "model", "prompts")})
    shutil.rmtree(work, ignore_errors=True)
    return Search(result, best, folder, earlier)


def best_known(registry: Registry, provenance: SearchProvenance) -> dict[tuple[int, ...], str]:
    """The best response that the registry holds for the same model, prompts, goal, length, mode and
    allowed tokens, and its reference: a repeat begins from it, and so never publishes a worse
    one."""

    def fits(summary: Mapping) -> bool:
        same = all(summary.get(name, "") == getattr(provenance, name) for name in _SAME)
        return same and set(map(str, summary["prompts"])) == set(provenance.prompts)

    needs = {"length": int, "best_value": float, "prompts": list}
    published = registry.manifests(SEARCH_RESULT, needs=needs)
    alike = [pair for pair in published if fits(pair[1].summary)]
    if not alike:
        return {}
    folder, manifest = max(alike, key=lambda pair: pair[1].summary["best_value"])
    tables = [folder / "tables" / f"{name}.parquet" for name in ("result", "sequences")]
    best = pd.read_parquet(next(table for table in tables if table.exists())).iloc[0]
    text = "%s holds %r, reward %.4f: a start too"
    log.info(text, manifest.reference, best["text"], best["reward"])
    return {tuple(json.loads(best["token_ids"])): manifest.reference}


class _Live:
    """The bar, and W&B's best so far against evaluations: at improvements, once a second at
    most."""

    def __init__(self, counter: Counter, mirror: Mirror, *, sign: int):
        self.counter, self.mirror, self.sign = counter, mirror, sign
        self.sent, self.now, self.value = 0.0, "", ""

    def cost(self, text: str, total: int) -> None:
        log.info("%s", text)
        self.counter.begin(self.counter.name, total=total)

    def begin(self, name: str) -> None:
        self.now = name
        self.counter.begin(self.now + self.value)

    def best(self, evaluations: int, value: float, *, final: bool = False) -> None:
        """The `final` number of evaluations is sent whenever it comes, as the manifest has it."""
        self.value = f", best {self.sign * value:.4g}"
        if final or time.monotonic() - self.sent >= 1:
            best = {"search/evaluations": evaluations, "search/best": self.sign * value}
            self.mirror.metrics(best)
            self.sent = time.monotonic()
        self.begin(self.now)


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
            raise InputError(f"{manifest.reference} is of an earlier version: type force=true")
    scored = registry.manifests("search-result", needs=SEARCH)
    scored += registry.manifests("score-table", needs={"model": str})
    scored_models = dict.fromkeys(manifest.summary["model"] for _, manifest in scored)
    scorers = match_models(models, scored_models) or list(scored_models)
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
        about = {"search": manifest.name, "model": model.name, "part": part}
        about |= {"own": model.name == summary["model"], "contexts": len(standings)}
        rows.append(about | {"n": len(control), "reward": reward, "z": z, "above": above})
    return rows


def transfer(table: pd.DataFrame) -> Result:
    """The matrix, of held-out contexts where there are some."""
    is_held_out = table["part"] == HELD_OUT
    has_some = is_held_out.groupby([table["search"], table["model"]]).transform("any")
    rows = table[is_held_out | ~has_some]
    transferred = rows[~rows["own"]]
    carried, n = int((transferred["above"] >= BEYOND).sum()), len(transferred)
    controls, label = int(table["n"].max()), "share of cases beyond 95% of ordinary answers"
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
        estimate=Estimate(label, carried / n if n else np.nan, n, "cases"),
        weight=2.0,
    )


def _contexts(folder: Path) -> Path:
    return folder / "tables" / "contexts.parquet"


def _put(turns: list[dict[str, str]], text: str) -> Conversation:
    return tuple(Turn(turn["role"], turn["content"].replace(MARK, text)) for turn in turns)
