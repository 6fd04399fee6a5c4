"""The sections on valence and frequency: what they hold, and what they say where there is nothing to hold."""

import numpy as np
import pandas as pd
import pytest

from pessimal.config.schema import CompareConfig, WordingSpec
from pessimal.report.contents import Contents
from pessimal.tables import ModelDescription, ScoreIdentity, ScoreTable
from pessimal.tables.frequencies import Frequencies
from pessimal.tasks.findings.group import groups
from pessimal.tasks.findings.model_words import read_words
from pessimal.tasks.findings.sources import Sources
from pessimal.tasks.findings.valence import sentiment_of
from pessimal.tasks.findings.word_frequency import frequency_of

LETTERS = "bcdfghjklmnprtvw"
WORDS = [f"{a}o{b}o{c}" for a in LETTERS for b in LETTERS for c in "bdgkm"][:900]
RNG = np.random.default_rng(0)
VALENCE = pd.Series(
    RNG.choice([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0], size=300), index=pd.Index(WORDS[:300], name="word")
)
ZIPF = pd.Series(RNG.uniform(3.5, 6.5, size=900), index=WORDS)
FRAMES = {"greatest": 1, "best": 1, "worst": -1}


def scored(
    model: str, prompt: str, sign: int, *, slope: float = 0.4, words=WORDS, mode="ids", noise=0.3
) -> ScoreTable:
    rng = np.random.default_rng([len(model), *prompt.encode()])
    told = VALENCE.reindex(words).fillna(0).to_numpy()
    reward = sign * told + slope * ZIPF.reindex(words).to_numpy() + rng.normal(scale=noise, size=len(words))
    texts = [f" {word}" for word in words]
    rows = pd.DataFrame(
        {
            "candidate_id": range(len(texts) + 2),
            "token": [*texts, "<s>", "ing"],
            "text": [*texts, "special", "ing"],
            "kind": ["normal"] * len(texts) + ["special", "normal"],
            "survives": True,
            "reward": [*reward, 999.0, 0.0],
            "certified": True,
        }
    )
    identity = ScoreIdentity(
        model=model, prompt=prompt, prompt_text=None, candidates="vocabulary", candidates_digest="same", mode=mode, source="scan"
    )  # fmt: skip
    return ScoreTable(identity, rows, ModelDescription(label=f"the {model}"))


def sources(**lexicons: pd.Series) -> Sources:
    per_million = pd.DataFrame({"word": WORDS, "per_million": 10 ** (ZIPF.to_numpy() - 3)})
    return Sources(lexicons=lexicons, frequencies=Frequencies("made up", per_million), dictionaries={})


def told_of(tables, finding, given: Sources, **options) -> Contents:
    contents = Contents()
    members = {group.prompt: group for group in groups(tables)}
    config = CompareConfig(**({"frames": FRAMES} | options))
    finding(read_words(members, config), config, contents, given)
    return contents


@pytest.fixture(scope="module")
def three_models() -> list[ScoreTable]:
    return [
        scored(model, prompt, sign, slope=slope)
        for model, slope in (("plain", 0.0), ("cedar", 0.5), ("oak", 0.2))
        for prompt, sign in FRAMES.items()
    ]


def test_sentiment_has_slopes_asymmetry_and_curves_for_each_lexicon(three_models):
    contents = told_of(three_models, sentiment_of, sources(One=VALENCE, Two=VALENCE / 3))
    tables = contents.whole_tables()
    slopes = tables["sentiment"]
    assert len(slopes) == 3 * 3 * 2 * 2
    means = slopes[slopes["lexicon"] == "One"].groupby("prompt")["slope"].mean()
    assert means.to_dict() == pytest.approx({"greatest": 1, "best": 1, "worst": -1}, abs=0.1)
    asymmetry = tables["sentiment_asymmetry"]
    assert set(asymmetry["prompt"]) == {"greatest", "best", "worst", "greatest × worst"}
    assert (asymmetry["p_holm"] >= asymmetry["p"]).all()
    assert (tables["sentiment_models"]["n"] == 3).all()
    (section,) = contents.sections
    assert section.title == "Sentiment · vocabulary"
    assert "opposite frames" in section.sentence
    for entry in section.entries:
        assert entry.figure is None or entry.figure in contents.figures
        if entry.table:
            rows = tables[entry.table]
            for column, value in entry.where.items():
                rows = rows[rows[column] == value]
            assert len(rows) > 0
    assert contents.summary["sentiment/One/greatest × worst/steeper"] == pytest.approx(0, abs=0.1)


def test_the_mean_over_models_has_the_words_error_in_it_and_says_so(three_models):
    contents = told_of(three_models, sentiment_of, sources(One=VALENCE))
    across = contents.whole_tables()["sentiment_models"]
    assert (across["error_words"] > 0).all()
    reach = across["high"] - across["mean"]
    assert (reach > np.sqrt(across["error_models"] ** 2 + across["error_words"] ** 2)).all()
    told = {entry.title: entry.sentence for entry in contents.sections[0].entries}
    assert "Words and models are both samples" in told["Steeper on which words, over models: One"]
    assert "Intervals are over words and models together" in told["Steeper on which words: One"]


def test_each_prompts_mean_names_its_own_number_of_models(three_models):
    one = [t for t in three_models if (t.identity.model, t.identity.prompt) != ("oak", "worst")]
    told = {e.title: e.sentence for e in told_of(one, sentiment_of, sources(One=VALENCE)).sections[0].entries}
    for title in ("Slopes above and below zero: One", "Steeper on which words: One"):
        sentence = told[title].lower()
        assert "mean of the models scanned on each prompt: greatest (3 models) " in sentence
        assert "worst (2 models) " in sentence
        assert "mean of 3" not in sentence
    assert "greatest × worst (2 models) " in told["Steeper on which words: One"]
    whole = told_of(three_models, sentiment_of, sources(One=VALENCE)).sections[0].entries
    assert "mean of 3 models: greatest " in whole[1].sentence
    single = [t for t in three_models if t.identity.model == "oak" or t.identity.prompt == "best"]
    told = {
        e.title: e.sentence for e in told_of(single, sentiment_of, sources(One=VALENCE)).sections[0].entries
    }
    assert "greatest (1 model) " in told["Slopes above and below zero: One"]


def test_both_sides_words_are_counted_and_few_are_warned_of(three_models):
    contents = told_of(three_models, sentiment_of, sources(One=VALENCE))
    above, below = (VALENCE > 0).sum(), (VALENCE < 0).sum()
    for entry in contents.sections[0].entries[:3]:
        assert f"There are {above} positive and {below} negative words." in entry.sentence
    few = pd.concat([VALENCE[VALENCE > 0].head(12), VALENCE[VALENCE < 0]])
    sentence = told_of(three_models, sentiment_of, sources(One=few)).sections[0].entries[0].sentence
    assert f"There are 12 positive and {below} negative words; with fewer than 30 on a side" in sentence
    bare = [
        ScoreTable(t.identity, t.rows.assign(text=t.rows["text"].str.strip()), t.description)
        for t in three_models
    ]
    paper = told_of(bare, sentiment_of, sources(One=VALENCE), paper=True).sections[0].entries[0].sentence
    assert f"{below} negative tokens." in paper
    assert "words" not in paper


def test_a_special_token_is_no_word(three_models):
    """The one of kind special has a reward of 999, which would move every standardised slope."""
    slopes = told_of(three_models, sentiment_of, sources(One=VALENCE)).whole_tables()["sentiment"]
    assert slopes["slope_sd"].abs().min() > 0.5


def test_frequency_is_told_in_opposite_frames_with_planted_slopes_found(three_models):
    contents = told_of(three_models, frequency_of, sources(One=VALENCE))
    table = contents.whole_tables()["frequency"]
    opposite = table[table["frames"] == "opposite"].set_index(["words", "model"])
    for words in ("rated", "unrated"):
        for model, slope in (("plain", 0.0), ("cedar", 0.5), ("oak", 0.2)):
            assert (
                opposite.loc[(words, model), "low"] - 0.02
                < slope
                < opposite.loc[(words, model), "high"] + 0.02
            )
        assert opposite.loc[(words, "plain"), "p_holm"] > 0.05 > opposite.loc[(words, "oak"), "p_holm"]
    (section,) = contents.sections
    assert "A slope from one frame is biased" in section.sentence
    assert "greatest × worst" in section.sentence
    assert "made up" in section.sentence
    assert "the cedar +0.5" in section.entries[0].sentence
    assert "2 of 3 models differ from 0" in section.entries[0].sentence
    assert contents.summary["frequency/rated/cedar"] == pytest.approx(0.5, abs=0.05)


def test_as_published_there_is_one_frame_at_a_time_and_the_page_says_what_that_means(three_models):
    bare = [
        ScoreTable(t.identity, t.rows.assign(text=t.rows["text"].str.strip()), t.description)
        for t in three_models
    ]
    contents = told_of(bare, frequency_of, sources(One=VALENCE), paper=True)
    table = contents.whole_tables()["frequency"]
    assert set(table["frames"]) == {"one"}
    assert set(table["unit"]) == {"unit of ln per million"}
    assert "biased" in contents.sections[0].sentence
    cedar = table[(table["model"] == "cedar") & (table["prompt"] == "best")].iloc[0]
    assert cedar["slope"] * np.log(10) == pytest.approx(0.5, abs=0.05)
    published = told_of(bare, sentiment_of, sources(One=VALENCE), paper=True).whole_tables()
    assert " × " not in "".join(published["sentiment_asymmetry"]["prompt"])


def test_without_a_lexicon_the_page_says_how_to_give_one(three_models):
    contents = told_of(three_models, sentiment_of, sources())
    assert "+lexicons.AFINN=afinn" in contents.sections[0].entries[0].sentence
    assert not contents.tables
    table = told_of(three_models, frequency_of, sources()).whole_tables()["frequency"]
    assert set(table["words"]) == {"unrated"}


def test_a_lexicon_of_other_words_is_left_out_with_the_reason(three_models):
    foreign = pd.Series([1.0, -1.0], index=["amour", "haine"])
    contents = told_of(three_models, sentiment_of, sources(One=VALENCE, French=foreign))
    last = contents.sections[0].entries[-1]
    assert last.title == "Left out"
    assert (
        "the cedar, the oak, the plain with French: 0 words with a positive valence were found"
        in last.sentence
    )
    assert set(contents.whole_tables()["sentiment"]["lexicon"]) == {"One"}
    nothing = told_of(three_models, sentiment_of, sources(French=foreign))
    assert not nothing.tables
    assert [entry.title for entry in nothing.sections[0].entries] == ["Left out"]


def test_each_lexicons_positive_words_stand_against_its_negative_ones(three_models):
    contents = told_of(three_models, sentiment_of, sources(One=VALENCE, Two=VALENCE / 3))
    table = contents.whole_tables()["lexicon_groups"]
    assert len(table) == 3 * 3 * 2
    assert (table["positive"] == (VALENCE > 0).sum()).all()
    auc = table.set_index(["lexicon", "model", "prompt"])["auc"].unstack()
    assert (auc[["greatest", "best"]] > 0.97).all(axis=None)
    assert (auc["worst"] < 0.03).all()
    assert (auc.loc["One"] == auc.loc["Two"]).all(axis=None), "of the same signs"
    (entry, _) = [e for e in contents.sections[0].entries if e.title.startswith("Positive against")]
    assert entry.title == "Positive against negative words: One"
    assert f"{(VALENCE > 0).sum()} positive and {(VALENCE < 0).sum()} negative words" in entry.sentence
    assert "the cedar" in entry.sentence
    assert contents.summary["sentiment/One/worst/auc"] == pytest.approx(auc.loc["One", "worst"].mean())


def test_a_lexicon_that_only_sorts_words_has_groups_and_the_page_says_why_no_slopes(three_models):
    contents = told_of(three_models, sentiment_of, sources(Bing=np.sign(VALENCE)))
    whole = contents.whole_tables()
    assert set(whole) == {"lexicon_groups"}
    graded = told_of(three_models, sentiment_of, sources(Bing=VALENCE)).whole_tables()["lexicon_groups"]
    pd.testing.assert_frame_equal(whole["lexicon_groups"], graded)
    groups_entry, left_out = contents.sections[0].entries
    assert groups_entry.figure in contents.figures
    assert left_out.title == "Left out"
    assert (
        "the cedar, the oak, the plain with Bing: No slope by valence: every positive word has the valence 1"
        in left_out.sentence
    )
    both = told_of(three_models, sentiment_of, sources(Bing=np.sign(VALENCE), One=VALENCE))
    assert set(both.whole_tables()["sentiment"]["lexicon"]) == {"One"}
    assert set(both.whole_tables()["lexicon_groups"]["lexicon"]) == {"Bing", "One"}


def test_as_published_the_groups_are_of_tokens(three_models):
    bare = []
    for t in three_models:
        rows = t.rows.assign(text=t.rows["text"].str.strip())
        twice = rows.iloc[:100].assign(text=[word.title() for word in WORDS[:100]])
        rows = pd.concat([rows, twice], ignore_index=True)
        bare.append(ScoreTable(t.identity, rows.assign(candidate_id=range(len(rows))), t.description))
    contents = told_of(bare, sentiment_of, sources(One=VALENCE), paper=True)
    table = contents.whole_tables()["lexicon_groups"]
    assert set(table["positive"] + table["negative"]) == {400}
    assert set(table["stems"]) == {300}
    entry = next(e for e in contents.sections[0].entries if e.title.startswith("Positive against"))
    assert f"{table['positive'][0]} positive and {table['negative'][0]} negative tokens" in entry.sentence
    assert "spellings of a word" in entry.sentence


def test_a_candidate_set_without_words_has_sections_that_say_so():
    few = [scored("plain", prompt, sign, words=WORDS[:12]) for prompt, sign in FRAMES.items()]
    for finding in (sentiment_of, frequency_of):
        contents = told_of(few, finding, sources(One=VALENCE))
        assert [entry.title for entry in contents.sections[0].entries] == ["Left out"]
        assert "the plain" in contents.sections[0].entries[0].sentence


@pytest.mark.parametrize("texts", [["##1", "12", "?!"], [""]])
def test_a_vocabulary_without_words_has_sections_that_say_so(texts):
    tables = []
    for prompt, sign in FRAMES.items():
        table = scored("plain", prompt, sign, words=WORDS[:12])
        rows = table.rows.iloc[: len(texts)].assign(text=texts, token=texts, reward=range(len(texts)))
        tables.append(ScoreTable(table.identity, rows, table.description))
    for finding in (sentiment_of, frequency_of):
        contents = told_of(tables, finding, sources(One=VALENCE))
        assert [entry.title for entry in contents.sections[0].entries] == ["Left out"]
        assert "None of these texts spells a word" in contents.sections[0].entries[0].sentence


def test_prompts_without_a_known_frame_are_not_paired_and_the_page_says_so(three_models):
    contents = told_of(three_models, frequency_of, sources(One=VALENCE), frames={})
    assert set(contents.whole_tables()["frequency"]["frames"]) == {"one"}
    assert "these prompts have none" in contents.sections[0].sentence
    asymmetry = told_of(three_models, sentiment_of, sources(One=VALENCE), frames={})
    assert set(asymmetry.whole_tables()["sentiment_asymmetry"]["sign_from"]) == {"slopes"}
    assert "No frame is known for greatest, best, worst" in asymmetry.sections[0].entries[2].sentence


def test_many_wordings_are_averaged_by_frame():
    wording = WordingSpec(factors={"adjective": ["best", "worst"], "superlative": ["a", "b", "c", "d"]})
    tables = [
        scored("cedar", f"{adjective}_{letter}", sign, slope=0.5)
        for adjective, sign in (("best", 1), ("worst", -1))
        for letter in "abcd"
    ]
    contents = told_of(tables, frequency_of, sources(One=VALENCE), wording=wording)
    table = contents.whole_tables()["frequency"]
    assert set(table["prompt"]) == {
        "4 positive",
        "4 negative",
        "4 positive × 4 negative",
    }
    rated = table[(table["words"] == "rated") & (table["frames"] == "opposite")].iloc[0]
    assert rated["slope"] == pytest.approx(0.5, abs=0.03)


def test_a_model_not_scanned_on_a_prompt_keeps_the_others_and_is_told(three_models):
    tables = [t for t in three_models if (t.identity.model, t.identity.prompt) != ("oak", "worst")]
    contents = told_of(tables, frequency_of, sources(One=VALENCE))
    table = contents.whole_tables()["frequency"]
    oak = table[table["model"] == "oak"]
    assert set(oak["prompt"]) == {"greatest", "best"}
    assert "the oak on worst: not scanned" in contents.sections[0].entries[-1].sentence


def test_opposite_frames_that_no_model_was_asked_in_are_no_pair():
    """Each model has one frame in one mode and its opposite in another."""
    tables = [
        scored(model, prompt, sign, mode=mode)
        for model in ("plain", "oak")
        for prompt, sign, mode in (("greatest", 1, "ids"), ("worst", -1, "text"))
    ]
    contents = told_of(tables, frequency_of, sources(One=VALENCE))
    assert "these prompts have none" in contents.sections[0].sentence
    told = contents.sections[0].entries[-1].sentence
    assert "on worst: scanned in another mode than greatest" in told
    assert "not scanned" not in told


def test_the_pair_is_the_one_that_most_models_have(three_models):
    tables = [t for t in three_models if t.identity.prompt != "greatest" or t.identity.model == "oak"]
    table = told_of(tables, frequency_of, sources(One=VALENCE)).whole_tables()["frequency"]
    assert set(table.loc[table["frames"] == "opposite", "prompt"]) == {"best × worst"}
    assert set(table.loc[table["frames"] == "opposite", "model"]) == {"oak", "plain", "cedar"}


def test_rewards_of_two_modes_are_not_put_together(three_models):
    other = scored("plain", "worst", -1, slope=0.0, mode="text")
    tables = [t for t in three_models if t.identity.model == "plain" and t.identity.prompt != "worst"]
    contents = told_of([*tables, other], frequency_of, sources(One=VALENCE))
    assert set(contents.whole_tables()["frequency"]["prompt"]) == {"greatest", "best"}
    assert (
        "the plain on worst: scanned in another mode than greatest"
        in contents.sections[0].entries[-1].sentence
    )
