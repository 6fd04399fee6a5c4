"""`pessimal explain perturber=llm`, whole, against a scripted endpoint: nothing half-done is taken
for done."""

import json
from pathlib import Path

import pandas as pd
import pytest

from scripted_server import Says, case, kind, serving

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
            "explain",
            "model=auto",
            f"model.path={tiny_checkpoint}",
            "comparisons=jsonl",
            f"comparisons.path={file}",
            "contrast=[verbosity,clarity]",
            "perturber=llm",
            "perturber.model=m",
            f"perturber.base_url={url}",
            "perturber.retries=0",
            "perturber.concurrency=1",
            "tracking=off",
            "replicates=100",
            "permutations=100",
            "placebos=0",
            "shrink=false",
            *overrides,
        )

    return run


def good(request, number):
    if kind(request) == "identify":
        return Says(json.dumps({name: [] for name in case(request)["attributes"]}))
    if kind(request) == "rewrite":
        words = case(request)["response"].split()
        return Says(
            json.dumps({"applicable": True, "response": " ".join([f"peace-{number}", *words[1:]])})
        )
    return Says(json.dumps({"more": "A"}))


def outcomes(out: str) -> pd.DataFrame:
    return pd.read_parquet(Path(out.strip().splitlines()[-1]) / "tables" / "outcomes.parquet")


def test_a_run_without_all_answers_is_not_published_and_the_next_asks_only_for_the_rest(explain):
    def third_fails(request, number):
        return Says("down", status=500) if number % 3 == 2 else good(request, number)

    with serving(third_fails) as server:
        code, _, err = explain(server.url)
        first = len(server.requests)
        assert code == 4
        assert "got no answer" in err
        assert "the same command" in err
        assert not Path("runs/registry/explanation").exists()
        server.script = good
        code, out, err = explain(server.url)
        assert code == 0, err
        assert 0 < len(server.requests) - first < first
        assert set(outcomes(out)["status"]) == {"changed"}


def test_the_null_and_the_overall_arm_are_written_by_the_same_model(explain):
    with serving(good) as server:
        code, out, err = explain(server.url, "placebos=2", "overall=1")
    assert code == 0, err
    rows = outcomes(out)
    assert set(rows["perturber"]) == {"llm"}
    counts = rows["attribute"].value_counts()
    assert counts["placebo"] == 2 * 4
    assert counts["overall"] > 0
    said = [request["messages"][0]["content"] for request in server.of_kind("rewrite")]
    assert sum("Paraphrase" in text for text in said) == 8
