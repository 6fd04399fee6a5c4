"""The page is one file, needs no network, and shows hostile tokens as text."""

import re

import pandas as pd
import pytest
from matplotlib.figure import Figure

from pessimal.report.contents import Contents, Entry
from pessimal.report.page import Comparison, page

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</table>",
    "&lt;",
    "{{ 7*7 }}",
    "\x1b[31m",
    "null",
]


@pytest.fixture
def html(tmp_path):
    contents = Contents()
    contents.add_table("provenance", pd.DataFrame({"model": HOSTILE, "n": range(7)}))
    section = contents.section(HOSTILE[0], HOSTILE[1])
    contents.add_table(
        "numbers",
        pd.DataFrame({"text": HOSTILE, "reward": [0.5, -1.25, 3, float("nan"), 1e-7, 12345.0, 2]}),
        prompt="a",
    )
    contents.add_table("numbers", pd.DataFrame({"text": ["elsewhere"], "reward": [0.0]}), prompt="b")
    contents.figures["one"] = Figure(figsize=(2, 2))
    section.entries.append(
        Entry(HOSTILE[4], "n = 7 tokens", figure="one", table="numbers", where={"prompt": "a"})
    )
    contents.write(tmp_path)
    return page([Comparison("comparison/x:v0", tmp_path, "2026-01-01")], title=HOSTILE[2])


def test_hostile_strings_are_text(html):
    body = re.sub(r'src="data:image/webp;base64,[^"]*"', "", html)
    assert "<script" not in body.replace("&lt;script", "")
    assert "onerror=alert(1)>" not in body
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in body
    assert "{{ 7*7 }}" in body
    assert "\x1b" not in body
    assert "<title>&lt;/table&gt;</title>" in body
    assert body.count("</table>") == 2, "the two tables of the page itself"


def test_nothing_is_fetched_and_nothing_can_run(html):
    assert "default-src 'none'" in html
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", html)
    assert "<link" not in html
    assert "url(" not in html


def test_figures_are_inside_with_their_sentence(html):
    assert html.count("data:image/webp;base64,") == 1
    assert "<figcaption>n = 7 tokens</figcaption>" in html


def test_only_the_entrys_own_rows_are_shown(html):
    assert "elsewhere" not in html
    assert "-1.25" in html
    assert "12,345" in html
    assert ">nan<" not in html
