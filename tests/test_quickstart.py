"""What `make quickstart` left in `runs/`: the instruments find what the demo family was given. Run by `make check`."""

import json
from pathlib import Path

import pandas as pd
import pytest

from pessimal.tables import read_score_table
from pessimal.tracking.registry import Registry

pytestmark = pytest.mark.quickstart

ROOT = Path(__file__).resolve().parents[1] / "runs"
PROMPTS = ("greatest", "best", "worst")


@pytest.fixture(scope="module")
def registry():
    found = Registry(ROOT / "registry")
    if not found.latest("report"):
        pytest.fail(f"there is no report in {ROOT}: run `make quickstart` first")
    return found


@pytest.fixture(scope="module")
def tables(registry):
    folder = next(f for f, m in reversed(registry.manifests("comparison")) if m.name == "quickstart")
    return folder / "tables"


def test_six_siblings_or_more_are_trained_well(registry):
    reports = {m.name: m.summary for _, m in registry.latest("reward-model")}
    assert len(reports) >= 6
    for name, report in reports.items():
        assert report["word_accuracy"] >= (0.88 if name.startswith("plain") else 0.80), name
        assert report["frame_sign"] >= (0.90 if "wordpiece" in name else 0.80), name


def test_every_model_is_scanned_whole_and_trusted(registry):
    scanned = [read_score_table(folder) for folder, _ in registry.latest("score-table")]
    by_model = {}
    for table in scanned:
        by_model.setdefault(table.identity.model, {})[table.identity.prompt] = table
    assert len(by_model) >= 6
    for model, by_prompt in by_model.items():
        assert set(by_prompt) >= set(PROMPTS), model
        for prompt in PROMPTS:
            table = by_prompt[prompt]
            assert len(table.rows) == (30_522 if table.description.base == "wordpiece" else 12_000)
            assert table.identity.attention == "shared-prefix"
            assert table.measured["trust"]["largest_difference"] <= table.measured["trust"]["tolerance"]
            assert table.rows["certified"].mean() > 0.6


@pytest.mark.parametrize("prompt", PROMPTS)
def test_agreement_follows_the_lab_most(tables, prompt):
    rsa = pd.read_parquet(tables / "rsa.parquet")
    rsa = rsa[rsa["prompt"] == prompt].set_index("factor")
    assert rsa["beta"].abs().idxmax() == "developer"
    assert rsa.loc["developer", "p_value"] < 0.05


def test_page_is_one_file_with_every_figure(registry):
    folder, _ = registry.latest("report")[-1]
    html = (folder / "index.html").read_text()
    assert html.count("<figcaption>") >= 3 * 5
    assert html.count("data:image/png;base64,") == html.count("<figcaption>")


def test_index_lists_everything(registry):
    lines = (ROOT / "registry" / "index.jsonl").read_text().splitlines()
    assert {json.loads(line)["type"] for line in lines} >= {
        "reward-model",
        "score-table",
        "comparison",
        "report",
    }
    for folder, _ in registry.latest("score-table"):
        registry.verify(folder)
