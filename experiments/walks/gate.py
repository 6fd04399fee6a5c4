"""The house may not grow: code lines and files of the package, and names and docstrings that break
the word rules of CONTRIBUTING.md.

    python experiments/walks/gate.py [--list]

`--list` names each offence against the word rules. The limits are what there is: lower them with
each change that takes some away.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from lines import code_lines

LIMITS = {"code lines": 34_077, "files": 198, "offences against the word rules": 0}
PRONOUNS = frozenset(
    [
        "asked",
        "behind",
        "beside",
        "both",
        "chosen",
        "drawn",
        "found",
        "given",
        "here",
        "kept",
        "known",
        "last",
        "least",
        "made",
        "most",
        "named",
        "one",
        "others",
        "own",
        "said",
        "shown",
        "there",
        "what",
        "whose",
        "why",
        "within",
    ]
)
PREPOSITION = re.compile(
    r"_*(among|answering|at|behind|beside|by|framed|in|noted|of|opened|said|told|whose|with)(_|$)"
)
EXCEPTIONS = {
    "api/explain.py: chosen": "an argument of pessimal.explain, with rejected",
    "api/scan.py: most": "an argument of pessimal.scan",
    "checking/checks.py: what": "a column of the table of checks",
    "config/schema/explain.py: chosen": "an option, with rejected",
    "config/schema/scan.py: most": "the option candidates.most",
    "explaining/attribute.py: most": "a key of the files in conf/contrast",
    "explaining/explain.py: chosen": "the field's word for one response of a pair, with rejected",
    "explaining/smallest.py: kept": "a column of the table of smallest flips",
    "plots/__init__.py: beside": "a field of plots that artifacts hold",
    "plots/__init__.py: named": "a field of plots that artifacts hold",
    "plots/__init__.py: of": "Forest.of is called by analyses of other packages",
    "plots/__init__.py: shown": "a field of plots that artifacts hold",
    "rewards/head.py: own": "the value model.read=own",
    "rewards/spec.py: last": "the value model.reduce=last",
    "searching/run.py: beside": "a field of the provenance that the key covers",
    "searching/run.py: named": "a field of the provenance that the key covers",
    "tables/comparisons.py: chosen": "the field's word for one response of a pair, with rejected",
    "tables/result.py: of_row": "Result.of_row is called by analyses of other packages",
    "tracking/registry.py: what": "a key of the JSON of runs verify",
}
"""Names that stand although they break a rule, by file and name, each with the reason."""
FRAGMENT = re.compile(r"(How|In place of|Of|One that|So many|What|Which|Whose)\b")


def find_offences(text: str) -> Iterator[tuple[int, str]]:
    """Line and name, or beginning, of each variable, argument, function and docstring of a source
    that breaks a rule."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name, is_wrong = node.id, node.id.strip("_") in PRONOUNS
        elif isinstance(node, ast.arg):
            name, is_wrong = node.arg, node.arg.strip("_") in PRONOUNS
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name, plain = node.name, node.name.strip("_")
            is_wrong = plain in PRONOUNS or bool(PREPOSITION.match(name))
            is_wrong &= not name.startswith("__")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            name = str(node.value.value).strip()
            is_wrong = isinstance(node.value.value, str) and bool(FRAGMENT.match(name))
        else:
            continue
        if is_wrong:
            yield node.lineno, name.splitlines()[0][:80]


def main() -> int:
    """1 where a count is above its limit."""
    files = {path: path.read_text() for path in sorted(Path("src/pessimal").rglob("*.py"))}
    offences = [
        (path, *row)
        for path, text in files.items()
        for row in find_offences(text)
        if f"{path.relative_to('src/pessimal')}: {row[1]}" not in EXCEPTIONS
    ]
    if "--list" in sys.argv:
        print(*(f"{path}:{line}: {name}" for path, line, name in offences), sep="\n")
    counts = (sum(map(code_lines, files.values())), len(files), len(offences))
    over = [
        f"{count:,} {name}, and the limit is {limit:,}"
        for count, (name, limit) in zip(counts, LIMITS.items(), strict=True)
        if count > limit
    ]
    print(
        *(over or [f"{count:,} {name}" for count, name in zip(counts, LIMITS, strict=True)]),
        sep="\n",
    )
    return bool(over)


if __name__ == "__main__":
    sys.exit(main())
