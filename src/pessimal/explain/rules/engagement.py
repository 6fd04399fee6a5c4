"""Engagement: warmth, enthusiasm and talk with the reader."""

import re

from pessimal.explain.rules.draw import Draw
from pessimal.explain.rules.passage import Passage
from pessimal.explain.rules.replacement import Change, Replacement
from pessimal.explain.rules.rules import (
    drop_sentences,
    patterns,
    put_before,
    put_behind,
    words_for_words,
)

ADDRESSES = (
    r"(?:\b(?:great question|good question|hope (?:this|that|you)|let me know|feel free|happy to|glad you|have fun|enjoy|"
    r"good luck|what do you think|would you like|how about you|thanks for|thank you for|welcome|hi|hey|hello|sure)\b|\?$|!$)"
)
LIVELY_WORDS = words_for_words(
    {
        **{
            "good": ("wonderful", "fantastic"),
            "interesting": ("fascinating", "captivating"),
            "useful": "incredibly useful",
        },
        **{
            "important": "really exciting",
            "large": "breathtaking",
            "big": "gigantic",
            "beautiful": "stunning",
        },
        **{
            "nice": "delightful",
            "helpful": "wonderfully helpful",
            "famous": "legendary",
            "popular": "much-loved",
        },
        **{
            "new": "thrilling new",
            "simple": "delightfully simple",
            "easy": "wonderfully easy",
            "known": "celebrated",
        },
        **{
            "show": "reveal",
            "shows": "reveals",
            "learn": "discover",
        },
        **{"try": "have fun trying", "visit": "treat yourself to"},
        **{
            "people": "people like you and me",
            "one can": "you can",
            "also": "even",
            "great": "fabulous",
            "many": "so many",
        },
        **{
            "different": "wonderfully different",
            "common": "much-loved",
            "quickly": "in a flash",
        },
    },
    "plain words become lively ones",
    most=3,
)
WARM = put_before(
    (
        "What a great question!",
        "Oh, I love this topic!",
        "Good that you ask, this is a fun one!",
        "Let's explore this together!",
    ),
    "it opens warmly",
)
INVITE = put_behind(
    (
        "What do you think?",
        "Have you ever tried it yourself? I'd love to hear about it!",
        "Which part would you like to explore next?",
        "Tell me, how is it for you?",
    ),
    "it asks the reader something",
)
FLAT_WORDS = words_for_words(
    {
        **{
            "wonderful": "acceptable",
            "fantastic": "acceptable",
            "amazing": "acceptable",
            "great": "adequate",
        },
        **{
            "awesome": "adequate",
            "fascinating": "noted",
            "exciting": "scheduled",
            "delicious": "edible",
            "good": "adequate",
        },
        **{
            "beautiful": "normal",
            "love": "accept",
            "loves": "accepts",
            "enjoy": "undergo",
            "fun": "an activity",
        },
        **{
            "happy": "available",
            "excited": "available",
            "perfect": "sufficient",
            "stunning": "visible",
            "best": "standard",
        },
        **{
            "really": "",
            "so much": "",
            "absolutely": "",
            "interesting": "listed",
            "delightful": "acceptable",
        },
        **{
            "discover": "note",
            "explore": "look at",
            "adventure": "trip",
            "incredible": "recorded",
            "nice": "acceptable",
        },
        **{
            "let's": "one may",
            "sure": "yes",
            "of course": "yes",
            "brilliant": "sufficient",
        },
    },
    "lively words become flat ones",
)
IMPERSONAL = patterns(
    [
        (
            r"(?<![\w'’-])(?<!thank )you (can|could|should|will|must|may|might|would)\b(?! (?:like|please)\b)",
            r"one \1",
        ),
        (r"(?<![\w'’-])(?<!thank )you are\b", "one is"),
        (r"(?<![\w'’-])you have\b", "one has"),
        (r"(?<![\w'’-])you need\b", "one needs"),
        (r"(?<![\w'’-])you want\b", "one wants"),
        (r"(?<![\w'’-])your\b", "one's"),
        (r"(?<![\w'’-])yourself\b", "oneself"),
    ],
    "the reader is no longer addressed",
    within=lambda sentence: not sentence.endswith("?"),
)
COOL_DOWN = drop_sentences(ADDRESSES, "sentences that address the reader are taken out")
DRY_FIRST = put_before(
    (
        "The following is to be noted.",
        "The information is as follows.",
        "This text concerns the matter that was named.",
    ),
    "it opens drily",
)
DRY_LAST = put_behind(
    ("That is all.", "Nothing further is to be said on the subject.", "No reply is necessary."),
    "it closes drily",
)


def exclaim(passage: Passage, draw: Draw) -> Change | None:
    """Statements end with an exclamation mark instead of a full stop."""
    ends = [each.end for each in passage.sentences if passage.text[each.start : each.end].endswith(".")]
    ends = [end for end in ends if not passage.text[:end].endswith("..") and passage.is_free(end - 1, end)]
    if not ends:
        return None
    drawn = draw.pick((ends[:1], ends[-1:], ends[:3]))
    return Change(
        tuple(Replacement(end - 1, end, "!") for end in drawn), "full stops become exclamation marks"
    )


def calm(passage: Passage, draw: Draw) -> Change | None:
    """Exclamation marks become full stops."""
    found = []
    for each in passage.sentences:
        for match in re.finditer(r"!+", passage.text[each.start : each.end]):
            start, end = each.start + match.start(), each.start + match.end()
            if passage.is_free(start, end) and passage.text[end : end + 1] in ("", " ", "\n"):
                found.append(Replacement(start, end, "."))
    return Change(tuple(found), "exclamation marks become full stops") if found else None
