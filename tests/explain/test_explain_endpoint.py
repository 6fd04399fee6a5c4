"""`pessimal explain perturber=llm`, whole, against a scripted endpoint: nothing half-done is taken for done."""

import json
from pathlib import Path

import pandas as pd
import pytest
from scripted_server import Says, asked_attributes, kind, serving

LINES = [
    {"key": "a", "prompt": "What is good?", "responses": ["I think love is good.", "War is evil!"]},
    {
        "key": "b",
        "prompt": "Who is wise?",
        "responses": ["Nobody is.", "The kind are wise. They love truth."],
    },
]


@pytest.fixture
def explain(command, tiny_checkpoint, tmp_path):
    """Run the command against an endpoint."""
    file = tmp_path / "asked.jsonl"
    file.write_text("\n".join(map(json.dumps, LINES)))

    def run(url, *overrides):
        return command(
            "explain", "model=auto", f"model.path={tiny_checkpoint}", "comparisons=jsonl", f"comparisons.path={file}",
            "contrast=[verbosity,clarity]", "perturber=llm", "perturber.model=m", f"perturber.base_url={url}",
            "perturber.retries=0", "perturber.concurrency=1", "tracking=off", "replicates=100", "permutations=100", *overrides,
        )  # fmt: skip

    return run


def good(request, number):
    if kind(request) == "identify":
        return Says(json.dumps({name: [] for name in asked_attributes(request)}))
    if kind(request) == "rewrite":
        return Says(json.dumps({"applicable": True, "response": f"peace {number}"}))
    return Says(json.dumps({"more": "A"}))


def test_a_run_without_all_answers_is_not_published_and_the_next_asks_only_for_the_rest(explain):
    def third_fails(request, number):
        return Says("down", status=500) if number % 3 == 2 else good(request, number)

    with serving(third_fails) as server:
        code, _, err = explain(server.url, "perturber.stop_after=100")
        first = len(server.requests)
        assert code == 1
        assert "got no answer" in err
        assert "the same command" in err
        assert not Path("runs/registry/explanation").exists()
        server.script = good
        code, out, err = explain(server.url, "perturber.stop_after=100")
        assert code == 0, err
        assert 0 < len(server.requests) - first < first
        folder = Path(out.strip().splitlines()[-1])
        rows = pd.read_parquet(folder / "tables" / "outcomes.parquet")
        assert set(rows.loc[rows["perturber"] == "llm", "status"]) == {"changed"}


def test_one_may_go_on_without_them(explain):
    def rewrites_fail(request, number):
        return Says("down", status=500) if number == 5 else good(request, number)

    with serving(rewrites_fail) as server:
        code, out, err = explain(server.url, "perturber.allow_unanswered=true", "perturber.stop_after=100")
    assert code == 0, err
    rows = pd.read_parquet(Path(out.strip().splitlines()[-1]) / "tables" / "outcomes.parquet")
    assert (rows["status"] == "failed").sum() == 1


def test_a_judge_is_asked_and_counted_in_the_dry_run(explain):
    with serving(good) as server:
        options = ("judge=llm", "judge_model=j")
        code, out, err = explain(server.url, *options, "dry_run=true")
        assert code == 0, err
        assert server.requests == []
        assert "up to 8 calls more" in out
        code, out, err = explain(server.url, *options)
        assert code == 0, err
        judged = [request for request in server.requests if request["model"] == "j"]
        assert judged
        assert all(request["temperature"] == 0 for request in judged)
