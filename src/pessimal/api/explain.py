"""`pessimal.explain`: why a model prefers one response to another."""

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from pessimal.api.load import device_of, to_reward
from pessimal.api.store import Artifact, Store, publish, reward_inputs
from pessimal.config.compose import configuration, plain
from pessimal.config.schema import ExplainConfig
from pessimal.errors import ConfigError
from pessimal.explaining.analyses.agreement import examples as choose_examples
from pessimal.explaining.analyses.fluency import perplexities
from pessimal.explaining.attribute import Attribute
from pessimal.explaining.contrast import read_attributes
from pessimal.explaining.edits.views import to_json, views
from pessimal.explaining.explain import CONTROLS, Explained, explain_pair, pair
from pessimal.explaining.explain import explain as explain_comparisons
from pessimal.explaining.judges import Judge
from pessimal.explaining.judges.language_models import LikelihoodJudge
from pessimal.explaining.judges.rules import RuleJudge
from pessimal.explaining.outcomes import as_lines, preference_pairs
from pessimal.explaining.perturbation import Perturber
from pessimal.explaining.perturbers import make_perturber
from pessimal.explaining.provenance import ExplanationProvenance
from pessimal.explaining.results import (
    Resampling,
    explained_results,
    pair_results,
    smallest_edits,
)
from pessimal.progress import counted, quiet_libraries
from pessimal.rewards.base import Reward, require_network
from pessimal.rewards.checkpoint_files import of_model
from pessimal.scoring.texts import Scorers
from pessimal.tables.comparisons import Comparison, digest
from pessimal.tables.result import Result, Results
from pessimal.tracking.mirror import Mirror

log = logging.getLogger(__name__)

PREFERENCES, COMPARISONS, PAIR = "preferences.jsonl", "comparisons.jsonl", "pair"
HOW = ("both_ways", "placebos", "overall", "exact_hunks")
"""Options that say which edits are made."""


class Explanation(Results):
    """Results of an explanation; none where it was published before."""

    explained: Explained
    folder: Path | None = None
    """Where it is published."""


def explain(
    model: Reward | str | Path | Any,
    prompt: str | None = None,
    chosen: str | None = None,
    rejected: str | None = None,
    *,
    comparisons: Sequence[Comparison] | None = None,
    attributes: Mapping[str, Mapping[str, Any]] | None = None,
    perturber: str | Perturber = "rules",
    judge: Judge | None = None,
    fluency: Reward | None = None,
    seeds: int = 1,
    both_ways: bool = True,
    placebos: int = 4,
    overall: int = 0,
    tie: float | None = None,
    shrink: bool = True,
    exact_hunks: int = 8,
    replicates: int = 2000,
    permutations: int = 10_000,
    confidence: float = 0.95,
    examples: int = 6,
    name: str = "comparisons",
    left_out: Mapping[str, int] | None = None,
    seed: int = 0,
    device: torch.device | None = None,
    batch_size: int | None = None,
    store: Store | None = None,
    cache: str = "runs/cache",
    progress: bool = True,
) -> Explanation:
    """Why a model prefers one response to the other: edits along named attributes, and the smallest
    that flip it; with a store published as an `explanation` artifact.

    Args:
        model: of `load` or `reward`, or what these take, but a network, which needs its tokenizer.
        prompt, chosen, rejected: texts of one pair; which of the two the model prefers need not be
            the one called chosen.
        comparisons: a set of them, in place of one pair.
        attributes: what conf/contrast says of each, by name; by default its own.
        perturber: what changes responses, or a file of conf/perturber, such as `rules`, `random`,
            `llm`.
        judge: says whether an edit did what was asked; by default pessimal's detectors.
        fluency: a language model whose perplexity of each edit is measured.
        seeds: edits of each kind.
        both_ways: change responses to the better and to the worse on both sides.
        placebos: edits that keep the meaning, for each response.
        overall: edits that make a response better or worse in whatever way, for each response.
        tie: margins no larger than this are ties, in units of reward; by default what the rewards'
            numerical error allows.
        shrink: look for the smallest part of each flip that still flips.
        exact_hunks: up to so many separate changes every subset is tried.
        replicates, permutations, confidence: of intervals and tests.
        examples: comparisons that are kept word by word.
        name: of the set of comparisons.
        left_out: comparisons that were left out, by why.
        seed: of resampling.
        device: where the models run; by default where one in memory is, else the CPU.
        batch_size: conversations a batch; found from the memory there is where None.
        store: where it is published; rewards are then kept in `cache`, and not asked again.
        cache: folder for what can be made again.
        progress: draw a bar where there is a terminal.

    Raises:
        ConfigError: neither a pair nor comparisons are given.
        InputError: no comparison is short enough for the model, or all are ties.
    """
    quiet_libraries()
    of_pair = comparisons is None
    if comparisons is None:
        if prompt is None or chosen is None or rejected is None:
            raise ConfigError("give prompt, chosen and rejected of one pair, or comparisons")
        comparisons, name = [pair(prompt, chosen, rejected)], PAIR
    answers = Path(cache) / "answers"
    if attributes is None or isinstance(perturber, str):
        groups = {"perturber": perturber} if isinstance(perturber, str) else None
        config = configuration("explain", groups=groups)
        assert isinstance(config, ExplainConfig)
        attributes = plain(config)["contrast"] if attributes is None else attributes
        if isinstance(perturber, str):
            along = read_attributes(attributes)
            perturber = make_perturber(config.perturber, attributes=along, cache=answers)
    model = to_reward(model)
    options = {
        **{"both_ways": both_ways, "seeds": seeds, "placebos": placebos, "overall": overall},
        **{"tie": tie, "shrink": shrink, "exact_hunks": exact_hunks, "replicates": replicates},
        **{"permutations": permutations, "confidence": confidence, "examples": examples},
    }
    judged_by = {}
    if not of_pair:
        judge = judge or RuleJudge()
        judged_by = {"judge": judge.provenance(), "detectors": RuleJudge().provenance()}
    if fluency is not None:
        judged_by["fluency"] = of_model(fluency)
    null = perturber.placebo() if placebos and not of_pair else None
    provenance = ExplanationProvenance(
        model=model.name,
        comparisons=name,
        comparisons_digest=digest(comparisons),
        n=len(comparisons),
        attributes={one: dict(about) for one, about in attributes.items()},
        perturber=perturber.name,
        perturber_identity=perturber.provenance(),
        placebo_identity=null.provenance() if null else {},
        judge_identity=judged_by,
        options=options,
        seed=seed,
        **of_model(model),
    )
    done = Explanation()
    if store is not None and (published := store.find("explanation", provenance.key())):
        log.info("this is explained already: %s (force=true explains it again)", published[0])
        done.folder = published[0]
        return done
    with contextlib.ExitStack() as stack:
        mirror = Mirror()
        inputs: list[str] = []
        source: dict[str, str] = {}
        if store is not None:
            inputs, source = reward_inputs(store.registry, model)
            tracked = store.track(name=f"explain {provenance.name}", inputs=inputs)
            mirror = stack.enter_context(tracked)
        with counted(provenance.name, unit="responses", bar=progress) as counter:
            scorers = Scorers(
                [c.conversation(text) for c in comparisons[:16] for text in c.responses],
                device or device_of(model),
                batch_size,
                None if store is None else Path(cache) / "rewards",
                counter,
            )
            done.explained = _score_edits(
                *(scorers, model, fluency, comparisons, read_attributes(attributes)),
                *(perturber, None if of_pair else judge),
                options,
                of_pair=of_pair,
            )
            done.explained = replace(done.explained, left_out=left_out or {})
            counter.begin("intervals and tests")
            resampling = Resampling(replicates, permutations, confidence, seed)
            done += (
                pair_results(done.explained)
                if of_pair
                else explained_results(done.explained, resampling)
            )
        if store is None:
            return done
        names = ("model", "comparisons", "comparisons_digest", "n", "perturber", "weights_digest")
        summary = {one: getattr(provenance, one) for one in names} | source
        summary["made_by"] = provenance.edits_digest()
        for result in done:
            summary |= result.summary
        artifact = Artifact(
            "explanation",
            provenance.name,
            key=provenance.key(),
            inputs=inputs,
            summary=summary,
            labels={model.name: model.description.label or model.name},
            files=_files(done.explained, done, of_pair=of_pair, shown=examples),
        )
        done.folder, _ = publish(store.registry, mirror, artifact, done, progress=progress)
    return done


def _score_edits(
    scorers: Scorers,
    model: Reward,
    language: Reward | None,
    comparisons: Sequence[Comparison],
    attributes: Sequence[Attribute],
    perturber: Perturber,
    judge: Judge | None,
    options: Mapping[str, Any],
    *,
    of_pair: bool,
) -> Explained:
    """What changes of the responses do to this model's preferences."""
    texts, scorer = scorers.make_scorer(model, sample=32)
    # A margin is a difference of two rewards.
    tie = 2 * texts.noise if options["tie"] is None else options["tie"]

    def begin(part: str, total: int | None) -> None:
        scorers.counter.total = None  # how many rewards the searches will ask for, nobody knows
        scorers.counter.begin(part, total=total)

    about: dict[str, Any] = {"model": model.name, "tie": tie, "seeds": options["seeds"]}
    if of_pair:
        [one] = comparisons
        texts_of_pair = (one.turns[-1].content, *one.responses)
        explained = explain_pair(scorer, *texts_of_pair, attributes, perturber, **about)
    else:
        fluency = None
        if language is not None:
            _, likelihoods = scorers.make_scorer(language)
            encode = require_network(language, "fluency").parts[0].conversations.encode
            fluency = partial(perplexities, likelihoods, encode)
        if isinstance(judge, LikelihoodJudge):
            _, judge.scorer = scorers.make_scorer(judge.model)
        explained = explain_comparisons(
            scorer,
            comparisons,
            attributes,
            perturber,
            perplexities=fluency,
            judge=judge,
            smallest=options["shrink"],
            begin=begin,
            **about,
            **{name: options[name] for name in HOW},
        )
    if explained.too_long:
        what = "%d comparisons are longer than the %d tokens that %s is made for, and are left out"
        log.warning(what, len(explained.too_long), texts.longest, model.name)
    log.debug("%d conversations went through %s (%s)", scorer.n_scored, model.name, texts.path)
    description = asdict(model.description) | of_model(model)
    row = {
        "model": model.name,
        "path": texts.path,
        "largest_difference": texts.trust.largest_difference if texts.trust else None,
        "checked": texts.trust.n if texts.trust else None,
        "noise": texts.noise,
        **({} if language is None else {"fluency": language.name}),
        **{name: value for name, value in description.items() if not isinstance(value, dict)},
    }
    return replace(explained, provenance=row)


def _files(
    explained: Explained, results: Sequence[Result], *, of_pair: bool, shown: int
) -> dict[str, str]:
    """What others read on: the comparisons, preference pairs that go against the reward, and
    examples word by word."""
    comparisons = explained.comparisons
    table = explained.table
    table = table if "complied" in table else table.assign(complied=None)
    files = {
        COMPARISONS: "".join(one.as_line() + "\n" for one in comparisons.values()),
        PREFERENCES: as_lines(
            preference_pairs(table[table["attribute"] != CONTROLS[1]], comparisons)
        ),
    }
    if of_pair:
        flips = views(smallest_edits(explained), comparisons)
        return files | {f"views/{PAIR}.json": to_json(flips)}
    ranking = next(result.table for result in results if result.name == "representatives")
    chosen = choose_examples(explained.table, ranking, perturber=explained.perturber, n=shown)
    if len(chosen):
        files["views/representatives.json"] = to_json(views(chosen, comparisons))
    return files
