"""From tokens to words: spellings, starts, stems; and the words of a model under several
prompts."""

from dataclasses import replace

import pandas as pd
import pytest

from pessimal.errors import TableError
from pessimal.tables.table_set import TableSet, table_sets
from pessimal.tables.word_lists import as_published, check_words, spelled, word_means, word_starts

TEXTS = [
    " love",
    "Love",
    "LOVE\n",
    "love-in",
    "##ing",
    "null",
    "NA",
    "",
    " ",
    "liebé",
    "自由",
    "\u200blove",
    "x1",
]


def test_a_text_spells_a_word_if_it_is_letters_within_white_space():
    words = spelled(pd.Index(TEXTS))
    assert words.tolist() == [
        "love",
        "love",
        "love",
        None,
        None,
        "null",
        "na",
        None,
        None,
        "liebé",
        "自由",
        None,
        None,
    ]
    assert words.index.tolist() == list(range(len(TEXTS)))


def test_texts_need_not_be_valid_unicode():
    assert spelled(pd.Index(["\ud83d", " ok"], dtype=object)).tolist() == [None, "ok"]


def test_a_words_reward_is_the_mean_of_its_spellings():
    rewards = pd.DataFrame(
        {"best": [1.0, 2.0, 6.0, 5.0, 7.0], "worst": [0.0, 0.0, 3.0, 1.0, 9.0]},
        index=[" love", "Love", "love", "hate", "###"],
    )
    words = word_means(rewards)
    assert words.index.tolist() == ["hate", "love"]
    assert words.loc["love"].tolist() == [3.0, 1.0]
    assert words.loc["hate"].tolist() == [5.0, 1.0]
    assert words.index.name == "word"


def test_the_published_names_keep_white_space_and_repeat():
    rewards = pd.DataFrame({"best": [1.0, 2.0, 3.0]}, index=[" love", "Love", "LOVE"])
    assert as_published(rewards).index.tolist() == [" love", "love", "love"]
    assert as_published(rewards)["best"].tolist() == [1.0, 2.0, 3.0]


def test_only_spaced_spellings_start_words_where_the_vocabulary_writes_spaces():
    assert word_starts(pd.Index([" Love", "love", "ing", " ing2", " a"])).tolist() == ["love", "a"]
    assert word_starts(pd.Index(["love", "##ing", "hate", "love"])).tolist() == ["love", "hate"]


def test_a_few_texts_with_a_space_do_not_make_it_what_starts_words():
    """A WordPiece vocabulary to which somebody added ' maybe': every other word is a start as
    before."""
    pieces = [f"{a}{b}" for a in "bcdfghjk" for b in ("at", "et", "in")]
    assert len(pieces) == 24
    assert word_starts(pd.Index([*pieces, " maybe", "##ing"])).tolist() == [*pieces, "maybe"]
    assert word_starts(pd.Index([*pieces, " maybe", " perhaps", "##ing"])).tolist() == [
        *pieces,
        "maybe",
        "perhaps",
    ], "2 of 26 texts that spell words"
    spaced = [" maybe", " perhaps", " so"]
    assert word_starts(pd.Index([*pieces, *spaced])).tolist() == ["maybe", "perhaps", "so"], (
        "3 of 27"
    )
    assert word_starts(pd.Index([*pieces, *spaced, *["x1", "##y"] * 50])).tolist() == [
        "maybe",
        "perhaps",
        "so",
    ], "texts that spell no word have no say"


def test_no_words_or_rewards_that_do_not_vary_are_refused():
    with pytest.raises(TableError, match="None of these texts is a word"):
        check_words(pd.DataFrame({"best": []}))
    with pytest.raises(TableError, match="same reward for every word under: best"):
        check_words(pd.DataFrame({"best": [1.0, 1.0]}, index=["a", "b"]))


# the words of a TableSet


def scored(*models: str, value: float = 1.0) -> pd.DataFrame:
    """Three spellings of two words, and what is no word, alike for all models."""
    texts = [" love", "Love", " hate", "12"]
    return pd.DataFrame({model: [value, 3 * value, -value, 99.0] for model in models}, index=texts)


def with_table(tables: TableSet, model: str, prompt: str, **changes) -> TableSet:
    """The same tables, one of them with another provenance or other rows."""
    changed = []
    for table in tables.tables:
        if (table.provenance.model, table.provenance.prompt) == (model, prompt):
            rows = table.rows.assign(**changes.pop("rows", {}))
            table = replace(table, rows=rows, provenance=replace(table.provenance, **changes))
        changed.append(table)
    return table_sets(changed, tables.reading)[0]


POLARITY = {"greatest": 1, "best": 1, "worst": -1}


def test_spellings_are_averaged_and_what_is_no_word_is_left_out(table_set):
    tables = table_set({"best": scored("a"), "worst": scored("a", value=-1)}, polarity=POLARITY)
    assert tables.words("a").to_dict() == {
        "best": {"hate": -1, "love": 2},
        "worst": {"hate": 1, "love": -2},
    }
    assert tables.pairs_of("a") == [("best", "worst")]
    special = with_table(
        tables, "a", "best", rows={"kind": ["normal", "special", "normal", "normal"]}
    )
    assert special.words("a").loc["love", "best"] == 1


def test_the_pair_is_the_one_that_most_models_have(table_set):
    matrices = {
        "greatest": scored("oak"),
        "best": scored("alder", "oak"),
        "worst": scored("alder", "oak"),
    }
    tables = table_set(matrices, polarity=POLARITY)
    assert tables.pairs_of("oak") == tables.pairs_of("alder") == [("best", "worst")]
    assert any(note.startswith("alder on greatest") for note in tables.without_columns())
    assert table_set(matrices, polarity=POLARITY, paper=True).pairs_of("oak") == []
    assert table_set(matrices).pairs_of("oak") == [], "of prompts of unknown polarity"


def test_rewards_of_two_modes_are_not_put_together(table_set):
    tables = table_set({p: scored("a") for p in ("greatest", "worst")}, polarity=POLARITY)
    assert tables.pairs_of("a") == [("greatest", "worst")]
    mixed = with_table(tables, "a", "worst", mode="text")
    assert list(mixed.words("a")) == ["greatest"]
    assert mixed.opposite_pairs() == []
    assert any("mode" in note and note.startswith("a on worst") for note in mixed.without_columns())
