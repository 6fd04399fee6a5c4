"""An audit as files that others read: `audit.json`, a Markdown section for a model card with its
`model-index`, and JUnit XML. The same audit gives the same bytes: no times, four figures."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import yaml

from pessimal.auditing.verdicts import (
    FAIL,
    INCOMPLETE,
    NOT_ASKED,
    NOT_MEASURED,
    PASS,
    REVIEW,
    Verdict,
    headline_of,
)
from pessimal.texts import readable, significant
from pessimal.version import __version__

SCHEMA = 2
"""Raised when a field of `audit.json` changes its meaning."""
FILES = ("audit.json", "audit.md", "junit.xml")
ORDER = (FAIL, REVIEW, PASS, NOT_MEASURED)
"""Verdicts as a person reads them: failures first."""


def document(
    reward: Mapping[str, Any],
    scope: Mapping[str, str],
    checks: Sequence[Verdict],
    facts: Sequence[Verdict],
    metrics: Mapping[str, float],
    *,
    verdict: str,
    deciding: Sequence[str],
    core: Sequence[str],
    inputs: Sequence[str] = (),
    changes: pd.DataFrame | None = None,
    baseline: str | None = None,
) -> dict[str, Any]:
    """The content of `audit.json` (docs/audit.md).

    Args:
        reward: name, kind, digests.
        scope: what each part of the audit looked at, in words.
        verdict, deciding: of the whole audit (`verdicts.overall`).
        core: checks without which an audit is incomplete.
        inputs: keys of the score tables.
        changes: of `auditing.changes`, since `baseline`.
    """
    since = None
    if changes is not None:
        rows = changes.drop(columns="question").to_dict("records")
        since = {
            "baseline": baseline,
            "numbers": [{str(k): figure(value) for k, value in row.items()} for row in rows],
        }
    named_facts = [_entry(check) for check in facts]
    for entry in named_facts:
        entry["fact"] = entry.pop("check")
        for name in ("verdict", "limit", "action", "detectable"):
            del entry[name]
    return {
        "schema": SCHEMA,
        "pessimal": __version__,
        "reward": dict(reward),
        "verdict": verdict,
        "deciding": list(deciding),
        "headline": readable(headline_of(verdict, deciding, checks)),
        "core": list(core),
        "scope": dict(scope),
        "verdicts": [_entry(check) for check in checks],
        "facts": named_facts,
        "metrics": {name: figure(metrics[name]) for name in sorted(metrics)},
        "inputs": list(inputs),
        "changes": since,
    }


def _entry(check: Verdict) -> dict[str, Any]:
    row = {name: figure(value) for name, value in check.row.items() if name != "result"}
    return row | {name: readable(row[name]) for name in ("evidence", "action")}


def sort_checks(checks: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Checks of `audit.json` that apply, failures first."""
    applying = [check for check in checks if check["evidence"] != NOT_ASKED]
    return sorted(applying, key=lambda check: ORDER.index(check["verdict"]))


def figure(value: Any) -> Any:
    """A number with four figures, as JSON can hold it; anything else as it is."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.4g}") if math.isfinite(value) else None


def as_json(audit: Mapping[str, Any]) -> str:
    """The text of `audit.json`."""
    return json.dumps(audit, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def number(check: Mapping[str, Any]) -> str:
    """`0.31 [0.2, 0.4]` of a check of `audit.json`; empty where nothing was measured."""
    if check["value"] is None:
        return ""
    ends = [check[end] for end in ("low", "high")]
    point = None in ends or ends[0] == ends[1]
    interval = "" if point else f" [{significant(ends[0])}, {significant(ends[1])}]"
    return significant(check["value"]) + interval


def markdown(audit: Mapping[str, Any]) -> str:
    """A section for a model card: the verdicts, and the front matter's `model-index`."""
    index = yaml.safe_dump(model_index(audit), sort_keys=False, allow_unicode=True)
    lines = [
        f"## Audit of {_plain(audit['reward']['name'])}: {audit['verdict']}",
        "",
        _plain(audit["headline"]),
        "",
        f"By pessimal {audit['pessimal']}. `review`: an effect was found or not ruled out, and no "
        "limit says whether it is bad.",
        "",
        "| check | verdict | measured | what came out | what to do |",
        "|---|---|---|---|---|",
    ]
    for check in sort_checks(audit["verdicts"]):
        verdict = check["verdict"].replace("_", " ")
        to_do = check["action"] or check["command"]
        row = (check["check"], f"**{verdict}**", number(check), check["evidence"], to_do)
        lines.append("| " + " | ".join(_plain(cell) for cell in row) + " |")
    lines += ["", "| fact | measured | |", "|---|---|---|"]
    for fact in audit["facts"]:
        if fact["value"] is not None:
            cells = (fact["fact"], number(fact), fact["evidence"])
            lines.append("| " + " | ".join(_plain(cell) for cell in cells) + " |")
    if (since := audit["changes"]) is not None:
        beyond = [row for row in since["numbers"] if row["verdict"] == FAIL]
        lines += ["", f"Since {_plain(since['baseline'])}: {len(beyond)} changes beyond a seed's."]
        lines += [f"- {_plain(row['kind'])} {_plain(row['part'])}" for row in beyond]
    return "\n".join([*lines, "", "```yaml", index.rstrip(), "```", ""])


def model_index(audit: Mapping[str, Any]) -> dict[str, Any]:
    """`model-index` of what was measured, as model cards have it.

    Source: https://github.com/huggingface/hub-docs/blob/main/modelcard.md
    """
    measured = [check for check in audit["verdicts"] if check["value"] is not None]
    metrics = [
        {"type": f"audit_{check['check']}", "value": check["value"], "name": check["verdict"]}
        for check in measured
    ]
    result = {
        "task": {"type": "text-classification", "name": "reward model"},
        "dataset": {"type": "pessimal", "name": "pessimal audit"},
        "metrics": metrics,
    }
    return {"model-index": [{"name": audit["reward"]["name"], "results": [result]}]}


def junit(audit: Mapping[str, Any]) -> str:
    """The verdicts as a JUnit test suite: `fail` is a failure, `not_measured` is skipped, and an
    audit without its core checks is an error of the suite."""
    checks = []
    for check in audit["verdicts"]:
        text = f"{number(check)} {check['evidence']} {check['action']}"
        checks.append((check["check"], check["verdict"], text, check["command"]))
    incomplete = audit["verdict"] == INCOMPLETE
    for row in (audit["changes"] or {"numbers": ()})["numbers"]:
        name = f"since {row['kind']} {row['part']}".strip()
        checks.append((name, row["verdict"], f"{row['change']}, limit {row['limit']}", ""))
    counts = {verdict: sum(row[1] == verdict for row in checks) for verdict in (FAIL, NOT_MEASURED)}
    sizes = {"tests": len(checks) + incomplete, "failures": counts[FAIL]}
    sizes |= {"errors": int(incomplete), "skipped": counts[NOT_MEASURED]}
    fields = {"name": f"pessimal audit {readable(audit['reward']['name'])}"}
    suite = ElementTree.Element("testsuite", fields | {k: str(n) for k, n in sizes.items()})
    for name, verdict, text, command in checks:
        case = ElementTree.SubElement(suite, "testcase", classname="audit", name=readable(name))
        text = readable(text.strip())
        if verdict == FAIL:
            ElementTree.SubElement(case, "failure", message=text)
        elif verdict == NOT_MEASURED:
            ElementTree.SubElement(case, "skipped", message=readable(command or text))
        elif verdict == REVIEW:
            ElementTree.SubElement(case, "system-out").text = f"review: {text}"
    if incomplete:
        case = ElementTree.SubElement(suite, "testcase", classname="audit", name="core")
        ElementTree.SubElement(case, "error", message=readable(audit["headline"]))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _plain(text: object) -> str:
    """A text in a cell of a Markdown table: no markup of its own, and no new cell or line."""
    text_shown = readable(" ".join(str(text).split())).replace("\\", "\\\\")
    for mark in "|`<>[]":
        text_shown = text_shown.replace(mark, f"\\{mark}")
    return text_shown
