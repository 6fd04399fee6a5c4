"""The client against a real OpenAI-compatible server: `transformers serve`, with tiny models on this machine."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from scripted_server import CLARITY, OVERALL, request, scripted_model

from pessimal.errors import ConfigError
from pessimal.explain.chat.connect import endpoint_client
from pessimal.explain.chat.endpoint_spec import EndpointSpec
from pessimal.explain.perturbation import Status
from pessimal.explain.perturbers.llm import Llm

SAYS = '{"applicable": true, "response": "Peace is a fine thing, <b>said</b> nobody."}'


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    return {
        "scripted": str(scripted_model(folder / "scripted", SAYS)),
        "random": str(scripted_model(folder / "random", None)),
    }


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("serve-log") / "log"
    command = [sys.executable, "-c", "from transformers.cli.transformers import main; main()", "serve"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with log.open("w") as file:
        server = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)
    try:
        until = time.monotonic() + 90
        while True:
            with contextlib.suppress(urllib.error.URLError, OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2)
                break
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(20)


def perturber(url: str, model: str, cache, **options) -> Llm:
    spec = EndpointSpec(model=model, base_url=url, retries=1, first_wait=0.1, timeout=60, **options)
    chat = endpoint_client(spec, environment={}, cache=cache, attempts=2)
    return Llm(chat, attributes=[CLARITY])


def test_a_rewritten_response_comes_back_whole_and_is_kept(url, models, tmp_path):
    llm = perturber(url, models["scripted"], tmp_path)
    (made,) = llm.perturb([request(OVERALL)])
    assert (made.status, made.text) == (Status.changed, "Peace is a fine thing, <b>said</b> nobody.")
    usage = llm.chat.usage
    assert (usage.calls, usage.unmetered, usage.completion_tokens) == (1, 0, 2)
    assert usage.prompt_tokens > 100
    again = perturber(url, models["scripted"], tmp_path)
    assert again.perturb([request(OVERALL)]) == [made]
    assert again.chat.usage.calls == 0


def test_an_object_of_another_shape_does_not_pass(url, models, tmp_path):
    # This server takes response_format and does not look at it: the shape is checked here.
    (made,) = perturber(url, models["scripted"], tmp_path).perturb([request(CLARITY)])
    assert made.status is Status.failed
    assert "lacks clarity" in made.note


def test_gibberish_is_asked_for_again_and_fails_in_the_end(url, models, tmp_path):
    llm = perturber(url, models["random"], tmp_path, max_tokens=20)
    (made,) = llm.perturb([request(OVERALL)])
    assert (made.status, made.text) == (Status.failed, None)
    assert "no JSON object" in made.note
    usage = llm.chat.usage
    assert (usage.calls, usage.malformed, usage.failures, usage.completion_tokens) == (2, 2, 1, 40)


def test_an_address_without_v1_is_reported(url, models, tmp_path):
    with pytest.raises(ConfigError, match="/v1"):
        perturber(url.removesuffix("/v1"), models["scripted"], tmp_path).perturb([request(OVERALL)])
