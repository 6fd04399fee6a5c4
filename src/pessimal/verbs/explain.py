"""`pessimal explain`: which changes of a response flip a model's preference, and along which
attributes."""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from rich.text import Text

from pessimal import explaining as explain_package
from pessimal.config.models import is_named, spec_of
from pessimal.config.schema import ExplainConfig, JudgeKind
from pessimal.errors import ConfigError, InputError
from pessimal.explaining.agreement import examples
from pessimal.explaining.attribute import ANY_WAY, PLACEBO, Attribute
from pessimal.explaining.comparison import Comparison, choose, digest, load
from pessimal.explaining.explain import CONTROLS, NEUTRAL, Explained, explain, explain_pair, pair
from pessimal.explaining.fluency import perplexities
from pessimal.explaining.judge import LikelihoodJudge, RuleJudge, make_judge
from pessimal.explaining.outcomes import as_lines, preference_pairs, requests_for
from pessimal.explaining.perturbation import Perturber
from pessimal.explaining.perturbers import make_perturber
from pessimal.explaining.results import (
    Options,
    explained_results,
    overview,
    pair_results,
    smallest_edits,
)
from pessimal.report.differences import GONE, LEFT_OUT, NEW, condensed, diff
from pessimal.report.edits import to_json, views
from pessimal.rewards.base import Reward
from pessimal.rewards.load import of_model, open_model
from pessimal.rewards.spec import ModelSpec
from pessimal.scoring.texts import KeptRewards, TextScorer, text_scorer
from pessimal.tables.result import Result
from pessimal.tables.score_table import ModelProvenance
from pessimal.texts import significant
from pessimal.tracking.registry import safe_name
from pessimal.verbs.common import fetch, model_inputs, plain, quiet_libraries, registry_of, tracked
from pessimal.verbs.printing import table_text
from pessimal.verbs.progress import Counter, counted
from pessimal.verbs.publish import Artifact, print_path, publish, show

log = logging.getLogger(__name__)

MARKS = {GONE: ("[-", "-]", "red"), NEW: ("{+", "+}", "green"), LEFT_OUT: ("", "", "dim")}
PREFERENCES, COMPARISONS, PAIR = "preferences.jsonl", "comparisons.jsonl", "pair"
SHOWN = 9
"""Attributes printed at the end."""
COLUMNS = {
    "attribute": "attribute",
    "slope": "slope (SD/SD)",
    "slope_low": "low",
    "slope_high": "high",
    "slope_q": "p",
    "more": "flip rate if it likes more",
    "less": "if less",
    "n": "edits",
}
"""Of the table that is printed, with their headings."""
OPTIONS = ("both_ways", "seeds", "placebos", "overall", "tie", "shrink", "exact_hunks")
OPTIONS += ("replicates", "permutations", "confidence", "examples")
"""Those that decide an explanation's numbers."""


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
    code: str  # sha256 over the files that compute margins, statistics and minimal edits
    options: dict = field(default_factory=dict)
    seed: int = 0

    def edits_digest(self) -> str:
        """sha256 over what decides the edits and how they are judged, whatever the model:
        explanations of several models can be compared where it is the same."""
        options = {
            name: self.options[name] for name in ("both_ways", "seeds", "placebos", "overall")
        }
        made = [
            self.attributes,
            self.perturber_identity,
            self.placebo_identity,
            self.judge_identity,
            options,
        ]
        return hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()

    @property
    def name(self) -> str:
        """Name of the artifact: what distinguishes explanations in a list; the key covers
        everything."""
        parts = [self.model, self.comparisons, self.perturber]
        return "--".join([*parts, *([self.dtype] if self.dtype not in (None, "float32") else [])])


def run(config: ExplainConfig) -> None:
    """Explain, publish an `explanation` artifact and print its folder; one that is finished already
    is named."""
    quiet_libraries(lightning=config.trainer.accelerator != "cpu")
    comparisons, left_out = _comparisons(config)
    attributes = attributes_of(config)
    cache = Path(config.paths.cache) / "answers"
    perturber = make_perturber(
        config.perturber, attributes=attributes, cache=cache, find=lambda name: _found(config, name)
    )
    judge = None if config.pair else _judge(config, cache)
    if config.dry_run:
        _print_cost(config, perturber, attributes, comparisons)
        return
    registry = registry_of(config)
    language = None if config.fluency is None else _opened(config, config.language_model("fluency"))
    model = _opened(config, config.model)
    provenance = _provenance(config, perturber, judge, model, language, comparisons)
    done = registry.find("explanation", provenance.key())
    if done and not config.force:
        log.info("this is explained already: %s (force=true explains it again)", done[0])
        print_path(done[0])
        return
    inputs, made_with = model_inputs(registry, model)
    with tracked(config, name=f"explain {provenance.name}", inputs=inputs) as mirror:
        with counted(provenance.name, unit="responses", bar=config.progress) as counter:
            found = _explain(
                config, model, language, comparisons, attributes, perturber, judge, counter
            )
            found = replace(found, left_out=left_out)
            counter.begin("intervals and tests")
            options = Options(
                config.replicates, config.permutations, config.confidence, config.seed
            )
            results = pair_results(found) if config.pair else explained_results(found, options)
        names = ("model", "comparisons", "comparisons_digest", "n", "perturber", "weights_digest")
        what = {name: getattr(provenance, name) for name in names} | {
            "made_by": provenance.edits_digest()
        }
        summary = {name: value for result in results for name, value in result.summary.items()}
        artifact = Artifact(
            "explanation",
            provenance.name,
            key=provenance.key(),
            inputs=inputs,
            summary=what | made_with | summary,
            labels={model.name: model.description.label or model.name},
            files=_files(config, found, results),
        )
        folder, _ = publish(config, registry, mirror, artifact, results)
    for who in (perturber, judge):  # what a language model was asked, for those that ask one
        if chat := getattr(who, "chat", None):
            log.info("%s: %s", who.name, chat.usage.sentence())
    _print_pair(results, found) if config.pair else _print(results, found)
    print_path(folder)


def _opened(config: ExplainConfig, spec: ModelSpec) -> Reward:
    """A reward, its files fetched where they are not here."""
    return open_model(spec, fetch(spec, cache=config.paths.cache, progress=config.progress))


def _found(config: ExplainConfig, name: str) -> Path | None:
    """The folder of a model by its name in conf/model; None of any other."""
    if not is_named(name):
        return None
    return fetch(spec_of(name), cache=config.paths.cache, progress=config.progress)


def _judge(config: ExplainConfig, cache: Path):
    """Who says whether an edit did what was asked."""
    if config.judge is JudgeKind.llm:
        return make_judge(
            config.judge_model, config.perturber, cache=cache, base_url=config.judge_base_url
        )
    if config.judge is JudgeKind.local:
        return LikelihoodJudge(_opened(config, config.language_model("judge_model")))
    return RuleJudge()


def _comparisons(config: ExplainConfig) -> tuple[list[Comparison], dict[str, int]]:
    """The comparisons asked for, and how many were left out, by why. InputError where none is
    left."""
    if config.pair:
        return [pair(*config.pair)], {}
    spec = config.comparisons
    path = Path(spec.path).expanduser() if spec.path else None
    found = load(
        spec.source.value, path=path, revision=spec.revision, split=spec.split, subset=spec.subset
    )
    if found.left_out:
        log.warning("left out: %s", ", ".join(f"{n} {what}" for what, n in found.left_out.items()))
    one_turn = [c for c in found.comparisons if [turn.role for turn in c.turns] == ["user"]]
    kept = one_turn if spec.single_turn else found.comparisons
    if not kept:
        raise InputError(f"comparisons={spec.name}: none is left to explain")
    if spec.n and len(kept) < spec.n:
        log.warning("comparisons.n=%d, but there are %d: all are taken", spec.n, len(kept))
    return choose(kept, n=spec.n, seed=config.seed), found.left_out


def attributes_of(config: ExplainConfig) -> list[Attribute]:
    """The attributes asked for. ConfigError, which names it, for one whose rules or detector cannot
    be read."""
    found = []
    for name, options in plain(config)["contrast"].items():
        try:
            found.append(Attribute.of(name, options))
        except ConfigError as error:
            raise ConfigError(f"contrast.{name}: {error}") from error
    RuleJudge.check(found)  # its detectors are asked whoever judges
    return found


def _provenance(
    config: ExplainConfig,
    perturber: Perturber,
    judge,
    model: Reward,
    language: Reward | None,
    comparisons: Sequence[Comparison],
) -> ExplanationProvenance:
    """What the result will depend on."""
    judged_by = (
        {"judge": judge.provenance(), "detectors": RuleJudge().provenance()} if judge else {}
    )
    if language is not None:
        judged_by["fluency"] = of_model(language)
    options = plain(config)
    null = perturber.placebo() if config.placebos and not config.pair else None
    sources = sorted(Path(explain_package.__file__).parent.glob("*.py"))
    return ExplanationProvenance(
        model=model.name,
        comparisons=PAIR if config.pair else config.comparisons.name,
        comparisons_digest=digest(comparisons),
        n=len(comparisons),
        attributes=options["contrast"],
        perturber=perturber.name,
        perturber_identity=perturber.provenance(),
        placebo_identity=null.provenance() if null else {},
        judge_identity=judged_by,
        code=hashlib.sha256(b"\0".join(file.read_bytes() for file in sources)).hexdigest(),
        options={name: options[name] for name in OPTIONS},
        seed=config.seed,
        **of_model(model),
    )


def _explain(
    config: ExplainConfig,
    model: Reward,
    language: Reward | None,
    comparisons,
    attributes,
    perturber: Perturber,
    judge,
    counter: Counter,
) -> Explained:
    """What changes of the responses do to this model's preferences; rewards are kept on disk as
    they come."""
    sample = [c.conversation(text) for c in comparisons[:16] for text in c.responses]
    texts, scorer = _scorer(config, model, sample, counter)
    tie = (
        2 * texts.noise if config.tie is None else config.tie
    )  # a margin is a difference of two rewards
    asked = {"model": model.name, "tie": tie, "seeds": config.seeds}

    def begin(part: str, total: int | None) -> None:
        counter.total = None  # how many rewards the searches will ask for, nobody knows
        counter.begin(part, total=total)

    if config.pair:
        found = explain_pair(scorer, *config.pair, attributes, perturber, **asked)
    else:
        asked |= {
            name: getattr(config, name)
            for name in ("both_ways", "placebos", "overall", "exact_hunks")
        }
        if language is not None:
            _, asked_language = _scorer(config, language, sample[:4], counter)
            asked["perplexities"] = partial(
                perplexities, asked_language, language.parts[0].conversations.encode
            )
        if isinstance(judge, LikelihoodJudge):
            _, judge.scorer = _scorer(config, judge.model, sample[:4], counter)
        asked |= {"judge": judge, "smallest": config.shrink, "begin": begin}
        found = explain(scorer, comparisons, attributes, perturber, **asked)
    if found.too_long:
        what = "%d comparisons are longer than the %d tokens that %s is made for, and are left out"
        log.warning(what, len(found.too_long), texts.longest, model.name)
    log.debug("%d conversations went through %s (%s)", scorer.n_scored, model.name, texts.path)
    known = asdict(model.description) | of_model(model)
    row = {
        "model": model.name,
        "path": texts.path,
        "largest_difference": texts.trust.largest_difference if texts.trust else None,
        "checked": texts.trust.n if texts.trust else None,
        "noise": texts.noise,
        **({} if language is None else {"fluency": language.name}),
        **{name: value for name, value in known.items() if not isinstance(value, dict)},
    }
    return replace(found, provenance=row)


def _scorer(
    config: ExplainConfig, model: Reward, sample, counter: Counter
) -> tuple[TextScorer, KeptRewards]:
    """What scores a model's texts, checked on `sample`; and the same with what it gives kept on
    disk."""
    texts = text_scorer(model, sample, device=_device(config), batch_size=config.batch_size)
    scored_by = [of_model(model), texts.path, texts.device.type]
    name = hashlib.sha256(json.dumps(scored_by, sort_keys=True).encode()).hexdigest()[:24]
    file = Path(config.paths.cache) / "rewards" / f"{safe_name(model.name)}-{name}.jsonl"
    return texts, KeptRewards(texts, file, counter.advance)


def _device(config: ExplainConfig) -> torch.device:
    """Where the model runs. On a CPU without Lightning, whose import takes longer than one pair."""
    if config.trainer.accelerator != "cpu":
        from pessimal.verbs.trainer import begin_process, make_trainer

        begin_process(config.trainer)
        return make_trainer(config.trainer, root=config.paths.cache).strategy.root_device
    torch.set_num_threads(config.trainer.threads or torch.get_num_threads())
    return torch.device("cpu")


def _files(config: ExplainConfig, found: Explained, results: Sequence[Result]) -> dict[str, str]:
    """What others read on: the comparisons, preference pairs that go against the reward, and
    examples word by word."""
    table = found.table if "complied" in found.table else found.table.assign(complied=None)
    files = {
        COMPARISONS: "".join(
            comparison.as_line() + "\n" for comparison in found.comparisons.values()
        ),
        PREFERENCES: as_lines(
            preference_pairs(table[table["attribute"] != CONTROLS[1]], found.comparisons)
        ),
    }
    if config.pair:
        return files | {
            f"views/{PAIR}.json": to_json(views(smallest_edits(found), found.comparisons))
        }
    ranking = next(result.table for result in results if result.name == "representatives")
    shown = examples(found.table, ranking, perturber=found.perturber, n=config.examples)
    if len(shown):
        files["views/representatives.json"] = to_json(views(shown, found.comparisons))
    return files


def _print_cost(config: ExplainConfig, perturber: Perturber, attributes, comparisons) -> None:
    """Print what the endpoint would be asked. Which response is preferred is not known yet; either
    way there are as many calls."""
    rewards, options = {one.key: (1.0, 0.0) for one in comparisons}, {"both_ways": config.both_ways}
    wanted = requests_for(comparisons, rewards, attributes, range(config.seeds), 0.0, **options)
    controls = [] if config.pair else [(ANY_WAY, config.overall), (NEUTRAL, config.placebos)]
    arms = [requests_for(comparisons, rewards, [arm], range(n), 0.0) for arm, n in controls]
    print(perturber.dry_run(wanted + [request for arm in arms for request in arm]).text())
    if config.judge is not JudgeKind.rules and not config.pair:
        print(
            f"\nThe judge is asked once an edit: up to {len(wanted):,} calls more, which are not "
            f"in this."
        )


def _print(results: Sequence[Result], found: Explained) -> None:
    """Which attributes move the reward, the strongest slope first, and how often edits along them
    flip the preference."""
    by_name = {result.name: result for result in results}
    rows = overview({name: by_name[name].table for name in ("slopes", "sensitivity")})
    placebo = rows["attribute"] == PLACEBO
    shown = pd.concat([rows[~placebo].head(SHOWN), rows[placebo]])
    shown = shown.assign(
        slope_q=shown["slope_q"].map("{:.2g}".format, na_action="ignore")
    )  # a tiny p is not 0
    show(Text(f"{found.model}: what moves its preference in {len(found.decided)} comparisons"))
    show(_table(shown[list(COLUMNS)].rename(columns=COLUMNS)))
    if more := len(rows) - len(shown):
        show(f"{more} more attributes on the page.")
    for name in ("slopes", "sensitivity"):
        for line in (by_name[name].headline, *by_name[name].notes):
            show(Text(line))


def _print_pair(results: Sequence[Result], found: Explained) -> None:
    """Why this response, in this model: rewards, one sentence, what counts, and the smallest edits
    that flip it."""
    by_name = {result.name: result for result in results}
    for line in (by_name[PAIR].headline, *by_name[PAIR].notes):
        show(Text(line))
    show(_table(by_name[PAIR].table.head(SHOWN // 2 + 1)))
    flips = "smallest_flips" in by_name
    show("smallest edits that flip it:" if flips else "edits that come nearest to a flip:")
    for row in smallest_edits(found).itertuples():
        text = Text(
            f"  {('chosen', 'rejected')[row.response]}, margin {significant(row.new_margin)}: "
        )
        for piece in condensed(diff(row.original, row.edited), context=40):
            before, behind, style = MARKS.get(piece.kind, ("", "", ""))
            text.append(f"{before}{piece.text}{behind}", style=style)
        show(text)


def _table(rows: pd.DataFrame) -> Text:
    rows = rows.round(3).astype(object)
    return Text(
        table_text(list(rows), rows.where(rows.notna(), None).to_numpy().tolist(), width=None)
    )
