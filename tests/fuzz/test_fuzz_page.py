"""The page has the same tags and attributes whatever the texts in it say."""

import re
import shutil
from html.parser import HTMLParser

import pandas as pd
import pytest
from fuzzing import cases, hostile
from hypothesis import example
from hypothesis import strategies as st
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from artifacts import OUTCOME, write_artifact
from pessimal.explaining.views import from_json, to_json, views
from pessimal.plots import TokenTable
from pessimal.report.page import page
from pessimal.tables.comparisons import Comparison, Turn
from pessimal.tables.result import Estimate, Result
from pessimal.texts import storable

texts = hostile.map(lambda text: text[:400]).filter(bool)


class Skeleton(HTMLParser):
    """Every tag with the names of its attributes, and those values that could act."""

    def __init__(self, html: str):
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        acting = {name: value for name, value in attributes if name in ("src", "http-equiv", "rel")}
        self.tags.append(
            (tag, tuple(sorted(name for name, _ in attributes)), *sorted(acting.items()))
        )
        for name, value in attributes:
            assert not name.startswith("on"), f"{tag} has {name}={value!r}"
            if name in ("href", "src", "action"):
                assert re.match("#|$", value or ""), f"{tag} leads to {value!r}"

    def handle_endtag(self, tag):
        self.tags.append(("/" + tag,))

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data!r}")


def built(folder, words: list[str]) -> str:
    """A page on which the words stand in every place that takes a text."""
    first, second, third = words
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    labels = dict(zip(("a", "b", "c"), words, strict=True))
    rows = [
        {
            "model": model,
            "prompt": "p",
            "end": end,
            "rank": 1,
            "text": text,
            "reward": 0.5,
            "certified": False,
        }
        for model, text in labels.items()
        for end in ("top", "bottom")
    ]
    pairs = {
        "model_a": ["a", "a"],
        "model_b": ["b", "c"],
        "kendall": [0.9, 0.1],
        "prompt": [first] * 2,
    }
    effects = {
        "model": ["a"] * 2,
        "axis": [second, third + "."],
        "d": [1.0, -2.0],
        "p_holm": [0.01, 0.02],
    }
    results = [
        Result(
            "ends",
            pd.DataFrame(rows),
            headline=first,
            plot=TokenTable(),
            method=second,
            notes=(third,),
            estimate=Estimate(first, 0.5, 3, second, p=0.1),
        ),
        Result("agreement", pd.DataFrame(pairs)),
        Result("effects", pd.DataFrame(effects), headline=third, method="frequency"),
        Result(
            "provenance",
            pd.DataFrame({"model": ["a", "b", "c"], "developer": words, "dtype": words}),
        ),
    ]
    artifact = write_artifact(
        folder / "artifact",
        results,
        labels=labels,
        skipped={first: second},
        reference=second,
        created=third,
        drawn=False,
    )
    return page([artifact], title=first)


@pytest.fixture(scope="module")
def harmless(folder):
    return built(folder / "harmless", ["one", "two", "three"])


@pytest.mark.slow
@cases(40, words=st.lists(texts, min_size=3, max_size=3))
@example(
    words=["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</details></table>"]
)
@example(words=["<!--", "]]>", "</title><style>"])
def test_a_page_of_hostile_texts_has_the_tags_of_a_harmless_one(folder, harmless, words):
    words = [storable(word) for word in words]
    html = built(folder / "page", words)
    html.encode()
    assert Skeleton(html).tags == Skeleton(harmless).tags


ENVIRONMENT = Environment(
    loader=PackageLoader("pessimal.report", "."),
    autoescape=select_autoescape(default_for_string=True, default=True),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
VIEW = ENVIRONMENT.from_string(
    '{% from "edits.html.jinja" import comparison_view %}{{ comparison_view(view) }}'
)


def seen(text: str, ahead: str):
    """A view in which the text stands wherever one can."""
    comparison = Comparison(
        text, (Turn("assistant", text), Turn("user", text)), (text, text + " other")
    )
    columns = ("model", "comparison", "attribute", "perturber", "note", "original")
    row = OUTCOME | dict.fromkeys(columns, text) | {"edited": ahead + text}
    # As objects: pandas' own strings can hold no half character.
    table = pd.DataFrame({name: pd.Series([value], dtype=object) for name, value in row.items()})
    (view,) = views(table, {text: comparison})
    return view


@pytest.mark.slow
@cases(100, text=texts)
@example(text="\ud83d</ins><script>")
def test_a_view_of_hostile_texts_has_only_tags_of_its_own(text):
    view = seen(text, "new ")
    html = VIEW.render(view=view)
    html.encode()
    tags = {tag for tag, *_ in Skeleton(html).tags}
    own = {tag for tag, *_ in Skeleton(VIEW.render(view=seen("plain words", "new "))).tags}
    assert tags <= own | {"del", "/del"}, (
        "blanks that run into one another are both taken out and put in"
    )
    assert from_json(to_json([view])) == [view]
