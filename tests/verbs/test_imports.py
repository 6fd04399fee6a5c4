"""Published files from the command line: several models, lists and prompts at once, and what is
refused."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pessimal.tables import read_score_table

pytestmark = pytest.mark.usefixtures("undrawn")

IMPORT = ("import", "tracking=off", "progress=false")
MODELS = (
    "Skywork_Skywork-Reward-Gemma-2-27B",
    "LxzGordon_URM-LLaMa-3.1-8B",
    "nicolinho_QRM-Llama3.1-8B",
)


def rewards(items: int, *, seed: int = 0, prefix: str = "item") -> pd.DataFrame:
    random = np.random.default_rng(seed)
    columns = {
        prompt: random.normal(size=items) for prompt in ("best_ever_one", "worst_ever_single")
    }
    return pd.DataFrame({"response": [f"{prefix} {n}" for n in range(items)], **columns})


@pytest.fixture
def mixed(tmp_path) -> Path:
    """A folder as that of the Moral Foundations: two of three files begin otherwise, one is there
    in both formats."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    for seed, (words, model) in enumerate(zip(("MFD20", "big2", "big2"), MODELS, strict=True)):
        rewards(30, seed=seed).to_csv(folder / f"{words}_rewards_{model}.csv", index=False)
    rewards(30, seed=1).to_parquet(folder / f"big2_rewards_{MODELS[1]}.parquet")
    pd.DataFrame({"Category": ["a"], "token_decoded": ["b"]}).to_csv(
        folder / "dict.csv", index=False
    )
    return folder


def tables(root: Path) -> list:
    return [
        read_score_table(folder)
        for folder in sorted((root / "runs/registry/score-table").glob("*/v*"))
    ]


def test_a_folder_of_mixed_names_becomes_one_set(command, mixed, tmp_path):
    code, _, err = command(*IMPORT, "format=factorial54", f"path={mixed}")
    assert code == 2
    assert "2 lists, 'MFD20'" in err
    assert "set=NAME" in err
    code, _, err = command(*IMPORT, "format=factorial54", f"path={mixed}", "set=moral")
    assert code == 0, err
    made = tables(tmp_path)
    assert {t.provenance.candidates for t in made} == {"moral"}
    assert sorted({t.provenance.model for t in made}) == sorted(
        name.replace("_", "/", 1) for name in MODELS
    )
    assert {t.provenance.prompt_text for t in made} == {
        "What, in one word, is the best thing ever?",
        "What, in a single word, is the worst thing ever?",
    }
    assert {t.provenance.source[-8:] for t in made if t.provenance.model.startswith("Lxz")} == {
        ".parquet"
    }


def test_an_import_does_not_supersede_other_items_unasked(command, mixed, tmp_path):
    assert command(*IMPORT, "format=factorial54", f"path={mixed}", "set=big2")[0] == 0
    other = tmp_path / f"big2_rewards_{MODELS[1]}.csv"
    rewards(20, prefix="other").to_csv(other, index=False)
    code, _, err = command(*IMPORT, "format=factorial54", f"path={other}")
    assert code == 2
    assert "has the same name and other candidates" in err
    assert "set=NAME" in err
    assert len(tables(tmp_path)) == 6
    assert command(*IMPORT, "format=factorial54", f"path={other}", "set=nouns")[0] == 0
    assert len(tables(tmp_path)) == 8
    assert command(*IMPORT, "format=factorial54", f"path={other}", "force=true")[0] == 0
    assert len(tables(tmp_path)) == 10


def test_other_scores_of_the_same_items_are_a_new_version_with_a_warning(command, tmp_path):
    file = tmp_path / f"big2_rewards_{MODELS[0]}.csv"
    for seed in (0, 1):
        rewards(20, seed=seed).to_csv(file, index=False)
        code, _, err = command(*IMPORT, "format=factorial54", f"path={file}")
        assert code == 0, err
        assert ("2 tables take the place of others" in err) == (seed == 1)
    assert len(tables(tmp_path)) == 4


@pytest.fixture
def elo(tmp_path) -> Path:
    (tmp_path / "elo").mkdir()
    lines = [f"{n + 1},{2000 - n},thing {n},50,{n * 7 % 40}" for n in range(40)]
    text = "\n".join(["elo_rank,elo_score,name,elo_matches,lab/m", *lines])
    for name in ("best", "worst", "scores"):
        (tmp_path / "elo" / f"{name}.csv").write_text(text)
    return tmp_path / "elo"


def test_a_prompt_that_nobody_says_is_asked_for(command, elo, tmp_path):
    code, _, err = command(*IMPORT, "format=eloeverything", f"path={elo}/scores.csv")
    assert code == 2
    assert "Type prompt=KEY" in err
    assert "greatest, best, worst" in err
    assert not (tmp_path / "runs/registry/score-table").exists()
    code, _, err = command(
        *IMPORT, "format=eloeverything", f"path=[{elo}/best.csv,{elo}/worst.csv]"
    )
    assert code == 0, err
    assert {t.provenance.prompt for t in tables(tmp_path)} == {"best", "worst"}
    code, _, err = command(*IMPORT, "format=eloeverything", f"path={elo}", "prompt=greatest")
    assert code == 2
    assert "prompt=greatest is of one file" in err


def test_a_folder_of_files_named_by_their_wordings_comes_in_at_once(command, elo, tmp_path):
    """As the authors' data/elo: three files, each named by its question without the mark."""
    wordings = {
        "greatest": "What, in one word, is the greatest thing ever",
        "greatest_concept": "What one single thing, person, or concept is the greatest ever",
        "humans_prefer": "What is the single thing, person, or concept that humans most prefer",
    }
    for name, file in zip(wordings.values(), sorted(elo.iterdir()), strict=True):
        file.rename(elo / f"{name}.csv")
    code, _, err = command(*IMPORT, "format=eloeverything", f"path={elo}")
    assert code == 0, err
    assert {t.provenance.prompt: t.provenance.prompt_text for t in tables(tmp_path)} == {
        key: f"{wording}?" for key, wording in wordings.items()
    }


def test_models_answer_to_label_and_repository_and_stand_in_one_table(command, mixed, tmp_path):
    assert command(*IMPORT, "format=factorial54", f"path={mixed}", "set=moral")[0] == 0
    code, _, err = command(
        "compare",
        "models=[S-Gem-27B,LxzGordon/URM-LLaMa-3.1-8B,nicolinho--QRM-Llama3.1-8B]",
        "tracking=off",
        "replicates=100",
    )
    assert code == 0, err
    found = tmp_path / "runs/registry/comparison/comparison/v0/tables/models.parquet"
    table = pd.read_parquet(found).set_index("model")
    assert table["label"].tolist() == ["S-Gem-27B", "N-Lla-8B", "L-Lla-8B"]
    assert table["rank"].tolist() == [5, 11, 12]
    assert table["size"].tolist() == [27, 8, 8]
    assert table["base"].tolist() == ["Gemma 2", "Llama 3", "Llama 3"]
    assert table.index.tolist() == table["repository"].tolist()
