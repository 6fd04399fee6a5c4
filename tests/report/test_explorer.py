"""The explorer's data say what the score tables say: exact ranks, rewards to the decimals that are
told."""

import base64
import json
import re
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from artifacts import score_table, write_artifact
from pessimal.config.schema import ReportConfig
from pessimal.errors import InputError
from pessimal.report.explorer import explorer, packed
from pessimal.report.page import page
from pessimal.report.scripts import library, own_script, policy
from pessimal.tables import ScoreTable, write_score_table
from pessimal.tables.result import Result
from pessimal.tracking.registry import Registry
from pessimal.verbs import report as report_verb


def table(texts, rewards, *, model="lab/reward", prompt="best", **changed) -> ScoreTable:
    n = len(texts)
    rows = {
        "kind": ["special", *["normal"] * (n - 1)],
        "certified": [i % 2 == 0 for i in range(n)],
        "survives": pd.array([None, False, *[True] * (n - 2)], dtype="boolean"),
    }
    return score_table(texts, rewards, model=model, prompt=prompt, rows=rows, **changed)


def unpacked(text: str, decimals: int, bits_each: int, n: int) -> dict:
    """What `packed` says it writes, read by its description alone, a bit at a time."""
    raw = zlib.decompress(base64.b64decode(text))
    bits = "".join(f"{byte:08b}"[::-1] for byte in raw[: -(-n * bits_each // 8)])
    order = [int(bits[i * bits_each : (i + 1) * bits_each][::-1], 2) for i in range(n)]
    at, steps = -(-n * bits_each // 8), []
    while len(steps) < n:
        number, shift = 0, 0
        while True:
            number |= (raw[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if not raw[at - 1] & 128:
                break
        steps.append(number)
    first = -(steps[0] + 1) // 2 if steps[0] % 2 else steps[0] // 2
    rounded = first - np.r_[0, np.cumsum(steps[1:])]
    size = -(-n // 8)
    sets = [raw[at + i * size : at + (i + 1) * size] for i in range(4)]
    assert at + 4 * size == len(raw)
    flags = [[bool(own[i >> 3] >> (i & 7) & 1) for i in range(n)] for own in sets]
    return {"order": order, "rewards": rounded / 10.0**decimals, "flags": flags}


@pytest.mark.parametrize("n", [1, 7, 300])
@pytest.mark.parametrize("scale", [1e-3, -40.0])
def test_packed_rewards_have_the_order_and_the_values_of_the_table(n, scale):
    drawn = np.random.default_rng(n)
    rewards = drawn.normal(loc=3, size=n) * scale
    rewards[n // 2 :] = np.round(rewards[n // 2 :], 1)  # many ties
    flags = drawn.random((3, n)) < 0.5
    data = packed(rewards, certified=flags[0], survives=flags[1], survival_known=flags[2])
    read = unpacked(*data, n)
    assert sorted(read["order"]) == list(range(n))
    falling = rewards[read["order"]]
    assert (np.diff(falling) <= 0).all()
    assert read["flags"][0] == [False, *(falling[1:] == falling[:-1])]
    assert np.abs(read["rewards"] - falling).max() <= 0.5000001 * 10.0 ** -data[1]
    assert [np.array(own).tolist() for own in read["flags"][1:]] == flags.tolist()


def test_rewards_closer_than_the_rounding_are_told_apart_by_rank_and_are_no_tie():
    rewards = np.array([1.0, 1.0 + 1e-12, -5.0, 1.0])
    flags = dict.fromkeys(("certified", "survives", "survival_known"), rewards > 0)
    read = unpacked(*packed(rewards, **flags), 4)
    assert read["order"] == [1, 0, 3, 2]
    assert read["flags"][0] == [False, False, True, False]
    assert read["rewards"][0] == read["rewards"][1]


@pytest.fixture
def artifact(tmp_path):
    pairs = {"model_a": ["a"], "model_b": ["b"], "prompt": ["best"], "n": [3], "kendall": [0.5]}
    result = Result("agreement", pd.DataFrame(pairs), headline="a and b agree.", method="agreement")
    return write_artifact(tmp_path / "comparison", [result], labels={"a": "a", "b": "b"})


def block(html: str, id: str) -> dict:
    return json.loads(
        re.search(rf'<script type="application/json" id="{id}">(.*?)</script>', html)[1]
    )


def test_only_our_scripts_may_run_and_nothing_may_be_fetched(artifact):
    html = page([artifact], title="t", explorer=explorer([table(["a", "b"], [1, 2])]))
    allowed = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1]
    assert allowed == policy([own_script(), *library()])
    assert allowed.startswith("default-src 'none'; img-src data:;")
    assert re.fullmatch(r"(script-src)( 'sha256-[A-Za-z0-9+/]{43}=')+", allowed.split("; ")[-1])
    assert "unsafe-eval" not in allowed
    assert "unsafe" not in allowed.split("; ")[-1]


@pytest.fixture
def registry(tmp_path, artifact):
    """Score tables and the comparison made from them, as `compare` publishes them."""
    registry = Registry(tmp_path / "registry")
    inputs = []
    for model, prompt in [("x", "best"), ("y", "best"), ("x", "rare")]:
        made = table(["a", "b", "c"], [1, 2, 3], model=model, prompt=prompt)
        _, manifest = registry.publish(
            "score-table",
            made.name,
            lambda place, made=made: write_score_table(made, place / "scores.parquet"),
        )
        inputs.append(manifest.reference)
    inputs.append("score-table/gone:v0")

    def fill(place):
        for file in artifact.folder.rglob("*"):
            if file.is_file():
                (place / file.relative_to(artifact.folder)).parent.mkdir(
                    parents=True, exist_ok=True
                )
                (place / file.relative_to(artifact.folder)).write_bytes(file.read_bytes())

    registry.publish("comparison", "c", fill, inputs=inputs)
    return registry


def report(registry, capsys, **changed) -> str:
    config = ReportConfig(task="report", progress=False, **changed)
    config.paths.registry = str(registry.root)
    config.paths.root = config.paths.wandb = str(registry.root.parent / "runs")
    config.tracking.mode = type(config.tracking.mode).off
    report_verb.run(config)
    return Path(capsys.readouterr().out.strip()).read_text(encoding="utf-8")


def test_report_finds_the_score_tables_and_says_what_it_left_out(registry, capsys):
    html = report(registry, capsys)
    (vocabulary,) = block(html, "explorer-index")["vocabularies"]
    assert [(c["model"], c["prompt"]) for c in vocabulary["columns"]] == [
        ("x", "best"),
        ("y", "best"),
    ]
    assert "Not here: 1 of the 4 score tables" in html
    assert "score-table/gone:v0" in html
    assert "Prompts not in it (1): rare." in html
    chosen = block(report(registry, capsys, explorer_prompts=["rare"]), "explorer-index")
    assert [c["prompt"] for c in chosen["vocabularies"][0]["columns"]] == ["rare"]
    assert 'id="explorer' not in report(registry, capsys, explorer=False)


def test_a_changed_score_table_is_refused(registry, capsys):
    file = next(registry.root.glob("score-table/y--best/v0/scores.parquet"))
    made = table(["a", "b", "c"], [3, 2, 1], model="y")
    write_score_table(made, file)
    with pytest.raises(InputError, match=r"scores\.parquet is missing or differs"):
        report(registry, capsys)


def test_a_page_can_be_a_static_space(registry, capsys, tmp_path):
    notes = ["**Whose.** [them](https://a.b), <b>MIT</b>."]
    space = tmp_path / "deep" / "space"
    html = report(registry, capsys, space=str(space), notes=notes, title='A "page": x')
    assert sorted(file.name for file in space.iterdir()) == ["README.md", "index.html"]
    assert (space / "index.html").read_text(encoding="utf-8") == html
    assert '<strong>Whose.</strong> <a href="https://a.b">them</a>, &lt;b&gt;MIT' in html
    _, front, text = (space / "README.md").read_text(encoding="utf-8").split("---\n")
    expected = {"title": 'A "page": x', "sdk": "static", "app_file": "index.html", "pinned": False}
    assert yaml.safe_load(front) == expected
    assert notes[0] in text
