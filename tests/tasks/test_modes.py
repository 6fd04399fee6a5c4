"""One model scanned in several modes: what is compared then, on what the rest stands, and what is refused."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from pessimal.tables import ScoreTable, read_score_table, write_score_table


@pytest.fixture(scope="module")
def doubling(tiny_checkpoint, tmp_path_factory) -> Path:
    """The tiny model with a tokenizer that adds a beginning token where it is asked to, as Llama 3's does."""
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
    found = command(
        "scan",
        "model=auto",
        f"model.path={folder}",
        "progress=false",
        "tracking=off",
        "prompts=greatest",
        *more,
    )
    assert found[0] == 0, found[2]


def compare(command, *more):
    return command("compare", "tracking=off", "replicates=100", "permutations=200", *more)


def comparison(root: Path, version: int = 0) -> Path:
    return root / f"runs/registry/comparison/comparison/v{version}"


def scores(root: Path, mode: str) -> ScoreTable:
    name = "tiny-llama--greatest" + ("" if mode == "ids" else f"--{mode}")
    return read_score_table(root / f"runs/registry/score-table/{name}/v0")


def test_three_modes_are_compared_and_all_else_rests_on_ids(command, doubling, tmp_path):
    for mode in ("text", "paper", "ids"):
        scan(command, doubling, f"mode={mode}")
    code, _, err = compare(command)
    assert code == 0, err
    assert "all else rests on mode ids" in err
    rows = {mode: scores(tmp_path, mode).rows for mode in ("ids", "text", "paper")}

    table = pd.read_parquet(comparison(tmp_path) / "tables/sensitivity.parquet")
    assert set(table["model"]) == {"tiny-llama"}
    assert set(table["prompt"]) == {"greatest"}
    whole = table[table["tokens"] == "all"].set_index(["mode_a", "mode_b"])
    assert list(whole.index) == [("ids", "text"), ("ids", "paper"), ("text", "paper")]
    for (a, b), row in whole.iterrows():
        assert row["n"] == len(rows["ids"])
        tau = rows[a]["reward"].corr(rows[b]["reward"], method="kendall")
        assert row["kendall"] == pytest.approx(tau)
        assert row["kendall"] < 0.999
        assert row["surviving"] == rows["ids"]["survives"].mean()
    survivors = table[table["tokens"] == "surviving"].set_index(["mode_a", "mode_b"])
    assert (
        survivors.loc[("ids", "text"), "largest_difference"] <= survivors.loc[("ids", "text"), "noise"] < 1e-4
    )
    assert survivors.loc[("ids", "paper"), "largest_difference"] > 1e-3, (
        "a second beginning token is another input"
    )

    moved = pd.read_parquet(comparison(tmp_path) / "tables/moved.parquet")
    first = moved[(moved["mode_a"] == "ids") & (moved["mode_b"] == "text")].iloc[0]
    by_id = {mode: table.set_index("candidate_id")["reward"] for mode, table in rows.items()}
    assert first["reward_a"] == by_id["ids"][first["candidate_id"]]
    assert first["rank_b"] == by_id["text"].rank(ascending=False)[first["candidate_id"]]

    extremes = pd.read_parquet(comparison(tmp_path) / "tables/extremes.parquet")
    best = rows["ids"].loc[rows["ids"]["reward"].idxmax(), "text"]
    assert extremes[extremes["end"] == "top"]["text"].iloc[0] == best
    assert (comparison(tmp_path) / "figures/greatest-modes-tiny-llama.svg").is_file()


def test_the_page_and_the_summary_say_it(command, doubling, tmp_path):
    for mode in ("ids", "text"):
        scan(command, doubling, f"mode={mode}")
    assert compare(command)[0] == 0
    document = json.loads((comparison(tmp_path) / "contents.json").read_text())
    prompt, *_, modes = document["sections"]
    assert "Rewards of mode ids" in prompt["sentence"]
    assert modes["title"] == "greatest · vocabulary · ids or text"
    n = len(scores(tmp_path, "ids").rows)
    told = modes["entries"][0]["sentence"]
    assert f"of {n:,} tokens survive" in told
    assert "within the numerical error of the two scans" in told
    survives = scores(tmp_path, "ids").rows["survives"].mean()
    assert document["summary"]["greatest/modes/survives/tiny-llama"] == survives
    assert document["summary"]["greatest/modes/ids-text/kendall/tiny-llama"] < 1
    code, out, err = command("report", "tracking=off")
    assert code == 0, err
    assert "ids or text" in Path(out.strip()).read_text()


def test_one_mode_asked_for_is_the_only_one_and_nothing_is_said_of_others(command, doubling, tmp_path):
    for mode in ("ids", "text"):
        scan(command, doubling, f"mode={mode}")
    code, _, err = compare(command, "mode=text")
    assert code == 0, err
    assert "several modes" not in err
    assert not (comparison(tmp_path) / "tables/sensitivity.parquet").exists()
    extremes = pd.read_parquet(comparison(tmp_path) / "tables/extremes.parquet")
    assert extremes["reward"].iloc[0] == scores(tmp_path, "text").rows["reward"].max()


def test_a_model_without_ids_stands_by_the_mode_it_has(command, doubling, tmp_path):
    for mode in ("paper", "text"):
        scan(command, doubling, f"mode={mode}")
    code, _, err = compare(command)
    assert code == 0, err
    assert "all else rests on mode text" in err
    extremes = pd.read_parquet(comparison(tmp_path) / "tables/extremes.parquet")
    assert extremes["reward"].iloc[0] == scores(tmp_path, "text").rows["reward"].max()


def test_items_are_compared_between_text_and_paper(command, doubling, tmp_path):
    (tmp_path / "items.txt").write_text("love and peace\nwar\nkind\nevil\n")
    for mode in ("text", "paper"):
        scan(
            command,
            doubling,
            f"mode={mode}",
            "candidates=items",
            "candidates.path=items.txt",
            "candidates.name=four",
        )
    code, _, err = compare(command)
    assert code == 0, err
    table = pd.read_parquet(comparison(tmp_path) / "tables/sensitivity.parquet")
    assert table[["candidates", "tokens", "n"]].to_numpy().tolist() == [["four", "all", 4]]
    assert table["largest_difference"][0] > 1e-3


def test_survivors_that_disagree_are_told(command, doubling, tmp_path):
    for mode in ("ids", "text"):
        scan(command, doubling, f"mode={mode}")
    text = scores(tmp_path, "text")
    shifted = text.rows.assign(reward=text.rows["reward"] + 0.01)
    write_score_table(
        ScoreTable(text.identity, shifted, text.description, text.measured), tmp_path / "shifted.parquet"
    )
    ids = tmp_path / "runs/registry/score-table/tiny-llama--greatest/v0/scores.parquet"
    code, _, err = compare(command, f"tables=[{ids},{tmp_path / 'shifted.parquet'}]")
    assert code == 0, err
    assert "MORE than the numerical error" in err


def test_prompts_scanned_in_different_modes_are_not_drawn_against_one_another(command, doubling, tmp_path):
    scan(command, doubling, "prompts=[best,worst]", "mode=text")
    scan(command, doubling, "prompts=[best]", "mode=ids")
    code, _, err = compare(command)
    assert code == 0, err
    assert "Not compared: best was scanned in mode ids, worst in mode text" in err
    assert not (comparison(tmp_path) / "tables/framing.parquet").exists()


def test_what_differs_in_more_than_the_mode_is_refused(command, doubling, tiny_checkpoint, tmp_path):
    scan(command, doubling)
    # The same name and weights, another tokenizer.
    scan(command, tiny_checkpoint, "mode=text")
    code, _, err = compare(command)
    assert code == 2
    assert "differ in more than the mode (tokenizer_digest)" in err
    assert "mode=ids" in err
    assert compare(command, "mode=ids")[0] == 0
