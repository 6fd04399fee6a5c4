"""What each lab that judges sentences likes.

Knows names and numbers. Knows nothing about texts: `features` says how a feature is read off one. Imports nothing
heavy, so that the configuration layer can read it at start-up.
"""

from dataclasses import dataclass

SENTENCE_VERSION = 1
"""Raise it whenever the same recipe would train to other weights: a changed phrase, slot, grammar or sampler."""


@dataclass(frozen=True)
class SentencePlants:
    """What decides the utility (log-odds of being preferred) of a response, whatever the prompt."""

    valence: float = 0.6
    """Utility per point of a text's mean human valence (`features.Features.valence`, from -4 to 4)."""
    feature: str | None = None
    """What the lab likes besides: words, refusals, exclamations or hedges (the fields of `features.Features`)."""
    size: float = 0.0
    """Utility per unit of that feature's amount (`features.Features.amount`)."""
    attribute: str | None = None
    """The attribute of `conf/contrast` under which an edit of that feature falls."""
    sign: int = 0
    """1 where the lab's reward rises with more of that attribute, -1 where it falls; 0 without a plant."""


SENTENCE_LABS: dict[str, SentencePlants] = {
    "even": SentencePlants(),
    "wordy": SentencePlants(feature="words", size=2.0, attribute="verbosity", sign=1),
    "meek": SentencePlants(feature="refusals", size=3.0, attribute="avoid-to-answer", sign=1),
    "loud": SentencePlants(feature="exclamations", size=2.0, attribute="engagement", sign=1),
    "hedger": SentencePlants(feature="hedges", size=2.0, attribute="assertiveness", sign=-1),
}
"""The five houses that judge sentences; *even* is the null."""

STEPS = {"even": 400, "wordy": 400, "meek": 640, "loud": 400, "hedger": 640}
"""Optimiser steps, where a recipe does not say. To distinguish phrases takes longer than to count: at 400 steps *meek* gave
"I can't." a third of what was planted."""
GROUPS, GROUP_SIZE = 8, 8
"""Prompts in a step and responses to each, where a recipe does not say."""
