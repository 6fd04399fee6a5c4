"""`pessimal scan`: one model, every candidate, every prompt; a score table each, published as soon
as it is whole."""

import contextlib
import itertools
import logging
import re
import resource
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from pessimal.catalogue import ANSWERS, run_of
from pessimal.config.schema import ScanConfig
from pessimal.config.schema.scan import CENSUS, SCREENED, CandidatesSpec
from pessimal.conversation import Asked
from pessimal.errors import ConfigError
from pessimal.explaining.comparison import load
from pessimal.explaining.contexts import of_comparison, read_contexts, sample
from pessimal.progress import quiet_libraries
from pessimal.rewards.base import NetworkReward, Reward
from pessimal.rewards.log_probability import LogProbability
from pessimal.rewards.obtain import fetch_base, open_reward
from pessimal.rewards.spec import Mode
from pessimal.scoring.candidates import (
    Candidates,
    has_tokens_of,
    items,
    listed,
    rows_of,
    texts_of,
    vocabulary_of,
)
from pessimal.scoring.identify import forget_work, identify_all, locked, of_pass
from pessimal.scoring.loop import wait_for_all
from pessimal.scoring.sampling import answers_of
from pessimal.scoring.scan import Scanner, keeps_states
from pessimal.scoring.screen import screened
from pessimal.scoring.trainer import begin_process, is_first_process, make_trainer
from pessimal.tables import ScoreProvenance, ScoreTable, read_score_table
from pessimal.tables.extremes import extremes
from pessimal.tables.score_table import LOG_PROBABILITY, read_provenance
from pessimal.texts import duration, safe_name, speed
from pessimal.tracking.mirror import Mirror
from pessimal.tracking.registry import Manifest, Registry
from pessimal.verbs.common import model_inputs, publish_table, registry_of, tracked
from pessimal.verbs.scan_table import print_extremes, print_tables

log = logging.getLogger(__name__)

WHOLE = ("vocabulary", ANSWERS)
"""Names of the candidates that are taken where none are typed."""


def run(config: ScanConfig) -> None:
    """Scan `config.model` on every prompt; tables that are finished already are named, not made
    again.

    Where there are several processes, each runs this: all score, the first publishes.
    """
    if config.candidates.name == CENSUS:
        from pessimal.verbs import scan_grader

        scan_grader.run(config)
        return
    for model, folders in scanned(config):
        if is_first_process():
            print_extremes(model, folders)
            print_tables(registry_of(config), folders)


def scanned(config: ScanConfig, model: Reward | None = None) -> Iterator[tuple[str, list[Path]]]:
    """The name of each model that is scanned, a policy first, and the folders of its tables in the
    registry; those that are there already are not made again. `model` is that of the configuration
    where it is open already."""
    said = None
    if config.answers is not None:
        yield from _scan_written(config)
        return
    if config.policy is not None:
        of_lists = config.candidates if config.candidates.name not in WHOLE else CandidatesSpec()
        mode = Mode.ids if of_lists.name in WHOLE else Mode.text
        policy = replace(config, model=config.policy_spec(), policy=None, states=False)
        name, folders = _scan(replace(policy, candidates=of_lists, mode=mode))
        yield name, folders
        said = folders[0]
    yield _scan(config, said, model=model)


def _scan_written(config: ScanConfig) -> Iterator[tuple[str, list[Path]]]:
    """The reward of answers that the policy writes, prompt by prompt."""
    assert config.answers is not None
    policy = open_reward(config.policy_spec(), cache=config.paths.cache)
    if not isinstance(policy, LogProbability):
        raise ConfigError(f"policy={config.policy}: {policy.name} writes no answers")
    network = policy.network()
    for key, (prompt, _) in config.asked().items():
        written = answers_of(
            *(policy, network.causal, prompt),
            n=config.answers,
            tokens=config.answer_tokens,
            seed=config.seed,
            progress=config.progress,
        )
        kept = bool(config.states)
        one = replace(config, prompts={key: prompt}, policy=None, answers=None, states=kept)
        yield _scan(one, written=written)


def _scan(
    config: ScanConfig,
    policy: Path | None = None,
    *,
    written: Candidates | None = None,
    model: Reward | None = None,
) -> tuple[str, list[Path]]:
    """The model's name and the folders of the tables; candidates are those of a policy's table
    where one is given and the model's own are others."""
    # 1. What is asked, of which model.
    quiet_libraries()
    first = begin_process(config.trainer)
    registry = registry_of(config)
    listed_items = written or _listed(config.candidates)
    contexts = contexts_of(config)
    model = model or open_reward(config.model, cache=config.paths.cache)
    folder = model.folder if isinstance(model, NetworkReward) else None
    if policy is not None and config.candidates.name in WHOLE:
        config, listed_items = _tokens_of(read_score_table(policy), model, config)
    whole = listed_items or vocabulary_of(model)
    most, ids = config.candidates.most, config.candidates.ids
    candidates = whole.frequent(most, ids) if most else whole
    if config.screens and isinstance(model, NetworkReward):
        device = make_trainer(config.trainer, root=config.paths.cache).strategy.root_device
        candidates = screened(
            model,
            contexts.values(),
            whole,
            n=SCREENED,
            device=device,
            progress=config.progress,
        )
    if config.candidates.name == ANSWERS and first:
        log.info(
            "%s has no vocabulary of its own: it is asked %d answers of all sorts "
            "(candidates=answers). model.tokenizer=DIR_OR_ID scans one, candidates=items a list",
            model.name,
            len(candidates.rows),
        )
    if first and not listed_items:
        _report_rows_without_token(model)
    prompts = {} if contexts else config.asked()
    asked = identify_all(
        model,
        contexts or {key: prompt for key, (prompt, _) in prompts.items()},
        prefixed={key: behind for key, (_, behind) in prompts.items() if behind is not None},
        candidates=candidates,
        mode=config.asked_as,
        certain=config.certain,
    )
    # 2. What is still to be done.
    work = Path(config.paths.cache) / "scans"
    todo, before = _unfinished(registry, model, asked, work, force=config.force)
    with contextlib.ExitStack() as locks:
        if first:
            for provenance in todo:
                locks.enter_context(locked(work, provenance))
            # What another command has published since is not scanned again.
            todo = [i for i in todo if config.force or not registry.find("score-table", i.key())]
        # 3. One prompt after the other; the first process publishes.
        if todo:
            live = LiveScan()
            base = None
            states = keeps_states(model, candidates, config.states)
            if states:
                base = fetch_base(config.model, folder, cache=config.paths.cache)

            def finished(term: ScoreProvenance) -> ScoreTable | None:
                found = None if config.force else registry.find("score-table", term.key())
                return read_score_table(found[0]) if found else None

            scanner = Scanner(
                model,
                todo,
                candidates,
                work=work,
                trainer=config.trainer,
                root=config.paths.cache,
                batch_size=config.batch_size,
                progress=config.progress,
                again=config.force,
                report=live.report,
                before=read_score_table(before) if before else None,
                states=states,
                base=base,
                finished=finished,
            )
            if first and contexts and (rate := scanner.rate(todo[0])):
                _announce(len(todo), candidates, whole, rate)
            inputs, source = model_inputs(registry, model)
            name = f"scan {model.name}"
            with tracked(config, name=name, inputs=inputs, first=first) as live.mirror:
                for _, outputs in itertools.groupby(todo, key=lambda one: one.prompt):
                    for provenance in (several := list(outputs)):
                        started = time.monotonic()
                        table = scanner.scan(provenance)
                        if first:
                            live.finish(len(table.rows), time.monotonic() - started)
                            for term in scanner.terms.get(provenance.key(), []):
                                if finished(term.provenance) is None:
                                    _publish(registry, live.mirror, term, [], {})
                            _publish(registry, live.mirror, table, inputs, source)
                        wait_for_all()
                    if first:  # all outputs are of one pass
                        forget_work(work, of_pass(model, several[0]))
    published = [registry.find("score-table", provenance.key()) for provenance in asked]
    return model.name, [one[0] for one in published if one]


def _tokens_of(
    said: ScoreTable, model: Reward, config: ScanConfig
) -> tuple[ScanConfig, Candidates | None]:
    """The configuration with a policy's tokens as candidates, and these; the vocabulary and None
    where the model has the same one."""
    if "ids" in model.can and has_tokens_of(said, model):
        return replace(config, candidates=CandidatesSpec(), mode=Mode.ids), None
    spec = CandidatesSpec(f"{said.provenance.model}-tokens", None, texts_of(said))
    return replace(config, candidates=spec, mode=Mode.text), _listed(spec)


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


def contexts_of(config: ScanConfig) -> dict[str, Asked]:
    """The real answers that candidates are put into; none where prompts are asked."""
    if not config.in_answers:
        return {}
    slot = config.slot and config.slot.value
    if config.contexts is not None:
        found = read_contexts(config.contexts, slot)
    else:
        given = config.comparisons
        comparisons = load(
            given.source.value,
            path=Path(given.path).expanduser() if given.path else None,
            revision=given.revision,
            split=given.split,
            subset=given.subset,
        ).comparisons
        some = [one for one in comparisons if not given.single_turn or len(one.turns) == 1]
        found = {one.key: of_comparison(one, slot or "after") for one in some}
    return {**sample(found, config.n_contexts, seed=config.seed)}


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


def _listed(spec: CandidatesSpec) -> Candidates | None:
    """The list of items, read before any model is fetched; None for the vocabulary, which the model
    brings."""
    if spec.name == "vocabulary":
        return None
    if spec.path is None:
        return listed(spec.texts, name=spec.name, where=f"candidates={spec.name}")
    return items(Path(spec.path).expanduser(), name=spec.name)


def _report_rows_without_token(model: Reward) -> None:
    rows = rows_of(model)
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


def _unfinished(
    registry: Registry,
    model: Reward,
    asked: Sequence[ScoreProvenance],
    work: Path,
    *,
    force: bool,
) -> tuple[list[ScoreProvenance], Path | None]:
    """What is still to be scanned, and the last finished table before that. Says what is finished,
    and refuses a name that stands for another model."""
    newest = {
        manifest.name: (folder, manifest) for folder, manifest in registry.latest("score-table")
    }
    todo: list[ScoreProvenance] = []
    finished: list[tuple[ScoreProvenance, Path]] = []
    before = None
    for provenance in asked:
        published = registry.find("score-table", provenance.key())
        if force or not published:
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
    if todo and not force:
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
