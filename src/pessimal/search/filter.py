"""Which tokens a response may be made of."""

from enum import Enum


class Filter(Enum):
    """Which tokens a response may be made of; several filters hold together."""

    no_special = "no_special"
    """Without control tokens and unused entries."""
    ascii = "ascii"
    """Tokens whose text is printable ASCII."""
    words = "words"
    """Tokens whose text is a word: letters, with or without a space before them."""
