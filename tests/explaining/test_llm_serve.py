"""The client against a real OpenAI-compatible server: `transformers serve`, with tiny models on
this machine."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from pessimal.explaining.perturbers import Status
from pessimal.explaining.perturbers.llm import Llm
from scripted_server import CLARITY, OVERALL, request, scripted_model

SAYS = '{"applicable": true, "response": "Peace is a fine thing, <b>said</b> nobody."}'


@pytest.fixture
def url(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path / "log"
    command = [
        sys.executable,
        "-c",
        "from transformers.cli.transformers import main; main()",
        "serve",
    ]
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


@pytest.mark.slow
def test_a_real_server_is_asked_and_what_comes_back_is_checked(url, tmp_path):
    # This server takes response_format and does not look at it.
    model = str(scripted_model(tmp_path / "scripted", SAYS))

    def perturber() -> Llm:
        options = {
            "retries": 1,
            "attempts": 2,
            "attributes": [CLARITY],
            "cache": tmp_path / "answers",
        }
        return Llm(model=model, base_url=url, **options)

    llm = perturber()
    made, other = llm.perturb([request(OVERALL), request(CLARITY)])
    assert (made.status, made.text) == (
        Status.changed,
        "Peace is a fine thing, <b>said</b> nobody.",
    )
    assert other.status is Status.failed  # the words of step 1 have another shape, twice
    assert "clarity" in other.note
    assert (llm.chat.usage["calls"], llm.chat.usage["unmetered"]) == (3, 0)
    assert llm.chat.usage["tokens in"] > 100
    again = perturber()
    assert again.perturb([request(OVERALL), request(CLARITY)]) == [made, other]
    assert again.chat.usage["calls"] == 0
