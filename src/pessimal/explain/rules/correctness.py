"""Correctness: errors of fact, number and language. Facts cannot be mended by rule, slips of language can."""

import re

from pessimal.explain.rules.draw import Draw
from pessimal.explain.rules.passage import Passage
from pessimal.explain.rules.replacement import Change, Replacement
from pessimal.explain.rules.rules import patterns, words_for_words
from pessimal.explain.rules.tables import pairs

SLIPS = pairs(
    """
    teh: the | recieve: receive | definately: definitely | seperate: separate | occured: occurred | untill:
    until | wich: which | becuase: because | beleive: believe | acheive: achieve | alot: a lot | accomodate:
    accommodate | adress: address | arguement: argument | begining: beginning | calender: calendar |
    enviroment: environment | existance: existence | goverment: government | happend: happened | immediatly:
    immediately | independant: independent | knowlege: knowledge | neccessary: necessary | noticable:
    noticeable | occassion: occasion | peice: piece | posession: possession | prefered: preferred | realy:
    really | refered: referred | succesful: successful | suprise: surprise | thier: their | tommorow:
    tomorrow | truely: truly | wierd: weird | writting: writing | freind: friend | freinds: friends | could
    of: could have | should of: should have | would of: would have | dont: don't | doesnt: doesn't | cant:
    can't | wont: won't | didnt: didn't | isnt: isn't | arent: aren't | im: I'm | ive: I've | thats: that's
    | theres: there's | youre: you're | theyre: they're | temperture: temperature
    """
)
ANTONYMS = pairs(
    """
    increase: decrease | increases: decreases | decrease: increase | decreases: increases | reduces:
    increases | reduce: increase | lower: raise | improve: worsen | improves: worsens | before: after |
    after: before | more: less | less: more | hot: cold | cold: hot | warm: cold | cool: hot | north: south
    | south: north | east: west | west: east | first: last | last: first | always: never | never: always |
    largest: smallest | smallest: largest | highest: lowest | longest: shortest | large: tiny | small: huge
    | most: few | few: most | many: no | high: low | low: high | long: short | short: long | healthy:
    unhealthy | safe: dangerous | dangerous: safe | good: harmful | true: false | possible: impossible |
    faster: slower | slower: faster | heavier: lighter | larger: smaller | smaller: larger | best: worst |
    day: night | night: day | morning: evening | summer: winter | winter: summer | black: white | left:
    right | inside: outside | with: without | without: with | easy: impossible | important: irrelevant |
    open: close | start: stop | add: remove | early: late | often: never | old: young | strong: weak | dry:
    wet | wet: dry | full: empty | same: opposite | solid: liquid | plants: stones | men: women | mother:
    father | father: mother | above: below | below: above | oxygen: helium | water: petrol
    """
)
NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
MISSPELT = pairs(
    """
    the: teh | receive: recieve | definitely: definately | separate: seperate | occurred: occured | until:
    untill | which: wich | because: becuase | believe: beleive | achieve: acheive | accommodate: accomodate
    | address: adress | argument: arguement | beginning: begining | calendar: calender | environment:
    enviroment | existence: existance | government: goverment | happened: happend | immediately: immediatly
    | independent: independant | knowledge: knowlege | necessary: neccessary | noticeable: noticable |
    occasion: occassion | piece: peice | possession: posession | preferred: prefered | really: realy |
    referred: refered | successful: succesful | surprise: suprise | their: there | tomorrow: tommorow |
    truly: truely | weird: wierd | writing: writting | friend: freind | friends: freinds | temperature:
    temperture | people: poeple | with: whith | about: abuot | should: shuold | different: diffrent |
    usually: usualy | important: importent | through: thruogh | water: watter | your: youre | there: their |
    would: woud | make: mak | keep: kepe | help: hlep | this: thiss | from: form | have: hav | most: moust |
    many: meny | every: evry | minutes: minuts
    """
)
_AGREE = {
    "is": "are",
    "are": "is",
    "was": "were",
    "were": "was",
    "has": "have",
    "does": "do",
    "doesn't": "don't",
}

MEND = words_for_words(SLIPS, "slips of spelling are mended")
MEND_FORM = patterns(
    [
        (r"(?<![\w'’-])(the|an?|of|to|and|in|is|for|with|on|it|you|are|this|or) \1(?![\w'’-])", r"\1"),
        (r"(?<![\w'’-])(he|she|it) (?:don['’]t|do not)(?![\w-])", r"\1 doesn't"),
        (r"(?<![\w'’-])(he|she|it|I) were(?= [a-z]+(?:ed|ing)\b)", r"\1 was"),
        (r"(?<![\w'’-])(you|we|they) was(?![\w'’-])", r"\1 were"),
        (r"(?<![\w'’-])(you|we|they) (?:is)(?![\w'’-])", r"\1 are"),
        (r"(?<![\w'’-])(he|she|it) (?:are)(?![\w'’-])", r"\1 is"),
        (r"(?<![\w'’-])(you|we|they) has(?![\w'’-])", r"\1 have"),
        (r"(?<![\w'’-])(he|she|it) have(?= (?:a|the|been|no)\b)", r"\1 has"),
        (r"(?<![\w'’-])(these|those) is(?![\w'’-])", r"\1 are"),
        (r"(?<![\w'’-])a (?=(?!one\b|once\b|u[ns][ie]|eu|use|us\b|uk\b)[aeiou][a-z]{2,})", "an "),
        (r"(?<![\w'’-])an (?=[bcdfgjkpqtvwxyz][a-z]{2,})", "a "),
        (
            r"(?<![\w'’.-])(?-i:i)(?=['’](?:m|ve|ll|d)\b|[ ](?:am|was|have|think|can|will|would|do|know|like|want)\b)",
            "I",
        ),
        (r"(?<! ) {1,9}(?=[,;](?: |$))", ""),
    ],
    "slips of grammar are mended",
)
INVERT_FACTS = words_for_words(ANTONYMS, "words become their opposites", most=2)
MISSPELL = words_for_words(MISSPELT, "words are misspelt", most=3)
DISAGREE = patterns(
    [
        (
            r"(?<![\w'’-])(?:is|are|was|were|has|does|doesn['’]t)(?![\w'’-])",
            lambda match: _AGREE.get(match.group().lower().replace("’", "'")),
        )
    ],
    "subjects and verbs no longer agree",
    most=3,
)
NEGATE = patterns(
    [
        (r"(?<![\w'’-])(is|are|was|were|can|will|should|must) not(?![\w'’-])", r"\1"),
        (
            r"(?<![\w'’-])(is|are|was|were|will|should)(?= (?!not\b|to\b|you\b|it\b|I\b|we\b|they\b|there\b)[a-z])",
            r"\1 not",
        ),
        (r"(?<![\w'’-])can(?= (?!not\b|you\b|it\b|I\b|we\b|they\b)[a-z])", "cannot"),
        (r"(?<![\w'’-])(?:do not|don['’]t) (?=[a-z])", "always "),
    ],
    "a statement becomes its opposite",
    most=1,
    within=lambda sentence: not sentence.endswith("?"),
)


def wrong_numbers(passage: Passage, draw: Draw) -> Change | None:
    """Numbers become others: years by some decades, the rest by a factor; the numbers of a list stay."""
    found = []
    for each in passage.sentences:
        for match in re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w]|[.,]\d)").finditer(
            passage.text, each.start, each.end
        ):
            digits = match.group().rstrip(",")
            if passage.is_free(*match.span()) and len(digits) < 13:
                found.append(Replacement(match.start(), match.start() + len(digits), _other(digits, draw)))
        for match in re.compile(rf"(?<![\w-])(?:{'|'.join(NUMBERS)})(?![\w-])").finditer(
            passage.text, each.start, each.end
        ):
            others = [word for word in NUMBERS if word != match.group()]
            found.append(Replacement(*match.span(), draw.pick(others)))
    return Change(tuple(sorted(found)), "numbers become wrong") if found else None


def swap_names(passage: Passage, draw: Draw) -> Change | None:
    """Two names change places."""
    places: dict[str, list[tuple[int, int]]] = {}
    for match in re.finditer(r"(?<=[a-z,] )[A-Z][a-z]{2,}(?![\w'’-])", passage.text):
        if passage.is_free(*match.span()):
            places.setdefault(match.group(), []).append(match.span())
    names = [name for name in places if name.lower() not in ("english",)]
    if len(names) < 2:
        return None
    first = draw.pick(names)
    second = draw.pick([name for name in names if name != first])
    found = [Replacement(*span, second) for span in places[first]] + [
        Replacement(*span, first) for span in places[second]
    ]
    return Change(tuple(sorted(found)), "two names change places")


def _other(digits: str, draw: Draw) -> str:
    number = float(digits.replace(",", ""))
    if re.fullmatch(r"1[5-9]\d\d|20\d\d", digits):
        return str(int(number) + draw.pick((-83, -47, -29, -61)))
    factor = draw.pick((3, 7, 4, 9))
    if "." in digits:
        return f"{number * factor:.{len(digits.split('.')[1])}f}"
    other = int(number) * factor if number else factor
    return f"{other:,}" if "," in digits else str(other)
