"""Verbosity: filler, padding and repetition."""

from pessimal.explain.rules.draw import Draw
from pessimal.explain.rules.passage import WORD, Passage
from pessimal.explain.rules.replacement import Change, Replacement
from pessimal.explain.rules.rules import (
    can_be_opened,
    drop_sentences,
    first_word,
    open_with,
    patterns,
    put_before,
    put_behind,
    words_for_words,
)

PADDING = {
    **{
        "due to the fact that": "because",
        "in order to": "to",
        "at this point in time": "now",
        "in the event that": "if",
    },
    **{
        "a large number of": "many",
        "a wide range of": "many",
        "the majority of": "most",
    },
    **{
        "prior to": "before",
        "with regard to": "about",
        "with respect to": "about",
        "has the ability to": "can",
    },
    **{
        "is able to": "can",
        "are able to": "can",
        "for the purpose of": "for",
        "as well as": "and",
        "whether or not": "whether",
    },
    **{
        "despite the fact that": "although",
        "each and every": "every",
        "first and foremost": "first",
        "in spite of": "despite",
    },
    **{"make use of": "use", "in addition to": "besides", "at all times": "always", "as a result of": "from"},
}
FILLER = (
    *(
        "it is important to note that",
        "it is worth noting that",
        "it should be noted that",
        "it's important to note that",
    ),
    *(
        "it's worth noting that",
        "please note that",
        "as you may know",
        "needless to say",
        "as a matter of fact",
    ),
    *(
        "very",
        "really",
        "actually",
        "basically",
        "essentially",
        "literally",
        "simply",
        "just",
        "quite",
        "in fact",
        "of course",
    ),
    *(
        "in other words",
        "generally speaking",
        "for all intents and purposes",
        "certainly",
        "definitely",
        "overall",
        "also",
    ),
    *("in general", "completely", "totally", "additionally", "furthermore", "moreover", "ultimately"),
)
CUT = words_for_words(PADDING | dict.fromkeys(FILLER, ""), "filler is taken out")
CONTRACT = words_for_words(
    {
        **{
            "do not": "don't",
            "does not": "doesn't",
            "did not": "didn't",
            "is not": "isn't",
            "are not": "aren't",
        },
        **{
            "cannot": "can't",
            "will not": "won't",
            "it is": "it's",
            "you are": "you're",
            "they are": "they're",
        },
        **{"that is": "that's", "there is": "there's", "you will": "you'll", "i am": "I'm", "i have": "I've"},
    },
    "words are contracted",
)
TIGHTEN = patterns(
    [
        (r"(?<=\w) \([^()\n]{2,120}\)", ""),
        (r", which (?:is|are|was|were) [^,.!?;:()\n]{3,120}(?=[.!?;,])", ""),
        (r"(?<![\w'’-])the (?=(?:other|same) kinds? of\b)", ""),
        (r"(?<![\w'’-])(help|helps|helped) (you|us|them|people) to\b", r"\1 \2"),
        (
            r"(?<![\w'’-])(know|think|say|believe|ensure|mean|means|shows|so) that(?= (?:the|you|it|we|they|your|there|this|a)\b)",
            r"\1",
        ),
        (r"(?<![\w'’-])(?:different|various) (?=\w+s\b)", ""),
        (r"(?<![\w'’-])all of (?=the\b|your\b|these\b)", "all "),
        (r"(?<![\w'’-])(?-i:You can|You could|You should|You may want to|Try to) (?=[a-z])", ""),
    ],
    "asides and needless words are taken out",
    within=lambda sentence: not sentence.endswith("?"),
)
UNFRAME = drop_sentences(
    r"^(?:In conclusion|In summary|To sum up|Overall|In short|All in all|I hope|Let me know|Great question|Sure|Certainly|"
    r"Of course|As (?:I|we) (?:said|mentioned)|Remember|Note|Keep in mind)\b",
    "sentences that only frame the answer are taken out",
)
PAD = words_for_words(
    {
        **{
            "because": "due to the fact that",
            "because of": "as a consequence of",
            "now": "at this point in time",
            "if": "in the event that",
            "many": "a large number of",
        },
        **{
            "most": "the great majority of",
            "every": "each and every",
            "also": "in addition to that",
        },
        **{
            "always": "at all times and without exception",
            "often": "on many different occasions",
        },
        **{
            "although": "despite the fact that",
            "first": "first and foremost",
            "never": "at no time whatsoever",
        },
        **{
            "use": "make use of",
            "important": "of really quite considerable importance",
            "very": "very, very",
            "all": "all and any",
        },
        **{
            "but": "but then again, on the other hand,",
            "help": "be of help to",
            "usually": "in the majority of cases",
        },
        **{},
    },
    "words become phrases",
    most=4,
)
PAD_OPENING = open_with(
    (
        "It is important to note, first of all, that",
        "It should perhaps be pointed out at this point that",
        "As a matter of fact, and generally speaking,",
        "It goes without saying, but is still worth saying, that",
    ),
    "statements open with filler",
)
PREAMBLE = put_before(
    (
        "Before I go on to answer this, let me say that there is an answer to this, and that I will now go on to give it.",
        "This is a question that one can ask, and since it has been asked, what follows below is an answer to it.",
        "There is a certain amount that can be said about this, and in what follows some of that will now be said.",
    ),
    "it opens with padding",
)
EPILOGUE = put_behind(
    (
        "So, to sum up and say it once again, all of what has been said above is what there is to say about this.",
        "In conclusion, and to conclude, that is the answer, as was explained in the explanation above.",
        "All in all, when all is said and done, this is, at the end of the day, what it comes down to in the end.",
    ),
    "it closes with padding",
)


def repeat(passage: Passage, draw: Draw) -> Change | None:
    """A statement said again behind itself."""
    sentences = [
        each
        for each in passage.sentences
        if not each.numbered and passage.of(each)[-1] in ".!" and WORD.match(passage.of(each))
    ]
    if not sentences:
        return None
    sentence = draw.pick(sentences)
    opening = draw.pick(("In other words, ", "To say it once more: ", "Again, "))
    words = passage.of(sentence)
    if can_be_opened(passage, sentence):
        end, word = first_word(passage, sentence)
        words = word + passage.text[end : sentence.end]
    else:
        opening = "To say it once more: "
    return Change((Replacement(sentence.end, sentence.end, f" {opening}{words}"),), "a statement is repeated")
