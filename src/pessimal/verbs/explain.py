"""`pessimal explain`: which changes of a response flip a model's preference, and along which
attributes."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pandas as pd
from rich.text import Text

from pessimal.api.explain import OPTIONS, PAIR, Explanation, explain
from pessimal.config.compose import plain
from pessimal.config.schema import ExplainConfig, JudgeKind
from pessimal.errors import InputError
from pessimal.explaining.attribute import ANY_WAY, PLACEBO, Attribute, read_attributes
from pessimal.explaining.detectors import RuleJudge
from pessimal.explaining.explain import CONTROLS, NEUTRAL, pair
from pessimal.explaining.judges import Judge, LikelihoodJudge, make_judge
from pessimal.explaining.outcomes import requests_for
from pessimal.explaining.perturbers import Request, make_perturber
from pessimal.explaining.results import GIVEN, smallest_edits
from pessimal.explaining.views import GONE, LEFT_OUT, NEW, condensed, diff
from pessimal.progress import quiet_libraries
from pessimal.rewards.base import Reward
from pessimal.rewards.obtain import open_reward
from pessimal.rewards.spec import ModelSpec
from pessimal.tables.comparisons import Comparison, choose
from pessimal.texts import significant
from pessimal.verbs.common import device_of, print_path, show, store_of, table_text, write_out

log = logging.getLogger(__name__)

MARKS = {GONE: ("[-", "-]", "red"), NEW: ("{+", "+}", "green"), LEFT_OUT: ("", "", "dim")}
MAX_ROWS = 9
"""Rows printed at the end."""
COLUMNS = {
    "attribute": "attribute",
    "liked": "edits against liking",
    "flip_rate": "flip",
    "flip_low": "low",
    "flip_high": "high",
    "p_corrected": "p",
    "n": "edits",
}
"""Columns of the table that is printed, with their headings; p is beyond placebo edits and prices
of words, corrected over attributes and directions."""


def run(config: ExplainConfig) -> None:
    """Explain, publish an `explanation` artifact and print its folder; one that is finished already
    is named."""
    # 1. What is explained, along what, changed and judged by whom.
    quiet_libraries(lightning=config.trainer.accelerator != "cpu")
    cache, pair_given = Path(config.paths.cache), config.pair
    comparisons, left_out = ([pair(*pair_given)], {}) if pair_given else _comparisons(config)
    attributes = read_attributes(plain(config)["contrast"])
    open_model = partial(open_reward, cache=config.paths.cache)

    answers = cache / "answers"
    perturber = make_perturber(config.perturber, attributes=attributes, cache=answers)
    judge = None if pair_given else _judge(config, open_model, answers)
    if config.dry_run:
        requests = _requests(comparisons, attributes, config)
        write_out(perturber.dry_run(requests).text())  # type: ignore[attr-defined] # checked: llm's
        if config.judge is not JudgeKind.rules and not pair_given:
            edits = sum(request.attribute.name not in CONTROLS for request in requests)
            write_out(f"\nThe judge is asked once an edit: up to {edits:,} calls more.")
        return
    # 2. Of which model.
    language = None if config.fluency is None else open_model(config.language_model("fluency"))
    explanation = explain(
        open_model(config.model),
        *(pair_given or ()),
        comparisons=None if pair_given else comparisons,
        attributes=attributes,
        perturber=perturber,
        judge=judge,
        fluency=language,
        name=str(config.comparisons.name),
        left_out=left_out,
        device=device_of(config.trainer, config.paths.cache),
        store=store_of(config),
        cache=config.paths.cache,
        **{name: getattr(config, name) for name in (*OPTIONS, "seed", "batch_size", "progress")},
    )
    assert explanation.folder is not None
    if explanation:
        for name, asking in ((perturber.name, perturber), (judge and judge.name, judge)):
            if chat := getattr(asking, "chat", None):  # what a language model was asked
                log.info("%s: %s", name, chat.usage.sentence())
        _print_pair(explanation) if pair_given else _print(explanation)
    print_path(explanation.folder)


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
    loaded = spec.load(skip_bad=config.skip_bad)
    if loaded.left_out:
        counts = ", ".join(f"{n} {reason}" for reason, n in loaded.left_out.items())
        log.warning("left out: %s", counts)
    comparisons = loaded.comparisons
    if not comparisons:
        raise InputError(f"comparisons={spec.name}: none is left to explain")
    if spec.n and len(comparisons) < spec.n:
        log.warning("comparisons.n=%d, but there are %d: all are taken", spec.n, len(comparisons))
    return choose(comparisons, n=spec.n, seed=config.seed), loaded.left_out


def _requests(
    comparisons: Sequence[Comparison], attributes: Sequence[Attribute], config: ExplainConfig
) -> list[Request]:
    """Requests to the perturber. Which response is preferred is not known yet; either way
    there are as many calls."""
    rewards = {comparison.key: (1.0, 0.0) for comparison in comparisons}
    requests = requests_for(
        comparisons, rewards, attributes, range(config.seeds), 0.0, both_ways=config.both_ways
    )
    if not config.pair:
        for arm, n in ((ANY_WAY, config.overall), (NEUTRAL, config.placebos)):
            requests += requests_for(comparisons, rewards, [arm], range(n), 0.0)
    return requests


def _print(explanation: Explanation) -> None:
    """Print how often edits along each attribute flip the preference, the most often first."""
    flips, explained = explanation["sensitivity"], explanation.explained
    rows = flips.table.dropna(subset=["flip_rate"])
    placebo = rows["attribute"] == PLACEBO
    along = rows[~placebo].sort_values("flip_rate", ascending=False, kind="stable")
    first = pd.concat([along.head(MAX_ROWS), rows[placebo]])
    tiny = first["p_corrected"].map("{:.2g}".format, na_action="ignore")  # a tiny p is not 0
    show(Text(f"{explained.model}: {len(explained.decided)} comparisons, attribute by attribute"))
    first = first.assign(p_corrected=tiny, liked=first["liked"].replace("", None))
    show(_table(first[list(COLUMNS)].rename(columns=COLUMNS)))
    if len(along) > MAX_ROWS:
        show(f"{len(along) - MAX_ROWS} more rows on the page.")
    for line in (flips.headline, *flips.notes):
        show(Text(line))


def _print_pair(explanation: Explanation) -> None:
    """Both rewards, the changes of the margin by attribute, and the smallest edits that flip the
    preference."""
    pair_result, explained = explanation[PAIR], explanation.explained
    for line in (pair_result.headline, *pair_result.notes):
        show(Text(line))
    show(_table(pair_result.table.head(MAX_ROWS // 2 + 1)))
    flips = any(result.name == "smallest_flips" for result in explanation)
    show("smallest edits that flip it:" if flips else "edits that come nearest to a flip:")
    for row in smallest_edits(explained).itertuples():
        margins = f"{significant(row.margin)} → {significant(row.new_margin)}"
        text = Text(f"  {row.amount} {row.attribute} in {GIVEN[row.response]}=, {margins}: ")
        for piece in condensed(diff(row.original, row.edited), context=40):
            opening, closing, style = MARKS.get(piece.kind, ("", "", ""))
            text.append(f"{opening}{piece.text}{closing}", style=style)
        show(text)


def _table(rows: pd.DataFrame) -> Text:
    rows = rows.round(3).astype(object)
    cells = rows.where(rows.notna(), None).to_numpy().tolist()
    return Text(table_text(list(rows), cells, width=None))
