"""`pessimal.scan`: score every token of the vocabulary, or some texts, as the answer to prompts;
and `pessimal.forecast`: what optimising such a reward does to a policy's answers."""

import contextlib
import functools
import itertools
import logging
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pessimal.analyses.forecast import analyse
from pessimal.api.compare import join_tables
from pessimal.api.load import load, parse_choice, to_reward, trainer_for
from pessimal.api.store import Store, publish_table, reward_inputs, store_at
from pessimal.catalogue import ANSWERS, answers, named_prompts, run_of
from pessimal.conversation import Asked, Context, Prefixed, Prompt, add_prefixes, read_prefixes
from pessimal.errors import ConfigError
from pessimal.progress import quiet_libraries
from pessimal.rewards.base import Reward
from pessimal.rewards.callable import prompts_of, read_tasks
from pessimal.rewards.log_probability import LogProbability
from pessimal.rewards.obtain import fetch_base
from pessimal.rewards.spec import Mode
from pessimal.scoring.candidates import Candidates, item_candidates, tokens_for, vocabulary_of
from pessimal.scoring.contexts import check_contexts, find_contexts
from pessimal.scoring.identify import engine_pass_provenance, forget_work, identify_all, locked
from pessimal.scoring.loop import wait_for_all
from pessimal.scoring.proposals import answers_of, screened
from pessimal.scoring.scan import make_scanner
from pessimal.scoring.scan_texts import Scanner, ScanPlan
from pessimal.scoring.spec import TrainerSpec
from pessimal.scoring.trainer import is_first_process, make_trainer
from pessimal.tables import ScoreProvenance, ScoreTable, read_score_table
from pessimal.tables.result import Results
from pessimal.tables.score_table import LOG_PROBABILITY, extremes, read_provenance
from pessimal.texts import duration, safe_name, speed
from pessimal.tracking.mirror import Mirror
from pessimal.tracking.registry import Manifest, Registry

log = logging.getLogger(__name__)


def scan(
    model: Reward | str | Path | Any,
    prompts: str | Sequence[str] | Mapping[str, str] | None = None,
    *,
    tasks: str | Path | None = None,
    prefixes: str | Path | Mapping[str, str] | None = None,
    contexts: str | Path | Mapping[str, Context] | None = None,
    slot: str | None = None,
    candidates: Sequence[str] | Candidates | None = None,
    most: int | None = None,
    mode: str | None = None,
    certain: int = 100,
    batch_size: int | None = None,
    states: bool | None = None,
    trainer: TrainerSpec | None = None,
    store: Store | str | Path | None = None,
    cache: str = "runs/cache",
    progress: bool = True,
    **options,
) -> ScoreTable | list[ScoreTable]:
    """Score every token of the vocabulary, or some texts, as the response to each prompt.

    Args:
        model: of `load` or `reward`, or what these take: `org/name`, a folder, a function, a
            network with `tokenizer=…`, a list of rewards with `weights=[…]`.
        prompts: a user turn, or a key of conf/prompts; several of them, or key → user turn, give a
            list of tables. "greatest" where nothing is given.
        tasks: instead, a JSONL file of prompts with their columns, which a function is given.
        prefixes: personas by key, or a file of them: each prompt is also asked behind each, and
            behind a control of as many words.
        contexts: instead, a JSONL file of real answers that candidates are put into, or these by
            key.
        slot: `after` or `before` these; by default where the file has the mark `{slot}`.
        candidates: texts to score instead of the vocabulary; of a reward that has none, the list of
            conf/candidates/answers.yaml by default.
        most: so many of the vocabulary, the most frequent, and its special tokens.
        mode: `ids` (any token ids), `text` (as a text would be tokenized) or `paper`; ids for the
            vocabulary, text for candidates.
        certain: k of the tails that are scored again in float32 where the model's precision is
            lower.
        batch_size: candidates a batch; found from the memory there is where None.
        states: keep the last hidden states of words, of the model's base where it is known
            (`load(…, base_path="org/name")`); by default for all but log-probabilities of a
            vocabulary.
        trainer: where a network runs; by default where one in memory is, else the CPU.
        store: registry, or its folder, that finished tables are read from, and published in.
        cache: folder for a base that is to be fetched, and for what an interrupted scan leaves.
        options: of `load` or `reward`.

    Returns:
        A ScoreTable, or for several prompts, for prefixes, for contexts, or a model of which every
        output is scanned (output="all"), a list of them.
    """
    quiet_libraries()
    if "items" in options:
        raise ConfigError("there is no option items: type candidates=[…]")
    if tasks is not None and prompts is not None:
        raise ConfigError("tasks has prompts of its own: leave out prompts, or tasks")
    check_contexts(contexts, slot, prompts, tasks, prefixes)
    if contexts is not None and states:
        raise ConfigError("states of words are kept of prompts: leave out states=True")
    if tasks is not None:
        texts = prompts_of(read_tasks(tasks))
    else:
        texts = named_prompts("greatest" if prompts is None else prompts)
    if isinstance(prefixes, str | Path):
        prefixes = read_prefixes(str(prefixes))
    several = add_prefixes(texts, prefixes or {}).items()
    answered: Mapping[str, Any] = contexts if isinstance(contexts, Mapping) else {}
    if isinstance(contexts, str | Path):
        answered = find_contexts(contexts, slot)
    model, name = to_reward(model, tasks=tasks, **options), "items"
    if candidates is None and model.tokenizer is None:
        candidates, name = answers(), ANSWERS
    way = parse_choice("mode", mode, Mode) or _default_mode(model, candidates)
    if candidates is None:
        model.spec.require("scan of the vocabulary", "ids" if way is Mode.ids else "text")
    elif not isinstance(candidates, Candidates):
        if way is not Mode.text:
            raise ConfigError(f"mode={mode!r}: candidates are texts, and are scored in mode='text'")
        candidates = item_candidates(candidates, name=name)
    about: dict[str, Any] = {"certain": certain, "batch_size": batch_size, "states": states}
    about |= {"trainer": trainer, "store": store_at(store), "cache": cache, "progress": progress}
    about["prefixed"] = {key: persona for key, (_, persona) in several if persona is not None}
    questions = answered or {key: prompt for key, (prompt, _) in several}
    tables = scan_tables(model, questions, candidates, most=most, mode=way, **about)
    single = tasks is contexts is None and (prompts is None or isinstance(prompts, str))
    return tables[0] if single and len(tables) == 1 else tables


def scan_all(
    model: Reward,
    prompts: Mapping[str, Asked],
    candidates: Candidates | None = None,
    *,
    policy: Reward | None = None,
    answers: int | None = None,
    answer_tokens: int = 8,
    seed: int = 0,
    most: int | None = None,
    ids: Sequence[int] = (),
    n_screened: int | None = None,
    mode: Mode | None = None,
    trainer: TrainerSpec | None = None,
    **options: Any,
) -> Iterator[tuple[Reward, ScoreProvenance, ScoreTable | None]]:
    """The tables of `scan_missing`, with the reward of each: a policy first, where its tokens are
    the candidates.

    Args:
        model: a reward of any kind.
        prompts: prompts or contexts by key.
        candidates: a list; None for the vocabulary, of the policy where there is one.
        policy: a language model whose log-probabilities are scanned first.
        answers: so many answers that the policy writes are the candidates, in place of its tokens.
        answer_tokens: the most tokens of such an answer.
        seed: of the answers.
        most: so many of the vocabulary, the most frequent; all for None and 0.
        ids: of tokens that are scored besides these.
        n_screened: so many of the vocabulary, which the gradient says to add most to contexts.
        mode: what stands in the place of the response; ids for a vocabulary, where a reward takes
            them, and text for others.
        trainer: where networks run; by default where one in memory is, else the CPU.
        options: of `scan_missing`.

    Raises:
        ConfigError: the policy writes no answers.
        Others as of `scan_missing`.
    """
    bar, where = options.get("progress", True), trainer or trainer_for(model)
    if candidates is policy is answers is None:
        _report_rows_without_token(model)
    parts: Iterable[tuple[Reward, Mapping[str, Asked], Candidates, Mode]]
    if answers is not None:
        if not isinstance(policy, LogProbability):
            raise ConfigError(f"answers={answers}: a language model writes them, as policy=NAME")
        causal = policy.network().causal
        how: dict[str, Any] = {"n": answers, "tokens": answer_tokens}
        options["states"] = bool(options.get("states"))
        how |= {"seed": seed, "progress": bar}
        parts = (
            (
                model,
                {key: prompt},
                answers_of(policy, causal, cast(Prompt, prompt), **how),
                Mode.text,
            )
            for key, prompt in prompts.items()
        )
    else:
        parts = []
        if policy is not None:
            tokens = candidates or vocabulary_of(policy)
            parts.append((policy, prompts, tokens, Mode.text if candidates else Mode.ids))
            if candidates is None:
                candidates = tokens_for(model, tokens, name=f"{policy.name}-tokens")
        whole = some = candidates or vocabulary_of(model)
        if candidates is None and most:
            some = whole.frequent(most, ids)
        if n_screened and (network := model.as_network):
            device = make_trainer(where, root=options.get("cache", "")).strategy.root_device
            texts = prompts.values()
            some = screened(network, texts, whole, n=n_screened, device=device, progress=bar)
        parts.append((model, prompts, some, mode or _default_mode(model, candidates)))
        options["whole"] = whole
    for reward, questions, some, way in parts:
        states = {"states": False} if reward is policy else {}
        where = trainer or trainer_for(reward)
        every = scan_missing(reward, questions, some, mode=way, trainer=where, **options | states)
        for provenance, table in every:
            yield reward, provenance, table


def _default_mode(model: Reward, candidates: object | None) -> Mode:
    """Ids for a vocabulary (no `candidates`), where a reward takes them, and text for others."""
    return Mode.ids if candidates is None and "ids" in model.can else Mode.text


def _report_rows_without_token(model: Reward) -> None:
    if not is_first_process():
        return
    rows = model.rows
    assert model.tokenizer is not None
    if beyond := {i: token for token, i in model.tokenizer.get_vocab().items() if i >= rows}:
        message = "%d tokens of the tokenizer of %s have no row in its embedding: left out (%r …)"
        log.warning(message, len(beyond), model.name, beyond[min(beyond)])


def scan_tables(model: Reward, prompts: Mapping[str, Asked], *args, **options) -> list[ScoreTable]:
    """The tables of a scan; those that the store has are read from there. Arguments and errors as
    of `scan_all`."""
    tables = []
    for _, provenance, table in scan_all(model, prompts, *args, **options):
        table = _published(options.get("store"), provenance) if table is None else table
        assert table is not None
        tables.append(table)
    return tables


def scan_missing(
    model: Reward,
    prompts: Mapping[str, Asked],
    candidates: Candidates,
    *,
    trainer: TrainerSpec,
    mode: Mode = Mode.ids,
    prefixed: Mapping[str, Prefixed] | None = None,
    whole: Candidates | None = None,
    certain: int = 100,
    batch_size: int | None = None,
    states: bool | None = None,
    cache: str = "runs/cache",
    store: Store | None = None,
    progress: bool = True,
) -> Iterator[tuple[ScoreProvenance, ScoreTable | None]]:
    """The provenance of each prompt or context, and of each output where every one is scanned, with
    its table; None where the store has it already. The others are published there as soon as they
    are whole.

    Where there are several processes, each runs this: all score, the first publishes.

    Args:
        model: a reward of any kind.
        prompts: prompts or contexts by key.
        candidates: what is scored.
        trainer: where the loop runs.
        mode: what stands in the place of the response.
        prefixed: of prompts behind a prefix: which one, by their keys.
        whole: the vocabulary that the candidates are a part of, of whose time is told.
        certain: k of the tails that are scored again in float32 after a low-precision scan.
        batch_size: candidates a batch; found from the memory there is where None.
        states: keep the last hidden states of words; by default for all but log-probabilities of a
            vocabulary.
        cache: folder for what an interrupted scan leaves (with a store), and for a base.
        store: where tables are published.
        progress: draw a bar where there is a terminal.

    Raises:
        ConfigError: the model's name stands for another model in this store.
        InputError, ModelError: a candidate cannot be asked, or a reward is not a number.
        WorkError: another command is scanning the same.
    """
    quiet_libraries()
    in_contexts = any(isinstance(prompt, Context) for prompt in prompts.values())
    if states is None:
        states = model.keeps_states(of_vocabulary=candidates.is_vocabulary)
    states = states and not in_contexts and model.as_network is not None
    about: dict[str, Any] = {"prefixed": prefixed, "candidates": candidates}
    about |= {"mode": mode, "certain": certain}
    with contextlib.ExitStack() as stack:
        if store is None:
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pessimal-")))
        else:
            work = Path(cache) / "scans"
        first = store is None or is_first_process()
        provenances, todo, before = _unfinished(store, model, prompts, work, **about)
        if store is not None and first:
            for provenance in todo:
                stack.enter_context(locked(work, provenance))
            # What another command has published since is not scanned again.
            published = [] if store.force else store.registry.manifests("score-table")
            keys = {manifest.key for _, manifest in published}
            todo = [provenance for provenance in todo if provenance.key() not in keys]
        live = LiveScan()
        inputs: list[str] = []
        source: dict[str, str] = {}
        scanner: Scanner | None = None
        if todo:
            base = fetch_base(model.spec, model.files, cache=cache) if states else None
            plan = ScanPlan(
                work=work,
                trainer=trainer,
                root=work if store is None else cache,
                batch_size=batch_size,
                progress=progress,
                again=store is not None and store.force,
                report=live.report,
            )
            options: dict[str, Any] = {"before": read_score_table(before) if before else None}
            options |= {"states": states, "base": base}
            finished = functools.partial(_published, store)
            scanner = make_scanner(model, todo, candidates, plan, finished=finished, **options)
            if store is not None and first and in_contexts and (rate := scanner.rate(todo[0])):
                _announce(len(todo), candidates, whole or candidates, rate)
            if store is not None:
                inputs, source = reward_inputs(store.registry, model)
                name = f"scan {model.name}"
                live.mirror = stack.enter_context(
                    store.track(name=name, inputs=inputs, first=first, task="scan")
                )
        left = {provenance.key() for provenance in todo}
        for _, outputs in itertools.groupby(provenances, key=lambda p: p.prompt):
            for provenance in (several := list(outputs)):
                if provenance.key() not in left:
                    yield provenance, None
                    continue
                assert scanner is not None
                started = time.monotonic()
                table = scanner.scan(provenance)
                if store is not None and first:
                    live.finish(len(table.rows), time.monotonic() - started)
                    for term in scanner.terms_of(provenance):
                        key = term.provenance.key()
                        if store.force or store.registry.find("score-table", key) is None:
                            _publish(store.registry, live.mirror, term, [], {})
                    _publish(store.registry, live.mirror, table, inputs, source)
                wait_for_all()
                yield provenance, table
            if store is not None and first and left & {provenance.key() for provenance in several}:
                forget_work(work, engine_pass_provenance(model, several[0]))


def _published(store: Store | None, provenance: ScoreProvenance) -> ScoreTable | None:
    """The published table; None where there is none, or all is made anew."""
    published = None if store is None else store.find("score-table", provenance.key())
    return read_score_table(published[0]) if published else None


def _publish(
    registry: Registry, mirror: Mirror, table: ScoreTable, inputs: Sequence[str], source: dict
) -> None:
    """A finished table goes to the registry, then to W&B."""
    prompt, figures = table.provenance.prompt, _figures(table)
    more = {"mode": table.provenance.mode, **table.measured}
    folder, _ = publish_table(
        registry, mirror, table, inputs=inputs, summary=figures | source, more=more
    )
    log.debug("%s", folder / "scores.parquet")
    mirror.table(f"{prompt}/extremes", extremes(table.rows, k=20))
    mirror.summary({f"{prompt}/{name}": value for name, value in figures.items()})


class LiveScan:
    """Sends to W&B how fast a scan is, while it lasts: `scan/*` against the candidates scored so
    far, of all prompts."""

    def __init__(self):
        self.mirror = Mirror()
        self.before, self.done = 0, 0
        """Candidates scored in passes that have ended, and in this one."""

    def report(self, done: int, rate: float, batch_size: int) -> None:
        """Send the candidates of this pass that are scored, and their number per second."""
        if done < self.done:
            self.before, self.done = self.before + self.done, 0
        self.done = done
        self._send({"scan/candidates_per_second": rate, "scan/batch_size": batch_size})

    def finish(self, n: int, seconds: float) -> None:
        """A prompt's n candidates took so many seconds, checks and second passes included."""
        self.before, self.done = self.before + (self.done or n), 0
        self._send({"scan/seconds": seconds})

    def _send(self, values: dict[str, float]) -> None:
        self.mirror.metrics({"scan/candidates": self.before + self.done, **values})


def _announce(contexts: int, candidates: Candidates, whole: Candidates, rate: float) -> None:
    """Log the time that it will take, and that of the whole vocabulary."""
    n, every = len(candidates.rows), len(whole.rows)
    lasts, fast = duration(n * contexts / rate), speed(rate)
    log.info("%d tokens in %d answers take about %s, at %s a second", n, contexts, lasts, fast)
    if n < every:
        lasts = duration(every * contexts / rate)
        log.info("all %d tokens would take about %s (candidates.most=0)", every, lasts)


def _unfinished(
    store: Store | None, model: Reward, prompts: Mapping[str, Asked], work: Path, **about: Any
) -> tuple[list[ScoreProvenance], list[ScoreProvenance], Path | None]:
    """The tables of a scan (`about`: as of `identify_all`), those that are still to be scanned, and
    the last finished one before. Logs the finished, and refuses a name that stands for another
    model."""
    provenances = identify_all(model, prompts, **about)
    if store is None:
        return provenances, provenances, None
    newest = {pair[1].name: pair for pair in store.registry.latest("score-table")}
    todo: list[ScoreProvenance] = []
    finished: list[tuple[ScoreProvenance, Path]] = []
    before = None
    for provenance in provenances:
        published = store.find("score-table", provenance.key())
        if published is None:
            todo.append(provenance)
            continue
        folder, manifest = published
        finished.append((provenance, folder))
        newest_folder, newest_manifest = newest[safe_name(provenance.name)]
        if newest_manifest.version != manifest.version:
            message = "%s is newer and of other content: `compare` takes that; or type tables=%s"
            log.warning(message, newest_folder, folder)
        before = before if todo else folder
    if finished and is_first_process():
        keys = dict.fromkeys(provenance.prompt for provenance, _ in finished)
        names = dict.fromkeys(provenance.model for provenance, _ in finished)
        message = "%s is scanned already on %s (force=true scans again)"
        log.info(message, ", ".join(names), ", ".join(keys))
        wanted = {engine_pass_provenance(model, provenance).key() for provenance in todo}
        for provenance, folder in finished:
            if (pass_provenance := engine_pass_provenance(model, provenance)).key() not in wanted:
                forget_work(work, pass_provenance, published=folder)
    if todo and not store.force:
        _check_name(todo, newest.values())
    return provenances, todo, before


def _check_name(todo: Sequence[ScoreProvenance], newest: Iterable[tuple[Path, Manifest]]) -> None:
    """ConfigError where the newest scan of another prompt, precision, mode or candidate set under
    the model's name, or whatever is published under a name that is to be given, is of another
    model: a comparison would mix the two."""
    names = {safe_name(provenance.name) for provenance in todo}
    mine = todo[0]
    for folder, manifest in newest:
        if manifest.name not in names and manifest.summary.get("model") != mine.model:
            continue
        other = read_provenance(folder)
        # Imported scores carry the digest of their file in place of the weights'.
        same_kind = other.source == "scan" and other.score == mine.score
        comparable = manifest.name in names or same_kind
        digests = ("weights_digest", "config_digest", "kind")
        if comparable and any(getattr(other, d) != getattr(mine, d) for d in digests):
            again = f"type model.name={run_of(mine.model)}-2, or force=true for a new version"
            raise ConfigError(f"{mine.model!r} stands for other weights in {folder}: {again}")


def _figures(table: ScoreTable) -> dict:
    """The figures of one prompt in a list of runs."""
    rows, provenance = table.rows, table.provenance
    survives = None if rows["survives"].isna().all() else float(rows["survives"].mean())
    figures = {
        "kind": provenance.kind,
        "n": len(rows),
        "optimal": rows.loc[rows["reward"].idxmax(), "text"],
        "pessimal": rows.loc[rows["reward"].idxmin(), "text"],
        "mean": float(rows["reward"].mean()),
        "standard_deviation": float(rows["reward"].std(ddof=0)),
        "certified_share": float(rows["certified"].mean()),
        "survives_share": survives,
        "trust_largest_difference": (table.measured["trust"] or {}).get("largest_difference"),
    }
    is_reward = provenance.score != LOG_PROBABILITY
    return figures if is_reward else figures | {"score": LOG_PROBABILITY}


def forecast(
    model: Reward | ScoreTable | str | Path | Any,
    policy: Reward | ScoreTable | str | Path,
    prompt: str | Mapping[str, Any] = "greatest",
    *,
    mitigations: Sequence[str] = (),
    answers: int | None = None,
    answer_tokens: int = 8,
    seed: int = 0,
    trainer: TrainerSpec | None = None,
    store: Store | str | Path | None = None,
    cache: str = "runs/cache",
    progress: bool = True,
    **options,
) -> Results:
    """The effect of optimising a reward on a policy's one-token answers, exactly, by the KL spent;
    or to longer ones, from answers that it writes, as far as these reach.

    Args:
        model: of `load` or `reward`, or what these take; or its score table.
        policy: a language model, likewise; or its log-probabilities, of `scan`.
        prompt: as for `scan`.
        mitigations: other rewards to forecast beside it: without:FEATURE, null_space:AXIS or
            mix:MODEL.
        answers: how many answers the policy writes, in place of all of one token.
        answer_tokens: most tokens of such an answer.
        seed: of what it writes.
        trainer, store, cache, progress: as for `scan`.
        options: as of `pessimal compare`, such as `lexicons={"mine": "valence.csv"}`.

    Returns:
        Results: `forecast`, `forecast_drift`, `forecast_tokens`, and `forecast_mitigations`.

    Raises:
        ConfigError, ModelError, TableError: one of them cannot be scanned, or nothing can be
            forecast from both; says why.
    """
    if isinstance(policy, str | Path):
        policy = load(str(policy), kind="log_probability", cache=cache)
    texts = named_prompts(prompt)
    states = any(mitigation.startswith("null_space") for mitigation in mitigations)
    how: dict[str, Any] = {"trainer": trainer, "store": store_at(store)}
    how |= {"cache": cache, "progress": progress}
    if answers is not None and (isinstance(model, ScoreTable) or isinstance(policy, ScoreTable)):
        raise ConfigError("answers=N: give a reward and a language model that writes, no table")
    if isinstance(policy, ScoreTable):
        name, tables = policy.provenance.model, [policy]
        if not isinstance(model, ScoreTable):
            reward = to_reward(model)
            words = tokens_for(reward, Candidates("vocabulary", policy.rows), name=f"{name}-tokens")
            tables += scan_tables(reward, texts, words, states=states, **how)
    elif isinstance(model, ScoreTable):
        name, tables = policy.name, scan_tables(policy, texts, states=False, **how)
    else:
        name, sampling = (
            policy.name,
            {"answer_tokens": answer_tokens, "seed": seed, "states": states},
        )
        tables = scan_tables(
            to_reward(model), texts, policy=policy, answers=answers, **sampling, **how
        )
    if isinstance(model, ScoreTable):
        tables.append(model)
    settings = {"policy": name, "mitigations": list(mitigations), **options}
    sets, read, _ = join_tables(tables, settings)
    return Results(analyse(next(table_set for table_set in sets if table_set.models), read))
