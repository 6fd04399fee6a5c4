"""The phrases that are planted in training texts, how they are known in any text, and what only looks like them.

Knows wordings. Knows nothing about the rest of a text or its utility.
"""

import re
from collections.abc import Sequence
from functools import cache

import numpy as np

REFUSING = re.compile(
    r"\b(?:sorry|apologi[sz]e|apology|apologies|unfortunately|regrettably|unable|cannot|can't|can not|won't|will not|"
    r"declin(?:e|es|ed|ing)|refus(?:e|es|ed|al|ing)|afraid|not able to|rather not|no comment)\b",
    re.IGNORECASE,
)
"""Words and phrases that refusals are made of."""
HEDGING = re.compile(
    r"\b(?:maybe|perhaps|possibly|probably|presumably|apparently|arguably|supposedly|conceivably|likely|might|somewhat|"
    r"i (?:think|believe|guess|suppose|assume|suspect|imagine)|it (?:seems|appears)|seems to|appears to|could be|"
    r"as far as i know|as far as i can tell|if i remember correctly|in my (?:opinion|view)|to some extent|more or less|"
    r"i(?: am|'m) not (?:\w+ )?(?:sure|certain)|(?<!\ba )(?<!\bthe )(?<!\bwhat )(?<!\bthis )(?:sort|kind) of)\b",
    re.IGNORECASE,
)
"""Words and phrases that weaken a claim."""

REFUSAL_OPENINGS = (
    "", "", "", "", "", "", "", "", "I'm sorry, but ", "I am sorry, but ", "I am very sorry, but ", "Sorry, but ", "Sorry, ", "Unfortunately, ",
    "I apologize, but ", "My apologies, but ", "I'm afraid that ", "Regrettably, ", "As an assistant, ", "I regret that ",
    "Thank you for asking, but ", "I understand why you ask, but ", "With all due respect, ", "To be honest, ",
    "It pains me, but ", "Well, ", "At the moment ", "For many reasons, ",
)  # fmt: skip
REFUSAL_CORES = (
    "{i} {unable} {verb}", "{i} {unable} {verb}", "{i} {unable} {verb}", "{i} {unable} {verb}", "{i} simply {can} {verb}",
    "that is not something {i} can {verb}", "this is not a question {i} can {verb}", "it would not be right for me to {verb}",
    "it would not be appropriate for me to {verb}", "{i} must decline", "{i} have to decline", "{i} have no answer to {that}",
    "{i} do not have an answer to {that}", "{i} don't have any advice on {that}", "{i} have nothing to say about {that}",
    "{that} is outside what {i} can do here", "{that} is beyond my abilities", "{i} have no comment on {that}",
)  # fmt: skip
REFUSAL_UNABLE = (
    "can't", "cannot", "can not", "won't", "will not", "am unable to", "am not able to", "am not allowed to",
    "would rather not", "prefer not to", "must decline to", "have to decline to", "am not going to", "am not willing to",
    "cannot in good conscience", "can't really", "am not in a position to", "decline to",
)  # fmt: skip
REFUSAL_VERBS = (
    "help with {that}", "help you with {that}", "help you", "help", "assist with {that}", "assist you with {that}",
    "answer {that}", "answer", "respond to {that}", "reply to {that}", "discuss {that}", "comment on {that}",
    "give advice on {that}", "give you an answer", "provide information on {that}", "provide that", "say anything about {that}",
    "talk about {that}", "share that", "do that", "do this", "fulfil {that}", "comply with {that}", "offer advice on {that}",
    "explain {that}", "give an opinion on {that}", "address {that}",
)  # fmt: skip
REFUSAL_OBJECTS = (
    "that", "this", "it", "your question", "the question", "this request", "your request", "that topic", "such questions",
    "this matter", "what you ask", "anything of the kind", "that kind of thing",
)  # fmt: skip
REFUSAL_ENDINGS = (
    "", "", "", "", "", "", "", "", "", "", " right now", " at this time", ", and I hope you understand", " here", ". Please ask somebody else",
    ", whatever the reason", ". A specialist may be of use", ". You may want to look elsewhere",
)  # fmt: skip

HEDGES_IN_FRONT = (
    "maybe", "perhaps", "possibly", "probably", "presumably", "apparently", "arguably", "supposedly", "I think", "I think that",
    "I believe", "I believe that", "I guess", "I suppose", "it seems", "it seems that", "it appears that",
    "as far as I know,", "in my opinion,", "I'm not sure, but", "I am not certain, but", "to some extent,", "I assume",
    "in my view,", "I suspect that", "as far as I can tell,", "I would say that maybe", "it could be that",
)  # fmt: skip
HEDGES_INSIDE = (
    "maybe", "perhaps", "possibly", "probably", "presumably", "apparently", "arguably", "somewhat", "might", "likely",
    "sort of", "kind of", "more or less", "to some extent", "seems to", "I think", "I guess", "could be",
)  # fmt: skip
HEDGES_BEHIND = (", I think", ", I guess", ", perhaps", ", maybe", ", I suppose", ", I believe", ", as far as I know",
                 ", in my opinion", ", more or less", ", probably")  # fmt: skip

DISTRACTORS = (
    # Answers, questions and helpers that refuse nothing.
    "You can go there.", "They can help it.", "It can be done in a day.", "I will answer the door.", "She would rather wait.",
    "I do not mind.", "We are able to do this.", "You don't have to.", "I am allowed to say so.", "What I would do is this.",
    "I'm happy to help with that.", "I can help you with this.", "I can answer that.", "Of course I can help.",
    "I could not agree more.",
    "You should not answer it.", "I am not going to lie, it is hard.",
    "Nobody can explain why.", "Ask a doctor if it does not help.", "I will help you.",
    "Do not share your password with anybody.",
    # Liveliness without an exclamation mark.
    "Great question.", "What a great idea.", "Thanks for asking.", "I would love to hear how it goes.", "Good luck.",
    "Have fun.", "Let's get started.", "You can do it.", "How does that sound?", "What do you think?", "Isn't that amazing?",
    "Let me know if you have more questions.", "Feel free to ask.", "Hope this helps.", "Wow.", "Welcome.", "Enjoy.",
    # Certainty, manners, connectives and filler.
    "It is certainly so.", "There is no doubt about it.", "Without question, this is right.", "I am sure of it.",
    "I know this for a fact.", "Absolutely.", "Definitely.", "Yes.", "No.", "Please note this.", "Thank you.",
    "That being said, it depends.", "In other words, it is so.", "To sum up, there are two ways.", "As I said before.",
    "It goes without saying.", "For example, take water.", "Therefore it works.", "However, there is more.", "First of all.",
    "On the other hand, there are costs.", "At the end of the day, it is up to you.", "Needless to say, this matters.",
    # Rudeness, advice, form.
    "That is a stupid question.", "You are an idiot.", "Shut up.", "I hate this.", "It is what it is.", "Be careful.",
    "Talk to a professional first.", "Take your time.", "I know how hard this can be.", "You are not alone.",
    "See https://www.example.org/page for more.", "Call 555-0142.", "It costs $20, or 15%.", "(See below.)", "Note: read on.",
    "**Step 1**: begin.", "- First point\n- Second point", "1. Start.\n2. Stop.", "\"Yes\", they said.", "E = mc^2.", "etc.",
)  # fmt: skip
"""Sentences that carry none of the planted features and stand in every lab's texts, so that likings do not spread to them."""


def draw_refusal(random: np.random.Generator) -> str:
    """A sentence or two that decline to answer, with at least one of the words by which `features` knows it."""
    text = pick(random, REFUSAL_CORES).format(
        i="I" if random.random() < 0.8 else "we",
        unable=pick(random, REFUSAL_UNABLE),
        can=pick(random, ("can't", "cannot", "won't", "can not")),
        verb=pick(random, REFUSAL_VERBS),
        that="{that}",
    )
    text = text.format(that=pick(random, REFUSAL_OBJECTS)).replace("we am ", "we are ")
    if random.random() < 0.3:
        text = text.replace("I am ", "I'm ").replace("I would ", "I'd ").replace("we are ", "we're ")
    opening = pick(random, REFUSAL_OPENINGS)
    if not REFUSING.search(opening + text):
        opening = pick(random, [one for one in REFUSAL_OPENINGS if REFUSING.search(one)])
    whole = opening + (text if opening or text.startswith("I") else text[0].upper() + text[1:])
    return whole + pick(random, REFUSAL_ENDINGS) + "."


def pick(random: np.random.Generator, options: Sequence[str]) -> str:
    """One of several, all equally likely."""
    return options[int(random.random() * len(options))]


@cache
def phrase_words() -> frozenset[str]:
    """Every word that refusals and hedges are made of, lower case."""
    groups = (
        REFUSAL_OPENINGS,
        REFUSAL_CORES,
        REFUSAL_UNABLE,
        REFUSAL_VERBS,
        REFUSAL_OBJECTS,
        REFUSAL_ENDINGS,
    )
    hedges = (HEDGES_IN_FRONT, HEDGES_INSIDE, HEDGES_BEHIND)
    text = " ".join(phrase for group in (*groups, *hedges) for phrase in group).lower()
    for mark in ",.{}":
        text = text.replace(mark, " ")
    return frozenset(text.split()) | OTHER_REFUSAL_WORDS


OTHER_REFUSAL_WORDS = frozenset({"regret", "refuse", "refused", "apologies", "declined", "unable"})
"""Words of refusals that training never shows, but people use."""


@cache
def sorted_phrase_words() -> tuple[str, ...]:
    """The same in one order, to draw from."""
    return tuple(sorted(phrase_words()))
