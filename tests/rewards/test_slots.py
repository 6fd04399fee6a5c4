"""A candidate behind, before or inside a real answer has the reward that the published class gives
the same ids, by a plain forward."""

import numpy as np
import pytest
import torch
from published.checkpoints import opened

from pessimal.conversation import Context, Turn
from pessimal.rewards.formats import takes_pairs
from pessimal.rewards.frame import slot_frame, slot_ids
from pessimal.rewards.spec import Mode
from pessimal.scoring.candidates import vocabulary
from pessimal.scoring.identify import identify
from pessimal.scoring.scan import make_scanner
from pessimal.scoring.scan_texts import ScanPlan
from pessimal.scoring.spec import TrainerSpec
from tolerance import close, varied

ANSWER, REJECTED = "It is peace, and the truth.", "war"
TURNS = (Turn("user", "What is the greatest thing ever?"), Turn("assistant", ANSWER))
KINDS = ("armorm", "qrm_gemma", "grm", "urm", "internlm2", "bert", "deberta")


def scanned(model, context, candidates, work):
    provenance = identify(
        model,
        prompt="mine",
        prompt_text=context,
        candidates=candidates,
        mode=Mode.ids if candidates.is_vocabulary else Mode.text,
        certain=10,
    )
    plan = ScanPlan(work, TrainerSpec(), root=work, progress=False)
    return make_scanner(model, [provenance], candidates, plan, states=False).scan(provenance)


def split(tokenizer, turns, at):
    """Ids of a conversation before and after the character `at` of its last turn, by tokenising
    the text itself."""
    answer = turns[-1].content
    if takes_pairs(tokenizer):
        whole = tokenizer(turns[0].content, answer)["input_ids"]
        behind = len(tokenizer(answer[at:], add_special_tokens=False)["input_ids"]) + 1
        return whole[:-behind], whole[-behind:]
    text = tokenizer.apply_chat_template([vars(turn) for turn in turns], tokenize=False)
    place = text.rindex(answer) + at
    both = (text[:place], text[place:])
    return [tokenizer(part, add_special_tokens=False)["input_ids"] for part in both]


def plain(checkpoint, ids, prompt):
    types = {}
    tokenizer = checkpoint.tokenizer
    if takes_pairs(tokenizer) and "token_type_ids" in tokenizer.model_input_names:
        begins = len(tokenizer(prompt)["input_ids"])
        types = {"token_type_ids": torch.tensor([[0] * begins + [1] * (len(ids) - begins)])}
    return checkpoint.reward(ids, **types)


@pytest.mark.parametrize(
    ("kind", "slot"),
    [
        *((kind, "after") for kind in KINDS),
        ("qrm_gemma", "before"),
        *((kind, slot) for kind in ("grm", "bert") for slot in ("before", "inside")),
    ],
)
def test_a_token_in_the_slot_has_the_published_classs_reward_of_the_same_ids(
    published, tmp_path, kind, slot
):
    checkpoint = published(kind)
    model = opened(checkpoint, "own code" if kind == "internlm2" else "native")
    at = {"after": len(ANSWER), "before": 0, "inside": len("It is peace,")}[slot]
    context = Context(TURNS, 1, at, REJECTED)
    assert context.slot == slot
    words = vocabulary(model.tokenizer, size=model.embedding_rows)
    table = scanned(model, context, words, tmp_path)
    prompt = TURNS[0].content
    closing = model.parts[0].conversations.closing
    before, behind = split(checkpoint.tokenizer, TURNS, at)
    behind = [*behind, *closing]
    [whole] = slot_ids(model.parts[0].conversations, context, [""])
    assert whole == [*before, *behind]
    rows = table.rows[table.rows["kind"] != "special"].iloc[::23]  # no pad token, which is unseen
    expected = [plain(checkpoint, [*before, i, *behind], prompt) for i in rows["candidate_id"]]
    assert close(rows["reward"], varied(expected, sd=0.01))
    found = table.measured["slot"]
    other = split(checkpoint.tokenizer, (TURNS[0], Turn("assistant", REJECTED)), 0)
    both = [
        plain(checkpoint, whole, prompt),
        plain(checkpoint, [*other[0], *other[1], *closing], prompt),
    ]
    assert close([found["untouched"], found["rejected"]], both)
    assert table.provenance.question == context
    assert slot in table.name


@pytest.mark.parametrize("turn", [0])
def test_a_slot_in_a_turn_of_a_longer_conversation(published, tmp_path, turn):
    checkpoint = published("grm")
    model = opened(checkpoint, "native")
    turns = (TURNS[0], Turn("assistant", "love"), Turn("user", "And why?"), TURNS[1])
    context = Context(turns, turn, len(turns[turn].content))
    words = vocabulary(model.tokenizer, size=model.embedding_rows)
    table = scanned(model, context, words, tmp_path)
    frame = slot_frame(model.parts[0].conversations, context, model.tokenizer)
    assert frame.answer == 0
    kept = table.rows[table.rows["survives"]].iloc[::29]
    chats = [[vars(one) for one in context.filled(text)] for text in kept["text"]]
    template = checkpoint.tokenizer.apply_chat_template
    expected = [checkpoint.reward(template(chat, return_dict=False)) for chat in chats]
    assert close(kept["reward"], varied(np.array(expected), sd=0.01))
