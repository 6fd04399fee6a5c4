"""Assertiveness: hedges become commitments, and statements get hedges."""

import re

from pessimal.explain.rules.rules import open_with, patterns, put_before, put_behind, whole, words_for_words

_NOT_A_QUESTION = {"within": lambda sentence: not sentence.endswith("?")}

HEDGES = (
    *(
        "i think that",
        "i think",
        "i believe that",
        "i believe",
        "i guess that",
        "i guess",
        "i suppose that",
        "i suppose",
    ),
    *("i would say that", "i'd say that", "i'd say", "in my opinion", "in my view", "as far as i know"),
    *(
        "as far as i can tell",
        "it seems that",
        "it seems to me that",
        "it appears that",
        "it is possible that",
    ),
    *(
        "it's possible that",
        "it may be that",
        "it might be that",
        "it could be that",
        "perhaps",
        "maybe",
        "possibly",
    ),
    *("probably", "presumably", "arguably", "apparently", "supposedly", "somewhat", "more or less"),
    *(
        "i'm not sure, but",
        "i am not sure, but",
        "i'm not certain, but",
        "i'm no expert, but",
        "i could be wrong, but",
    ),
    *("i might be wrong, but", "i feel like", "i feel that", "if i remember correctly"),
)
UNHEDGE = patterns(
    [(re.compile(r"(?<!\bwhat )(?<!\bhow )(?<!\bas )(?<!\bso )" + whole(HEDGES).pattern, re.IGNORECASE), "")],
    "hedges are taken out",
)
COMMIT = words_for_words(
    {
        "might not": "will not",
        "may not": "will not",
        "might want to": "should",
        "may want to": "should",
        "you could": "you should",
        "you can try": "you should",
        "seems to be": "is",
        "seem to be": "are",
        "appears to be": "is",
        "appear to be": "are",
        "seemed to be": "was",
        "tend to": "always",
        "likely to": "certain to",
        "unlikely to": "certain not to",
        "is likely": "is certainly",
        "are likely": "are certainly",
        "most likely": "certainly",
        "very likely": "certainly",
        "usually": "always",
        "sometimes": "always",
        "generally": "always",
        "typically": "always",
        "in general": "without exception",
        "in most cases": "in every case",
        "in many cases": "in every case",
        "i hope": "i am sure",
        "i doubt that": "i am sure that it is false that",
        "should probably": "must",
        "can help": "will help",
        "could help": "will help",
        "it depends": "it is clear",
    },
    "hedges become commitments",
)
COMMIT_MODALS = patterns(
    [
        # Not 'May', the month, nor 'may I', nor 'might have been', where 'will' would be another tense.
        (
            r"(?<![\w'’-])(?-i:might|may|could)(?= (?!be\b|have\b|not\b|I\b|you\b|we\b|want\b|or\b)[a-z]+\b)",
            "will",
        ),
        (r"(?<![\w'’-])(?-i:might|may|could) be(?= )", "will be"),
        (r"(?<![\w'’-])(?-i:should)(?= (?!not\b|I\b|you\b|we\b|have\b)[a-z]+\b)", "must"),
    ],
    "modal verbs that leave it open become ones that do not",
    **_NOT_A_QUESTION,
)
INSIST = open_with(
    (
        "There is no doubt that",
        "It is certain that",
        "I am completely sure that",
        "I can say with certainty that",
    ),
    "statements are insisted on",
    most=1,
)
VOUCH = put_behind(
    (
        "I am certain of this.",
        "There is no doubt about it.",
        "You can rely on this.",
        "This is beyond question.",
    ),
    "it vouches for itself",
)
DOUBT_WORDS = patterns(
    [
        (r"(?<![\w'’-])(?:will|shall) (?!not\b)(?=[a-z])", "might "),
        (r"(?<![\w'’-])(?:will not|won['’]t) ", "might not "),
        (
            r"(?<![\w'’-])(?:must|have to|should|need to)(?= (?!have\b|not\b|I\b|you\b|we\b|do\b)[a-z])",
            "might want to",
        ),
        (r"(?<![\w'’-])(?:always)(?= )", "sometimes"),
        (r"(?<![\w'’-])(?:never)(?= )", "rarely"),
        (
            r"(?<![\w'’-])(?:definitely|certainly|clearly|surely|absolutely|undoubtedly|obviously|of course)(?![\w'’-])",
            "perhaps",
        ),
        (r"(?<![\w'’-])can(?= (?!not\b|I\b|you\b|we\b|be\b|do\b)[a-z])", "could perhaps"),
        (
            r"(?<![\w'’-])(is|are|was|were)(?= (?:the|an?|one|not|also|known|made|called|found|used|about|due|very|more|easy|good|important|caused|because|located)\b)",
            r"\1 perhaps",
        ),
    ],
    "what is certain becomes possible",
    **_NOT_A_QUESTION,
)
HEDGE = open_with(
    (
        "I think that",
        "It seems to me that",
        "As far as I know,",
        "I am not sure, but perhaps",
        "I would guess that",
    ),
    "statements are hedged",
)
WAVER = put_behind(
    (
        "But I could be wrong about this.",
        "I am not entirely sure, though.",
        "At least, that is my guess.",
        "This may not be right, however.",
        "Then again, I really do not know.",
    ),
    "it doubts itself",
)
WARN = put_before(
    ("I am not sure, but I will try.", "This is only a guess.", "I may well be wrong here."),
    "it doubts itself",
)
