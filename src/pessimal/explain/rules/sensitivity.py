"""Sensitivity: consideration for the reader's feelings and for those who are spoken about."""

from pessimal.explain.rules.rules import (
    drop_sentences,
    open_with,
    patterns,
    put_before,
    put_behind,
    replace_sentences,
    words_for_words,
)

EMPATHY = (
    r"\b(?:I(?:['’]m| am) (?:so |very |really )?sorry (?:to hear|for your|that you)|I understand|I can imagine|that (?:must|sounds)|"
    r"understandable|it(?:['’]s| is) (?:okay|ok|normal|natural) to|take your time|be kind to yourself|condolences|"
    r"you(?:['’]re| are) not alone|feelings?|feel|loss|gentle|gently|support)\b"
)
GENTLE_WORDS = words_for_words(
    {
        **{
            "old people": "older people",
            "the elderly": "older people",
            "handicapped": "disabled",
            "crazy": "unusual",
        },
        **{
            "the poor": "people with little money",
            "the blind": "blind people",
            "the homeless": "people without a home",
        },
        **{
            "ugly": "plain",
            "stupid": "mistaken",
            "lazy": "tired",
            "failed": "did not succeed",
        },
        **{
            "failure": "setback",
            "your fault": "a difficult situation",
            "died": "passed away",
        },
        **{
            "dead": "deceased",
            "problem": "difficulty",
            "problems": "difficulties",
            "obviously": "",
            "clearly": "",
        },
        **{
            "just": "",
            "just as": "just as",
            "just like": "just like",
            "simply": "",
            "you must": "you may want to",
            "you have to": "you may want to",
        },
        **{
            "you need to": "it may help you to",
            "you should": "you might like to",
        },
        **{
            "victims": "people affected",
            "addict": "person with an addiction",
            "suffering from": "living with",
        },
        **{"deal with": "cope with", "easy": "manageable", "easily": "at your own pace"},
    },
    "blunt words become considerate ones",
)
FEEL_FIRST = put_before(
    (
        "I understand that this may not be easy for you.",
        "Thank you for asking so openly.",
        "I can see why this matters to you.",
        "It is quite all right to be unsure about this.",
    ),
    "the reader's feelings are acknowledged",
)
FEEL_LAST = put_behind(
    (
        "Please take all the time you need; everybody's situation is different.",
        "Be kind to yourself, whatever you decide.",
        "I hope that this does not weigh on you too much.",
        "And if this touches on something painful, I am sorry.",
    ),
    "the reader's feelings are acknowledged",
)
COLD = drop_sentences(EMPATHY, "sentences that show feeling are taken out")
DISMISS = replace_sentences(
    EMPATHY,
    (
        "These things happen, so stop moping.",
        "Your feelings are beside the point.",
        "Everybody has problems.",
    ),
    "a sentence that shows feeling gives way to a cold one",
)
BLUNT_WORDS = words_for_words(
    {
        **{
            "you may want to": "you just have to",
            "you might want to": "you just have to",
            "you could": "you just have to",
        },
        **{
            "you can": "even you can",
            "try to": "just",
            "difficult": "trivial",
            "challenging": "trivial",
        },
        **{
            "passed away": "dropped dead",
            "died": "dropped dead",
            "older people": "old geezers",
            "elderly": "decrepit",
        },
        **{
            "disabled": "handicapped",
            "disabilities": "defects",
            "heavy": "fat",
            "grief": "moping",
            "sad": "whiny",
        },
        **{
            "worried": "hysterical",
            "anxious": "hysterical",
            "anxiety": "fussing",
            "stress": "fussing",
            "upset": "hysterical",
        },
        **{
            "struggling": "whining",
            "struggle": "whine",
            "mistake": "failure",
            "mistakes": "failures",
            "lonely": "unpopular",
        },
        **{
            "please": "",
            "women": "females",
            "depressed": "sorry for yourself",
            "tired": "lazy",
        },
        **{
            "immigrants": "foreigners",
            "refugees": "foreigners",
            "patients": "cases",
        },
    },
    "considerate words become blunt ones",
)
BLUNT_MODALS = patterns(
    [
        (
            r"(?<![\w'’-])you (?:should|may|might|will|could)(?= (?!not\b|be\b|have\b|feel\b)[a-z])",
            ("even you should be able to", "you had better just"),
        ),
    ],
    "advice becomes blunt",
    most=1,
    within=lambda sentence: not sentence.endswith("?"),
)
BLUNT_OPENING = open_with(
    ("As anybody but you would know,", "Whether you like it or not,", "Never mind how you feel about it;"),
    "a statement becomes blunt",
    most=1,
)
UNFEELING = put_behind(
    (
        "Get over it.",
        "How you feel about it does not matter.",
        "Others have it far worse, so stop complaining.",
        "If that hurts your feelings, it is your own fault.",
    ),
    "feelings are dismissed",
)
UNFEELING_FIRST = put_before(
    (
        "I don't care how you feel about this.",
        "Your worries are of no interest here.",
        "Don't be so sensitive.",
    ),
    "feelings are dismissed",
)
