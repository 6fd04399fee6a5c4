"""A server that speaks the OpenAI chat protocol as a test tells it to, in this process, and
remembers what it was asked."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from unittest import mock

import httpx2

from pessimal.explaining.attribute import Attribute, Direction
from pessimal.explaining.chat import Endpoint, EndpointOptions
from pessimal.explaining.perturbers import Request
from pessimal.rewards import server as client
from pessimal.tables.comparisons import Comparison, Turn

CLARITY = Attribute("clarity", "It is easy to understand.", 1)
VERBOSITY = Attribute("verbosity", "It uses more words than it needs.", -1)
OVERALL = Attribute("overall", "It is good.", 1)
PLACEBO = Attribute("placebo", "", 1)
HOSTILE = (
    "<script>",
    "nul\0byte",
    "   \n",
    "",
    "😀" * 9,
    "Ей-богу, да.",
    '{"applicable": false}',
    "x " * 5000,
)


@dataclass
class Says:
    """One reply of the server."""

    content: str | None = None
    status: int = 200
    headers: dict = field(default_factory=dict)
    refusal: str | None = None
    finish_reason: str = "stop"
    body: str | None = None
    """The whole body, instead of a completion."""
    delay: float = 0.0
    usage: bool = True


class Server:
    """What a running server was asked."""

    def __init__(self, script: Callable[[dict, int], Says]):
        self.script, self.requests, self.headers = script, [], []
        self.in_flight = self.most_in_flight = 0
        self.waits: list[float] = []
        """Seconds slept before retries, which nobody waits for."""
        self.url = "http://127.0.0.1:9/v1"

    def of_kind(self, name: str) -> list[dict]:
        """Requests of a kind: identify, rewrite, judge."""
        return [request for request in self.requests if kind(request) == name]


def kind(request: dict) -> str:
    material = case(request)
    return "identify" if "attributes" in material else "judge" if "A" in material else "rewrite"


def case(request: dict) -> dict:
    """The material of a request."""
    return json.loads(request["messages"][1]["content"])


@contextlib.contextmanager
def serving(script: Callable[[dict, int], Says]) -> Iterator[Server]:
    """Answer by `script(request, number of requests before it)` while this lasts."""
    server, lock = Server(script), threading.Lock()

    def handle(request: httpx2.Request) -> httpx2.Response:
        with lock:
            asked, number = json.loads(request.content), len(server.requests)
            server.requests.append(asked)
            server.headers.append(dict(request.headers))
            server.in_flight += 1
            server.most_in_flight = max(server.most_in_flight, server.in_flight)
        try:
            says = server.script(asked, number)
            threading.Event().wait(says.delay)
        finally:
            with lock:
                server.in_flight -= 1
        if isinstance(says.body, Exception):
            raise says.body
        body = says.body if says.body is not None else json.dumps(_completion(says))
        return httpx2.Response(
            says.status, headers={"Content-Type": "application/json", **says.headers}, text=body
        )

    with (
        mock.patch.object(client.Server, "network", httpx2.MockTransport(handle)),
        mock.patch("openai._base_client.time.sleep", server.waits.append),
    ):
        yield server


def _completion(says: Says) -> dict:
    if says.status != 200:
        return {"error": {"message": says.content or "scripted", "code": says.refusal}}
    message = {"role": "assistant", "content": says.content, "refusal": says.refusal}
    made = {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": says.finish_reason}],
    }
    if says.usage:
        made["usage"] = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
    return made


def good(request: dict, _number: int = 0) -> Says:
    """Names the response's first word for every attribute, and rewrites by putting another in its
    place."""
    material = case(request)
    words = material.get("response", "").split()
    if "attributes" in material:
        return Says(json.dumps(dict.fromkeys(material["attributes"], words[:1])))
    seed = request["seed"]
    text = " ".join([f"{material.get('attribute', 'control')}-{seed}", *words[1:]])
    return Says(json.dumps({"applicable": True, "response": text}))


def chat(
    url: str | None, folder=None, *, attempts: int = 3, allow_unanswered: bool = False, **options
) -> Endpoint:
    """A client of a scripted server."""
    asked = EndpointOptions(**{"model": "m", "base_url": url} | options)
    return Endpoint(asked, cache=folder, attempts=attempts, allow_unanswered=allow_unanswered)


def comparison(
    first: str = "Peace is a good thing.", second: str = "War, maybe.", *, key: str = "c0"
) -> Comparison:
    return Comparison(key, (Turn("user", "What is the best thing?"),), (first, second))


def request(
    attribute: Attribute = CLARITY,
    *,
    text: str | None = None,
    seed: int = 0,
    response: int = 0,
    better: bool = True,
):
    made = comparison() if text is None else comparison(text, "War, maybe.")
    return Request(made, response, attribute, Direction.better if better else Direction.worse, seed)


def scripted_model(folder, says: str | None, *, positions: int = 8192):
    """A tiny causal language model that always says this, by its weights: its layers add nothing,
    and its head maps the end of the question to one token with the whole text, and that to the end.
    None: a random one, which says gibberish."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from tiny_language_models import CHAT, tokenizer

    words = tokenizer(template=CHAT)
    if says is not None:
        words.add_tokens([says])
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=positions,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=3,
        pad_token_id=3,
    )
    network = LlamaForCausalLM(config)
    if says is not None:
        with torch.no_grad():
            for layer in network.model.layers:
                layer.self_attn.o_proj.weight.zero_()
                layer.mlp.down_proj.weight.zero_()
            rows, head = network.model.embed_tokens.weight, network.lm_head.weight
            rows /= rows.norm(dim=1, keepdim=True).clamp_min(1e-6)  # the padding's is zero
            head.zero_()
            text, separator = words.convert_tokens_to_ids([says, "<|sep|>"])
            head[text], head[3] = 10 * rows[separator], 10 * rows[text]
    network.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder
