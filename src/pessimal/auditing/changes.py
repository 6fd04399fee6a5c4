"""Changes since an earlier audit, held against what another seed of the same training changes.

Pure functions over numbers of two audits and their score tables.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy import stats

from pessimal.auditing.verdicts import (
    FAIL,
    NOT_MEASURED,
    PASS,
    REVIEW,
    THRESHOLDS,
    Verdict,
    main_measure,
)
from pessimal.tables.result import Result
from pessimal.tables.score_table import ScoreTable

TOP = 20
CHANGES = "audit_changes"
"""Name of the Result that holds them."""
LEAST = ("order", "top", "vocabulary")
"""Changes that are a resemblance: beyond their limit is below it."""
ONE_TRAINING = 0.99
"""Resemblance in order beyond which two networks are not of two seeds."""
DIGESTS = ("template_digest", "tokenizer_digest", "config_digest", "dtype")
"""Fields of provenance: the inputs of a network, and the precision that it runs in."""


@dataclass(frozen=True)
class Limit:
    """The limit of a change, as `thresholds.yaml` has it."""

    question: str
    limit: float
    unit: str
    reason: str
    source: str


@cache
def limits() -> dict[str, Limit]:
    """By kind of change."""
    entries = yaml.safe_load(THRESHOLDS.read_text(encoding="utf-8"))["changes"]
    return {kind: Limit(**entry) for kind, entry in entries.items()}


def metrics(evidence: Mapping[str, Result], tables: Sequence[ScoreTable]) -> dict[str, float]:
    """Numbers of one audit that the next is compared with: `KIND` or `KIND/PART`.

    Args:
        evidence: Results by name.
        tables: score tables of the prompts.
    """
    numbers: dict[str, float] = {}
    for table in tables:
        rows = table.rows[table.rows["kind"].isin(("normal", "item"))]
        rewards, prompt = rows["reward"].to_numpy(dtype=float), table.provenance.prompt
        numbers[f"scale/{prompt}"] = float(np.log(rewards.std())) if rewards.std() > 0 else np.nan
        lengths = rows["text"].str.strip().str.len().to_numpy()
        if np.ptp(rewards) and np.ptp(lengths):
            numbers[f"length/{prompt}"] = float(stats.spearmanr(lengths, rewards).statistic)
    for name in ("frequency", "one_word"):
        if (result := evidence.get(name)) is not None and result.estimate is not None:
            numbers[name] = result.estimate.value
    if (identity := evidence.get("identity")) is not None:
        for row in main_measure(identity.table).itertuples():
            numbers[f"identity/{row.axis}"] = float(row.d)
    return numbers


def resemblance(now: Sequence[ScoreTable], before: Sequence[ScoreTable]) -> dict[str, float]:
    """The likeness of two audits' tables, prompt by prompt: `order` (Spearman's correlation of
    tokens of the same text), `top` (share of the best 20 that are the same), `vocabulary` (share of
    the earlier tokens that are still there); and how they differ: `reading`, how many of DIGESTS,
    and `rounded`, of two that are closer than seeds are, the rewards' distance in SD."""
    earlier, numbers = {t.provenance.prompt: t for t in before}, {}
    for table in now:
        if (other := earlier.get(prompt := table.provenance.prompt)) is None:
            continue
        first, second = (
            t.rows[t.rows["kind"].isin(("normal", "item"))].drop_duplicates("text")
            for t in (table, other)
        )
        rewards = [rows.set_index("text")["reward"] for rows in (first, second)]
        joined = pd.concat(rewards, axis=1, join="inner", keys=["now", "before"])
        numbers[f"vocabulary/{prompt}"] = len(joined) / len(second)
        if len(joined) > 2 and np.ptp(joined["now"]) and np.ptp(joined["before"]):
            order = float(stats.spearmanr(joined["now"], joined["before"]).statistic)
            numbers[f"order/{prompt}"] = order
            if order > ONE_TRAINING:
                apart = np.sqrt(((joined["now"] - joined["before"]) ** 2).mean())
                numbers[f"rounded/{prompt}"] = float(apart / joined["before"].std())
        digests = ([getattr(t.provenance, name) for name in DIGESTS] for t in (table, other))
        numbers[f"reading/{prompt}"] = float(sum(map(operator.ne, *digests)))
        best = [set(joined[name].nlargest(TOP).index) for name in joined]
        numbers[f"top/{prompt}"] = len(best[0] & best[1]) / max(len(best[0]), 1)
    return numbers


def changes(
    now: Mapping[str, float],
    before: Mapping[str, float],
    alike: Mapping[str, float],
    *,
    verdicts: Sequence[Verdict] = (),
    earlier: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """One row a change: kind, part, before, now, change, limit, unit, verdict, question.

    FAIL is a change beyond its limit: what another seed of the same training was not seen to
    change; of `rounded` it is REVIEW. What one of the two audits did not measure is NOT_MEASURED.

    Args:
        now, before: `metrics` of the two audits.
        alike: `resemblance` of their tables.
        verdicts: of this audit; and `earlier` those of the other, by check: a check that failed
            only now is a change.
    """
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys((*alike, *now, *before)):
        kind, _, part = name.partition("/")
        limit, values = limits()[kind], (before.get(name, np.nan), now.get(name, np.nan))
        change = alike[name] if name in alike else abs(values[1] - values[0])
        verdict = NOT_MEASURED
        if np.isfinite(change):
            beyond = change < limit.limit if kind in LEAST else change > limit.limit
            verdict = PASS if not beyond else REVIEW if kind == "rounded" else FAIL
        rows.append(
            {"kind": kind, "part": part, "before": values[0], "now": values[1], "change": change}
            | {"limit": limit.limit, "unit": limit.unit, "verdict": verdict}
            | {"question": limit.question}
        )
    for check in verdicts:
        was = (earlier or {}).get(check.check, NOT_MEASURED)
        if NOT_MEASURED in (was, check.verdict):
            continue
        worse = check.verdict == FAIL != was
        rows.append(
            {"kind": "check", "part": check.check, "before": np.nan, "now": np.nan}
            | {"change": float(worse), "limit": 0.0, "unit": "checks that fail only now"}
            | {"verdict": FAIL if worse else PASS, "question": check.threshold.question}
        )
    return pd.DataFrame(rows)


def changes_result(table: pd.DataFrame, baseline: str) -> Result:
    """The changes as a Result."""
    beyond = table[table["verdict"] == FAIL]
    measured = int((table["verdict"] != NOT_MEASURED).sum())
    return Result(
        CHANGES,
        table,
        headline=f"Since {baseline}, {len(beyond)} of {measured} numbers changed by more than "
        "another seed changes them.",
        method="audit",
    )
