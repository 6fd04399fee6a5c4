"""`pessimal rollouts FILE`: what a reward pays for in what a policy wrote."""

from dataclasses import asdict

import pandas as pd
from rich.text import Text

from pessimal.api.rollouts import RolloutResults, rollouts
from pessimal.config.schema import RolloutsConfig
from pessimal.errors import IncompleteError, VerdictError
from pessimal.progress import quiet_libraries
from pessimal.rollout_analysis.features import OF_NUMBER, TEXTS, describe_feature
from pessimal.statistics import LEVEL
from pessimal.tables.result import Result
from pessimal.texts import literal
from pessimal.verbs.common import print_path, show, store_of

MAX_FEATURES = 3
"""Features of each kind that are printed."""


def run(config: RolloutsConfig) -> None:
    """Read the rollouts, publish a `rollouts` artifact, print what is paid.

    Raises:
        VerdictError: the reward fails, and `strict` is true. The artifact is published all the
            same.
        IncompleteError: there is neither truth nor answer, and `strict` is true.
    """
    quiet_libraries()
    assert config.file is not None
    names = ("tasks", "tokenizer", "budget", "scaled", "private", "name", "seed", "progress")
    results = rollouts(
        config.file,
        columns=asdict(config.columns),
        reward=config.reward if len(config.reward) > 1 else next(iter(config.reward), None),
        where=config.where.value,
        cache=config.paths.cache,
        store=store_of(config),
        **{name: getattr(config, name) for name in names},
    )
    for line in describe_rollouts(results):
        show(line)
    assert results.folder is not None
    print_path(results.folder)
    if results.failures and config.strict:
        raise VerdictError(f"FAILED: {results.failures[0]} See {results.folder}")
    if not results.is_measured and config.strict:
        raise IncompleteError(
            "INCOMPLETE: without truth or answer nothing is known to be paid wrongly. Type "
            "columns.truth=NAME or columns.answer=NAME; to end with exit code 0: strict=false"
        )


def describe_rollouts(results: RolloutResults) -> list[Text]:
    """At most fifteen lines: the signal, what is paid wrongly with an example each, what is paid,
    what will be amplified."""
    lines = [Text(note, "dim") for note in results.notes[:2]]
    for result in results:
        style = "bold red" if result.name == "wrongly_paid" and results.failures else "bold"
        lines.append(Text(result.headline, style))
        lines += [Text(f"  {line}") for line in _describe_features(result)]
    return lines[:15]


def _describe_features(result: Result) -> list[str]:
    table = result.table
    if result.plot is not None and result.plot.data is not None:  # without what is alike
        table = result.plot.data
    by_reward = table.groupby("reward", sort=False) if "feature" in table else table[:0]
    rows = by_reward.head(MAX_FEATURES).to_dict("records")
    if result.name in ("wrongly_paid", "wrongly_refused"):
        key = f"{result.name}/graded"
        says = "put into other wrong answers, {:.0%} of these are paid"
        if result.name == "wrongly_refused":
            says = "put into right answers, {:.0%} of these are not paid"
        return [
            _describe_wrong(
                row,
                says,
                graded=bool(result.summary.get(f"{key}/{row['reward']}", result.summary.get(key))),
            )
            for row in rows
        ]
    rows = [row for row in rows if row.get("p_corrected", 1) <= LEVEL]
    column = {"amplified": "drift", "growth": "slope"}.get(result.name)
    if column and rows:
        when = "at first" if column == "drift" else "a step"
        changes = [f"{_name(row)} {100 * row[column]:+.2g}" for row in rows if not _is_number(row)]
        return [f"Points of the share of rollouts {when}: {', '.join(changes)}"] * bool(changes)
    return []


def _is_number(row: dict) -> bool:
    """Whether a feature is a number, which rollouts have more or less of."""
    return row["kind"] not in TEXTS and str(row["feature"]).endswith(OF_NUMBER)


def _describe_wrong(row: dict, says: str, *, graded: bool) -> str:
    """A feature that is paid wrongly, on one line, with an example."""
    words, having, lacking = _name(row), "with it", "without"
    if _is_number(row):
        words, having, lacking = words.removesuffix(OF_NUMBER), "above the median", "else"
    shares = (row["paid_with"], having, row["paid_without"], lacking)
    if pd.notna(row["confirmed"]):
        words += f": {says.format(row['confirmed'])}"
    elif pd.notna(row["paid_with"]) and graded:
        words += ": reward {:.2f} {}, {:.2f} {}".format(*shares)
    elif pd.notna(row["paid_with"]):
        words += ": {:.0%} {}, {:.0%} {}".format(*shares)
    return (
        f"{words}. Example: {literal(row['example'], limit=90)}" if row["example"] else f"{words}."
    )


def _name(row: dict) -> str:
    return describe_feature(row["kind"], str(row["feature"]), limit=50)
