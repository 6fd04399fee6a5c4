"""A reward that is served is the reward: over the wires of trainers, and by `check url=`."""

import threading

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient

import pessimal
from pessimal.checking.served import diagnose
from pessimal.conversation import Turn
from pessimal.rewards.endpoint import EndpointSpec, Wire, open_endpoint, recognised
from pessimal.rewards.rendering import messages_of
from pessimal.rewards.server import ServerOptions
from pessimal.scoring.serving import Served
from pessimal.scoring.texts import text_scorer
from pessimal.verbs.serve import application

PROMPT = "What, in one word, is the greatest thing ever?"
CONVERSATIONS = [
    (Turn("user", PROMPT), Turn("assistant", word)) for word in ("love", "war and peace", "a")
]


@pytest.fixture(scope="module")
def served(model):
    return Served.from_reward(model, torch.device("cpu"))


@pytest.fixture(scope="module")
def client(served):
    return TestClient(application(served))


@pytest.fixture(scope="module")
def own(model):
    scorer = text_scorer(model, CONVERSATIONS, device=torch.device("cpu"))
    return scorer.own_rewards(CONVERSATIONS)


@pytest.fixture(scope="module")
def url(served):
    """The application over real HTTP."""
    import uvicorn

    config = uvicorn.Config(application(served), port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        threading.Event().wait(0.02)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def test_every_wire_gives_the_reward(model, client, own):
    ids = [list(model.parts[0].conversations.encode(one).ids) for one in CONVERSATIONS]
    texts = [
        model.tokenizer.apply_chat_template(messages_of(one), tokenize=False)
        for one in CONVERSATIONS
    ]
    for given in (ids, texts):
        name = "input_ids" if given is ids else "text"
        answers = {
            "/get_reward": client.post("/get_reward", json={"query": texts}).json()["rewards"],
            "vLLM": [
                e["probs"][0]
                for e in client.post("/classify", json={"input": given}).json()["data"]
            ],
            "SGLang": [
                e["embedding"][0] for e in client.post("/classify", json={name: given}).json()
            ],
            "/v1/score": [
                row[0]
                for row in client.post(
                    "/v1/score", json={"query": given[0][:0], "items": given}
                ).json()["scores"]
            ],
        }
        for wire, rewards in answers.items():
            assert np.allclose(rewards, own, atol=1e-5), wire
    pairs = {"text_1": PROMPT, "text_2": [one[-1].content for one in CONVERSATIONS]}
    scores = [entry["score"] for entry in client.post("/v1/score", json=pairs).json()["data"]]
    assert np.allclose(scores, own, atol=1e-5)
    messages = client.post("/classify", json={"messages": messages_of(CONVERSATIONS[1])}).json()
    assert messages["data"][0]["probs"] == pytest.approx([own[1]], abs=1e-5)


def test_candidates_in_real_answers(model, client):
    rows = [{"prompt": PROMPT, "answer": "war"}, {"prompt": "Who?", "answer": "the kind"}]
    body = {"contexts": rows, "slot": "after", "candidates": ["", " and peace"]}
    rewards = client.post("/contexts", json=body).json()["rewards"]
    whole = [
        (Turn("user", row["prompt"]), Turn("assistant", row["answer"] + text))
        for row in rows
        for text in body["candidates"]
    ]
    scorer = text_scorer(model, whole, device=torch.device("cpu"))
    assert np.allclose(np.ravel(rewards), scorer.own_rewards(whole), atol=1e-5)
    marked = [{"role": "user", "content": "Is{slot} it?"}, {"role": "assistant", "content": "No"}]
    body = {"contexts": [{"messages": marked}], "candidates": ["!"]}
    assert len(client.post("/contexts", json=body).json()["rewards"]) == 1
    refused = client.post("/contexts", json=body | {"contexts": rows})
    assert refused.status_code == 400
    assert "slot=after" in refused.json()["error"]


def test_what_cannot_be_answered_is_refused_with_a_sentence(client):
    for path, body, word in [
        ("/classify", {"input": [[5] * 200]}, "longer"),
        ("/classify", {"nothing": 1}, "/classify"),
        ("/v1/score", {"text_1": ["a", "b", "c"], "text_2": ["d"]}, "/v1/score"),
        ("/contexts", {"contexts": []}, "/contexts"),
    ]:
        answer = client.post(path, json=body)
        assert answer.status_code == 400
        assert word in answer.json()["error"]


def test_a_function_is_served_too(tmp_path):
    reward = pessimal.reward(
        lambda prompt, responses: [float(len(r)) for r in responses], name="length"
    )
    client = TestClient(application(Served.from_reward(reward, torch.device("cpu"))))
    body = {"query": ["Why? So.", "Why? Well."], "prompts": ["Why?", "Why?"]}
    assert client.post("/get_reward", json=body).json()["rewards"] == [4.0, 6.0]
    refused = client.post("/get_reward", json=body | {"prompts": ["Why?", "How?"]})
    assert refused.status_code == 400, "one of two does not begin with its prompt"
    assert "begin with its prompt" in refused.json()["error"]
    refused = client.post("/classify", json={"input": [[1, 2]]})
    assert refused.status_code == 400
    assert "conversations" in refused.json()["error"]


def test_check_finds_it_right_and_scans_read_it(model, url, own):
    spec = recognised(ServerOptions(url=url))
    wire = Wire(spec)

    def scores(inputs):
        if isinstance(inputs[0], tuple):
            return np.concatenate([wire.rows([messages_of(one)]) for one in inputs])
        return wire.rows(inputs)

    found = diagnose(scores, model, prompt=PROMPT, budget=60)
    assert found.right
    for api in (None, "openrlhf", "sglang-classify", "vllm-classify", "vllm-score"):
        spec = EndpointSpec(endpoint=ServerOptions(url=url, api=api))
        assert np.allclose(
            open_endpoint(spec, model.tokenizer).rewards(CONVERSATIONS), own, atol=1e-5
        )
