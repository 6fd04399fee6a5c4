"""`pessimal explain`: which changes of a response flip a model's preference, and along which attributes."""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd
from rich.table import Table
from rich.text import Text

from pessimal import explain as explain_package
from pessimal.config.schema import ExplainConfig, JudgeKind
from pessimal.errors import InputError, WorkError
from pessimal.explain.attribute import PLACEBO, Attribute
from pessimal.explain.comparison import Comparison
from pessimal.explain.judge import RuleJudge
from pessimal.explain.outcomes import requests_for
from pessimal.explain.preferences import Which, as_lines, preference_pairs
from pessimal.explain.provenance import ExplanationProvenance
from pessimal.explain.representatives import examples
from pessimal.explain.results import Explained, Options, explained_results, of_attributes
from pessimal.explain.rules.draw import digest_of_sources
from pessimal.explain.sources import digest
from pessimal.models.load import RewardModel, open_model
from pessimal.report.edits import to_json, views
from pessimal.scoring.kept_rewards import KeptRewards
from pessimal.scoring.scan import of_model
from pessimal.scoring.texts import TextScorer
from pessimal.tables.result import Result
from pessimal.tracking.registry import safe_name
from pessimal.verbs.common import fetch, plain, quiet_libraries, registry_of, tracked
from pessimal.verbs.explain_steps import (
    Preferences,
    detected,
    largest_holds,
    measure,
    perturb,
    preferences,
    smallest_flips,
    with_moves,
)
from pessimal.verbs.explain_tools import (
    attributes_of,
    make_judge,
    make_perturber,
    make_placebo,
    read_comparisons,
)
from pessimal.verbs.progress import Counter, counted
from pessimal.verbs.publish import Artifact, print_path, publish, show
from pessimal.verbs.trainer import begin_process, make_trainer

log = logging.getLogger(__name__)

PREFERENCES, COMPARISONS = "preferences.jsonl", "comparisons.jsonl"
SHOWN = 9
"""Attributes printed at the end."""
SOURCES = Path(explain_package.__file__).parent


def run(config: ExplainConfig) -> None:
    """Explain, publish an `explanation` artifact and print its folder; one that is finished already is named."""
    quiet_libraries()
    begin_process(config.trainer)
    (comparisons, left_out), attributes = read_comparisons(config), attributes_of(config)
    tools = Tools(config, attributes)
    if config.dry_run:
        _print_cost(config, tools, comparisons)
        return
    registry = registry_of(config)
    model = open_model(config.model, fetch(config.model, cache=config.paths.cache, progress=config.progress))
    provenance = identify(config, tools, model, comparisons)
    found = registry.find("explanation", provenance.key())
    if found and not config.force:
        log.info("this is explained already: %s (force=true explains it again)", found[0])
        print_path(found[0])
        return
    with tracked(config, name=f"explain {provenance.name}") as mirror:
        with counted(provenance.name, unit="responses", bar=config.progress) as counter:
            found = explain(config, tools, model, comparisons, left_out, counter)
            counter.begin("intervals and tests")
            results = explained_results(
                found, Options(config.replicates, config.permutations, config.confidence, config.seed)
            )
        summary = {name: value for result in results for name, value in result.summary.items()}
        artifact = Artifact(
            "explanation",
            provenance.name,
            key=provenance.key(),
            summary=_what(provenance) | summary,
            labels={model.name: model.description.label or model.name},
            files=_files(config, found, results),
        )
        folder, _ = publish(config, registry, mirror, artifact, results)
    _report_calls(tools)
    _print(results, found)
    print_path(folder)


def _files(config: ExplainConfig, found: Explained, results: Sequence[Result]) -> dict[str, str]:
    """What others read on: the comparisons, preference pairs that go against the reward, and examples word by word."""
    pairs = preference_pairs(
        found.table,
        list(found.comparisons.values()),
        which=Which.both,
        complied_only=False,
        model=found.model,
    ).pairs
    files = {
        COMPARISONS: "".join(as_line(comparison) + "\n" for comparison in found.comparisons.values()),
        PREFERENCES: as_lines(pairs),
    }
    ranking = next(result.table for result in results if result.name == "representatives")
    shown = examples(found.table, ranking, perturber=found.perturber, n=config.examples)
    if len(shown):
        files["views/representatives.json"] = to_json(views(shown, found.comparisons))
    return files


def as_line(comparison: Comparison) -> str:
    """One comparison as `sources.read_jsonl` reads it."""
    turns = [{"role": turn.role, "content": turn.content} for turn in comparison.turns]
    said = {"key": comparison.key, "prompt": turns, "responses": list(comparison.responses)}
    return json.dumps(said | ({} if comparison.preferred is None else {"preferred": comparison.preferred}))


def _print(results: Sequence[Result], found: Explained) -> None:
    """The attributes by how often their edits flip the preference, the placebo last."""
    by_name = {result.name: result for result in results}
    sensitive = by_name["sensitivity"].table
    fitted = by_name["slopes"].table.set_index("attribute")["slope"] if len(by_name["slopes"].table) else {}
    own = of_attributes(sensitive, found.perturber).dropna(subset=["flip_rate"])
    rows = own.sort_values(["flip_rate", "change"], ascending=[False, True], kind="stable")
    title = f"{found.model}: edits that flip its preference in {len(found.decided)} comparisons"
    table = Table(title=Text(title), title_justify="left", box=None, pad_edge=False)
    for heading in ("attribute", "flips", "", "n", "margin (SD)", "slope (SD/SD)", "p"):
        table.add_column(heading, justify="left" if heading == "attribute" else "right", no_wrap=True)
    null = sensitive[(sensitive["attribute"] == PLACEBO) & (sensitive["n"] > 0)]
    for row in pd.concat([rows.head(SHOWN), null]).itertuples():
        table.add_row(
            Text(row.attribute),
            f"{row.flip_rate:.0%}",
            f"{row.flip_low:.0%}–{row.flip_high:.0%}",
            str(row.n),
            f"{row.change:+.2f}",
            "" if pd.isna(slope := fitted.get(row.attribute, float("nan"))) else f"{slope:+.2f}",
            "" if pd.isna(row.flip_q) else "<.001" if row.flip_q < 0.001 else f"{row.flip_q:.3f}".lstrip("0"),
            style="dim" if row.attribute == PLACEBO else "",
        )
    show(table)
    if len(rows) > SHOWN:
        show(f"{len(rows) - SHOWN} more attributes flip less often.")
    for note in by_name["sensitivity"].notes:
        show(Text(note))


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
) -> ExplanationProvenance:
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
    options = plain(config)
    return ExplanationProvenance(
        model=model.name,
        comparisons=config.comparisons.name,
        comparisons_digest=digest(comparisons),
        n=len(comparisons),
        attributes=options["contrast"],
        perturber=tools.perturber.name,
        perturber_identity=tools.perturber.provenance(),
        placebo_identity=tools.placebo.provenance() if tools.placebo else {},
        judge_identity={"judge": tools.judge.provenance(), "detectors": RuleJudge().provenance()},
        code=digest_of_sources(*SOURCES.glob("*.py")),
        options={name: options[name] for name in names},
        seed=config.seed,
        **of_model(model),
    )


def explain(
    config: ExplainConfig,
    tools: Tools,
    model: RewardModel,
    comparisons: Sequence[Comparison],
    left_out: Mapping[str, int],
    counter: Counter,
) -> Explained:
    """The comparisons rewarded, changed, rewarded again, measured, and the changes made as small and as large as they
    can be."""
    device = make_trainer(config.trainer, root=config.paths.cache).strategy.root_device
    sample = [c.conversation(text) for c in comparisons[:16] for text in c.responses]
    texts = TextScorer(model, model.network(), sample, device=device, batch_size=config.batch_size)
    scorer = KeptRewards(texts, _rewards_file(config, model, texts), counter.advance)
    counter.begin("rewards", total=2 * len(comparisons))
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
    # Each response is changed along every attribute; most changes are new texts.
    edits = 2 * len(known.comparisons) * (len(tools.attributes) * config.seeds + config.placebos)
    counter.begin("edits and their rewards", total=counter.done + edits)
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
    counter.begin("distances and judgements")
    table = measure(found.table, by_key, tools.attributes, tools.judge)
    _check_answers(config, tools)
    found_by = detected(table, by_key, tools.attributes)
    table = with_moves(table, *found_by)
    smallest = largest = None
    if config.shrink:
        counter.begin("smallest and largest edits")
        smallest = smallest_flips(table, known, scorer, tie=tie, exact_hunks=config.exact_hunks)
        largest = largest_holds(table, known, scorer, tie=tie)
    log.debug("%d conversations went through %s (%s)", scorer.n_scored, model.name, texts.path)
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
    if (lost := sum(chat.usage.unanswered for chat in chats)) and not config.perturber.allow_unanswered:
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


def _what(provenance: ExplanationProvenance) -> dict:
    return {
        "model": provenance.model,
        "comparisons": provenance.comparisons,
        "comparisons_digest": provenance.comparisons_digest,
        "n": provenance.n,
        "perturber": provenance.perturber,
        "made_by": provenance.edits_digest(),
        "weights_digest": provenance.weights_digest,
    }


def _print_cost(config: ExplainConfig, tools: Tools, comparisons: Sequence[Comparison]) -> None:
    """Print what the endpoint would be asked. Which response is preferred is not known yet; either way there are as many
    calls."""
    from pessimal.explain.chat.plan import Prices

    rewards = {comparison.key: (1.0, 0.0) for comparison in comparisons}
    wanted = requests_for(comparisons, rewards, list(tools.attributes.values()), range(config.seeds), 0.0)
    prices = Prices(prompt=config.perturber.price_in, completion=config.perturber.price_out)
    print(tools.perturber.dry_run(wanted).text(prices))
    if config.judge is JudgeKind.llm:
        print(f"\nThe judge is asked once an edit: up to {len(wanted):,} calls more, which are not in this.")


def _report_calls(tools: Tools) -> None:
    """What a language model was asked, for those that ask one."""
    if summary := getattr(tools.perturber, "summary", None):
        log.info("%s: %s", tools.perturber.name, summary())
    if chat := getattr(tools.judge, "chat", None):
        log.info("judge: %s", chat.usage.sentence())
