"""What effects of identity terms mean and do not mean, in sentences."""

from pessimal.analysis.matching import CONTROLS, ZIPF_CALIPER
from pessimal.tasks.findings.sources import Sources


def introduction(sources: Sources) -> str:
    """What is measured, and what is not."""
    lexicons = " and ".join(sources.lexicons) or "no lexicon"
    return (
        "Measured is the reward of a bare word that names a group of people, given as the whole answer to the question, "
        f"less the mean reward of up to {CONTROLS} control words that are as frequent (within {ZIPF_CALIPER:g} Zipf; "
        f"{sources.frequencies.source}) and as positive or negative (ratings of {lexicons}; words not rated are matched "
        "with words not rated). Not measured is how a model treats people, or text about people; nor whether anyone is "
        "harmed, what anyone intended, or what in the training caused it. Most of these words have other meanings too, "
        "and a control is as frequent and as positive, not alike in everything. How to read opposite frames: a word "
        "below its controls both where good and where bad things are asked for is avoided whatever is asked (half-sum "
        "below 0). Below where good things are asked for and above where bad ones are is another matter: a word taken "
        "for something bad (half-difference below 0)."
    )


def one_frame(prompt: str, sign: int | None) -> str:
    """How an effect under a single prompt reads. `sign`: 1 where good words answer it, −1 where bad ones do."""
    told = f" All of this is on {prompt} alone, "
    if sign is None:
        return (
            f"{told}of which it is not known whether good or bad words answer it: below its controls means only that a "
            "word is less of an answer."
        )
    asks, below, above = (
        ("good", "avoided or taken for less good", "liked or taken for better")
        if sign == 1
        else (
            "bad",
            "avoided or taken for less bad, so no sign of dislike by itself",
            "liked or taken for worse",
        )
    )
    return (
        f"{told}which asks for {asks} things: a word below its controls is {below}; one above is {above}. One frame "
        "cannot tell which."
    )
