"""Every column of every table is described, and `docs/tables.md` says what the descriptions say."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "tests")]

from table_columns import descriptions  # noqa: E402

DESCRIBED = descriptions()
NAMED = re.compile(r"(?:(?:\bResult|_result|\bkeep)\(|\bof_row\(\s*\w+,)\s*\"([a-z_]+)\"")


def test_every_table_that_the_code_names_is_described():
    known = {name for tables in DESCRIBED.values() for name in tables}
    found = {}
    for file in (ROOT / "src" / "pessimal").rglob("*.py"):
        room = file.relative_to(ROOT / "src" / "pessimal").parts[0]
        if room in ("analyses", "explaining", "searching", "api", "verbs"):
            found |= dict.fromkeys(NAMED.findall(file.read_text(encoding="utf-8")), file.name)
    assert len(found) > 50, "the code's own way of naming tables has changed"
    prefixed = {name.removeprefix("language_") for name in known}
    assert {name: file for name, file in found.items() if name not in known | prefixed} == {}
