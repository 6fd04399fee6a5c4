"""Prompts that have no file in conf/prompts: imported under any key, compared by that key."""

import pytest


@pytest.fixture
def imported(command, tmp_path):
    """EloEverything's layout, two models, under the key HP, whose wording nobody states."""
    names = [f"thing {place}" for place in range(40)]
    rows = [f"{i + 1},{2000 - i},{name},50,{40 - i},{(7 * i) % 40}" for i, name in enumerate(names)]
    file = tmp_path / "scores.csv"
    file.write_text("\n".join(["elo_rank,elo_score,name,elo_matches,a/one,b/two", *rows]))
    code, _, err = command("import", "format=eloeverything", f"path={file}", "prompt=HP", "tracking=off")
    assert code == 0, err
    assert "the wording of HP is not stated" in err
    return command


def test_compare_takes_every_key_that_the_registry_holds(imported):
    code, out, err = imported("compare", "prompts=[HP]", "replicates=100", "tracking=off")
    assert code == 0, err
    assert out.strip().endswith("comparison/comparison/v0")


def test_a_key_that_nothing_was_scored_on_is_refused_with_those_there_are(imported):
    code, _, err = imported("compare", "prompts=[HQ]", "tracking=off")
    assert code == 2
    assert "'HQ'" in err
    assert "HP" in err


def test_the_old_name_of_polarity_is_understood_with_a_notice(imported):
    code, _, err = imported("compare", "prompts=[HP]", "+frames.HP=-1", "replicates=100", "tracking=off")
    assert code == 0, err
    assert "frames is called polarity now" in err
