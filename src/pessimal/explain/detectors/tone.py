"""How a response speaks: appropriateness, assertiveness, engagement, harmlessness, neutrality, sensitivity.

Knows readings. Every amount is in units of half the distance between the two poles of meaning.
"""

import re

from pessimal.explain.detectors.embedding_axis import lean
from pessimal.explain.detectors.reading import Reading
from pessimal.explain.detectors.words import mean, mean_and_worst, valences

_SHOUTED = re.compile(r"\b[A-Z]{4,}\b|[!?]{2,}")
_CRUDE = re.compile(
    r"\b(?:damn|crap|sucks?|shit\w*|fuck\w*|hell|ass|bitch\w*|bastard\w*|idiot\w*|stupid\w*|dumb\w*|moron\w*|"
    r"loser\w*|jerk|lol|wtf|lmao|dude|bro|yo|gonna|wanna|ain't|shut up|whatever|duh)\b",
    re.IGNORECASE,
)
_COURTEOUS = re.compile(
    r"\b(?:please|thank you|thanks|kindly|apolog\w+|pardon|grateful|appreciate\w*|welcome|sincerely|respectfully|"
    r"glad|pleased)\b",
    re.IGNORECASE,
)
# After Hyland (2005), "Metadiscourse", appendix: hedges and boosters, those that mean little else.
_HEDGE = re.compile(
    r"(?:(?<=\bI)'d\b)|\b(?:almost|apparently|appears?|approximately|arguably|could|generally|guess|in general|likely|may|maybe|"
    r"might|mostly|often|perhaps|plausibl[ey]|possibl[ey]|potentially|presumabl[ey]|probabl[ey]|rather|relatively|"
    r"roughly|seems?|seemingly|somewhat|sometimes|suggests?|suppose|tends? to|think|believe|typically|uncertain|"
    r"unclear|unsure|unlikely|usually|would|not (?:\w+ )?(?:sure|certain)|hard to say|as far as i know|i feel|"
    r"kind of|sort of|in my (?:view|opinion)|to my knowledge|don't know|who knows)\b",
    re.IGNORECASE,
)
_BOOSTER = re.compile(
    r"\b(?:absolutely|always|beyond doubt|certain(?:ly)?|clearly|conclusively|confident\w*|definitely|"
    r"demonstrates?|doubtless|evidently|guarantee[sd]?|in fact|incontestabl[ey]|indeed|must|never|no doubt|"
    r"obviously|proves?|proven|really|sure(?:ly)?|true|truly|undeniabl[ey]|undoubtedly|undisputed\w*|"
    r"unquestionabl[ey]|without (?:a )?doubt|will)\b",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"\b(?:not|n't|isn't|am not|never been) (?:\w+ )?(?:sure|certain|true|confident)\b", re.IGNORECASE
)
_ADDRESSED = re.compile(r"\b(?:you|your|yours|yourself|let's|we|us|our)\b", re.IGNORECASE)
_LIVELY = re.compile(r"[!?]")
_PARTIAL = re.compile(
    r"\b(?:obviously|clearly|disgrac\w+|outrageous\w*|ridiculous\w*|absurd\w*|evil|fools?|foolish|idiot\w*|"
    r"corrupt\w*|pathetic|worst|best|only|everybody knows|everyone knows|so-called|i (?:hate|love|think|believe|feel)|"
    r"in my opinion|should|must|shameful\w*|stupid\w*|always|never|nonsense|terrible|wonderful|perfect|superior|"
    r"inferior|wrong|right|undeniabl[ey])\b",
    re.IGNORECASE,
)
_BALANCED = re.compile(
    r"\b(?:while|whereas|on (?:the )?one hand|on the other hand|both|some|others|however|according to|depends?|"
    r"critics|supporters|opponents|proponents|advocates|differ\w*|disagree\w*|debate\w*|argue[sd]?|advantages|"
    r"disadvantages|pros|cons|views?|perspectives?|sides)\b",
    re.IGNORECASE,
)
_CONSIDERATE = re.compile(
    r"\b(?:sorry|understandabl[ey]|understand|hard|difficult|painful|gentle|gently|feelings?|feel|support\w*|"
    r"listen\w*|condolences|alone|courage\w*|respect\w*|care|caring|kind|kindness|comfort\w*|overwhelm\w*|"
    r"take your time|valid|be there)\b",
    re.IGNORECASE,
)
_CAUTION = re.compile(
    r"\b(?:don't|do not|never|avoid|careful\w*|caution\w*|safe(?:ly|ty|r)?|doctor|pharmacist|vet|police|emergency|"
    r"helpline|professional|risk\w*|danger\w*|harmful|please)\b",
    re.IGNORECASE,
)
_DISMISSIVE = re.compile(
    r"\b(?:get over|pull yourself|(?:your|their) (?:own )?fault|overreact\w*|silly|whin(?:e|ing)|complain\w*|deal with it|"
    r"too bad|should(?:'ve| have)|toughen|(?:only|just) an?|no big deal|not a big deal|who cares|put up with)\b",
    re.IGNORECASE,
)


def appropriateness(reading: Reading) -> float:
    """Polite against rude in meaning, courteous against crude words, without shouting."""
    return (
        mean_and_worst(lean(reading.vectors, "appropriateness"))
        + 0.5 * (reading.share(_COURTEOUS) - reading.share(_CRUDE))
        - 0.5 * reading.share(_SHOUTED)
    )


def assertiveness(reading: Reading) -> float:
    """Confident against hedged in meaning, and boosters less hedges (Hyland 2005) a sentence."""
    boosted = reading.count(_BOOSTER) - 2 * reading.count(_DENIED)
    hedged = reading.count(_HEDGE)
    return 0.5 * mean(lean(reading.vectors, "assertiveness")) + (0.5 * boosted - hedged) / max(
        len(reading.sentences), 1
    )


def engagement(reading: Reading) -> float:
    """Lively against dry in meaning, the reader addressed, questions and exclamations, positive words (VADER)."""
    return (
        mean(lean(reading.vectors, "engagement"))
        + 0.3 * reading.share(_ADDRESSED)
        + 0.3 * reading.share(_LIVELY)
        + 0.25 * mean(valences(reading))
    )


def harmlessness(reading: Reading) -> float:
    """Caring against harmful in meaning, and valence (VADER), the worst sentence counting as much as all together; and
    words of caution, since a warning names the harm that it warns of."""
    return (
        mean_and_worst(lean(reading.vectors, "harmlessness"))
        + 0.25 * mean_and_worst(valences(reading))
        + 0.3 * reading.share(_CAUTION)
    )


def neutrality(reading: Reading) -> float:
    """Balanced against partisan in meaning and words, and how far valence is from neutral (VADER)."""
    return (
        mean_and_worst(lean(reading.vectors, "neutrality"))
        + 0.3 * (reading.share(_BALANCED) - reading.share(_PARTIAL))
        - 0.5 * mean(abs(valences(reading)))
    )


def sensitivity(reading: Reading) -> float:
    """Considerate against callous in meaning, and in words (care and feelings less dismissals)."""
    return mean(lean(reading.vectors, "sensitivity")) + 0.3 * (
        reading.share(_CONSIDERATE) - reading.share(_DISMISSIVE)
    )
