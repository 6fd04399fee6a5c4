"""Figures of declarations: which files, in whose names, in what colours, and what hostile tokens
cannot do."""

import re
import xml.etree.ElementTree as ET
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pessimal.errors import TableError
from pessimal.plots import Forest, Heatmap, Lines, Scatter, TokenTable, Violin
from pessimal.plots import draw as draw_module
from pessimal.plots.draw import draw, save_figures
from pessimal.plots.style import colours
from pessimal.tables.result import Result

KINDS = ("forest", "heatmap", "scatter", "lines", "violin", "token_table")
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    """What a figure says, tooltips apart."""
    return [node.text or "" for node in ET.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("models", [1, 2, 15])
def test_draws_for_one_and_for_many_models(kind, models, result, drawn):
    saved = drawn(result(kind, models))
    if kind == "heatmap" and models == 1:  # one model agrees with none
        assert saved.tabs == {}
        return
    assert saved.tabs == {kind: {"greatest": f"{kind}--greatest", "worst": f"{kind}--worst"}}
    assert [file.name for file in saved.folder.glob("*.png")] == [
        f"{kind}--greatest.png"
    ]  # the first tab's alone
    for stem in saved.tabs[kind].values():
        found = " ".join(texts(saved.svgs[stem]))
        if kind != "lines":
            assert all(f"model-{i}" in found for i in range(models))


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


def test_labels_replace_names(result, drawn):
    labels = {f"org/model-{i}": f"Model {'ABC'[i]}" for i in range(3)}
    results = [result(kind) for kind in KINDS if kind != "heatmap"]
    heat = result("heatmap")
    own = heat.table.head(2).assign(
        model_a="org/model-0", model_b="org/model-0", prompt=["greatest", "worst"], estimate=0.987
    )
    results.append(replace(heat, table=pd.concat([heat.table, own])))
    saved = drawn(*results, labels=labels)
    for stem, svg in saved.svgs.items():
        assert not re.search("org/model|model-", svg), stem
        assert "Model B" in svg
    assert ".99" in texts(saved.svgs["heatmap--worst"])


def test_a_missing_column_is_named(result):
    with pytest.raises(TableError, match="'reward'"):
        draw(Forest(estimate="reward"), result("forest").table)


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


def test_a_group_too_small_for_a_line_is_drawn_without_one(drawn):
    """Words of one sign only, in a list of items, have no fit."""
    table = pd.DataFrame(
        {"x": [1.0, 2.0, 3.0], "y": [1.0, 3.0, 2.0], "arm": ["a", "a", "b"], "fit": [1, 3, np.nan]}
    )
    plot = Scatter(x="x", y="y", group="arm", line="fit", dense=True)
    assert drawn(Result("few", table, plot=plot)).tabs == {"few": {"": "few"}}


def test_numbers_stand_beside_x(drawn):
    rows = [
        (rater, item, rank + i)
        for i, rater in enumerate(("people", "one", "two"))
        for rank, item in enumerate(("first", "second"), start=1)
    ]
    table = pd.DataFrame(rows, columns=["rater", "item", "rank"])
    table["ρ"] = table["rater"].map({"one": 0.5, "two": -0.123})
    plot = Lines(x="rater", y="rank", group="item", ends=True, beside="ρ", falling=True)
    found = texts(drawn(Result("x", table, plot=plot)).svgs["x"])
    assert {"people", "one (ρ = 0.50)", "two (ρ = −0.12)", "first", "second"} <= set(found)


@pytest.mark.parametrize("kind", ["scatter", "heatmap"])
def test_ten_panels_stand_in_two_rows_of_five(kind, result):
    one = result(kind, 3)
    table = pd.concat(
        [one.table.query("prompt == 'worst'").assign(panel=f"panel {i}") for i in range(10)]
    )
    (figure,) = draw(replace(one.plot, panel="panel", across=5), table).values()
    corners = {
        (round(axes.get_position().x0, 3), round(axes.get_position().y0, 3)) for axes in figure.axes
    }
    assert len({x for x, _ in corners}) == 5
    assert len({y for _, y in corners}) == 2


def test_a_table_of_tokens_calls_its_ends_what_they_are(result, drawn):
    one = result("token_table")
    axes = replace(one, plot=replace(one.plot, ends=("highest", "lowest")))
    found = texts(drawn(axes).svgs["token_table--greatest"])
    assert {"highest", "lowest"} <= set(found)
    assert "optimal" not in found


def test_no_two_categories_share_a_colour():
    """Figures of the page once had 64 colours, and two developers of the demo family the same
    one."""
    assert len(set(colours(range(60)).values())) == 60


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_can_replace_ink_and_grounds(kind, result, drawn):
    svg = drawn(result(kind)).svgs[f"{kind}--greatest"]
    root = ET.fromstring(svg)
    assert root.get("style") == "fill:var(--ink,#222222)"
    assert root.get("fill") == "#222222"  # for viewers without variables
    for node in root.iter():
        for name in ("fill", "stroke"):
            if node.get(name) in ("#222222", "#555555", "#8a8a8a", "#e2e2e2", "#ffffff"):
                assert f"{name}:var(--" in node.get("style", ""), ET.tostring(node)
    background = [
        node
        for node in root.iter(f"{SVG}path")
        if node.get("fill") == "#ffffff" and node in list(root)[:3]
    ]
    assert not background


def test_ids_are_unique_in_a_page_and_all_references_resolve(result, drawn):
    svgs = drawn(result("lines"), result("forest"), result("scatter")).svgs
    ids = [
        node.get("id")
        for svg in svgs.values()
        for node in ET.fromstring(svg).iter()
        if node.get("id")
    ]
    assert ids
    assert len(ids) == len(set(ids))
    for svg in svgs.values():
        own = {node.get("id") for node in ET.fromstring(svg).iter()}
        assert set(re.findall(r'(?:url\(|href=")#([\w]+)', svg)) <= own
        assert not re.search("<style|<metadata", svg)  # a style sheet would rule the page


def test_candidate_sets_are_not_drawn_over_one_another(result, drawn):
    first = result("heatmap")
    table = pd.concat([first.table.assign(candidates=c) for c in ("vocabulary", "items")])
    tabs = drawn(Result("heatmap", table, plot=first.plot)).tabs["heatmap"]
    assert set(tabs) == {
        f"{p} · {c}" for p in ("greatest", "worst") for c in ("vocabulary", "items")
    }
