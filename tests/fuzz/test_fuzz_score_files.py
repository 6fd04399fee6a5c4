"""Files of scores, items, tokens and words, plausible, damaged or neither: they are read, or refused by their name."""

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzzing import cases, hostile, refused, whole
from hypothesis import example
from hypothesis import strategies as st

from pessimal.errors import ConfigError, InputError, TableError
from pessimal.scoring.candidates import items
from pessimal.search import Filter
from pessimal.search.allowed import allowed_tokens
from pessimal.tables.published import read_eloeverything, read_factorial54, read_vocabulary
from pessimal.tables.score_table import (
    ScoreProvenance,
    ScoreTable,
    read_provenance,
    read_score_table,
    storable,
    write_score_table,
)
from pessimal.tables.word_lists import read_dictionary, read_frequencies, read_lexicon

HEADINGS = {
    "eloeverything": ["elo_rank", "elo_score", "name", "elo_matches", "lab/model"],
    "vocabulary": ["token_id", "token_name", "token_decoded", "greatest"],
    "items": ["name", "elo_score", "elo_matches"],
    "dictionary": ["category", "word"],
    "lexicon": ["word", "valence"],
    "frequencies": ["word", "per_million"],
}


def _reader(kind: str):
    return {
        "eloeverything": lambda path: read_eloeverything(path, prompt="greatest", prompts={}, models={}),
        "vocabulary": lambda path: read_vocabulary(path, model=None, prompts={}, models={}),
        "items": lambda path: items(path, name="things"),
        "dictionary": read_dictionary,
        "lexicon": lambda path: read_lexicon(str(path)),
        "frequencies": lambda path: read_frequencies(str(path)),
    }[kind]


def damaged(content: bytes, cuts: list[tuple[int, bytes]]) -> bytes:
    """`content` with bytes put over its own at some places, and cut off at the last of them."""
    for place, put in cuts:
        place %= len(content) + 1
        content = content[:place] + put + content[place + len(put) :]
    return content[: cuts[-1][0] % (len(content) + 1)] if len(cuts) > 2 else content


cuts = st.lists(st.tuples(st.integers(0, 5000), st.binary(max_size=3)), max_size=4)
cells = st.one_of(st.sampled_from(["0", "1", "2", "1.5", "-3", "love", "hate", "safe*"]), whole)
quoted = cells.map(lambda text: '"' + text.replace('"', '""') + '"')
tables = st.sampled_from(sorted(HEADINGS)).flatmap(
    lambda kind: st.tuples(
        st.just(kind),
        st.one_of(st.just(HEADINGS[kind]), st.lists(st.one_of(st.sampled_from(HEADINGS[kind]), cells), max_size=5)),
        st.lists(st.lists(st.one_of(cells, quoted), max_size=6), max_size=4),
    )
)  # fmt: skip


NUMBERS = {
    "elo_rank",
    "elo_score",
    "elo_matches",
    "token_id",
    "valence",
    "per_million",
    "greatest",
    "lab/model",
}


def _row(heading: list[str], number: int) -> st.SearchStrategy:
    """A row as it should be, but for its texts."""
    return st.tuples(*(st.just(str(number)) if name in NUMBERS else quoted for name in heading))


plausible = st.sampled_from(sorted(HEADINGS)).flatmap(
    lambda kind: st.tuples(
        st.just(kind), st.just(HEADINGS[kind]), st.tuples(*(_row(HEADINGS[kind], n) for n in range(3)))
    )
)


@pytest.mark.slow
@cases(900, table=st.one_of(tables, plausible), cuts=st.one_of(st.just([]), cuts))
def test_a_table_of_text_is_read_or_refused_by_name(folder, table, cuts):
    kind, heading, rows = table
    file = folder / f"some-{kind}.csv"
    text = "\n".join(",".join(line) for line in [heading, *rows])
    file.write_bytes(damaged(text.encode(), cuts))
    found, wrong = refused(lambda: _reader(kind)(file), naming=file.name, kinds=(InputError, TableError))
    if not wrong and kind in ("eloeverything", "vocabulary"):
        assert all(np.isfinite(one.rows["reward"]).all() for one in found)


sound = st.lists(st.tuples(whole, st.floats(-1e6, 1e6)), min_size=1, max_size=5, unique_by=lambda row: row[0])


@cases(300, rows=sound)
def test_what_is_in_a_cell_arrives_as_it_is(folder, rows):
    file = folder / "sound.csv"
    names = [name for name, _ in rows]
    with file.open("w", encoding="utf-8", newline="") as sink:
        writer = csv.writer(sink, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow(["token_id", "token_name", "token_decoded", "best"])
        writer.writerows([number, name, name, repr(reward)] for number, (name, reward) in enumerate(rows))
    (table,) = read_vocabulary(file, model="m", prompts={}, models={})
    assert table.rows["text"].tolist() == table.rows["token"].tolist() == names
    assert table.rows["reward"].tolist() == [reward for _, reward in rows]


lines = st.lists(
    st.one_of(cells, st.sampled_from(["%", "1\tgood", "2\tbad", "love\t1", "hate 2", "x\t1 2 3"])), max_size=8
)


@cases(500, lines=lines, suffix=st.sampled_from([".txt", ".dic", ".csv", ""]), cuts=cuts)
@example(lines=["%", "²\tgood", "%"], suffix=".dic", cuts=[])
@example(lines=["%", "9" * 5000 + "\tgood", "%"], suffix=".dic", cuts=[])
def test_a_list_of_lines_is_read_or_refused_by_name(folder, lines, suffix, cuts):
    file = folder / f"lines{suffix}"
    file.write_bytes(damaged("\n".join(lines).encode(), cuts))
    for read in (read_dictionary, lambda path: items(path, name="things")):
        refused(lambda read=read: read(file), naming=file.name, kinds=InputError)


VOCABULARY = pd.DataFrame(
    {
        "candidate_id": range(6),
        "token": ["love", "Ġlove", "##ing", "<unk>", "7", ""],
        "text": ["love", " love", "ing", "<unk>", "7", "\ud83d".encode("utf-8", "backslashreplace").decode()],
        "kind": ["normal", "normal", "normal", "special", "normal", "byte"],
    }
)


@cases(
    500,
    lines=st.lists(st.one_of(st.sampled_from(["love", " love", "id:3", "id:99", "##ing", "7"]), whole), max_size=3),
    filters=st.lists(st.sampled_from(list(Filter)), max_size=2),
    cuts=cuts,
)  # fmt: skip
@example(lines=["id:" + "9" * 5000], filters=[], cuts=[])
def test_allowed_tokens_are_those_listed_or_the_list_is_refused(folder, lines, filters, cuts):
    file = folder / "allowed.txt"
    file.write_bytes(damaged("\n".join(lines).encode(), cuts))
    mask, wrong = refused(
        lambda: allowed_tokens(VOCABULARY, filters, size=8, listed=file), kinds=(InputError, ConfigError)
    )
    if wrong:
        assert file.name in str(mask)
    else:
        assert mask.any()
        assert not mask[6:].any(), "padding of the embedding"


columns = st.one_of(
    st.lists(st.one_of(st.none(), whole), min_size=2, max_size=2),
    st.lists(st.one_of(st.none(), st.floats()), min_size=2, max_size=2),
    st.lists(st.integers(-(2**62), 2**62), min_size=2, max_size=2),
    st.lists(st.booleans(), min_size=2, max_size=2),
    st.lists(st.lists(st.integers(0, 3), max_size=2), min_size=2, max_size=2),
    st.lists(st.binary(max_size=3), min_size=2, max_size=2),
)
frames = st.dictionaries(
    st.one_of(st.sampled_from(["response", "candidate_id", "text", "reward"]), whole), columns, max_size=4
)
metadata = st.one_of(
    st.none(), st.binary(max_size=8), st.sampled_from([b"{}", b"[]", b"null", b'{"format": 1}', b'{"format": 1, "identity": 3}'])
)  # fmt: skip


@cases(500, frame=frames, metadata=metadata, cuts=cuts)
@example(frame={"response": ["a", "b"], "best": [[0], [1]]}, metadata=None, cuts=[])
@example(frame={"response": [b"\x80", b"a"], "best": [0.5, 1.0]}, metadata=None, cuts=[])
@example(frame={}, metadata=b"\x80", cuts=[])
@example(frame={}, metadata=b'{"format": 1}', cuts=[])
def test_a_parquet_file_is_read_or_refused_by_name(folder, frame, metadata, cuts):
    file = folder / "words_rewards_lab_model.parquet"
    table = pa.table(frame)
    if metadata is not None:
        table = table.replace_schema_metadata({b"pessimal.score_table": metadata})
    pq.write_table(table, file)
    if len(cuts) > 1:
        file.write_bytes(damaged(file.read_bytes(), cuts))
    for read in (
        lambda path: read_factorial54(path, prompts={}, models={}), read_score_table, read_provenance
    ):  # fmt: skip
        refused(lambda read=read: read(file), naming=file.name, kinds=(InputError, TableError))


@pytest.mark.slow
@cases(300, texts=st.lists(hostile, min_size=1, max_size=4), cuts=cuts)
def test_a_score_table_comes_back_whole_or_is_refused_by_name(folder, texts, cuts):
    file = Path(folder / "scores.parquet")
    texts = [storable(text) for text in texts]
    rows = pd.DataFrame(
        {
            "candidate_id": np.arange(len(texts), dtype=np.int32),
            "token": texts,
            "text": texts,
            "kind": "normal",
            "survives": pd.array([None] * len(texts), dtype="boolean"),
            "reward": np.arange(len(texts), dtype=float),
            "certified": False,
        }
    )
    provenance = ScoreProvenance(
        model=texts[0], prompt=texts[-1], prompt_text=texts[0], candidates="vocabulary", candidates_digest="0", mode="ids",
        source="scan",
    )  # fmt: skip
    write_score_table(ScoreTable(provenance, rows), file)
    back = read_score_table(file)
    assert back.provenance == provenance == read_provenance(file)
    assert back.rows["text"].tolist() == back.rows["token"].tolist() == texts
    if cuts:
        file.write_bytes(damaged(file.read_bytes(), cuts))
        refused(lambda: read_score_table(file), naming=file.name, kinds=TableError)
