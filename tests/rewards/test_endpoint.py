"""Rewards by a server, over real HTTP: a local one in the shapes of vLLM, SGLang and OpenAI."""

import json
import math
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest
import torch
from fastapi import Response
from scoring_server import Served, serving
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import pessimal
from pessimal.api.check import check_server
from pessimal.conversation import Turn
from pessimal.errors import ConfigError, ModelError, WorkError
from pessimal.rewards.endpoint import APIS, EndpointSpec, Wire, open_endpoint, recognised
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.obtain import open_model
from pessimal.rewards.question import QuestionOptions, read_answer
from pessimal.rewards.server import Server, ServerOptions
from pessimal.scoring.texts import KeptRewards
from tiny_language_models import CHAT, network, tokenizer
from tolerance import close

WORDS = (
    "love",
    "peace",
    "kind words",
    "a truth, the best one",
    "war",
    "<script>",
    "\ud800 half",
    "Ей",
    "good {prompt}",
)
PAIRS = [(Turn("user", "What is best?"), Turn("assistant", word)) for word in WORDS]
TURNS = [
    (Turn("user", "Hi"), Turn("assistant", "Yes?"), Turn("user", "Why?"), Turn("assistant", "So."))
]
QUESTION = "Prompt: {prompt} Response: {response} Is it good?"


@pytest.fixture(scope="module")
def models(tiny_checkpoint) -> Iterator[Served]:
    network = AutoModelForSequenceClassification.from_pretrained(tiny_checkpoint).eval()
    with serving(
        Served(AutoTokenizer.from_pretrained(tiny_checkpoint), classifier=network)
    ) as served:
        yield served


@pytest.fixture(scope="module")
def judges() -> Iterator[Served]:
    words = tokenizer(template=CHAT)
    ids = [words.vocab[token] for token in ("kind", "cruel", "love", "Ġkind", "Ġcruel")]
    bonus = dict(zip(ids, (9.0, 8.0, 7.0, 8.5, 8.0), strict=True))
    with serving(Served(words, causal=network("llama", len(words)).eval(), bonus=bonus)) as served:
        yield served


@pytest.fixture
def server(models) -> Served:
    models.asked, models.fault, models.listed = [], lambda n, body: None, ()
    return models


@pytest.fixture
def judge(judges) -> Served:
    judges.asked, judges.fault = [], lambda n, body: None
    return judges


def reward(host: Served, api: str, *, words=None, output=None, judge=None, **options):
    endpoint = ServerOptions(
        **{"url": host.url, "api": api, "served": "m", "retries": 0, "batch_size": 4} | options
    )
    spec = EndpointSpec(endpoint=endpoint, output=output, judge=judge or QuestionOptions())
    return open_endpoint(spec, words)


def own(served: Served, conversation) -> float:
    """The plain definition: the model's forward over its own template."""
    messages = [
        {"role": turn.role, "content": turn.content.encode("utf-8", "backslashreplace").decode()}
        for turn in conversation
    ]
    return served.outputs(served.template(messages))[0]


@pytest.mark.parametrize("api", [name for name in APIS if APIS[name].forms])
def test_rewards_are_the_models_own(server, api):
    reports = {}
    conversations = PAIRS if APIS[api].forms == ("pairs",) else PAIRS + TURNS
    got = reward(server, api, words=server.tokenizer).rewards(
        conversations, report=lambda batch, of: reports.update(batch)
    )
    assert close(got, [own(server, c) for c in conversations])
    assert reports == dict(enumerate(got))
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("listed", "api"),
    [
        (("/get_reward",), "openrlhf"),
        (("/classify", "/generate", "/tokenize", "/v1/score", "/v1/rerank"), "sglang-classify"),
        (("/v1/chat/completions",), None),
    ],
)
def test_what_a_server_speaks_is_asked_once(server, listed, api):
    server.listed = listed
    if api is None:
        with pytest.raises(ConfigError, match=r"endpoint\.api.*docs/kinds/callable\.md"):
            recognised(ServerOptions(url=server.url))
        return
    got = reward(server, None, words=server.tokenizer).rewards(PAIRS)
    close(got, [own(server, one) for one in PAIRS])
    paths = [path for path, _ in server.asked]
    assert paths.count("/openapi.json") == 1
    assert set(paths[1:]) == {APIS[api].path}
    server.asked = []
    assert recognised(ServerOptions(url="http://nobody.invalid", api="rerank")).api == "rerank"
    assert not server.asked


@pytest.fixture
def interruptible():
    """Ctrl-C raises KeyboardInterrupt, in a job of the background too, which begins without."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_what_is_under_way_at_ctrl_c_is_kept(server, tmp_path, interruptible):
    """The interrupt comes while two requests are being answered."""
    begun = threading.Barrier(3)

    def slow(n, body):
        begun.wait(60)
        time.sleep(0.3)

    def interrupt():
        begun.wait(60)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    server.fault = slow
    options = {"words": server.tokenizer, "batch_size": 1, "concurrency": 2}
    scorer = reward(server, "vllm-classify", **options)
    stored = KeptRewards(scorer, tmp_path / "kept.jsonl")
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        stored.rewards(PAIRS)
    asked = len(server.asked)
    server.fault = lambda n, body: None
    again = KeptRewards(scorer, tmp_path / "kept.jsonl")
    close(again.rewards(PAIRS), [own(server, one) for one in PAIRS])
    assert len(server.asked) == len(PAIRS)
    assert asked == 2


@pytest.mark.parametrize("api", ["vllm-classify"])
def test_without_a_tokenizer_vllm_is_sent_messages(server, api):
    got = reward(server, api).rewards(PAIRS[:3] + TURNS)
    assert close(got, [own(server, c) for c in PAIRS[:3] + TURNS])
    with pytest.raises(ConfigError):
        reward(server, "sglang-classify")


def test_a_wire_sends_texts_and_ids_as_they_are(server):
    ids = [[5, 6, 7], [8, 9]]
    texts = [server.tokenizer.decode(row) for row in ids]
    for api in ("vllm-classify", "vllm-pooling", "sglang-classify"):
        wire = Wire(ServerOptions(url=f"{server.url}/v1/", api=api), server.tokenizer)
        want = [server.outputs(row) for row in ids]
        assert close(wire.rows(ids), want)
        want = [server.outputs(server.tokenizer(text)["input_ids"]) for text in texts]
        assert close(wire.rows(texts), want)
        assert len(server.asked) == 2
        server.asked.clear()
    wire = Wire(
        ServerOptions(url=server.url, api="vllm-classify"), raw=False
    )  # as it is served, activation and all
    np.testing.assert_allclose(
        wire.rows(ids), 1 / (1 + np.exp([[-server.outputs(row)[0]] for row in ids]))
    )


@pytest.mark.parametrize(
    "options",
    [
        {"positive": ["kind", " kind", "nowhere"], "negative": ["cruel"]},
        {"ratings": {"kind": 1.0, "cruel": 5.0, "love": 2.5}},
        {"positive": [" kind"], "negative": [" cruel"], "system": "Be just.", "begin": "It is"},
        {
            "positive": ["kind", " kind"],
            "negative": ["cruel", " cruel"],
            "template": QUESTION + " Or this: {opponent}",
            "opponent": "Nothing {response}.",
        },
    ],
    ids=["log-odds", "ratings", "begin", "pairwise"],
)
def test_a_judges_reward_is_its_definition(judge, options):
    asked = QuestionOptions(**{"template": QUESTION} | options)

    def graded(prompt: str, response: str, opponent: str | None) -> float:
        parts = {"{prompt}": prompt, "{response}": response, "{opponent}": opponent}
        text = "".join(parts.get(piece, piece) for piece in split(asked.template))
        system = [{"role": "system", "content": asked.system}] if asked.system else []
        ids = judge.template(
            [*system, {"role": "user", "content": text}], add_generation_prompt=True
        )
        ids += (
            judge.tokenizer(asked.begin, add_special_tokens=False)["input_ids"]
            if asked.begin
            else []
        )
        p = judge.log_probabilities(ids).exp()
        of = {judge.tokenizer.decode([i]): float(p[i]) for i in range(len(judge.tokenizer))}
        if asked.ratings:
            return sum(of[a] * worth for a, worth in asked.ratings.items()) / sum(
                of[a] for a in asked.ratings
            )
        return math.log(sum(of.get(a, 0) for a in asked.positive)) - math.log(
            sum(of[a] for a in asked.negative)
        )

    want = []
    for conversation in PAIRS:
        prompt, response = (
            turn.content.encode("utf-8", "backslashreplace").decode() for turn in conversation
        )
        one = graded(prompt, response, asked.opponent)
        want.append((one - graded(prompt, asked.opponent, response)) / 2 if asked.opponent else one)
    got = reward(judge, "chat", words=judge.tokenizer, judge=asked).rewards(PAIRS)
    assert close(got, want)
    assert np.ptp(got) > 1e-3


def split(template: str) -> list[str]:
    """The template's pieces, its slots among them."""
    for slot in ("{prompt}", "{response}", "{opponent}"):
        template = template.replace(slot, f"\0{slot}\0")
    return template.split("\0")


@pytest.mark.parametrize("side", ["positive"])
def test_an_answer_that_is_not_among_the_likeliest_is_no_number(judge, side):
    asked = QuestionOptions(
        template=QUESTION, **{"positive": ["kind"], "negative": ["cruel"]} | {side: ["never"]}
    )
    with pytest.raises(ModelError):
        reward(judge, "chat", judge=asked).rewards(PAIRS)


def test_by_how_much_a_reward_may_be_off():
    top = [("a", math.log(0.5)), ("1", math.log(0.02)), ("b", math.log(0.01))]
    reward, off = read_answer(top, QuestionOptions(positive=["a", "not there"], negative=["1"]))
    np.testing.assert_allclose([reward, off], [math.log(0.5 / 0.02), math.log(0.51 / 0.5)])
    # At the worst 2 has 0.01: the expected rating is then 4/3.
    reward, off = read_answer(top, QuestionOptions(ratings={"1": 1.0, "2": 2.0}))
    np.testing.assert_allclose([reward, off], [1.0, 1 / 3])
    assert math.isnan(
        read_answer(top, QuestionOptions(ratings={"1": 1.0, "2": 2.0, "3": 3.0, "4": 4.0}))[0]
    )
    assert math.isnan(read_answer(top, QuestionOptions(ratings={"2": 2.0}))[0])


def says(text: str, status: int = 200, kind: str = "application/json", **headers):
    return lambda n, body: Response(text, status, headers, kind)


def rows(*outputs):
    return says(json.dumps({"data": [{"index": i, "probs": row} for i, row in enumerate(outputs)]}))


BROKEN = {
    "a web page": (says("<html>Sign in</html>", kind="text/html"), ModelError),
    "broken JSON": (says('{"data": ['), ModelError),
    "another shape": (says('{"text": "hello"}'), ModelError),
    "a null": (rows([None]), ModelError),
    "NaN": (says('{"data": [{"index": 0, "probs": [NaN]}]}'), ModelError),
    "words": (rows(["high"]), ModelError),
    "too many": (rows([1.0], [2.0]), ModelError),
    "none": (rows(), ModelError),
    "numbered wrongly": (says('{"data": [{"index": 7, "probs": [1.0]}]}'), ModelError),
    "two outputs": (rows([1.0, 2.0]), ConfigError),
    "a wrong key": (says('{"error": {"message": "no"}}', 401), ConfigError),
    "another API": (says('{"detail": "Not Found"}', 404), ConfigError),
    "too long": (says('{"message": "maximum context length"}', 400), ModelError),
    "overrun": (says("{}", 429), WorkError),
    "down": (says("oops", 503, "text/plain"), WorkError),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_answers(server, fault):
    server.fault, kind = BROKEN[fault]
    with pytest.raises(kind):
        reward(server, "vllm-classify", words=server.tokenizer, batch_size=1).rewards(PAIRS[:1])


@pytest.mark.parametrize("output", [None])
def test_a_hidden_state_is_no_choice_of_outputs(server, output):
    server.fault = rows([0.5] * 64)
    with pytest.raises(ConfigError, match="hidden state"):
        reward(server, "vllm-classify", words=server.tokenizer, output=output).rewards(PAIRS[:1])
    server.fault = rows([0.5] * 63)
    assert reward(server, "vllm-classify", words=server.tokenizer, output=5).rewards(
        PAIRS[:1]
    ).tolist() == [0.5]


@pytest.mark.parametrize(("probability", "certified"), [(1e-6, False)])
def test_a_chat_that_hardly_answers_has_no_certified_rank(
    monkeypatch, tmp_path, probability, certified
):
    def top(wire, messages):
        share = probability * (1 + len(messages[-1]["content"]) / 1000)
        return [("so", -0.5), ("kind", math.log(share)), ("cruel", math.log(probability))]

    monkeypatch.setattr(Wire, "top", top)
    judge = QuestionOptions(template=QUESTION, positive=["kind"], negative=["cruel"])
    endpoint = ServerOptions(url="http://localhost:1", api="chat", served="m")
    opened = open_endpoint(EndpointSpec(judge=judge, endpoint=endpoint))
    table = pessimal.scan(
        opened, candidates=["a", "good", "kindness"], cache=str(tmp_path), progress=False
    )
    assert (table.rows["certified"] == certified).all()
    assert table.measured["answers"]["mean"] == pytest.approx(2 * probability, rel=0.1)


def test_a_server_that_is_late_and_one_that_is_not_there(server):
    server.fault = lambda n, body: time.sleep(0.5)
    with pytest.raises(WorkError):
        reward(server, "vllm-classify", words=server.tokenizer, timeout=0.1).rewards(PAIRS[:1])
    server.fault = lambda n, body: None
    server.url, there = "http://127.0.0.1:9", server.url
    with pytest.raises(WorkError):
        reward(server, "vllm-classify", words=server.tokenizer).rewards(PAIRS[:1])
    server.url = there


@pytest.mark.parametrize("head", [b""])
@pytest.mark.parametrize("retries", [0, 1])
def test_a_server_that_drips_is_given_up_after_the_timeout(head, retries):
    """A byte every 50 ms, of the headers or of the body, would take minutes."""
    ended = threading.Event()

    def drip(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.sendall(head or b"HTTP/1.1 200 OK\r\nx-slow: ")
            while not ended.wait(0.05):
                connection.sendall(b"1")

    def accept() -> None:
        with suppress(OSError):
            while True:
                connections.append(listening.accept()[0])
                threading.Thread(target=drip, args=connections[-1:]).start()

    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        server = Server(url, None, 0.5, retries, count=lambda: starts.append(time.monotonic()))
        starts: list[float] = []
        with pytest.raises(WorkError, match=r"endpoint\.timeout"):
            server.post(url, {})
        seconds = time.monotonic() - starts[-1]
        ended.set()
        listening.shutdown(socket.SHUT_RDWR)
    assert len(connections) == len(starts) == 1 + retries
    assert 0.4 < seconds < 1.5


def test_a_refusal_is_tried_again_when_the_server_says(server):
    server.fault = lambda n, body: None if n else Response("{}", 429, {"retry-after": "0.2"})
    started = time.monotonic()
    got = reward(server, "vllm-classify", words=server.tokenizer, retries=1).rewards(PAIRS[:2])
    assert close(got, [own(server, c) for c in PAIRS[:2]])
    assert time.monotonic() - started >= 0.2


@pytest.mark.parametrize("concurrency", [8])
def test_a_server_that_dies_is_asked_for_the_rest_only(server, tmp_path, concurrency):
    options = {"words": server.tokenizer, "batch_size": 2, "concurrency": concurrency}
    conversations = [(Turn("user", f"What is {i}?"), Turn("assistant", "love")) for i in range(120)]
    answered = []

    def dies(n, body):
        if n >= 6:
            return Response("", 500)
        answered.extend(map(tuple, body["input"]))

    server.fault = dies
    scorer = reward(server, "vllm-classify", **options)
    with pytest.raises(WorkError):
        KeptRewards(scorer, tmp_path / "kept.jsonl").rewards(conversations)
    assert len(answered) == 12
    assert len(server.asked) < 40  # of 60: it was given up

    server.fault = lambda n, body: None
    server.asked.clear()
    scorer = reward(server, "vllm-classify", **options)
    got = KeptRewards(scorer, tmp_path / "kept.jsonl").rewards(conversations)
    assert close(got, [own(server, c) for c in conversations])
    again = [tuple(ids) for _, body in server.asked for ids in body["input"]]
    assert len(again) == 108
    assert not set(again) & set(answered)


def test_digests_are_of_one_server_model_and_question(server):
    found = {
        reward(server, api, words=server.tokenizer, **options).config_digest
        + reward(server, api, **options).weights_digest
        for api, options in [
            ("vllm-classify", {}),
            ("vllm-classify", {"served": "another"}),
            ("vllm-classify", {"output": 1}),
            ("vllm-pooling", {}),
        ]
    }
    assert len(found) == 4


@pytest.mark.parametrize(
    "options",
    [
        {"url": "localhost:8000"},
        {"url": "https://scores.example.org", "api_key_variable": "NO_SUCH_KEY"},
        {"api": "chat", "judge": QuestionOptions(template=QUESTION, logit=0)},
    ],
)
def test_mistakes_show_before_anything_is_sent(server, options):
    with pytest.raises(ConfigError) as error:
        reward(server, **{"api": "vllm-classify"} | options)
    assert "secret" not in str(error.value)
    assert not server.asked


def test_a_key_is_sent_and_never_shown(server, monkeypatch):
    monkeypatch.setenv("SCORES_KEY", "hush")
    server.fault = says('{"error": {"message": "hush is no key"}}', 401)
    with pytest.raises(ConfigError) as error:
        reward(
            server, "vllm-classify", words=server.tokenizer, api_key_variable="SCORES_KEY"
        ).rewards(PAIRS)
    assert "hush" not in str(error.value)


@pytest.mark.parametrize("api", [name for name in APIS if set(APIS[name].forms) - {"pairs"}])
def test_a_right_server_has_no_fault_by_any_api(server, tiny_checkpoint, monkeypatch, api):
    """vLLM's own default puts a sigmoid over the output, which is none where logits are asked
    for."""
    # The template ends in the pad token, before which the class would read the reward.
    monkeypatch.setattr(server.classifier.config, "pad_token_id", None)
    model = open_model(HeadSpec(path=str(tiny_checkpoint)), tiny_checkpoint)
    options = {"requests": 50, "device": torch.device("cpu"), "progress": False}
    endpoint = ServerOptions(url=server.url, api=api)
    prompts = {"best": "What is best?"}
    assert check_server(model, endpoint, prompts, raw=True, **options)[0].right
    if api == "vllm-classify":
        found, _ = check_server(model, endpoint, prompts, **options)
        assert [part.fault for part in found.faults] == ["activation"]
