"""Files of scores, items, tokens, words, comparisons, explanations and manifests, plausible,
damaged or neither: they are read, or refused by their name."""

import copy
import csv
import gzip
import json
import logging
import math
from dataclasses import asdict

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzzing import cases, cuts, damaged, hostile, refused, values, whole
from hypothesis import example
from hypothesis import strategies as st

from artifacts import OUTCOME
from experiments.inherited_values.word_categories import read_dictionary
from pessimal.errors import ConfigError, InputError, TableError
from pessimal.explaining.views import from_json, to_json, views
from pessimal.scoring.candidates import read_items
from pessimal.searching.allowed import allowed_tokens
from pessimal.searching.spec import Filter
from pessimal.tables.comparisons import (
    Comparison,
    Turn,
    _join_ratings,
    from_row,
    read_jsonl,
    read_rows,
)
from pessimal.tables.published import read_eloeverything, read_factorial54, read_vocabulary
from pessimal.tables.score_table import (
    ScoreProvenance,
    ScoreTable,
    read_provenance,
    read_score_table,
    write_score_table,
)
from pessimal.tables.word_lists import read_frequencies, read_lexicon
from pessimal.texts import storable
from pessimal.tracking.registry import MANIFEST, Registry, read_manifest

READERS = {
    "eloeverything": lambda path: read_eloeverything(path, prompt="greatest"),
    "vocabulary": read_vocabulary,
    "items": lambda path: read_items(path, name="things"),
    "dictionary": read_dictionary,
    "lexicon": lambda path: read_lexicon(str(path)),
    "frequencies": lambda path: read_frequencies(str(path)),
}
HEADINGS = {
    "eloeverything": ["elo_rank", "elo_score", "name", "elo_matches", "lab/model"],
    "vocabulary": ["token_id", "token_name", "token_decoded", "greatest"],
    "items": ["name", "elo_score", "elo_matches"],
    "dictionary": ["category", "word"],
    "lexicon": ["word", "valence"],
    "frequencies": ["word", "per_million"],
}
TEXTS = {"name", "token_name", "token_decoded", "category", "word"}
cells = st.one_of(st.sampled_from(["0", "1", "2", "1.5", "-3", "love", "hate", "safe*"]), whole)
quoted = cells.map(lambda text: '"' + text.replace('"', '""') + '"')


def rows_of(kind: str) -> st.SearchStrategy:
    """Rows of a kind of table, as they should be but for their texts, or of anything."""
    row = [
        st.tuples(*(quoted if name in TEXTS else st.just(str(n)) for name in HEADINGS[kind]))
        for n in range(3)
    ]
    heading = st.lists(st.one_of(st.sampled_from(HEADINGS[kind]), cells), max_size=5)
    anything = st.lists(st.lists(st.one_of(cells, quoted), max_size=6), max_size=4)
    sound = st.tuples(st.just(kind), st.just(HEADINGS[kind]), st.tuples(*row))
    return st.one_of(
        sound, st.tuples(st.just(kind), st.one_of(st.just(HEADINGS[kind]), heading), anything)
    )


@pytest.mark.slow
@cases(
    300, table=st.sampled_from(sorted(HEADINGS)).flatmap(rows_of), cuts=st.one_of(st.just([]), cuts)
)
def test_a_table_of_text_is_read_or_refused_by_name(folder, table, cuts):
    kind, heading, rows = table
    file = folder / f"some-{kind}.csv"
    file.write_bytes(damaged("\n".join(",".join(line) for line in [heading, *rows]).encode(), cuts))
    found, wrong = refused(
        lambda: READERS[kind](file), naming=file.name, kinds=(InputError, TableError)
    )
    if not wrong and kind in ("eloeverything", "vocabulary"):
        assert all(np.isfinite(one.rows["reward"]).all() for one in found)


sound = st.lists(
    st.tuples(whole, st.floats(0.5, 1e6)), min_size=1, max_size=5, unique_by=lambda row: row[0]
)


@cases(100, rows=sound)
def test_what_is_in_a_cell_arrives_as_it_is(folder, rows):
    file = folder / "sound.csv"
    names = [name for name, _ in rows]
    with file.open("w", encoding="utf-8", newline="") as sink:
        writer = csv.writer(sink, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow(["token_id", "token_name", "token_decoded", "best"])
        writer.writerows(
            [number, name, name, repr(reward)] for number, (name, reward) in enumerate(rows)
        )
    (table,) = read_vocabulary(file, model="m")
    assert table.rows["text"].tolist() == table.rows["token"].tolist() == names
    assert table.rows["reward"].tolist() == [reward for _, reward in rows]


VOCABULARY = pd.DataFrame(
    {
        "candidate_id": range(6),
        "token": ["love", "Ġlove", "##ing", "<unk>", "7", ""],
        "text": ["love", " love", "ing", "<unk>", "7", "\\ud83d"],
        "kind": ["normal", "normal", "normal", "special", "normal", "byte"],
    }
)
known = [
    "%",
    "1\tgood",
    "love\t1",
    "hate 2",
    "x\t1 2 3",
    "love",
    " love",
    "id:3",
    "id:99",
    "##ing",
    "7",
]


@cases(
    200,
    lines=st.lists(st.one_of(st.sampled_from(known), cells), max_size=6),
    suffix=st.sampled_from([".txt", ".dic", ".csv", ""]),
    filters=st.lists(st.sampled_from(list(Filter)), max_size=2),
    cuts=cuts,
)
@example(lines=["%", "²\tgood", "%"], suffix=".dic", filters=[], cuts=[])
@example(lines=["%", "9" * 5000 + "\tgood", "%"], suffix=".dic", filters=[], cuts=[])
@example(lines=["id:" + "9" * 5000], suffix=".txt", filters=[], cuts=[])
def test_a_list_of_lines_is_read_or_refused_by_name(folder, lines, suffix, filters, cuts):
    file = folder / f"lines{suffix}"
    file.write_bytes(damaged("\n".join(lines).encode(), cuts))
    for read in (read_dictionary, READERS["items"]):
        found, _ = refused(lambda read=read: read(file), naming=file.name, kinds=InputError)
        assert found is not None
    mask, wrong = refused(
        lambda: allowed_tokens(VOCABULARY, filters, size=8, listed=file),
        naming=file.name,
        kinds=(InputError, ConfigError),
    )
    assert wrong or (mask.any() and not mask[6:].any()), "beyond them is padding of the embedding"


columns = st.one_of(
    *(
        st.lists(cell, min_size=2, max_size=2)
        for cell in (
            st.one_of(st.none(), whole),
            st.one_of(st.none(), st.floats()),
            st.integers(-(2**62), 2**62),
            st.booleans(),
            st.lists(st.integers(0, 3), max_size=2),
            st.lists(whole, max_size=2),
            st.binary(max_size=3),
        )
    )
)
PARQUET = ["response", "candidate_id", "text", "reward", "prompt", "chosen", "rejected"]
metadata = st.one_of(
    st.none(),
    st.binary(max_size=8),
    st.sampled_from([b"{}", b"[]", b"null", b'{"format": 1}', b'{"format": 1, "identity": 3}']),
)


@cases(
    200,
    frame=st.dictionaries(st.one_of(st.sampled_from(PARQUET), whole), columns, max_size=4),
    metadata=metadata,
    cuts=cuts,
)
@example(frame={"response": ["a", "b"], "best": [[0], [1]]}, metadata=None, cuts=[])
@example(frame={"response": [b"\x80", b"a"], "best": [0.5, 1.0]}, metadata=None, cuts=[])
@example(frame={}, metadata=b"\x80", cuts=[])
def test_a_parquet_file_is_read_or_refused_by_name(folder, frame, metadata, cuts):
    file = folder / "words_rewards_lab_model.parquet"
    table = pa.table(frame)
    if metadata is not None:
        table = table.replace_schema_metadata({b"pessimal.score_table": metadata})
    pq.write_table(table, file)
    if len(cuts) > 1:
        file.write_bytes(damaged(file.read_bytes(), cuts))
    for read in (read_factorial54, read_score_table, read_provenance, read_jsonl):
        found, _ = refused(
            lambda read=read: read(file), naming=file.name, kinds=(InputError, TableError)
        )
        assert found is not None


@pytest.mark.slow
@cases(100, texts=st.lists(hostile, min_size=1, max_size=4), cuts=cuts)
def test_a_score_table_comes_back_whole_or_is_refused_by_name(folder, texts, cuts):
    file, n = folder / "scores.parquet", len(texts)
    texts = [storable(text) for text in texts]
    rows = pd.DataFrame(
        {
            "candidate_id": np.arange(n, dtype=np.int32),
            "token": texts,
            "text": texts,
            "kind": "normal",
            "survives": pd.array([None] * n, dtype="boolean"),
            "reward": np.arange(n, dtype=float),
            "certified": False,
        }
    )
    provenance = ScoreProvenance(
        model=texts[0],
        prompt=texts[-1],
        prompt_text=texts[0],
        candidates="vocabulary",
        candidates_digest="0",
        mode="ids",
        source="scan",
    )
    write_score_table(ScoreTable(provenance, rows), file)
    back = read_score_table(file)
    assert back.provenance == provenance == read_provenance(file)
    assert back.rows["text"].tolist() == back.rows["token"].tolist() == texts
    if cuts:
        file.write_bytes(damaged(file.read_bytes(), cuts))
        refused(lambda: read_score_table(file), naming=file.name, kinds=TableError)


# Comparisons.

turn = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system"]), "content": hostile}
)
transcripts = hostile.map("\n\nHuman: a\n\nAssistant: {}".format)
said = st.one_of(
    hostile,
    st.lists(turn, max_size=3),
    transcripts,
    st.lists(hostile, min_size=2, max_size=2),
    values,
)
FIELDS = [
    "prompt",
    "responses",
    "preferred",
    "key",
    "chosen",
    "rejected",
    "response",
    "helpfulness",
    "response_1",
    "response_2",
    "preference_strength",
    "label",
    "id",
    "category",
]
rows = st.one_of(
    st.fixed_dictionaries(
        {"prompt": hostile, "responses": st.lists(hostile, min_size=2, max_size=2)}
    ),
    st.fixed_dictionaries({"prompt": hostile, "chosen": hostile, "rejected": hostile}),
    st.dictionaries(st.sampled_from(FIELDS), st.one_of(said, st.integers(-1, 2))),
    values,
)


def storable_everywhere(comparison: Comparison) -> bool:
    """Every text of it can stand in a UTF-8 file."""
    texts = [
        comparison.key,
        comparison.category or "",
        *comparison.responses,
        *(turn.content for turn in comparison.turns),
    ]
    return bool("".join(texts).encode()) and comparison.preferred in (0, 1, None)


@cases(300, row=rows)
@example(row={"prompt": "a", "responses": ["\ud83d", "b"], "preferred": True})
@example(row={"prompt": "a", "responses": ["x", "b"], "preferred": 1e400})
@example(row={"prompt": [{"role": ["user"], "content": "x"}], "responses": ["x", "b"]})
@example(row={"prompt": "a", "responses": {"x": 1, "b": 2}})
def test_a_row_is_a_comparison_or_is_refused_by_its_place(row):
    found, wrong = refused(
        lambda: from_row(row, where="file, line 3", key="file-3"),
        naming="file, line 3",
        kinds=InputError,
    )
    assert wrong or storable_everywhere(found)


hub = {
    "prompt": st.one_of(st.sampled_from(["p", "p\n<extra_id_1>Assistant\nq"]), said),
    "response": said,
    "helpfulness": st.one_of(st.integers(0, 4), st.floats(), values),
    "chosen": said,
    "rejected": said,
}
sound_hub = {
    "prompt": st.sampled_from(["p", "q"]),
    "response": hostile,
    "helpfulness": st.integers(0, 4),
    "chosen": transcripts,
    "rejected": transcripts,
}
hub_rows = st.one_of(
    st.lists(st.fixed_dictionaries({}, optional=hub), max_size=4),
    st.lists(st.fixed_dictionaries(sound_hub), max_size=4),
)


@cases(160, given=hub_rows)
def test_rows_of_the_hub_are_converted_or_refused_by_their_place(given):
    broken = []
    comparisons = read_rows(enumerate(given), where="hub, row", name="hub", broken=broken)
    assert all(map(storable_everywhere, comparisons))
    assert all(reason.startswith("hub, row ") for reason in broken)
    # Two ratings of one prompt are one row; one of lists is several comparisons, hub-ROW-i-j.
    read = {comparison.key.split("-")[1] for comparison in comparisons}
    assert len(read) + len(broken) == len(_join_ratings(enumerate(given))), "every row is counted"


@cases(
    130,
    lines=st.lists(st.one_of(rows.map(json.dumps), hostile), max_size=3),
    cuts=cuts,
    suffix=st.sampled_from([".jsonl", ".jsonl.gz", ".parquet", ".json", ".txt"]),
)
@example(lines=["[" * 100_000], suffix=".jsonl", cuts=[])
@example(lines=["9" * 5000], suffix=".jsonl", cuts=[])
def test_a_file_of_comparisons_is_read_or_refused_by_name(folder, lines, suffix, cuts):
    file = folder / f"pairs{suffix}"
    content = "\n".join(lines)
    content = f"[{','.join(lines)}]" if suffix == ".json" else content
    content = content.encode("utf-8", "surrogatepass")
    content = gzip.compress(content, mtime=0) if suffix.endswith("gz") else content
    file.write_bytes(damaged(content, cuts))
    found, wrong = refused(lambda: read_jsonl(file), naming=file.name, kinds=InputError)
    assert wrong or found


# Explanations and manifests.

COMPARISON = Comparison(
    "first", (Turn("user", "I feel sick."),), ("Drink water.", "Do nothing."), preferred=1
)
DOCUMENT = json.loads(to_json(views(pd.DataFrame([OUTCOME]), {"first": COMPARISON})))


def places(node: object, at: tuple = ()) -> list[tuple]:
    """Where a value stands in a JSON document, for every value."""
    inner = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    return [at, *(place for key, value in inner for place in places(value, (*at, key)))]


@cases(
    160,
    place=st.sampled_from(places(DOCUMENT)),
    value=values,
    cut=st.one_of(st.none(), st.integers(0, 600)),
)
def test_an_explanation_is_read_as_written_or_refused(place, value, cut):
    holder = document = {"it": copy.deepcopy(DOCUMENT)}
    for key in ("it", *place)[:-1]:
        holder = holder[key]
    holder[("it", *place)[-1]] = value
    text = json.dumps(document["it"])[:cut]
    found, wrong = refused(
        lambda: from_json(text), naming="This is not a file of", kinds=InputError
    )
    if not wrong:
        assert json.loads(json.dumps([asdict(view) for view in found])) == json.loads(text)["views"]
        assert all(math.isfinite(view.margin) for view in found)


@pytest.fixture(scope="module")
def registry(folder):
    logging.disable(
        logging.WARNING
    )  # one warning a damaged manifest is what is wanted, not on the screen
    made = Registry(folder / "registry")
    for name in ("one", "two"):
        made.publish(
            "thing", name, lambda staging: (staging / "a.txt").write_text("a"), summary={"n": 1}
        )
    yield made
    logging.disable(logging.NOTSET)


MEMBERS = ["type", "name", "version", "files", "key", "summary", "created"]


@cases(
    100,
    damage=st.one_of(st.binary(max_size=20), values, st.tuples(st.sampled_from(MEMBERS), values)),
)
@example(damage=b"9" * 5000)
@example(damage=b"[" * 100_000)
def test_a_damaged_manifest_hides_nothing_but_itself(registry, damage):
    folder = registry.root / "thing" / "one" / "v0"
    sound = (folder / MANIFEST).read_bytes()
    if isinstance(damage, tuple):
        damage = json.loads(sound) | dict([damage])
    try:
        (folder / MANIFEST).write_bytes(
            damage if isinstance(damage, bytes) else json.dumps(damage).encode()
        )
        refused(lambda: read_manifest(folder), naming="manifest", kinds=InputError)
        assert "two" in [manifest.name for _, manifest in registry.manifests()]
    finally:
        (folder / MANIFEST).write_bytes(sound)
