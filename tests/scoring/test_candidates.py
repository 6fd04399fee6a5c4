"""What is scored: every id, message apart by kind, and what the round trip through text does to
it."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from pessimal.conversation import Context, Turn
from pessimal.errors import InputError
from pessimal.rewards.formats import Templated
from pessimal.rewards.frame import Frame, slot_ids
from pessimal.rewards.spec import Mode
from pessimal.scoring import candidates as module
from pessimal.scoring.candidates import Candidates, Inputs, batches, inputs, read_items, tokens_for


def test_vocabulary_is_every_id_once(model, words):
    assert words.rows["candidate_id"].tolist() == list(range(model.embedding_rows))
    kinds = words.rows.set_index("token")["kind"]
    assert kinds["<|bos|>"] == "special"
    assert kinds["<|reserved_special_token_0|>"] == "unused"
    assert kinds["love"] == "normal"
    assert (kinds == "byte").sum() > 100


def test_ids_mode_puts_exactly_the_id_into_the_slot(model, frame, words):
    made = inputs(Templated(model.tokenizer), frame, words, Mode.ids)
    assert [made.ids(row) for row in range(len(made))] == [
        frame.around([i]) for i in words.rows["candidate_id"]
    ]
    assert (made.shared == len(frame.prefix)).all(), (
        "the prefix is held once, and nothing of it per candidate"
    )


def test_text_mode_goes_through_the_template(model, frame, words):
    made = inputs(Templated(model.tokenizer), frame, words, Mode.text)
    row = {text: i for i, text in enumerate(words.rows["text"])}
    # The template trims: ' love' is typed as 'love', a lone space as nothing.
    love = frame.around([words.rows["candidate_id"][row["love"]]])
    assert made.ids(row[" love"]) == made.ids(row["love"]) == love
    assert made.ids(row[" "]) == frame.around([])
    assert made.survives[row["love"]]
    assert not made.survives[row[" love"]]
    assert not made.survives[row[" "]]


@pytest.mark.parametrize("at_once", [7])
def test_text_mode_is_the_tokenizers_own_conversation(model, frame, words, monkeypatch, at_once):
    monkeypatch.setattr("pessimal.scoring.candidates._AT_ONCE", at_once)
    made, by_id = (
        inputs(Templated(model.tokenizer), frame, words, mode) for mode in (Mode.text, Mode.ids)
    )
    for row, text in enumerate(words.rows["text"]):
        conversation = [
            {"role": "user", "content": frame.prompt},
            {"role": "assistant", "content": text},
        ]
        ids = model.tokenizer.apply_chat_template(conversation, tokenize=True, return_dict=False)
        assert made.ids(row) == ids
        assert by_id.survives[row] == made.survives[row] == (ids == frame.around([row]))


def test_text_that_the_template_ties_to_its_surroundings_shares_less_of_the_prefix(
    model, frame, words
):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model.folder)
    tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}{{ m['role'] }} {{ m['content'] }}{% endfor %}"
    )
    before = tokenizer("user Whatassistant ")["input_ids"]  # the last of these is a space
    glued = replace(frame, prompt="What", prefix=(tokenizer.bos_token_id, *before), suffix=())
    made = inputs(Templated(tokenizer), glued, words, Mode.text)
    row = words.rows["text"].tolist().index("love")
    conversation = [{"role": "user", "content": "What"}, {"role": "assistant", "content": "love"}]
    whole = tokenizer.apply_chat_template(conversation, tokenize=True, return_dict=False)
    assert made.shared[row] == len(glued.prefix) - 1, "the space before it became a part of it"
    assert made.ids(row) == whole
    assert not made.survives[row]


def test_paper_mode_scores_the_text_after_two_beginning_tokens(model, frame, words):
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model.folder)
    # Asked for special tokens, it puts a beginning token before the one that the template wrote, as
    # Llama 3's does.
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", tokenizer.bos_token_id)]
    )
    doubled = Templated(tokenizer).frame(frame.prompt, double_bos=True)
    assert doubled.prefix[:2] == (tokenizer.bos_token_id, tokenizer.bos_token_id)
    made = inputs(Templated(tokenizer), doubled, words, Mode.paper)
    single = inputs(Templated(tokenizer), frame, words, Mode.text)
    for row in range(len(words.rows)):
        assert doubled.inside(made.ids(row)) == frame.inside(single.ids(row)) is not None


@pytest.mark.parametrize(("agrees", "n"), [(True, 50), (False, 50 + 377)])
def test_survival_known_from_another_prompt_is_found_anew_where_a_sample_disagrees(
    model, frame, words, monkeypatch, agrees, n
):
    truth, count, inner = (
        inputs(Templated(model.tokenizer), frame, words, Mode.ids).survives,
        [],
        Templated.ids,
    )

    def counting(self, prompt, texts, **options):
        count.append(len(texts))
        return inner(self, prompt, texts, **options)

    monkeypatch.setattr(Templated, "ids", counting)
    monkeypatch.setattr(module, "_SAMPLED", 50)
    other = Templated(model.tokenizer).frame("What is best?")
    known, count[:] = truth if agrees else ~truth, []
    assert (
        inputs(Templated(model.tokenizer), other, words, Mode.ids, prior=known).survives == truth
    ).all()
    assert sum(count) == n


def test_batches_hold_every_row_once_and_one_length_each(model, frame, words):
    made = inputs(Templated(model.tokenizer), frame, words, Mode.text)
    assert len(set(made.lengths)) > 1, "or nothing is tested"
    plan = batches(made, size=16)
    assert sorted(np.concatenate(plan)) == list(range(len(words.rows)))
    some = np.random.default_rng(0).permutation(len(made))[:100]
    parts = [batches(made, size=16, rows=rows) for rows in (some, np.sort(some))]
    assert [rows.tolist() for rows in parts[0]] == [rows.tolist() for rows in parts[1]]
    assert sorted(np.concatenate(parts[0])) == sorted(some)
    for rows in plan:
        assert len(rows) <= 16
        assert len(set(made.lengths[rows])) == 1
        assert len(set(made.shared[rows])) == 1


def test_batches_share_one_start_though_others_are_as_long():
    shared = np.array([5, 3, 5, 3, 4], dtype=np.int32)
    made = Inputs(
        prefix=(1, 2, 3, 4, 5),
        shared=shared,
        rest=np.arange(10, dtype=np.int32),
        ends=2 * np.arange(1, 6),
        survives=None,
    )
    assert [rows.tolist() for rows in batches(made, size=16)] == [[1, 3], [4], [0, 2]]


def test_items_from_text_and_table(tmp_path):
    (tmp_path / "list.txt").write_text("null\nNA\n\nlove and peace\n")
    assert read_items(tmp_path / "list.txt", name="mine").rows["text"].tolist() == [
        "null",
        "NA",
        "love and peace",
    ]
    pd.DataFrame({"name": ["nan", "b"], "elo_score": [1500, 1400.5], "elo_matches": [3, 4]}).to_csv(
        tmp_path / "t.csv", index=False
    )
    rated = read_items(tmp_path / "t.csv", name="rated").rows
    assert rated["text"].tolist() == ["nan", "b"]
    assert rated["elo"].tolist() == [1500, 1400.5]
    assert rated["elo_matches"].tolist() == [3, 4]


def test_the_most_frequent_are_ordinary_tokens_and_special_ones_come_besides():
    kinds = ["special", "unused", "unused", "normal", "byte", "normal", "normal", "special"]
    texts = [f"w{i}" for i in range(len(kinds))]
    rows = pd.DataFrame({"candidate_id": range(8), "token": texts, "text": texts, "kind": kinds})
    some = Candidates("vocabulary", rows).frequent(3, [6])
    assert some.rows["candidate_id"].tolist() == [0, 3, 4, 5, 6, 7]
    assert some.name == "frequent3-1"
    with pytest.raises(InputError, match="no token has the id 8"):
        Candidates("vocabulary", rows).frequent(3, [8])


def test_tokens_of_a_policy_are_texts_for_a_reward_of_texts_each_once_and_not_blank():
    rows = pd.DataFrame({"candidate_id": range(5), "text": ["b", " ", "a", "b", "\n"]})
    reward = SimpleNamespace(can=(), tokenizer=None)
    texts = tokens_for(reward, Candidates("vocabulary", rows), name="p-tokens")
    assert texts.rows["text"].tolist() == ["b", "a"]
    assert texts.name == "p-tokens"


@pytest.mark.parametrize("slot", ["after", "before", "answer"])
@pytest.mark.parametrize("written", ["m['content']|trim", "m['content'].split(' love')[0]"])
def test_round_trips_are_those_of_whole_conversations(model, words, slot, written):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model.folder)
    loop = "{% for m in messages %}<|start|>{{ " + written + " }}<|end|>{% endfor %}"
    tokenizer.chat_template = "<|bos|>" + loop
    form, question, answer = Templated(tokenizer), "What is best?", "It is the truth, and kind"
    turns = (Turn("user", question), Turn("assistant", answer))
    asked = Context(turns, 1, len(answer) if slot == "after" else 0)
    before, after = {"after": (answer, ""), "before": ("", answer), "answer": ("", "")}[slot]
    opened = f"<|bos|><|start|>{question}<|end|><|start|>"
    prefix, suffix = (
        tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
        for text in (opened + before, after + "<|end|>")
    )
    frame = Frame(question, prefix, suffix, context=None if slot == "answer" else asked)
    whole = slot_ids(form, frame.question, words.rows["text"].tolist())
    rows = zip(whole, words.rows["candidate_id"], strict=True)
    expected = [frame.inside(ids) == [token] for ids, token in rows]
    assert 0 < sum(expected) < len(expected)
    assert inputs(form, frame, words, Mode.ids).survives.tolist() == expected
