"""Judges, implicit rewards and functions of a candidate behind a real answer."""

import numpy as np
import pytest
import torch
from test_judges import ANSWERS, ASKED, judge, log_odds
from test_judges import answers as said
from test_sequences import CPU, folders, implicit  # noqa: F401 (a fixture)

from pessimal.conversation import Context, Turn
from pessimal.errors import InputError
from pessimal.rewards.callable import wrap_callable
from pessimal.rewards.frame import slot_frame
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.obtain import open_model
from pessimal.rewards.spec import Mode
from pessimal.scoring.candidates import frame_responses, item_candidates, vocabulary
from pessimal.scoring.identify import identify
from pessimal.scoring.proposals import screened
from pessimal.scoring.scan import make_scanner
from pessimal.scoring.scan_texts import ScanPlan
from pessimal.scoring.scorer import FrameScorer
from pessimal.scoring.spec import TrainerSpec
from tiny_language_models import CHAT, checkpoint, tokenizer
from tolerance import close

PROMPT, ANSWER = "What is the greatest thing ever?", "It is the truth, and good"
TURNS = (Turn("user", PROMPT), Turn("assistant", ANSWER))
AFTER = Context(TURNS, 1, len(ANSWER), "war")


def scanned(model, context, candidates, work):
    mode = Mode.ids if candidates.is_vocabulary else Mode.text
    provenance = identify(
        model, prompt="mine", prompt_text=context, candidates=candidates, mode=mode, certain=10
    )
    plan = ScanPlan(work, TrainerSpec(), root=work, progress=False)
    return make_scanner(model, [provenance], candidates, plan, states=False).scan(provenance)


def test_a_judge_reads_the_question_about_the_answer_and_the_token(tmp_path):
    model = judge(checkpoint(tmp_path / "judge", template=CHAT), **ANSWERS)
    words = vocabulary(model.tokenizer, size=model.embedding_rows)
    table = scanned(model, AFTER, words, tmp_path)
    kept = table.rows[table.rows["survives"]].iloc[::19]
    each = said(model, *(ASKED.format(prompt=PROMPT, response=ANSWER + t) for t in kept["text"]))
    assert close(kept["reward"], log_odds(each), size=np.abs(each).max())
    plain = said(model, *(ASKED.format(prompt=PROMPT, response=t) for t in (ANSWER, "war")))
    slot = table.measured["slot"]
    assert close([slot["untouched"], slot["rejected"]], log_odds(plain), size=np.abs(plain).max())


@pytest.mark.parametrize("closing", [True, False])
@pytest.mark.parametrize("at", [len(ANSWER), 0])
def test_an_implicit_reward_is_of_the_whole_answer(folders, tmp_path, closing, at):  # noqa: F811
    model = implicit(folders, closing=closing)
    words = vocabulary(model.tokenizer, size=model.embedding_rows)
    table = scanned(model, Context(TURNS, 1, at, "war"), words, tmp_path)
    networks = [model.network(which=which).causal.double() for which in (0, 1)]
    conversations = model.parts[0].conversations
    before = list(conversations.context(PROMPT))
    answer = list(conversations.encode(TURNS).ids)[len(before) :]
    answer = answer[: len(answer) - len(conversations.closing)]

    @torch.no_grad()
    def reward(ids):
        whole = torch.tensor([[*before, *ids, *conversations.closing]])
        logs = [torch.log_softmax(n(input_ids=whole).logits[0, :-1], dim=-1) for n in networks]
        chosen = [one.gather(-1, whole[0, 1:, None])[len(before) - 1 :].sum() for one in logs]
        return 0.1 * float(chosen[0] - chosen[1])

    rows = table.rows.iloc[::31]
    expected = [reward([*answer, i] if at else [i, *answer]) for i in rows["candidate_id"]]
    assert close(rows["reward"], expected, size=50)
    assert close([table.measured["slot"]["untouched"]], [reward(answer)], size=50)


def test_texts_are_written_into_the_slot_of_what_takes_texts(tmp_path):
    model = wrap_callable(lambda prompt, responses: [float(len(one)) for one in responses])
    table = scanned(model, AFTER, item_candidates(["!", " no"], name="two"), tmp_path / "work")
    assert table.rows["reward"].tolist() == [len(ANSWER) + 1, len(ANSWER) + 3]
    assert table.measured["slot"]["untouched"] == len(ANSWER)
    assert table.measured["slot"]["rejected"] == 3


def test_the_most_frequent_tokens_are_the_first_and_special_ones_stay():
    words = vocabulary(tokenizer(template=CHAT), size=420)
    some = words.frequent(50)
    assert (some.name, some.is_vocabulary) == ("frequent50", True)
    ids = some.rows["candidate_id"]
    assert (some.rows["kind"] == "special").sum() == 4
    assert ids[some.rows["kind"] != "special"].tolist() == list(range(4, 54))
    assert words.frequent(10_000) is words
    more = words.frequent(50, [300, 10, 300, 301])
    assert more.name == "frequent50-3"
    assert set(more.rows["candidate_id"]) - set(ids) == {300, 301}
    with pytest.raises(InputError, match="no token has the id 10000"):
        words.frequent(50, [300, 10_000])


def test_the_gradient_screens_what_stands_before_answers(tiny_checkpoint):
    """Of the ten tokens that add most by brute force, eight are among the 40 of 354 that are kept:
    a random network, whose embeddings say little of one another."""
    model = open_model(HeadSpec(path=str(tiny_checkpoint)), tiny_checkpoint)
    words = vocabulary(model.tokenizer, size=model.embedding_rows)
    contexts = [Context(TURNS, 1, 0), Context((TURNS[0], Turn("assistant", "a war")), 1, 0)]
    few = screened(model, contexts, words, n=40, device=CPU, progress=False)
    assert few.name == "screened40"
    special = words.rows["kind"].eq("special")
    assert set(words.rows["candidate_id"][special]) <= set(few.rows["candidate_id"])
    assert len(few.rows) == 40 + special.sum()
    network, [part] = model.network(), model.parts
    every, rewards = words.rows["candidate_id"].to_numpy(), 0
    for one in contexts:
        frame = slot_frame(part.conversations, one, model.tokenizer)
        scorer = FrameScorer(network, frame, device=CPU)
        inputs = frame_responses(frame, every[:, None])
        rewards = rewards + scorer.own_rewards(inputs, np.arange(len(inputs)))
    best = every[~special][np.argsort(-rewards[~special])]
    assert np.isin(best[:10], few.rows["candidate_id"]).mean() >= 0.7
    assert screened(model, contexts, words, n=10_000, device=CPU) is words
