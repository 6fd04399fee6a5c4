"""What is scored: every id, told apart by kind, and what the round trip through text does to it."""

import numpy as np
import pandas as pd
import pytest

from pessimal.errors import InputError
from pessimal.models.frame import find_frame
from pessimal.scoring.candidates import batches, inputs, items, vocabulary
from pessimal.scoring.mode import Mode


def test_vocabulary_is_every_id_once(model, words):
    assert words.rows["candidate_id"].tolist() == list(range(model.embedding_rows))
    kinds = words.rows.set_index("token")["kind"]
    assert kinds["<|bos|>"] == "special"
    assert kinds["<|reserved_special_token_0|>"] == "unused"
    assert kinds["love"] == "normal"
    assert (kinds == "byte").sum() > 100


def test_ids_beyond_the_embedding_are_left_out(model):
    assert len(vocabulary(model.tokenizer, size=50).rows) == 50


def test_ids_mode_puts_exactly_the_id_into_the_slot(model, frame, words):
    made = inputs(model.tokenizer, frame, words, Mode.ids)
    assert made.responses == [[i] for i in words.rows["candidate_id"]]
    assert made.framed.all()


def test_text_mode_goes_through_the_template(model, frame, words):
    made = inputs(model.tokenizer, frame, words, Mode.text)
    row = {text: i for i, text in enumerate(words.rows["text"])}
    # The template trims: ' love' is typed as 'love', a lone space as nothing.
    assert (
        made.responses[row[" love"]]
        == made.responses[row["love"]]
        == [words.rows["candidate_id"][row["love"]]]
    )
    assert made.responses[row[" "]] == []
    assert made.survives[row["love"]]
    assert not made.survives[row[" love"]]
    assert not made.survives[row[" "]]


def test_paper_mode_scores_the_text_after_two_beginning_tokens(model, frame, words):
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model.folder)
    # Asked for special tokens, it puts a beginning token before the one that the template wrote, as Llama 3's does.
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", tokenizer.bos_token_id)]
    )
    doubled = find_frame(tokenizer, frame.prompt, double_bos=True)
    assert doubled.prefix[:2] == (tokenizer.bos_token_id, tokenizer.bos_token_id)
    made = inputs(tokenizer, doubled, words, Mode.paper)
    assert made.framed.all()
    assert made.responses == inputs(tokenizer, frame, words, Mode.text).responses


def test_survival_is_what_the_round_trip_says(model, frame, words):
    made = inputs(model.tokenizer, frame, words, Mode.ids)
    tokenizer = model.tokenizer
    for i, text, survives in zip(words.rows["candidate_id"], words.rows["text"], made.survives, strict=True):
        conversation = [{"role": "user", "content": frame.prompt}, {"role": "assistant", "content": text}]
        ids = tokenizer.apply_chat_template(conversation, tokenize=True, return_dict=False)
        assert survives == (ids == frame.around([i]))


def test_batches_hold_every_row_once_and_one_length_each(model, frame, words):
    made = inputs(model.tokenizer, frame, words, Mode.text)
    plan = batches(made, size=16)
    rows = np.concatenate([rows for _, rows in plan])
    assert sorted(rows) == list(range(len(words.rows)))
    for framed, rows in plan:
        assert len(rows) <= 16
        assert len({len(made.responses[i]) for i in rows}) == 1
        assert {bool(made.framed[i]) for i in rows} == {framed}


def test_items_from_text_and_table(tmp_path):
    (tmp_path / "list.txt").write_text("null\nNA\n\nlove and peace\n")
    assert items(tmp_path / "list.txt", name="mine").rows["text"].tolist() == ["null", "NA", "love and peace"]
    pd.DataFrame({"name": ["nan", "b"], "elo_score": [1500, 1400.5], "elo_matches": [3, 4]}).to_csv(
        tmp_path / "t.csv", index=False
    )
    rated = items(tmp_path / "t.csv", name="rated").rows
    assert rated["text"].tolist() == ["nan", "b"]
    assert rated["elo"].tolist() == [1500, 1400.5]
    assert rated["elo_matches"].tolist() == [3, 4]


def test_items_are_taken_verbatim(tmp_path):
    (tmp_path / "t.csv").write_text("\ufeffname\n007\n1e5\nTrue\n", encoding="utf-8")
    assert items(tmp_path / "t.csv", name="mine").rows["text"].tolist() == ["007", "1e5", "True"]
    (tmp_path / "t.txt").write_text("\ufeffa\u2028b\nc\x0bd\n", encoding="utf-8")
    assert items(tmp_path / "t.txt", name="mine").rows["text"].tolist() == ["a\u2028b", "c\x0bd"]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.txt", "", "no items"),
        ("a.txt", "twice\ntwice\n", "'twice' more than once"),
        ("a.csv", "word\nlove\n", "a column `name`"),
        ("a.csv", "", "cannot be read"),
        ("a.csv", "name,elo_score\na,high\n", "'high' is not a number"),
    ],
)
def test_bad_lists_are_refused(tmp_path, name, content, told):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=told):
        items(tmp_path / name, name="mine")
