"""An analysis of another module or package is taken like the package's own, and the documented one
works as documented."""

import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pessimal
from artifacts import score_table, write_artifact
from pessimal import extensions
from pessimal.analyses import Options, all_analyses, compare
from pessimal.errors import ConfigError
from pessimal.report.page import page
from pessimal.tables import write_score_table

PAGE = Path(__file__).parents[2] / "docs" / "extend" / "analysis.md"
EXAMPLE, WITH_OPTIONS, TEST = re.findall(
    r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
)
TESTED = """
import pandas as pd
from pessimal.analyses.analysis import analysis
from pessimal.plots import Forest
from pessimal.tables.result import Effect, Result

EFFECT = Effect(column="gain", label="gain", p="p_corrected", null=0.0, of="words", unit="SD")

@analysis("planted", place=5)
def planted(tables, options):
    table = pd.DataFrame({"model": tables.models, "gain": 0.9, "p_corrected": P, "n": 7})
    row, forest = table.iloc[0], Forest.of(EFFECT, low=None, high=None)
    return [Result.of_row(row, "planted", table, EFFECT, "Gains are planted.", plot=forest)]

@analysis("clash")
def clash(tables, options):
    return [Result("moments", pd.DataFrame({"model": tables.models}))]

@analysis("moments")
def moments(tables, options):
    return []

def bare(tables, options):
    return []
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module of the user's and lets Python find it."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)

    yield write
    for name in ("mine", "planting"):
        sys.modules.pop(name, None)


@pytest.fixture
def rewards():
    texts = [f" {'a' * n}" for n in range(1, 60)]
    noise = np.random.default_rng(0).normal(size=(len(texts), 2))
    return pd.DataFrame(noise, index=texts, columns=["m0", "m1"]).assign(long=range(len(texts)))


def results_of(tables, paths):
    options = Options(permutations=100)
    return compare([tables], options, analyses=all_analyses(paths))


def documented_test():
    scope: dict = {}
    exec(TEST, scope)
    return scope["test_a_planted_love_of_length_is_found"]


def test_the_documented_analysis_and_its_test_work(module, table_set):
    module("mine", EXAMPLE)
    documented_test()(table_set)
    module(
        "mine",
        EXAMPLE.replace("ranked(rewards.index.str.len()", "ranked((rewards.index.str.len() % 7)"),
    )
    with pytest.raises(AssertionError):
        documented_test()(table_set)


def test_the_documented_option_reaches_the_analysis(module, rewards):
    module("mine", EXAMPLE + WITH_OPTIONS)
    tables = [score_table(rewards.index, rewards[model], model=model) for model in rewards]
    for least, n in ((1, 59), (11, 50)):  # each text is one character longer than its letters
        entry = {"_target_": "mine.among_longer", "least": least}
        results = pessimal.compare(tables, replicates=100, permutations=100, analyses=[entry])
        assert set(results["length_among_longer"].table["n"]) == {n}


def test_the_documented_analysis_is_in_a_comparison_from_the_command_line(
    command, module, rewards, tmp_path
):
    module("mine", EXAMPLE)
    folder = tmp_path / "scores"
    for model in rewards:
        (folder / model).mkdir(parents=True)
        table = score_table(rewards.index, rewards[model], model=model)
        write_score_table(table, folder / model / "scores.parquet")
    code, out, err = command(
        "compare", f"tables={folder}", "tracking=off", "analyses=[mine:analyse]", "replicates=100"
    )
    assert code == 0, err
    assert "follows length most" in err
    artifact = Path(out.strip().splitlines()[-1])
    assert (artifact / "tables" / "length.parquet").is_file()
    assert (artifact / "figures" / "length.svg").is_file()


def test_a_tested_effect_is_first_on_the_page_and_on_the_cards(
    module, table_set, rewards, tmp_path
):
    module("planting", TESTED.replace("P,", "0.001,"))
    results, _ = results_of(table_set({"greatest": rewards}), ["planting:planted"])
    assert [result.name for result in results][1:3] == ["planted", "provenance"], "its place is 5"
    heaviest = max((r for r in results if r.headline), key=lambda r: r.weight)
    assert heaviest.name == "planted"
    html = page(
        [write_artifact(tmp_path / "artifact", results, labels={m: m for m in rewards})],
        title="Page",
    )
    assert html.index("Gains are planted") < html.index("farthest from symmetric")
    assert html.count("+0.90 SD") == 3, "on the card of each model"


def test_a_tested_number_that_does_not_hold_comes_before_the_untested(module, table_set, rewards):
    module("mine", EXAMPLE.replace("null=0.0, ", ""))
    module("planting", TESTED.replace("P,", "0.9,").replace('"gain": 0.9', '"gain": 0.01'))
    paths = ["mine:analyse", "planting:planted"]
    results, _ = results_of(table_set({"greatest": rewards}), paths)
    weights = {result.name: result.weight for result in results}
    assert weights["length"] < weights["planted"], "no null, no test, though ρ is 1"


def test_an_entry_point_is_taken_without_being_named(module, monkeypatch):
    module("planting", TESTED.replace("P,", "0.9,"))
    point = EntryPoint("planted", "planting:planted", "pessimal.analyses")
    monkeypatch.setattr(extensions, "entry_points", lambda group: [point])
    assert "planted" in {analysis.name for analysis in all_analyses()}
    broken = EntryPoint("broken", "planting:nothing", "pessimal.analyses")
    monkeypatch.setattr(extensions, "entry_points", lambda group: [point, broken])
    with pytest.raises(ConfigError, match=r"planting:nothing .*cannot be imported"):
        all_analyses()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("planting", "give module:function"),
        ("plantin:planted", "'plantin' cannot be imported"),
        ("planting:plantd", "Did you mean 'planted'"),
        ("planting:bare", "'bare' is no Analysis in planting"),
        ("planting:moments", "two analyses are called 'moments'"),
    ],
)
def test_a_wrong_name_is_the_users_mistake(module, path, said):
    module("planting", TESTED.replace("P,", "0.9,"))
    with pytest.raises(ConfigError, match=re.escape(said)):
        all_analyses([path])


def test_a_wrong_name_is_reported_before_tables_are_opened(command, tmp_path):
    (tmp_path / "scores.parquet").write_text("no table")
    file = tmp_path / "scores.parquet"
    code, _, err = command("compare", f"tables={file}", "tracking=off", "analyses=[nowhere:none]")
    assert code == 2
    assert "nowhere" in err


def test_a_result_with_anothers_name_is_left_out(module, table_set, rewards):
    module("planting", TESTED.replace("P,", "0.9,"))
    results, skipped = results_of(table_set({"greatest": rewards}), ["planting:clash"])
    assert "skewness" in next(result.table for result in results if result.name == "moments")
    assert "planting:clash" in skipped["clash"]
