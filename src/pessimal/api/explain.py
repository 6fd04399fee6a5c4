"""`pessimal.explain`: why a model prefers one response to another; and `pessimal.accuracy`: how
often it prefers the better one."""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from pessimal.analyses.preferences import ALL
from pessimal.api.load import check_options, device_of, to_reward
from pessimal.api.store import Artifact, Store, publishing, registered_spec, reward_inputs, store_at
from pessimal.config.compose import configuration, plain
from pessimal.config.schema import ExplainConfig
from pessimal.config.schema.tables import SCORED_PAIRS
from pessimal.errors import ConfigError
from pessimal.explaining.agreement import examples as choose_examples
from pessimal.explaining.attribute import Attribute, read_attributes
from pessimal.explaining.detectors import RuleJudge
from pessimal.explaining.explain import CONTROLS, METHOD_VERSION, Explained, pair, perplexities
from pessimal.explaining.explain import explain as explain_comparisons
from pessimal.explaining.judges import Judge, LikelihoodJudge
from pessimal.explaining.outcomes import as_lines, preference_pairs
from pessimal.explaining.pairs import (
    PARQUET,
    accuracy_results,
    labelled_pairs,
    pair_frame,
    pairs_digest,
    published_rewards,
    score_pairs,
)
from pessimal.explaining.perturbers import Perturber, make_perturber
from pessimal.explaining.results import Resampling, explained_results, pair_results, smallest_edits
from pessimal.explaining.views import to_json, views
from pessimal.progress import counted, quiet_libraries
from pessimal.rewards.base import Reward, require_network
from pessimal.rewards.checkpoint_files import model_fields
from pessimal.rewards.obtain import open_reward
from pessimal.scoring.texts import Scorers
from pessimal.tables.comparisons import Comparison, digest
from pessimal.tables.result import Result, Results
from pessimal.tables.score_table import ModelProvenance
from pessimal.version import __version__

log = logging.getLogger(__name__)

PREFERENCES, COMPARISONS, PAIR = "preferences.jsonl", "comparisons.jsonl", "pair"
OPTIONS = (
    *("both_ways", "seeds", "placebos", "overall", "tie", "shrink", "exact_hunks"),
    *("replicates", "permutations", "confidence", "examples"),
)
"""Those that decide an explanation's numbers."""
Attributes = Mapping[str, Mapping[str, Any]] | Sequence[Attribute]


@dataclass(frozen=True, kw_only=True)
class ExplanationProvenance(ModelProvenance):
    """Two results with one key are the same explanation, but for the last bits that another device
    or batch size may change, and for what an endpoint answers today that it did not yesterday."""

    comparisons: str
    comparisons_digest: str
    n: int
    attributes: dict[str, dict]  # description, polarity and rules of each, by name
    perturber: str
    perturber_identity: dict  # what decides its texts
    placebo_identity: dict
    judge_identity: dict
    method_version: int = METHOD_VERSION
    options: dict = field(default_factory=dict)
    seed: int = 0

    def edits_digest(self) -> str:
        """sha256 over what decides the edits and how they are judged, whatever the model:
        explanations of several models can be compared where it is the same."""
        names = ("both_ways", "seeds", "placebos", "overall")
        makers = [self.perturber_identity, self.placebo_identity, self.judge_identity]
        decides = [self.attributes, *makers, {name: self.options[name] for name in names}]
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()

    @property
    def name(self) -> str:
        """Name of the artifact: what distinguishes explanations in a list; the key covers
        everything."""
        parts = [self.model, self.comparisons, self.perturber]
        return "--".join([*parts, *([self.dtype] if self.dtype not in (None, "float32") else [])])


class Explanation(Results):
    """Results of an explanation; none where it was published before."""

    explained: Explained


def explain(
    model: Reward | str | Path | Any,
    prompt: str | None = None,
    chosen: str | None = None,
    rejected: str | None = None,
    *,
    comparisons: Sequence[Comparison] | None = None,
    attributes: Attributes | None = None,
    perturber: str | Perturber = "rules",
    judge: Judge | None = None,
    fluency: Reward | None = None,
    name: str = "comparisons",
    left_out: Mapping[str, int] | None = None,
    seed: int = 0,
    device: torch.device | None = None,
    batch_size: int | None = None,
    store: Store | str | Path | None = None,
    cache: str = "runs/cache",
    progress: bool = True,
    **options: Any,
) -> Explanation:
    """Why a model prefers one response to the other: edits along named attributes, and the smallest
    that flip it; with a store published as an `explanation` artifact.

    Args:
        model: of `load` or `reward`, or what these take, but a network, which needs its tokenizer.
        prompt, chosen, rejected: texts of one pair; which of the two the model prefers need not be
            the one called chosen.
        comparisons: a set of them, in place of one pair.
        attributes: what conf/contrast says of each, by name, or as objects; by default its own.
        perturber: what changes responses, or a file of conf/perturber, such as `rules`, `random`,
            `llm`.
        judge: says whether an edit did what was asked; by default pessimal's detectors.
        fluency: a language model whose perplexity of each edit is measured.
        name: of the set of comparisons.
        left_out: comparisons that were left out, by why.
        seed: of resampling.
        device: where the models run; by default where one in memory is, else the CPU.
        batch_size: conversations a batch; found from the memory there is where None.
        store: where it is published; rewards are then kept in `cache`, and not asked again.
        cache: folder for what can be made again.
        progress: draw a bar where there is a terminal.
        options: `OPTIONS` of `pessimal explain`, such as seeds=2, tie=0.1 or placebos=0.

    Raises:
        ConfigError: neither a pair nor comparisons are given, or there is no such option.
        InputError: no comparison is short enough for the model, or all are ties.
    """
    quiet_libraries()
    check_options("explain", options, *OPTIONS)
    defaults = {each.name: each.default for each in fields(ExplainConfig)}
    options = {name: options.get(name, defaults[name]) for name in OPTIONS}
    is_pair = comparisons is None
    if comparisons is None:
        if prompt is None or chosen is None or rejected is None:
            raise ConfigError("give prompt, chosen and rejected of one pair, or comparisons")
        comparisons, name = [pair(prompt, chosen, rejected)], PAIR
        options |= {"placebos": 0, "overall": 0}
    along, perturber = _read(attributes, perturber, Path(cache) / "answers")
    model = to_reward(model)
    judged_by = {}
    if not is_pair:
        judge = judge or RuleJudge()
        judged_by = {"judge": judge.provenance(), "detectors": RuleJudge().provenance()}
    if fluency is not None:
        judged_by["fluency"] = model_fields(fluency)
    null = perturber.placebo() if options["placebos"] else None
    described = [asdict(each) for each in along]
    provenance = ExplanationProvenance(
        model=model.name,
        comparisons=name,
        comparisons_digest=digest(comparisons),
        n=len(comparisons),
        attributes={each.pop("name"): each for each in described},
        perturber=perturber.name,
        perturber_identity=perturber.provenance(),
        placebo_identity=null.provenance() if null else {},
        judge_identity=judged_by,
        options=options,
        seed=seed,
        **model_fields(model),
    )
    store = store_at(store)
    if store is not None and (published := store.find("explanation", provenance.key())):
        log.info("this is explained already: %s (force=true explains it again)", published[0])
        return Explanation(folder=published[0])
    inputs, source = ([], {}) if store is None else reward_inputs(store.registry, model)
    with publishing(
        store, name=f"explain {provenance.name}", inputs=inputs, progress=progress
    ) as publish:
        with counted(provenance.name, unit="responses", bar=progress) as counter:
            some = [c.conversation(text) for c in comparisons[:16] for text in c.responses]
            folder = None if store is None else Path(cache) / "rewards"
            scorers = Scorers(some, device or device_of(model), batch_size, folder, counter)
            texts, scorer = scorers.make_scorer(model, sample=32)
            ratios = None
            if fluency is not None:
                _, likelihoods = scorers.make_scorer(fluency)
                encode = require_network(fluency, "fluency").parts[0].conversations.encode
                ratios = partial(perplexities, likelihoods, encode)
            if isinstance(judge, LikelihoodJudge):
                _, judge.scorer = scorers.make_scorer(judge.model)

            def begin(part: str, total: int | None) -> None:
                counter.total = None  # how many rewards the searches will ask for, nobody knows
                counter.begin(part, total=total)

            names = ("both_ways", "seeds", "placebos", "overall", "exact_hunks")
            explained = explain_comparisons(
                *(scorer, comparisons, along, perturber),
                model=model.name,
                judge=judge,
                perplexities=ratios,
                measured=not is_pair,
                # A margin is a difference of rewards.
                tie=2 * texts.noise if options["tie"] is None else options["tie"],
                smallest=options["shrink"],
                begin=begin,
                **{name: options[name] for name in names},
            )
            if explained.too_long:
                reason = "%d comparisons are left out: they are longer than the %d tokens of %s"
                log.warning(reason, len(explained.too_long), texts.longest, model.name)
            log.debug("%d conversations: %s (%s)", scorer.n_scored, model.name, texts.path)
            row = _model_row(model, texts, fluency)
            explained = replace(explained, left_out=left_out or {}, provenance=row)
            counter.begin("intervals and tests")
            numbers = ("replicates", "permutations", "confidence")
            resampling = Resampling(**{name: options[name] for name in numbers}, seed=seed)
            results = Explanation(
                pair_results(explained) if is_pair else explained_results(explained, resampling)
            )
            results.explained = explained
        if store is None:
            return results
        about = ("model", "comparisons", "comparisons_digest", "n", "perturber", "weights_digest")
        summary = {each: getattr(provenance, each) for each in about} | source
        summary["made_by"] = provenance.edits_digest()
        for result in results:
            summary |= result.summary
        artifact = Artifact(
            *("explanation", provenance.name, provenance.key(), inputs, summary),
            labels={model.name: model.description.label or model.name},
            files=_files(explained, results, is_pair=is_pair, n_examples=options["examples"]),
        )
        results.folder = publish(artifact, results).folder
    return results


def _read(
    attributes: Attributes | None, perturber: str | Perturber, cache: Path
) -> tuple[Sequence[Attribute], Perturber]:
    """The attributes and the perturber as objects, those of the default configuration where none
    are given."""
    spec: Mapping[str, Any] = {}
    if attributes is None or isinstance(perturber, str):
        groups = {"perturber": perturber} if isinstance(perturber, str) else None
        config = configuration("explain", groups=groups)
        assert isinstance(config, ExplainConfig)
        spec = config.perturber
        attributes = plain(config)["contrast"] if attributes is None else attributes
    along = read_attributes(attributes) if isinstance(attributes, Mapping) else attributes
    if isinstance(perturber, str):
        perturber = make_perturber(spec, attributes=along, cache=cache)
    return along, perturber


def _model_row(model: Reward, texts: Any, fluency: Reward | None) -> dict[str, object]:
    """The row of the table `provenance`: what pins the model and its path down."""
    description = asdict(model.description) | model_fields(model)
    return {
        "model": model.name,
        "path": texts.path,
        "largest_difference": texts.trust.largest_difference if texts.trust else None,
        "checked": texts.trust.n if texts.trust else None,
        "noise": texts.noise,
        **({} if fluency is None else {"fluency": fluency.name}),
        **{name: value for name, value in description.items() if not isinstance(value, dict)},
    }


def _files(
    explained: Explained, results: Sequence[Result], *, is_pair: bool, n_examples: int
) -> dict[str, str]:
    """Files that others read on: the comparisons, preference pairs that go against the reward, and
    examples word by word."""
    comparisons, table = explained.comparisons, explained.table
    table = table if "complied" in table else table.assign(complied=None)
    along = table[table["attribute"] != CONTROLS[1]]
    files = {
        COMPARISONS: "".join(each.as_line() + "\n" for each in comparisons.values()),
        PREFERENCES: as_lines(preference_pairs(along, comparisons)),
    }
    if is_pair:
        flips = views(smallest_edits(explained), comparisons)
        return files | {f"views/{PAIR}.json": to_json(flips)}
    ranking = next(result.table for result in results if result.name == "representatives")
    rows = choose_examples(explained.table, ranking, perturber=explained.perturber, n=n_examples)
    if len(rows):
        files["views/representatives.json"] = to_json(views(rows, comparisons))
    return files


def accuracy(
    models: Reward | str | Path | Sequence[Any] | Any = (),
    pairs: str | Path | Sequence[Comparison] | None = None,
    *,
    batch_size: int | None = None,
    device: "torch.device | None" = None,
    keep: str | Path | None = None,
    confidence: float = 0.95,
    source: str = "",
    name: str = "comparison",
    store: Store | str | Path | None = None,
    cache: str = "runs/cache",
    progress: bool = True,
    **options,
) -> Results:
    """Accuracy of each model: how often the better of two answers has the higher reward.

    Args:
        models: one, or a list of several, of `load` or `reward`, or what these take.
        pairs: a file of labelled pairs (.jsonl, .jsonl.gz, .json, .parquet), such as RewardBench's;
            by default the 210 pairs that come with pessimal. Models whose rewards stand in its
            rows take part too.
        batch_size: conversations a batch; found from the memory there is where None.
        device: where the models run; by default where one in memory is, else the CPU.
        keep: folder in which rewards are kept as they come, so that a second call does not ask for
            them again.
        confidence: level of the intervals.
        source: what the pairs are, for the notes; by default the file.
        name: of the artifact.
        store: registry in which a `comparison` is published; pairs may then be `scored-pairs/NAME`
            of it, and models those that were trained under their names.
        cache: folder for models that are fetched.
        options: of `load` or `reward`.

    Returns:
        Results `preferences` (accuracy by model and category), `preference_differences` and
        `margin_agreement` of several models, `margin_length`, and two tables: `preference_pairs`,
        ranked against their labels, and `scored_pairs`, every reward; none but the folder where
        the store has them already.

    Raises:
        ConfigError: no model is given, or two have one name.
        InputError: the file cannot be read, or none of its pairs has a label.
    """
    quiet_libraries()
    several = models if isinstance(models, list | tuple) else [models]
    inputs: list[str] = []
    store = store_at(store)
    if isinstance(pairs, str) and pairs.startswith(SCORED_PAIRS) and store is not None:
        [(folder, manifest)] = store.registry.choose("scored-pairs", [pairs])
        inputs, source, pairs = [manifest.reference], manifest.name, folder / PARQUET
    if pairs is None or isinstance(pairs, str | Path):
        source = source or ("those of pessimal" if pairs is None else Path(pairs).name)
        pairs = labelled_pairs(None if pairs is None else str(pairs), n=None)
    published = published_rewards(pairs)
    models_to_ask = [
        model for model in several if not (isinstance(model, str) and model in published)
    ]
    rewards = [_open(model, store, cache, options) for model in models_to_ask]
    names = [*published, *(model.name for model in rewards)]
    if not names:
        raise ConfigError("no model is given, and no pair has scores: type models=[NAME]")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"two models are called {twice[0]!r}: leave one out, or rename it")
    key = None
    if store is not None:
        scores = {model: values.tolist() for model, values in published.items()}
        versions = [[reward.name, model_fields(reward)] for reward in rewards]
        decisive = [name, __version__, pairs_digest(pairs), scores, versions, confidence]
        key = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()
        if finished := store.find("comparison", key):
            log.info("this is compared already: %s (force=true compares again)", finished[0])
            return Results(folder=finished[0])
        every = [reward_inputs(store.registry, model)[0] for model in rewards]
        inputs += [reference for references in every for reference in references]
    tables = [pair_frame(scores, pairs, model=model) for model, scores in published.items()]
    texts = [pair.conversation(text) for pair in pairs[:8] for text in pair.responses]
    with (
        publishing(store, name=f"compare {name}", inputs=inputs, progress=progress) as publish,
        counted("labelled pairs", unit="responses", bar=progress) as counter,
    ):
        for model in rewards:
            counter.begin(model.name, total=2 * len(pairs))
            place, cache_folder = device or device_of(model), Path(keep) if keep else None
            scorers = Scorers(texts, place, batch_size, cache_folder, counter)
            # No name holds a scorer: the next model is loaded once this one is freed.
            tables.append(
                score_pairs(scorers.make_scorer(model, sample=16)[1], pairs, model=model.name)
            )
        results = accuracy_results(tables, pairs, source=source, confidence=confidence)
        summary = {
            figure: n for figure, n in results[0].summary.items() if figure.endswith(f"/{ALL}")
        }
        counts = {"models": len(names), "pairs": len(pairs), "source": source}
        labels = {model.name: model.description.label or model.name for model in rewards}
        return publish(
            Artifact("comparison", name, key, inputs, {**counts, **summary}, labels), results
        )


def _open(model: Any, store: Store | None, cache: str, options: Mapping[str, Any]) -> Reward:
    """A reward of what is typed for it, which a store may know."""
    if store is not None and isinstance(model, str) and not options:
        return open_reward(registered_spec(store.registry, model), cache=cache)
    return to_reward(model, **options)
