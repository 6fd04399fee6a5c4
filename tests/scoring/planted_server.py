"""A server of a tiny reward model that can be made to do wrong, in every way that `served` names;
in process, or by HTTP as vLLM's /classify answers."""

import copy
import threading

import numpy as np
import torch

from pessimal.rewards.rendering import messages_of


class Planted:
    """Right as it is made; each option is a fault.

    Inputs of a request are padded to one length and run as one batch, in random order.
    """

    def __init__(
        self,
        network,
        tokenizer,
        *,
        pool="last",
        after=None,
        state=None,
        body=None,
        head=None,
        side="right",
        masked=True,
        pad=None,
        bos=0,
        cut=0,
        template=None,
        options=None,
        turns=None,
        dtype=torch.float32,
        noise=0.0,
        seed=0,
        together=None,
        most=None,
        keep="start",
    ):
        self.network = copy.deepcopy(body or network)
        self.network.score = copy.deepcopy(network.score) if head is None else head
        self.network.to(dtype)
        self.tokenizer, self.pool, self.after, self.state = tokenizer, pool, after, state
        self.side, self.masked, self.pad = (
            side,
            masked,
            tokenizer.pad_token_id if pad is None else pad,
        )
        self.bos, self.cut, self.template, self.options = bos, cut, template, options or {}
        self.turns = turns
        self.together, self.most, self.keep = together, most, keep
        self.noise, self.random, self.sent, self.requests = noise, np.random.default_rng(seed), 0, 0

    def __call__(self, inputs) -> np.ndarray:
        """Scores (n, outputs) of token ids, texts, or conversations."""
        self.sent, self.requests = self.sent + len(inputs), self.requests + 1
        rows = [self.read(one) for one in inputs]
        order = self.random.permutation(len(rows))
        batch = self.score([rows[i] for i in order])
        scores = np.empty_like(batch)
        scores[order] = batch
        if self.together is not None:
            scores = self.together(scores)
        return scores + self.noise * self.random.standard_normal(scores.shape)

    def read(self, one) -> list[int]:
        """The ids of an input."""
        if isinstance(one, str):
            ids = self.tokenizer(one, add_special_tokens=False)["input_ids"]
        elif not isinstance(one[0], int):
            messages = list(one) if isinstance(one[0], dict) else messages_of(one)
            messages = messages if self.turns is None else self.turns(messages)
            chat = {"chat_template": self.template, **self.options}
            ids = self.tokenizer.apply_chat_template(
                messages, tokenize=True, return_dict=False, **chat
            )
        else:
            return self.shortened(list(one))
        ids = [self.tokenizer.bos_token_id] * self.bos + ids
        ids = ids[: len(ids) - self.cut * (ids[-1] == self.tokenizer.eos_token_id)]
        return self.shortened(ids)

    def shortened(self, ids: list[int]) -> list[int]:
        if self.most is None or len(ids) <= self.most:
            return ids
        return ids[: self.most] if self.keep == "start" else ids[-self.most :]

    @torch.no_grad()
    def score(self, rows: list[list[int]]) -> np.ndarray:
        width = max(map(len, rows))
        right = self.side == "right"
        ids, mask, positions = (torch.zeros(len(rows), width, dtype=torch.long) for _ in range(3))
        ids += self.pad
        for row, own in enumerate(rows):
            where = slice(0, len(own)) if right else slice(width - len(own), width)
            ids[row, where], mask[row, where] = torch.tensor(own), 1
            positions[row] = torch.arange(width) - (0 if right else width - len(own))
        positions = positions.clamp(min=0)
        inputs = {"attention_mask": mask, "position_ids": positions} if self.masked else {}
        states = self.network.model(input_ids=ids, use_cache=False, **inputs).last_hidden_state
        final = torch.stack(
            [self.pooled(states[i], len(own), ids[i], right) for i, own in enumerate(rows)]
        )
        if self.state == "element":
            return final[:, -1:].double().numpy()
        if self.state == "normalised":
            final = torch.nn.functional.normalize(final, dim=-1)
        logits = self.network.score(final).float()
        return (logits if self.after is None else self.after(logits)).double().numpy()

    def pooled(self, states, length, ids, right):
        start = 0 if right else len(ids) - length
        if self.pool == "not pad":
            return states[int((ids != self.pad).nonzero()[-1])]
        if self.pool == "row":
            return states[-1]
        if self.pool == "mean":
            return states[start : start + length].mean(0)
        return states[start if self.pool == "first" else start + length - 1]


def listening(server: Planted):
    """Serve it on a free port of this machine: (its address, a function that stops it)."""
    import uvicorn
    from fastapi import FastAPI, Request

    app = FastAPI()

    @app.post("/classify")
    async def classify(request: Request):
        body = await request.json()
        inputs = body.get("input", body.get("messages"))
        one = isinstance(inputs, str) or isinstance(inputs[0], int | dict)
        scores = server([inputs] if one else inputs)
        data = [
            {"index": i, "label": None, "probs": row.tolist(), "num_classes": len(row)}
            for i, row in enumerate(scores)
        ]
        return {
            "id": "classify-0",
            "object": "list",
            "created": 0,
            "model": body.get("model"),
            "data": data,
            "usage": {"prompt_tokens": 0, "total_tokens": 0, "completion_tokens": 0},
        }

    running = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        if not thread.is_alive():
            raise RuntimeError("the server did not start")
        threading.Event().wait(0.02)
    port = running.servers[0].sockets[0].getsockname()[1]

    def stop():
        running.should_exit = True
        thread.join()

    return f"http://127.0.0.1:{port}", stop
