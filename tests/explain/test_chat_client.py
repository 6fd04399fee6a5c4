"""The client: faults, waits, bounds and refusals, against a scripted server."""

import asyncio
import json
import logging

import pytest
from scripted_server import Says, Sleeps, chat, serving

from pessimal.errors import ConfigError, WorkError
from pessimal.explain.chat.endpoint_spec import EndpointSpec, find_api_key
from pessimal.explain.chat.question import Came, Question
from pessimal.explain.chat.rate_limit import RateLimit

SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string"}},
    "required": ["word"],
    "additionalProperties": False,
}
WORD = Says('{"word": "peace"}')


def question(text: str = "Which?", seed: int = 0) -> Question:
    messages = ({"role": "system", "content": "Reply in JSON."}, {"role": "user", "content": text})
    return Question(messages, SCHEMA, "word", seed)


def in_turn(*says: Says):
    """Answers in this order; the last one from there on."""
    return lambda _, number: says[min(number, len(says) - 1)]


def test_a_question_travels_with_its_schema_seed_and_sampling():
    with serving(in_turn(WORD)) as server:
        (answer,) = chat(server.url, temperature=0.5, max_tokens=77).complete([question(seed=2)])
    assert (answer.came, answer.content) == (Came.answered, {"word": "peace"})
    (sent,) = server.requests
    assert sent["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "word", "strict": True, "schema": SCHEMA},
    }
    assert (sent["model"], sent["temperature"], sent["max_tokens"], sent["seed"]) == ("m", 0.5, 77, 2000)
    assert [message["content"] for message in sent["messages"]] == ["Reply in JSON.", "Which?"]


def test_no_temperature_is_sent_where_there_is_none():
    with serving(in_turn(WORD)) as server:
        chat(server.url, temperature=None).complete([question()])
    assert "temperature" not in server.requests[0]
    assert "max_tokens" not in server.requests[0]


def test_the_server_is_waited_for_as_long_as_it_says():
    sleeps = Sleeps()
    with serving(in_turn(Says(status=429, headers={"Retry-After": "17"}), WORD)) as server:
        client = chat(server.url, sleeps=sleeps, first_wait=0.1)
        (answer,) = client.complete([question()])
    assert answer.came is Came.answered
    assert sum(sleeps.slept) == pytest.approx(17)
    assert (client.usage.calls, client.usage.retries) == (2, 1)


def test_while_the_server_wants_to_be_left_alone_nobody_asks():
    async def turns() -> list[float]:
        sleeps = Sleeps()
        limit = RateLimit(per_minute=None, clock=sleeps.clock, sleep=sleeps.sleep)
        passed = []
        for hold in (0, 30, 0, 5):
            limit.hold(hold)
            await limit.turn()
            passed.append(sleeps.now)
        return passed

    assert asyncio.run(turns()) == [0, 30, 30, 35]


def test_a_wait_asked_of_one_request_holds_all():
    sleeps = Sleeps()
    with serving(in_turn(Says(status=429, headers={"Retry-After": "17"}), WORD)) as server:
        client = chat(server.url, sleeps=sleeps, retries=0, concurrency=1)
        answers = client.complete([question("a"), question("b")])
    assert [answer.came for answer in answers] == [Came.unanswered, Came.answered]
    assert sleeps.now == 17


def test_a_wait_beyond_the_longest_is_a_failure_and_not_sat_out():
    sleeps = Sleeps()
    with serving(in_turn(Says(status=503, headers={"Retry-After": "86400"}))) as server:
        (answer,) = chat(server.url, sleeps=sleeps).complete([question()])
    assert answer.came is Came.unanswered
    assert "86,400 s" in answer.note
    assert sleeps.slept == []


def test_a_server_error_is_asked_again_after_growing_waits():
    sleeps = Sleeps()
    with serving(in_turn(*[Says(status=500)] * 3, WORD)) as server:
        client = chat(server.url, sleeps=sleeps, first_wait=1.0)
        (answer,) = client.complete([question()])
    assert answer.content == {"word": "peace"}
    assert len(server.requests) == 4
    assert all(low <= wait <= 2 * low for low, wait in zip((0.5, 1.0, 2.0), sleeps.slept, strict=True))


def test_retries_end():
    with serving(in_turn(Says("down for good", status=500))) as server:
        client = chat(server.url, retries=2)
        (answer,) = client.complete([question()])
    assert answer.came is Came.unanswered
    assert "status 500: down for good" in answer.note
    assert len(server.requests) == 3
    assert (client.usage.failures, client.usage.retries) == (1, 2)


def test_a_reply_that_takes_too_long_is_asked_for_again():
    def script(_, number):
        return Says(WORD.content, delay=0.6 if number == 0 else 0.0)

    with serving(script) as server:
        client = chat(server.url, timeout=0.3)
        (answer,) = client.complete([question()])
    assert answer.came is Came.answered
    assert client.usage.retries == 1


def test_a_reply_that_trickles_in_is_given_up_as_a_whole():
    with serving(in_turn(Says(WORD.content, drip=0.02))) as server:  # a few seconds in all
        client = chat(server.url, timeout=0.4, retries=0)
        (answer,) = client.complete([question()])
    assert answer.came is Came.unanswered
    assert "within 0.4 s" in answer.note


def test_a_refusal_to_one_text_after_others_were_answered_stops_nothing():
    def script(request, _):
        flagged = request["messages"][-1]["content"] == "flagged"
        return Says("moderated", status=403) if flagged else WORD

    with serving(script) as server:
        client = chat(server.url, concurrency=1, stop_after=1)
        answers = client.complete([question("a"), question("flagged"), question("b")])
    assert [answer.came for answer in answers] == [Came.answered, Came.unanswered, Came.answered]


def test_many_ask_at_once_but_never_more_than_allowed():
    with serving(lambda *_: Says(WORD.content, delay=0.03)) as server:
        client = chat(server.url, concurrency=3)
        answers = client.complete([question(str(n)) for n in range(12)])
    assert [answer.came for answer in answers] == [Came.answered] * 12
    assert server.most_in_flight == 3


def test_requests_go_out_at_the_pace_that_was_asked_for():
    sleeps = Sleeps()
    with serving(in_turn(WORD)) as server:
        client = chat(server.url, sleeps=sleeps, requests_per_minute=30, concurrency=1)
        client.complete([question(str(n)) for n in range(4)])
        client.complete([question("another batch")])
    assert sum(sleeps.slept) == pytest.approx(8)  # 2 s between any two


def test_answers_stand_in_the_order_of_their_questions():
    def script(request, _):
        text = request["messages"][-1]["content"]
        return Says(json.dumps({"word": text}), delay=0.05 if text == "0" else 0.0)

    with serving(script) as server:
        answers = chat(server.url).complete([question(str(n)) for n in range(6)])
    assert [answer.content["word"] for answer in answers] == list("012345")


def test_equal_questions_are_asked_once():
    with serving(in_turn(WORD)) as server:
        answers = chat(server.url).complete(
            [question("a"), question("b"), question("a"), question("a", seed=1)]
        )
    assert len(server.requests) == 3
    assert [answer.came for answer in answers] == [Came.answered] * 4


@pytest.mark.parametrize(
    "content", ["", "peace", '{"word": 3}', '{"word": "pea', '["peace"]', '{"other": "x"}', "{" * 9999]
)
def test_a_reply_of_another_shape_is_asked_for_again_with_another_seed(content):
    with serving(in_turn(Says(content), WORD)) as server:
        client = chat(server.url)
        (answer,) = client.complete([question()])
    assert answer.content == {"word": "peace"}
    assert [request["seed"] for request in server.requests] == [0, 1]
    assert (client.usage.malformed, client.usage.failures) == (1, 0)


def test_replies_of_another_shape_end_as_malformed():
    with serving(in_turn(Says('{"word": "pea', finish_reason="length"))) as server:
        client = chat(server.url, attempts=2)
        (answer,) = client.complete([question()])
    assert len(server.requests) == 2
    assert answer.came is Came.malformed
    assert "cut off" in answer.note
    assert (client.usage.malformed, client.usage.failures) == (2, 1)


@pytest.mark.parametrize(
    "says",
    [
        Says(None, refusal="I will not."),
        Says(None, finish_reason="content_filter"),
        Says("I'm sorry, but I can't help with that."),
        Says("I cannot assist with this request."),
        Says("<think>Hm.</think>\nI can’t do that."),
        Says("flagged", status=400, refusal="content_filter"),
    ],
)
def test_refusals_are_distinguished_and_are_final(says):
    with serving(in_turn(says)) as server:
        client = chat(server.url)
        (answer,) = client.complete([question()])
    assert answer.came is Came.refused
    assert len(server.requests) == 1
    assert (client.usage.refusals, client.usage.failures) == (1, 0)


def test_words_of_refusal_within_an_answer_are_an_answer():
    with serving(in_turn(Says('{"word": "I cannot help with that."}'))) as server:
        (answer,) = chat(server.url).complete([question()])
    assert answer.came is Came.answered


@pytest.mark.parametrize("status", [400, 422])
def test_without_response_format_the_shape_is_put_into_words_and_it_is_said(status, caplog):
    def script(request, _):
        return Says("no such field", status=status) if "response_format" in request else WORD

    with serving(script) as server, caplog.at_level(logging.WARNING):
        client = chat(server.url, concurrency=1)
        answers = client.complete([question("a"), question("b")])
    assert [answer.came for answer in answers] == [Came.answered] * 2
    assert len(server.requests) == 3  # refused once, and then known
    assert '"additionalProperties":false' in server.requests[-1]["messages"][0]["content"]
    assert client.usage.written == 2
    assert "2 calls without response_format" in client.usage.sentence()
    (said,) = [record.getMessage() for record in caplog.records if "response_format" in record.getMessage()]
    assert "no such field" in said


def test_without_response_format_the_shape_is_still_checked():
    def script(request, _):
        return Says("no", status=400) if "response_format" in request else Says('{"word": 1}')

    with serving(script) as server:
        (answer,) = chat(server.url, attempts=2).complete([question()])
    assert answer.came is Came.malformed


def test_a_request_that_is_too_long_says_nothing_about_response_format():
    def script(request, _):
        return Says("too long", status=400) if request["messages"][-1]["content"] == "long" else WORD

    with serving(script) as server:
        client = chat(server.url, concurrency=1)
        answers = client.complete(
            [question("long"), question("a"), *[question("long", seed) for seed in range(1, 9)]]
        )
    assert [answer.came for answer in answers] == [Came.unanswered, Came.answered, *[Came.unanswered] * 8]
    assert "status 400: too long" in answers[0].note
    assert sum("response_format" not in request for request in server.requests) == 1


def test_where_every_request_is_refused_the_work_stops():
    with serving(in_turn(Says("unknown field seed", status=400))) as server:
        with pytest.raises(WorkError, match="unknown field seed"):
            chat(server.url, stop_after=3).complete([question(str(n)) for n in range(50)])
        assert len(server.requests) < 30


def test_a_dead_endpoint_stops_the_work_and_loses_nothing(tmp_path):
    def script(_, number):
        return WORD if number < 4 else Says(status=500)

    questions = [question(str(n)) for n in range(40)]
    with serving(script) as server:
        with pytest.raises(WorkError, match=r"3 requests in a row .*type the same command again"):
            chat(server.url, tmp_path, concurrency=1, retries=0, stop_after=3).complete(questions)
        assert len(server.requests) == 7
        server.script = lambda *_: WORD
        client = chat(server.url, tmp_path)
        answers = client.complete(questions)
    assert all(answer.came is Came.answered for answer in answers)
    assert (client.usage.cached, client.usage.calls) == (4, 36)


def test_failures_that_are_not_in_a_row_stop_nothing():
    def script(request, _):
        return WORD if int(request["messages"][-1]["content"]) % 2 else Says(status=500)

    with serving(script) as server:
        client = chat(server.url, concurrency=1, retries=0, stop_after=2)
        answers = client.complete([question(str(n)) for n in range(20)])
    assert sum(answer.came is Came.unanswered for answer in answers) == 10


def test_a_refused_connection_stops_the_work():
    with serving(in_turn(WORD)) as server:
        url = server.url
    with pytest.raises(WorkError, match="connection"):
        chat(url, retries=1, stop_after=2).complete([question(str(n)) for n in range(5)])


@pytest.mark.parametrize(("status", "advice"), [(401, "key is wrong"), (403, "may not use"), (404, "/v1")])
def test_what_no_request_gets_past_is_the_users_to_mend(status, advice):
    with serving(in_turn(Says("no, sk-secret", status=status))) as server:
        with pytest.raises(ConfigError, match=advice) as caught:
            chat(server.url, key="sk-secret", concurrency=1).complete([question(str(n)) for n in range(9)])
        assert len(server.requests) == 1
    assert "sk-secret" not in str(caught.value)


def test_a_spent_account_is_not_waited_for():
    with serving(in_turn(Says("spent", status=429, refusal="insufficient_quota"))) as server:
        with pytest.raises(ConfigError, match="quota is spent"):
            chat(server.url).complete([question()])
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body", ["<html>hello</html>", "{}", '{"choices": []}', '{"choices": null, "error": "busy"}', "3"]
)
def test_what_is_no_completion_is_no_answer(body):
    with serving(in_turn(Says(body=body))) as server:
        (answer,) = chat(server.url, retries=1).complete([question()])
    assert answer.came is Came.unanswered
    assert "no chat completion" in answer.note or "connection" in answer.note


def test_tokens_are_the_servers_count_and_missing_counts_are_said():
    with serving(in_turn(WORD, Says(WORD.content, usage=False))) as server:
        client = chat(server.url, concurrency=1)
        client.complete([question("a"), question("b")])
    usage = client.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.unmetered) == (10, 3, 1)
    assert "10 tokens read and 3 written, without 1 replies" in usage.sentence()


def test_hostile_texts_travel():
    texts = ["\ud800 lone", "nul\0", "<script>", "", "😀", "я" * 10_000]
    with serving(in_turn(WORD)) as server:
        answers = chat(server.url).complete([question(text) for text in texts])
    assert all(answer.came is Came.answered for answer in answers)
    sent = {request["messages"][-1]["content"] for request in server.requests}
    assert sent == {"\ufffd lone", *texts[1:]}


def test_it_can_be_asked_from_within_a_running_loop():
    async def notebook(url):
        return chat(url).complete([question()])

    with serving(in_turn(WORD)) as server:
        (answer,) = asyncio.run(notebook(server.url))
    assert answer.came is Came.answered


def test_the_key_travels_and_is_in_no_provenance():
    with serving(in_turn(WORD)) as server:
        client = chat(server.url, key="sk-secret")
        client.complete([question()])
    assert server.headers[0]["authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in json.dumps(client.provenance())


def test_a_missing_key_is_said_before_anything_is_asked():
    far = EndpointSpec(model="m", base_url="https://api.openai.com/v1")
    with pytest.raises(ConfigError, match="export OPENAI_API_KEY="):
        find_api_key(far, {})
    assert find_api_key(far, {"OPENAI_API_KEY": " k \n"}) == "k"
    own = EndpointSpec(model="m", base_url="https://far.example/v1", api_key_variable="OWN")
    with pytest.raises(ConfigError, match="OWN"):
        find_api_key(own, {"OPENAI_API_KEY": "k"})
    assert find_api_key(EndpointSpec(model="m", base_url="http://localhost:8000/v1"), {}) is None
    assert find_api_key(EndpointSpec(model="m", api_key_variable=None), {"OPENAI_API_KEY": "k"}) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": None}, "perturber.model=NAME"),
        ({"base_url": "localhost:8000"}, "http://"),
        ({"base_url": "http://[broken"}, "http://"),
        ({"base_url": "http://user:word@host/v1"}, "key_variable"),
        ({"concurrency": 0}, "at least 1"),
        ({"retries": -1}, "at least 0"),
        ({"timeout": 0}, "more than 0"),
        ({"requests_per_minute": 0}, "more than 0"),
        ({"temperature": 3}, "0 to 2"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        EndpointSpec(**{"model": "m", **options})
