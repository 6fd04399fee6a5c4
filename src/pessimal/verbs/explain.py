"""`pessimal explain`: which changes of a response flip a model's preference, and along which
attributes."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pandas as pd
from rich.text import Text

from pessimal.api.explain import PAIR, explain
from pessimal.catalogue import is_named
from pessimal.config.compose import plain
from pessimal.config.schema import ExplainConfig, JudgeKind
from pessimal.errors import InputError
from pessimal.explaining.attribute import ANY_WAY, PLACEBO, Attribute
from pessimal.explaining.contrast import read_attributes
from pessimal.explaining.edits.differences import GONE, LEFT_OUT, NEW, condensed, diff
from pessimal.explaining.explain import CONTROLS, NEUTRAL, Explained, pair
from pessimal.explaining.judges import Judge
from pessimal.explaining.judges.language_models import LikelihoodJudge, make_judge
from pessimal.explaining.judges.rules import RuleJudge
from pessimal.explaining.outcomes import requests_for
from pessimal.explaining.perturbation import Request
from pessimal.explaining.perturbers import make_perturber
from pessimal.explaining.provenance import OPTIONS
from pessimal.explaining.results import (
    GIVEN,
    overview,
    smallest_edits,
)
from pessimal.progress import quiet_libraries
from pessimal.rewards.base import Reward
from pessimal.rewards.named import spec_of
from pessimal.rewards.obtain import fetch_files, open_reward
from pessimal.rewards.spec import ModelSpec
from pessimal.tables.comparisons import Comparison, choose, load
from pessimal.tables.result import Result
from pessimal.texts import significant
from pessimal.verbs.common import device_of, store_of
from pessimal.verbs.printing import print_path, show, table_text, write_out

log = logging.getLogger(__name__)

MARKS = {GONE: ("[-", "-]", "red"), NEW: ("{+", "+}", "green"), LEFT_OUT: ("", "", "dim")}
SHOWN = 9
"""Attributes printed at the end."""
COLUMNS = {
    "attribute": "attribute",
    "slope": "slope (SD/SD)",
    "slope_q_low": "low",
    "slope_q_high": "high",
    "beyond_q": "p",
    "more": "flip rate of edits against liking more",
    "less": "against liking less",
    "n": "edits",
}
"""Of the table that is printed, with their headings; intervals and p are corrected alike, and p is
that beyond prices of words too."""


def run(config: ExplainConfig) -> None:
    """Explain, publish an `explanation` artifact and print its folder; one that is finished already
    is named."""
    # 1. What is explained, along what, changed and judged by whom.
    quiet_libraries(lightning=config.trainer.accelerator != "cpu")
    cache, pair_given = Path(config.paths.cache), config.pair
    left_out: Mapping[str, int] = {}
    if pair_given:
        comparisons = [pair(*pair_given)]
    else:
        comparisons, left_out = _comparisons(config)
    contrast = plain(config)["contrast"]
    attributes = read_attributes(contrast)
    open_one = partial(open_reward, cache=config.paths.cache)

    def find(name: str) -> Path | None:
        return fetch_files(spec_of(name), cache=config.paths.cache) if is_named(name) else None

    perturber = make_perturber(
        config.perturber,
        attributes=attributes,
        cache=cache / "answers",
        find=find,
    )
    judge = None if pair_given else _judge(config, open_one, cache / "answers")
    if config.dry_run:
        requests = _requests(comparisons, attributes, config)
        write_out(perturber.dry_run(requests).text())  # type: ignore[attr-defined] # checked: llm's
        if config.judge is not JudgeKind.rules and not pair_given:
            edits = sum(request.attribute.name not in CONTROLS for request in requests)
            write_out(
                f"\nThe judge is asked once an edit: up to {edits:,} calls more, which are not in "
                "this."
            )
        return
    # 2. Of which model.
    language = None if config.fluency is None else open_one(config.language_model("fluency"))
    done = explain(
        open_one(config.model),
        *(pair_given or ()),
        comparisons=None if pair_given else comparisons,
        attributes=contrast,
        perturber=perturber,
        judge=judge,
        fluency=language,
        name=str(config.comparisons.name),
        left_out=left_out,
        seed=config.seed,
        device=device_of(config.trainer, config.paths.cache),
        batch_size=config.batch_size,
        store=store_of(config),
        cache=config.paths.cache,
        progress=config.progress,
        **{option: getattr(config, option) for option in OPTIONS},
    )
    assert done.folder is not None
    if done:
        for name, asking in ((perturber.name, perturber), (judge and judge.name, judge)):
            if chat := getattr(asking, "chat", None):  # what a language model was asked
                log.info("%s: %s", name, chat.usage.sentence())
        _print_pair(done, done.explained) if pair_given else _print(done, done.explained)
    print_path(done.folder)


def _judge(config: ExplainConfig, open_model: Callable[[ModelSpec], Reward], cache: Path) -> Judge:
    """Who says whether an edit did what was asked."""
    if config.judge is JudgeKind.llm:
        assert config.judge_model is not None  # checked by the configuration
        return make_judge(
            config.judge_model, config.perturber, cache=cache, base_url=config.judge_base_url
        )
    if config.judge is JudgeKind.local:
        return LikelihoodJudge(open_model(config.language_model("judge_model")))
    return RuleJudge()


def _comparisons(config: ExplainConfig) -> tuple[list[Comparison], Mapping[str, int]]:
    """The comparisons asked for, and how many were left out, by why. InputError where none is
    left."""
    spec = config.comparisons
    path = Path(spec.path).expanduser() if spec.path else None
    loaded = load(
        spec.source.value,
        path=path,
        revision=spec.revision,
        split=spec.split,
        subset=spec.subset,
        skip_bad=config.skip_bad,
    )
    if loaded.left_out:
        log.warning("left out: %s", ", ".join(f"{n} {what}" for what, n in loaded.left_out.items()))
    one_turn = [c for c in loaded.comparisons if [turn.role for turn in c.turns] == ["user"]]
    comparisons = one_turn if spec.single_turn else loaded.comparisons
    if not comparisons:
        raise InputError(f"comparisons={spec.name}: none is left to explain")
    if spec.n and len(comparisons) < spec.n:
        log.warning("comparisons.n=%d, but there are %d: all are taken", spec.n, len(comparisons))
    return choose(comparisons, n=spec.n, seed=config.seed), loaded.left_out


def _requests(
    comparisons: Sequence[Comparison], attributes: Sequence[Attribute], config: ExplainConfig
) -> list[Request]:
    """What the perturber will be asked. Which response is preferred is not known yet; either way
    there are as many calls."""
    rewards = {one.key: (1.0, 0.0) for one in comparisons}
    requests = requests_for(
        comparisons, rewards, attributes, range(config.seeds), 0.0, both_ways=config.both_ways
    )
    if not config.pair:
        for arm, n in ((ANY_WAY, config.overall), (NEUTRAL, config.placebos)):
            requests += requests_for(comparisons, rewards, [arm], range(n), 0.0)
    return requests


def _print(results: Sequence[Result], found: Explained) -> None:
    """Which attributes move the reward, the strongest slope first, and how often edits along them
    flip the preference."""
    by_name = {result.name: result for result in results}
    rows = overview({name: by_name[name].table for name in ("slopes", "sensitivity")})
    placebo = rows["attribute"] == PLACEBO
    shown = pd.concat([rows[~placebo].head(SHOWN), rows[placebo]])
    shown = shown.assign(
        beyond_q=shown["beyond_q"].map("{:.2g}".format, na_action="ignore")
    )  # a tiny p is not 0
    show(Text(f"{found.model}: {len(found.decided)} comparisons, attribute by attribute"))
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
            f"  {row.amount} {row.attribute} in {GIVEN[row.response]}=, margin "
            f"{significant(row.margin)} → {significant(row.new_margin)}: "
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
