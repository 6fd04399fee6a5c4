"""`pessimal explain`: which changes of a response flip a model's preference, and along which attributes."""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from pessimal import contrast
from pessimal.config.schema import ExplainConfig, JudgeKind
from pessimal.contrast.attribute import Attribute
from pessimal.contrast.comparison import Comparison
from pessimal.contrast.identity import ExplanationIdentity
from pessimal.contrast.judge import RuleJudge
from pessimal.contrast.outcomes import requests_for
from pessimal.contrast.rules.draw import digest_of_sources
from pessimal.contrast.sources import digest
from pessimal.errors import InputError, WorkError
from pessimal.models.load import RewardModel, open_model
from pessimal.scoring.kept_rewards import KeptRewards
from pessimal.scoring.scan import of_model
from pessimal.scoring.texts import TextScorer
from pessimal.tasks.common import (
    config_hash,
    fetch,
    plain,
    quiet_libraries,
    registry_of,
    tracked,
)
from pessimal.tasks.explain_setup import (
    attributes_of,
    make_judge,
    make_perturber,
    make_placebo,
    read_comparisons,
)
from pessimal.tasks.explain_steps import (
    Preferences,
    detected,
    largest_holds,
    measure,
    perturb,
    preferences,
    smallest_flips,
    with_moves,
)
from pessimal.tasks.findings.explain import Explained, explain_contents
from pessimal.tasks.trainer import begin_process, make_trainer
from pessimal.tracking.registry import safe_name
from pessimal.tracking.tell import tell_contents

log = logging.getLogger(__name__)

CONTRAST = Path(contrast.__file__).parent


def run(config: ExplainConfig) -> None:
    """Explain, publish an `explanation` artifact and print its folder; one that is finished already is named."""
    quiet_libraries()
    begin_process(config.trainer)
    (comparisons, left_out), attributes = read_comparisons(config), attributes_of(config)
    tools = Tools(config, attributes)
    if config.dry_run:
        _tell_cost(config, tools, comparisons)
        return
    registry = registry_of(config)
    model = open_model(config.model, fetch(config.model, cache=config.paths.cache, progress=config.progress))
    identity = identify(config, tools, model, comparisons)
    found = registry.find("explanation", identity.key())
    if found and not config.force:
        log.info("this is explained already: %s (force=true explains it again)", found[0])
        print(found[0])
        return
    with tracked(config, name=f"explain {identity.name}") as mirror:
        explained = explain(config, tools, model, comparisons, left_out)
        contents = explain_contents(explained, config)
        folder, manifest = registry.publish(
            "explanation",
            identity.name,
            contents.write,
            key=identity.key(),
            config_hash=config_hash(config),
            run_id=mirror.run_id,
            summary=_what(identity) | contents.summary,
        )
        tell_contents(mirror, contents, folder)
        mirror.artifact(folder, manifest, manifest.summary)
    _tell_calls(tools)
    for section in contents.sections:
        log.info("%s: %s", section.title, section.sentence)
    print(folder)


class Tools:
    """Who changes responses, who makes the null, who judges."""

    def __init__(self, config: ExplainConfig, attributes: Mapping[str, Attribute]):
        self.attributes = dict(attributes)
        RuleJudge.check(attributes.values())  # its detectors are asked whoever judges
        self.perturber = make_perturber(config, attributes)
        self.placebo = make_placebo() if config.placebos else None
        self.judge = make_judge(config)


def identify(
    config: ExplainConfig, tools: Tools, model: RewardModel, comparisons: Sequence[Comparison]
) -> ExplanationIdentity:
    """What the result will depend on."""
    names = (
        "seeds",
        "placebos",
        "tie",
        "shrink",
        "exact_hunks",
        "replicates",
        "permutations",
        "confidence",
        "examples",
    )
    told = plain(config)
    return ExplanationIdentity(
        model=model.name,
        comparisons=config.comparisons.name,
        comparisons_digest=digest(comparisons),
        n=len(comparisons),
        attributes=told["contrast"],
        perturber=tools.perturber.name,
        perturber_identity=tools.perturber.identity(),
        placebo_identity=tools.placebo.identity() if tools.placebo else {},
        judge_identity={"judge": tools.judge.identity(), "detectors": RuleJudge().identity()},
        code=digest_of_sources(*CONTRAST.glob("*.py")),
        options={name: told[name] for name in names},
        seed=config.seed,
        **of_model(model),
    )


def explain(
    config: ExplainConfig,
    tools: Tools,
    model: RewardModel,
    comparisons: Sequence[Comparison],
    left_out: Mapping[str, int],
) -> Explained:
    """The comparisons rewarded, changed, rewarded again, measured, and the changes made as small and as large as they
    can be."""
    device = make_trainer(config.trainer, root=config.paths.cache).strategy.root_device
    sample = [c.conversation(text) for c in comparisons[:16] for text in c.responses]
    texts = TextScorer(model, model.network(), sample, device=device, batch_size=config.batch_size)
    scorer = KeptRewards(texts, _rewards_file(config, model, texts))
    known = preferences(scorer, comparisons)
    if known.too_long:
        log.warning(
            "%d comparisons are longer than the %d tokens that %s is made for, and are left out",
            len(known.too_long),
            texts.longest,
            model.name,
        )
    # A margin is a difference of two rewards, each with its own error.
    tie = 2 * texts.noise if config.tie is None else config.tie
    _check_decided(config, known, tie=tie, longest=texts.longest)
    found = perturb(
        model.name,
        scorer,
        known,
        tools.perturber,
        tools.placebo,
        list(tools.attributes.values()),
        seeds=config.seeds,
        placebos=config.placebos,
        tie=tie,
    )
    by_key = {comparison.key: comparison for comparison in known.comparisons}
    table = measure(found.table, by_key, tools.attributes, tools.judge)
    _check_answers(config, tools)
    found_by = detected(table, by_key, tools.attributes)
    table = with_moves(table, *found_by)
    smallest = largest = None
    if config.shrink:
        smallest = smallest_flips(table, known, scorer, tie=tie, exact_hunks=config.exact_hunks)
        largest = largest_holds(table, known, scorer, tie=tie)
    log.info("%d conversations went through %s (%s)", scorer.asked, model.name, texts.path)
    return Explained(
        model=model.name,
        perturber=tools.perturber.name,
        left_out=dict(left_out),
        description=asdict(model.description) | of_model(model),
        comparisons=by_key,
        attributes=tools.attributes,
        detected=found_by,
        table=table,
        smallest=smallest,
        largest=largest,
        undecided=found.undecided,
        decided=found.decided,
        too_long=known.too_long,
        reward_sd=found.reward_sd,
        tie=tie,
        noise=texts.noise,
        path=texts.path,
        trust=asdict(texts.trust) if texts.trust else {},
    )


def _check_decided(config: ExplainConfig, known: Preferences, *, tie: float, longest: int | None) -> None:
    """InputError where there is nothing to explain."""
    if not known.comparisons:
        raise InputError(
            f"all {len(known.too_long)} comparisons are longer than the {longest} tokens that {config.model.name!r} is made for; give "
            "shorter ones, or another model"
        )
    margins = [abs(a - b) for a, b in known.rewards.values()]
    if max(margins) <= tie:
        raise InputError(
            f"all {len(margins)} comparisons are ties: the largest margin is {max(margins):.3g}, and margins up to {tie:.3g} are ties "
            "(tie=… sets that). The model prefers no response, so there is nothing to explain"
        )


def _check_answers(config: ExplainConfig, tools: Tools) -> None:
    """WorkError where an endpoint left questions unanswered: what it said is kept, and the rest costs little to ask again."""
    chats = [chat for who in (tools.perturber, tools.judge) if (chat := getattr(who, "chat", None))]
    if (lost := sum(chat.tally.unanswered for chat in chats)) and not config.perturber.allow_unanswered:
        raise WorkError(
            f"{lost} of the questions got no answer from the endpoint, and an explanation without them would be taken for a whole one. "
            "What was answered is kept: the same command asks only for the rest. To go on without them: "
            "perturber.allow_unanswered=true"
        )


def _rewards_file(config: ExplainConfig, model: RewardModel, texts: TextScorer) -> Path:
    """Where this network's rewards in this precision are kept: other attributes and perturbers go on from them."""
    said = [of_model(model), texts.path, texts.device.type]
    name = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    return Path(config.paths.cache) / "rewards" / f"{safe_name(model.name)}-{name[:24]}.jsonl"


def _what(identity: ExplanationIdentity) -> dict:
    return {
        "model": identity.model,
        "comparisons": identity.comparisons,
        "comparisons_digest": identity.comparisons_digest,
        "n": identity.n,
        "perturber": identity.perturber,
        "made_by": identity.edits_digest(),
        "weights_digest": identity.weights_digest,
    }


def _tell_cost(config: ExplainConfig, tools: Tools, comparisons: Sequence[Comparison]) -> None:
    """Print what the endpoint would be asked. Which response is preferred is not known yet; either way there are as many
    calls."""
    from pessimal.contrast.chat.plan import Prices

    rewards = {comparison.key: (1.0, 0.0) for comparison in comparisons}
    wanted = requests_for(comparisons, rewards, list(tools.attributes.values()), range(config.seeds), 0.0)
    prices = Prices(prompt=config.perturber.price_in, completion=config.perturber.price_out)
    print(tools.perturber.dry_run(wanted).text(prices))
    if config.judge is JudgeKind.llm:
        print(f"\nThe judge is asked once an edit: up to {len(wanted):,} calls more, which are not in this.")


def _tell_calls(tools: Tools) -> None:
    """What a language model was asked, for those that ask one."""
    if summary := getattr(tools.perturber, "summary", None):
        log.info("%s: %s", tools.perturber.name, summary())
    if chat := getattr(tools.judge, "chat", None):
        log.info("judge: %s", chat.tally.sentence())
