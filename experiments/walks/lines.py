"""Code lines by room: without blank lines, comments, docstrings and imports.

    python experiments/walks/lines.py [FOLDER [N]]

FOLDER is src/pessimal by default; N names that many of the largest files, too.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

NO_CODE = (
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    tokenize.ENDMARKER,
)
DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def code_lines(text: str) -> int:
    """How many lines of a source hold code."""
    dropped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node = node.body[0]
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        dropped |= set(range(node.lineno, node.end_lineno + 1))
    kept: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            kept |= set(range(token.start[0], token.end[0] + 1))
    return len(kept - dropped)


def main(folder: str = "src/pessimal", largest: str = "0") -> None:
    """Print the count of every room, and of the largest files."""
    files = {p.relative_to(folder): code_lines(p.read_text()) for p in Path(folder).rglob("*.py")}
    rooms: Counter[str] = Counter()
    for path, lines in files.items():
        rooms[path.parts[0]] += lines
    for name, lines in [*rooms.most_common(), ("total", rooms.total())]:
        print(f"{lines:6,}  {name}")
    for path, lines in Counter(files).most_common(int(largest)):
        print(f"{lines:6,}  {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
