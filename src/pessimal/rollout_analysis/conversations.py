"""Conversations of rollouts: prompts and responses as texts, and thoughts apart from answers.

Knows no rewards.
"""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pessimal.conversation import Turn, plain_text
from pessimal.texts import storable

PARTS = ("answer", "thought", "all")
_THOUGHT = re.compile(r"<think>\n*(.*?)\n*(?:</think>\n*|\Z)", re.DOTALL)


def read_turns(value: Any) -> list[Turn]:
    """The messages of a list of them, or of its JSON or Python text; none of any other value. What
    a model thought stands in <think>…</think>; images are left out."""
    if isinstance(value, str):
        if not re.match(r"\s*\[\s*\{.*role", value, re.DOTALL):
            return []
        try:
            value = json.loads(value)
        except ValueError:
            try:
                value = ast.literal_eval(value)
            except (ValueError, SyntaxError):
                return []
    value = [value] if isinstance(value, Mapping) else value
    messages = list(value) if isinstance(value, list | tuple | np.ndarray) else []
    if not all(isinstance(message, Mapping) and "role" in message for message in messages):
        return []
    turns = list[Turn]()
    for message in messages:
        content = message.get("content")
        parts = list(content) if isinstance(content, list | tuple | np.ndarray) else [content]
        thought, text = message.get("reasoning_content") or message.get("reasoning") or "", ""
        for part in parts:
            if isinstance(part, Mapping):
                thought += str(part.get("reasoning") or part.get("thinking") or "")
                part = part.get("text")
            text += str(part or "")
        text = f"<think>\n{thought}\n</think>\n\n{text}" if thought else text
        turns.append(Turn(str(message["role"]), storable(text)))
    return turns


def read_texts(frame: pd.DataFrame, names: Mapping[str, str], notes: list[str]) -> pd.DataFrame:
    """prompt, response and group (the prompt as the source has it) of each row; a note where there
    are images."""
    rows, pictures = list[tuple[str, str, str]](), 0
    prompts = frame[names["prompt"]] if "prompt" in names else [None] * len(frame)
    for prompt, response in zip(prompts, frame[names["response"]], strict=True):
        turns = read_turns(response) or [Turn("assistant", read_text(response))]
        before = read_turns(prompt) or [Turn("user", read_text(prompt))]
        if prompt is None or turns[0].role in ("system", "user"):  # the whole conversation
            before = []
        speakers = [number for number, turn in enumerate(turns) if turn.role == "assistant"]
        end = speakers[-1] if speakers else len(turns) - 1
        text = write_prompt([*before, *turns[:end]])
        pictures += _has_picture(prompt) or _has_picture(response)
        rows.append((text, turns[end].content, text if prompt is None else storable(str(prompt))))
    if pictures:
        notes.append(f"The images of {pictures:,} conversations are left out: only texts are read.")
    return pd.DataFrame(rows, columns=["prompt", "response", "group"])


def _has_picture(value: Any) -> bool:
    """Whether a part of a message is an image."""
    return not isinstance(value, str) and bool(re.search(r"'type': '\w*image", str(value)))


def write_prompt(turns: Sequence[Turn]) -> str:
    return turns[0].content if len(turns) == 1 else plain_text(tuple(turns))


def read_text(cell: object) -> str:
    """A cell as a text; of a list the first; nothing of a missing one."""
    if isinstance(cell, list | tuple | np.ndarray):
        return read_text(next(iter(cell), None))
    return "" if cell is None else storable(str(cell))


def cut_part(text: str, opened: bool, where: str) -> str:
    """The answer, the thought or all of a response; `opened` where its prompt opens the thought."""
    if where == "all":
        return text
    if opened or ("<think>" not in text.partition("</think>")[0] and "</think>" in text):
        text = f"<think>{text}"
    if where == "thought":
        return "\n".join(match[1] for match in _THOUGHT.finditer(text))
    return _THOUGHT.sub("", text)
