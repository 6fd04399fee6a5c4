"""Which score tables a comparison takes, from the command line: choices of mode and model, rescans,
what is refused."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from artifacts import score_table
from pessimal.tables import ScoreTable, read_score_table, write_score_table

pytestmark = pytest.mark.usefixtures("undrawn")

SCAN = ("scan", "model=auto", "tracking=off", "progress=false", "prompts=greatest")
COMPARE = ("compare", "tracking=off", "replicates=100", "permutations=200")


@pytest.fixture(scope="module")
def doubling(tiny_checkpoint, tmp_path_factory) -> Path:
    """The tiny model with a tokenizer that adds a beginning token where it is asked to, as Llama
    3's does."""
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoTokenizer

    folder = shutil.copytree(tiny_checkpoint, tmp_path_factory.mktemp("doubling") / "tiny-llama")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    begin = tokenizer.bos_token
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{begin} $A", special_tokens=[(begin, tokenizer.bos_token_id)]
    )
    tokenizer.save_pretrained(folder)
    return folder


def scan(command, folder, *more):
    code, _, err = command(*SCAN, f"model.path={folder}", *more)
    assert code == 0, err


def tables(root: Path) -> dict[str, pd.DataFrame]:
    found = (root / "runs/registry/comparison/comparison/v0/tables").iterdir()
    return {path.stem: pd.read_parquet(path) for path in found}


def scores(root: Path, name: str) -> ScoreTable:
    return read_score_table(root / f"runs/registry/score-table/tiny-llama--greatest{name}")


def test_three_modes_are_compared_and_all_else_rests_on_ids(command, doubling, tmp_path):
    for mode in ("text", "paper", "ids"):
        scan(command, doubling, f"mode={mode}")
    code, _, err = command(*COMPARE)
    assert code == 0, err
    rows = {
        mode: scores(tmp_path, name).rows for mode, name in (("ids", "/v0"), ("text", "--text/v0"))
    }
    found = tables(tmp_path)
    table = found["mode_agreement"]
    whole = table[table["tokens"] == "all"].set_index(["mode_a", "mode_b"])
    assert list(whole.index) == [("ids", "text"), ("ids", "paper"), ("text", "paper")]
    tau = rows["ids"]["reward"].corr(rows["text"]["reward"], method="kendall")
    assert whole.loc[("ids", "text"), "kendall"] == pytest.approx(tau)
    same = table[table["tokens"] == "round_trips"].set_index(["mode_a", "mode_b"])
    assert same.loc[("ids", "text"), "largest_difference"] < 1e-4
    assert same.loc[("ids", "paper"), "largest_difference"] > 1e-3, (
        "a second beginning token is another input"
    )
    assert found["extremes"]["reward"].iloc[0] == rows["ids"]["reward"].max()
    assert sorted(found["provenance"]["mode"]) == ["ids", "paper", "text"]


def test_what_differs_in_more_than_the_mode_is_refused(command, doubling, tiny_checkpoint):
    scan(command, doubling)
    scan(command, tiny_checkpoint, "mode=text")  # the same name and weights, another tokenizer
    code, _, err = command(*COMPARE)
    assert code == 2
    assert "differ in more than the mode (tokenizer_digest)" in err
    assert command(*COMPARE, "mode=ids")[0] == 0


def test_rescans_give_the_noise_floor_and_float32_stands_for_the_model(
    command, tiny_checkpoint, tmp_path
):
    scan(command, tiny_checkpoint, "model.dtype=bfloat16", "certain=0")
    scan(command, tiny_checkpoint)
    scan(command, tiny_checkpoint, "force=true", "batch_size=7")
    scan(command, shutil.copytree(tiny_checkpoint, tmp_path / "other"))
    code, _, err = command(*COMPARE)
    assert code == 0, err
    found = tables(tmp_path)
    floor = found["noise_floor"].set_index("rescan")
    assert sorted(floor.index) == ["again", "bfloat16"]
    assert set(floor["model"]) == {"tiny-llama"}
    full, again, low = (
        scores(tmp_path, name).rows.set_index("candidate_id")["reward"]
        for name in ("/v1", "/v0", "--bfloat16/v0")
    )
    assert floor.loc["bfloat16", "kendall"] == pytest.approx(full.corr(low, method="kendall"))
    assert floor.loc["bfloat16", "kendall"] < 0.999
    assert floor.loc["again", "largest_difference"] == pytest.approx((full - again).abs().max())
    ends = found["extremes"]
    best = ends[(ends["model"] == "tiny-llama") & (ends["end"] == "top")].iloc[0]
    assert best["reward"] == full.max(), "the newest float32 scan stands for the model"


def made(model: str = "m", *, seed: int = 0, **provenance) -> ScoreTable:
    rewards = np.random.default_rng(seed).normal(size=60)
    return score_table([f"w{i}" for i in range(60)], rewards, model=model, **provenance)


def stored(made_tables, folder) -> str:
    for number, table in enumerate(made_tables):
        write_score_table(table, folder / f"{number}.parquet")
    return f"tables={folder}/*.parquet"


def test_a_file_named_twice_is_one_and_no_rescan(command, tmp_path):
    named = stored([made(), made("other", seed=1)], tmp_path)
    files = sorted(tmp_path.glob("*.parquet"))
    code, _, err = command(*COMPARE, f"{named.replace('tables=', 'tables=[')},{files[0]}]")
    assert code == 0, err
    found = tables(tmp_path)
    assert len(found["provenance"]) == 2
    assert "noise_floor" not in found


def test_a_mode_asked_for_leaves_language_models_in(command, tmp_path):
    named = stored(
        [
            made(mode="text"),
            made("other", seed=1, mode="text"),
            made("rest", seed=2),
            made("lm", score="log_probability"),
        ],
        tmp_path,
    )
    code, _, err = command(*COMPARE, named, "mode=text")
    assert code == 0, err
    assert tables(tmp_path)["provenance"]["model"].tolist() == ["lm", "m", "other"]


def test_what_is_asked_for_and_left_out_by_other_choices_is_reported(command, tmp_path):
    named = stored([made(), made("other", seed=1, mode="text")], tmp_path)
    code, _, err = command("compare", named, "models=[m,other]", "mode=ids", "tracking=off")
    assert code == 2
    assert "model 'other' has score tables" in err
    assert "mode: ids" in err


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        ("[[GW]]", r"[GW] is no pair"),
        ("[[GW,GW]]", "[GW,GW] is no pair"),
        ("[[GW,GE,GA]]", "[GW,GE,GA] is no pair"),
        (
            "[[GW,GX]]",
            "pairs names the prompt 'GX'; the score tables are of GE, GW",
        ),
        ("GW", "pairs"),
    ],
)
def test_pairs_that_are_none_are_refused(command, tmp_path, pairs, why):
    named = stored([made(prompt="GE"), made(prompt="GW", seed=1)], tmp_path)
    code, _, err = command(*COMPARE, named, f"pairs={pairs}")
    assert code == 2
    assert why in err


def test_chosen_pairs_are_compared_whatever_their_names(command, tmp_path):
    keys = {"GE": 0, "GW": 1, "GA": 2}
    named = stored(
        [
            made(m, prompt=key, seed=seed + 9 * n)
            for n, m in enumerate("mn")
            for key, seed in keys.items()
        ],
        tmp_path,
    )
    code, _, err = command(*COMPARE, named, "pairs=[[GW,GE]]")
    assert code == 0, err
    found = tables(tmp_path)
    assert found["framing"][["first", "second", "model"]].to_numpy().tolist() == [
        ["GW", "GE", "m"],
        ["GW", "GE", "n"],
    ]
    within = found["prompt_agreement"]
    assert within.groupby("model").size().to_dict() == {"m": 3, "n": 3}


@pytest.mark.parametrize("option", ["+lexicons.mine", "frequencies"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfew\x00"])
def test_a_file_that_is_no_table_of_text_is_refused_at_once(command, tmp_path, option, content):
    file = tmp_path / "mine.csv"
    file.write_bytes(content)
    code, _, err = command("compare", f"{option}={file}", "tracking=off")
    assert code == 2
    assert "mine.csv cannot be read as a CSV file" in err


@pytest.mark.parametrize(
    ("factors", "why"),
    [
        ("{token:[a,b]}", "token means something else here"),
        ("{tone:[]}", "tone has no levels"),
        ("{tone:[a,b],size:[b,c]}", "the level 'b' is named twice"),
        ("{tone:[very_a]}", "'very_a' holds `_`"),
    ],
)
def test_factors_that_cannot_be_read_from_a_key_are_refused(command, factors, why):
    code, _, err = command("compare", "~wording", f"+wording.factors={factors}", "tracking=off")
    assert code == 2
    assert why in err
