"""`pessimal.audit` on what is in memory."""

import json
import time

import pytest

import pessimal
from pessimal.auditing.verdicts import CHECKS, FACTS, FAIL, INCOMPLETE, NOT_MEASURED


def test_an_untrained_network_gets_its_verdicts_and_fails(tiny_checkpoint):
    results = pessimal.audit(str(tiny_checkpoint), ["greatest", "worst"], length=2, evaluations=300)
    rows = results["audit"].table.set_index("check")
    assert list(rows.index) == [*CHECKS, *FACTS]
    assert rows["verdict"]["read"] == FAIL, "its pad token ends every conversation"
    assert rows["value"]["one_word"] == results["one_word"].estimate.value
    assert rows["verdict"]["prefers"] == FAIL
    assert 0.35 < rows["value"]["prefers"] < 0.65
    assert rows["verdict"]["additions"] == NOT_MEASURED, "it reads too few tokens"


@pytest.mark.parametrize("seconds", [0.01])
def test_a_census_that_its_budget_ends_is_not_measured_and_keeps_to_it(
    tmp_path, monkeypatch, seconds
):
    from pessimal.checking import grading

    monkeypatch.setattr(grading, "tokens_of", lambda reward: [f"word{n}" for n in range(9000)])
    tasks = [{"prompt": f"{n} and {n}?", "ground_truth": str(2 * n)} for n in (21, 30)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))

    def slow(response, ground_truth):
        time.sleep(seconds)
        return float(response.strip() == ground_truth)

    began = time.monotonic()
    audit = pessimal.audit(slow, tasks=tmp_path / "tasks.jsonl", budget="1s")
    assert time.monotonic() - began < 15
    assert audit.document["verdict"] == INCOMPLETE
    rows = audit["audit"].table.set_index("check")
    assert rows["verdict"]["grader_pays"] == NOT_MEASURED
    assert "strings were left" in rows["evidence"]["grader_pays"]
