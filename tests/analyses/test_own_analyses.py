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
from artifacts import score_table
from pessimal import extensions
from pessimal.analyses import all_analyses
from pessimal.errors import ConfigError
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
    [("planting", "give module:function"), ("planting:bare", "'bare' is no Analysis in planting")],
)
def test_a_wrong_name_is_the_users_mistake(module, path, said):
    module("planting", TESTED.replace("P,", "0.9,"))
    with pytest.raises(ConfigError, match=re.escape(said)):
        all_analyses([path])
