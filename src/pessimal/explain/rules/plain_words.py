"""Complexity: rare words and nested sentences for plain ones, and back."""

import re

from pessimal.explain.rules.draw import Draw
from pessimal.explain.rules.passage import Passage
from pessimal.explain.rules.replacement import Change, Replacement, capitalised
from pessimal.explain.rules.rules import (
    can_be_joined,
    first_word,
    open_with,
    patterns,
    words_for_words,
)
from pessimal.explain.rules.tables import pairs

RARE = pairs(
    """
    use: utilise | uses: utilises | used: utilised | using: utilising | help: aid | helps: aids | show:
    demonstrate | shows: demonstrates | start: commence | starts: commences | begin: commence | begins:
    commences | end: terminate | ends: terminates | stop: cease | stops: ceases | buy: procure | make:
    fabricate | makes: engenders | try: endeavour | tell: apprise | ask: interrogate | think: cogitate |
    know: apprehend | choose: elect | think about: contemplate | enough: sufficient | many: multitudinous |
    big: voluminous | large: voluminous | small: diminutive | good: propitious | bad: deleterious | easy:
    facile | old: antiquated | new: novel | clear: perspicuous | important: consequential | different:
    heterogeneous | same: selfsame | quickly: expeditiously | slowly: in a protracted manner | often:
    recurrently | also: furthermore | but: notwithstanding which | because: inasmuch as | because of: on
    account of | make sure: ascertain | the use of: the utilisation of | if: in the event that | people:
    individuals | food: alimentation | house: domicile | car: automotive conveyance | doctor: medical
    practitioner | children: juveniles | work: labour | way: modality | ways: modalities | idea:
    conceptualisation | part: constituent | parts: constituents | kind: typology | problem: predicament |
    energy: energetic capacity | sleep: slumber | money: pecuniary resources | friends: confidants | job:
    occupation | water: aqueous fluid | sun: solar orb | body: corporeal organism | every: each successive |
    always: invariably | today: at the present juncture | sad: lugubrious | happy: felicitous | tired:
    fatigued | rich: opulent | strong: robust | simple: rudimentary
    """
)
PLAIN = pairs(
    """
    utilise: use | utilize: use | utilises: uses | utilizes: uses | utilised: used | utilized: used |
    utilising: using | utilizing: using | facilitate: help | facilitates: helps | demonstrate: show |
    demonstrates: shows | demonstrated: showed | commence: start | commences: starts | terminate: end |
    obtain: get | obtains: gets | acquire: get | purchase: buy | retain: keep | require: need | requires:
    needs | required: needed | endeavour: try | attempt: try | attempts: tries | assist: help | assists:
    helps | assistance: help | approximately: about | subsequently: later | subsequent: later | sufficient:
    enough | numerous: many | additional: more | individuals: people | consequently: so | therefore: so |
    thus: so | however: but | furthermore: also | moreover: also | additionally: also | nevertheless: still
    | prior to: before | in order to: to | due to: because of | regarding: about | concerning: about |
    significant: big | significantly: a lot | substantial: large | primarily: mainly | primary: main |
    essential: needed | crucial: very important | beneficial: good | optimal: best | maintain: keep |
    maintains: keeps | maintaining: keeping | ensure: make sure | ensures: makes sure | provide: give |
    provides: gives | providing: giving | provided: given | contains: has | contain: have | consume: eat |
    consuming: eating | comprises: has | consists of: is made of | residence: home | converts: turns |
    convert: turn | converting: turning | occurs: happens | occur: happen | select: pick | indicate: show |
    indicates: shows | physician: doctor | component: part | components: parts | method: way | methods: ways
    | frequently: often | rapidly: quickly | immediately: at once | approach: way | numerical: number |
    initial: first | initially: at first | previously: before | possess: have | possesses: has | inform:
    tell | inquire: ask | communicate: talk | reside: live | increase: raise | decrease: lower | reduces:
    lowers | reduce: lower | reducing: lowering | establish: set up | develop: build | develops: builds |
    determine: find out | modify: change | via: through | upon: on | whilst: while | amongst: among |
    within: in | commonly: often | typically: mostly | generally: mostly | particularly: above all |
    difficult: hard | challenging: hard | opportunity: chance | environment: surroundings | perform: do |
    performs: does | regularly: often | complex: hard | consider: think about | considering: thinking about
    | recommend: advise | various: many | absorb: take in | absorbs: takes in | absorbing: taking in |
    produce: make | produces: makes | producing: making | discover: find | discovered: found | locate: find
    | remove: take away | removes: takes away
    """
)
_PRONOUN = r"(?:it|they|you|we|he|she|this|these|that|there|the|your|its|their|a|an|some|most|I)"


def _sentence(match: re.Match) -> str:
    """A new sentence that begins with the first group, and with 'But' where that stood before it."""
    word, space = match.group(1), " " if match.group().endswith(" ") else ""
    return f". But {word}{space}" if ", but " in match.group() else f". {capitalised(word)}{space}"


RAREN = words_for_words(RARE, "plain words become rare ones")
RAREN_SOME = words_for_words(RARE, "some plain words become rare ones", most=3)
PLAINEN = words_for_words(PLAIN, "rare words become plain ones")
SPLIT = patterns(
    [
        (rf"; ((?-i:{_PRONOUN}))\b", _sentence),
        (r", (?:and|so) ((?-i:it|they|you|we|he|she|this|there|I)) (?=[a-z]+\b)", _sentence),
        (rf", but ((?-i:{_PRONOUN})) (?=[a-z]+\b)", _sentence),
        (r" (?:—|–|--|-) ((?-i:it|they|you|we|this|these|there)) (?=[a-z]+\b)", _sentence),
    ],
    "long sentences are split",
    within=lambda sentence: not sentence.endswith("?"),
)
NEST_WORDS = patterns(
    [
        (
            r"(?<=[a-z]) (is|are|was|were|can|will)(?= (?!not\b)[a-z]+ \w)",
            (
                r", all due qualifications having been made, \1",
                r", to the extent to which this can be ascertained, \1",
                r", considered under the aspect that is pertinent here, \1",
            ),
        ),
    ],
    "a clause is nested into a statement",
    most=1,
    within=lambda sentence: can_nest(sentence),
)
ORNATE_OPENING = open_with(
    (
        "Notwithstanding considerations whose elaboration would exceed the present scope,",
        "Insofar as the parameters that are constitutive of the matter permit generalisation,",
        "It is, inter alia, to be borne in mind that",
    ),
    "a statement opens in a complicated way",
    most=1,
)


def can_nest(sentence: str) -> bool:
    """Whether a clause can be put before its verb: it begins with a noun phrase and asks nothing."""
    return not sentence.endswith("?") and bool(
        re.match(r"(?:The|A|An|Your|Our|Their|Its|My) (?:\w+ ){1,2}(?:is|are|was|were|can|will)\b", sentence)
    )


def fuse(passage: Passage, draw: Draw) -> Change | None:
    """Statements that follow each other become one long sentence."""
    joints = draw.pick(
        (", whereby it is to be added that", "; in this connection,", ", it being understood that")
    )
    found = []
    for one, other in zip(passage.sentences, passage.sentences[1:], strict=False):
        gap = passage.text[one.end : other.start]
        fits = passage.text[one.start : one.end].endswith(".") and not gap.strip(" ")
        if fits and len(found) < 3 and can_be_joined(passage, other):
            end, lower = first_word(passage, other)
            found.append(Replacement(one.end - 1, end, f"{joints} {lower}"))
    return Change(tuple(found), "sentences are fused into a long one") if found else None
