"""`scan slot=`: tokens in real answers, from files and the embedded comparisons, to what they
add."""

import json

import pandas as pd
import pytest

import pessimal
from pessimal.conversation import Context, Turn
from pessimal.errors import ConfigError, InputError
from pessimal.scoring.contexts import read_contexts, sample
from pessimal.tables import read_score_table

pytestmark = pytest.mark.usefixtures("undrawn")

QUICK = ("tracking=off", "trainer.threads=1", "progress=false")
ROWS = [
    {"prompt": "Why?", "answer": "love is good", "rejected": "hate", "key": "one"},
    {
        "messages": [
            {"role": "system", "content": "one word"},
            {"role": "user", "content": "What is war?"},
            {"role": "tool", "content": "evil"},
            {"role": "assistant", "content": "It is evil."},
        ]
    },
    {"prompt": "Who?", "chosen": "the kind", "rejected": "the cruel"},
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)) + "\n\n")
    return path


def test_a_files_rows(file):
    found = read_contexts(file, "after")
    assert list(found) == ["one", "answers-2", "answers-3"]
    turns = (Turn("user", "Why?"), Turn("assistant", "love is good"))
    assert found["one"] == Context(turns, 1, 12, "hate")
    assert [turn.role for turn in found["answers-2"].turns] == [
        "system",
        "user",
        "tool",
        "assistant",
    ]
    assert found["answers-3"].rejected == "the cruel"
    assert read_contexts(file, "before")["one"].at == 0
    few = sample(found, 2, seed=0)
    assert len(few) == 2
    assert sample(found, 1, seed=0).items() <= few.items()


def test_a_mark_says_where(tmp_path):
    path = tmp_path / "marked.jsonl"
    rows = [{"role": "user", "content": "Is{slot} it so?"}, {"role": "assistant", "content": "No"}]
    path.write_text(json.dumps({"messages": rows}))
    [one] = read_contexts(path, None).values()
    assert (one.slot, one.turn, one.at) == ("inside", 0, 2)
    assert one.filled("!")[0].content == "Is! it so?"


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("{", "line 1 is not JSON"),
        ('{"prompt": "a", "answer": ""}', "does not end in an answer"),
        ('{"messages": [{"role": "bot", "content": "x"}]}', "is no message"),
    ],
)
def test_rows_that_are_none(tmp_path, row, says):
    path = tmp_path / "wrong.jsonl"
    path.write_text(row)
    with pytest.raises(InputError, match=says):
        read_contexts(path, "after")


def test_a_row_without_a_mark_is_refused_where_no_slot_is_given(file):
    with pytest.raises(InputError, match="slot=after"):
        read_contexts(file, None)


def test_from_the_command_to_what_a_token_adds(command, tiny_checkpoint, file):
    scan = (
        "scan",
        "model=auto",
        f"model.path={tiny_checkpoint}",
        "model.name=tiny",
        f"contexts={file}",
        *QUICK,
    )
    code, out, err = command(*scan, "slot=after")
    assert code == 0, err
    assert "candidates.most=0" not in err, "the whole vocabulary is smaller than 5,000"
    assert len(out.split()) == 3
    table = read_score_table(out.split()[0])
    assert table.provenance.slot["where"] == "after"
    assert table.provenance.candidates == "vocabulary"
    options = {"kind": "head", "name": "tiny", "progress": False}
    tables = pessimal.scan(tiny_checkpoint, contexts=file, slot="after", **options)
    assert [one.provenance.key() for one in tables] == [
        read_score_table(folder).provenance.key() for folder in out.split()
    ]
    assert tables[0].rows["reward"].equals(table.rows["reward"])
    [few, *_] = pessimal.scan(tiny_checkpoint, contexts=file, slot="after", most=20, **options)
    assert 20 <= len(few.rows) < len(table.rows)
    with pytest.raises(ConfigError, match="leave out prompts"):
        pessimal.scan(tiny_checkpoint, "greatest", contexts=file, slot="after", **options)
    with pytest.raises(ConfigError, match="slot='behind'"):
        pessimal.scan(tiny_checkpoint, contexts=file, slot="behind", **options)
    code, again, err = command(*scan, "slot=after")
    assert (code, again) == (0, out)
    assert "scanned already" in err
    code, _, err = command(
        *scan, "slot=after", "candidates=master_keys", "mode=text", "n_contexts=2"
    )
    assert code == 0, err
    code, out, err = command("compare", "models=[tiny]", "analyses=[]", *QUICK[:1])
    assert code == 0, err
    assert "comparing 1 model, 5 tables" in err
    found = pd.read_parquet(f"{out.split()[-1]}/tables/additions.parquet")
    assert set(found["n"]) == {3}
    keys = pd.read_parquet(f"{out.split()[-1]}/tables/additions_keys.parquet")
    assert len(keys) == 10
    assert set(keys["n"]) == {2}


def test_before_answers_the_gradient_chooses_and_the_lower_end_says_nothing(
    command, tiny_checkpoint, file, monkeypatch
):
    monkeypatch.setattr("pessimal.verbs.scan.SCREENED", 30)
    model = ("model=auto", f"model.path={tiny_checkpoint}", "model.name=tiny")
    code, out, err = command("scan", *model, f"contexts={file}", "slot=before", *QUICK)
    assert code == 0, err
    assert "candidates.most=0" in err
    tables = [read_score_table(folder) for folder in out.split()]
    assert {one.provenance.candidates for one in tables} == {"screened30"}
    assert len({tuple(one.rows["candidate_id"]) for one in tables}) == 1
    assert 30 <= len(tables[0].rows) < 40
    code, out, err = command("compare", "models=[tiny]", "analyses=[]", *QUICK[:1])
    assert code == 0, err
    found = pd.read_parquet(f"{out.split()[-1]}/tables/additions.parquet")
    assert "most" in set(found["at"])
    assert "least" not in set(found["at"])
