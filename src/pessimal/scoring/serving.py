"""Any reward behind the wires that trainers speak: OpenRLHF's `/get_reward`, vLLM's and SGLang's
`/classify`, and `/v1/score`.

Whole inputs, token ids or text, are scored as they are, by the model's own forward, without padding
and without cutting; conversations as everywhere else. Knows requests and rewards. Does not know
models' files, nor addresses.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
import torch

from pessimal.conversation import UNREAD, Conversation, Turn, check_unread, read_messages
from pessimal.errors import ConfigError
from pessimal.rewards.base import Reward
from pessimal.rewards.formats import token_ids
from pessimal.rewards.frame import Encoded
from pessimal.scoring.texts import NetworkTexts, TextScorer, overflow, text_scorer

Asked: TypeAlias = str | list[int] | Conversation
SAMPLE: tuple[Conversation, ...] = (
    (Turn("user", "What is the capital of France?"), Turn("assistant", "It is Paris.")),
    (Turn("user", "Say something kind."), Turn("assistant", "You did well.")),
)
"""Conversations on which the scorer is checked against the model's own forward before anything is
served."""


@dataclass
class Served:
    """A reward, and the answers to requests for it. Safe to use from several threads."""

    reward: Reward
    scorer: TextScorer
    lock: Lock

    @classmethod
    def from_reward(cls, reward: Reward, device: torch.device) -> "Served":
        sample = SAMPLE if reward.as_network else ()
        return cls(reward, text_scorer(reward, sample, device=device), Lock())

    def rewards(self, requests: Sequence[Asked]) -> list[float]:
        """One number an input.

        Raises:
            UserError: an input is longer than the model is made for, or what this reward cannot be
                asked.
        """
        conversations = [request for request in requests if isinstance(request, tuple)]
        if conversations and len(conversations) < len(requests):
            raise ConfigError("one request has token ids or text, or conversations, and not both")
        with self.lock:
            values = self.scorer.rewards(conversations) if conversations else self._whole(requests)
        if not np.isfinite(values).all():
            number = int(np.flatnonzero(~np.isfinite(values))[0])
            raise ConfigError(f"input {number + 1} of {len(requests)} {self._refusal_reason()}")
        return values.tolist()

    def _refusal_reason(self) -> str:
        """Why a scorer gives no number; of networks it says itself where numbers overflow."""
        if self.scorer.longest is None:
            return "gets no number: the function gives None, which says that it does not apply"
        return (
            f"is longer than the {self.scorer.longest} tokens that the model is made for: it is "
            "not cut, since a reward is read at the end"
        )

    def _whole(self, requests: Sequence[Any]) -> np.ndarray:
        reward, scorer = self.reward, self.scorer
        if not reward.takes_inputs or not isinstance(scorer, NetworkTexts):
            raise ConfigError(
                f"{reward.name!r} is of kind {reward.spec.kind}, which takes conversations: send "
                "messages to /classify, a prompt and a response to /v1/score, or prompts beside "
                "the queries to /get_reward"
            )
        assert reward.tokenizer is not None
        ids = [token_ids(reward.tokenizer, a) if isinstance(a, str) else a for a in requests]
        rows = [Encoded(tuple(row), None, len(row)) for row in ids]
        values = scorer.whole(rows)
        if any(scorer.fits(row) and np.isnan(v) for row, v in zip(rows, values, strict=True)):
            raise overflow(f"{reward.name!r} gives NaN")
        return values


def _get_reward(served: Served, body: dict[str, Any]) -> Any:
    """OpenRLHF's: whole texts, in the template of whoever sends them; where the reward takes
    conversations, the prompt is what `prompts` says."""
    queries, prompts = body["query"], body.get("prompts") or []
    requests: list[Asked] = list(queries)
    if not served.reward.takes_inputs:
        pairs = list(zip(queries, prompts, strict=True))
        if any(not prompt or not query.startswith(prompt) for query, prompt in pairs):
            raise ConfigError("each query must begin with its prompt, in `prompts`")
        requests = [_turns(prompt, query[len(prompt) :]) for query, prompt in pairs]
    rewards = served.rewards(requests)
    return {"rewards": rewards, "scores": rewards, "extra_logs": {}}


def _classify(served: Served, body: dict[str, Any]) -> Any:
    """vLLM's: `input` or `messages`; SGLang's: `text` or `input_ids`."""
    check_unread(body, (*UNREAD, *RENDERING), where="this request", error=ConfigError)
    if "messages" in body:
        requests: list[Asked] = [read_messages(body["messages"], where='"messages"')]
    else:
        name = "input_ids" if "input_ids" in body else "text" if "text" in body else "input"
        value = body[name]
        is_single = isinstance(value, str) or isinstance(value[0], int)
        requests = [value] if is_single else list(value)
    rewards = served.rewards(requests)
    if "input_ids" in body or "text" in body:
        return [{"embedding": [reward], "meta_info": {}} for reward in rewards]
    entries = [
        {"index": i, "label": "LABEL_0", "probs": [reward], "num_classes": 1}
        for i, reward in enumerate(rewards)
    ]
    return {"object": "list", "model": served.reward.name, "data": entries}


def _score(served: Served, body: dict[str, Any]) -> Any:
    """SGLang's: `query` and `items`, each the end of one input; vLLM's: `text_1` and `text_2`."""
    if "items" in body:
        query = body.get("query") or ([] if not isinstance(body["items"][0], str) else "")
        return {"scores": [[r] for r in served.rewards([query + item for item in body["items"]])]}
    first, second = ([t] if isinstance(t, str) else t for t in (body["text_1"], body["text_2"]))
    if len(first) == 1:
        first = first * len(second)
    rewards = served.rewards([_turns(p, r) for p, r in zip(first, second, strict=True)])
    data = [{"index": i, "object": "score", "score": reward} for i, reward in enumerate(rewards)]
    return {"object": "list", "model": served.reward.name, "data": data}


def _turns(prompt: str, response: str) -> Conversation:
    texts = {"user": prompt, "assistant": response}
    messages = [{"role": role, "content": text} for role, text in texts.items()]
    return read_messages(messages, where="this request")


RENDERING = ("chat_template", "documents", "add_generation_prompt", "continue_final_message")
"""Fields of requests with messages by which a server would write the conversation otherwise."""
WIRES: dict[str, Callable[[Served, dict[str, Any]], Any]] = {
    "/get_reward": _get_reward,
    "/classify": _classify,
    "/v1/score": _score,
    "/score": _score,
}
"""The function that answers at each path."""
