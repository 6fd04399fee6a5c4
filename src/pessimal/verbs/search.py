"""`pessimal search`: the best or the worst response of a given length, what is certain of it, and
what it cost."""

import json
import logging
import shutil
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import cast

import pandas as pd
from rich.table import Table
from rich.text import Text

from pessimal.api.search import scanned_rewards
from pessimal.api.store import Artifact, publish, reward_inputs
from pessimal.config.schema import SearchConfig
from pessimal.conversation import Asked
from pessimal.explaining.contexts import halves, read_contexts, sample
from pessimal.progress import Counter, counted, quiet_libraries
from pessimal.rewards.base import Reward, require_network
from pessimal.rewards.log_probability import LogProbability
from pessimal.rewards.obtain import open_reward
from pessimal.scoring.trainer import begin_process, make_trainer
from pessimal.searching.checks import FAILS, HOLDS, NOT_TRIED, TIE
from pessimal.searching.context import SearchContext, TrialContext
from pessimal.searching.provenance import SearchProvenance, identify
from pessimal.searching.results import SearchResult
from pessimal.searching.run import run as search
from pessimal.tables.result import Result
from pessimal.tracking.mirror import Mirror
from pessimal.tracking.registry import Manifest, Registry
from pessimal.verbs.common import registry_of, tracked
from pessimal.verbs.publish import print_path, show

log = logging.getLogger(__name__)

SEARCH_RESULT = "search-result"
_SAME = ("model", "goal", "mode", "weights_digest", "allowed_digest", "objective")
"""What two searches must share, besides prompts, to be compared."""
MARKS = {HOLDS: "[green]✓[/]", TIE: "[yellow]≈[/]", FAILS: "[red]✗[/]", NOT_TRIED: "[dim]–[/]"}


def run(config: SearchConfig) -> float | None:
    """Search, publish a `search-result` artifact and print its folder; a result that is finished
    already is named.

    Returns the best reward with the goal's sign, more is better, for whoever sweeps the options. A
    job of a study (`-m hparams_search=gcg`) does what the sweeper asks of it instead.
    """
    # 1. The model and what is asked of it.
    quiet_libraries()
    first = begin_process(config.trainer)
    if config.tuning.study is not None:
        from pessimal.verbs.search_tuning import run_study_job  # Optuna comes with it

        return run_study_job(config, prepare)
    registry = registry_of(config)
    context = open_context(config, config.prompt_keys)
    provenance = identify(context)
    done = "this search is finished already"
    if (finished := _finished(config, registry, provenance, done, speak=first)) is not None:
        return finished
    work = Path(config.paths.cache) / "searches" / provenance.key()
    if config.force and first:
        shutil.rmtree(work, ignore_errors=True)
    inputs, made_with = reward_inputs(registry, context.model)
    with tracked(config, name=f"search {provenance.name}", inputs=inputs, first=first) as mirror:
        # 2. The search, stage by stage.
        total = config.search.evaluations
        bar = config.progress
        with counted(provenance.name, unit="evaluations", total=total, bar=bar) as counter:
            live = _Live(counter, mirror, sign=config.search.goal.sign)
            known = best_known(registry, provenance) if config.search.from_registry else {}
            found = search(
                context,
                folder=work,
                warm_starts=known,
                on_cost=live.cost,
                on_begin=live.begin,
                on_best=live.best,
                on_count=counter.advance,
            )
        # 3. What goes beside it: other lengths. Published, and said.
        found.tables["growth"] = growth(registry, provenance, found)
        best = config.search.goal.sign * found.reward
        what = {name: getattr(provenance, name) for name in (*_SAME, "length")}
        what |= {"prompts": list(provenance.prompts), "best_value": best, **made_with}
        results = found.results
        summary = {
            name: value for result in results for name, value in result.summary.items()
        } | what
        artifact = Artifact(
            SEARCH_RESULT,
            provenance.name,
            key=provenance.key(),
            inputs=[*inputs, *found.inputs],
            summary=summary,
        )
        folder, _ = publish(registry, mirror, artifact, results, progress=config.progress)
        live.end(found.evaluations, best)
        mirror.summary({name: what[name] for name in ("best_value", "mode", "model", "prompts")})
    shutil.rmtree(work, ignore_errors=True)
    print_checklist(results, found, known)
    print_path(folder)
    return best


def open_context(
    config: SearchConfig, prompts: list[str], model: Reward | None = None
) -> SearchContext:
    """The model of a configuration, opened where it is not yet, to be searched on these prompts;
    single tokens come from finished scans."""
    open_one = partial(open_reward, cache=config.paths.cache)
    model = model or open_one(config.model)
    policy = config.policy_spec()
    asked, held_out, named = _asked(config, prompts)
    context = SearchContext(
        require_network(model, "search", "gradient"),
        asked,
        config.search,
        mode=config.mode,
        seed=config.seed,
        device=make_trainer(config.trainer, root=config.paths.cache).strategy.root_device,
        batch_size=config.batch_size,
        held_out=held_out,
        policy=cast(LogProbability, open_one(policy)) if policy else None,
        answers=config.answers,
        named=named,
    )
    context.scanned = partial(scanned_rewards, registry_of(config), context)
    return context


def _asked(
    config: SearchConfig, prompts: list[str]
) -> tuple[dict[str, Asked], dict[str, Asked], str | None]:
    """What is searched and what is held out, by key, and what the former are called together."""
    if config.contexts is None:
        keys = (prompts, config.held_out)
        asked, held_out = ({key: config.prompts[key] for key in some} for some in keys)
        return asked, held_out, None
    slot = config.search.slot and config.search.slot.value
    found = sample(read_contexts(config.contexts, slot), config.n_contexts, seed=config.seed)
    one, other = halves(found)
    asked, held_out = {**one}, {**other}
    return asked, held_out, f"{Path(config.contexts).stem}-{len(asked)}"


# --- What the registry holds.


def _finished(
    config: SearchConfig,
    registry: Registry,
    provenance: SearchProvenance,
    why: str,
    *,
    speak: bool = True,
) -> float | None:
    """The best value of this very search where it is published, whose folder is then printed; None
    to go on."""
    published = None if config.force else registry.find(SEARCH_RESULT, provenance.key())
    if published is None:
        return None
    folder, manifest = published
    if speak:
        log.info("%s: %s (force=true searches again)", why, folder)
        print_path(folder)
    return manifest.summary.get("best_value")


def _alike(registry: Registry, provenance: SearchProvenance) -> list[tuple[Path, Manifest]]:
    """Results of the same model, prompts, goal, mode and allowed tokens, of any length, oldest
    first."""

    def fits(summary: Mapping) -> bool:
        same = all(summary.get(name, "") == getattr(provenance, name) for name in _SAME)
        return same and set(map(str, summary["prompts"])) == set(provenance.prompts)

    needs = {"length": int, "best_value": float, "best_reward": float, "verdict": str}
    needs["prompts"] = list
    there = registry.manifests(SEARCH_RESULT, needs=needs)
    return [found for found in there if fits(found[1].summary)]


def best_known(registry: Registry, provenance: SearchProvenance) -> dict[tuple[int, ...], str]:
    """The best response of this length that the registry holds, and its reference: a repeat begins
    from it, and so never publishes a worse one."""
    alike = _alike(registry, provenance)
    alike = [one for one in alike if one[1].summary["length"] == provenance.length]
    if not alike:
        return {}
    folder, held = max(alike, key=lambda one: one[1].summary["best_value"])
    best = pd.read_parquet(folder / "tables" / "sequences.parquet").iloc[0]
    log.info("%s holds %r, reward %.4f: a start too", held.reference, best["text"], best["reward"])
    return {tuple(json.loads(best["token_ids"])): held.reference}


def growth(registry: Registry, provenance: SearchProvenance, found: SearchResult) -> pd.DataFrame:
    """One row a length and way: length, reward, what (scan, beam, search), reference, verdict; rows
    of other lengths are the newest searches of the same model, prompts, goal, mode and allowed
    tokens."""
    newest = {held.summary["length"]: held for _, held in _alike(registry, provenance)}
    others = [
        (length, held.summary["best_reward"], "search", held.reference, held.summary["verdict"])
        for length, held in newest.items()
        if length != provenance.length
    ]
    table = found.tables["growth"]
    rows = pd.concat([table, pd.DataFrame(others, columns=table.columns)] if others else [table])
    return rows.sort_values(["length", "what"], ignore_index=True)


# --- While it runs, and at its end.


class _Live:
    """The bar, and W&B's best so far against evaluations: at improvements, once a second at
    most."""

    def __init__(self, counter: Counter, mirror: Mirror, *, sign: int):
        self.counter, self.mirror, self.sign = counter, mirror, sign
        self.sent, self.now, self.value = 0.0, "", ""
        self.waiting: dict[str, float] | None = None

    def cost(self, said: str, total: int) -> None:
        log.info("%s", said)
        self.counter.begin(self.counter.name, total=total)

    def begin(self, name: str) -> None:
        self.now = name
        self._label()

    def best(self, evaluations: int, value: float) -> None:
        self.value = f", best {self.sign * value:.4g}"
        self.waiting = {"search/evaluations": evaluations, "search/best": self.sign * value}
        self._send(1.0)
        self._label()

    def end(self, evaluations: int, value: float) -> None:
        """The same number of evaluations as the manifest has."""
        self.best(evaluations, value)
        self._send(0)

    def _label(self) -> None:
        self.counter.begin(self.now + self.value)

    def _send(self, least: float) -> None:
        if self.waiting is not None and time.monotonic() - self.sent >= least:
            self.mirror.metrics(self.waiting)
            self.sent, self.waiting = time.monotonic(), None


def print_checklist(
    results: list[Result], found: SearchResult, known: Mapping[tuple[int, ...], str]
) -> None:
    """The response, who found it, and what is certain of it."""
    title = f"{results[0].headline} {found.evaluations:,} evaluations. By {found.found_by}."
    table = Table(
        title=Text(title), title_justify="left", box=None, pad_edge=False, show_header=False
    )
    checks = found.tables["ladder"]
    for check in checks.itertuples():
        table.add_row(MARKS[check.verdict], check.check, Text(check.measured, style="dim"))
    show(table)
    if not found.exact:
        show(Text(checks["meaning"][1], style="dim"))
    for result in results:
        if result.name in ("contexts", "rarity", "front") and result.headline:
            show(Text(result.headline))
    for response, reference in known.items():
        same = response == found.response
        show(
            Text(
                f"No better response was found than {reference} held."
                if same
                else f"Better than {reference} held."
            )
        )


# --- What a study of the options tries.


def prepare(config: SearchConfig, prompts: list[str]) -> TrialContext:
    """The model of a configuration, ready to be searched on these prompts."""
    return TrialContext(open_context(config, prompts), prompts)
