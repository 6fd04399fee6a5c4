"""A Python function as a reward: called as f(prompt, responses), it gives one number a response.

Knows how a function is found, called and digested. Does not know what it computes.
"""

import hashlib
import inspect
import json
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pessimal.errors import ConfigError, ModelError
from pessimal.rewards.base import Report, TextReward
from pessimal.rewards.digests import template_digest, tokenizer_digest
from pessimal.rewards.frame import Conversation, messages_of, plain_prompt
from pessimal.rewards.spec import Kind, ModelSpec
from pessimal.tables import ModelDescription

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BATCH = 256
"""Most responses of one call."""
NOTHING = hashlib.sha256(b"null").hexdigest()
"""Digest of a tokenizer or template that there is not."""
Function = Callable[[str, list[str]], Any]
_PLAIN = (str, int, float, bool, type(None), tuple, list, dict)


@dataclass(frozen=True)
class CallableReward(TextReward):
    """A function of a prompt and responses."""

    function: Function

    def rewards(
        self,
        conversations: Sequence[Conversation],
        *,
        report: Report | None = None,
        again: bool = False,
    ) -> np.ndarray:
        """Rewards float64 (n,): one call for the responses to each prompt, at most `BATCH` a call.

        Raises ModelError where the function raises, or gives something else than one finite number
        a response.
        """
        rewards = np.full(len(conversations), np.nan)
        groups: dict[str, list[int]] = {}
        for index, conversation in enumerate(conversations):
            groups.setdefault(plain_prompt(conversation), []).append(index)
        for prompt, indices in groups.items():
            for start in range(0, len(indices), BATCH):
                batch = indices[start : start + BATCH]
                responses = [messages_of(conversations[index])[-1]["content"] for index in batch]
                rewards[batch] = self._call(prompt, responses)
                if report:
                    report({index: float(rewards[index]) for index in batch}, len(conversations))
        return rewards

    def _call(self, prompt: str, responses: list[str]) -> np.ndarray:
        try:
            answer = self.function(prompt, list(responses))
        except Exception as error:
            raise ModelError(
                f"the function of {self.name!r} raised {type(error).__name__}: {error}. It was "
                f"called as f(prompt, responses) with the prompt {prompt[:60]!r} and "
                f"{len(responses)} responses, the first {responses[0][:60]!r}"
            ) from error
        values = _numbers(answer)
        if values is None or values.shape != (len(responses),):
            got = f"{answer!r:.120}"
            if values is not None:
                several = f"{len(values)} numbers" if values.ndim == 1 else ""
                got = several or f"an array of shape {values.shape}"
            raise ModelError(
                f"the function of {self.name!r} must give one number a response, a list or array "
                f"of {len(responses)}; it gave {got}"
            )
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise ModelError(
                f"the function of {self.name!r} gave {values[bad[0]]} for {len(bad)} of "
                f"{len(responses)} responses, the first {responses[bad[0]][:60]!r}: give every "
                "response a finite number"
            )
        return values


def open_callable(
    spec: ModelSpec, tokenizer: "PreTrainedTokenizerBase | None" = None
) -> CallableReward:
    """The function that `spec.callable` names: `_target_`, and arguments that it is given besides
    prompt and responses.

    A class is made with the arguments, and its instance called. ConfigError for what cannot be
    imported, made or called.
    """
    arguments = {name: value for name, value in spec.callable.items() if name != "_target_"}
    path = spec.callable["_target_"]
    try:
        target = pkgutil.resolve_name(path)
        function = target(**arguments) if inspect.isclass(target) else partial(target, **arguments)
    except Exception as error:
        raise ConfigError(
            f"model.callable._target_={path!r} cannot be had: {' '.join(str(error).split())}. Give "
            "module.function of a module that Python finds: install it, or type PYTHONPATH=. in "
            "front of the command; arguments are model.callable.NAME=VALUE"
        ) from error
    if not callable(target) or not callable(function):
        raise ConfigError(
            f"model.callable._target_={path!r} is a {type(function).__name__}, which cannot be "
            "called: give a function f(prompt, responses), or a class whose instances can be "
            "called so"
        )
    return _reward(spec, function, target, arguments, tokenizer)


def wrap_callable(
    function: Function, *, name: str, tokenizer: "PreTrainedTokenizerBase | None" = None
) -> CallableReward:
    """A function, or any object that can be called as f(prompt, responses), as a reward.

    ConfigError where it cannot be called. The digest is over the function's source with the plain
    values (numbers, texts, lists) that it closes over or its object holds: give another name where
    something else changes what it computes.
    """
    if not callable(function):
        raise ConfigError(
            f"a reward is called as f(prompt, responses), and a {type(function).__name__} cannot be"
        )
    inner: Any = function
    arguments: dict[str, Any] = {}
    while isinstance(inner, partial):
        arguments |= {str(i): value for i, value in enumerate(inner.args)} | inner.keywords
        inner = inner.func
    inside = getattr(inner, "__qualname__", type(inner).__name__)
    path = f"{getattr(inner, '__module__', '')}.{inside}"
    spec = ModelSpec(name=name, kind=Kind.callable, callable={"_target_": path})
    return _reward(spec, function, inner, arguments, tokenizer)


def about_texts(spec: ModelSpec, tokenizer: "PreTrainedTokenizerBase | None") -> dict[str, Any]:
    """Tokenizer, its digests and the description, as fields of a `TextReward`."""
    names = ("base", "developer", "parameters", "rank", "about")
    factors = {name: getattr(spec, name) for name in names}
    return {
        "tokenizer": tokenizer,
        "tokenizer_digest": tokenizer_digest(tokenizer) if tokenizer else NOTHING,
        "template_digest": template_digest(tokenizer) if tokenizer else NOTHING,
        "description": ModelDescription(**factors),
    }


def _reward(
    spec: ModelSpec,
    function: Function,
    target: Any,
    arguments: Mapping[str, Any],
    tokenizer: "PreTrainedTokenizerBase | None",
) -> CallableReward:
    settings = json.dumps(arguments, sort_keys=True, default=_type_name)
    return CallableReward(
        spec=spec,
        weights_digest=hashlib.sha256(f"{_source(target)}\n{settings}".encode()).hexdigest(),
        config_digest=hashlib.sha256(settings.encode()).hexdigest(),
        **about_texts(spec, tokenizer),
        function=function,
    )


def _source(target: Any) -> str:
    """The source of a function or class (its name where there is none), with the plain values that
    a function closes over, or an instance holds."""
    is_code = inspect.isroutine(target) or inspect.isclass(target)
    written = target if is_code else type(target)
    try:
        source = inspect.getsource(written)
    except (OSError, TypeError):  # built in, or typed at a prompt
        source = f"{written.__module__}.{written.__qualname__}"
    held = inspect.getclosurevars(target).nonlocals if inspect.isfunction(target) else {}
    if not is_code:
        held = getattr(target, "__dict__", {})
    plain = {name: value for name, value in held.items() if isinstance(value, _PLAIN)}
    return f"{source}\n{json.dumps(plain, sort_keys=True, default=_type_name)}"


def _type_name(value: Any) -> str:
    """A value that JSON has no form for, without the address in memory that differs from run to
    run."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _numbers(answer: Any) -> np.ndarray | None:
    """An array float64 of a list, array or tensor of numbers; None for anything else."""
    try:
        if hasattr(answer, "detach"):
            answer = answer.detach().cpu().double().numpy()
        elif not isinstance(answer, np.ndarray):
            answer = [value.item() if hasattr(value, "item") else value for value in answer]
        values = np.asarray(answer)
    except (TypeError, ValueError, RuntimeError):
        return None
    return values.astype(np.float64) if values.dtype.kind in "iufb" else None
