"""The mistakes a user can make, one type each.

A message says what was given, what was expected and what to type next. The front door prints it in
one piece and exits with 2; anything that is not a `UserError` is a failure at work (exit code 1).
"""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake the person at the keyboard can mend."""


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


class WorkError(Exception):
    """Work that could not be finished for a reason outside the configuration; exit code 1."""


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A guess at what was meant, with a blank before it; empty where nothing is close."""
    close = difflib.get_close_matches(given, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
