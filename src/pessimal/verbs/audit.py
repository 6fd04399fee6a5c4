"""`pessimal audit`: one command before a training; a verdict per check, and an exit code."""

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import torch
from rich.table import Table
from rich.text import Text
from torch import Tensor

from pessimal.analyses import all_analyses, compare
from pessimal.analyses.nulls import random_head_share
from pessimal.analyses.preferences import preference_results
from pessimal.auditing import changes, exports
from pessimal.auditing.evidence import Evidence
from pessimal.auditing.figures import draw_limits
from pessimal.auditing.one_word import one_word
from pessimal.auditing.verdicts import (
    AUDIT,
    FAIL,
    INCOMPLETE,
    NOT_ASKED,
    NOT_MEASURED,
    PASS,
    REVIEW,
    THRESHOLDS,
    Verdict,
    answers,
    audit_result,
    ceiling,
    counts_of,
    facts,
    overall,
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
from pessimal.conversation import Turn, turns_of
from pessimal.errors import IncompleteError, InputError, VerdictError
from pessimal.explaining.comparison import EMBEDDED as EMBEDDED_ANSWERS
from pessimal.explaining.comparison import Comparison, choose
from pessimal.explaining.pairs import labelled_pairs, pairs_digest, score_pairs, wrong_pairs
from pessimal.progress import quiet_libraries, steps
from pessimal.rewards.base import NetworkReward, Reward
from pessimal.rewards.callable import CallableReward
from pessimal.rewards.digests import weights_digest
from pessimal.rewards.frame import slot_frame
from pessimal.rewards.last_states import StatesNetwork, load_base
from pessimal.rewards.named import spec_of
from pessimal.rewards.obtain import fetch_base, fetch_files, open_reward
from pessimal.rewards.spec import Kind, Mode
from pessimal.scoring.candidates import rows_of
from pessimal.scoring.identify import identify_all
from pessimal.scoring.states import added_states
from pessimal.scoring.texts import text_scorer
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
from pessimal.verbs import check_loop, check_served
from pessimal.verbs.common import model_inputs, registry_of, tracked
from pessimal.verbs.compare import TABLE
from pessimal.verbs.publish import Artifact, print_path, publish, show
from pessimal.verbs.report import write_page
from pessimal.verbs.runs_frame import find_artifact
from pessimal.verbs.scan import contexts_of, scanned
from pessimal.verbs.search import open_context
from pessimal.version import __version__

log = logging.getLogger(__name__)

ANALYSES = ("provenance", "extremes", "frequency", "identity_terms")
SAMPLES, SCANS = (64, 16, 8), (None, 20_000, 5_000, 2_000)
ADDITIONS = (*SCANS, 500)
"""Tokens that are checked, scanned and added to real answers, the most first (None: all)."""
PAIRS, MIN_EVALUATIONS = (None, 500, 200, 100, 50), 2_000
"""Labelled pairs that are asked, the most first (None: all); evaluations of the smallest search."""
TOP_TOKENS = 50
"""Best tokens of each prompt's scan that are added to real answers as well."""
CHECK_PASSES = 12
"""Times that a check runs whole inputs, in batches or one by one; loading is reckoned with it."""
TIMED_TOKENS, FAST_SECONDS, SLOW_SECONDS = 16, 0.02, 1.0
"""Tokens that are timed at once; seconds of one below which many are timed, and above which it is
timed alone."""
PUSH_RESULTS = ("push", "growth")
"""Of the search's results those that say how far it came, and not how it went about it."""
POLICY_TEXTS = 50_000
"""Texts that a policy's vocabulary is reckoned as."""
ANALYSIS_SECONDS, PAGE_SECONDS = 4e-4, 8.0
"""Measured seconds that analyses take per scanned token and prompt; figures and the page."""
NEEDS = {
    "check": ("read",),
    "pairs": ("prefers",),
    "scan": ("one_word", "frequency", "identity"),
    "additions": ("additions",),
    "push": ("push",),
    "forecast": ("forecast",),
}
"""Checks and facts that a part is needed for, in the order in which parts are served from the
budget: the core checks first."""
SHARES = (0.1, 0.4, 0.6, 0.8, 0.9, 1.0)
"""Share of the time left that each part may take."""
STYLES = {PASS: "green", FAIL: "bold red", REVIEW: "yellow", NOT_MEASURED: "dim"}
Options = TypeVar("Options")


def run(config: AuditConfig) -> None:
    """Do what fits into the budget, publish an `audit` artifact and its page, print the verdicts.

    An audit of the same reward that was asked the same is shown again (`force=true` does it anew);
    a server, and a function whose code does not say all that it depends on, is always asked anew.

    Raises:
        VerdictError: a check fails, or a number changed since the baseline by more than a seed
            changes it. The artifact is published all the same.
        IncompleteError: a core check could not be measured, and `strict` is true.
    """
    # 1. What is asked of what; and what was there before.
    quiet_libraries()
    begin_process(config.trainer)
    registry = registry_of(config)
    pairs = [] if config.tasks else labelled_pairs(config.pairs, seed=config.seed)
    baseline = None if config.baseline is None else Baseline.of(config.baseline, registry)
    reward = open_reward(config.model, cache=config.paths.cache)
    name, key = config.name or reward.name, _key(config, reward, pairs, baseline)
    known = registry.find(AUDIT, key) if _is_pinned(config, reward) and not config.force else None
    if known is not None:
        log.info("%s was audited already (force=true audits again)", reward.name)
        audit = json.loads((known[0] / exports.FILES[0]).read_text("utf-8"))
        return _end(audit, known[0], _page_of(registry, known[1].reference), strict=config.strict)
    group = config.tracking.group or f"audit {name} {key[:8]}"
    config = replace(config, tracking=replace(config.tracking, group=group))
    # 2. The Results of the other verbs.
    evidence = Evidence()
    if isinstance(reward, CallableReward) and config.tasks:
        _ask_grader(reward, config, evidence)
    else:
        _ask_reward(reward, pairs, config, registry, baseline, evidence)
    # 3. Verdicts, and what changed.
    about = (by_name := evidence.by_name, evidence.left_out)
    checks, numbers = verdicts(*about, reward=_typed(config)), facts(*about, reward=_typed(config))
    metrics = changes.metrics(by_name, evidence.tables)
    since = None if baseline is None else baseline.changes(metrics, evidence.tables, checks)
    changed = [] if since is None else since.loc[since["verdict"] == FAIL, "kind"].tolist()
    changed = [kind for kind in changed if kind != "check"]  # which fails itself
    verdict, deciding = overall(checks, reward.core_checks, changed)
    audit = exports.document(
        {"name": reward.name, "kind": reward.spec.kind.value, **reward.digests},
        evidence.scope,
        checks,
        numbers,
        metrics,
        verdict=verdict,
        deciding=deciding,
        core=reward.core_checks,
        inputs=[table.provenance.key() for table in evidence.tables],
        changes=since,
        baseline=None if baseline is None else baseline.reference,
    )
    # 4. Published, and printed.
    results = [audit_result(checks, numbers, verdict, deciding)]
    if since is not None and baseline is not None:
        results.append(changes.changes_result(since, baseline.reference))
    parts = draw_limits(evidence.results, checks)
    results += [_prefixed(result, reward.name) for result in parts]
    inputs, source = model_inputs(registry, reward)
    inputs = [*inputs, *evidence.inputs]
    with tracked(config, name=f"audit {name}", inputs=inputs) as mirror:
        texts = (exports.as_json(audit), exports.markdown(audit), exports.junit(audit))
        artifact = Artifact(
            AUDIT,
            name,
            key=key,
            inputs=inputs,
            summary={"model": reward.name, "verdict": verdict, **source} | counts_of(checks),
            labels={reward.name: reward.name},
            files=dict(zip(exports.FILES, texts, strict=True)),
            skipped=evidence.skipped,
        )
        folder, manifest = publish(config, registry, mirror, artifact, results)
        mirror.summary({"verdict": verdict} | counts_of(checks))
    page = None
    if config.page:
        options = _options(ReportConfig, "report", config, name=name, explorer=False)
        title = f"Audit of {reward.name}"
        page = write_page(replace(options, artifacts=[manifest.reference], title=title))
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(exports.markdown(audit))
    _end(audit, folder, page, strict=config.strict)


@dataclass(frozen=True)
class Scope:
    """How much of an audit fits into its budget, by part."""

    sizes: dict[str, Any]
    """Tokens that are checked, pairs, tokens that are scanned on each prompt (and whether states of
    words are kept) and added to real answers (None for all); evaluations of the search; whether a
    policy is forecast; 0 for what does not fit."""
    seconds: dict[str, float]
    """Seconds of each part, or of the smallest size of it where it does not fit."""


def fit_budget(
    config: AuditConfig,
    *,
    rate: float,
    whole: float,
    vocabulary: int,
    pairs: int,
    scans: Iterable[int | None] = SCANS,
    is_scanned: bool = False,
    is_network: bool = True,
) -> Scope:
    """How much fits into the budget; parts are served in the order of `NEEDS`.

    Args:
        rate: single tokens per second.
        whole: seconds of a whole input.
        vocabulary: tokens or words that can be scanned.
        pairs: labelled pairs.
        scans: how many tokens may be scanned, the most first; None for all.
        is_scanned: whether the registry has the scans of the whole vocabulary.
        is_network: whether it has states, which take a second forward, and can be searched.
    """

    def sizes_of(choices: Iterable[int | None], most: int) -> dict[int | None, float]:
        sizes = dict.fromkeys(n if n and n < most else None for n in choices)
        return {n: float(n or most) for n in sizes}

    prompts, searches = len(config.prompts), {config.evaluations, MIN_EVALUATIONS}
    analysis = prompts * ANALYSIS_SECONDS
    parts: dict[str, dict[Any, float]] = {
        "check": {n: CHECK_PASSES * (n + max(n // 4, 8)) * whole for n in SAMPLES},
        "pairs": {n: 2 * size * whole for n, size in sizes_of(PAIRS, pairs).items()},
        "scan": {
            (n, states): size * (prompts * (1 + states) * (not is_scanned) / rate + analysis)
            for n, size in sizes_of(scans, vocabulary).items()
            for states in ((True, False) if is_network and n == min(SCANS[1:]) else (is_network,))
        },
        "additions": {
            n: size * config.n_contexts / rate
            for n, size in sizes_of(ADDITIONS, vocabulary).items()
        },
        "push": {
            n: n * config.length / rate
            for n in sorted(searches, reverse=True)
            if n <= config.evaluations
        },
        "forecast": {True: POLICY_TEXTS / rate},
    }
    if not is_network:
        del parts["check"], parts["push"]
    if config.policy is None or not is_network:
        del parts["forecast"]
    left, sizes, seconds = config.seconds - PAGE_SECONDS * config.page, {}, {}
    for part, share in zip(NEEDS, SHARES, strict=True):
        if part not in parts:
            continue
        choices = parts[part]
        fits = [choice for choice, cost in choices.items() if cost <= share * left]
        sizes[part] = fits[0] if fits else 0
        seconds[part] = choices[fits[0]] if fits else min(choices.values())
        left -= seconds[part] if fits else 0
    return Scope(sizes, seconds)


def _ask_grader(reward: CallableReward, config: AuditConfig, evidence: Evidence) -> None:
    tokens = grading.tokens_of(reward)
    options: dict[str, Any] = {"budget": config.seconds, "progress": config.progress}
    evidence.results += grading.census(reward, tokens=tokens, **options)
    evidence.scope["census"] = f"{len(reward.tasks)} tasks"
    why = "no right answer is paid more than nothing or a wrong one"
    evidence.left_out = dict.fromkeys(("grader_pays", "grader_misses"), (why, ""))


def _ask_reward(
    reward: Reward,
    pairs: Sequence[Comparison],
    config: AuditConfig,
    registry: Registry,
    baseline: "Baseline | None",
    evidence: Evidence,
) -> None:
    """All that an audit asks of a reward model, a judge, a function on texts or a server."""
    requests, typed = Requests(config, reward), _typed(config)
    first = next(iter(config.prompts))
    device = make_trainer(config.trainer, root=config.paths.cache).strategy.root_device
    context = None
    if isinstance(reward, NetworkReward):
        context = open_context(requests.search, [first], reward)
        scope, whole = _network_scope(config, requests, context, registry, baseline, len(pairs))
    else:
        scope, whole = _text_scope(config, requests, reward, len(pairs))
    sizes = scope.sizes
    _announce(config, scope, whole)
    commands = {
        "check": f"pessimal check {typed}",
        "pairs": f"pessimal compare pairs=embedded models=[{typed}]",
        "scan": f"pessimal scan {typed} prompts=[{','.join(config.prompts)}]",
        "additions": f"pessimal scan {typed} slot=after",
        "push": f"pessimal search {typed} prompt={first} search.length={config.length}",
        "forecast": f"pessimal audit {typed} policy=POLICY",
    }
    for part in scope.sizes:
        seconds = duration(scope.seconds[part])
        why = (
            f"it does not fit into the budget of {config.budget}: it takes about {seconds} at least"
        )
        if sizes[part] == 0:
            judged = ("answers",) if part == "scan" and reward.spec.kind is Kind.judge else ()
            later = (why, commands[part])
            evidence.left_out |= dict.fromkeys((*NEEDS[part], *judged), later)
    # 1. Read, served and fed right.
    if context is not None:
        _ask_reading(reward, context, sizes["check"], requests, config, evidence)
    # 2. Whether good answers are preferred.
    if sizes["pairs"] != 0:
        with evidence.measure("prefers"):
            _ask_pairs(reward, choose(pairs, n=sizes["pairs"], seed=config.seed), device, evidence)
    # 3. What it wants, how far it can be pushed, and what buys reward behind real answers.
    if sizes["scan"] != 0:
        with evidence.measure("one_word"):
            size, states = sizes["scan"]
            scan = replace(requests.scan, candidates=requests.candidates(size), states=states)
            evidence.tables = _tables(scan, registry, evidence, reward)
            n, prompts = len(evidence.tables[0].rows), ", ".join(config.prompts)
            evidence.scope["scan"] = f"{n:,} tokens on {prompts}"
            evidence.results.append(one_word(evidence.tables, of=whole))
        if evidence.tables:
            others = _others(evidence.tables, registry)
            more = (changes.place(evidence.tables, others), answers(evidence.tables))
            evidence.results += filter(None, more)
    extra: set[int] = set()
    if context is not None and sizes["push"] and evidence.tables:
        extra = _push(context, sizes["push"], config, evidence)
    elif context is not None and sizes["push"]:
        evidence.left_out["push"] = "no prompt was scanned, to compare with", commands["push"]
    if sizes["additions"] != 0:
        with evidence.measure("additions"):
            _ask_additions(
                reward, requests, sizes["additions"], extra, whole, config, registry, evidence
            )
    _analyse(evidence.tables, requests.compare, config, evidence, ANALYSES)
    # 4. What optimising it would do, and how far any answer can go.
    if sizes.get("forecast"):
        with evidence.measure("forecast"):
            _forecast(requests, config, registry, evidence, reward)
    elif context is not None and config.policy is None:
        evidence.left_out["forecast"] = "no policy is named", commands["forecast"]
    if context is not None and context.bounds.finite and evidence.tables:
        evidence.results.append(ceiling(context.bounds, evidence.tables[0]))
    elif context is not None:
        evidence.left_out["ceiling"] = context.bounds.how or "no prompt was scanned", ""


def _ask_reading(
    reward: Reward,
    context: SearchContext,
    sample: int,
    requests: "Requests",
    config: AuditConfig,
    evidence: Evidence,
) -> None:
    """Whether scores are computed, served and fed to it right."""
    first, typed = next(iter(config.prompts)), _typed(config)
    if sample:
        plan = CheckPlan(sample, 16, [], config.seed)
        prompt, bar = config.prompts[first], config.progress
        suite = check(context.model, prompt, plan, device=context.device, progress=bar)
        evidence.results += conformance_results(suite, reward.name)
        longer = max(sample // 4, 8)
        evidence.scope["read"] = f"{sample} random tokens and {longer} longer responses on {first}"
    if requests.served is None:
        evidence.left_out["served"] = "no server is named", f"pessimal audit {typed} url=URL"
    else:
        diagnosis, _, _ = check_served.served(requests.served)
        # Under a name of its own beside the suite's.
        evidence.results.append(replace(served_result(diagnosis, reward.name), name="served"))
    if requests.fed is None or requests.fed.loop is None:
        command = f"pessimal audit {typed} loop=trl policy=POLICY"
        evidence.left_out["fed"] = "no trainer's loop is named", command
    else:
        looped, _ = check_loop.looped(requests.fed)
        evidence.results += loop_results(looped, loop=requests.fed.loop.value, model=reward.name)


def _ask_pairs(
    reward: Reward, pairs: Sequence[Comparison], device: torch.device, evidence: Evidence
) -> None:
    sample = [one.conversation(text) for one in pairs[:8] for text in one.responses]
    scorer = text_scorer(reward, sample, device=device)
    scored = score_pairs(scorer, pairs, model=reward.name)
    evidence.results += [*preference_results(scored), wrong_pairs(scored, pairs)]
    evidence.scope["prefers"] = f"{len(pairs)} labelled pairs"


def _push(
    context: SearchContext, evaluations: int, config: AuditConfig, evidence: Evidence
) -> set[int]:
    """The tokens of the best response of a short search."""
    context.spec = replace(context.spec, evaluations=evaluations)
    first = next(iter(config.prompts))
    with evidence.measure("push"):
        result = search(context)
        every = push(result.results, evidence.tables[0], evaluations)
        evidence.results += [result for result in every if result.name in PUSH_RESULTS]
        words = f"{evaluations:,} evaluations, {config.length} tokens on {first}"
        evidence.scope["push"] = words
        return {int(i) for i in result.response}
    return set()


def _ask_additions(
    reward: Reward,
    requests: "Requests",
    size: int | None,
    extra: set[int],
    whole: int,
    config: AuditConfig,
    registry: Registry,
    evidence: Evidence,
) -> None:
    """Tokens behind real answers: all that fit, with the best of the scans and of the search."""
    spec = requests.candidates(size, " ")
    if size is not None and isinstance(reward, NetworkReward):
        tables = evidence.tables
        best = {i for t in tables for i in t.rows.nlargest(TOP_TOKENS, "reward")["candidate_id"]}
        spec = replace(spec, ids=sorted(map(int, best | extra)))
    scan = replace(requests.scan, slot=Slot.after, n_contexts=config.n_contexts, candidates=spec)
    contexts = _tables(scan, registry, evidence, reward)
    n = len(contexts[0].rows)
    evidence.scope["additions"] = f"{n:,} tokens behind {len(contexts)} answers"
    _analyse(contexts, requests.compare, config, evidence, ["additions"])
    at = next((i for i, r in enumerate(evidence.results) if r.name == "additions"), None)
    if at is None:
        return
    result = evidence.results[at]
    evidence.results[at] = replace(
        result, summary={**result.summary, "additions/whole": n >= whole}
    )
    if isinstance(reward, NetworkReward) and (heads := _head_share(reward, result, scan, config)):
        evidence.results.append(heads)


def _head_share(
    reward: NetworkReward, result: Result, scan: ScanConfig, config: AuditConfig
) -> Result | None:
    """The share of random heads on the base's states that move the answers as far as the token that
    the headline names; None where pessimal does not know the network's layout."""
    assert result.estimate is not None
    row = result.table[result.table["effect"] == result.estimate.value].iloc[0]
    cache = config.paths.cache
    contexts = list(contexts_of(scan).values())
    base = fetch_base(config.model, reward.folder, cache=cache)
    if base is not None:
        network = load_base(*base, dtype=reward.spec.dtype, rows=rows_of(reward))
        whose = base[0].name
    else:
        network, whose = StatesNetwork(reward.network()), "its own states"
    frames = [slot_frame(reward.parts[0].conversations, one, reward.tokenizer) for one in contexts]
    device = make_trainer(config.trainer, root=cache).strategy.root_device
    states = added_states(network, frames, int(row["candidate_id"]), device=device)
    if states is None:
        return None
    behind, untouched = states
    share = random_head_share(behind - untouched, untouched, float(row["effect"]))
    amount = "Fewer than 1%" if share < 0.005 else f"{share:.0%}"
    return Result(
        "additions_heads",
        pd.DataFrame([{"text": row["text"], "effect": row["effect"], "random_head": share}]),
        headline=f"{amount} of random heads on {whose} move these answers as far.",
        method="additions",
    )


def _network_scope(
    config: AuditConfig,
    requests: "Requests",
    context: SearchContext,
    registry: Registry,
    baseline: "Baseline | None",
    pairs: int,
) -> tuple[Scope, int]:
    """What fits, by the time of a few forwards; and the tokens of the vocabulary."""
    words = context.vocabulary
    options: dict[str, Any] = {"mode": requests.scan.asked_as, "certain": requests.scan.certain}
    scans = identify_all(context.model, config.prompts, candidates=words, **options)
    scanned_before = [registry.find("score-table", one.key()) is not None for one in scans]
    tokens = context.allowed.nonzero()[:TIMED_TOKENS]
    scorer = context.scorer(next(iter(config.prompts)), context.dtype)

    def seconds(rewards: Callable[[Tensor], Any], rows: Tensor) -> float:
        """The faster of two: what else runs on the machine decides no verdict."""
        times = []
        for _ in range(2):
            began = time.perf_counter()
            rewards(rows)
            times.append(time.perf_counter() - began)
        return min(times) / len(rows)

    single = seconds(scorer.rewards, tokens[:1])
    if single < SLOW_SECONDS:  # several at once take less each
        single = seconds(scorer.rewards, tokens)
    scope = fit_budget(
        config,
        rate=context.token_rate() if single < FAST_SECONDS else 1 / single,
        whole=seconds(scorer.own_rewards, tokens[:1]),
        vocabulary=len(words.rows),
        pairs=pairs,
        is_scanned=all(scanned_before) and not config.force,
        scans=SCANS if baseline is None else (baseline.tokens,),
    )
    return scope, len(words.rows)


def _text_scope(
    config: AuditConfig, requests: "Requests", reward: Reward, pairs: int
) -> tuple[Scope, int]:
    """What fits of a reward that takes texts, by the time of a few; and the words there are."""
    [prompt, *_] = config.prompts.values()
    some = [(*turns_of(prompt), Turn("assistant", text)) for text in ("Yes.", "No.", "A cat", "12")]
    scorer = text_scorer(reward, [], device=torch.device("cpu"))
    began = time.perf_counter()
    scorer.rewards(some)
    single = max((time.perf_counter() - began) / len(some), 1e-6)
    whole = len(requests.words)
    scope = fit_budget(
        config, rate=1 / single, whole=single, vocabulary=whole, pairs=pairs, is_network=False
    )
    return scope, whole


def _tables(
    config: ScanConfig, registry: Registry, evidence: Evidence, reward: Reward
) -> list[ScoreTable]:
    """The tables of a scan, a policy's first; those of the registry are not made again."""
    folders = [folder for _, some in scanned(config, reward) for folder in some]
    references = {folder: manifest.reference for folder, manifest in registry.manifests()}
    evidence.inputs += [references[folder] for folder in folders]
    return [read_score_table(folder) for folder in folders]


def _others(tables: Sequence[ScoreTable], registry: Registry) -> dict[str, list[ScoreTable]]:
    """Rewards of other models on these prompts, published ones too, by model."""
    prompts = {table.provenance.prompt for table in tables}
    others: dict[str, list[ScoreTable]] = {}
    for folder, manifest in registry.latest("score-table", needs=TABLE):
        model = manifest.summary["model"]
        if manifest.summary["prompt"] in prompts and model != tables[0].provenance.model:
            table = read_score_table(folder)
            if table.provenance.score == REWARD:
                others.setdefault(model, []).append(table)
    return others


def _analyse(
    tables: list[ScoreTable],
    options: CompareConfig,
    config: AuditConfig,
    evidence: Evidence,
    names: Sequence[str],
) -> None:
    if not tables:
        return
    analyses = [one for one in all_analyses() if one.name in names]
    with steps("analysing", len(analyses), bar=config.progress) as step:
        sets = table_sets(tables, reading_of(options))
        results, skipped = compare(sets, read_options(options), step, analyses)
    have = {result.name for result in evidence.results}
    evidence.results += [result for result in results if result.name not in have]
    evidence.skipped |= skipped
    for analysis, why in skipped.items():
        check = "identity" if "identity" in analysis else analysis.partition(",")[0]
        evidence.left_out.setdefault(check, (why, ""))


def _forecast(
    requests: "Requests",
    config: AuditConfig,
    registry: Registry,
    evidence: Evidence,
    reward: Reward,
) -> None:
    first = next(iter(config.prompts))
    prompts = {first: config.prompts[first]}
    scan = replace(requests.scan, prompts=prompts, policy=config.policy, states=False)
    tables = _tables(scan, registry, evidence, reward)
    name = tables[0].provenance.model
    _analyse(tables, replace(requests.compare, policy=name), config, evidence, ["forecast"])
    evidence.scope["forecast"] = f"{name} on {first}"


def _prefixed(result: Result, model: str) -> Result:
    """The result with its summary under its own name and without the model's, so that no part
    overwrites the audit's own numbers, and runs of all models have the same keys."""
    summary = {
        key if key.startswith(f"{result.name}/") else f"{result.name}/{key}": value
        for key, value in result.summary.items()
    }
    summary = {key.replace(f"/{model}", ""): value for key, value in summary.items()}
    return replace(result, summary=summary)


class Requests:
    """The options of the verbs that an audit is made of; a mistake in them is raised here, before
    anything is asked."""

    def __init__(self, config: AuditConfig, reward: Reward):
        own = {"model": config.model, "trainer": config.trainer, "prompts": config.prompts}
        self.config, self.reward = config, reward
        is_network = isinstance(reward, NetworkReward)
        mode = {} if is_network else {"mode": Mode.text}
        self.scan = _options(ScanConfig, "scan", config, **own, **mode)
        if not _is_pinned(config, reward):
            self.scan = replace(self.scan, force=True)
        self.compare = _options(CompareConfig, "compare", config)
        self.served = self.fed = None
        if not is_network:
            return
        spec = SearchSpec(
            length=config.length, evaluations=config.evaluations, baselines=0, from_registry=False
        )
        first = next(iter(config.prompts))
        self.search = _options(SearchOptions, "search", config, **own, search=spec, prompt=first)
        if config.url is not None:
            more = {"url": config.url, "endpoint": config.endpoint}
            self.served = _options(CheckConfig, "check", config, **own, **more)
        if config.loop is not None:
            more = {"loop": config.loop, "policy": config.policy}
            self.fed = _options(CheckConfig, "check", config, **own, **more)

    @cached_property
    def words(self) -> list[str]:
        """Texts that stand for the vocabulary of a reward of texts: that of its tokenizer, or the
        most frequent English words."""
        return grading.distinct_words(self.reward)

    def candidates(self, size: int | None, before: str = "") -> CandidatesSpec:
        """So many of the vocabulary, None for all; of a reward of texts the words as a list, each
        with `before` in front."""
        if isinstance(self.reward, NetworkReward):
            return CandidatesSpec(most=size or 0)
        words = [before + word for word in self.words[:size]]
        digest = hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]
        file = Path(self.config.paths.cache) / "words" / f"{digest}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(words), encoding="utf-8")
        return CandidatesSpec(f"words{len(words)}", str(file))


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
        """The audit that `audit/NAME` or `audit/NAME:vN` names. InputError where there is none."""
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
        self, now: Mapping[str, float], tables: Sequence[ScoreTable], checks: Sequence[Verdict]
    ) -> pd.DataFrame:
        """What this audit measured otherwise; nothing of scans of another size is compared."""
        if not tables or not self.tables:
            now, tables = {}, []
        before = {n: float("nan") if v is None else v for n, v in self.audit["metrics"].items()}
        earlier = {one["check"]: one["verdict"] for one in self.audit["verdicts"]}
        alike = changes.resemblance(tables, self.tables)
        return changes.changes(now, before, alike, verdicts=checks, earlier=earlier)


def _key(
    config: AuditConfig, reward: Reward, pairs: Sequence[Comparison], baseline: Baseline | None
) -> str:
    """Digest of all that an audit depends on: the request; the reward with its template, tokenizer
    and configuration; its base, the policy, the pairs, the real answers, limits and baseline."""
    cache = config.paths.cache
    parts = [config_hash(config), *reward.digests.values(), pairs_digest(pairs)]
    parts += [EMBEDDED_ANSWERS.read_text("utf-8"), THRESHOLDS.read_text("utf-8"), __version__]
    if isinstance(reward, NetworkReward) and (
        base := fetch_base(config.model, reward.folder, cache=cache)
    ):
        parts.append(weights_digest(base[1]))
    if config.policy is not None:  # of which a trainer's loop needs the tokenizer alone
        folder = fetch_files(spec_of(config.policy, kind=Kind.log_probability), cache=cache)
        for file in sorted(path for path in (folder and folder.iterdir()) or () if path.is_file()):
            with file.open("rb") as stream:
                parts.append(f"{file.name} {hashlib.file_digest(stream, 'sha256').hexdigest()}")
    parts.append("" if baseline is None else baseline.reference)
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


def _is_pinned(config: AuditConfig, reward: Reward) -> bool:
    """Whether the digests say all that the rewards depend on: a result may be shown again."""
    return config.url is None and reward.is_pinned


def _typed(config: AuditConfig) -> str:
    """The reward as one types it."""
    spec = config.model
    if spec.callable:
        return str(spec.callable["_target_"])
    if spec.kind is Kind.endpoint:
        return str(spec.endpoint.url)
    return spec.path if spec.path and not spec.package and spec.kind is Kind.head else spec.name


def _announce(config: AuditConfig, scope: Scope, vocabulary: int) -> None:
    """What will be done, and how long it takes; printed before it begins."""
    tokens, added = scope.sizes["scan"] and scope.sizes["scan"][0], scope.sizes["additions"]
    words = {
        "check": f"{scope.sizes.get('check')} tokens, and longer responses",
        "pairs": f"{scope.sizes['pairs'] or 'all'} labelled pairs",
        "scan": f"{tokens or vocabulary:,} tokens on {len(config.prompts)} prompts",
        "additions": f"{added or vocabulary:,} tokens behind {config.n_contexts} real answers",
        "push": f"a search of {scope.sizes.get('push', 0):,} evaluations",
        "forecast": f"what optimising it does to {config.policy}",
    }
    table = Table(box=None, title_justify="left", show_header=False)
    total = sum(scope.seconds[part] for part, size in scope.sizes.items() if size != 0)
    total += PAGE_SECONDS * config.page
    table.title = Text(f"The audit takes about {duration(total)} (budget={config.budget}):")
    for part, size in scope.sizes.items():
        what = words[part] if size != 0 else "left out: it does not fit"
        table.add_row(part, Text(what), f"about {duration(scope.seconds[part])}")
    if config.url is not None:
        table.add_row("served", Text(f"{config.url} is asked the same"), "")
    if config.loop is not None:
        table.add_row("fed", Text(f"conversations of {config.loop.value}'s loop are compared"), "")
    if config.page:
        table.add_row("page", Text("figures and the page"), f"about {duration(PAGE_SECONDS)}")
    show(table)


def _page_of(registry: Registry, reference: str) -> Path | None:
    """The page of an audit, where the registry has one."""
    for folder, manifest in registry.latest("report"):
        if reference in manifest.inputs:
            return folder / "index.html"
    return None


def _end(audit: Mapping[str, Any], folder: Path, page: Path | None, *, strict: bool) -> None:
    """Print the verdicts, failures first, and the paths; end with the exit code that they mean."""
    _print(audit)
    print_path(folder)
    if page is not None:
        print_path(page)
    outcome = "FAILED" if audit["verdict"] == FAIL else "INCOMPLETE"
    message = f"{audit['reward']['name']}: {outcome} ({', '.join(audit['deciding'])}); see {folder}"
    if audit["verdict"] == FAIL:
        raise VerdictError(message)
    if audit["verdict"] == INCOMPLETE and strict:
        raise IncompleteError(f"{message}. To end with exit code 0 all the same: strict=false")


def _print(audit: Mapping[str, Any]) -> None:
    checks = exports.in_order(audit["verdicts"])
    show(Text(f"\nAudit of {audit['reward']['name']}", "bold"))
    show(Text(audit["headline"], STYLES.get(audit["verdict"], "bold yellow")))
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    for one in checks:
        if one["verdict"] == NOT_MEASURED:
            continue
        words = Text.assemble((one["question"], "dim"), " ", one["evidence"])
        if one["action"]:
            words.append(f" To do: {one['action']}", "bold")
        table.add_row(Text(one["verdict"], STYLES[one["verdict"]]), one["check"], words)
    for one in audit["facts"]:
        if one["value"] is not None:
            table.add_row(Text("fact", "dim"), one["fact"], Text(one["evidence"]))
    for one in [*checks, *audit["facts"]]:
        if one.get("verdict", NOT_MEASURED) == NOT_MEASURED and one["value"] is None:
            if one["evidence"] == NOT_ASKED:
                continue
            why = f"{one['evidence'].rstrip('.')}."
            why += f" Type: {one['command']}" if one["command"] else ""
            name = one.get("check") or one["fact"]
            table.add_row(Text("not measured", "dim"), name, Text(why, "dim"))
    show(table)
    every = [*audit["verdicts"], *audit["facts"]]
    rest = [one.get("check") or one["fact"] for one in every if one["evidence"] == NOT_ASKED]
    if rest:
        show(Text(f"Does not apply to this kind of reward: {', '.join(rest)}.", "dim"))
    if since := audit["changes"]:
        beyond = [row for row in since["numbers"] if row["verdict"] == FAIL]
        names = ", ".join(f"{row['kind']} {row['part']}".strip() for row in beyond)
        text = (
            f"more than another seed changes it: {names}" if beyond else "nothing more than a seed"
        )
        show(Text(f"Changed since {since['baseline']}: {text}."))
