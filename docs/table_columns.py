"""Writes `docs/tables.md`: every table that a verb writes, every column, its meaning, and an example.

The page is part of the built manual (`docs/conf.py` calls `main`) and is not kept in git. Columns of
an analysis are described under `Tables:` in its docstring; columns that mean the same in every
analysis in the docstring of `analyses/analysis.py`; columns of other tables in `docs/columns.yaml`.
Examples are of made-up scores (`tests/described_tables.py`).
"""

import inspect
import re
import sys
import tempfile
from pathlib import Path

import pandas as pd
import yaml

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "tables.md"
DESCRIPTIONS = ROOT / "docs" / "columns.yaml"
HEAD = """# Tables

Every table that a verb writes, for use in pandas:

```python
import pandas as pd

pd.read_parquet("runs/registry/comparison/NAME/v0/tables/agreement.parquet")
pd.read_parquet("runs/registry/score-table/MODEL--PROMPT/v0/scores.parquet")
```

`pessimal runs show REFERENCE` prints them. A table is written if its inputs are there. Intervals are at the level of
`confidence`, 95 % by default. A missing number could not be computed. Examples are of made-up scores.
"""
PARTS = {
    "score-table": ("scan, import", "`scores.parquet` in `score-table/NAME`"),
    "comparison": ("compare", "`tables/NAME.parquet` in `comparison/NAME`"),
    "comparison of explanations": (
        "compare explanations=[…]",
        "`tables/NAME.parquet` in `comparison/NAME`",
    ),
    "comparison of pairs": (
        "compare pairs=…",
        "`tables/NAME.parquet` in `comparison/NAME`",
    ),
    "explanation": ("explain", "`tables/NAME.parquet` in `explanation/NAME`"),
    "search-result": ("search", "`tables/NAME.parquet` in `search-result/NAME`"),
    "conformance": ("check", "`tables/NAME.parquet` in `conformance/NAME`"),
    "audit": ("audit", "`tables/NAME.parquet` in `audit/NAME`"),
    "census": ("scan FILE.py:FUNCTION tasks=FILE", "`tables/NAME.parquet` in `census/NAME`"),
    "rollouts": ("rollouts FILE", "`tables/NAME.parquet` in `rollouts/NAME`"),
    "study": ("search -m hparams_search=…", "`tables/NAME.parquet` in `study/NAME`"),
}
"""By type of artifact: what writes it, and where its tables are."""


SHARED, INHERITED = "as everywhere", "as in "
"""Before the columns of a docstring that mean the same in every table, and before the name of a
table above it, all of whose columns a table has."""


def descriptions(file: Path = DESCRIPTIONS) -> dict[str, dict[str, dict]]:
    """By type of artifact and table: `what` it holds, `columns` and their meanings in order, and
    `named` columns; those of the package's analyses too, where the file is the package's."""
    written = yaml.safe_load(file.read_text(encoding="utf-8"))
    shared = written.pop("shared")
    tables: dict[str, dict[str, dict]] = {}
    if file == DESCRIPTIONS:
        from pessimal.analyses import all_analyses, analysis, provenance

        shared |= dict(re.findall(r"^- ([^:]+): (.*)", _join(analysis.__doc__ or ""), re.MULTILINE))
        functions = [provenance.models, *(one.function for one in all_analyses())]
        comparison = [read_tables(inspect.getdoc(function) or "") for function in functions]
        written["comparison"] = {k: v for part in comparison for k, v in part.items()} | (
            written["comparison"]
        )
    for part, by_name in written.items():
        for name, table in by_name.items():
            own = table.get("columns") or {}
            keys = {key: own.get(key, shared.get(key)) for key in (table.get("keys") or "").split()}
            if unknown := [key for key, meaning in keys.items() if not meaning]:
                raise ValueError(f"{part}, {name}: what {', '.join(unknown)} means is said nowhere")
            table = {
                "what": table["what"],
                "columns": keys | own,
                "named": table.get("named") or {},
            }
            tables.setdefault(part, {})[name] = table
    return tables


def read_tables(docstring: str) -> dict[str, dict]:
    """The tables of a docstring, as `columns.yaml` would have them: under `Tables:` a line
    `NAME: what it holds` for each, then a line `- COLUMN: meaning` for each column; a column that is
    called after something of the user's is `NAME (pattern)`."""
    tables: dict[str, dict] = {}
    for line in _join(docstring.partition("Tables:\n")[2]).splitlines():
        name, _, text = line.removeprefix("- ").partition(": ")
        if not line.startswith("- "):
            tables[name] = table = {"what": text, "keys": "", "columns": {}, "named": {}}
        elif name.startswith(INHERITED):
            parent = tables[name.removeprefix(INHERITED)]
            table |= {part: parent[part].copy() for part in ("columns", "named")}
            table["keys"] = parent["keys"]
        elif name == SHARED:
            table["keys"] = text.replace(",", "")
        elif "(" in name:
            table["named"][name.split(" (")[0]] = [name.partition("(")[2][:-1], text]
        else:
            table["columns"][name] = text
    return tables


def _join(text: str) -> str:
    """Lines of a list without their indents, each with those that go on from it."""
    text = re.sub(r"\n {8,}(?![- ])", " ", text)
    return re.sub(r"^ +", "", text, flags=re.MULTILINE)


def page(examples: dict[tuple[str, str], pd.DataFrame]) -> str:
    """The whole page; `examples` are tables by type of artifact and name."""
    lines = [HEAD]
    for part, tables in descriptions().items():
        verb, where = PARTS[part]
        lines += [f"## {part}", "", f"Written by `pessimal {verb}`: {where}.", ""]
        for name, table in tables.items():
            lines += [
                f"### {name}",
                "",
                table["what"],
                "",
                "| column | meaning | example |",
                "|---|---|---|",
            ]
            example = examples.get((part, name))
            rows = {
                column: (meaning, re.escape(column)) for column, meaning in table["columns"].items()
            }
            rows |= {
                column: (meaning, pattern) for column, (pattern, meaning) in table["named"].items()
            }
            lines += [
                f"| `{c}` | {_cell(m)} | {_example(example, of)} |" for c, (m, of) in rows.items()
            ]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _cell(text: str) -> str:
    return str(text).replace("|", "\\|")


def _example(table: pd.DataFrame | None, pattern: str) -> str:
    """The first value of the column of this name, as short as it can be."""
    column = next((c for c in ([] if table is None else table) if re.fullmatch(pattern, c)), None)
    values = [] if column is None else table[column].dropna().tolist()
    if not values:
        return ""
    text = f"{values[0]:.4g}" if isinstance(values[0], float) else str(values[0]).replace("\n", " ")
    text = text if len(text) <= 40 else text[:39] + "…"
    return f"`{_cell(text)}`" if text.strip() and "`" not in text else ""


def main() -> None:
    """Write the page, unless it is newer than everything that it is made of."""
    examples_of = ROOT / "tests" / "described_tables.py"
    package = (ROOT / "src" / "pessimal").rglob("*.py")
    sources = [Path(__file__), DESCRIPTIONS, examples_of, *package]
    if PAGE.exists() and PAGE.stat().st_mtime > max(file.stat().st_mtime for file in sources):
        return
    sys.path.insert(0, str(examples_of.parent))
    from described_tables import answer_pairs, asked_of_a_model, graded, results, vocabulary

    examples = {("comparison", name): table for name, table in results().items()}
    with tempfile.TemporaryDirectory() as folder:
        examples |= graded(Path(folder))
    examples |= asked_of_a_model() | answer_pairs()
    examples["score-table", "scores"] = vocabulary()[0].rows
    PAGE.write_text(page(examples), encoding="utf-8")
