"""From tokens to words: spellings, starts, stems; and the words of a model under several
prompts."""

from dataclasses import replace

import pandas as pd

from pessimal.tables.table_set import TableSet, table_sets
from pessimal.tables.word_lists import spelled, word_means, word_starts

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


def test_only_spaced_spellings_start_words_where_the_vocabulary_writes_spaces():
    assert word_starts(pd.Index([" Love", "love", "ing", " ing2", " a"])).tolist() == ["love", "a"]
    assert word_starts(pd.Index(["love", "##ing", "hate", "love"])).tolist() == ["love", "hate"]


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
