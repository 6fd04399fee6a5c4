"""Finding the JSON object in what a model wrote, and checking its shape.

Knows the few words of JSON schema that our questions use, and refuses others: a constraint that is not looked at would be
taken for one that holds.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from pessimal.explain.chat.question import sendable

_KNOWN = {"type", "properties", "required", "additionalProperties", "items", "enum", "description"}
_TYPES = {"object": dict, "array": list, "string": str, "boolean": bool}
_FENCE = re.compile(r"```(?:json)?\s*\n?(.*?)```", re.DOTALL | re.IGNORECASE)
_THOUGHT = "</think>"
# Beginnings of objects that are tried within one text; a text of nothing but braces must not take for ever.
_TRIES = 100


def parse(text: str, schema: Mapping[str, Any]) -> tuple[Any, str]:
    """The first object of the asked shape in a text, and why there is none ("" where there is one).

    Taken are the whole text, what stands in a code fence, and objects among other words, in this order; what a model
    thinks aloud (up to `</think>`) is left out.
    """
    text = text.rpartition(_THOUGHT)[2].strip()
    reason = "no JSON object in the reply"
    for candidate in _objects(text):
        complaint = mismatch(candidate, schema)
        if complaint is None:
            return candidate, ""
        reason = complaint
    return None, reason


def mismatch(value: Any, schema: Mapping[str, Any], where: str = "the answer") -> str | None:
    """How a value differs from a schema; None where it does not."""
    if unknown := set(schema) - _KNOWN:
        raise ValueError(f"a schema with {sorted(unknown)}, which nothing here checks")
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} is none of {', '.join(map(str, schema['enum']))}"
    if not isinstance(value, _TYPES[schema["type"]]):
        return f"{where} is no {schema['type']}"
    if isinstance(value, str):
        return f"{where} holds lone surrogates" if value != sendable(value) else None
    if isinstance(value, list):
        complaints = (mismatch(item, schema["items"], f"an item of {where}") for item in value)
        return next((complaint for complaint in complaints if complaint), None)
    if isinstance(value, dict):
        return _object_mismatch(value, schema, where)
    return None


def _object_mismatch(value: dict, schema: Mapping[str, Any], where: str) -> str | None:
    properties = schema["properties"]
    if missing := [name for name in schema.get("required", ()) if name not in value]:
        return f"{where} lacks {', '.join(missing)}"
    if schema.get("additionalProperties") is False and set(value) - set(properties):
        return f"{where} has more properties than were asked for"
    complaints = (mismatch(value[name], inner, name) for name, inner in properties.items() if name in value)
    return next((complaint for complaint in complaints if complaint), None)


def _objects(text: str):
    decoder = json.JSONDecoder()
    for whole in (text, *(match[1].strip() for match in _FENCE.finditer(text))):
        yield from _decoded(lambda whole=whole: json.loads(whole))
    start = -1
    for _ in range(_TRIES):
        start = text.find("{", start + 1)
        if start < 0:
            return
        yield from _decoded(lambda start=start: decoder.raw_decode(text, start)[0])


def _decoded(read):
    # RecursionError: a reply may nest deeper than Python reads.
    try:
        yield read()
    except (ValueError, RecursionError):
        return
