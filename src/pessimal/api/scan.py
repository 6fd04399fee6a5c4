"""`pessimal.scan`: score every token of the vocabulary, or some texts, as the answer to prompts."""

import contextlib
import functools
import itertools
import logging
import re
import resource
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch

from pessimal.api.load import parse_choice, to_reward, trainer_for
from pessimal.api.store import Store, publish_table, reward_inputs, store_at
from pessimal.catalogue import ANSWERS, answers, named_prompts, run_of
from pessimal.conversation import Asked, Context, Prefixed, Prompt, read_prefixes, with_prefixes
from pessimal.errors import ConfigError
from pessimal.progress import quiet_libraries
from pessimal.rewards.base import Reward
from pessimal.rewards.log_probability import LogProbability
from pessimal.rewards.obtain import fetch_base
from pessimal.rewards.spec import Mode
from pessimal.rewards.tasks import prompts_of, read_tasks
from pessimal.scoring.candidates import (
    Candidates,
    listed,
    tokens_for,
    vocabulary_of,
)
from pessimal.scoring.contexts import check_contexts, read_contexts
from pessimal.scoring.identify import forget_work, identify_all, locked, of_pass
from pessimal.scoring.loop import wait_for_all
from pessimal.scoring.proposals import answers_of, screened
from pessimal.scoring.scan import make_scanner
from pessimal.scoring.scan_texts import Scanner, ScanPlan
from pessimal.scoring.spec import TrainerSpec
from pessimal.scoring.trainer import is_first_process, make_trainer
from pessimal.tables import ScoreProvenance, ScoreTable, read_score_table
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
    if tasks is not None and prompts is not None:
        raise ConfigError("tasks has prompts of its own: leave out prompts, or tasks")
    check_contexts(contexts, slot, prompts, tasks, prefixes)
    if contexts is not None and states:
        raise ConfigError("states of words are kept of prompts: leave out states=True")
    if tasks is not None:
        named = prompts_of(read_tasks(tasks))
    else:
        named = named_prompts("greatest" if prompts is None else prompts)
    if isinstance(prefixes, str | Path):
        prefixes = read_prefixes(str(prefixes))
    several = with_prefixes(named, prefixes or {})
    answered: Mapping[str, Any] = {}
    if isinstance(contexts, Mapping):
        answered = contexts
    elif contexts is not None:
        answered = read_contexts(str(contexts), slot)
    model, name = to_reward(model, tasks=tasks, **options), "items"
    if candidates is None and model.tokenizer is None:
        candidates, name = answers(), ANSWERS
    way = parse_choice("mode", mode, Mode) or _default_mode(model, candidates)
    if candidates is None:
        model.spec.require("scan of the vocabulary", "ids" if way is Mode.ids else "text")
    elif not isinstance(candidates, Candidates):
        if way is not Mode.text:
            raise ConfigError(f"mode={mode!r}: candidates are texts, and are scored in mode='text'")
        candidates = listed(candidates, name=name)
    tables = scan_tables(
        model,
        answered or {key: prompt for key, (prompt, _) in several.items()},
        candidates,
        most=most,
        prefixed={key: behind for key, (_, behind) in several.items() if behind is not None},
        mode=way,
        certain=certain,
        trainer=trainer,
        store=store_at(store),
        cache=cache,
        batch_size=batch_size,
        states=states,
        progress=progress,
    )
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
    """What `scan_missing` gives, with the reward that was asked: a policy first, where its tokens
    are the candidates.

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
    bar = options.get("progress", True)
    parts: Iterable[tuple[Reward, Mapping[str, Asked], Candidates, Mode]]
    if answers is not None:
        if not isinstance(policy, LogProbability):
            raise ConfigError(f"answers={answers}: a language model writes them, as policy=NAME")
        causal, how = policy.network().causal, {"n": answers, "tokens": answer_tokens}
        options["states"] = bool(options.get("states"))
        parts = (
            (model, {key: prompt}, written, Mode.text)
            for key, prompt in prompts.items()
            for written in [
                answers_of(policy, causal, cast(Prompt, prompt), seed=seed, progress=bar, **how)
            ]
        )
    else:
        parts = []
        if policy is not None:
            tokens = candidates or vocabulary_of(policy)
            parts.append((policy, prompts, tokens, Mode.text if candidates else Mode.ids))
            if candidates is None:
                candidates = tokens_for(model, tokens, name=f"{policy.name}-tokens")
        whole = some = candidates or vocabulary_of(model)
        if candidates is None:
            _report_rows_without_token(model)
            some = whole.frequent(most, ids) if most else whole
        if n_screened and (network := model.as_network):
            where, cache = trainer or trainer_for(model), options.get("cache", "")
            device = make_trainer(where, root=cache).strategy.root_device
            texts = prompts.values()
            some = screened(network, texts, whole, n=n_screened, device=device, progress=bar)
        parts.append((model, prompts, some, mode or _default_mode(model, candidates)))
        options["whole"] = whole
    for reward, asked, some, way in parts:
        states = {"states": False} if reward is policy else {}
        where = trainer or trainer_for(reward)
        every = scan_missing(reward, asked, some, mode=way, trainer=where, **options | states)
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
    beyond = {i: token for token, i in model.tokenizer.get_vocab().items() if i >= rows}
    if beyond:
        log.warning(
            "%d tokens of the tokenizer of %s have no row in its embedding of %d, and no score: "
            "they are left out (such as %r)",
            len(beyond),
            model.name,
            rows,
            beyond[min(beyond)],
        )


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
    """What is asked of each prompt or context, and of each output where every one is scanned, with
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
    asked = identify_all(
        model, prompts, prefixed=prefixed, candidates=candidates, mode=mode, certain=certain
    )
    with contextlib.ExitStack() as stack:
        if store is None:
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pessimal-")))
        else:
            work = Path(cache) / "scans"
        first = store is None or is_first_process()
        todo, before = (asked, None) if store is None else _unfinished(store, model, asked, work)
        if store is not None and first:
            for provenance in todo:
                stack.enter_context(locked(work, provenance))
            # What another command has published since is not scanned again.
            todo = [i for i in todo if not store.find("score-table", i.key())]
        live = LiveScan()
        inputs: list[str] = []
        source: dict[str, str] = {}
        scanner: Scanner | None = None
        if todo:
            base = None
            if states:
                base = fetch_base(model.spec, model.files, cache=cache)
            plan = ScanPlan(
                work=work,
                trainer=trainer,
                root=work if store is None else cache,
                batch_size=batch_size,
                progress=progress,
                again=store is not None and store.force,
                report=live.report,
            )
            scanner = make_scanner(
                model,
                todo,
                candidates,
                plan,
                before=read_score_table(before) if before else None,
                states=states,
                base=base,
                finished=functools.partial(_published, store),
            )
            if store is not None and first and in_contexts and (rate := scanner.rate(todo[0])):
                _announce(len(todo), candidates, whole or candidates, rate)
            if store is not None:
                inputs, source = reward_inputs(store.registry, model)
                name = f"scan {model.name}"
                live.mirror = stack.enter_context(
                    store.track(name=name, inputs=inputs, first=first, task="scan")
                )
        left = {provenance.key() for provenance in todo}
        for _, outputs in itertools.groupby(asked, key=lambda one: one.prompt):
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
                        if store.find("score-table", term.provenance.key()) is None:
                            _publish(store.registry, live.mirror, term, [], {})
                    _publish(store.registry, live.mirror, table, inputs, source)
                wait_for_all()
                yield provenance, table
            if store is not None and first and left & {one.key() for one in several}:
                forget_work(work, of_pass(model, several[0]))


def _published(store: Store | None, provenance: ScoreProvenance) -> ScoreTable | None:
    """The published table; None where there is none, or all is made anew."""
    found = None if store is None else store.find("score-table", provenance.key())
    return read_score_table(found[0]) if found else None


def _publish(
    registry: Registry,
    mirror: Mirror,
    table: ScoreTable,
    inputs: Sequence[str],
    source: dict,
) -> None:
    """A finished table goes to the registry, then to W&B."""
    provenance, figures = table.provenance, _figures(table)
    mirror.summary({f"{provenance.prompt}/{name}": value for name, value in figures.items()})
    mirror.table(f"{provenance.prompt}/extremes", extremes(table.rows, k=20))
    more = {"mode": provenance.mode, **table.measured}
    folder, _ = publish_table(
        registry, mirror, table, inputs=inputs, summary=figures | source, more=more
    )
    log.debug("%s", folder / "scores.parquet")


class LiveScan:
    """Sends to W&B how fast a scan is, while it lasts: `scan/*` against the candidates scored so
    far, of all prompts."""

    def __init__(self):
        self.mirror = Mirror()
        self.before, self.done = 0, 0
        """Candidates scored in passes that have ended, and in this one."""

    def report(self, done: int, rate: float, batch_size: int) -> None:
        """So many candidates of this pass are scored, so many a second."""
        if done < self.done:
            self.before, self.done = self.before + self.done, 0
        self.done = done
        self._send({"scan/candidates_per_second": rate, "scan/batch_size": batch_size})

    def finish(self, n: int, seconds: float) -> None:
        """A prompt's n candidates took so many seconds, checks and second passes included."""
        self.before, self.done = self.before + (self.done or n), 0
        self._send({"scan/seconds": seconds})

    def _send(self, values: dict[str, float]) -> None:
        self.mirror.metrics(
            {"scan/candidates": self.before + self.done, "scan/memory_gb": _memory_gb(), **values}
        )


def _memory_gb() -> float:
    """The most memory that this process has had: on its card where it has one, else on the
    machine."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e9
    status = Path("/proc/self/status")
    if status.exists() and (most := re.search(r"VmHWM:\s+(\d+) kB", status.read_text())):
        return int(most[1]) * 1024 / 1e9
    # On Linux this is at least that of the process that started this one.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def _announce(contexts: int, candidates: Candidates, whole: Candidates, rate: float) -> None:
    """How long it will take, and how long with the whole vocabulary."""
    n, every = len(candidates.rows), len(whole.rows)
    lasts, fast = duration(n * contexts / rate), speed(rate)
    log.info("%d tokens in %d answers take about %s, at %s a second", n, contexts, lasts, fast)
    if n < every:
        log.info(
            "these are %s, and the special ones; all %d would take about %s (candidates.most=0)",
            "what the gradient says to add most"
            if candidates.name.startswith("screened")
            else "the most frequent",
            every,
            duration(every * contexts / rate),
        )


def _unfinished(
    store: Store, model: Reward, asked: Sequence[ScoreProvenance], work: Path
) -> tuple[list[ScoreProvenance], Path | None]:
    """What is still to be scanned, and the last finished table before that. Says what is finished,
    and refuses a name that stands for another model."""
    newest = {
        manifest.name: (folder, manifest)
        for folder, manifest in store.registry.latest("score-table")
    }
    todo: list[ScoreProvenance] = []
    finished: list[tuple[ScoreProvenance, Path]] = []
    before = None
    for provenance in asked:
        published = store.find("score-table", provenance.key())
        if published is None:
            todo.append(provenance)
            continue
        folder, manifest = published
        finished.append((provenance, folder))
        last, last_manifest = newest[safe_name(provenance.name)]
        if last_manifest.version != manifest.version:
            log.warning(
                "%s is newer and of other content: `compare` takes that one. Name this one to "
                "compare it: tables=%s",
                last,
                folder,
            )
        before = before if todo else folder
    if finished and is_first_process():
        prompts = dict.fromkeys(provenance.prompt for provenance, _ in finished)
        names = dict.fromkeys(provenance.model for provenance, _ in finished)
        said = "%s is scanned already on %s (force=true scans again)"
        log.info(said, ", ".join(names), ", ".join(prompts))
        wanted = {of_pass(model, provenance).key() for provenance in todo}
        for provenance, folder in finished:
            if (one := of_pass(model, provenance)).key() not in wanted:
                forget_work(work, one, published=folder)
    if todo and not store.force:
        _check_name(todo, newest.values())
    return todo, before


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
        comparable = manifest.name in names or (
            other.source == "scan" and other.score == mine.score
        )
        if comparable and _what_scored(other) != _what_scored(mine):
            raise ConfigError(
                f"{mine.model!r} stands for other weights, or another configuration, in this "
                f"registry ({folder}). Name this model: model.name={run_of(mine.model)}-2; or, if "
                "it is the same one trained on, make a new version: force=true"
            )


def _what_scored(provenance: ScoreProvenance) -> tuple:
    """Which model's scores a table holds."""
    return provenance.weights_digest, provenance.config_digest, provenance.kind


def _figures(table: ScoreTable) -> dict:
    """What a list of runs should show for one prompt."""
    rows = table.rows
    kind = {"kind": table.provenance.kind}
    if table.provenance.score == LOG_PROBABILITY:
        kind["score"] = LOG_PROBABILITY
    return kind | {
        "n": len(rows),
        "optimal": rows.loc[rows["reward"].idxmax(), "text"],
        "pessimal": rows.loc[rows["reward"].idxmin(), "text"],
        "mean": float(rows["reward"].mean()),
        "standard_deviation": float(rows["reward"].std(ddof=0)),
        "certified_share": float(rows["certified"].mean()),
        "survives_share": None if rows["survives"].isna().all() else float(rows["survives"].mean()),
        "trust_largest_difference": (table.measured["trust"] or {}).get("largest_difference"),
    }
