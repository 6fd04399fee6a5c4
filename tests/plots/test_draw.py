"""Figures of declarations: which files, in whose names, in what colours, and what hostile tokens
cannot do."""

import re
import xml.etree.ElementTree as ET
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest

from pessimal.plots import Forest, Heatmap, Lines, Scatter, TokenTable, Violin
from pessimal.plots import draw as draw_module
from pessimal.plots.draw import save_figures
from pessimal.plots.heatmap import heatmap
from pessimal.plots.style import styled
from pessimal.tables.result import Result

KINDS = ("forest", "heatmap", "scatter", "lines", "violin", "token_table")
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    """What a figure says, tooltips apart."""
    return [node.text or "" for node in ET.fromstring(svg).iter(f"{SVG}text")]


def test_tabs_of_several_columns_keep_their_order_and_get_safe_names(drawn):
    table = pd.DataFrame(
        [("worst", "a/b", 1.0), ("worst", "a:b", 2.0), ("../../etc", "a/b", 3.0)],
        columns=["prompt", "model", "estimate"],
    )
    saved = drawn(Result("x", table, plot=Forest(tabs=("prompt", "model"), row="model")))
    assert list(saved.tabs["x"]) == ["worst · a/b", "worst · a:b", "../../etc · a/b"]
    stems = list(saved.tabs["x"].values())
    assert len({stem.lower() for stem in stems}) == 3
    assert all(re.fullmatch(r"x--[\w.-]+", stem) and ".." not in stem for stem in stems)
    assert sorted(path.parent for path in saved.folder.rglob("*.svg")) == [saved.folder] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_tokens_stay_text(kind, hostile, drawn):
    """Every SVG is well-formed, without scripts and handlers, and each token is shown."""
    n = len(hostile)
    table = pd.DataFrame(
        {"text": hostile, "x": np.arange(n) % 5.0, "y": np.arange(n) / 3.0, "rank": range(1, n + 1)}
    )
    table = table.assign(prompt="greatest", estimate=1.0, density=1.0, reward=1.0, end="top")
    plot = {
        "forest": Forest(row="text", panel="prompt", low=None, high=None),
        "heatmap": Heatmap(row="text", column="prompt"),
        "scatter": Scatter(x="x", y="y", name="text", group="text", xlabel="$a$ <b>"),
        "lines": Lines(x="text", y="y", group="text", marks=True, ends=True),
        "violin": Violin(row="text"),
        "token_table": TokenTable(column="prompt", shown=n),
    }[kind]
    if kind == "violin":
        table = pd.concat([table.assign(x=x) for x in (0.0, 1.0)])
    (svg,) = drawn(Result(kind, table, plot=plot)).svgs.values()
    root = ET.fromstring(svg)
    tags = {node.tag.removeprefix(SVG) for node in root.iter()}
    assert tags <= {
        "svg",
        "g",
        "defs",
        "path",
        "use",
        "text",
        "tspan",
        "title",
        "clipPath",
        "rect",
        "image",
    }
    assert not [name for node in root.iter() for name in node.attrib if name.startswith("on")]
    shown = " ".join(texts(svg))
    for seen in ("<script>alert(1)", "\\u202eabc", "␣freedom", "$x^2$", "\\x07", "#222222"):
        assert seen in shown
    assert "\u202e" not in svg


def test_same_bytes_twice_by_one_process_and_by_several(result, tmp_path, monkeypatch):
    results = [result(kind) for kind in KINDS]
    many = pd.DataFrame({"x": np.sin(np.arange(4000.0)), "y": np.arange(4000.0)})
    results.append(Result("many", many, plot=Scatter(x="x", y="y")))
    written, totals = [], []

    @contextmanager
    def begin(total):
        totals.append(total)
        yield written.append

    for again, least in (("a", 1000), ("b", 1)):
        monkeypatch.setattr(draw_module, "MANY", least)
        save_figures(results, tmp_path / again, begin=begin)
    assert totals == [2 * len(KINDS) + 1] * 2
    assert len(written) == sum(totals)
    first = sorted((tmp_path / "a").iterdir())
    assert len(first) == 3 * len(KINDS) + 2  # a PNG of the first tab alone
    for path in first:
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name


@pytest.mark.parametrize("least", [1, 1000])
def test_a_figure_that_cannot_be_drawn_does_not_cost_the_others(
    result, drawn, caplog, monkeypatch, least
):
    monkeypatch.setattr(draw_module, "MANY", least)
    wrong = Result("wrong", result("forest").table, plot=Forest(estimate="nobody"))
    saved = drawn(wrong, result("violin"))
    assert list(saved.tabs) == ["violin"]
    assert "wrong" in caplog.text


def test_a_label_names_its_tab_and_other_braces_stand():
    table = pd.DataFrame({"x": [0.0, 1.0], "y": [1.0, 0.0], "first": "best {a}"})
    plot = Scatter(x="x", y="y", tabs=("first",), xlabel="reward on {first}", ylabel="{lexicon}")
    (figure,) = draw_module.draw(plot, table).values()
    assert "reward on best {a}" in [text.get_text() for text in figure.texts]
    assert figure.axes[0].get_ylabel() == "{lexicon}"


HEADINGS = ("liked whatever is asked", "taken for something good")


def test_headings_of_narrow_panels_do_not_meet():
    rows = [(text, head, 1.0) for text in "ab" for head in HEADINGS]
    table = pd.DataFrame(rows, columns=["text", "measure", "estimate"]).assign(model="m")
    plot = Heatmap(row="text", column="model", value="estimate", panel="measure")
    with styled():
        figure = heatmap(plot, table)
        figure.draw_without_rendering()
        texts_drawn = figure.findobj(lambda artist: hasattr(artist, "get_text"))
        first, second = (
            text.get_window_extent() for text in texts_drawn if text.get_text() in HEADINGS
        )
    assert first.x1 < second.x0
