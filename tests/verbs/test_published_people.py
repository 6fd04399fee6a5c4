"""Human correlation from import to comparison, on made-up scores (on the published ones:
`tests/analyses/test_people.py`)."""

import numpy as np
import pandas as pd
import pytest

pytestmark = pytest.mark.usefixtures("undrawn")


# prompts that have no file in conf/prompts: imported under any key, compared by that key


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
