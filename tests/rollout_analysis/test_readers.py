"""Rollouts are read as the trainers wrote them, without options."""

import json

import pandas as pd
import pytest

from pessimal.errors import InputError
from pessimal.rollout_analysis.readers import read_rollouts, rollouts_of

TRL = {
    "step": [1] * 4,
    "prompt": ["p", "p", "q", "q"],
    "completion": ["a", "b", "c", "d"],
    "format_reward": [0.5, 0.0, None, 0.5],
    "correctness": [1.0, 0.0, 1.0, 0.0],
    "advantage": [0.7, -0.7, 0.7, -0.7],
}


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "csv", "tsv"])
def test_a_table_is_read_alike_in_every_format(tmp_path, ending):
    table, file = pd.DataFrame(TRL), tmp_path / f"completions_00001.{ending}"
    match ending:
        case "parquet":
            table.to_parquet(file)
        case "jsonl":
            table.to_json(file, orient="records", lines=True)
        case _:
            table.to_csv(file, index=False, sep="\t" if ending == "tsv" else ",")
    rollouts = read_rollouts(file)
    assert rollouts.source == "TRL"
    assert rollouts.rewards == ("format_reward", "correctness")
    frame = rollouts.frame
    assert frame["reward"].tolist() == [1.5, 0.0, 1.0, 0.5]
    assert frame["group"].tolist() == [0, 0, 1, 1]
    assert frame["step"].tolist() == [1] * 4
    assert frame["advantage"].tolist() == TRL["advantage"]
    assert frame["response"].tolist() == ["a", "b", "c", "d"]
    assert any("format_reward, correctness" in note for note in rollouts.notes)


def test_a_broken_line_is_named(tmp_path):
    file = tmp_path / "1.jsonl"
    file.write_text(json.dumps({"prompt": "p", "response": "r", "reward": 1}) + "\n{oh\n")
    with pytest.raises(InputError, match=r"1\.jsonl, line 2"):
        read_rollouts(file)


def test_a_reward_that_is_no_number_is_named():
    with pytest.raises(InputError, match=r"row 2: reward is 'high'"):
        rollouts_of(pd.DataFrame({"prompt": "p", "response": "r", "reward": [1, "high"]}))
