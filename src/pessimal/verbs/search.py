"""`pessimal search`: the best or the worst response of a given length, what is certain of it, and
what it cost."""

import json
import logging
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from rich.table import Table
from rich.text import Text

from pessimal.config.schema import SearchConfig
from pessimal.errors import ConfigError, WorkError
from pessimal.rewards.load import open_model
from pessimal.rewards.spec import Mode
from pessimal.scoring import scan
from pessimal.searching.allowed import digest
from pessimal.searching.checks import FAILS, HOLDS, NOT_TRIED, TIE
from pessimal.searching.context import SearchContext, TrialContext
from pessimal.searching.exhaustive import ExhaustivePairs, exhaustive_pairs
from pessimal.searching.objective import Point
from pessimal.searching.procedure import Final, Stage
from pessimal.searching.results import Found, pair_tables, responses_of
from pessimal.searching.run import run as search
from pessimal.searching.spec import Method
from pessimal.tables import read_score_table
from pessimal.tables.result import Result
from pessimal.tables.score_table import ModelProvenance
from pessimal.tracking.mirror import Mirror
from pessimal.tracking.registry import Manifest, Registry
from pessimal.verbs.common import fetch, model_inputs, quiet_libraries, registry_of, tracked
from pessimal.verbs.progress import Counter, counted
from pessimal.verbs.publish import Artifact, print_path, publish, show
from pessimal.verbs.search_tuning import run_study_job
from pessimal.verbs.trainer import begin_process, is_first_process, make_trainer

log = logging.getLogger(__name__)

SEARCH_RESULT = "search-result"
_SAME = ("model", "goal", "mode", "weights_digest", "allowed_digest")
"""What two searches must share, besides prompts, to be compared."""
# So many of the best pairs are scored again by the model's own forward, one by one; the best of
# them is the result.
_RESCORED = 16
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
        return run_study_job(config, prepare)
    registry = registry_of(config)
    context = open_context(config, config.prompt_keys)
    provenance = identify(config, context)
    done = "this search is finished already"
    if (finished := _finished(config, registry, provenance, done, speak=first)) is not None:
        return finished
    work = Path(config.paths.cache) / "searches" / provenance.key()
    if config.force and first:
        shutil.rmtree(work, ignore_errors=True)
    inputs, made_with = model_inputs(registry, context.model)
    with tracked(config, name=f"search {provenance.name}", inputs=inputs, first=first) as mirror:
        # 2. The search: every pair, by all processes together, or stage by stage.
        bar = config.progress and config.search.method is not Method.exhaustive  # which has its own
        total = config.search.evaluations
        with counted(provenance.name, unit="evaluations", total=total, bar=bar) as counter:
            live = _Live(counter, mirror, sign=config.search.goal.sign)
            context.advance = counter.advance
            pairs = (
                every_pair(config, context) if config.search.method is Method.exhaustive else None
            )
            if not is_first_process():
                return None
            known = best_known(registry, provenance) if config.search.from_registry else {}
            exact = best_pairs(config, context, pairs) if pairs else ()
            told = {"on_cost": live.cost, "on_stage": live.stage, "on_best": live.best}
            found = search(context, folder=work, known=known, exact=exact, **told)
        # 3. What goes beside it: where cheaper ways stand among all pairs, and other lengths.
        if pairs:
            found.tables.update(pair_tables(found, pairs))
        found.tables["growth"] = growth(registry, provenance, found)
        # Commands that share an exhaustive search end together; the first to be here publishes.
        finished = _finished(
            config, registry, provenance, "another command has published this search"
        )
        if finished is not None:
            return finished
        # 4. Published, and said.
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
        folder, _ = publish(config, registry, mirror, artifact, results)
        mirror.summary({name: what[name] for name in ("best_value", "mode", "model", "prompts")})
    shutil.rmtree(work, ignore_errors=True)
    print_checklist(results, found, known)
    print_path(folder)
    return best


def open_context(config: SearchConfig, prompts: list[str]) -> SearchContext:
    """The model of a configuration, opened, to be searched on these prompts; single tokens come
    from finished scans."""
    folder = fetch(config.model, cache=config.paths.cache, progress=config.progress)
    context = SearchContext(
        open_model(config.model, folder),
        {key: config.prompts[key] for key in prompts},
        config.search,
        mode=config.mode,
        seed=config.seed,
        device=make_trainer(config.trainer, root=config.paths.cache).strategy.root_device,
        batch_size=config.batch_size,
    )
    context.scanned = partial(scanned, registry_of(config), context)
    return context


def scanned(registry: Registry, context: SearchContext, key: str) -> tuple[np.ndarray, str] | None:
    """Rewards float64 (V,) of the finished scan of the vocabulary by token ids on this prompt, by
    exactly this model; and its reference."""
    # `certain` is part of a low-precision table's provenance: the scan's default, and without
    # certified tails.
    for certain in (100, 0):
        provenance = scan.identify(
            context.model,
            prompt=key,
            prompt_text=context.prompts[key],
            candidates=context.vocabulary,
            mode=Mode.ids,
            certain=certain,
        )
        if found := registry.find("score-table", provenance.key()):
            folder, manifest = found
            rows = read_score_table(folder).rows
            column = np.full(len(context.mask), np.nan)
            column[rows["candidate_id"]] = rows["reward"]
            return column, manifest.reference
    return None


# --- What a result depends on, and what the registry holds.


@dataclass(frozen=True, kw_only=True)
class SearchProvenance(ModelProvenance):
    """Two results with one key are the same search, but for the last bits that another device or
    batch size may change, and for what the registry held when it began."""

    prompts: dict[str, str]  # the user turns whose mean reward is searched, verbatim, by key
    goal: str
    length: int
    mode: str
    method: str
    allowed: int  # how many tokens a response may be made of, and which
    allowed_digest: str
    options: dict = field(default_factory=dict)  # the other options of the search
    seed: int = 0

    @property
    def name(self) -> str:
        """Name of the artifact: what distinguishes results in a list; the key covers everything."""
        parts = [self.model, "+".join(self.prompts), f"{self.goal}-{self.length}"]
        more = (self.mode, self.method, self.dtype)
        return "--".join(
            [*parts, *(part for part in more if part not in ("ids", "auto", "float32"))]
        )


def identify(config: SearchConfig, context: SearchContext) -> SearchProvenance:
    """What the result will depend on, known before the network is loaded."""
    spec, own = config.search, ("length", "goal", "method", "allowed", "allowed_path")
    return SearchProvenance(
        model=context.model.name,
        prompts=context.prompts,
        goal=spec.goal.value,
        length=spec.length,
        mode=config.mode.value,
        method=spec.method.value,
        allowed=int(context.mask.sum()),
        allowed_digest=digest(context.mask),
        options={name: value for name, value in vars(spec).items() if name not in own},
        seed=config.seed,
        **scan.of_model(context.model),
    )


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
    return manifest.summary["best_value"]


def _alike(registry: Registry, provenance: SearchProvenance) -> list[tuple[Path, Manifest]]:
    """Results of the same model, prompts, goal, mode and allowed tokens, of any length, oldest
    first."""

    def fits(summary: Mapping) -> bool:
        same = all(summary.get(name) == getattr(provenance, name) for name in _SAME)
        return same and set(summary.get("prompts", ())) == set(provenance.prompts)

    return [found for found in registry.manifests(SEARCH_RESULT) if fits(found[1].summary)]


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


def growth(registry: Registry, provenance: SearchProvenance, found: Found) -> pd.DataFrame:
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


# --- Every response of two tokens.


def every_pair(config: SearchConfig, context: SearchContext) -> ExhaustivePairs:
    """Score all pairs, all processes together; what is finished is kept for the other goal and
    other lists of tokens."""
    (prompt,) = config.prompt_keys
    if [part.weight for part in context.model.parts] != [1.0]:
        raise ConfigError(
            f"search.method=exhaustive goes through one network in one order; "
            f"{context.model.name!r} is a sum or a negative of "
            "such. Type search.method=gcg"
        )
    model, dtype, network = context.model, context.dtype, context.network()
    output = "" if model.spec.output is None else f"-{model.spec.output}"
    folder = f"{model.weights_digest[:16]}-{model.config_digest[:8]}-{dtype.value}{output}"
    pairs = exhaustive_pairs(
        network,
        context.frames[prompt][0],
        allowed=np.flatnonzero(context.mask),
        dtype=dtype,
        trainer=make_trainer(config.trainer, root=config.paths.cache),
        folder=Path(config.paths.cache) / "pairs" / folder,
        batch_size=config.batch_size,
        keep=config.search.keep,
        label=f"{model.name} · {prompt}",
        progress=config.progress,
    )
    network.to(context.device)  # the trainer took it back to the CPU
    return pairs


def best_pairs(config: SearchConfig, context: SearchContext, pairs: ExhaustivePairs) -> list[Final]:
    """The best pairs by the goal that count, of which the result is taken."""
    goal = config.search.goal
    ends = pairs.top if goal.sign > 0 else pairs.bottom
    kept = ends[context.retokenizes(responses_of(ends)).numpy()] if context.retokenizes else ends
    if kept.empty:
        raise WorkError(
            f"none of the {len(ends):,} {goal.value} pairs is given by a text. Keep more of them: "
            f"search.keep={10 * len(ends)}; or type mode=ids"
        )
    return [
        Final(
            Point(pairs.pairs, goal.sign * row.reward, (row.first, row.second)),
            "every pair",
            "exhaustive",
        )
        for row in kept.head(_RESCORED).itertuples()
    ]


# --- While it runs, and at its end.


class _Live:
    """The bar, and W&B's best so far against evaluations: at improvements, once a second at
    most."""

    def __init__(self, counter: Counter, mirror: Mirror, *, sign: int):
        self.counter, self.mirror, self.sign = counter, mirror, sign
        self.sent, self.waiting = 0.0, None

    def cost(self, said: str, total: int) -> None:
        log.info("%s", said)
        self.counter.begin("start", total=total)

    def best(self, evaluations: int, value: float) -> None:
        self.waiting = {"search/evaluations": evaluations, "search/best": self.sign * value}
        self._send(1.0)

    def stage(self, stage: Stage) -> None:
        self._send(0)
        value = f" {self.sign * stage.curve[-1].value:.3f}" if stage.curve else ""
        self.counter.begin(stage.name + value)
        log.debug(
            "%s:%s after %d evaluations, %.1f s",
            stage.name,
            value,
            stage.evaluations,
            stage.seconds,
        )

    def _send(self, least: float) -> None:
        if self.waiting is not None and time.monotonic() - self.sent >= least:
            self.mirror.metrics(self.waiting)
            self.sent, self.waiting = time.monotonic(), None


def print_checklist(
    results: list[Result], found: Found, known: Mapping[tuple[int, ...], str]
) -> None:
    """The response, who found it, and what is certain of it."""
    title = f"{results[0].headline} Found by: {found.found_by}."
    table = Table(
        title=Text(title), title_justify="left", box=None, pad_edge=False, show_header=False
    )
    checks = found.tables["ladder"]
    for check in checks.itertuples():
        table.add_row(MARKS[check.verdict], check.check, Text(check.measured, style="dim"))
    show(table)
    if not found.exact:
        show(Text(checks["meaning"][1], style="dim"))
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
