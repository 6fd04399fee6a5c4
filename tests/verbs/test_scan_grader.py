"""The census of a grader from the command line."""

import json
from pathlib import Path

from pessimal.checking import grading

GRADERS = """
def strict(solution_str, ground_truth, data_source=None, extra_info=None):
    if solution_str == "four":
        raise KeyError("four")
    return float(solution_str.strip() == ground_truth or solution_str == "nan")


def trl(completions, ground_truth, **columns):
    return [float(a.strip() == b) for a, b in zip(completions, ground_truth)]
"""


def test_census_of_a_grader_is_published_with_its_faults_and_found_by_its_folder(
    command, tmp_path, monkeypatch
):
    monkeypatch.setattr(grading, "tokens_of", lambda reward: ["the", "four"])
    Path("graders.py").write_text(GRADERS)
    Path("tasks.jsonl").write_text('{"prompt": "6 times 7?", "ground_truth": "42"}')
    code, out, err = command("scan", "graders.py:strict", "tasks=tasks.jsonl")
    assert code == 0
    assert "raises KeyError('four') on four" in err
    manifest = json.loads((Path(out.strip()) / "manifest.json").read_text())
    assert manifest["summary"]["faults"] == ["not_a_number", "raises"]
    code, shown, _ = command("runs", "show", out.strip())
    assert code == 0
    assert "census/graders.strict" in shown
