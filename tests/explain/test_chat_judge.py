"""A language model as the judge: blind to which text is the original and to what was wanted."""

import json

import pytest
from scripted_server import CLARITY, HOSTILE, VERBOSITY, Says, case, chat, serving

from pessimal.errors import ConfigError
from pessimal.explain.attribute import Amount
from pessimal.explain.chat.judge import LlmJudge, edited_first

ITEMS = [("Q", f"plain {n}", f"marked {n}", CLARITY, Amount.more) for n in range(40)]


def marked(asked, _number):
    """Sees more of it in the text that is marked."""
    material = case(asked)
    has = [material[name].startswith("marked") for name in ("A", "B")]
    return Says(json.dumps({"more": "same" if has[0] == has[1] else "A" if has[0] else "B"}))


def test_an_edit_complied_where_the_judge_sees_the_asked_move():
    prompt, original, edited = "Q", "plain", "marked"
    items = [
        (prompt, original, edited, CLARITY, Amount.more),
        (prompt, original, edited, CLARITY, Amount.less),
        (prompt, edited, original, VERBOSITY, Amount.more),
        (prompt, edited, original, VERBOSITY, Amount.less),
        (prompt, original, "plainer", CLARITY, Amount.more),
        (prompt, original, "plainer", CLARITY, Amount.less),
    ]
    with serving(marked) as server:
        assert LlmJudge(chat(server.url)).judge(items) == [True, False, False, True, False, False]


def test_the_order_shows_nothing_and_the_direction_is_not_told():
    with serving(marked) as server:
        judge = LlmJudge(chat(server.url))
        assert judge.judge(ITEMS) == [True] * 40
        assert judge.judge([(*item[:4], Amount.less) for item in ITEMS]) == [False] * 40
    first = sum(edited_first(*item[:4]) for item in ITEMS)
    assert 10 < first < 30
    assert sum(case(asked)["A"].startswith("marked") for asked in server.requests[:40]) == first
    bodies = [json.dumps(asked, sort_keys=True) for asked in server.requests]
    assert sorted(bodies[:40]) == sorted(bodies[40:])


def test_a_judge_that_always_says_a_agrees_with_half():
    with serving(lambda *_: Says('{"more": "A"}')) as server:
        agreed = sum(LlmJudge(chat(server.url)).judge(ITEMS))
    assert agreed == sum(edited_first(*item[:4]) for item in ITEMS)


@pytest.mark.parametrize(
    "says", [Says(None, refusal="No."), Says("perhaps"), Says('{"more": "C"}'), Says(status=500)]
)
def test_no_usable_answer_is_no_opinion(says):
    with serving(lambda *_: says) as server:
        assert LlmJudge(chat(server.url, retries=0)).judge(ITEMS[:2]) == [None, None]


def test_equal_texts_are_not_asked_about():
    with serving(marked) as server:
        assert LlmJudge(chat(server.url)).judge([("Q", "a", "a", CLARITY, Amount.more), ITEMS[0]]) == [
            False,
            True,
        ]
        assert LlmJudge(chat(server.url)).judge([]) == []
    assert len(server.requests) == 1


def test_a_second_judgement_pays_nothing(tmp_path):
    with serving(marked) as server:
        first = LlmJudge(chat(server.url, tmp_path)).judge(ITEMS[:5])
        assert LlmJudge(chat(server.url, tmp_path)).judge(ITEMS[:5]) == first
    assert len(server.requests) == 5


def test_hostile_texts_are_data():
    items = [("\ud800", text, "marked", CLARITY, Amount.more) for text in (*HOSTILE, "\udfff")]
    with serving(marked) as server:
        assert LlmJudge(chat(server.url)).judge(items) == [True] * len(items)


def test_a_wrong_key_is_not_an_opinion():
    with serving(lambda *_: Says(status=401)) as server, pytest.raises(ConfigError):
        LlmJudge(chat(server.url)).judge(ITEMS)
