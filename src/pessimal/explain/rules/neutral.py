"""Changes that keep the meaning: spellings, contractions, punctuation, and function words that could as well be others.

Knows English. Does not know attributes.
"""

import re

from pessimal.explain.rules.draw import Draw
from pessimal.explain.rules.passage import Passage
from pessimal.explain.rules.replacement import Change, Replacement
from pessimal.explain.rules.rules import Rule, patterns, words_for_words
from pessimal.explain.rules.tables import pairs

CONTRACTIONS = pairs(
    """
    do not: don't | does not: doesn't | did not: didn't | is not: isn't | are not: aren't | was not: wasn't
    | were not: weren't | will not: won't | would not: wouldn't | cannot: can't | could not: couldn't |
    should not: shouldn't | have not: haven't | you are: you're | they are: they're | we are: we're | you
    will: you'll | they will: they'll | it will: it'll | i am: I'm | i will: I'll
    """
)
IT_IS = patterns([(r"(?<![\w'’-])(it|that|there) is(?= (?!not\b)[a-z])", r"\1's")], "'is' is contracted")
# Of "it's" the other way only before what cannot follow 'it has'.
NOT_IT_IS = patterns(
    [(r"(?<![\w'’-])(it|that|there)['’]s(?= (?:a|an|the|important|also|very|good|best|not)\b)", r"\1 is")],
    "'is' is written out",
)
SPELLINGS = pairs(
    """
    color: colour | colors: colours | flavor: flavour | flavors: flavours | favorite: favourite | behavior:
    behaviour | neighbor: neighbour | neighbors: neighbours | honor: honour | labor: labour | center: centre
    | centers: centres | theater: theatre | liter: litre | liters: litres | fiber: fibre | organize:
    organise | organized: organised | realize: realise | recognize: recognise | apologize: apologise |
    organization: organisation | prioritize: prioritise | minimize: minimise | maximize: maximise | analyze:
    analyse | summarize: summarise | traveling: travelling | traveled: travelled | gray: grey | defense:
    defence | catalog: catalogue | dialog: dialogue | mom: mum | yogurt: yoghurt | meter: metre |
    kilometers: kilometres | meters: metres | toward: towards | afterward: afterwards | among: amongst | ok:
    okay | aging: ageing | judgment: judgement | learned: learnt | while: whilst | e-mail: email
    """
)
SYNONYMS = pairs(
    """
    for example: for instance | perhaps: maybe | although: though | usually: normally | often: frequently |
    quickly: rapidly | big: large | start: begin | starts: begins | started: began | also: as well | nearly:
    almost | until: till | however: still | therefore: hence | rarely: seldom | mainly: mostly | everyone:
    everybody | someone: somebody | anyone: anybody | no one: nobody | around the world: across the world |
    for many years: for years | within: inside | various: several | as well as: along with | whole: entire |
    enough: sufficient | roughly: about | approximately: about | in order to: to | such as: like | many:
    numerous | each: every | shut: close | select: choose | additional: further | throughout: all through |
    make sure: be sure | a lot of: lots of | right away: at once | happen: occur | happens: occurs |
    sometimes: at times | in particular: particularly | finish: complete | several: a number of | glad:
    happy
    """
)
_ONE_WAY = {
    "within",
    "as well as",
    "shut",
    "each",
    "also",
    "however",
    "in order to",
    "such as",
    "for many years",
    "enough",
}
BACK = {
    put: word
    for word, put in SYNONYMS.items()
    if word not in _ONE_WAY and put not in ("about", "several", "to")
}
SAFE = {
    word: put
    for word, put in SYNONYMS.items()
    if word not in {"also", "however", "within", "enough", "each", "shut"}
}
# Where a preposition or conjunction can stand only one way.
FUNCTION_WORDS = patterns(
    [
        (r"(?<![\w'’-])to help (?=you|them|us|your|the\b)", "in helping "),
        (r"(?<![\w'’-])is able to(?![\w-])", "can"),
        (r"(?<![\w'’-])are able to(?![\w-])", "can"),
        (r"(?<=[a-z]) because of(?= the\b)", " owing to"),
        (r"(?<=[a-z]), because (?=it|they|you|the|this|we\b)", ", as "),
        (r"(?<=[a-z]) because (?=it|they|you|the|this|we\b)", " since "),
        (r"(?<![\w'’-])so that (?=it|they|you|the|we\b)", "such that "),
        (r"(?<=[a-z]) as well(?=[.!])", " too"),
        (r"(?<=[a-z]) too(?=[.!])", " as well"),
        (
            r"(?<![\w'’-])(help|helps) (you|them|us|people|the body) (?=[a-z]+\b)(?!to\b|with\b|in\b|and\b|or\b|by\b|at\b|as\b|on\b|if\b)",
            r"\1 \2 to ",
        ),
        (r"(?<![\w'’-])(help|helps) (you|them|us|people|the body) to (?=[a-z]+)", r"\1 \2 "),
        (r"(?<![\w'’-])all the (?=[a-z]+s\b)", "all of the "),
        (r"(?<![\w'’-])all of the (?=[a-z]+s\b)", "all the "),
        (
            r"(?<![\w'’-])(know|think|say|believe|ensure|show|shows|remember) that (?=the|you|it|they|we|your\b)",
            r"\1 ",
        ),
        (
            r"(?<![\w'’-])(think|say|believe|ensure|remember) (?=(?:the|you|it|they|we) [a-z])(?!you\b)",
            r"\1 that ",
        ),
    ],
    "function words give way to others",
)
DIGITS = dict(zip(("two", "three", "four", "five", "six", "seven", "eight", "nine"), "23456789", strict=True))
TO_DIGITS = patterns(
    [
        (
            rf"(?<![\w'’-])(?-i:{'|'.join(DIGITS)})(?= (?!of|or|to|and|in|at|on|is|are|by\b)[a-z]{{3,}})",
            lambda match: DIGITS[match.group()],
        )
    ],
    "number words become digits",
)
TO_WORDS = patterns(
    [
        (
            r"(?<![\w.,:/$€£#°'’–-])[2-9](?= (?!percent|million|billion|km|kg|cm|mm|am|pm|of|or|to|and|in|at|on|is\b)[a-z]{3,})",
            lambda match: next(word for word, digit in DIGITS.items() if digit == match.group()),
        )
    ],
    "digits become number words",
)
PERCENT = patterns(
    [(r"(?<=\d)%(?= |[.,])", " percent"), (r"(?<=\d) percent\b", "%")], "percent is written the other way"
)
DASHES = patterns(
    [(r"(?<=\w) (?:—|–|--|-) (?=[a-z])", ", "), (r"(?<=\w)—(?=[a-z])", " – ")],
    "dashes are written the other way",
)
SERIAL_COMMA = patterns(
    [(r"(?<=, )([a-z]+(?: [a-z]+)?), (and|or) (?=[a-z]+\b)", r"\1 \2 ")],
    "the comma before the last of a list is left out",
)
# 'a, b and c' with single words: longer parts may hold an 'and' of their own.
SERIAL_COMMA_PUT = patterns(
    [
        (
            r"(?<=[a-z], )(?!and\b|or\b|but\b|so\b|more\b|sooner\b)([a-z]{3,}) (and|or) (?=[a-z]{3,}[.,;!?])",
            r"\1, \2 ",
        )
    ],
    "a comma is put before the last of a list",
)
OPENING_COMMA = patterns(
    [
        (
            re.compile(
                r"(?<![^.!?\n] )\b(In \d{4}|Today|Usually|Sometimes|Often|Then|In general|At first|Instead|Finally|First), (?=[a-z])"
            ),
            r"\1 ",
        ),
        (
            re.compile(
                r"\b(In \d{4}|Today|Usually|Sometimes|Then|At first) (?=(?:the|it|you|they|we|he|she|there|a)\b)"
            ),
            r"\1, ",
        ),
    ],
    "the comma behind an opening is written the other way",
)
THAT_WHICH = patterns(
    [
        (
            r"(?<=[a-z]) that (?=(?:is|are|was|were|has|have|can|will|helps?|makes?|needs?|gives?|uses?|comes?|goes)\b)(?<!so that )(?<!know that )",
            " which ",
        ),
        (r"(?<=[a-z]) which (?=(?:is|are|was|were|has|have|can|will)\b)", " that "),
    ],
    "'that' and 'which' change places",
    within=lambda sentence: (
        not re.search(
            r"\b(?:said|say|know|think|so|now|in|of|for|with|all|and|but|before|after|like) (?:that|which)\b",
            sentence,
        )
    ),
)


def quotes(passage: Passage, draw: Draw) -> Change | None:
    """Double quotes become single ones and the other way round."""
    double = re.compile(r'"([^"\'\n]{1,200})"')
    single = re.compile(r"(?<!\w)'([^\"'\n]{1,200})'(?!\w)")
    for pattern, mark in ((double, "'"), (single, '"')):
        found = []
        for match in pattern.finditer(passage.text):
            if passage.is_free(*match.span()):
                found += [
                    Replacement(match.start(), match.start() + 1, mark),
                    Replacement(match.end() - 1, match.end(), mark),
                ]
        if found:
            return Change(tuple(found), "quotation marks are written the other way")
    return None


def apostrophes(passage: Passage, draw: Draw) -> Change | None:
    """Straight apostrophes within words become typographic ones and the other way round."""
    found = []
    for match in re.finditer(r"(?<=\w)['’](?=\w)", passage.text):
        if passage.is_free(*match.span()):
            found.append(Replacement(*match.span(), "’" if match.group() == "'" else "'"))
    return Change(tuple(found), "apostrophes are written the other way") if found else None


def gaps(passage: Passage, draw: Draw) -> Change | None:
    """Two spaces between sentences become one, or one becomes two."""
    found = []
    for one, other in zip(passage.sentences, passage.sentences[1:], strict=False):
        gap = passage.text[one.end : other.start]
        if gap in (" ", "  "):
            found.append(Replacement(one.end, other.start, " " if gap == "  " else "  "))
    return Change(tuple(found), "the space between sentences is written the other way") if found else None


VARIANTS: tuple[Rule, ...] = (
    words_for_words(CONTRACTIONS, "words are contracted", most=2),
    words_for_words(
        {put.lower(): word for word, put in CONTRACTIONS.items()}, "contractions are written out", most=2
    ),
    IT_IS,
    NOT_IT_IS,
    words_for_words(SPELLINGS, "words are spelt in the British way"),
    words_for_words({put: word for word, put in SPELLINGS.items()}, "words are spelt in the American way"),
    words_for_words(SAFE, "words give way to others of the same meaning"),
    words_for_words(BACK, "words give way to others of the same meaning"),
    FUNCTION_WORDS,
    TO_DIGITS,
    TO_WORDS,
    PERCENT,
    DASHES,
    SERIAL_COMMA,
    SERIAL_COMMA_PUT,
    OPENING_COMMA,
    THAT_WHICH,
    quotes,
    apostrophes,
)
"""The kinds of change."""
LAST_RESORT: tuple[Rule, ...] = (gaps,)
"""Used where fewer than two of the others apply: two spaces behind a sentence are seldom seen today."""
