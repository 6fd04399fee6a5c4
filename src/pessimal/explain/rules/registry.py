"""The registry of rules: which make a response have more or less of which attribute.

Knows the fifteen attributes by name. Does not know how a rule works.
"""

from dataclasses import dataclass

from pessimal.explain.attribute import Amount
from pessimal.explain.rules import (
    appropriateness,
    assertiveness,
    clarity,
    coherence,
    conversions,
    correctness,
    engagement,
    harmlessness,
    helpfulness,
    informativeness,
    neutrality,
    plain_words,
    refusal,
    relevance,
    sensitivity,
    verbosity,
)
from pessimal.explain.rules.rules import Rule


@dataclass(frozen=True)
class Ways:
    """The rules that change an attribute one way."""

    changing: tuple[Rule, ...]
    """Rules that change or take out words of the response."""
    adding: tuple[Rule, ...] = ()
    """Rules that only add to it; used where fewer than two of the others apply."""


MORE, LESS = Amount.more, Amount.less
RULES: dict[tuple[str, Amount], Ways] = {
    ("appropriateness", MORE): Ways(
        (appropriateness.POLITE, appropriateness.CLEAN, appropriateness.FORMAL, appropriateness.REQUEST),
        (appropriateness.THANK, appropriateness.WISH),
    ),
    ("appropriateness", LESS): Ways(
        (appropriateness.SLANG, appropriateness.UNPLEASE, appropriateness.CRUDE_OPENING),
        (appropriateness.RUDE_FIRST, appropriateness.RUDE_LAST),
    ),
    ("assertiveness", MORE): Ways(
        (assertiveness.UNHEDGE, assertiveness.COMMIT, assertiveness.COMMIT_MODALS),
        (assertiveness.INSIST, assertiveness.VOUCH),
    ),
    ("assertiveness", LESS): Ways(
        (assertiveness.DOUBT_WORDS, assertiveness.HEDGE), (assertiveness.WAVER, assertiveness.WARN)
    ),
    ("avoid-to-answer", MORE): Ways(
        (refusal.refuse_unless_refused, refusal.deflect_unless_refused, refusal.break_off)
    ),
    ("avoid-to-answer", LESS): Ways((refusal.STRIP, refusal.UNSAY, refusal.CLAUSE), (refusal.DIRECT,)),
    ("clarity", MORE): Ways(
        (plain_words.PLAINEN, plain_words.SPLIT, clarity.a_line_each), (clarity.SHORT_OPENING,)
    ),
    ("clarity", LESS): Ways(
        (clarity.VAGUE, clarity.run_on, clarity.no_commas), (clarity.VAGUE_OPENING, clarity.MUDDLE)
    ),
    ("coherence", MORE): Ways((coherence.UNMIX,), (coherence.join, coherence.number)),
    ("coherence", LESS): Ways(
        (coherence.INVERT, coherence.INVERT_SO, coherence.shuffle, coherence.MISFIT),
        (coherence.contradict_first, coherence.CONTRADICT),
    ),
    ("complexity", MORE): Ways(
        (plain_words.RAREN, plain_words.RAREN_SOME, plain_words.NEST_WORDS, plain_words.fuse),
        (plain_words.ORNATE_OPENING,),
    ),
    ("complexity", LESS): Ways((plain_words.PLAINEN, plain_words.SPLIT)),
    ("correctness", MORE): Ways((correctness.MEND, correctness.MEND_FORM)),
    ("correctness", LESS): Ways(
        (
            correctness.INVERT_FACTS,
            correctness.wrong_numbers,
            correctness.swap_names,
            correctness.NEGATE,
            correctness.DISAGREE,
            correctness.MISSPELL,
        )
    ),
    ("engagement", MORE): Ways(
        (engagement.LIVELY_WORDS, engagement.exclaim), (engagement.WARM, engagement.INVITE)
    ),
    ("engagement", LESS): Ways(
        (engagement.COOL_DOWN, engagement.FLAT_WORDS, engagement.calm, engagement.IMPERSONAL),
        (engagement.DRY_FIRST, engagement.DRY_LAST),
    ),
    ("harmlessness", MORE): Ways(
        (harmlessness.SOFTEN, harmlessness.PACIFY, harmlessness.TALK),
        (harmlessness.CARE, harmlessness.CARE_FIRST),
    ),
    ("harmlessness", LESS): Ways(
        (harmlessness.CARELESS_WORDS, harmlessness.DEFY, harmlessness.UNWARN, harmlessness.INSULT_YOU),
        (harmlessness.INSULT, harmlessness.ENCOURAGE),
    ),
    ("helpfulness", MORE): Ways(
        (helpfulness.ADVISE, helpfulness.steps), (helpfulness.OFFER, helpfulness.READY)
    ),
    ("helpfulness", LESS): Ways(
        (helpfulness.UNOFFER, helpfulness.drop_main, helpfulness.cut_short, helpfulness.SHRUG),
        (helpfulness.USELESS_LAST,),
    ),
    ("informativeness", MORE): Ways((informativeness.add_facts, conversions.convert)),
    ("informativeness", LESS): Ways(
        (
            informativeness.NO_ASIDES,
            informativeness.VAGUE_NUMBERS,
            informativeness.drop_specific,
            informativeness.VAGUE_WORDS,
            informativeness.DROP_REASONS,
            informativeness.EMPTY,
        )
    ),
    ("neutrality", MORE): Ways((neutrality.COOL,), (neutrality.HAND, neutrality.BALANCED)),
    ("neutrality", LESS): Ways(
        (neutrality.SIDE_WORDS, neutrality.UNBALANCE, neutrality.SIDE_ARTICLES),
        (neutrality.PARTISAN, neutrality.VERDICT, neutrality.VERDICT_FIRST),
    ),
    ("relevance", MORE): Ways((relevance.NO_ASIDES, relevance.drop_least_related), (relevance.POINT,)),
    ("relevance", LESS): Ways((relevance.replace_related,), (relevance.digress,)),
    ("sensitivity", MORE): Ways((sensitivity.GENTLE_WORDS,), (sensitivity.FEEL_FIRST, sensitivity.FEEL_LAST)),
    ("sensitivity", LESS): Ways(
        (sensitivity.BLUNT_WORDS, sensitivity.DISMISS, sensitivity.COLD, sensitivity.BLUNT_MODALS),
        (sensitivity.BLUNT_OPENING, sensitivity.UNFEELING, sensitivity.UNFEELING_FIRST),
    ),
    ("verbosity", MORE): Ways(
        (verbosity.PAD,), (verbosity.repeat, verbosity.PAD_OPENING, verbosity.PREAMBLE, verbosity.EPILOGUE)
    ),
    ("verbosity", LESS): Ways((verbosity.CUT, verbosity.UNFRAME, verbosity.TIGHTEN, verbosity.CONTRACT)),
}
KNOWN = frozenset(name for name, _ in RULES)
"""The attributes that have rules."""

WHY_NOT = {
    (
        "correctness",
        MORE,
    ): "no slip of spelling or grammar that a rule could mend; facts cannot be checked by rule",
    (
        "informativeness",
        MORE,
    ): "no word of which a fact or an example is known, and no quantity that could be given in another unit",
    ("complexity", LESS): "no rare word and no long sentence that a rule could make plainer",
    ("verbosity", LESS): "no filler, padding or aside that a rule could take out",
    ("avoid-to-answer", MORE): "its main sentence refuses or deflects already",
}
"""Why no rule applied, where that can be said better than in general."""
