"""Word lists as one writes them: many to a line.

Knows only how they are written. Does not know what they mean.
"""


def pairs(text: str) -> dict[str, str]:
    """`word: its counterpart | another: its counterpart`, over as many lines as it takes."""
    entries = (" ".join(entry.split()).partition(": ") for entry in text.split("|"))
    return {word: counterpart for word, _, counterpart in entries}


def words(text: str) -> frozenset[str]:
    """Words between white space."""
    return frozenset(text.split())
