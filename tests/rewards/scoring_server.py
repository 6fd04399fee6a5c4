"""A server on this machine that speaks the scoring APIs of vLLM and SGLang, and a chat with
log-probabilities, over tiny networks; in the shapes that the projects' own pages and tests show
(see `pessimal.rewards.endpoint`)."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
import uvicorn
from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse

Fault = Callable[[int, dict], Response | None]


@dataclass
class Served:
    """What is served, and what was asked."""

    tokenizer: object
    classifier: torch.nn.Module | None = None
    causal: torch.nn.Module | None = None
    bonus: dict[int, float] = field(default_factory=dict)
    """Added to the logits of these ids, so that they are among the likeliest."""
    url: str = ""
    asked: list[tuple[str, dict]] = field(default_factory=list)
    listed: tuple[str, ...] = ()
    """Paths that it says it has."""
    fault: Fault = lambda n, body: None
    """What is answered to the n-th request instead; None answers as it should."""

    @torch.no_grad()
    def outputs(self, ids: list[int]) -> list[float]:
        """The classifier's own forward."""
        return self.classifier(torch.tensor([ids])).logits[0].double().tolist()

    @torch.no_grad()
    def log_probabilities(self, ids: list[int]) -> torch.Tensor:
        """float64 (rows,) of the next token."""
        logits = self.causal(torch.tensor([ids])).logits[0, -1].double()
        for token, bonus in self.bonus.items():
            logits[token] += bonus
        return logits.log_softmax(dim=-1)

    def template(self, messages: list[dict], **options) -> list[int]:
        return self.tokenizer.apply_chat_template(
            messages, tokenize=True, return_dict=False, **options
        )

    def answer(self, path: str, body: dict):
        if path == "/v1/chat/completions":
            return self._chat(body)
        if path == "/get_reward":
            rewards = [self.outputs(self._plain(text))[0] for text in body["query"]]
            return {"rewards": rewards, "scores": rewards, "extra_logs": {}}
        if path == "/rerank":
            assert body["raw_scores"]
            turns = [self._pair(body["query"], document) for document in body["documents"]]
            scores = [self.outputs(self.template(turn))[0] for turn in turns]
            rows = [{"index": i, "relevance_score": score} for i, score in enumerate(scores)]
            rows = sorted(rows, key=lambda row: -row["relevance_score"])  # as rerankers do
            return {"object": "rerank", "results": rows}
        if path == "/classify" and "input" not in body and "messages" not in body:  # SGLang's
            inputs = body.get("input_ids") or body["text"]
            return [
                {"embedding": self.outputs(self._ids(given)), "meta_info": {"id": "x"}}
                for given in inputs
            ]
        if path == "/score":
            pairs = zip(body["text_1"], body["text_2"], strict=True)
            turns = [self._pair(p, r) for p, r in pairs]
            data = [
                {"object": "score", "score": self._raw(body, self.template(t))[0]} for t in turns
            ]
        else:
            given = (
                [self.template(body["messages"])]
                if "messages" in body
                else map(self._ids, body["input"])
            )
            outputs = [self._raw(body, ids) for ids in given]
            if path == "/pooling":
                data = [{"object": "pooling", "data": row} for row in outputs]
            else:
                data = [
                    {"label": "LABEL_0", "probs": row, "num_classes": len(row)} for row in outputs
                ]
        data = [{"index": i, **entry} for i, entry in enumerate(data)]
        usage = {"prompt_tokens": 1, "total_tokens": 1, "completion_tokens": 0}
        return {
            "id": "x",
            "object": "list",
            "created": 1,
            "model": "m",
            "data": data[::-1],
            "usage": usage,
        }

    def _plain(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    @staticmethod
    def _pair(prompt: str, response: str) -> list[dict]:
        return [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]

    def _ids(self, given) -> list[int]:
        return self.tokenizer(given)["input_ids"] if isinstance(given, str) else given

    def _raw(self, body: dict, ids: list[int]) -> list[float]:
        outputs = torch.tensor(self.outputs(ids), dtype=torch.float64)
        return (outputs.sigmoid() if body.get("use_activation", True) else outputs).tolist()

    def _chat(self, body: dict):
        *before, last = body["messages"]
        if body.get("continue_final_message"):
            ids = self.template(before, add_generation_prompt=True)
            ids += self.tokenizer(last["content"], add_special_tokens=False)["input_ids"]
        else:
            ids = self.template(body["messages"], add_generation_prompt=True)
        values, tokens = self.log_probabilities(ids).topk(body["top_logprobs"])
        top = [
            {"token": self.tokenizer.decode([token]), "logprob": value, "bytes": None}
            for value, token in zip(values.tolist(), tokens.tolist(), strict=True)
        ]
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": top[0]["token"]},
            "logprobs": {"content": [top[0] | {"top_logprobs": top}]},
            "finish_reason": "length",
        }
        return {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [choice],
        }


@contextlib.contextmanager
def serving(served: Served) -> Iterator[Served]:
    """Serve in a thread of this process, on a free port."""
    app, lock = FastAPI(openapi_url=None), threading.Lock()

    @app.get("/openapi.json")
    def listed():
        with lock:
            served.asked.append(("/openapi.json", {}))
        return {"paths": {path: {} for path in served.listed}}

    @app.post("/{path:path}")
    def post(path: str, body: dict):
        with lock:
            n = len(served.asked)
            served.asked.append((f"/{path}", body))
        wrong = served.fault(n, body)
        return JSONResponse(served.answer(f"/{path}", body)) if wrong is None else wrong

    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    served.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield served
    finally:
        server.should_exit = True
        thread.join(5)
