"""`pessimal scan`: one model, every candidate, every prompt; a score table each, published as soon
as it is whole."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pessimal.api.grade import census
from pessimal.api.scan import scan_missing
from pessimal.catalogue import ANSWERS
from pessimal.config.schema import ScanConfig
from pessimal.config.schema.scan import CENSUS, SCREENED, CandidatesSpec
from pessimal.conversation import Asked
from pessimal.errors import ConfigError
from pessimal.progress import quiet_libraries
from pessimal.rewards.base import NetworkReward, Reward
from pessimal.rewards.log_probability import LogProbability
from pessimal.rewards.obtain import open_reward
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
from pessimal.scoring.contexts import of_comparison, read_contexts, sample
from pessimal.scoring.sampling import answers_of
from pessimal.scoring.screen import screened
from pessimal.scoring.trainer import begin_process, is_first_process, make_trainer
from pessimal.tables import ScoreTable, read_score_table
from pessimal.tables.comparisons import load
from pessimal.verbs.common import registry_of, store_of
from pessimal.verbs.publish import print_headlines, print_path
from pessimal.verbs.scan_table import print_extremes, print_tables

log = logging.getLogger(__name__)

WHOLE = ("vocabulary", ANSWERS)
"""Names of the candidates that are taken where none are typed."""


def run(config: ScanConfig) -> None:
    """Scan `config.model` on every prompt; tables that are finished already are named, not made
    again.

    Where there are several processes, each runs this: all score, the first publishes.
    """
    config = config.resolve()
    if config.candidates.name == CENSUS:
        grader = open_reward(config.model, cache=config.paths.cache)
        results = census(grader, store=store_of(config), progress=config.progress)
        print_headlines(results, title=f"Census of {grader.name}")
        assert results.folder is not None
        return print_path(results.folder)
    for model, folders in scanned(config):
        if is_first_process():
            print_extremes(model, folders)
            print_tables(registry_of(config), folders)


def scanned(config: ScanConfig, model: Reward | None = None) -> Iterator[tuple[str, list[Path]]]:
    """The name of each model that is scanned, a policy first, and the folders of its tables in the
    registry; those that are there already are not made again. `model` is that of the configuration
    where it is open already."""
    config, said = config.resolve(), None
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
    quiet_libraries()
    first = begin_process(config.trainer)
    store = store_of(config)
    listed_items = written or _listed(config.candidates)
    contexts = contexts_of(config)
    model = model or open_reward(config.model, cache=config.paths.cache)
    if policy is not None and config.candidates.name in WHOLE:
        config, listed_items = _tokens_of(read_score_table(policy), model, config)
    whole = listed_items or vocabulary_of(model)
    most, ids = config.candidates.most, config.candidates.ids
    candidates = whole.frequent(most, ids) if most else whole
    if config.screens and isinstance(model, NetworkReward):
        device = make_trainer(config.trainer, root=config.paths.cache).strategy.root_device
        asked, bar = contexts.values(), config.progress
        candidates = screened(model, asked, whole, n=SCREENED, device=device, progress=bar)
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
    scans = scan_missing(
        model,
        contexts or {key: prompt for key, (prompt, _) in prompts.items()},
        candidates,
        prefixed={key: behind for key, (_, behind) in prompts.items() if behind is not None},
        mode=config.asked_as,
        whole=whole,
        certain=config.certain,
        trainer=config.trainer,
        batch_size=config.batch_size,
        states=config.states,
        cache=config.paths.cache,
        store=store,
        progress=config.progress,
    )
    published = [store.registry.find("score-table", one.key()) for one, _ in scans]
    return model.name, [found[0] for found in published if found]


def _tokens_of(
    said: ScoreTable, model: Reward, config: ScanConfig
) -> tuple[ScanConfig, Candidates | None]:
    """The configuration with a policy's tokens as candidates, and these; the vocabulary and None
    where the model has the same one."""
    if "ids" in model.can and has_tokens_of(said, model):
        return replace(config, candidates=CandidatesSpec(), mode=Mode.ids), None
    spec = CandidatesSpec(f"{said.provenance.model}-tokens", None, texts_of(said))
    return replace(config, candidates=spec, mode=Mode.text), _listed(spec)


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
