"""Rows and files of comparisons, explanations and manifests, plausible, damaged or neither: read, or refused in words."""

import copy
import gzip
import json
import logging
import math
from dataclasses import asdict

import pandas as pd
import pyarrow as pa
import pytest
from fuzzing import HOSTILE, cases, hostile, refused, values
from hypothesis import example
from hypothesis import strategies as st

from pessimal.errors import InputError
from pessimal.explain.comparison import Comparison, Turn, from_row, helpsteer2, hh_rlhf, read_jsonl, usable
from pessimal.report.edits import from_json, to_json, views
from pessimal.tracking.registry import INDEX, MANIFEST, Registry, read_manifest

messages = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "system"]), "content": hostile}), max_size=3
)  # fmt: skip
said = st.one_of(
    hostile, messages, hostile.map("\n\nHuman: a\n\nAssistant: {}".format), st.lists(hostile, min_size=2, max_size=2)
)  # fmt: skip
rows = st.one_of(
    st.dictionaries(
        st.sampled_from(["prompt", "responses", "preferred", "key", "chosen", "rejected", "response", "helpfulness"]),
        st.one_of(said, said, st.integers(-1, 2), values),
    ),
    values,
)  # fmt: skip


plausible = st.one_of(
    st.fixed_dictionaries({"prompt": hostile, "responses": st.lists(hostile, min_size=2, max_size=2)}),
    st.fixed_dictionaries({"prompt": hostile, "chosen": hostile, "rejected": hostile}),
)


def storable_everywhere(comparison: Comparison) -> None:
    """Every text of it can stand in a UTF-8 file."""
    texts = [comparison.key, *comparison.responses, *(turn.content for turn in comparison.turns)]
    assert all(isinstance(text, str) for text in texts)
    "".join(texts).encode()
    assert comparison.turns[-1].role in ("user", "assistant", "system")
    assert comparison.preferred in (0, 1, None)


@cases(900, row=st.one_of(rows, plausible))
@example(row={"prompt": "a", "responses": ["\ud83d", "b"], "preferred": True})
@example(row={"prompt": "a", "responses": ["x", "b"], "preferred": 1e400})
@example(row={"prompt": [{"role": ["user"], "content": "x"}], "responses": ["x", "b"]})
@example(row={"prompt": "a", "responses": {"x": 1, "b": 2}})
def test_a_row_is_a_comparison_or_is_refused_by_its_place(row):
    found, wrong = refused(
        lambda: from_row(row, where="file, line 3", key="file-3"), naming="file, line 3", kinds=InputError
    )
    if not wrong:
        storable_everywhere(found)
        assert len(usable([found]).comparisons) in (0, 1)


hub_rows = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "prompt": st.one_of(st.sampled_from(["p", "p\n<extra_id_1>Assistant\nq"]), hostile, said, values),
            "response": st.one_of(hostile, values),
            "helpfulness": st.one_of(st.integers(0, 4), st.floats(), values),
            "chosen": st.one_of(said, values),
            "rejected": st.one_of(said, values),
        },
    ),
    max_size=4,
)


transcripts = hostile.map("\n\nHuman: a\n\nAssistant: {}".format)
plausible_of_the_hub = st.lists(
    st.fixed_dictionaries(
        {
            "prompt": st.sampled_from(["p", "q"]),
            "response": hostile,
            "helpfulness": st.integers(0, 4),
            "chosen": transcripts,
            "rejected": transcripts,
        }
    ),
    max_size=4,
)


@cases(500, given=st.one_of(hub_rows, plausible_of_the_hub), convert=st.sampled_from([helpsteer2, hh_rlhf]))
def test_rows_of_the_hub_are_converted_or_refused_by_their_place(given, convert):
    found, wrong = refused(lambda: convert(given, key="hub"), naming="hub, row ", kinds=InputError)
    if not wrong:
        comparisons, misfits = found
        for comparison in comparisons:
            storable_everywhere(comparison)
        rows_of_one = 2 if convert is helpsteer2 else 1
        assert len(comparisons) * rows_of_one + misfits == len(given), "every row is counted"


@cases(
    500,
    lines=st.lists(
        st.one_of(plausible.map(json.dumps), plausible.map(json.dumps), rows.map(json.dumps), hostile),
        max_size=3,
    ),
    suffix=st.sampled_from([".jsonl", ".jsonl.gz", ".parquet", ".txt"]),
    cut=st.integers(0, 60),
    put=st.binary(max_size=2),
)
@example(lines=["[" * 100_000], suffix=".jsonl", cut=0, put=b"")
@example(lines=["9" * 5000], suffix=".jsonl", cut=0, put=b"")
def test_a_file_of_comparisons_is_read_or_refused_by_name(folder, lines, suffix, cut, put):
    file = folder / f"pairs{suffix}"
    content = "\n".join(lines).encode("utf-8", "surrogatepass")
    content = gzip.compress(content, mtime=0) if suffix.endswith("gz") else content
    file.write_bytes(content[:cut] + put + content[cut + len(put) :] if put else content)
    found, wrong = refused(lambda: read_jsonl(file), naming=file.name, kinds=InputError)
    assert wrong or found


cells = st.one_of(hostile.map(lambda text: text.encode("utf-8", "replace").decode()), st.none())


@cases(
    150,
    columns=st.dictionaries(
        st.sampled_from(["prompt", "chosen", "rejected", "key"]),
        st.one_of(
            st.lists(cells, min_size=2, max_size=2),
            st.lists(st.lists(cells, max_size=2), min_size=2, max_size=2),
            st.lists(st.integers(0, 2**60), min_size=2, max_size=2),
            st.lists(st.binary(max_size=4), min_size=2, max_size=2),
        ),
        min_size=1,
    ),
)
def test_a_parquet_file_of_comparisons_is_read_or_refused_by_name(folder, columns):
    file = folder / "pairs.parquet"
    pa.parquet.write_table(pa.table(columns), file)
    refused(lambda: read_jsonl(file), naming=file.name, kinds=InputError)


COMPARISON = Comparison(
    "first", (Turn("user", "I feel sick."),), ("Drink water.", "Do nothing."), preferred=1
)
OUTCOME = {
    "model": "m", "comparison": "first", "response": 0, "side": "chosen", "attribute": "clarity", "direction": "worse",
    "seed": 0, "perturber": "rules", "note": "", "status": "changed", "original": "Drink water.", "edited": "Drink wine.",
    "reward": 3.0, "margin": 2.0, "new_margin": -0.5, "change_in_sd": -1.0, "outcome": "CF",
}  # fmt: skip
DOCUMENT = json.loads(to_json(views(pd.DataFrame([OUTCOME]), {"first": COMPARISON})))


def places(node: object, at: tuple = ()) -> list[tuple]:
    """Where a value stands in a JSON document, for every value."""
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [at, *(place for key, value in inner for place in places(value, (*at, key)))]


@cases(
    500, place=st.sampled_from(places(DOCUMENT)), value=values, cut=st.one_of(st.none(), st.integers(0, 600))
)
def test_an_explanation_is_read_as_written_or_refused(place, value, cut):
    document = {"it": copy.deepcopy(DOCUMENT)}
    holder = document
    for key in ("it", *place)[:-1]:
        holder = holder[key]
    holder[("it", *place)[-1]] = value
    text = json.dumps(document["it"])[:cut]
    found, wrong = refused(lambda: from_json(text), naming="This is not a file of", kinds=InputError)
    if not wrong:
        assert json.loads(json.dumps([asdict(view) for view in found])) == json.loads(text)["views"]
        assert all(math.isfinite(view.margin) for view in found)


@pytest.fixture(scope="module")
def registry(folder):
    logging.disable(logging.WARNING)  # one warning a damaged manifest is what is wanted, not on the screen
    made = Registry(folder / "registry")
    for name in ("one", "two"):
        made.publish("thing", name, lambda staging: (staging / "a.txt").write_text("a"), summary={"n": 1})
    yield made
    logging.disable(logging.NOTSET)


damages = st.one_of(
    st.binary(max_size=20),
    hostile.map(lambda text: text.encode("utf-8", "surrogatepass")),
    values.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(st.sampled_from(["type", "name", "version", "files", "summary", "created"]), values).map(
        lambda fields: json.dumps(fields).encode()
    ),
    st.tuples(st.sampled_from(["type", "name", "version", "files", "key", "summary"]), values),
)


@cases(300, damage=damages)
@example(damage=b"9" * 5000)
@example(damage=b"[" * 100_000)
def test_a_damaged_manifest_hides_nothing_but_itself(registry, damage):
    folder = registry.root / "thing" / "one" / "v0"
    sound, index = (folder / MANIFEST).read_bytes(), (registry.root / INDEX).read_bytes()
    if isinstance(damage, tuple):
        damage = json.dumps(json.loads(sound) | dict([damage])).encode()
    try:
        (folder / MANIFEST).write_bytes(damage)
        (registry.root / INDEX).unlink()
        refused(lambda: read_manifest(folder), naming="manifest", kinds=InputError)
        assert "two" in [manifest.name for _, manifest in registry.manifests()]
    finally:
        (folder / MANIFEST).write_bytes(sound)
        (registry.root / INDEX).write_bytes(index)


@cases(300, damage=st.one_of(st.binary(max_size=30), st.sampled_from(HOSTILE).map(lambda t: t.encode("utf-8", "replace"))),
       place=st.integers(0, 2000))  # fmt: skip
def test_a_damaged_index_is_made_again(registry, damage, place):
    file = registry.root / INDEX
    sound = file.read_bytes()
    place %= len(sound)
    file.write_bytes(sound[:place] + damage + sound[place + 7 :])
    assert [manifest.name for _, manifest in registry.manifests()] == ["one", "two"]
    assert file.read_bytes() == sound
