"""One artifact, a difference of two, and a list of damages, as people read them in a terminal.

Pure: takes data, gives text.
"""

from collections.abc import Mapping, Sequence

from pessimal.tracking.conditions import figures
from pessimal.tracking.diff import ArtifactDifference, Difference
from pessimal.tracking.integrity import Damage
from pessimal.tracking.lineage import Node
from pessimal.tracking.plain_text import columns, cut, visible
from pessimal.tracking.registry import Manifest
from pessimal.tracking.table_diff import TableDifference

BRANCHES = 24
"""Inputs of one artifact that a tree draws; it says how many more there are."""
NOTHING = "  the same"


def artifact_text(
    manifest: Manifest, sizes: Mapping[str, int | None], up: Node, down: Node, *, width: int | None
) -> str:
    """Manifest, files with their sizes in bytes (None where one is missing) and lineage both ways."""
    fields = [
        [name, getattr(manifest, name)] for name in ("created", "run_id", "key", "config_hash") if getattr(manifest, name)
    ]  # fmt: skip
    summary = [[visible(name), value] for name, value in figures(manifest.summary).items()]
    files = [
        [visible(name), "missing" if sizes[name] is None else sizes[name], digest[:12]]
        for name, digest in manifest.files.items()
    ]
    parts = [
        visible(manifest.reference),
        _indented(fields, width),
        "\nfigures",
        _indented(summary, width) or "  none",
        f"\nfiles ({len(files)})",
        _lines(["file", "bytes", "sha256"], files, width),
        "\nmade from",
        "\n".join(f"  {cut(line, width - 2) if width else line}" for line in tree_text(up)),
        "\nwhat was made from it",
        "\n".join(f"  {cut(line, width - 2) if width else line}" for line in tree_text(down)),
    ]
    return "\n".join(part for part in parts if part)


def tree_text(node: Node) -> list[str]:
    """A tree, a line a node; of very many branches the first, and how many more."""
    lines = [visible(node.reference) + ("" if node.known else "   (not in this registry)")]
    if node.repeated:
        lines[0] += "   (see above)"
    drawn = node.below[:BRANCHES]
    more = len(node.below) - len(drawn)
    for i, below in enumerate(drawn):
        last = i == len(drawn) - 1 and not more
        first, *rest = tree_text(below)
        lines.append(("└─ " if last else "├─ ") + first)
        lines += [("   " if last else "│  ") + line for line in rest]
    return [*lines, f"└─ … and {more} more; all of them: format=json"] if more else lines


def difference_text(difference: ArtifactDifference, *, width: int | None) -> str:
    """Everything that differs, in sections; numbers are B − A."""
    files = [f"  differs: {visible(name)}" for name in difference.files_differ]
    files += [f"  only in A: {visible(name)}" for name in difference.files_a]
    files += [f"  only in B: {visible(name)}" for name in difference.files_b]
    inputs = [f"  only in A: {visible(name)}" for name in difference.inputs_a]
    inputs += [f"  only in B: {visible(name)}" for name in difference.inputs_b]
    parts = [f"A  {visible(difference.a)}", f"B  {visible(difference.b)}", "\nconfiguration"]
    if difference.configuration_note:
        parts.append(f"  {visible(difference.configuration_note)}")
    else:
        parts.append(_values(difference.configuration, width))
    parts += ["\nprovenance", _values(difference.provenance, width)]
    parts += ["\ninputs", "\n".join(inputs) or NOTHING]
    parts += ["\nfigures", _values(difference.summary, width)]
    parts += [f"\nfiles ({difference.files_same} the same to the byte)", *files]
    for name, table in difference.tables.items():
        parts += [f"\n{visible(name)}", _table(table, width)]
    return "\n".join(parts)


def damages_text(damages: Sequence[Damage]) -> str:
    """One damage a paragraph: what, and what to do."""
    return "\n".join(f"{visible(d.where)}: {visible(d.what)}\n    {visible(d.mend)}" for d in damages)


def _values(differences: Sequence[Difference], width: int | None) -> str:
    if not differences:
        return NOTHING
    return _lines(
        ["", "A", "B", "B − A"],
        [[visible(d.name), _null_shown(d.a), _null_shown(d.b), d.difference] for d in differences],
        width,
    )


def _table(table: TableDifference, width: int | None) -> str:
    rows = f"  rows only in A: {table.only_a}, only in B: {table.only_b}"
    if table.unmatched:
        return f"  {table.unmatched}: not compared ({table.only_a} rows in A, {table.only_b} in B)"
    lines = [f"  {table.matched} rows in both, matched by {', '.join(map(visible, table.keys))}", rows]
    for side, names in (("A", table.columns_a), ("B", table.columns_b)):
        lines += [f"  columns only in {side}: {', '.join(map(visible, names))}"] if names else []
    if table.matched and len(table.columns):
        header = [
            "column",
            "rows that differ",
            "largest B − A",
            "median |B − A|",
            "n",
            "in one only",
            "largest at",
        ]
        cells = [
            [
                visible(r.column),
                r.differing,
                r.largest,
                r.median,
                r.n,
                r.in_one,
                r.at and [*map(_null_shown, r.at)],
            ]
            for r in table.columns.itertuples()
        ]
        lines.append(_lines(header, cells, width))
    return "\n".join(lines)


def _null_shown(value):
    """A missing value, shown as one."""
    return "null" if value is None else value


def _lines(header: Sequence[str], rows: Sequence[Sequence], width: int | None) -> str:
    text = columns(header, rows, width=None if width is None else width - 2, keep=1)
    return "\n".join(f"  {line}" for line in text.splitlines())


def _indented(rows: Sequence[Sequence], width: int | None) -> str:
    if not rows:
        return ""
    return "\n".join(_lines(["", ""], rows, width).splitlines()[1:])
