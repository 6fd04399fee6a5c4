"""Questions to a language model behind an endpoint: retries, refusals, useless and cut replies, the
cache, the judge."""

import json

import httpx2
import pytest

from pessimal.errors import ConfigError, WorkError
from pessimal.explaining.attribute import Amount
from pessimal.explaining.chat import AnswerStatus, Cache, Question, Reply, Shape
from pessimal.explaining.judges import LlmJudge, edited_first
from pessimal.rewards.server import STOP_AFTER
from scripted_server import CLARITY, HOSTILE, VERBOSITY, Says, case, chat, serving

WORD_SHAPE = Shape("word", {"word": str})
WORD = Says('{"word": "peace"}')
CUT = Says('{"word": "pea', finish_reason="length")
DOWN = Says("down for good", status=500)


def question(text: str = "Which?", seed: int = 0, shape: Shape = WORD_SHAPE) -> Question:
    system = {"role": "system", "content": "Reply in JSON."}
    return Question((system, {"role": "user", "content": text}), shape, seed)


def in_turn(*says: Says):
    """Answers in this order; the last one from there on."""
    return lambda _, number: says[min(number, len(says) - 1)]


def by_text(**says: Says):
    """Answers by the text of the question; others with a word."""
    return lambda asked, _: says.get(text_of(asked), WORD)


def text_of(request: dict) -> str:
    return request["messages"][1]["content"]


def came(script, *texts: str, folder=None, **options):
    """What comes of some questions, and the server that was asked."""
    with serving(script) as server:
        answers = chat(server.url, folder, concurrency=1, **options).complete(
            [question(t) for t in texts]
        )
    return [answer.status for answer in answers], server


SHAPE = Shape("rewrite", {"applicable": bool, "response": str})


@pytest.mark.parametrize(
    "text",
    [
        "```json\n{}\n```",
        '<think>maybe {{"applicable": false, "response": ""}}?</think>{}',
        'For example {{"applicable": 1}} is wrong. {}',
    ],
)
def test_an_object_is_found_among_other_words(text):
    found = SHAPE.find(text.format('{"applicable": true, "response": "a {b} ``` c"}'))
    assert found == ({"applicable": True, "response": "a {b} ``` c"}, "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no JSON"),
        ('{"applicable": "yes", "response": "x"}', "applicable"),
        ('{"applicable": true, "response": "\\udc00"}', "surrogate"),
        ('[{"a": ' * 100_000, "no JSON"),
    ],
)
def test_what_is_of_another_shape_gives_a_reason(text, reason):
    found, why = SHAPE.find(text)
    assert found is None
    assert reason in why


def test_a_question_travels_with_its_shape_seed_and_sampling_and_nothing_for_null():
    with serving(in_turn(WORD)) as server:
        (answer,) = chat(server.url, temperature=0.5, max_tokens=77).complete([question(seed=2)])
        chat(server.url, temperature=None, max_tokens=None).complete([question()])
    assert (answer.status, answer.content) == (AnswerStatus.answered, {"word": "peace"})
    sent, without = server.requests
    assert (sent["model"], sent["temperature"], sent["max_tokens"], sent["seed"]) == (
        "m",
        0.5,
        77,
        2000,
    )
    assert text_of(sent) == "Which?"
    assert '"required":["word"]' in sent["messages"][0]["content"]
    assert not {"temperature", "max_tokens"} & set(without)


@pytest.mark.parametrize(
    ("says", "waits", "end"),
    [
        ([Says(status=429, headers={"Retry-After": "17"}), WORD], [17], AnswerStatus.answered),
        ([Says(status=503, headers={"Retry-After": "86400"})], [], AnswerStatus.unanswered),
        ([DOWN] * 3 + [WORD], None, AnswerStatus.answered),
        ([DOWN], None, AnswerStatus.unanswered),
    ],
)
def test_failures_are_repeated_after_growing_waits_or_as_long_as_the_server_says(says, waits, end):
    found, server = came(in_turn(*says), "?", retries=3)
    assert found == [end]
    assert server.waits == sorted(server.waits)
    assert waits is None or server.waits == waits
    assert len(server.requests) == (1 if waits == [] else len(says) if says[-1] is WORD else 4)


def test_many_ask_at_once_but_never_more_than_allowed_and_answers_keep_their_order():
    def script(asked, _):
        return Says(
            json.dumps({"word": text_of(asked)}), delay=0.2 if text_of(asked) == "0" else 0.05
        )

    with serving(script) as server:
        asked = [question(str(n)) for n in range(9)]
        answers = chat(server.url, concurrency=3).complete(
            [*asked, asked[0]]
        )  # which is asked once
    assert [answer.content["word"] for answer in answers] == list("0123456780")
    assert (server.most_in_flight, len(server.requests)) == (3, 9)


@pytest.mark.parametrize("status", [400])
def test_requests_that_are_refused_alone_say_nothing_about_the_next_one(status):
    alone = Says("too long", status=status)
    texts = ["a", *(f"long {n}" for n in range(STOP_AFTER + 1)), "b"]
    found, _ = came(lambda r, _: alone if "long" in text_of(r) else WORD, *texts)
    assert found == [
        AnswerStatus.answered,
        *[AnswerStatus.unanswered] * (STOP_AFTER + 1),
        AnswerStatus.answered,
    ]


def test_a_dead_endpoint_stops_the_work_and_loses_nothing(tmp_path):
    questions = [question(str(n)) for n in range(40)]
    with serving(lambda _, n: WORD if n < 4 else DOWN) as server:
        with pytest.raises(WorkError, match=r"5 requests in a row .*type the same command again"):
            chat(server.url, tmp_path, concurrency=1, retries=0).complete(questions)
        assert len(server.requests) == 4 + STOP_AFTER
        server.script = lambda *_: WORD
        client = chat(server.url, tmp_path)
        answers = client.complete(questions)
    assert all(answer.status is AnswerStatus.answered for answer in answers)
    assert (client.usage["from the cache"], client.usage["calls"]) == (4, 36)
    with pytest.raises(WorkError, match="connection"):
        came(in_turn(Says(body=httpx2.ConnectError("refused"))), *"abcdef", retries=1)


@pytest.mark.parametrize(
    ("says", "advice"),
    [
        (Says("no, sk-secret", status=401), "key is wrong"),
        (Says("spent", status=429, refusal="insufficient_quota"), "quota is spent"),
    ],
)
def test_what_no_request_gets_past_is_the_users_to_mend(says, advice, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with serving(in_turn(says)) as server:
        with pytest.raises(ConfigError, match=advice) as caught:
            chat(server.url, concurrency=1, retries=0).complete([question(t) for t in "abcd"])
        assert len(server.requests) == 1
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize("body", ["<html>hello</html>", '{"choices": []}'])
def test_what_is_no_completion_is_no_answer(body):
    assert came(in_turn(Says(body=body)), "?", retries=1)[0] == [AnswerStatus.unanswered]


def test_the_key_travels_is_in_no_provenance_and_is_missed_before_anything_is_asked(monkeypatch):
    monkeypatch.setenv("OWN", " sk-secret \n")
    with serving(in_turn(WORD)) as server:
        client = chat(server.url, api_key_variable="OWN")
        client.complete([question()])
    assert server.headers[0]["authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in json.dumps(client.provenance())
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="export OPENAI_API_KEY="):
        chat(None)
    assert chat(None, api_key_variable=None).server.key == ""
    assert chat("http://localhost:8000/v1").server.key == ""


@pytest.mark.parametrize("content", ["", '{"word": "pea', "\ud800"])
def test_a_reply_of_another_shape_is_asked_for_again_with_what_was_wrong(content):
    found, server = came(in_turn(Says(content), WORD), "?")
    assert found == [AnswerStatus.answered]
    first, second = server.requests
    assert (first["seed"], second["seed"]) == (0, 1)
    assert second["messages"][:2] == first["messages"]
    assert [message["role"] for message in second["messages"][2:]] == ["assistant", "user"]
    said = content[:4000].replace("\ud800", "\\ud800") or "(nothing)"
    assert second["messages"][2]["content"] == said


def test_cut_replies_are_paid_once_stop_the_work_and_cost_nothing_again(tmp_path):
    with serving(
        lambda r, _: CUT if text_of(r) == "long" and r["max_tokens"] < 100 else WORD
    ) as server:
        asked = [question("short"), question("long")]
        for _ in range(2):
            with pytest.raises(
                WorkError, match=r"1 answers were cut off .*perturber.max_tokens=200"
            ):
                chat(server.url, tmp_path, max_tokens=50).complete(asked)
            assert len(server.requests) == 2  # neither asked again at once, nor by the same command
        client = chat(server.url, tmp_path, max_tokens=200)
        assert [answer.status for answer in client.complete(asked)] == [AnswerStatus.answered] * 2
        assert len(server.requests) == 3  # the whole one was not paid for again


@pytest.mark.parametrize(
    ("says", "end"),
    [
        (Says(None, refusal="I will not."), AnswerStatus.refused),
        (Says("<think>Hm.</think>\nI can’t do that."), AnswerStatus.refused),
        (Says("flagged", status=400, refusal="content_filter"), AnswerStatus.refused),
        (Says('{"word": "I cannot help with that."}'), AnswerStatus.answered),
        (Says(WORD.content + " so", finish_reason="length"), AnswerStatus.answered),
    ],
)
def test_refusals_are_distinguished_and_are_final(says, end):
    found, server = came(in_turn(says), "?")
    assert found == [end]
    assert len(server.requests) == 1


MODEL = {"model": "m", "base_url": "http://x/v1", "temperature": 1.0, "max_tokens": 100}


def test_a_second_run_asks_nothing_whatever_came_of_the_first_but_failures(tmp_path):
    script = by_text(a=Says(None, refusal="No."), b=Says("gibberish"), d=DOWN)
    first, server = came(script, *"abcd", folder=tmp_path, retries=0)
    paid = len(server.requests)
    again, server = came(script, *"abcd", folder=tmp_path, retries=0)
    assert (
        first
        == again
        == [
            AnswerStatus.refused,
            AnswerStatus.malformed,
            AnswerStatus.answered,
            AnswerStatus.unanswered,
        ]
    )
    assert (paid, len(server.requests)) == (1 + 3 + 1 + 1, 1)
    assert came(script, *"abcd", folder=tmp_path, retries=0, model="other")[1].requests


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda _: b"\xff\0"])
def test_a_file_that_is_not_whole_is_none(tmp_path, damage):
    cache = Cache(tmp_path, MODEL)
    cache.put(question(), Reply(text="x"))
    (path,) = tmp_path.rglob("*.json")
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get(question()) is None
    cache.put(question(), Reply(text="x"))
    assert cache.get(question()) == Reply(text="x")


def test_hostile_texts_are_kept_as_they_are_and_the_first_reply_stays(tmp_path):
    cache, texts = (
        Cache(tmp_path, MODEL),
        ["\ud800", "\ufffd", "nul\0", "", "😀", "../../etc/passwd"],
    )
    for text in texts:
        cache.put(question(text), Reply(text=text))
        assert cache.put(question(text), Reply(text="second")) == Reply(text=text)
    assert [cache.get(question(text)).text for text in texts] == texts
    assert Cache(tmp_path, MODEL | {"temperature": 0.0}).get(question("😀")) is None


ITEMS = [("Q", f"plain {n}", f"marked {n}", CLARITY, Amount.more) for n in range(40)]


def marked(asked, _number):
    """Sees more of it in the text that is marked."""
    has = [case(asked)[name].startswith("marked") for name in ("A", "B")]
    return Says(json.dumps({"more": "same" if has[0] == has[1] else "A" if has[0] else "B"}))


def test_an_edit_complied_where_the_judge_sees_the_asked_move():
    items = [
        ("Q", "plain", "marked", CLARITY, Amount.more),
        ("Q", "plain", "marked", CLARITY, Amount.less),
        ("Q", "marked", "plain", VERBOSITY, Amount.less),
        ("Q", "plain", "plainer", CLARITY, Amount.more),
        ("Q", "plain", "plain", CLARITY, Amount.more),  # is not asked about
        *(("Q", text, "marked", CLARITY, Amount.more) for text in HOSTILE),
    ]
    with serving(marked) as server:
        judged = LlmJudge(chat(server.url)).judge(items)
    assert judged == [True, False, True, False, False, *[True] * len(HOSTILE)]
    assert len(server.requests) == 3 + len(
        HOSTILE
    )  # the direction is not given: one question for both


def test_the_order_shows_nothing():
    with serving(marked) as server:
        assert LlmJudge(chat(server.url)).judge(ITEMS) == [True] * 40
    first = sum(edited_first(*item[:4]) for item in ITEMS)
    assert 10 < first < 30
    assert sum(case(asked)["A"].startswith("marked") for asked in server.requests) == first
    with serving(lambda *_: Says('{"more": "A"}')) as server:
        assert sum(LlmJudge(chat(server.url)).judge(ITEMS)) == first
