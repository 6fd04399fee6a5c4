"""The page is one file that needs no network; it answers first, keeps colours and numbers, and
shows hostile texts as text."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from artifacts import write_artifact
from pessimal.auditing.verdicts import FAIL, MEASURED, PASS, REVIEW, Verdict, audit_result
from pessimal.errors import InputError
from pessimal.plots import Forest, TokenTable
from pessimal.report.artifact import method
from pessimal.report.page import page
from pessimal.report.scripts import drawing
from pessimal.tables.result import Effect, Estimate, Result

MODELS = ["lab/alder", "lab/birch", "lab/cedar", "lab/plain"]
LABELS = {model: model[4:] for model in MODELS}


class Tree(HTMLParser):
    """The page's elements by what encloses them: attributes, and the text inside."""

    VOID = frozenset(("meta", "input", "br", "img", "link"))

    def __init__(self, html: str):
        super().__init__(convert_charrefs=True)
        self.elements: list[dict] = []
        self.path: list[dict] = []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        # HTML lets the ends of rows and cells be left out.
        ended = {"td": ("td",), "tr": ("td", "tr")}.get(tag, ())
        while self.path and self.path[-1]["tag"] in ended:
            self.path.pop()
        element = {"tag": tag, "text": "", "inside": list(self.path), **dict(attributes)}
        self.elements.append(element)
        if tag not in self.VOID:
            self.path.append(element)

    def handle_endtag(self, tag):
        while self.path and self.path.pop()["tag"] != tag:
            pass

    def handle_data(self, data):
        for element in self.path:
            element["text"] += data

    def all(self, tag: str, inside: str = "", **attributes) -> list[dict]:
        """Elements of a tag and attributes, in an element of this class or id."""
        return [
            e
            for e in self.elements
            if e["tag"] == tag
            and all(e.get(k.rstrip("_")) == v for k, v in attributes.items())
            and (
                not inside
                or any(
                    inside in (*(o.get("class") or "").split(), o.get("id")) for o in e["inside"]
                )
            )
        ]


def forest(name: str, *, method: str = "", headline: str | None = None, **more) -> Result:
    rows = [(m, p, 0.1 * i) for i, m in enumerate(MODELS) for p in ("greatest", "worst")]
    table = pd.DataFrame(rows, columns=["model", "prompt", "estimate"])
    table = table.assign(low=table["estimate"] - 0.1, high=table["estimate"] + 0.1)
    headline = f"{name} is found." if headline is None else headline
    return Result(name, table, headline=headline, plot=Forest(), method=method or name, **more)


@pytest.fixture
def shown(tmp_path):
    """The page's HTML of some results."""

    def show(*results, name: str = "artifact", **more) -> str:
        artifact = write_artifact(tmp_path / name, results, **{"labels": LABELS} | more)
        return page([artifact], title="Page")

    return show


def test_nothing_is_fetched_and_nothing_can_run(shown):
    html = shown(
        forest("one", notes=("<script>alert(1)</script>",)), skipped={"<img src=x>": "\x1b"}
    )
    assert "default-src 'none'" in html
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", html)
    assert not re.search(r"url\((?!#)", html)
    assert not re.search("<link|<script|<img|\x1b", html)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html


def test_a_figure_that_could_act_is_disarmed(tmp_path):
    file = tmp_path / "figure.svg"
    file.write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        'viewBox="0 0 10 5" onload="alert(1)">'
        "<script>alert(1)</script><style>* { fill: url(http://a.b/c) "
        "}</style><foreignObject><p>x</p></foreignObject>"
        '<clipPath id="c"><rect id="a" width="1" height="1" onclick="alert(1)" style="fill: '
        'url(http://a.b/c)"/></clipPath>'
        '<use xlink:href="http://a.b/c#d"/><use xlink:href="#a" clip-path="url(#c)"/><a '
        'href="javascript:alert(1)"><text>y</text></a>'
        '<image href="data:image/svg+xml;base64,AAAA"/><image '
        'href="data:image/png;base64,AAAA"/><text>&lt;b&gt;</text></svg>'
    )
    figure = drawing(file, "f1")
    assert (figure.width, figure.box) == (10, "0 0 10 5")
    tree = ElementTree.fromstring(str(figure.markup))
    assert " ".join(node.tag for node in tree.iter()) == "g clipPath rect use use image image text"
    values = {(node.tag, key): value for node in tree.iter() for key, value in node.attrib.items()}
    assert values.pop(("image", "href")) == "data:image/png;base64,AAAA"
    assert values[("use", "href")] == "#f1-a"
    assert values[("use", "clip-path")] == "url(#f1-c)"
    assert not any("alert" in value or "a.b" in value for value in values.values())
    assert "&lt;b&gt;" in figure.markup
    file.write_text("no figure")
    with pytest.raises(InputError, match=r"figure\.svg is not an SVG"):
        drawing(file, "f1")


def test_every_id_is_there_once_and_every_reference_leads_somewhere(shown):
    """Also of a table of models, which belongs to the provenance, and of analyses of one's own that
    are called as the page's sections are."""
    about = Result("models", pd.DataFrame({"model": MODELS}), method="provenance")
    where = Result("provenance", pd.DataFrame({"model": MODELS}), method="provenance")
    named = [forest(name) for name in ("findings", "a_b", "a-b", "explorer", "asked")]
    tree = Tree(
        shown(about, where, forest("one"), forest("two"), forest("one_again", method="one"), *named)
    )
    (last,) = tree.all("section", id="provenance")
    assert last is tree.all("section")[-1]
    assert "models" in [e["text"] for e in tree.all("caption", "provenance")]
    ids = [e["id"] for e in tree.elements if e.get("id")]
    assert len(ids) == len(set(ids))
    led = {e["href"][1:] for e in tree.elements if (e.get("href") or "").startswith("#")}
    led |= {e["for"] for e in tree.all("label")}
    assert len(led) > 10
    assert led <= set(ids)


def test_findings_come_first_in_order_of_weight_each_with_its_number(shown):
    strong = Estimate("slope", -0.42, 1234, "words", -0.5, -0.34, 0.0004)
    loose = replace(strong, p=0.2)
    weighed = forest("strong", weight=1.9, estimate=loose), forest("mid", weight=0.5)
    tree = Tree(shown(forest("weak", weight=0.1), *weighed))
    cards = tree.all("article", class_="finding")
    names = [next(n for n in ("strong", "mid", "weak") if n in card["text"]) for card in cards]
    assert names == ["strong", "mid", "weak"]
    assert "slope −0.42 [−0.50, −0.34]" in cards[0]["text"]
    assert "n = 1,234 words, corrected p = .200" in cards[0]["text"].replace("\u00a0", " ")
    assert [e["id"] for e in tree.all("section")] == [
        "findings",
        "weak",
        "strong",
        "mid",
        "provenance",
    ]
    assert [link["href"] for link in tree.all("a", "finding")] == ["#strong", "#mid", "#weak"]


def test_a_page_counts_its_tests_and_corrects_over_them(shown):
    """Against Benjamini and Hochberg by hand: p · m / rank, from the largest down."""
    p = {"a": 0.001, "b": 0.03, "c": 0.04, "d": 0.6}
    results = [
        forest(name, weight=1.0, estimate=Estimate("x", 1.0, 9, p=value))
        for name, value in p.items()
    ]
    untested = forest("e", estimate=Estimate("x", 1.0, 9))
    tree = Tree(shown(*results, untested))
    text = re.sub(r"\s+", " ", tree.all("section", id="findings")[0]["text"])
    assert "Of 5 findings 4 are tested, of which 0.2 would hold at .05 by chance; 3 hold" in text
    assert "1 of these after a correction over the page, too" in text
    cells = [e["text"] for e in tree.all("td", "results")]
    corrected = dict(zip(cells[0::4], cells[3::4], strict=True))
    expected = {"a": "0.004", "b": "0.053", "c": "0.053", "d": "0.600"}
    assert corrected == {f"{name} is found.": value for name, value in expected.items()}
    assert "are tested" not in shown(untested, name="none")


def ends(certified: bool = True) -> Result:
    rows = [
        {
            "model": model,
            "prompt": prompt,
            "end": end,
            "rank": rank,
            "text": f"{end}{rank}-{model[4:]}-{prompt}",
            "reward": 1.0 / rank,
            "certified": certified or rank > 1,
        }
        for model in MODELS
        for prompt in ("greatest", "worst")
        for end in ("top", "bottom")
        for rank in range(1, 13)
    ]
    return Result(
        "extremes",
        pd.DataFrame(rows),
        headline="Ends differ.",
        plot=TokenTable(),
        method="extremes",
    )


def test_the_page_says_what_each_model_wants_agrees_with_and_measures(shown):
    pairs = pd.DataFrame(
        [
            ["lab/alder", "lab/birch", 0.9],
            ["lab/cedar", "lab/alder", 0.2],
            ["lab/alder", "lab/plain", 0.5],
            ["lab/birch", "lab/cedar", 0.1],
        ],
        columns=["model_a", "model_b", "kendall"],
    ).assign(prompt="greatest", n=9)
    further = pairs.assign(prompt="worst", kendall=[-0.5, 0.99, 0.5, 0.1])  # not of the cards
    pairs = pd.concat([pairs, further], ignore_index=True)
    slopes = pd.DataFrame(
        [
            ("lab/alder", "greatest", "rated", 0.4, 0.01),
            ("lab/alder", "worst", "unrated", -0.7, 0.02),
            ("lab/alder", "worst", "rated", 3.0, 0.2),
            ("lab/birch", "greatest", "rated", 0.9, 0.06),
        ],
        columns=["model", "prompt", "words", "slope_sd", "p_holm"],
    ).assign(n=9)
    raw = slopes.rename(columns={"p_holm": "p"})
    corrected = Effect(column="slope_sd", label="slope", p="p_holm", null=0.0, unit="SD")
    about = pd.DataFrame(
        {
            "model": MODELS,
            "developer": "d",
            "base": "b",
            "parameters": 2.1e6,
            "certified": [0.9, 0.9, 0.0, 0.9],
            "dtype": ["float32", "bfloat16", "float32", "float32"],
            "lowest": [-4.25, np.nan, np.nan, np.nan],
            "highest": [5.5, np.nan, np.nan, np.nan],
        }
    )
    tree = Tree(
        shown(
            ends(),
            Result("agreement", pairs, effect=Effect(column="kendall", label="τ")),
            Result("frequency", slopes, effect=corrected, estimate=Estimate("slope", 0.4, 9)),
            Result("uncorrected", raw, effect=replace(corrected, p=None)),
            Result("provenance", about),
        )
    )
    cards = {
        e["text"].split()[0]: re.sub(r"\s+", " ", e["text"])
        for e in tree.all("article", class_="card")
    }
    assert list(cards) == list(LABELS.values())
    alder, birch = cards["alder"], cards["birch"]
    rows = [re.sub(r"\s+", " ", e["text"]) for e in tree.all("tr", "wanted")]
    assert len(rows) == 2 * (1 + len(MODELS)), "on two prompts"
    most = " ".join(f"top{rank}-alder-greatest" for rank in (1, 2, 3))
    assert f"alder{most} bottom1-alder-greatest bottom2-" in rows[1].replace(
        "alder top", "aldertop"
    )
    assert "bottom3-alder-worst" in rows[1 + 1 + len(MODELS)]
    assert re.search("Closest ?birch 0.90", alder)
    assert "no answer can score beyond −4.25 and 5.50" in alder
    assert "no answer" not in birch
    assert re.search("Farthest ?cedar 0.20", alder)
    heads = [re.sub(r"\s+", " ", e["text"]) for e in tree.all("th", "sorted", scope="col")]
    assert heads == ["model", "slopegreatest, rated"], "of the finding; none without p"
    cells = [e["inside"][-1]["text"].strip() for e in tree.all("td", "sorted")]
    assert cells == ["alder+0.40", "birch+0.90"]
    assert [e["data-value"] for e in tree.all("td", "sorted")] == ["0.4", "0.9"]
    assert [e["text"] for e in tree.all("b", "sorted")] == ["+0.40"], "what holds is bold"
    assert "d, b, 2.1M parameters, 90% of ranks certified" in alder
    assert "⚠" not in alder
    assert "scored in bfloat16" in birch
    assert "no rank is certified" in cards["cedar"]


def test_the_text_of_a_method_is_folded_and_its_html_is_text(shown, tmp_path, monkeypatch):
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "odd.md").write_text(
        "# Is it *odd*?\n\nIt is <b>bold</b>, **strong**. [x](javascript:alert(1))\n"
    )
    monkeypatch.setattr("pessimal.report.artifact.files", lambda package: tmp_path)
    method.cache_clear()
    tree = Tree(shown(forest("one", method="odd"), forest("two", method="../two")))
    method.cache_clear()
    heading = tree.all("h2", "odd")[0]["text"]
    assert heading == "Is it *odd*?"
    (text,) = tree.all("details", "odd", class_="method")
    assert "It is <b>bold</b>, strong." in text["text"]
    assert not [e for e in tree.elements if "javascript:" in (e.get("href") or "")]


LONG = "What came out " + "is long " * 60 + "to the end"


def audit(*checks, facts=()):
    results = [forest(name, headline=f"{name} was measured.") for name in ("good", "bad")]
    failing = [one.check for one in checks if one.verdict == FAIL]
    overall = FAIL if failing else PASS
    return [audit_result(checks, facts, overall, failing), *results]


def test_an_audit_begins_with_its_verdict_then_failures_each_with_its_figure(shown):
    question = replace(Verdict("").threshold, question="Is it so?")
    about = {"value": 1.0, "threshold": question}
    checks = [
        Verdict("good_one", PASS, evidence="Fine.", result="good", **about),
        Verdict("odd_one", REVIEW, evidence=LONG, result="good", **about),
        Verdict("bad_one", FAIL, evidence="Too far.", result="bad", action="Mend it.", **about),
        Verdict("later", evidence="no server is named", command="pessimal audit m url=URL"),
        Verdict("elsewhere", evidence="does not apply"),
    ]
    fact = Verdict("high", MEASURED, evidence="Nine.", **about)
    tree = Tree(shown(*audit(*checks, facts=[fact]), ends(), labels={MODELS[0]: "alder"}))
    (header,) = tree.all("header")
    words = " ".join(header["text"].split())
    assert words.startswith("Page FAILED 1 of 3: bad one.")
    (first, *_) = tree.all("section")
    assert first["id"] == "verdicts"
    rows = [" ".join(e["text"].split()) for e in tree.all("li", "verdicts")]
    order = ["fail bad one", "review odd one", "pass good one", "fact high", "not measured later"]
    assert [next(o for o in order if row.startswith(o)) for row in rows] == order
    assert all(text in rows[0] for text in ("Is it so?", "Too far.", "Mend it."))
    assert LONG in rows[1], "nothing is cut"
    assert "pessimal audit m url=URL" in rows[4]
    [figure] = tree.all("figure", "verdicts")
    assert any(e["tag"] == "li" and e["class"] == "fail" for e in figure["inside"])
    assert len(tree.all("figure", "bad")) == 1, "it stands in its section as well"
    assert " ".join(first["text"].split()).count("elsewhere") == 1
    assert "does not apply" not in first["text"]
    assert "not_measured" not in first["text"]
    # Said once: no card, and no number of tests, repeats it.
    assert not tree.all("section", id="findings")
    assert not tree.all("article")
    ids = [e["id"] for e in tree.elements if e.get("id")]
    assert len(ids) == len(set(ids))
    led = {e["href"][1:] for e in tree.elements if (e.get("href") or "").startswith("#")}
    assert led <= set(ids)
