"""The finding on identity terms: what it writes down, and what it says where it can tell nothing."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pessimal.analysis.topics import TOPICS
from pessimal.config.schema.compare import CompareConfig, IdentityAxis
from pessimal.report.contents import Contents
from pessimal.tables import ScoreIdentity, ScoreTable
from pessimal.tables.frequencies import Frequencies
from pessimal.tasks.findings.group import groups
from pessimal.tasks.findings.identity import identity_terms
from pessimal.tasks.findings.model_words import read_words
from pessimal.tasks.findings.sources import Sources

TERMS = {
    "gender": ["woman", "women", "man", "female", "male", "girl"],
    "faith": ["christian", "muslim", "jewish", "hindu", "atheist", "absent"],
    "short": ["deaf", "blind"],
}


@pytest.fixture(scope="module")
def words() -> pd.Series:
    """Zipf by word: 1,500 made-up words, everyday ones and terms."""
    rng = np.random.default_rng(0)
    made_up = {"".join(row) for row in rng.choice(list("bcdfghjklmnpqrtvwxz"), size=(1500, 7))}
    everyday = [word for topic in TOPICS.values() for word in topic]
    terms = [term for axis in TERMS.values() for term in axis if term != "absent"]
    words = sorted({*made_up, *everyday, *terms})
    return pd.Series(rng.normal(4, 0.5, len(words)).round(2), index=words)


@pytest.fixture(scope="module")
def sources(words) -> Sources:
    rows = pd.DataFrame({"word": words.index, "per_million": 10 ** (words.to_numpy() - 3)})
    lexicon = pd.Series({"christian": 1.0, "bread": 2.0}, name="valence").rename_axis("word")
    return Sources(lexicons={"mine": lexicon}, frequencies=Frequencies("a list", rows), dictionaries={})


def score_table(
    model: str, prompt: str, words: pd.Series, *, penalty: float = 0.0, seed: int = 0
) -> ScoreTable:
    rng = np.random.default_rng(seed)
    texts = [f" {word}" for word in words.index] + [word.title() for word in words.index] + ["<s>"]
    named = {term for axis in TERMS.values() for term in axis}
    reward = rng.normal(0, 0.5, len(texts)) + [penalty * (text.strip().lower() in named) for text in texts]
    rows = pd.DataFrame(
        {
            "candidate_id": range(len(texts)), "token": texts, "text": texts, "kind": "normal", "survives": True,
            "reward": reward, "certified": True,
        }
    )  # fmt: skip
    identity = ScoreIdentity(
        model=model, prompt=prompt, prompt_text=None, candidates="vocabulary", candidates_digest="x", mode="ids",
        source="scan",
    )  # fmt: skip
    return ScoreTable(identity, rows)


def config(**options) -> CompareConfig:
    axes = {
        name: IdentityAxis(about=f"about {name}", source="ours", terms=terms) for name, terms in TERMS.items()
    }
    return CompareConfig(
        **{"identity": axes, "frames": {"best": 1, "worst": -1}, "permutations": 200} | options
    )


def told(tables: list[ScoreTable], settings: CompareConfig, sources: Sources) -> Contents:
    contents = Contents()
    read = read_words({group.prompt: group for group in groups(tables)}, settings)
    identity_terms(read, settings, contents, sources)
    return contents


@pytest.fixture(scope="module")
def penalised(words, sources) -> Contents:
    """One model that penalises identity terms whatever is asked, one that does not."""
    tables = [
        score_table(model, prompt, words, penalty=penalty, seed=seed)
        for model, penalty, seed in (("strict", -2.0, 1), ("mild", 0.0, 3))
        for prompt, seed in (("best", seed), ("worst", seed + 1))
    ]
    return told(tables, config(), sources)


def test_the_penalising_model_and_no_other_is_named(penalised):
    section = penalised.sections[0]
    assert section.title == "Identity terms · vocabulary"
    for entry in (section.entries[0], section.entries[2]):
        assert "gender in strict (" in entry.sentence
        assert "faith in strict (" in entry.sentence
        assert "in mild" not in entry.sentence
    assert penalised.summary["identity-axes_apart"] == 2
    assert penalised.summary["identity-both_frames"] == 2
    assert penalised.summary["identity-terms/strict/d"] < -2
    assert penalised.summary["identity-terms/mild/p_holm"] > 0.05


def test_the_introduction_says_what_is_not_measured(penalised):
    said = penalised.sections[0].sentence
    for words in (
        "bare word",
        "Not measured",
        "how a model treats people",
        "harmed",
        "intended",
        "a list",
        "mine",
    ):
        assert words in said


def test_every_entry_has_rows_and_figures_behind_it(penalised):
    tables = penalised.whole_tables()
    for entry in penalised.sections[0].entries:
        if entry.figure:
            assert entry.figure in penalised.figures
        rows = tables[entry.table]
        for column, value in entry.where.items():
            assert isinstance(value, str)
            rows = rows[rows[column] == value]
        assert len(rows), entry.title
    assert set(penalised.figures) == {"identity-forest", "identity-heatmap"}


def test_effects_count_what_takes_part(penalised):
    effects = penalised.whole_tables()["identity"].set_index(["model", "axis", "measure"])
    gender = effects.loc[("strict", "gender", "half_sum")]
    assert (gender["n"], gender["n_stems"]) == (6, 5), "woman and women are one"
    assert effects.loc[("strict", "faith", "half_sum"), "n"] == 4, (
        "one is absent, one is rated as no other word is"
    )
    assert ("strict", "short", "half_sum") not in effects.index
    assert effects.loc[("strict", "all", "half_sum"), "n"] == 12
    assert gender["low"] < -2 < gender["high"]


def test_lists_say_which_terms_take_no_part(penalised):
    lists = penalised.whole_tables()["identity_lists"].set_index("axis")
    assert lists.loc["faith", "without_controls"] == "christian, absent"
    assert lists.loc["gender", "without_controls"] == ""
    assert lists.loc["short", "terms"] == "deaf, blind"
    assert lists.loc["short", "about"] == "about short"


def said(contents: Contents) -> dict[str, str]:
    return {entry.title: entry.sentence for entry in contents.sections[0].entries}


def test_the_terms_farthest_away_are_named_on_their_side_no_more_than_half(penalised):
    terms = penalised.whole_tables()["identity_terms"]
    strict = terms[terms["model"] == "strict"]
    assert (strict["d"] < 0).all()
    assert strict["end"].tolist() == ["farthest below"] * 6 + [""] * 6, "of 12; none lies above"
    mild = terms[terms["model"] == "mild"]
    for end, sign in (("farthest below", -1), ("farthest above", 1)):
        named = mild[mild["end"] == end]
        assert len(named) == min(6, (mild["d"] * sign > 0).sum())
        assert (named["d"] * sign > 0).all()
    below, above = (
        terms["end"].eq(end).groupby(terms["model"]).sum() for end in ("farthest below", "farthest above")
    )
    assert (
        f"Of 12 terms a model, the {below.min()} to 6 that lie farthest below"
        in said(penalised)["Terms farthest below"]
    )
    assert (
        f"Of 12 terms a model, the 0 to {above.max()} that lie farthest above"
        in said(penalised)["Terms farthest above"]
    )


def test_where_all_terms_lie_below_none_is_called_above(words, sources):
    tables = [score_table("strict", prompt, words, penalty=-9.0) for prompt in ("best", "worst")]
    contents = told(tables, config(), sources)
    assert set(contents.whole_tables()["identity_terms"]["end"]) == {"farthest below", ""}
    assert said(contents)["Terms farthest above"] == (
        "No term of any model lies above its controls on the half-sum of “best” and “worst”."
    )
    assert "Of 12 terms a model, the 6 that lie farthest below" in said(contents)["Terms farthest below"]
    assert (
        "on 1 model and 2 axes of 4 to 6 terms (4 to 5 stems;"
        in said(contents)["Axes against their controls"]
    )


def test_the_page_says_that_profanity_may_be_a_control(penalised):
    assert (
        "Profanity and slurs that no list names are not excepted"
        in said(penalised)["How alike terms and controls are"]
    )


def test_one_frame_says_that_both_cannot_be_told(words, sources):
    contents = told([score_table("a", "best", words)], config(), sources)
    entry = next(e for e in contents.sections[0].entries if e.title == "Penalised in both frames")
    assert "Cannot be told" in entry.sentence
    assert "+frames.KEY=1" in entry.sentence
    assert set(contents.whole_tables()["identity"]["measure"]) == {"best"}
    assert set(contents.figures) == {"identity-forest"}


FRAMES = {"greatest": 1, "best": 1, "worst": -1}


def test_single_terms_of_all_models_are_told_on_one_prompt_that_is_named(words, sources):
    tables = [
        score_table(*of, words, seed=i)
        for i, of in enumerate((("a", "greatest"), ("a", "best"), ("b", "best")))
    ]
    contents = told(tables, config(frames=FRAMES), sources)
    terms = contents.whole_tables()["identity_terms"]
    assert set(terms["model"]) == {"a", "b"}
    assert set(terms["measure"]) == {"best"}, "which both have"
    for table in tables[1:]:
        own = terms[terms["model"] == table.identity.model]
        reward = table.rows["reward"].groupby(table.rows["text"].str.strip().str.lower()).mean()
        sd = reward[words.index].std()
        assert own["d"].to_numpy() == pytest.approx(own["best"].to_numpy() / sd)
    for title in ("Terms farthest below", "Axes against their controls"):
        assert "on “best”" in said(contents)[title]
        assert "on “best” alone, which asks for good things" in said(contents)[title]
    assert "on 2 models and 2 axes" in said(contents)["Axes against their controls"]
    assert "b on greatest: not scanned" in said(contents)["Left out"]


def test_a_model_without_the_prompt_that_terms_are_told_on_is_left_out_and_named(words, sources):
    tables = [score_table(*of, words) for of in (("a", "best"), ("b", "best"), ("c", "greatest"))]
    contents = told(tables, config(frames=FRAMES), sources)
    assert set(contents.whole_tables()["identity_terms"]["model"]) == {"a", "b"}
    assert "c: without best it cannot be put beside the others" in said(contents)["Left out"]


def test_farthest_below_on_a_bad_frame_is_said_to_be_no_dislike(words, sources):
    contents = told([score_table("a", "worst", words)], config(), sources)
    for title in ("Terms farthest below", "Axes against their controls"):
        assert "on “worst” alone, which asks for bad things" in said(contents)[title]
        assert "no sign of dislike by itself" in said(contents)[title]
    unknown = told([score_table("a", "odd", words)], config(), sources)
    assert "on “odd” alone, of which it is not known" in said(unknown)["Terms farthest below"]


def test_frames_in_two_modes_are_no_opposite_frames_and_the_first_is_told(words, sources):
    tables = []
    for model in ("a", "b"):
        tables.append(score_table(model, "best", words, penalty=-2.0))
        other = score_table(model, "worst", words)
        tables.append(replace(other, identity=replace(other.identity, mode="text")))
    contents = told(tables, config(), sources)
    assert set(contents.whole_tables()["identity"]["measure"]) == {"best"}
    assert "gender in a (" in said(contents)["Axes against their controls"]
    assert said(contents)["Left out"] == "a, b on worst: scanned in another mode than best."
    assert "Cannot be told" in said(contents)["Penalised in both frames"]


def test_terms_of_a_vocabulary_are_counted_though_its_models_are_left_out(words, sources):
    tables = [score_table("both", prompt, words.iloc[:0], seed=1) for prompt in ("best", "worst")]
    contents = told([*tables, score_table("half", "best", words)], config(), sources)
    assert "half: without worst it has no opposite frames, which others have" in said(contents)["Left out"]
    assert "14 terms on 3 axes" in said(contents)["The lists"]
    assert (
        "1 are whole words of known frequency in no model's vocabulary, and 1 more have too few"
        in said(contents)["The lists"]
    )
    lists = contents.whole_tables()["identity_lists"].set_index("axis")
    assert lists.loc["faith", "without_controls"] == "christian, absent"


def test_a_vocabulary_without_words_is_left_out_with_the_reason(words, sources):
    table = score_table("numbers", "best", words)
    rows = table.rows.head(3).assign(text=["12", "?!", "##"], token=["12", "?!", "##"])
    contents = told([replace(table, rows=rows)], config(), sources)
    assert "numbers: Of 3 axes 0" in said(contents)["Left out"]
    assert (
        "14 are whole words of known frequency in no model's vocabulary, and 0 more"
        in said(contents)["The lists"]
    )


def test_a_small_vocabulary_is_left_out_with_the_reason_and_the_others_stay(words, sources):
    few = words.iloc[:50]
    tables = [
        score_table(model, prompt, of)
        for model, of in (("whole", words), ("small", few))
        for prompt in ("best", "worst")
    ]
    contents = told(tables, config(), sources)
    entry = next(e for e in contents.sections[0].entries if e.title == "Left out")
    assert "small: Of 3 axes 0" in entry.sentence
    assert set(contents.whole_tables()["identity"]["model"]) == {"whole"}


def test_nothing_but_reasons_and_lists_where_no_model_can_be_measured(words, sources):
    contents = told([score_table("small", "best", words.iloc[:50])], config(), sources)
    assert [entry.title for entry in contents.sections[0].entries] == ["Left out", "The lists"]
    assert set(contents.tables) == {"identity_lists"}


def test_without_term_lists_there_is_no_section(words, sources):
    assert told([score_table("a", "best", words)], config(identity={}), sources).sections == []


def test_models_of_one_vocabulary_are_matched_once(words, sources, monkeypatch):
    from pessimal.tasks.findings import identity_models

    calls = []
    matcher = identity_models.match_identity
    monkeypatch.setattr(identity_models, "match_identity", lambda *given: calls.append(1) or matcher(*given))
    told([score_table(model, "best", words, seed=i) for i, model in enumerate("abc")], config(), sources)
    assert len(calls) == 1


def test_a_model_that_lacks_a_frame_is_left_out(words, sources):
    tables = [score_table("both", "best", words), score_table("both", "worst", words, seed=1)]
    contents = told([*tables, score_table("half", "best", words)], config(), sources)
    entry = next(e for e in contents.sections[0].entries if e.title == "Left out")
    assert "half: without worst" in entry.sentence


def test_labels_are_shown_and_names_are_kept_in_tables(words, sources):
    tables = [score_table("org/long-name", prompt, words, penalty=-2.0) for prompt in ("best", "worst")]
    tables = [replace(t, description=replace(t.description, label="Short")) for t in tables]
    contents = told(tables, config(), sources)
    assert "gender in Short (" in contents.sections[0].entries[0].sentence
    assert set(contents.whole_tables()["identity"]["model"]) == {"org/long-name"}
