"""What stands in the response slot for one token of the vocabulary."""

from enum import Enum


class Mode(Enum):
    """The three ways to score a token; `survives` in the score table says where the first two agree."""

    ids = "ids"
    """Exactly this token id."""
    text = "text"
    """The decoded text, through the chat template, as a person would type it."""
    paper = "paper"
    """The text, with the beginning-of-sequence token doubled as published."""
