"""What was paid for once is never asked again, and what is not whole is no answer."""

import json
import multiprocessing
from pathlib import Path

import pytest
from scripted_server import Says, chat, serving

from pessimal.explain.chat.cache import Cache
from pessimal.explain.chat.question import Came, Question, Reply

SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string"}},
    "required": ["word"],
    "additionalProperties": False,
}
MODEL = {"model": "m", "base_url": "http://x/v1", "temperature": 1.0}
WORD = Says('{"word": "peace"}')


def question(text: str = "Which?", seed: int = 0, schema=SCHEMA) -> Question:
    return Question(({"role": "user", "content": text},), schema, "word", seed)


def test_a_second_run_asks_nothing(tmp_path):
    with serving(lambda *_: WORD) as server:
        first = chat(server.url, tmp_path).complete([question(str(n)) for n in range(5)])
        again = chat(server.url, tmp_path)
        assert again.complete([question(str(n)) for n in range(5)]) == first
        assert len(server.requests) == 5
    assert (again.usage.calls, again.usage.cached) == (0, 5)


def test_it_answers_without_a_server(tmp_path):
    with serving(lambda *_: WORD) as server:
        url = server.url
        chat(url, tmp_path).complete([question()])
    (answer,) = chat(url, tmp_path).complete([question()])
    assert answer.content == {"word": "peace"}


def test_refusals_and_replies_of_no_use_are_kept_and_counted_again(tmp_path):
    says = {"a": Says(None, refusal="No."), "b": Says("gibberish")}
    with serving(lambda request, _: says[request["messages"][-1]["content"]]) as server:
        chat(server.url, tmp_path).complete([question("a"), question("b")])
        paid = len(server.requests)
        again = chat(server.url, tmp_path)
        answers = again.complete([question("a"), question("b")])
        assert len(server.requests) == paid == 4  # one refusal, three attempts
    assert [answer.came for answer in answers] == [Came.refused, Came.malformed]
    assert (again.usage.refusals, again.usage.failures, again.usage.malformed) == (1, 1, 3)


def test_failures_are_never_kept(tmp_path):
    with serving(lambda *_: Says(status=500)) as server:
        chat(server.url, tmp_path, retries=0).complete([question()])
        server.script = lambda *_: WORD
        (answer,) = chat(server.url, tmp_path).complete([question()])
    assert answer.came is Came.answered
    with pytest.raises(ValueError, match="is no reply"):
        Cache(tmp_path).put(MODEL, question("x"), Reply(failure="down"))


def test_replies_are_kept_as_they_come_and_survive_a_kill(tmp_path):
    class Killed(BaseException):
        pass

    client = chat("http://127.0.0.1:9/v1", tmp_path)

    def send(questions, keep):
        keep(1, Reply(text=WORD.content))
        raise Killed

    client.transport.send = send
    with pytest.raises(Killed):
        client.complete([question("a"), question("b")])
    assert client.peek(question("a")) is None
    assert client.peek(question("b")).content == {"word": "peace"}


def test_the_order_of_keys_makes_no_difference(tmp_path):
    cache = Cache(tmp_path)
    cache.put(MODEL, question(), Reply(text="x"))
    turned = Question(
        ({"content": "Which?", "role": "user"},),
        dict(reversed(SCHEMA.items())),
        "another name of the schema",
        0,
    )
    assert cache.get(dict(reversed(MODEL.items())), turned) == Reply(text="x")


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        ({**MODEL, "model": "n"}, question()),
        ({**MODEL, "base_url": "http://y/v1"}, question()),
        ({**MODEL, "temperature": 0.0}, question()),
        (MODEL, question("which?")),
        (MODEL, question(seed=1)),
        (MODEL, question(schema={**SCHEMA, "required": []})),
    ],
)
def test_whatever_decides_a_reply_makes_it_another(tmp_path, model, asked):
    cache = Cache(tmp_path)
    cache.put(MODEL, question(), Reply(text="x"))
    assert cache.get(model, asked) is None


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda _: b"", lambda _: b"[]", lambda _: b"\xff\0"]
)
def test_a_file_that_is_not_whole_is_no_answer_and_is_asked_for_again(tmp_path, damage):
    with serving(lambda *_: WORD) as server:
        chat(server.url, tmp_path).complete([question()])
        (path,) = tmp_path.rglob("*.json")
        path.write_bytes(damage(path.read_bytes()))
        (answer,) = chat(server.url, tmp_path).complete([question()])
        assert len(server.requests) == 2
        chat(server.url, tmp_path).complete([question()])
        assert len(server.requests) == 2
    assert answer.came is Came.answered


def test_a_changed_reply_is_no_answer(tmp_path):
    cache = Cache(tmp_path)
    cache.put(MODEL, question(), Reply(text="peace"))
    (path,) = tmp_path.rglob("*.json")
    path.write_text(path.read_text().replace("peace", "waaar"))
    assert cache.get(MODEL, question()) is None


def test_the_first_reply_stays(tmp_path):
    cache = Cache(tmp_path)
    cache.put(MODEL, question(), Reply(text="first"))
    assert cache.put(MODEL, question(), Reply(text="second")) == Reply(text="first")
    assert cache.get(MODEL, question()) == Reply(text="first")


def test_hostile_texts_are_kept_as_they_are(tmp_path):
    cache = Cache(tmp_path)
    texts = ["\ud800", "\ufffd", "nul\0", "", "😀", "../../etc/passwd"]
    for text in texts:
        cache.put(MODEL, question(text), Reply(text=text))
    assert [cache.get(MODEL, question(text)).text for text in texts] == texts


def _fill(folder: Path, worker: int) -> None:
    cache = Cache(folder)
    for n in range(25):
        cache.put(MODEL, question(str(n)), Reply(text=f"reply {worker}"))


def test_processes_share_a_folder(tmp_path):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_fill, args=(tmp_path, worker)) for worker in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    kept = [Cache(tmp_path).get(MODEL, question(str(n))) for n in range(25)]
    assert all(reply is not None and reply.text.startswith("reply") for reply in kept)
    assert {
        json.loads(path.read_bytes())["asked"]["model"]["model"] for path in tmp_path.rglob("*.json")
    } == {"m"}
    assert not list(tmp_path.rglob(".*json-*"))
