"""The page: one self-contained HTML file over published artifacts. What was asked and what the
models want, then findings, models, questions.

Knows artifacts and HTML. No network: figures are vector drawings inside it. Every string that came
from a vocabulary or a file is escaped, or carried as data that no browser takes for markup. Only
our own scripts run, by their digests, and without them everything but the explorer is there.
"""

import itertools
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pessimal.auditing.changes import CHANGES
from pessimal.auditing.verdicts import AUDIT, FAIL, MEASURED, NOT_ASKED, NOT_MEASURED, PASS, REVIEW
from pessimal.plots import BETWEEN, tabs_of
from pessimal.report.artifact import MARKDOWN, Artifact, Shown, method
from pessimal.report.cards import cards, kinds, marked, model_figures, numbers, prompts, wanted
from pessimal.report.explorer import Explorer
from pessimal.report.scripts import drawing, library, own_script, policy
from pessimal.statistics import LEVEL
from pessimal.tables.result import HOLDS, LEGEND, Estimate
from pessimal.texts import interval, literal, readable, signed, significant

MAX_ROWS = 400
"""Rows of a table on the page: it shows the beginning of a longer one and counts the rest."""
MAX_TABS = 12
"""Tabs of a figure: further ones stay in the artifact and are counted."""
FINDINGS = 9
"""Cards; further headlines are folded below them."""
RANKS = 5
"""Ranks of tokens at each end; the table below has all."""
PROVENANCE = "provenance"
VERDICTS = (FAIL, REVIEW, PASS, MEASURED, NOT_MEASURED, NOT_ASKED)
"""In the order of the page."""
IDS = ("asked", "explorer", "findings", "models", PROVENANCE, "results", "verdicts")
"""Ids of the page's own sections: no question has one of these."""
GLOSSARY = {
    r"Zipf unit": "Zipf unit: ten times the use",
    r"half[ -]sum": "half sum: the mean of the two prompts",
    r"Kendall|τ": "τ: 1 is the same order, 0 none, −1 the reverse",
    r"certified": "certified: no rounding error can change the rank",
}
"""Terms, and what they are in plain words, which stands where a term is first used."""


def page(
    artifacts: list[Artifact],
    *,
    title: str,
    explorer: Explorer | None = None,
    notes: Sequence[str] = (),
) -> str:
    """The HTML of the page, UTF-8; with scripts where there are an explorer or numbers of several
    models for them.

    Args:
        notes: Markdown paragraphs for the foot of the page: whose data these are.

    Raises:
        InputError: an artifact has no `results.json`, or a figure that is no SVG.
    """
    layout: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "autoescape": True}
    loader = PackageLoader("pessimal.report", ".")
    environment = Environment(loader=loader, extensions=["jinja2.ext.do"], **layout)
    environment.undefined = StrictUndefined
    filters = {"cell": _cell, "json": _json, "readable": readable, "number": number, "tail": tail}
    anchors = [f"part{i}-" if len(artifacts) > 1 else "" for i in range(len(artifacts))]
    taken = set(IDS)
    parts = [_part(*pair, taken) for pair in zip(artifacts, anchors, strict=True)]
    wordings = {prompt for part in parts for prompt in part["prompts"]}
    environment.filters |= filters | {"line": number_line, "plain": glossary(wordings)}
    findings, further = _findings(parts)
    index = explorer.index if explorer else {}
    is_sorted = any(len(part["numbers"].get("rows", ())) > 1 for part in parts)
    scripts, files = [own_script()] * bool(index or is_sorted), library() if index else ()
    tables = [table for part in parts for table in part["wanted"]["tabs"]]
    rows = [row for table in tables for row in table["content"]["rows"]]
    ends = [tokens for row in rows for tokens in row["ends"].values()]
    first = tables[0]["label"] if tables else None
    return environment.get_template("page.html.jinja").render(
        title=readable(title),
        parts=parts,
        opens=bool(tables) or any(part["prompts"] or part["kinds"] for part in parts),
        unsure=any(not certain for tokens in ends for _, _, certain in tokens),
        finds=not all(part["audit"] for part in parts),
        findings=findings,
        further=further,
        legend=LEGEND,
        tests=tests([(f"#{q['anchor']}", result) for _, q, result in findings + further]),
        explorer=explorer,
        explorer_index={**index, "prompt": first} if index else None,
        notes=[Markup(MARKDOWN.render(note)) for note in notes],
        policy=Markup(policy([*scripts, *files])),
        script=scripts[0] if scripts else None,
        library=files,
    )


Finding = tuple[dict[str, Any], dict[str, Any], Shown]
"""An artifact, a question, and a result that has a headline."""


def _findings(parts: Sequence[dict[str, Any]]) -> tuple[list[Finding], list[Finding]]:
    """Findings that get a card, and all others, the heaviest first: from each artifact those that
    hold, or where none does all of them. The verdicts of an audit say it already."""
    cards, rest = list[Finding](), list[Finding]()
    for part in (part for part in parts if not part["audit"]):
        every = [(part, q, result) for q in part["questions"] for result in q["results"]]
        threshold = HOLDS if any(result.weight >= HOLDS for *_, result in every) else -math.inf
        for item in every:
            (cards if item[2].weight >= threshold else rest).append(item)
    cards.sort(key=lambda item: -item[2].weight)
    rest = sorted(cards[FINDINGS:] + rest, key=lambda item: -item[2].weight)
    return cards[:FINDINGS], rest


def _part(artifact: Artifact, anchor: str, taken: set[str]) -> dict[str, Any]:
    """An artifact, arranged: what was asked and is wanted, its cards with the figures of each, its
    questions, its provenance. `taken` are ids that the page has already."""
    ids = (f"{anchor}figure{number}" for number in itertools.count(1))
    methods: dict[str, list[Shown]] = {}
    for result in artifact.results:
        key = PROVENANCE if result.name == PROVENANCE else result.method or result.name
        methods.setdefault(key, []).append(result)
    sources = {r.name: artifact.table(r.name) for r in methods.pop(PROVENANCE, ())}
    questions = {
        key: _question(artifact, key, results, _unique(anchor + key.partition("\n")[0], taken), ids)
        for key, results in methods.items()
    }
    audit = _audit(artifact, questions, ids)
    return {
        "artifact": artifact,
        "anchor": anchor,
        "prompts": prompts(artifact),
        "kinds": kinds(artifact),
        "wanted": {"title": "What they want", "open": 0, "left_out": 0, "tabs": wanted(artifact)},
        "questions": list(questions.values()),
        "audit": audit,
        "cards": [
            (card, _card_figures(artifact, card, ids)) for card in cards(artifact) if not audit
        ],
        "numbers": {} if audit else numbers(artifact),
        "provenance": {name: _table(table) for name, table in sources.items() if len(table)},
    }


def _audit(
    artifact: Artifact, questions: Mapping[str, dict[str, Any]], ids: Iterator[str]
) -> dict[str, Any]:
    """An audit's overall verdict (`lead`), and by verdict its checks, those that fail with their
    figures, and what changed by more than a seed; nothing of any other artifact."""
    if (whole := next((r for r in artifact.results if r.name == AUDIT), None)) is None:
        return {}
    table, results = artifact.table(AUDIT).astype(object), {r.name: r for r in artifact.results}
    rows = table.where(table.notna(), None).to_dict("records")
    for change in artifact.table(CHANGES).to_dict("records"):
        text = f"{significant(change['change'])} (limit {change['limit']:g}), in {change['unit']}"
        more = {"check": f"{change['kind']} {change['part']}", "result": CHANGES, "evidence": text}
        if change["verdict"] == FAIL and change["kind"] != "check":
            rows.append(change | more | {"action": "", "command": ""})
    anchors = {name: q["anchor"] for q in questions.values() for name in q["tables"]}
    by_verdict = {verdict: list[dict]() for verdict in VERDICTS}
    for row in rows:
        by_verdict[NOT_ASKED if row["evidence"] == NOT_ASKED else row["verdict"]].append(row)
        row["anchor"], row["figure"] = anchors.get(row["result"]), None
    for row in by_verdict[FAIL]:
        if figures := _contents(artifact, result := results[row["result"]]):
            row["figure"] = _figure(artifact, result.headline, figures, ids)
    first = next((row["evidence"] for row in by_verdict[FAIL]), "")
    return {"lead": whole.headline.removesuffix(first).strip(), "rows": by_verdict}


def _unique(name: str, taken: set[str]) -> str:
    """An id of letters, digits and dashes that is not taken yet, and now is."""
    plain = re.sub("[^A-Za-z0-9]", "-", name)
    again = (plain, *(f"{plain}-{number}" for number in range(2, len(taken) + 3)))
    free = next(id for id in again if id not in taken)
    taken.add(free)
    return free


def _question(
    artifact: Artifact, key: str, results: list[Shown], anchor: str, ids: Iterator[str]
) -> dict[str, Any]:
    """A section: the results of one method. Those with a headline stand in `results`, the heaviest
    first; `figures` are in the same order, then those of other results; `on_cards` says whether
    there are figures of single models."""
    ordered = sorted(results, key=lambda r: (not r.headline, -r.weight))
    figures = {
        r.name: _figure(artifact, r.headline or _plain(r.name), _contents(artifact, r), ids)
        for r in ordered
        if not r.has_cards
    }
    return {
        "anchor": anchor,
        "method": method(key),
        "results": [r for r in ordered if r.headline and r.name != AUDIT],
        "figures": {name: figure for name, figure in figures.items() if figure["tabs"]},
        "tables": {r.name: _table(table) for r in results if len(table := artifact.table(r.name))},
        "notes": list(dict.fromkeys(note for r in results for note in r.notes)),
        "views": [view for r in results for view in artifact.views(r.name)],
        "on_cards": any(r.has_cards for r in results),
        "checks": [row for r in results for row in _checklist(artifact.table(r.name))],
    }


def _checklist(table: pd.DataFrame) -> list[dict]:
    """The rows of a list of checks, to be shown whole, limits included; none of any other table."""
    columns = {"check", "verdict", "measured", "meaning"}
    return table.to_dict("records") if columns <= set(table.columns) else []


def _card_figures(artifact: Artifact, card: dict, ids: Iterator[str]) -> list[dict]:
    """The figures of one model."""
    names = card["model"], card["label"]
    single = [(r.name, model_figures(r, *names)) for r in artifact.results if r.has_cards]
    return [_figure(artifact, _plain(name), stems, ids) for name, stems in single if stems]


def _figure(
    artifact: Artifact, title: str, contents: Mapping[str, str | dict], ids: Iterator[str]
) -> dict:
    """A figure of stems or tables of tokens by tab; the tab that the title speaks of is `open`."""
    tabs: list[dict[str, Any]] = []
    labelled = zip(_short(list(contents)), contents.values(), strict=True)
    for label, it in itertools.islice(labelled, MAX_TABS):
        content = it if isinstance(it, dict) else drawing(artifact.figure(it), next(ids))
        tabs.append({"label": label, "content": content})
    matches = [t for t in tabs if t["label"] and re.search(rf"\b{re.escape(t['label'])}\b", title)]
    start = tabs.index(max(matches, key=lambda tab: len(tab["label"]))) if matches else 0
    return {"title": title, "tabs": tabs, "open": start, "left_out": len(contents) - len(tabs)}


def _contents(artifact: Artifact, result: Shown) -> dict[str, str] | dict[str, dict]:
    """Contents of a result's tabs: stems of figures, or tables of tokens in their place."""
    if result.plot.get("kind") != "TokenTable":
        return result.figures
    plot = result.plot
    groups = tabs_of(plot["tabs"], artifact.rows(result), plot["value"])
    return {tab: _tokens(artifact, plot, rows) for tab, rows in groups}


def _short(labels: list[str]) -> list[str]:
    """Names of tabs without the parts that are the same in all."""
    parts = [label.split(BETWEEN) for label in labels]
    if len({len(pieces) for pieces in parts}) != 1:
        return labels
    differ = [i for i, column in enumerate(zip(*parts, strict=True)) if len(set(column)) > 1]
    return [BETWEEN.join(pieces[i] for i in differ) for pieces in parts]


def _tokens(artifact: Artifact, plot: dict, rows: pd.DataFrame) -> dict:
    """A table of tokens: rows are ranks, columns models."""
    end, rank, column = (plot[name] for name in ("end", "rank", "column"))
    rows = marked(rows[rows[rank] <= min(plot["shown"], RANKS)])
    if column not in rows:
        rows = rows.assign(**{column: ""})
    table = rows[[end, rank, column, plot["text"], plot["value"], "certified"]].astype(object)
    cells: dict[tuple, tuple] = {
        tuple(key): (literal(text), significant(value), bool(mark))
        for *key, text, value, mark in table.to_numpy()
    }
    columns = list(dict.fromkeys(rows[column]))
    places = dict.fromkeys(key[:2] for key in cells)
    lines = {p: [cells.get((*p, name), ("", "", True)) for name in columns] for p in places}
    labels = [literal(artifact.labels.get(name, name), limit=40) for name in columns]
    return {"columns": labels, "rows": [(*place, line) for place, line in lines.items()]}


def tests(results: Sequence[tuple[str, Shown]]) -> dict[str, Any] | None:
    """Numbers of results that were tested, that would hold by chance, that hold, and that hold
    page-wide; and the table of results. None where nothing was tested.

    Args:
        results: links to their sections, and results.

    A result's p is corrected for the tests of its family; `p_page` is that p corrected over the
    page's results by Benjamini and Hochberg (1995).
    """
    tested = [(link, r.headline, r.estimate) for link, r in results if r.estimate]
    tested = [row for row in tested if (p := row[2]["p"]) is not None and math.isfinite(p)]
    if not tested:
        return None
    from scipy.stats import false_discovery_control  # half a second

    p = [estimate["p"] for _, _, estimate in tested]
    page_wide = false_discovery_control(p).tolist()
    numbers = [number(estimate) for _, _, estimate in tested]
    digits = ([f"{value:.3f}" for value in values] for values in (p, page_wide))
    return {
        "tested": len(tested),
        "chance": signed(LEVEL * len(tested), ".1f"),
        "hold": sum(value <= LEVEL for value in p),
        "hold_page": sum(value <= LEVEL for value in page_wide),
        "rows": [(*row[:2], *cells) for row, *cells in zip(tested, numbers, *digits, strict=True)],
    }


def number_line(estimate: dict) -> dict[str, Any] | None:
    """Where an estimate, the ends of its interval and its null stand on a line from 0 to 100; None
    where there is nothing to compare it with."""
    names, p = ("value", "low", "high", "null"), estimate["p"]
    at = {n: x for n in names if (x := estimate.get(n)) is not None and math.isfinite(x)}
    low, high = min(at.values(), default=0.0), max(at.values(), default=0.0)
    if not {"value", "null"} <= set(at) or low == high:
        return None
    places = {name: 4 + 92 * (x - low) / (high - low) for name, x in at.items()}
    return places | {"holds": p is not None and p <= LEVEL, "name": f"{at['null']:.3g}"}


def glossary(prompts: Collection[str]) -> Callable[..., str]:
    """A filter that gives the plain words of those terms in some texts that no text before had;
    `prompts` are keys of two that stand as `a × b`."""
    left = dict(GLOSSARY)
    if keys := "|".join(map(re.escape, prompts)):
        left |= {rf"\b({keys}) × ({keys})\b": "×: the average of two opposite prompts"}

    def plain(*texts: str) -> str:
        first = [term for term in left if any(re.search(term, text) for text in texts)]
        return "; ".join([left.pop(term) for term in first])

    return plain


def number(estimate: dict) -> str:
    """An estimate and its interval: `0.79 [0.79, 0.80]`; a count of checks as it is."""
    if estimate["of"] == "checks":
        return f"{estimate['value']:.0f}"
    return interval(estimate["value"], estimate["low"], estimate["high"])


def tail(estimate: dict) -> str:
    """On what an estimate rests: `n = 6,963 tokens, corrected p = .002`; and what it is to be
    compared with, where that is not 0."""
    p, null = estimate["p"], estimate.get("null")
    text = f"n = {estimate['n']:,} {estimate['of']}" + (
        f", compared with {null:.3g}" if null else ""
    )
    if p is not None:
        heads = estimate.get("heads") is True  # of tables of the third edition
        text += ", random heads " if heads else ", corrected p "
        text += "< .001" if p < 0.001 else f"= {p:.3f}".replace("0.", ".")
    if miss := Estimate(**estimate).miss:
        text += f", {miss}"
    return re.sub(" ([=<]) ", "\u00a0\\1\u00a0", text)


def _table(frame: pd.DataFrame) -> dict:
    frame = frame.dropna(axis="columns", how="all")
    return {
        "columns": list(frame.columns),
        "numeric": [pd.api.types.is_numeric_dtype(frame[column]) for column in frame.columns],
        "rows": frame.head(MAX_ROWS).to_numpy(dtype=object).tolist(),
        "left_out": max(0, len(frame) - MAX_ROWS),
    }


def _cell(value: Any) -> str:
    """A table cell as text: numbers to four digits, control characters visible, nothing for what is
    missing."""
    if isinstance(value, str):
        return literal(value, limit=60)
    if value is None or value is pd.NA or value != value:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    fraction = isinstance(value, float) and not value.is_integer()
    return f"{value:.4g}" if fraction else f"{int(value):,}"


def _json(document: object) -> Markup:
    """A document for a JSON data block: ASCII, and without the three characters that could end the
    block."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _plain(name: str) -> str:
    return name.replace("_", " ").capitalize()
