"""Changes responses without changing what they say: the null against which flips along an attribute are held.

Knows requests and English spelling. Does not know attributes: it makes the same kinds of change whatever is asked for,
and changes the number of words by two at most.
"""

from collections.abc import Sequence
from pathlib import Path

from pessimal.explain import edits
from pessimal.explain.attribute import Edit
from pessimal.explain.edits import Draw, Passage, Replacement
from pessimal.explain.perturbation import Perturbation, Request, Status

MOST_WORDS = 2
"""Words by which a response may become longer or shorter."""

CONTRACTIONS = """
do not: don't | does not: doesn't | did not: didn't | is not: isn't | are not: aren't | was not: wasn't | were not: weren't
| will not: won't | would not: wouldn't | cannot: can't | could not: couldn't | should not: shouldn't | have not: haven't
| you are: you're | they are: they're | we are: we're | you will: you'll | they will: they'll | it will: it'll
| i am: I'm | i will: I'll
"""
SPELLINGS = """
color: colour | colors: colours | flavor: flavour | flavors: flavours | favorite: favourite | behavior: behaviour
| neighbor: neighbour | neighbors: neighbours | honor: honour | labor: labour | center: centre | centers: centres
| theater: theatre | liter: litre | liters: litres | fiber: fibre | organize: organise | organized: organised
| realize: realise | recognize: recognise | apologize: apologise | organization: organisation | prioritize: prioritise
| minimize: minimise | maximize: maximise | analyze: analyse | summarize: summarise | traveling: travelling
| traveled: travelled | gray: grey | defense: defence | catalog: catalogue | dialog: dialogue | mom: mum | yogurt: yoghurt
| meter: metre | kilometers: kilometres | meters: metres | toward: towards | afterward: afterwards | among: amongst
| ok: okay | aging: ageing | judgment: judgement | learned: learnt | while: whilst | e-mail: email
"""
SYNONYMS = """
for example: for instance | perhaps: maybe | although: though | usually: normally | often: frequently | quickly: rapidly
| big: large | start: begin | starts: begins | started: began | nearly: almost | until: till | therefore: hence
| rarely: seldom | mainly: mostly | everyone: everybody | someone: somebody | anyone: anybody | no one: nobody
| around the world: across the world | whole: entire | many: numerous | select: choose | additional: further
| throughout: all through | make sure: be sure | a lot of: lots of | right away: at once | happen: occur
| happens: occurs | sometimes: at times | in particular: particularly | finish: complete | glad: happy
"""
ONE_WAY = """
| as well as: along with | various: several | roughly: about | approximately: about | in order to: to | such as: like
| for many years: for years | several: a number of
"""
DIGITS = dict(zip(("two", "three", "four", "five", "six", "seven", "eight", "nine"), "23456789", strict=True))
_WHOLE = r"(?<![\w'’-])"
_NO_COUNT = "of|or|to|and|in|at|on|is|are|by"


def _back(words: str) -> str:
    pairs = (pair.split(": ") for pair in words.split("|"))
    return " | ".join(f"{put.strip().lower()}: {word.strip()}" for word, put in pairs)


VARIANTS: tuple[Edit, ...] = (
    *(Edit(swap=words, most=2) for words in (CONTRACTIONS, _back(CONTRACTIONS))),
    *(Edit(swap=words) for words in (SPELLINGS, _back(SPELLINGS), SYNONYMS + ONE_WAY, _back(SYNONYMS))),
    Edit(find=_WHOLE + r"(it|that|there) is(?= (?!not\b)[a-z])", put=r"\1's"),
    # Of "it's" the other way only before what cannot follow 'it has'.
    Edit(find=_WHOLE + r"(it|that|there)['’]s(?= (?:a|an|the|important|also|very|good|best|not)\b)", put=r"\1 is"),
    # Function words, where they can stand only one way.
    Edit(find=_WHOLE + r"(?:is|are) able to(?![\w-])", put="can"),
    Edit(find=r"(?<=[a-z]) because of(?= the\b)", put=" owing to"),
    Edit(find=r"(?<=[a-z]), because (?=it|they|you|the|this|we\b)", put=", as "),
    Edit(find=r"(?<=[a-z]) because (?=it|they|you|the|this|we\b)", put=" since "),
    Edit(find=r"(?<=[a-z]) as well(?=[.!])", put=" too"),
    Edit(find=r"(?<=[a-z]) too(?=[.!])", put=" as well"),
    Edit(find=_WHOLE + r"(helps?) (you|them|us|people) to (?=[a-z]+)", put=r"\1 \2 "),
    Edit(find=_WHOLE + r"all the (?=[a-z]+s\b)", put="all of the "),
    Edit(find=_WHOLE + r"all of the (?=[a-z]+s\b)", put="all the "),
    Edit(find=_WHOLE + r"(know|think|say|believe|ensure|shows?|remember) that (?=the|you|it|they|we|your\b)", put=r"\1 "),
    Edit(find=r"(?<!\b(?:said|say|know|think|so|now|in|of|for|with|all|and|but|before|after|like))(?<=[a-z]) that "
         r"(?=(?:is|are|was|were|has|have|can|will|helps?|makes?|needs?|gives?|uses?|comes?|goes)\b)", put=" which "),
    Edit(find=r"(?<!\b(?:in|of|for|with|all|and|but))(?<=[a-z]) which (?=(?:is|are|was|were|has|have|can|will)\b)",
         put=" that "),
    # Numbers and signs.
    *(Edit(find=rf"{_WHOLE}{word}(?= (?!(?:{_NO_COUNT})\b)[a-z]{{3,}})", put=digit) for word, digit in DIGITS.items()),
    *(Edit(find=rf"(?<![\w.,:/$€£#°'’–-]){digit}(?= (?!(?:{_NO_COUNT}|percent|million|billion|km|kg|cm|mm|am|pm)\b)"
           r"[a-z]{3,})", put=word) for word, digit in DIGITS.items()),
    Edit(find=r"(?<=\d)%(?= |[.,])", put=" percent"),
    Edit(find=r"(?<=\d) percent\b", put="%"),
    Edit(find=r"(?<=\w) (?:—|–|--|-) (?=[a-z])", put=", "),
    Edit(find=r"(?<=\w)—(?=[a-z])", put=" – "),
    Edit(find=r"(?<=, )([a-z]+(?: [a-z]+)?), (and|or) (?=[a-z]+\b)", put=r"\1 \2 "),
    # 'a, b and c' with single words: longer parts may hold an 'and' of their own.
    Edit(find=r"(?<=[a-z], )(?!(?:and|or|but|so|more|sooner)\b)([a-z]{3,}) (and|or) (?=[a-z]{3,}[.,;!?])", put=r"\1, \2 "),
    Edit(find=r"(?<![^.!?\n] )\b((?-i:In \d{4}|Today|Usually|Sometimes|Often|Then|In general|At first|Instead|Finally|First)), "
         r"(?=[a-z])", put=r"\1 "),
    Edit(find=r"\b((?-i:In \d{4}|Today|Usually|Sometimes|Then|At first)) (?=(?:the|it|you|they|we|he|she|there|a)\b)",
         put=r"\1, "),
    Edit(find=r'"([^"\'\n]{1,200})"', put=r"'\1'"),
    Edit(find=r"(?<!\w)'([^\"'\n]{1,200})'(?!\w)", put=r'"\1"'),
    Edit(find=r"(?<=\w)'(?=\w)", put="’"),
    Edit(find=r"(?<=\w)’(?=\w)", put="'"),
)  # fmt: skip
"""The kinds of change, of which one that applies is drawn."""
LAST_RESORT = (Edit(find=r"(?<=[.!?])  (?=[A-Z])", put=" "), Edit(find=r"(?<=[.!?]) (?=[A-Z])", put="  "))
"""Used where fewer than two of the others apply: two spaces behind a sentence are seldom seen today."""


class Placebo:
    """The perturber `placebo`."""

    name = "placebo"

    def provenance(self) -> dict:
        """The perturber and a digest of its word lists and of what carries them out."""
        return {
            "perturber": self.name,
            "rules": edits.digest_of_sources(Path(__file__), Path(edits.__file__)),
        }

    def perturb(self, requests: Sequence[Request]) -> list[Perturbation]:
        """One perturbation a request, in their order; each depends on its own request only."""
        return [self._perturbed(request) for request in requests]

    def placebo(self) -> "Placebo":
        """Itself."""
        return self

    def _perturbed(self, request: Request) -> Perturbation:
        note = edits.why_untouched(request.text, english=True)
        passage, draw = Passage(request.text), Draw(self.name, *request.named, seed=request.seed)
        found = {} if note else _changes(passage, draw, VARIANTS)
        if len(found) < 2 and not note:
            found |= _changes(passage, draw, LAST_RESORT)
        if not found:
            note = note or "no spelling, punctuation or function word that could as well be another"
            return Perturbation(request, Status.not_applicable, note=note)
        text, pieces = draw.pick(list(found.items()))
        spans = edits.spans_of(request.text, pieces)
        return Perturbation(request, Status.changed, text, spans, "says the same in other words")


def _changes(passage: Passage, draw: Draw, variants: Sequence[Edit]) -> dict[str, list[Replacement]]:
    """The changes that apply, by the text that they make; of their places, from the first on, as many as keep the number of
    words within `MOST_WORDS`."""
    found: dict[str, list[Replacement]] = {}
    for edit in variants:
        kept, grown = [], 0
        for each in draw.some(edits.places(passage, edit, draw), edit.most):
            words = len(each.put.split()) - len(passage.text[each.start : each.end].split())
            if abs(grown + words) <= MOST_WORDS:
                kept.append(each)
                grown += words
        if (text := edits.replaced(passage.text, kept)) != passage.text:
            found.setdefault(text, kept)
    return found
