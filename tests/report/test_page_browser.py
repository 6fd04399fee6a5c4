"""The page in a real browser: it answers, it is quick, it can be used by keyboard and on a phone, and no token acts."""

import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from pessimal.report.contents import Contents, Entry
from pessimal.report.explorer import explorer
from pessimal.report.page import Comparison, page
from pessimal.tables import ScoreTable
from pessimal.tables.score_table import ScoreIdentity
from pessimal.tables.shared_columns import SharedColumns

playwright = pytest.importorskip(
    "playwright.sync_api", reason="Playwright is in requirements.txt: make setup"
)

ATTACKS = [
    "</script><script>window.pwned=1</script>", "<img src=x onerror=window.pwned=1>", "<!--<script>", "]]>", "{{7*7}}",
    '" onmouseover="window.pwned=1', "javascript:window.pwned=1", "<svg onload=window.pwned=1>", "$$\\frac{1}{2}$$",
    "__proto__", "constructor", "null", "=cmd()", "\x00\x1b[31m", "\u202eabc", "\u200b", "\\ud83d", "", " ", "\n", "\t",
    "😀👩\u200d💻", "自由", "e\u0301", "\u0301", "\ufffd", "\ufffd", "x" * 5000, "&lt;b&gt;", "</textarea>", "%00", "\\", "a.c",
]  # fmt: skip
WORDS = [f"word{i:04d}" for i in range(2000)]
MODELS = ["lab/alder", "lab/birch", "</script><b>cedar"]
PROMPTS = ["best", "worst", "<i>odd</i>"]


def scores(texts, rewards, *, model, prompt, tokens=None) -> ScoreTable:
    n = len(texts)
    rows = pd.DataFrame(
        {
            "candidate_id": np.arange(n, dtype=np.int32),
            "token": tokens or texts,
            "text": texts,
            "kind": ["special" if i < 3 else "normal" for i in range(n)],
            "survives": pd.array([i % 7 != 1 for i in range(n)], dtype="boolean"),
            "reward": rewards,
            "certified": [i % 5 != 0 for i in range(n)],
        }
    )
    identity = {"candidates": "vocabulary", "candidates_digest": str(n), "mode": "ids", "source": "scan"}
    asked = f"What is the {prompt} thing?"
    return ScoreTable(ScoreIdentity(model=model, prompt=prompt, prompt_text=asked, **identity), rows)


@pytest.fixture(scope="module")
def browser():
    own = os.environ.get("PESSIMAL_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
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
    (found,) = [t for t in tables if (t.identity.model, t.identity.prompt) == (model, prompt)]
    return found.rows.assign(rank=found.rows["reward"].rank(method="min", ascending=False).astype(int))


@pytest.fixture(scope="module")
def file(tables, tmp_path_factory):
    folder = tmp_path_factory.mktemp("comparison")
    contents = Contents()
    contents.add_table("provenance", pd.DataFrame({"model": MODELS, "developer": ["a", "b", "<u>c"]}))
    where = {"prompt": "best", "candidates": "vocabulary"}
    pairs = pd.DataFrame(
        {
            "model_a": [MODELS[0], MODELS[0], MODELS[1]],
            "model_b": [MODELS[1], MODELS[2], MODELS[2]],
            "n": 2033,
        }
    )
    pairs = pairs.assign(
        kendall=[0.812, 0.4, 0.3], low=[0.7, 0.3, 0.2], high=[0.9, 0.5, 0.4], spearman=[0.9, 0.5, 0.4]
    )
    contents.add_table("agreement", pairs, **where)
    contents.add_table(
        "mds", pd.DataFrame({"model": MODELS, "x": [0.0, 1.0, -1.0], "y": [0.0, 0.5, -0.5]}), **where
    )
    contents.figures |= {name: Figure(figsize=(4, 3)) for name in ("best-agreement", "best-map")}
    section = contents.section("best", "")
    section.entries.append(
        Entry("Agreement", "n = 3", figure="best-agreement", table="agreement", where=where)
    )
    section.entries.append(Entry("Map", "n = 3", figure="best-map"))
    contents.write(folder)
    html = page([Comparison("comparison/x:v0", folder, "2026")], title="Browser", explorer=explorer(tables))
    made = tmp_path_factory.mktemp("page") / "index.html"
    made.write_text(html, encoding="utf-8")
    return made


@pytest.fixture
def open_page(browser, file):
    """Opens the page; whatever went wrong in it, or was asked of a network, fails the test."""
    contexts = []

    def opened(path=file, *, wait=True, **options):
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}} | options)
        shown, wrong = context.new_page(), []
        shown.set_default_timeout(10_000)
        shown.on(
            "console", lambda told: wrong.append(told.text) if told.type in ("error", "warning") else None
        )
        shown.on("pageerror", lambda error: wrong.append(str(error)))
        shown.on(
            "request", lambda asked: wrong.append(asked.url[:100]) if not _is_own(asked.url, path) else None
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
    return [lines.nth(i).locator(".cell").all_inner_texts() for i in range(min(rows, lines.count()))]


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
            "(element, top) => new Promise(done => { element.scrollTop = top; requestAnimationFrame(() => setTimeout(done)); })",
            top,
        )
        seen |= dict(shown.evaluate(
            "() => [...document.querySelectorAll('.grid .body .row')].map(row => [Number(row.dataset.place), [row.children[1].textContent, row.children[3].textContent]])"
        ))  # fmt: skip
    assert len(seen) == len(expected)
    for place, row in expected.iterrows():
        assert seen[place] == [str(row["candidate_id"]), told(row)], place


def test_search_by_text_by_escape_exactly_and_by_expression(open_page):
    shown = open_page()
    search, way = shown.get_by_label("Token", exact=True), shown.get_by_label("which")

    def found(typed: str) -> list[str]:
        search.fill(typed)
        return [cells[0] for cells in first_cells(shown)]

    assert found("word0123") == ["word0123"]
    assert found("WORD0123") == ["word0123"]
    assert found("\\u202e") == ["\\u202eabc"]
    assert set(found("\\x00")) == {"\\x00\\x1b[31m"}
    assert set(found("<img src=x")) == {"<img src=x onerror=window.pwned=1>"}
    shown.get_by_label("match case").check()
    assert found("WORD0123") == []
    way.select_option("is exactly this")
    assert found("a.c") == ["a.c"]
    assert found("word012") == []
    assert found("") == ["∅"]
    assert found("\\n") == ["\\n"]
    way.select_option("matches this expression")
    assert found("^word01.3$") == found("^word01[0-9]3$") != []
    assert status(shown).startswith("10 of 2,033 tokens")
    assert found("(") == []
    assert "Invalid regular expression" in status(shown)
    assert found("word1999") == ["word1999"], "it recovers"


def test_an_expression_that_takes_for_ever_is_given_up(open_page):
    shown = open_page()
    shown.get_by_label("which").select_option("matches this expression")
    shown.evaluate(
        "() => { const now = performance.now.bind(performance); let late = 0; performance.now = () => now() + (late += 4000); }"
    )
    shown.get_by_label("Token", exact=True).fill("word")
    assert status(shown).startswith("the expression takes too long")


def test_columns_sort_both_ways(open_page, tables):
    shown = open_page()
    birch = frame(tables, MODELS[1], "best")
    shown.locator(".head").get_by_role("button", name="birch").click()
    best = birch.sort_values("reward", ascending=False)["candidate_id"].head(5)
    assert [cells[1] for cells in first_cells(shown)] == best.astype(str).tolist()
    header = shown.locator(".head [aria-sort=descending]")
    assert header.inner_text() == "↓ birch"
    header.get_by_role("button").click()
    worst = birch.sort_values("reward")["candidate_id"].head(5)
    assert [cells[1] for cells in first_cells(shown)] == worst.astype(str).tolist()
    shown.locator(".head").get_by_role("button", name="id").click()
    assert [cells[1] for cells in first_cells(shown)] == ["0", "1", "2", "3", "4"]


def test_filters_narrow_and_count(open_page, tables):
    shown = open_page()
    rows = frame(tables, MODELS[0], "best")
    shown.get_by_label("Kind").select_option("special")
    assert status(shown).startswith("3 of 2,033 tokens")
    shown.get_by_label("Kind").select_option("all")
    shown.get_by_label("Can be typed").select_option("does not")
    assert status(shown).startswith(f"{(~rows['survives']).sum()} of 2,033 tokens")
    assert all(cells[2].endswith("⊘") for cells in first_cells(shown))


def test_another_prompt_shows_its_own_numbers(open_page, tables):
    shown = open_page()
    shown.get_by_role("combobox", name="Prompt", exact=True).select_option("worst")
    shown.get_by_text("“What is the worst thing?”").wait_for()
    shown.get_by_label("Token", exact=True).fill("word0042")
    row = frame(tables, MODELS[0], "worst").assign(tied=False).query("text == 'word0042'").iloc[0]
    assert first_cells(shown)[0][3] == told(row)


def test_a_pinned_token_is_shown_in_every_model_prompt_and_vocabulary(open_page, tables):
    shown = open_page()
    shown.get_by_label("Token", exact=True).fill("word0042")
    shown.locator(".grid .body .row").first.click()
    lines = shown.locator(".pin-panel tbody tr")
    lines.first.wait_for()
    assert lines.count() == 4
    for place, model in enumerate(MODELS):
        for prompt, cell in zip(
            PROMPTS, lines.nth(place).locator("td.number").all_inner_texts(), strict=True
        ):
            row = frame(tables, model, prompt).assign(tied=False).query("text == 'word0042'").iloc[0]
            assert cell == told(row)
    other = lines.nth(3).inner_text()
    row = frame(tables, "other/bpe", "best").assign(tied=False).query("text == ' word0042'").iloc[0]
    assert "as ␣word0042" in other
    assert told(row) in other
    marks = lines.first.locator(".track .mark")
    rank = frame(tables, MODELS[0], "best").query("text == 'word0042'")["rank"].iloc[0]
    assert marks.count() == 3
    assert float(marks.first.evaluate("mark => mark.style.left").rstrip("%")) == pytest.approx(
        100 * (rank - 1) / 2032, abs=0.01
    )
    shown.locator(".grid .body .row").first.click()
    shown.get_by_text("to pin it").wait_for()


def test_no_token_model_or_prompt_acts_or_becomes_markup(open_page):
    shown = open_page()
    shown.locator(".head").get_by_role("button", name="id").click()
    shown.evaluate("document.querySelector('.grid').style.height = '1400px'")
    shown.get_by_label("Token", exact=True).fill("")
    shown.wait_for_selector(f"#token-row-{len(ATTACKS) - 1}")
    texts = [cells[0] for cells in first_cells(shown, rows=len(ATTACKS))]
    assert texts[:3] == ATTACKS[:3]
    assert texts[13:21] == ["\\x00\\x1b[31m", "\\u202eabc", "\\u200b", "\\\\ud83d", "∅", "␣", "\\n", "\\t"]
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


def test_the_table_is_used_by_keyboard(open_page):
    shown = open_page()
    shown.get_by_label("Can be typed").focus()
    stops = []
    for _ in range(8):
        shown.keyboard.press("Tab")
        stops.append(
            shown.evaluate(
                "document.activeElement.getAttribute('role') ?? document.activeElement.textContent"
            )
        )
    assert stops[0] == "grid"
    assert stops[1] == "token"
    shown.locator(".grid").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowUp"):
        shown.keyboard.press(key)
    active = shown.locator(".row.active")
    assert active.get_attribute("data-place") == "1"
    assert shown.locator(".grid").get_attribute("aria-activedescendant") == active.get_attribute("id")
    shown.keyboard.press("Enter")
    assert active.get_attribute("aria-selected") == "true"
    shown.keyboard.press("End")
    assert active.get_attribute("data-place") == "2032"
    assert active.is_visible()
    box, grid = active.bounding_box(), shown.locator(".grid").bounding_box()
    assert box["y"] + box["height"] <= grid["y"] + grid["height"] + 1
    shown.keyboard.press("Home")
    assert active.get_attribute("data-place") == "0"
    shown.keyboard.press("PageDown")
    assert int(active.get_attribute("data-place")) > 5


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


def place_of_pair(shown, across: str, up: str) -> tuple[float, float]:
    """Where a cell of the heat map is on the screen."""
    return shown.evaluate(
        """([across, up]) => {
            const view = [...Bokeh.index.roots].find(view => view.model.x_range?.factors);
            const corner = view.canvas_view.el.getBoundingClientRect();
            return [corner.left + view.frame.x_scale.compute(across), corner.top + view.frame.y_scale.compute(up)];
        }""",
        [across, up],
    )


def test_charts_of_models_answer_to_the_pointer(open_page):
    shown = open_page()
    heat, places = shown.locator("[data-chart='0']"), shown.locator("[data-chart='1']")
    for chart in (heat, places):
        chart.scroll_into_view_if_needed()
        chart.locator("canvas").first.wait_for()
    shown.wait_for_timeout(300)
    drawn = "[...Bokeh.index.roots].map(view => view.model).filter(model => model.type === 'Figure')"
    assert shown.evaluate(f"{drawn}.length") >= 2
    heat.evaluate("box => box.scrollIntoView({ block: 'center' })")
    at = place_of_pair(shown, "lab/alder", "lab/birch")
    shown.mouse.move(*at)
    tip = heat.locator(".tip")
    tip.wait_for()
    assert set(tip.inner_text().splitlines()[0].split(" × ")) == {"lab/alder", "lab/birch"}
    assert "Kendall's τ 0.812 [0.700, 0.900]" in tip.inner_text()
    assert "n = 2,033" in tip.inner_text()
    corner = place_of_pair(shown, "lab/alder", "lab/alder")
    shown.mouse.move(*corner)
    tip.wait_for(state="hidden")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_are_readable(scatter, scheme):
    shown = scatter(color_scheme=scheme)

    def luminance(expression: str) -> float:
        red, green, blue = shown.evaluate(f"{expression}.match(/[\\d.]+/g).slice(0, 3).map(Number)")
        return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255

    style = "getComputedStyle(document.querySelector('{}')).{}"
    ground, ink = (
        luminance(style.format(".body .cell", "backgroundColor")),
        luminance(style.format(".body .cell", "color")),
    )
    assert (ground > ink) == (scheme == "light")
    assert abs(ground - ink) > 0.6
    canvas = shown.evaluate(
        "[...Bokeh.index.roots].find(view => view.model.type === 'Figure').model.background_fill_color"
    )
    assert (luminance(repr(canvas)) > 0.5) == (scheme == "light")


def test_a_phone_has_no_sideways_scroll_and_a_tap_pins(open_page):
    shown = open_page(viewport={"width": 400, "height": 850}, has_touch=True, is_mobile=True)
    shown.get_by_label("Token", exact=True).fill("word0042")
    shown.locator(".grid .body .row").first.tap()
    shown.locator(".pin-panel tbody tr").first.wait_for()
    for chart in (".scatter .plot", "[data-chart='0'] .plot", "[data-chart='1'] .plot"):
        shown.locator(chart).scroll_into_view_if_needed()
        shown.wait_for_selector(f"{chart} canvas")
    assert shown.evaluate("document.documentElement.scrollWidth") == 400


def test_a_tap_on_a_point_names_and_pins_it(scatter, tables):
    shown = scatter(viewport={"width": 400, "height": 850}, has_touch=True, is_mobile=True)
    row, x, y = corner(tables)
    shown.touchscreen.tap(*place_of(shown, x, y))
    shown.locator(".pin-panel h4").wait_for()
    assert shown.locator(".pin-panel h4 code").inner_text() == row["text"]


def test_redrawing_the_scatter_leaves_nothing_behind(scatter):
    shown = scatter()
    for _ in range(3):
        for scale in ("rank", "reward"):
            shown.get_by_label("Scale").select_option(scale)
            shown.wait_for_timeout(400)
    assert shown.evaluate("Bokeh.documents.length") <= 3, (
        "the scatter, and the charts of models if they came near"
    )
    assert shown.locator(".scatter .tip").count() == 1


def test_without_javascript_everything_else_is_there(open_page):
    shown = open_page(java_script_enabled=False, wait=False)
    shown.locator("noscript p").wait_for()
    picture = shown.locator("figure img").first
    picture.scroll_into_view_if_needed()
    assert picture.is_visible()
    shown.locator("summary").first.click()
    assert shown.locator("details td").first.is_visible()


def test_ten_models_of_128000_tokens_are_quick_and_small(open_page, tmp_path):
    """The bars: 25 MB for three prompts, first paint and a usable table within 2 s (twice that on a busy machine)."""
    drawn, n = np.random.default_rng(1), 128_256
    letters = drawn.integers(97, 123, size=(n, 7), dtype=np.uint8)
    texts = [bytes(word).decode() for word in letters]
    common, shared = drawn.normal(size=n), SharedColumns()
    base = scores(texts, common, model="x", prompt="best")
    tables = []
    for model in range(10):
        for prompt in ("greatest", "best", "worst"):
            rewards = (0.7 * common + 0.7 * drawn.normal(size=n)).astype(np.float32).astype(float)
            rows = base.rows.assign(reward=rewards, certified=drawn.random(n) > 0.1)
            identity = ScoreIdentity(f"lab/m{model}", prompt, prompt, "vocabulary", "d", "ids", "scan")
            tables.append(shared.of(ScoreTable(identity, rows)))
    contents = Contents()
    contents.add_table("provenance", pd.DataFrame({"model": ["m0"]}))
    contents.write(tmp_path)
    html = page([Comparison("comparison/x:v0", tmp_path, "2026")], title="t", explorer=explorer(tables))
    large = tmp_path / "index.html"
    large.write_text(html, encoding="utf-8")
    assert large.stat().st_size < 25e6

    shown = open_page(large)
    paint = shown.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    usable = shown.evaluate("performance.getEntriesByName('explorer usable')[0].startTime")
    assert paint < 2000
    assert usable < 4000
    searching = """async (typed) => {
        const field = document.querySelector('input[type=search]'), start = performance.now();
        field.value = typed; field.dispatchEvent(new Event('input'));
        await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
        return performance.now() - start;
    }"""
    shown.evaluate(searching, "q")
    assert shown.evaluate(searching, texts[77]) < 500
    assert first_cells(shown, rows=1)[0][:2] == [texts[77], "77"]
    assert shown.locator(".grid .body .row").count() < 60

    shown.locator(".scatter .plot").scroll_into_view_if_needed()
    shown.wait_for_selector(".scatter .plot canvas")
    shown.locator(".scatter .plot").evaluate("box => box.scrollIntoView({ block: 'center' })")
    shown.wait_for_timeout(500)
    pointing = """async () => {
        const inside = document.querySelector('.scatter .plotted'), box = inside.getBoundingClientRect(), start = performance.now();
        inside.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 }));
        await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
        return [performance.now() - start, inside.querySelector('.tip').textContent];
    }"""
    shown.evaluate(pointing)
    took, tip = shown.evaluate(pointing)
    assert "across" in tip
    assert took < 300
