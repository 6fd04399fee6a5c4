"""The page in a real browser: it answers, it is quick, it can be used by keyboard and on a phone,
and no token acts."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from artifacts import score_table, write_artifact
from pessimal.plots import Heatmap
from pessimal.report.artifact import Artifact
from pessimal.report.explorer import explorer
from pessimal.report.page import page
from pessimal.tables import ScoreTable
from pessimal.tables.result import Effect, Result

playwright = pytest.importorskip(
    "playwright.sync_api", reason="Playwright is in requirements.txt: make setup"
)

pytestmark = pytest.mark.slow

ATTACKS = [
    "</script><script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "<!--<script>",
    "]]>",
    "{{7*7}}",
    '" onmouseover="window.pwned=1',
    "javascript:window.pwned=1",
    "<svg onload=window.pwned=1>",
    "$$\\frac{1}{2}$$",
    "__proto__",
    "constructor",
    "null",
    "=cmd()",
    "\x00\x1b[31m",
    "\u202eabc",
    "\u200b",
    "\\ud83d",
    "",
    " ",
    "\n",
    "\t",
    "😀👩\u200d💻",
    "自由",
    "e\u0301",
    "\u0301",
    "\ufffd",
    "\ufffd",
    "x" * 5000,
    "&lt;b&gt;",
    "</textarea>",
    "%00",
    "\\",
    "a.c",
]
WORDS = [f"word{i:04d}" for i in range(2000)]
MODELS = ["lab/alder", "lab/birch", "</script><b>cedar"]
PROMPTS = ["best", "worst", "<i>odd</i>"]


def scores(texts, rewards, *, model, prompt, tokens=None) -> ScoreTable:
    places = range(len(texts))
    rows = {
        "token": tokens or texts,
        "kind": ["special" if i < 3 else "normal" for i in places],
        "survives": pd.array([i % 7 != 1 for i in places], dtype="boolean"),
        "certified": [i % 5 != 0 for i in places],
    }
    known = {"prompt_text": f"What is the {prompt} thing?", "candidates_digest": str(len(texts))}
    return score_table(texts, rewards, model=model, prompt=prompt, rows=rows, **known)


@pytest.fixture(scope="module")
def browser():
    own = (
        os.environ.get("PESSIMAL_CHROMIUM")
        or shutil.which("chromium")
        or shutil.which("google-chrome")
    )
    with playwright.sync_playwright() as running:
        if not own and not Path(running.chromium.executable_path).exists():
            pytest.skip("no Chromium: playwright install chromium, or apt-get install chromium")
        # Chromium's sandbox needs user namespaces, which containers lack; the pages are ours.
        launched = running.chromium.launch(executable_path=own, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def tables():
    drawn = np.random.default_rng(0)
    texts = [*ATTACKS, *WORDS]
    made = []
    for model in MODELS:
        for prompt in PROMPTS:
            rewards = drawn.normal(size=len(texts)).astype(np.float32).astype(float)
            rewards[100:110] = 0.5  # ties
            made.append(scores(texts, rewards, model=model, prompt=prompt))
    other = [f" {word}" for word in WORDS[::2]]
    tokens = [f"Ġ{word.strip()}" for word in other]
    rewards = drawn.normal(size=len(other))
    made.append(scores(other, rewards, model="other/bpe", prompt="best", tokens=tokens))
    return made


def frame(tables, model: str, prompt: str) -> pd.DataFrame:
    (found,) = [t for t in tables if (t.provenance.model, t.provenance.prompt) == (model, prompt)]
    return found.rows.assign(
        rank=found.rows["reward"].rank(method="min", ascending=False).astype(int)
    )


@pytest.fixture(scope="module")
def file(tables, tmp_path_factory):
    pairs = [
        (a, b, prompt) for prompt in PROMPTS for i, a in enumerate(MODELS) for b in MODELS[i + 1 :]
    ]
    agreement = pd.DataFrame(pairs, columns=["model_a", "model_b", "prompt"]).assign(
        n=2033, kendall=[0.812, 0.4, 0.3] * 3
    )
    result = Result(
        "agreement",
        agreement,
        headline="On best, alder and birch agree most.",
        plot=Heatmap(value="kendall", symmetric=True),
        method="agreement",
    )
    about = Result("provenance", pd.DataFrame({"model": MODELS, "developer": ["a", "b", "<u>c"]}))
    skewness = pd.DataFrame({"model": MODELS, "skewness": [0.5, -1.25, 10.0], "p": 0.1, "n": 9})
    effect = Effect("skewness", "skewness", p="p", null=0.0)
    moments = Result(
        "moments", skewness, effect=effect, estimate=effect.estimate_row(skewness.iloc[0])
    )
    artifact = write_artifact(
        tmp_path_factory.mktemp("one") / "comparison",
        [result, about, moments],
        labels={m: m for m in MODELS},
    )
    return written(tmp_path_factory, artifact, title="Browser", explorer=explorer(tables))


def written(factory, artifact: Artifact, **more) -> Path:
    """The page in a file of its own."""
    made = factory.mktemp("page") / "index.html"
    made.write_text(page([artifact], **more), encoding="utf-8")
    return made


@pytest.fixture
def open_page(browser, file):
    """Opens the page; whatever went wrong in it, or was asked of a network, fails the test."""
    contexts = []

    def opened(path=file, *, wait=True, **options):
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}} | options)
        shown, wrong = context.new_page(), []
        shown.set_default_timeout(30_000)
        shown.on(
            "console",
            lambda told: wrong.append(told.text) if told.type in ("error", "warning") else None,
        )
        shown.on("pageerror", lambda error: wrong.append(str(error)))
        shown.on(
            "request",
            lambda asked: wrong.append(asked.url[:100]) if not _is_own(asked.url, path) else None,
        )
        contexts.append((context, wrong))
        shown.goto(path.as_uri(), wait_until="commit")
        if wait:
            shown.wait_for_selector("#explorer[data-ready]")
        return shown

    yield opened
    for context, wrong in contexts:
        context.close()
        assert wrong == []


def _is_own(url: str, path: Path) -> bool:
    return url == path.as_uri() or url.startswith(("data:", "blob:"))


def first_cells(shown, *, rows: int = 5) -> list[list[str]]:
    lines = shown.locator(".grid .body .row")
    return [
        lines.nth(i).locator(".cell").all_inner_texts() for i in range(min(rows, lines.count()))
    ]


def status(shown) -> str:
    return shown.locator("#explorer [role=status]").first.inner_text()


def told(row: pd.Series) -> str:
    """A cell of the table: the reward to four decimals, marks, the rank."""
    marks = ("=" if row["tied"] else "") + ("" if row["certified"] else "~")
    return f"{row['reward']:.4f} {marks}#{row['rank']:,}".replace("-", "−")


def test_every_row_shows_the_tables_own_reward_and_rank(open_page, tables):
    shown = open_page()
    expected = frame(tables, MODELS[0], "best")
    expected["tied"] = expected["reward"].duplicated(keep=False)
    expected = expected.sort_values("rank", kind="stable").reset_index(drop=True)
    seen = {}
    grid = shown.locator(".grid")
    for top in range(0, len(expected) * 30, 360):
        grid.evaluate(
            "(element, top) => new Promise(done => { element.scrollTop = top; "
            "requestAnimationFrame(() => setTimeout(done)); })",
            top,
        )
        seen |= dict(
            shown.evaluate(
                "() => [...document.querySelectorAll('.grid .body .row')].map(row => "
                "[Number(row.dataset.place), [row.children[1].textContent, "
                "row.children[3].textContent]])"
            )
        )
    assert len(seen) == len(expected)
    for place, row in expected.iterrows():
        assert seen[place] == [str(row["candidate_id"]), told(row)], place


def test_search_by_text_by_escape_exactly_and_by_expression(open_page):
    shown = open_page()
    search, way = shown.get_by_label("Token", exact=True), shown.get_by_label("which")

    def found(typed: str) -> list[str]:
        search.fill(typed)
        return [cells[0] for cells in first_cells(shown)]

    assert found("WORD0123") == ["word0123"]
    assert found("\\u202e") == ["\\u202eabc"]
    assert set(found("<img src=x")) == {"<img src=x onerror=window.pwned=1>"}
    shown.get_by_label("match case").check()
    assert found("WORD0123") == []
    way.select_option("is exactly this")
    assert found("a.c") == ["a.c"]
    assert found("word012") == []
    assert found("") == ["∅"]
    way.select_option("matches this expression")
    assert found("^word01.3$") == found("^word01[0-9]3$") != []
    assert status(shown).startswith("10 of 2,033 tokens")
    assert found("(") == []
    assert "Invalid regular expression" in status(shown)


def test_a_pinned_token_is_shown_in_every_model_prompt_and_vocabulary(open_page, tables):
    shown = open_page()
    shown.get_by_label("Token", exact=True).fill("word0042")
    shown.locator(".word tbody tr").first.wait_for()  # it stands above the table and moves it
    shown.locator(".grid .body .row").first.click()
    lines = shown.locator(".pin-panel tbody tr")
    lines.first.wait_for()
    assert lines.count() == 4
    for place, model in enumerate(MODELS):
        for prompt, cell in zip(
            PROMPTS, lines.nth(place).locator("td.number").all_inner_texts(), strict=True
        ):
            row = (
                frame(tables, model, prompt).assign(tied=False).query("text == 'word0042'").iloc[0]
            )
            assert cell == f"{told(row)} of 2,033"
    other = lines.nth(3).inner_text()
    row = frame(tables, "other/bpe", "best").assign(tied=False).query("text == ' word0042'").iloc[0]
    assert "as ␣word0042" in other
    assert f"{told(row)} of 1,000" in other
    marks = lines.first.locator(".track .mark")
    rank = frame(tables, MODELS[0], "best").query("text == 'word0042'")["rank"].iloc[0]
    assert marks.count() == 3
    assert float(marks.first.evaluate("mark => mark.style.left").rstrip("%")) == pytest.approx(
        100 * (rank - 1) / 2032, abs=0.01
    )
    shown.locator(".grid .body .row").first.click()
    shown.locator(".pin-panel").get_by_text("to pin it").wait_for()


def test_no_token_model_or_prompt_acts_or_becomes_markup(open_page):
    shown = open_page()
    shown.locator(".head").get_by_role("button", name="id").click()
    shown.evaluate("document.querySelector('.grid').style.height = '1400px'")
    shown.get_by_label("Token", exact=True).fill("")
    shown.wait_for_selector(f"#token-row-{len(ATTACKS) - 1}")
    texts = [cells[0] for cells in first_cells(shown, rows=len(ATTACKS))]
    assert texts[:3] == ATTACKS[:3]
    assert texts[13:21] == [
        "\\x00\\x1b[31m",
        "\\u202eabc",
        "\\u200b",
        "\\\\ud83d",
        "∅",
        "␣",
        "\\n",
        "\\t",
    ]
    for place in range(len(ATTACKS)):
        shown.locator(f"#token-row-{place}").click()
    shown.locator(".chip").nth(len(ATTACKS) - 1).wait_for()
    shown.locator(".scatter").scroll_into_view_if_needed()
    shown.wait_for_selector(".scatter .plot canvas")
    shown.get_by_role("combobox", name="Prompt", exact=True).select_option("<i>odd</i>")
    shown.get_by_text("“What is the <i>odd</i> thing?”").wait_for()
    assert shown.evaluate("window.pwned") is None
    inside = "#explorer :is(img, svg, b, i, u, textarea, script)"
    assert shown.locator(inside).count() == shown.locator("#explorer-marks b").count() == 3


def test_numbers_of_models_are_sorted_by_a_click_or_a_key(open_page):
    shown = open_page()
    heads, names = shown.locator(".sorted thead th"), shown.locator(".sorted tbody th")
    assert names.all_inner_texts() == MODELS
    heads.nth(1).click()
    assert names.all_inner_texts() == [MODELS[2], MODELS[0], MODELS[1]]
    assert heads.nth(1).get_attribute("aria-sort") == "descending"
    heads.nth(1).press("Enter")
    assert names.all_inner_texts() == [MODELS[1], MODELS[0], MODELS[2]]
    heads.nth(0).click()
    assert names.all_inner_texts() == sorted(MODELS, reverse=True)
    assert heads.nth(1).get_attribute("aria-sort") is None


def test_the_table_is_used_by_keyboard(open_page):
    shown = open_page()
    shown.locator(".grid").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowUp"):
        shown.keyboard.press(key)
    active = shown.locator(".row.active")
    assert active.get_attribute("data-place") == "1"
    assert shown.locator(".grid").get_attribute("aria-activedescendant") == active.get_attribute(
        "id"
    )
    shown.keyboard.press("Enter")
    assert active.get_attribute("aria-selected") == "true"
    shown.keyboard.press("End")
    assert active.get_attribute("data-place") == "2032"
    assert active.is_visible()
    shown.keyboard.press("Home")
    assert active.get_attribute("data-place") == "0"


def place_of(shown, x: float, y: float) -> tuple[float, float]:
    """Where a point of the scatter is on the screen."""
    return shown.evaluate(
        """([x, y]) => {
            const box = document.querySelector('.scatter .plot');
            const view = [...Bokeh.index.roots].findLast(view => view.model.type === 'Figure' && box.contains(view.el));
            const corner = view.canvas_view.el.getBoundingClientRect();
            return [corner.left + view.frame.x_scale.compute(x), corner.top + view.frame.y_scale.compute(y)];
        }""",
        [x, y],
    )


@pytest.fixture
def scatter(open_page):
    def opened(**options):
        shown = open_page(**options)
        shown.locator(".scatter .plot").scroll_into_view_if_needed()
        shown.wait_for_selector(".scatter .plot canvas")
        shown.locator(".scatter .plot").evaluate("box => box.scrollIntoView({ block: 'center' })")
        shown.wait_for_timeout(300)
        return shown

    return opened


def corner(tables) -> tuple[pd.Series, float, float]:
    """The token farthest to the right in best × worst, and its rewards."""
    across, up = frame(tables, MODELS[0], "best"), frame(tables, MODELS[0], "worst")
    row = across["reward"].idxmax()
    return across.loc[row], across.loc[row, "reward"], up.loc[row, "reward"]


def test_pointing_at_a_point_names_its_token_and_a_click_pins_it(scatter, tables):
    shown = scatter()
    row, x, y = corner(tables)
    shown.mouse.move(*place_of(shown, x, y))
    tip = shown.locator(".scatter .tip")
    tip.wait_for()
    assert tip.inner_text().splitlines()[0] == row["text"]
    assert f"across {x:.4f} ".replace("-", "−") in tip.inner_text()
    assert f"up {y:.4f} ".replace("-", "−") in tip.inner_text()
    shown.mouse.click(*place_of(shown, x, y))
    shown.locator(".pin-panel h4").wait_for()
    assert shown.locator(".pin-panel h4 code").inner_text() == row["text"]


def test_what_is_brushed_is_what_the_table_shows(scatter, tables):
    shown = scatter()
    across, up = frame(tables, MODELS[0], "best"), frame(tables, MODELS[0], "worst")
    chosen = across["reward"].between(1.0, 2.0) & up["reward"].between(0.5, 1.5)
    start, end = place_of(shown, 1.0, 0.5), place_of(shown, 2.0, 1.5)
    shown.mouse.move(*start)
    shown.mouse.down()
    shown.mouse.move(*end, steps=5)
    shown.mouse.up()
    again = shown.get_by_role("button", name="chosen in the scatter")
    again.wait_for()
    count = int(status(shown).split()[0].replace(",", ""))
    assert abs(count - chosen.sum()) <= 2, "a pixel at the edge"
    ids = {int(cells[1]) for cells in first_cells(shown)}
    near = across["reward"].between(0.98, 2.02) & up["reward"].between(0.48, 1.52)
    assert ids <= set(across.loc[near, "candidate_id"])
    assert shown.locator(".chip").count() == 0, "the end of a brush is no click"
    again.click()
    assert status(shown).startswith("2,033 of 2,033")


def test_two_vocabularies_are_joined_by_text_and_it_is_said(scatter, tables):
    shown = scatter()
    shown.get_by_label("Up: model").select_option("bpe")
    shown.get_by_text("1,000 tokens whose text").wait_for()
    across, up = frame(tables, MODELS[0], "best"), frame(tables, "other/bpe", "best")
    best = up.loc[up["reward"].idxmax()]
    shown.wait_for_timeout(500)
    x = across.loc[across["text"] == best["text"].strip(), "reward"].iloc[0]
    shown.mouse.move(*place_of(shown, x, best["reward"]))
    tip = shown.locator(".scatter .tip")
    tip.wait_for()
    assert f"up {best['reward']:.4f} ".replace("-", "−") in tip.inner_text()


def open_panels(shown) -> list[str]:
    """Names of the tabs whose panels can be seen."""
    return shown.evaluate(
        """() => [...document.querySelectorAll('.panel')].filter(panel => panel.checkVisibility({ visibilityProperty: true }))
            .map(panel => panel.previousElementSibling.textContent)"""
    )


def drawn(shown, selector: str) -> bool:
    """Whether an SVG on the screen has something in it."""
    box = shown.locator(selector).first.evaluate(
        "svg => { const { width, height } = svg.getBBox(); return [width, height]; }"
    )
    return min(box) > 10


def test_what_is_found_can_be_saved_as_csv(open_page, tables):
    shown = open_page()
    shown.get_by_role("combobox", name="Prompt", exact=True).select_option("worst")
    shown.get_by_text("“What is the worst thing?”").wait_for()
    shown.get_by_label("which").select_option("expression")
    shown.get_by_label("Token", exact=True).fill("[^a-z0-9]|^$|word000")
    with shown.expect_download() as coming:
        shown.get_by_role("button", name="CSV").click()
    assert coming.value.suggested_filename == "worst.csv"
    saved = pd.read_csv(coming.value.path(), dtype={"text_json": str}, keep_default_na=False)
    expected = frame(tables, MODELS[0], "worst").set_index("candidate_id")
    assert 20 < len(saved) < len(expected)
    texts = saved["text_json"].map(json.loads)
    assert texts.tolist() == expected.loc[saved["candidate_id"], "text"].tolist()
    assert not saved["text_json"].str.match(r"[=+@\-\t]").any(), "no cell begins a formula"
    ranks = saved[f"rank {MODELS[0]}"]
    assert ranks.tolist() == expected.loc[saved["candidate_id"], "rank"].tolist()
    assert saved[f"reward {MODELS[2]}"].tolist() == pytest.approx(
        frame(tables, MODELS[2], "worst")
        .set_index("candidate_id")
        .loc[saved["candidate_id"], "reward"]
        .tolist(),
        abs=1e-4,
    )


def test_a_typed_word_is_placed_in_every_vocabulary(open_page, tables):
    shown = open_page()
    box = shown.locator("#explorer .word")
    shown.get_by_label("Token", exact=True).fill("word0043")
    box.locator("tbody tr").first.wait_for()
    lines = dict(
        zip(*(box.locator(c).all_inner_texts() for c in ("tbody th", "td.number")), strict=True)
    )
    row = frame(tables, MODELS[0], "best").set_index("text").loc["word0043"]
    assert f"#{row['rank']:,} of 2,033" in lines["alder"]
    assert "bpe not one token" in lines, "it has the even words alone"
    shown.get_by_label("Token", exact=True).fill("word0042")
    shown.get_by_text("bpe as ␣word0042").wait_for()
    other = frame(tables, "other/bpe", "best").set_index("text").loc[" word0042"]
    assert f"#{other['rank']:,} of 1,000" in box.inner_text()
    shown.get_by_label("Token", exact=True).fill("no such word")
    box.get_by_text("not one token of any vocabulary").wait_for()
    shown.get_by_label("Token", exact=True).fill("")
    box.locator("p").wait_for(state="detached")


def test_without_javascript_everything_else_is_there(open_page):
    shown = open_page(java_script_enabled=False, wait=False)
    shown.locator("noscript p").wait_for()
    assert shown.locator("#agreement figure svg").first.is_visible()
    shown.locator("#agreement label", has_text="worst").click()
    assert open_panels(shown) == ["worst"]
    shown.get_by_text("Numbers").first.click()
    assert shown.locator("#agreement details td").first.is_visible()
