"""Where comparisons come from, by name: what a configuration may say. Imports nothing, since the front door reads it."""

from enum import Enum


class Source(Enum):
    """What is read."""

    embedded = "embedded"
    """Sixty everyday comparisons that were written for this package."""
    jsonl = "jsonl"
    """A file of one's own, in our format or one of TRL's."""
    helpsteer2 = "helpsteer2"
    """nvidia/HelpSteer2."""
    hh_rlhf = "hh_rlhf"
    """Anthropic/hh-rlhf."""
