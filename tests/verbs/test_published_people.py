"""Human correlation from import to comparison, on made-up scores (on the published ones:
`tests/analyses/test_people.py`)."""

import numpy as np
import pandas as pd
import pytest

pytestmark = pytest.mark.usefixtures("undrawn")


def compared(command, tmp_path, file):
    code, _, err = command(
        "import", "format=eloeverything", f"path={file}", "prompt=greatest", "tracking=off"
    )
    assert code == 0, err
    code, _, err = command("compare", "tracking=off", "replicates=200", "permutations=500")
    assert code == 0, err
    return tmp_path / "runs/registry/comparison/comparison/v0/tables"


# prompts that have no file in conf/prompts: imported under any key, compared by that key


@pytest.fixture
def imported(command, tmp_path):
    """EloEverything's layout, two models, under the key HP, whose wording nobody states."""
    names = [f"thing {place}" for place in range(40)]
    rows = [f"{i + 1},{2000 - i},{name},50,{40 - i},{(7 * i) % 40}" for i, name in enumerate(names)]
    file = tmp_path / "scores.csv"
    file.write_text("\n".join(["elo_rank,elo_score,name,elo_matches,a/one,b/two", *rows]))
    code, _, err = command(
        "import", "format=eloeverything", f"path={file}", "prompt=HP", "tracking=off"
    )
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


# one's own model beside the published ten, on the same items


@pytest.fixture
def ten(command, tmp_path):
    """Items scored by two of the ten, and by two models of one's own: `mine` on these items, `other`
    on others."""
    columns = ["Ray2333/GRM-gemma2-2B-rewardmodel-ft", "Skywork/Skywork-Reward-Gemma-2-27B"]
    names = [f"thing {place}" for place in range(40)]

    def scored(file, columns, names):
        rows = pd.DataFrame(
            {"elo_rank": range(40), "elo_score": range(40), "name": names, "elo_matches": 9}
            | {c: np.random.default_rng(i).normal(size=40) for i, c in enumerate(columns)}
        )
        rows.to_csv(tmp_path / file, index=False)
        return ("import", "format=eloeverything", f"path={tmp_path / file}", "tracking=off")

    published = (*scored("published.csv", columns, names), "prompt=greatest")
    assert command(*scored("mine.csv", ["me/mine"], names), "prompt=greatest")[0] == 0
    others = scored("other.csv", ["me/other"], names[::-1])
    assert command(*others, "prompt=greatest", "set=another")[0] == 0
    return published


COMPARED = ("compare", "reference=published", "tracking=off", "replicates=100", "permutations=200")


def test_a_model_of_ones_own_stands_beside_the_published_on_the_same_items(command, ten, tmp_path):
    assert command(*ten)[0] == 0
    assert command(*ten, "set=further")[0] == 0
    code, _, err = command(*COMPARED, "models=[me/mine,me/other]")
    assert code == 0, err
    folder = tmp_path / "runs/registry/comparison/comparison/v0"
    provenance = pd.read_parquet(folder / "tables/provenance.parquet")
    assert set(provenance["candidates"]) == {"eloeverything"}
    assert sorted(provenance["model"].str.rpartition("/")[2]) == [
        "GRM-gemma2-2B-rewardmodel-ft",
        "Skywork-Reward-Gemma-2-27B",
        "mine",
    ]
    about = pd.read_parquet(folder / "tables/models.parquet").set_index("model")["about"]
    assert about.notna().sum() == 2
    assert "Christian" in about["Skywork/Skywork-Reward-Gemma-2-27B"]
    assert len(pd.read_parquet(folder / "tables/human_correlation.parquet")) == 3


def test_what_is_missing_for_a_reference_is_what_to_type(command, ten, tmp_path):
    code, _, err = command(*COMPARED, "models=[me/mine]")
    assert code == 2
    assert "pessimal import format=eloeverything path=greatest_one_word.csv" in err
    assert command(*ten)[0] == 0
    code, _, err = command(*COMPARED, "models=[me/other]")
    assert code == 2
    assert "me/other has no scores" in err
    assert "eloeverything on greatest" in err
    assert "candidates.name=eloeverything" in err
    assert command("compare", "reference=other", "tracking=off")[0] == 2
