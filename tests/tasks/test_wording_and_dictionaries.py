"""From score tables of a factorial to sections: what is used, what is left out, and that the page tells it."""

import zlib
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from pessimal.config.schema import CompareConfig, WordingSpec
from pessimal.report.contents import Contents
from pessimal.tables import ScoreTable
from pessimal.tables.score_table import ModelDescription, ScoreIdentity
from pessimal.tasks.findings.dictionaries import dictionaries
from pessimal.tasks.findings.factorial import levels_of, sign_of
from pessimal.tasks.findings.group import groups
from pessimal.tasks.findings.sources import Sources
from pessimal.tasks.findings.wording import wording

CONF = Path(__file__).parents[2] / "conf"
FACTORS = {"adjective": ["best", "good", "worst", "bad"], "superlative": ["ever", "time"]}
PROMPTS = ["_".join(levels) for levels in product(*FACTORS.values())]
WORDS = [f"word{i}" for i in range(40)]
DICTIONARY = pd.DataFrame({"category": ["care"] * 20 + ["harm"] * 20, "word": WORDS})


@pytest.fixture
def config() -> CompareConfig:
    frames = {"best": 1, "good": 1, "greatest": 1, "worst": -1, "bad": -1}
    return CompareConfig(frames=frames, wording=WordingSpec(FACTORS), permutations=200)


def table(model: str, prompt: str, *, base: str | None = "oak", mode: str = "ids", text=None) -> ScoreTable:
    rng = np.random.default_rng(zlib.crc32(f"{model[-1]} {prompt}".encode()))
    sign = -1 if prompt.startswith(("worst", "bad")) else 1
    texts = ["", " ", *WORDS]
    rows = pd.DataFrame(
        {
            "candidate_id": np.arange(len(texts), dtype=np.int32),
            "token": texts,
            "text": texts,
            "kind": "normal",
            "survives": pd.array([True] * len(texts), dtype="boolean"),
            "reward": sign * np.linspace(-1, 1, len(texts)) + rng.normal(0, 0.3, len(texts)),
            "certified": False,
        }
    )
    identity = ScoreIdentity(
        model=model, prompt=prompt, prompt_text=text or prompt, candidates="vocabulary", candidates_digest="d", mode=mode,
        source="scan",
    )  # fmt: skip
    return ScoreTable(identity, rows, ModelDescription(base=base))


def found(function, tables, config, **sources) -> Contents:
    contents = Contents()
    members = {group.prompt: group for group in groups(tables)}
    given = (Sources({}, None, sources["dictionaries"]),) if sources else ()
    function(members, config, contents, *given)
    return contents


def everything(contents: Contents) -> str:
    said = [
        f"{s.title} {s.sentence} " + " ".join(f"{e.title} {e.sentence}" for e in s.entries)
        for s in contents.sections
    ]
    return " ".join(said)


def check_references(contents: Contents) -> None:
    """Every figure and table that an entry names is there, and its rows are."""
    whole = contents.whole_tables()
    entries = [entry for section in contents.sections for entry in section.entries]
    assert entries
    for entry in entries:
        assert entry.figure is None or entry.figure in contents.figures
        if entry.table:
            rows = whole[entry.table]
            for column, value in entry.where.items():
                rows = rows[rows[column] == value]
            assert len(rows), entry


def test_whole_factorial_gives_components_factors_and_paraphrases(config):
    contents = found(wording, [table(f"m{i}", p) for i in range(3) for p in PROMPTS], config)
    check_references(contents)
    whole = contents.whole_tables()
    assert {
        "variance_components",
        "wording_factors",
        "wording_correlations",
        "paraphrase",
        "paraphrase_tokens",
    } == set(whole)
    assert set(whole["paraphrase"]["model"]) == {"m0", "m1", "m2"}
    assert "Left out: nothing" in everything(contents)
    shares = [v for k, v in contents.summary.items() if k.startswith("wording/both frames/")]
    assert sum(shares) == pytest.approx(1)
    rows = (
        whole["variance_components"]
        .query("part == 'both frames' and model == 'all models'")
        .set_index("component")
    )
    assert rows.loc["token × frame", "order_share"] > 0.4, (
        "the words are liked in one frame and disliked in the other"
    )


def test_incomplete_factorial_uses_what_is_balanced_and_says_what_is_not(config):
    tables = [table(f"m{i}", p) for i in range(2) for p in PROMPTS[:-1]]
    tables += [table("late", p) for p in PROMPTS[:3]] + [table("mixed", p, mode="ids") for p in PROMPTS[:4]]
    contents = found(wording, tables, config)
    check_references(contents)
    said = everything(contents)
    assert "7 of 8 wordings" in said
    assert "models with fewer wordings (late, mixed)" in said
    assert set(contents.whole_tables()["paraphrase"]["model"]) == {"m0", "m1"}
    factors = contents.whole_tables()["wording_factors"]
    assert set(factors["part"]) == {"positive"}, "the negative wordings lack a combination"


def test_one_model_has_its_own_components_only(config):
    contents = found(wording, [table("m0", p) for p in PROMPTS], config)
    check_references(contents)
    assert "wording-components" not in contents.figures
    assert "wording-models" in contents.figures


def test_one_wording_of_each_frame_is_told_and_prompts_outside_the_factorial_are_not_spoken_of(config):
    contents = found(wording, [table("m0", "best_ever"), table("m0", "worst_ever")], config)
    assert contents.sections[0].entries[0].title == "Not compared"
    assert not contents.tables
    assert not found(wording, [table("m0", "greatest")], config).sections


def test_a_wording_without_a_frame_is_left_out_aloud(config):
    del config.frames["good"]
    contents = found(wording, [table("m0", p) for p in PROMPTS], config)
    assert "2 wordings without a frame (good_ever, good_time" in everything(contents)
    assert not contents.whole_tables()["paraphrase"].empty


def test_dictionary_gives_ranks_means_and_a_mixed_model_with_bases(config):
    tables = [
        table(f"m{i}", p, base="oak" if i < 3 else "elm")
        for i in range(6)
        for p in ("greatest", "best", "worst")
    ]
    contents = found(dictionaries, tables, config, dictionaries={"Foundations": DICTIONARY})
    check_references(contents)
    whole = contents.whole_tables()
    assert set(whole["median_ranks"]["framing"]) == {"positive", "negative"}
    assert "base oak × category harm × framing negative" in set(whole["dictionary_mixed_model"]["term"])
    ranks = whole["dictionary_means"].query("base == 'all bases'").set_index(["framing", "category"])["mean"]
    assert ranks["positive", "harm"] < ranks["positive", "care"], (
        "rewards rise along the list; rank 1 is the highest"
    )
    assert ranks["negative", "harm"] > ranks["negative", "care"]


def test_wildcards_are_told_with_how_many_words_they_found(config):
    tables = [table(f"m{i}", p) for i in range(3) for p in ("best", "worst")]
    wild = pd.DataFrame(
        {
            "category": ["care", "harm", "few"],
            "word": ["word*", "item*", "nothing"],
        }
    )
    letters = "abcdefgh"
    words = [f"word{a}{b}" for a in letters for b in letters[:2]]
    words += [f"item{a}{b}" for a in letters for b in letters[:3]]
    named = [
        ScoreTable(
            t.identity, t.rows.assign(text=["", " ", *(f" {w.title()}" for w in words)]), t.description
        )
        for t in tables
    ]
    contents = found(dictionaries, named, config, dictionaries={"Wild": wild})
    check_references(contents)
    said = everything(contents)
    assert (
        "40 words that every model has as a candidate (16 care by 1 of 1 entries, 24 harm by 1 of 1 entries)"
        in said
    )
    assert "Categories with too few words: few" in said
    assert "2 entries are wildcards" in said
    counts = contents.whole_tables()["dictionary_words"].set_index("category")
    assert counts[["wildcards", "found"]].loc["harm"].tolist() == [1, 24]
    plain = found(dictionaries, tables, config, dictionaries={"Plain": DICTIONARY})
    assert "wildcard" not in everything(plain)
    assert "20 of 20 care" in everything(plain)


def test_without_known_bases_or_words_the_page_says_why(config):
    tables = [table(f"m{i}", p, base=None if i else "oak") for i in range(3) for p in ("best", "worst")]
    other = DICTIONARY.assign(word=DICTIONARY["word"] + "x")
    contents = found(dictionaries, tables, config, dictionaries={"known": DICTIONARY, "other": other})
    check_references(contents)
    assert [section.title for section in contents.sections] == ["known · vocabulary", "other · vocabulary"]
    said = everything(contents)
    assert "Without the base: it is not known for m1, m2" in said
    assert "0 are among every model's candidates" in said
    assert (
        contents.whole_tables()["dictionary_words"]
        .set_index(["dictionary", "category"])
        .loc[("other", "care"), "found"]
        == 0
    )


def test_one_model_has_ranks_and_no_mixed_model_and_one_question_counts_once(config):
    tables = [
        table("m0", "best", text="Which?"),
        table("m0", "best_ever", text="Which?"),
        table("m0", "worst"),
    ]
    tables.append(table("m0", "odd"))
    contents = found(dictionaries, tables, config, dictionaries={"d": DICTIONARY})
    check_references(contents)
    said = everything(contents)
    assert "best_ever (the same question as best)" in said
    assert "odd (no frame" in said
    assert "No mixed model: One model (m0)" in said
    assert set(contents.whole_tables()["median_ranks"]["prompt"]) == {"best", "worst"}


def test_frames_and_levels_come_from_the_key(config):
    assert levels_of("best_time", config) == {"adjective": "best", "superlative": "time"}
    assert levels_of("best", config) is levels_of("best_never", config) is None
    assert (sign_of("bad_time", config), sign_of("ever_time", config)) == (-1, None)
    config.frames["bad_time"] = 1
    assert sign_of("bad_time", config) == 1
    assert sign_of("best_worst", config) is None


def test_the_54_prompts_are_every_combination_and_hold_the_papers_three(shared_data):
    prompts = yaml.safe_load((CONF / "prompts/factorial54.yaml").read_text())
    factors = yaml.safe_load((CONF / "wording/factorial54.yaml").read_text())["factors"]
    assert list(prompts) == ["_".join(levels) for levels in product(*factors.values())]
    assert len(set(prompts.values())) == 54
    for key in ("best", "greatest", "worst"):
        core = yaml.safe_load((CONF / f"prompts/{key}.yaml").read_text())
        assert prompts[f"{key}_ever_one"] == core[key]
    published = pd.read_parquet(next((shared_data / "big_two").glob("*.parquet"))).columns
    assert list(published[1:]) == list(prompts)
