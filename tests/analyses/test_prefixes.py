"""Personas as a paired design: planted, absent, and as `pessimal scan prefixes=FILE` makes it."""

import numpy as np
import pytest
from scipy import stats

from artifacts import score_table
from pessimal.analyses import Options
from pessimal.analyses.prefixes import analyse, prefix_effect
from pessimal.config.compose import configuration
from pessimal.conversation import Prefixed, Turn, control_of, read_prefixes, with_prefixes
from pessimal.errors import ConfigError, InputError, TableError
from pessimal.tables.table_set import table_sets

WORDS = [f"word{i}" for i in range(2000)]


def rewards(bare, *, noise, seed):
    return bare + noise * np.random.default_rng(seed).normal(size=len(bare))


def test_effect_is_the_difference_of_spearmans_rhos_and_holds_where_it_is_planted():
    bare = np.random.default_rng(0).normal(size=2000)
    persona, control = rewards(bare, noise=1.0, seed=1), rewards(bare, noise=0.2, seed=2)
    found = prefix_effect(bare, persona, control)
    rho = [stats.spearmanr(bare, other).statistic for other in (persona, control)]
    assert found["rho_persona"] == pytest.approx(rho[0])
    assert found["rho_control"] == pytest.approx(rho[1])
    assert found["effect"] == pytest.approx(rho[1] - rho[0])
    assert found["low"] < found["effect"] < found["high"]
    assert found["p"] < 1e-6


def test_interval_covers_and_p_is_uniform_where_persona_and_control_do_alike():
    found = []
    for seed in range(200):
        bare = np.random.default_rng(seed).normal(size=400)
        alike = (rewards(bare, noise=0.5, seed=10_000 + 2 * seed + i) for i in (0, 1))
        found.append(prefix_effect(bare, *alike))
    covered = np.mean([row["low"] <= 0 <= row["high"] for row in found])
    assert 0.9 <= covered <= 0.99
    assert np.mean([row["p"] <= 0.05 for row in found]) <= 0.1


def test_what_cannot_be_ranked_is_refused():
    with pytest.raises(TableError):
        prefix_effect(np.ones(500), np.arange(500.0), np.arange(500.0))
    with pytest.raises(TableError):
        prefix_effect(*np.random.default_rng(0).normal(size=(3, 30)))


def design(*, planted: bool):
    bare = np.random.default_rng(3).normal(size=len(WORDS))
    columns = {None: bare, False: rewards(bare, noise=1.0 if planted else 0.3, seed=4)}
    columns[True] = rewards(bare, noise=0.3, seed=5)
    for control, values in columns.items():
        one = None if control is None else Prefixed("best", "doctor", control)
        key, prefixed = ("best", None) if one is None else (one.key, vars(one))
        yield score_table(WORDS, values, prompt=key, prefixed=prefixed)


@pytest.mark.parametrize("planted", [True, False])
def test_compare_pairs_persona_and_control_and_looks_at_the_prompt_alone_elsewhere(planted):
    [tables] = table_sets(list(design(planted=planted)))
    assert tables.prompts == ["best"], "those behind personas are no prompts of their own"
    assert len(tables.prefixed) == 2
    [result] = analyse(tables, Options())
    [row] = result.table.to_dict("records")
    assert (row["prompt"], row["prefix"], row["n"]) == ("best", "doctor", len(WORDS))
    assert (row["p_adjusted"] <= 0.05) == planted
    assert ("otherwise" in result.headline) == planted


def test_without_the_control_nothing_is_said():
    bare, persona, _ = design(planted=True)
    with pytest.raises(TableError, match="control was not scanned"):
        analyse(table_sets([bare, persona])[0], Options())
    [alone] = table_sets([bare])
    assert "prefixes=FILE" in analyse.needs.missing(alone, Options())


def test_controls_have_as_many_words_and_stand_where_the_persona_stands():
    for n in (1, 4, 60):
        assert len(control_of(" ".join(["You"] * n)).split()) == n
    talk = (Turn("system", "Be kind."), Turn("user", "Why?"))
    asked = with_prefixes({"why": talk, "best": "Best?"}, {"doctor": "You are a doctor."})
    assert len(asked) == 6
    assert asked["why"] == (talk, None)
    prompt, one = asked["why_as_doctor"]
    assert prompt == (talk[0], Turn("user", "You are a doctor. Why?"))
    assert one == Prefixed("why", "doctor", control=False)
    assert asked["best_as_doctor"][0] == "You are a doctor. Best?"
    assert asked["best_as_doctor_control"][0] == "The line below this. Best?"


def test_files_of_prefixes(tmp_path):
    (tmp_path / "p.yaml").write_text("doctor: You are a doctor.\nnurse: You are a nurse.\n")
    assert list(read_prefixes(str(tmp_path / "p.yaml"))) == ["doctor", "nurse"]
    config = configuration(
        "scan", {"prefixes": str(tmp_path / "p.yaml")}, groups={"prompts": "best"}
    )
    assert list(config.asked())[:3] == ["best", "best_as_doctor", "best_as_doctor_control"]
    (tmp_path / "talk.yaml").write_text("x: [{role: system, content: a}, {role: user, content: b}]")
    for name, error in (("talk.yaml", InputError), ("none.yaml", (InputError, ConfigError))):
        with pytest.raises(error):
            configuration("scan", {"prefixes": str(tmp_path / name)}, groups={"prompts": "best"})
