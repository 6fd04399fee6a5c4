"""Score tables and results as a notebook shows them. Tokens are hostile strings: everything is
escaped. Tables know nothing of figures: `pessimal.api` calls `show_in_notebooks`."""

from collections.abc import Sequence
from html import escape

from pessimal.tables.result import Result, Results
from pessimal.tables.score_table import ScoreTable
from pessimal.texts import literal, significant

RANKS = 10
"""Candidates shown at each end."""
ROWS = 8
"""Rows of a result's table that are shown."""


def score_table_html(table: ScoreTable) -> str:
    """The best and the worst candidates side by side."""
    best, worst = table.top(RANKS), table.top(-RANKS)
    rows = [
        [rank, literal(b.text), significant(b.reward), literal(w.text), significant(w.reward)]
        for rank, (b, w) in enumerate(
            zip(best.itertuples(), worst.itertuples(), strict=True), start=1
        )
    ]
    provenance = table.provenance
    certified = table.rows["certified"].mean()
    return (
        f"<p><b>{escape(provenance.model)}</b> on "
        f"“{escape(provenance.prompt_text or provenance.prompt)}”: {len(table.rows):,} "
        f"{'tokens' if provenance.candidates == 'vocabulary' else 'items'}, {certified:.0%} with a "
        "certified rank</p>" + _table(["", "best", "reward", "worst", "reward"], rows)
    )


def result_html(result: Result) -> str:
    """The headline, the first figure, the first rows of the table."""
    head = f"<p><b>{escape(result.name)}</b> {escape(result.headline)}</p>"
    beginning = result.table.head(ROWS)
    cells = [[_cell(value) for value in row] for row in beginning.itertuples(index=False)]
    more = (
        f"<p>{len(result.table):,} rows, in <code>.table</code></p>"
        if len(result.table) > ROWS
        else ""
    )
    return head + _figure(result) + _table(list(beginning.columns), cells) + more


def results_html(results: Sequence[Result]) -> str:
    """The headlines, the heaviest first."""
    headed = sorted((r for r in results if r.headline), key=lambda r: -r.weight)
    rows = [[result.name, result.headline] for result in headed]
    return (
        _table(["result", ""], rows)
        + f"<p>{len(results)} results; show one: <code>results[NAME]</code></p>"
    )


def _figure(result: Result) -> str:
    if result.plot is None:
        return ""
    from pessimal.plots.draw import draw, styled, vector

    figure = next(iter(draw(result.plot, result.table).values()), None)
    if figure is None:
        return ""
    with styled():
        return vector(figure, stem=f"notebook-{result.name}")


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f"<th>{escape(str(column))}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(value))}</td>" for value in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return significant(value)
    return literal(value, limit=60) if isinstance(value, str) else str(value)


def show_in_notebooks() -> None:
    """Give the classes the method that notebooks ask objects for."""
    for kind, html in (
        (ScoreTable, score_table_html),
        (Result, result_html),
        (Results, results_html),
    ):
        setattr(kind, "_repr_html_", html)  # noqa: B010 the classes know nothing of it
