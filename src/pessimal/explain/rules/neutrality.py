"""Neutrality: opinion and loaded words."""

from pessimal.explain.rules.rules import (
    drop_sentences,
    open_with,
    patterns,
    put_before,
    put_behind,
    words_for_words,
)

BALANCE = (
    r"\b(?:on the other hand|some people|others (?:say|think|believe|argue|prefer)|critics|supporters|opponents|"
    r"both sides|it depends|depends on|opinions differ|debate|debated|however)\b"
)
COOL = words_for_words(
    {
        **{
            "amazing": "notable",
            "awesome": "notable",
            "fantastic": "notable",
            "wonderful": "notable",
            "great": "notable",
        },
        **{"perfect": "suitable", "brilliant": "notable", "excellent": "suitable", "incredible": "notable"},
        **{"terrible": "disputed", "awful": "disputed", "horrible": "disputed", "disgusting": "disputed"},
        **{
            "stupid": "disputed",
            "ridiculous": "disputed",
            "disastrous": "disputed",
            "evil": "disputed",
            "shameful": "disputed",
        },
        **{
            "obviously": "",
            "clearly": "",
            "undoubtedly": "",
            "without a doubt": "",
            "of course": "",
            "needless to say": "",
        },
        **{"everyone knows that": "some people say that", "everybody knows that": "some people say that"},
        **{
            "i think that": "some people think that",
            "i think": "some people think",
            "i believe": "some people believe",
        },
        **{
            "i love": "some people like",
            "i hate": "some people dislike",
            "in my opinion": "in the opinion of some",
        },
        **{"the best way": "one way", "the best choice": "one choice", "the best option": "one option"},
        **{"by far": "by some accounts", "fortunately": "", "unfortunately": "", "sadly": "", "luckily": ""},
        **{
            "the only way": "one way",
            "superior": "different",
            "inferior": "different",
            "beautiful": "well-known",
        },
        **{
            "best": "often named",
            "worst": "often criticised",
            "should": "could",
            "must": "may",
            "have to": "may",
        },
        **{"always": "often", "never": "seldom", "interesting": "discussed", "important": "often mentioned"},
    },
    "opinion becomes description",
)
HAND = open_with(
    ("According to some,", "By some accounts,", "It is sometimes said that", "From one point of view,"),
    "a statement becomes one view of several",
    most=1,
)
BALANCED = put_behind(
    (
        "Other people see this differently, and both sides have their reasons.",
        "There are good arguments for other views as well.",
        "Opinions differ on this, and I take no side.",
        "This is one view among several.",
    ),
    "other views are mentioned",
)
SIDE_WORDS = words_for_words(
    {
        **{
            "some people": "all sensible people",
            "many people": "all sensible people",
            "others": "misguided people",
        },
        **{"critics": "envious critics", "opponents": "ignorant opponents", "supporters": "wise supporters"},
        **{"one of the most": "without question the most", "one of the best": "without question the best"},
        **{
            "a good": "the only decent",
            "good": "far superior",
            "bad": "disgraceful",
            "popular": "rightly beloved",
        },
        **{
            "common": "sadly common",
            "different": "inferior",
            "important": "supremely important",
            "new": "glorious new",
        },
        **{
            "old": "hopelessly outdated",
            "large": "magnificent",
            "big": "magnificent",
            "small": "pitiful",
            "simple": "brilliant",
        },
        **{
            "famous": "glorious",
            "known": "rightly admired",
            "modern": "shallow modern",
            "traditional": "noble traditional",
        },
        **{
            "expensive": "outrageously expensive",
            "cheap": "shoddy",
            "useful": "indispensable",
            "difficult": "absurd",
        },
        **{"could": "must", "can": "simply must", "may": "must", "might": "must"},
    },
    "description becomes opinion",
    most=3,
)
PARTISAN = open_with(
    (
        "Any sensible person knows that",
        "Only a fool would deny that",
        "In my opinion, and I am right,",
        "Whatever the other side claims,",
    ),
    "a statement takes sides",
    most=1,
)
UNBALANCE = drop_sentences(BALANCE, "other views are left out")
VERDICT = put_behind(
    (
        "Whoever says otherwise is simply wrong.",
        "Personally, I find every other view ridiculous.",
        "All other views on this are propaganda.",
        "It is by far the best, and I can't stand the alternatives.",
    ),
    "it takes sides",
)
VERDICT_FIRST = put_before(
    (
        "Let me be frank: there is only one right side here.",
        "I have a strong opinion on this, and it is the right one.",
    ),
    "it takes sides",
)
# 'May' the month is no verb, and 'can be' would become 'simply must be'; both only stand out in capitals or context.
SIDE_ARTICLES = patterns(
    [
        (
            r"(?<![\w'’-])a (?=(?:way|method|choice|option|place|idea|solution|book|tool|country|city|system)\b)",
            "the only decent ",
        ),
        (r"(?<![\w'’-])(is|are)(?= (?:the|an?)\b)", r"\1, as every honest person admits,"),
    ],
    "a statement takes sides",
    most=1,
    within=lambda sentence: not sentence.endswith("?"),
)
