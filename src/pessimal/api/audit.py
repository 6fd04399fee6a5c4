"""`pessimal.audit`: a verdict for each check, before a training on a reward."""

import functools
import hashlib
import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich.text import Text
from torch import Tensor

from pessimal.analyses import all_analyses
from pessimal.analyses import compare as compare_sets
from pessimal.analyses.nulls import random_head_share
from pessimal.analyses.preferences import preference_results
from pessimal.api.check import census, check_model, check_server, check_trainer
from pessimal.api.compare import join_tables
from pessimal.api.load import check_options, device_of, to_reward, trainer_for
from pessimal.api.rollouts import rollouts
from pessimal.api.scan import forecast, scan_tables
from pessimal.api.search import scanned_rewards
from pessimal.api.store import Artifact, Store, publish, reward_inputs, store_at
from pessimal.auditing import changes, exports
from pessimal.auditing.evidence import (
    NEEDS,
    Evidence,
    Scope,
    Work,
    draw_limits,
    fit_budget,
    one_word,
)
from pessimal.auditing.verdicts import (
    AUDIT,
    FAIL,
    THRESHOLDS,
    Verdict,
    answers,
    audit_result,
    ceiling,
    counts_of,
    overall,
    push,
    verdicts,
)
from pessimal.catalogue import named_prompts
from pessimal.checking import grading
from pessimal.checking.suite import CheckPlan
from pessimal.conversation import Prompt, Turn, turns_of
from pessimal.errors import InputError
from pessimal.explaining.pairs import labelled_pairs, pairs_digest, score_pairs, wrong_pairs
from pessimal.options import parse_duration
from pessimal.progress import console, quiet_libraries, steps
from pessimal.rewards.base import NetworkReward, Reward
from pessimal.rewards.callable import CallableReward
from pessimal.rewards.frame import slot_frame
from pessimal.rewards.language import StatesNetwork, load_base
from pessimal.rewards.named import language_model_of
from pessimal.rewards.obtain import fetch_base, fetch_files
from pessimal.rewards.server import ServerOptions
from pessimal.rewards.spec import Mode
from pessimal.rewards.weights import weights_digest
from pessimal.scoring.candidates import Candidates, item_candidates, vocabulary_of
from pessimal.scoring.contexts import read_contexts, sample
from pessimal.scoring.identify import identify_all
from pessimal.scoring.spec import TrainerSpec
from pessimal.scoring.states import added_states
from pessimal.scoring.texts import text_scorer
from pessimal.scoring.trainer import make_trainer
from pessimal.searching.context import SearchContext
from pessimal.searching.run import run as search
from pessimal.searching.spec import SearchSpec
from pessimal.tables import ScoreTable, read_score_table
from pessimal.tables.comparisons import EMBEDDED, Comparison, choose
from pessimal.tables.files import sha256_of
from pessimal.tables.result import Result, Results
from pessimal.texts import duration
from pessimal.tracking.registry import Registry
from pessimal.version import __version__

log = logging.getLogger(__name__)

ANALYSES = ("provenance", "extremes", "frequency", "identity_terms")
TOP_TOKENS = 50
"""Best tokens of each prompt's scan that are added to real answers as well."""
TIMED_TOKENS, FAST_SECONDS, SLOW_SECONDS = 16, 0.02, 1.0
"""Tokens that are timed at once; seconds of one below which many are timed, and above which it is
timed alone."""
ASKED = (
    *("prompts", "tasks", "rollouts", "n_contexts", "length", "evaluations", "budget"),
    *("url", "endpoint", "loop", "policy", "seed"),
)
"""The request of an audit; a published one of the same request is given again."""


class Audit(Results):
    """Results of an audit: `audit` first, one row per check and fact, its headline the overall
    verdict; then what these rest on; none where it was published before."""

    def __init__(
        self,
        results: Sequence[Result],
        document: Mapping[str, Any],
        key: str,
        folder: Path | None = None,
        reference: str = "",
    ):
        super().__init__(results, folder=folder)
        self.document, self.key, self.reference = document, key, reference
        """The content of `audit.json`; the digest of the request; the artifact."""


def audit(
    model: Reward | str | Path | Any,
    prompts: str | Sequence[str] | Mapping[str, Any] = ("greatest", "best", "worst"),
    *,
    pairs: str | Path | Sequence[Comparison] | None = None,
    tasks: str | Path | None = None,
    budget: str | None = None,
    baseline: "Baseline | None" = None,
    name: str | None = None,
    seed: int = 0,
    store: Store | str | Path | None = None,
    **options: Any,
) -> Audit:
    """A verdict per check (pass, fail, review, not_measured) on a reward: its reading, whether it
    prefers good answers, its words, what tokens add to real answers, how far a search pushes it; of
    a function with tasks, the census.

    With a store it is published as an `audit` artifact. An audit of the same reward that was asked
    the same is given again, but of a server, and of a function whose code does not say all that it
    depends on.

    Args:
        model: of `load` or `reward`, or what these take.
        prompts: as for `scan`.
        pairs: labelled pairs, or their file; by default those that come with pessimal.
        tasks: of a grader: JSONL file of prompts with their true answers.
        budget: time that it may take, as reckoned before it begins, such as 10m; what does not fit
            is left out. By default nothing is.
        baseline: an earlier audit: what changed since.
        name: of the artifact; the reward's own by default.
        seed: of every random choice.
        store: as for `scan`.
        options: the other fields of `Auditor`, such as length=3 and policy="org/name".
    """
    store = store_at(store)
    if tasks is not None:
        pairs = []
    elif pairs is None or isinstance(pairs, str | Path):
        pairs = labelled_pairs(None if pairs is None else str(pairs), seed=seed)
    model = to_reward(model, tasks=tasks)
    check_options("an audit", options, *(field.name for field in fields(Auditor)))
    auditor = Auditor(
        model,
        named_prompts(prompts) if tasks is None else {},
        pairs,
        tasks=None if tasks is None else str(tasks),
        budget=math.inf if budget is None else parse_duration(budget),
        seed=seed,
        store=store,
        **options,
    )
    quiet_libraries()
    name = name or model.name
    key = ""
    if store is not None:  # which a request is looked up in
        key = auditor.key([name, "" if baseline is None else baseline.reference])
        published = store.find(AUDIT, key) if auditor.is_pinned else None
        if published is not None:
            log.info("%s was audited already (force=true audits again)", model.name)
            document = json.loads((published[0] / exports.FILES[0]).read_text("utf-8"))
            return Audit([], document, key, published[0], published[1].reference)
        track = functools.partial(store.track, group=f"audit {name} {key[:8]}")
        store = auditor.store = replace(store, track=track)
    evidence = auditor.ask(None if baseline is None else (baseline.tokens,))
    about = (evidence.results_by_name, evidence.left_out)
    checks = verdicts(*about, reward=auditor.model.typed)
    numbers = verdicts(*about, reward=auditor.model.typed, part="facts")
    metrics = changes.metrics(evidence.results_by_name, evidence.tables)
    since = None if baseline is None else baseline.changes(metrics, evidence.tables, checks)
    changed = [] if since is None else since.loc[since["verdict"] == FAIL, "kind"].tolist()
    changed = [kind for kind in changed if kind != "check"]  # which fails itself
    verdict, deciding = overall(checks, model.core_checks, changed)
    document = exports.document(
        {"name": model.name, "kind": model.spec.kind, **model.digests},
        *(evidence.scope, checks, numbers, metrics),
        verdict=verdict,
        deciding=deciding,
        core=model.core_checks,
        inputs=[table.provenance.key() for table in evidence.tables],
        changes=since,
        baseline=None if baseline is None else baseline.reference,
    )
    results = [audit_result(checks, numbers, verdict, deciding)]
    if since is not None and baseline is not None:
        results.append(changes.changes_result(since, baseline.reference))
    if store is None:
        return Audit([*results, *evidence.results], document, key)
    results += [_prefixed(result, model.name) for result in draw_limits(evidence.results, checks)]
    inputs, source = reward_inputs(store.registry, model)
    inputs = [*inputs, *evidence.inputs]
    with store.track(name=f"audit {name}", inputs=inputs) as mirror:
        texts = (exports.as_json(document), exports.markdown(document), exports.junit(document))
        artifact = Artifact(
            *(AUDIT, name, key, inputs),
            summary={"model": model.name, "verdict": verdict, **source} | counts_of(checks),
            labels={model.name: model.name},
            files=dict(zip(exports.FILES, texts, strict=True)),
            skipped=evidence.skipped,
        )
        folder, manifest = publish(
            store.registry, mirror, artifact, results, progress=auditor.progress
        )
        mirror.summary({"verdict": verdict} | counts_of(checks))
    return Audit(results, document, key, folder, manifest.reference)


@dataclass
class Auditor:
    """Asks a reward all that an audit asks; each part by the function that also stands alone."""

    model: Reward
    prompts: Mapping[str, Prompt]
    pairs: Sequence[Comparison]
    tasks: str | None = None
    rollouts: str | None = None
    """File or folder of a policy's rollouts, which a trainer wrote."""
    n_contexts: int = 8
    """Real answers that tokens are added to."""
    length: int = 3
    """Tokens of the response that is searched for."""
    evaluations: int = 10_000
    """Most evaluations of the search."""
    budget: float = math.inf
    """Seconds; infinite where there is none."""
    reserve: float = 0.0
    """Seconds of these that are for what the caller does with it, such as a page."""
    url: str | None = None
    """A server that should give this model's rewards."""
    endpoint: ServerOptions = field(default_factory=ServerOptions)
    """The server's API and its other options."""
    loop: str | None = None
    """trl, verl or openrlhf: does its loop have the model read what its template says?"""
    policy: str | None = None
    """A language model that optimising the reward is forecast for; the loop's."""
    seed: int = 0
    trainer: TrainerSpec | None = None
    store: Store | None = None
    cache: str = "runs/cache"
    progress: bool = True
    announce: bool = False
    """Print what will be done, and how long it takes."""
    evidence: Evidence = field(default_factory=Evidence, init=False)

    @cached_property
    def network(self) -> NetworkReward | None:
        """The reward, where it is a network's."""
        return self.model.as_network

    @property
    def cached(self) -> dict[str, Any]:
        return {"cache": self.cache, "progress": self.progress}

    @property
    def is_pinned(self) -> bool:
        """Whether the digests say all that the rewards depend on: a result may be given again."""
        return self.url is None and self.model.is_pinned

    @cached_property
    def device(self) -> torch.device:
        if getattr(self.model, "held", None) is not None:
            return device_of(self.model)
        where = self.trainer or trainer_for(self.model)
        return make_trainer(where, root=self.cache).strategy.root_device

    @cached_property
    def base(self) -> Any:
        """The model that reward training began from, and its folder; None where none is known."""
        if self.network is None:
            return None
        return fetch_base(self.model.spec, self.network.folder, cache=self.cache)

    def key(self, more: Sequence[str]) -> str:
        """Digest of all that an audit depends on: the request; the reward with its template,
        tokenizer and configuration; its base, the policy, the pairs, the real answers and the
        limits."""
        options = {name: getattr(self, name) for name in ASKED}
        request = json.dumps([options, asdict(self.model.spec)], sort_keys=True, default=str)
        parts = [request, *self.model.digests.values(), pairs_digest(self.pairs), *more]
        parts += [EMBEDDED.read_text("utf-8"), THRESHOLDS.read_text("utf-8"), __version__]
        if self.base is not None:
            parts.append(weights_digest(self.base[1]))
        if self.rollouts is not None:
            path = Path(self.rollouts).expanduser()
            files = sorted(path.rglob("*")) if path.is_dir() else [path]
            parts += [f"{file.name} {sha256_of(file)}" for file in files if file.is_file()]
        if self.policy is not None:  # of which a trainer's loop needs the tokenizer alone
            policy = language_model_of(self.policy)
            folder = fetch_files(policy, cache=self.cache)
            files = [file for file in sorted(folder.iterdir()) if file.is_file()] if folder else []
            parts += [f"{file.name} {sha256_of(file)}" for file in files]
        return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()

    # --- What is asked.

    def ask(self, scans: Sequence[int | None] | None = None) -> Evidence:
        """All parts that fit into the budget; `scans` says how many tokens may be scanned, None for
        all."""
        if self.tasks is not None and self.model.spec.grades_tasks:
            self._ask_grader(*self.model.functions)
        else:
            self._ask_reward(scans)
        if self.rollouts is not None:
            self._ask_rollouts(self.rollouts)
        return self.evidence

    def _ask_rollouts(self, source: str) -> None:
        evidence = self.evidence
        with evidence.measure("rollouts"):
            results = rollouts(source, reward=self.model, seed=self.seed, **self.cached)
            evidence.results += results
            evidence.scope["rollouts"] = " ".join((f"{source}.", *results.notes))
            reason = "the rollouts have neither a truth nor a true answer"
            evidence.left_out["rollouts"] = reason, ""

    def _ask_grader(self, grader: CallableReward) -> None:
        evidence = self.evidence
        options: dict[str, Any] = {"budget": self.budget, "policy": self.policy} | self.cached
        results = census(grader, **options)
        evidence.results += results
        evidence.scope["census"] = " ".join((f"{len(grader.tasks)} tasks.", *results[0].notes))
        reason, command = "no right answer is paid more than nothing or a wrong one", ""
        if left := results["paid_without_answer"].summary.get(grading.LEFT):
            reason = f"the budget of {duration(self.budget)} was over: {left:,} strings were left"
            command = f"pessimal audit {self.model.typed} tasks={self.tasks} budget=1h"
        evidence.left_out = dict.fromkeys(self.model.core_checks, (reason, command))

    def _ask_reward(self, scans: Sequence[int | None] | None) -> None:
        """All that is asked of a reward model, a judge, a function on texts or a server."""
        evidence, typed = self.evidence, self.model.typed
        first = next(iter(self.prompts))
        scope = self._scope(scans)
        sizes = scope.sizes
        if self.announce:
            self._announce(scope)
        commands = {
            "check": f"pessimal check {typed}",
            "pairs": f"pessimal compare pairs=embedded models=[{typed}]",
            "scan": f"pessimal scan {typed} prompts=[{','.join(self.prompts)}]",
            "additions": f"pessimal scan {typed} slot=after",
            "push": f"pessimal search {typed} prompt={first} search.length={self.length}",
            "forecast": f"pessimal audit {typed} policy=POLICY",
        }
        for part, size in sizes.items():
            if size == 0:
                takes = f"it takes about {duration(scope.seconds[part])} at least"
                reason = f"it does not fit into the budget of {duration(self.budget)}: {takes}"
                judged = part == "scan" and self.model.spec.is_judge
                checks = (*NEEDS[part], *(("answers",) if judged else ()))
                evidence.left_out |= dict.fromkeys(checks, (reason, commands[part]))
        # 1. Read, served and fed right.
        if self.network is not None:
            self._ask_reading(self.network, sizes["check"])
        # 2. Whether good answers are preferred.
        if sizes["pairs"] != 0:
            with evidence.measure("prefers"):
                pairs = choose(self.pairs, n=sizes["pairs"], seed=self.seed)
                some = [pair.conversation(text) for pair in pairs[:8] for text in pair.responses]
                scorer = text_scorer(self.model, some, device=self.device)
                scored = score_pairs(scorer, pairs, model=self.model.name)
                evidence.results += [*preference_results(scored), wrong_pairs(scored, pairs)]
                evidence.scope["prefers"] = f"{len(pairs)} labelled pairs"
        # 3. What it wants, how far it can be pushed, and what buys reward behind real answers.
        if sizes["scan"] != 0:
            with evidence.measure("one_word"):
                size, states = sizes["scan"]
                evidence.tables = self._scan(self.prompts, self._words(size), states=states)
                n, prompts = len(evidence.tables[0].rows), ", ".join(self.prompts)
                evidence.scope["scan"] = f"{n:,} tokens on {prompts}"
                evidence.results.append(one_word(evidence.tables, of=self.vocabulary_size))
            evidence.results += filter(None, [answers(evidence.tables)])
        extra: set[int] = set()
        if self.network is not None and sizes["push"]:
            if evidence.tables:
                extra = self._push(sizes["push"])
            else:
                evidence.left_out["push"] = "no prompt was scanned", commands["push"]
        if sizes["additions"] != 0:
            with evidence.measure("additions"):
                self._ask_additions(sizes["additions"], extra)
        self._analyse(evidence.tables, ANALYSES)
        # 4. What optimising it would do, and how far any answer can go.
        if sizes.get("forecast"):
            with evidence.measure("forecast"):
                self._forecast(first)
        elif self.network is not None and self.policy is None:
            evidence.left_out["forecast"] = "no policy is named", commands["forecast"]
        if self.network is not None:
            if self.context.bounds.finite and evidence.tables:
                evidence.results.append(ceiling(self.context.bounds, evidence.tables[0]))
            else:
                reason = self.context.bounds.how or "no prompt was scanned"
                evidence.left_out["ceiling"] = reason, ""

    def _ask_reading(self, network: NetworkReward, sample_size: int) -> None:
        """Whether scores are computed, served and fed to it right."""
        evidence, typed = self.evidence, self.model.typed
        first = next(iter(self.prompts))
        if sample_size:
            plan, bar = CheckPlan(sample_size, 16, [], self.seed), self.progress
            evidence.results += check_model(
                network, self.prompts, plan, device=self.device, progress=bar
            )[1]
            words = f"{sample_size} random tokens and {max(sample_size // 4, 8)} longer responses"
            evidence.scope["read"] = f"{words} on {first}"
        options: dict[str, Any] = {"seed": self.seed, "device": self.device}
        if self.url is None:
            evidence.left_out["served"] = "no server is named", f"pessimal audit {typed} url=URL"
        else:
            endpoint = replace(self.endpoint, url=self.url)
            options["progress"] = self.progress
            _, [result] = check_server(network, endpoint, self.prompts, **options)
            # Under a name of its own beside the suite's.
            evidence.results.append(replace(result, name="served"))
        if self.loop is None or self.policy is None:
            command = f"pessimal audit {typed} loop=trl policy=POLICY"
            evidence.left_out["fed"] = "no trainer's loop is named", command
        else:
            options |= self.cached
            results = check_trainer(network, self.loop, self.policy, self.prompts, **options)[1]
            evidence.results += results

    def _push(self, evaluations: int) -> set[int]:
        """The tokens of the best response of a short search."""
        evidence, first = self.evidence, next(iter(self.prompts))
        self.context.spec = replace(self.context.spec, evaluations=evaluations)
        with evidence.measure("push"):
            result = search(self.context)
            evidence.results += push(result.results, evidence.tables[0], evaluations)[:1]
            words = f"{evaluations:,} evaluations, {self.length} tokens"
            evidence.scope["push"] = f"{words} on {first}"
            return {int(i) for i in result.response}
        return set()

    def _ask_additions(self, size: int | None, extra: set[int]) -> None:
        """Tokens behind real answers: all that fit, and the best of the scans and of the search."""
        evidence = self.evidence
        best: set[int] = set()
        if size is not None and self.network is not None:
            for table in evidence.tables:
                best |= set(table.rows.nlargest(TOP_TOKENS, "reward")["candidate_id"])
        words = self._words(size, " ", sorted(map(int, best | extra)))
        contexts = sample(read_contexts(EMBEDDED, "after"), self.n_contexts, seed=self.seed)
        tables = self._scan(contexts, words, states=False)
        n = len(tables[0].rows)
        evidence.scope["additions"] = f"{n:,} tokens behind {len(tables)} answers"
        self._analyse(tables, ["additions"])
        at = next((i for i, r in enumerate(evidence.results) if r.name == "additions"), None)
        if at is None:
            return
        result = evidence.results[at]
        whole = {"additions/whole": n >= self.vocabulary_size}
        evidence.results[at] = replace(result, summary={**result.summary, **whole})
        if self.network is not None:
            heads = self._head_share(self.network, result, list(contexts.values()))
            evidence.results += filter(None, [heads])

    def _head_share(
        self, network: NetworkReward, result: Result, contexts: Sequence[Any]
    ) -> Result | None:
        """The share of random heads on the base's states that move the answers as far as the token
        that the headline names; None where pessimal does not know the network's layout."""
        assert result.estimate is not None
        row = result.table[result.table["effect"] == result.estimate.value].iloc[0]
        if self.base is not None:
            states_of = load_base(*self.base, dtype=network.spec.dtype, rows=network.rows)
            name = self.base[0].name
        else:
            states_of, name = StatesNetwork(network.network()), "the network itself"
        part, tokenizer = network.parts[0].conversations, network.tokenizer
        frames = [slot_frame(part, context, tokenizer) for context in contexts]
        states = added_states(states_of, frames, int(row["candidate_id"]), device=self.device)
        if states is None:
            return None
        added, untouched = states
        share = random_head_share(added - untouched, untouched, float(row["effect"]))
        amount = "Fewer than 1%" if share < 0.005 else f"{share:.0%}"
        headline = f"{amount} of random output layers on {name} move these answers as far."
        table = pd.DataFrame([{**row[["text", "effect"]], "random_head": share}])
        return Result("additions_heads", table, headline=headline, method="additions")

    def _forecast(self, first: str) -> None:
        assert self.policy is not None
        options: dict[str, Any] = {"trainer": self.trainer, "store": self.store} | self.cached
        results = forecast(self.model, self.policy, {first: self.prompts[first]}, **options)
        self._add(results)
        self.evidence.scope["forecast"] = f"{self.policy} on {first}"

    def _scan(
        self, prompts: Mapping[str, Any], candidates: Candidates, *, states: bool
    ) -> list[ScoreTable]:
        """The tables of a scan; those of the store are not made again, but of what may change."""
        store = self.store
        if store is not None and not self.is_pinned:
            store = replace(store, force=True)
        options: dict[str, Any] = {"trainer": self.trainer, "store": store} | self.cached
        mode = Mode.text if self.network is None else Mode.ids
        tables = scan_tables(self.model, prompts, candidates, mode=mode, states=states, **options)
        if store is not None:
            keys = (table.provenance.key() for table in tables)
            published = (store.registry.find("score-table", key) for key in keys)
            self.evidence.inputs += [artifact[1].reference for artifact in published if artifact]
        return tables

    def _analyse(self, tables: Sequence[ScoreTable], names: Sequence[str]) -> None:
        if not tables:
            return
        evidence = self.evidence
        analyses = [each for each in all_analyses() if each.name in names]
        with steps("analysing", len(analyses), bar=self.progress) as step:
            sets, read, _ = join_tables(tables, {"seed": self.seed})
            results, skipped = compare_sets(sets, read, step, analyses)
        self._add(results)
        evidence.skipped |= skipped
        for analysis, reason in skipped.items():
            part = "identity" if "identity" in analysis else analysis.partition(",")[0]
            evidence.left_out.setdefault(part, (reason, ""))

    def _add(self, results: Sequence[Result]) -> None:
        """Keep the results that there are none of these names of yet."""
        names = {result.name for result in self.evidence.results}
        self.evidence.results += [result for result in results if result.name not in names]

    # --- What there is to ask with, and how long it takes.

    @cached_property
    def context(self) -> SearchContext:
        """The context of a search on the first prompt, its network loaded."""
        assert self.network is not None
        first, prompt = next(iter(self.prompts.items()))
        sizes = {name: getattr(self, name) for name in ("length", "evaluations")}
        spec = SearchSpec(**sizes, baselines=0, from_registry=False)
        options: dict[str, Any] = {"mode": Mode.ids, "seed": self.seed, "device": self.device}
        context = SearchContext(self.network, {first: prompt}, spec, **options)
        if self.store is not None:
            context.scanned = functools.partial(scanned_rewards, self.store.registry, context)
        return context

    @cached_property
    def words(self) -> list[str]:
        """Texts that stand for the vocabulary of a reward of texts: that of its tokenizer, or the
        most frequent English words."""
        return grading.distinct_words(self.model)

    @cached_property
    def vocabulary_size(self) -> int:
        return len(self.words if self.network is None else self.context.vocabulary.rows)

    def _words(self, size: int | None, before: str = "", ids: Sequence[int] = ()) -> Candidates:
        """The first `size` tokens of the vocabulary, or all, and some `ids`; of a reward of texts
        the words, each with `before` in front."""
        if self.network is not None:
            whole = vocabulary_of(self.network)
            return whole.frequent(size, ids) if size else whole
        texts = [before + word for word in self.words[:size]]
        return item_candidates(texts, name=f"words{len(texts)}")

    def _scope(self, scans: Sequence[int | None] | None) -> Scope:
        """The parts that fit into the budget, by the time of a few inputs."""
        sizes = {name: getattr(self, name) for name in ("n_contexts", "length", "evaluations")}
        work = Work(
            prompts=len(self.prompts),
            pairs=len(self.pairs),
            vocabulary=self.vocabulary_size,
            policy=self.policy is not None,
            **sizes,
        )
        budget = self.budget - self.reserve
        if math.isinf(budget):
            is_network = self.network is not None
            return fit_budget(work, budget, rate=math.inf, whole=0.0, is_network=is_network)
        if self.network is None:
            [prompt, *_] = self.prompts.values()
            texts = ("Yes.", "No.", "A cat", "12")
            some = [(*turns_of(prompt), Turn("assistant", text)) for text in texts]
            texts_scorer = text_scorer(self.model, [], device=torch.device("cpu"))
            began = time.perf_counter()
            texts_scorer.rewards(some)
            single = max((time.perf_counter() - began) / len(some), 1e-6)
            return fit_budget(work, budget, rate=1 / single, whole=single, is_network=False)
        context = self.context
        words = context.vocabulary
        options: dict[str, Any] = {"mode": Mode.ids, "certain": 100}
        tables = identify_all(self.network, self.prompts, candidates=words, **options)
        find = self.store.find if self.store is not None else lambda *_: None
        published = all(find("score-table", provenance.key()) for provenance in tables)
        some_tokens = context.allowed.nonzero()[:TIMED_TOKENS]
        scorer = context.scorer(next(iter(self.prompts)), context.dtype)
        single = _seconds(scorer.rewards, some_tokens[:1])
        if single < SLOW_SECONDS:  # several at once take less each
            single = _seconds(scorer.rewards, some_tokens)
        return fit_budget(
            work,
            budget,
            rate=context.token_rate() if single < FAST_SECONDS else 1 / single,
            whole=_seconds(scorer.own_rewards, some_tokens[:1]),
            is_scanned=published,
            scans=scans,
        )

    def _announce(self, scope: Scope) -> None:
        """Say how long the audit takes, part by part, and what is left out."""
        fits = {part: scope.sizes[part] != 0 for part in scope.sizes}
        total = duration(sum((scope.seconds[part] for part in fits if fits[part]), self.reserve))
        parts = [f"{part} {duration(scope.seconds[part])}" for part in fits if fits[part]]
        parts += [f"without {part}, which does not fit" for part in fits if not fits[part]]
        message = f"The audit takes about {total} of {duration(self.budget)}: {', '.join(parts)}"
        console().print(Text(message))


def _seconds(rewards: Callable[[Tensor], Any], rows: Tensor) -> float:
    """Seconds of a row, by the faster of two runs: what else runs on the machine decides no
    verdict."""
    times = []
    for _ in range(2):
        began = time.perf_counter()
        rewards(rows)
        times.append(time.perf_counter() - began)
    return min(times) / len(rows)


def _prefixed(result: Result, model: str) -> Result:
    """The result with its summary under its own name and without the model's, so that no part
    overwrites the audit's own numbers, and runs of all models have the same keys."""
    prefix = f"{result.name}/"
    names = {key: f"{prefix}{key.removeprefix(prefix)}" for key in result.summary}
    summary = {names[key].replace(f"/{model}", ""): v for key, v in result.summary.items()}
    return replace(result, summary=summary)


@dataclass(frozen=True)
class Baseline:
    """An earlier audit."""

    reference: str
    audit: Mapping[str, Any]
    tables: list[ScoreTable]

    @classmethod
    def load(cls, wanted: str, registry: Registry) -> "Baseline":
        """The audit that `audit/NAME` or `audit/NAME:vN` names. InputError where there is none."""
        try:
            folder, manifest = registry.artifact(wanted, AUDIT)
        except InputError as error:
            raise InputError(f"baseline={wanted} is no such audit: {error}") from error
        registry.verify(folder)
        audit = json.loads((folder / exports.FILES[0]).read_text("utf-8"))
        if audit["schema"] != exports.SCHEMA:
            raise InputError(f"baseline={wanted} was made by another edition; audit it again")
        keys = [registry.find("score-table", key) for key in audit["inputs"]]
        if None in keys:
            log.warning("some score tables of %s are gone: order is not compared", wanted)
        return cls(
            manifest.reference,
            audit,
            [read_score_table(artifact[0]) for artifact in keys if artifact],
        )

    @property
    def tokens(self) -> int | None:
        """The number of most frequent tokens that it scanned; None for all."""
        name = self.tables[0].provenance.candidates if self.tables else ""
        return int(name.removeprefix("frequent")) if name.startswith("frequent") else None

    def changes(
        self, now: Mapping[str, float], tables: Sequence[ScoreTable], checks: Sequence[Verdict]
    ) -> pd.DataFrame:
        """The changes since; nothing of scans of another size is compared."""
        if not tables or not self.tables:
            now, tables = {}, []
        before = {n: float("nan") if v is None else v for n, v in self.audit["metrics"].items()}
        earlier = {row["check"]: row["verdict"] for row in self.audit["verdicts"]}
        alike = changes.resemblance(tables, self.tables)
        return changes.changes(now, before, alike, verdicts=checks, earlier=earlier)
