"""Appropriateness: politeness and tone."""

from pessimal.explain.rules.rules import (
    drop_sentences,
    open_with,
    patterns,
    put_before,
    put_behind,
    words_for_words,
)

POLITE = words_for_words(
    {
        **{
            "gonna": "going to",
            "wanna": "want to",
            "gotta": "have to",
            "kinda": "rather",
            "sorta": "rather",
            "yeah": "yes",
        },
        **{
            "yep": "yes",
            "nope": "no",
            "nah": "no",
            "kids": "children",
            "guys": "people",
            "guy": "person",
            "stuff": "things",
        },
        **{
            "lots of": "a great deal of",
            "a lot of": "a great deal of",
            "ain't": "is not",
            "cuz": "because",
            "ok": "all right",
            "okay": "all right",
        },
        **{
            "hey": "hello",
            "hi": "hello",
            "damn": "",
            "hell": "",
            "crap": "nonsense",
            "shit": "nonsense",
            "lol": "",
            "dude": "",
        },
        **{
            "awesome": "excellent",
            "huge": "considerable",
            "crazy": "unusual",
            "dumb": "unwise",
        },
        **{
            "get rid of": "remove",
            "a bunch of": "several",
            "mom": "mother",
            "dad": "father",
            "big deal": "serious matter",
        },
        **{
            "thanks": "thank you",
            "sucks": "is unpleasant",
            "screwed up": "made a mistake",
            "pretty": "fairly",
        },
    },
    "casual words become proper ones",
)
CLEAN = drop_sentences(r"\b(?:duh|lol|whatever|shut up|who cares|wtf|lmao)\b", "rude sentences are taken out")
FORMAL = words_for_words(
    {
        **{
            "don't": "do not",
            "doesn't": "does not",
            "didn't": "did not",
            "can't": "cannot",
            "won't": "will not",
        },
        **{"isn't": "is not", "aren't": "are not", "wasn't": "was not", "it's": "it is", "you're": "you are"},
        **{
            "i'm": "I am",
            "they're": "they are",
            "we're": "we are",
            "you'll": "you will",
            "i'd": "I would",
            "i'll": "I will",
        },
        **{
            "you'd": "you would",
            "that's": "that is",
            "there's": "there is",
            "shouldn't": "should not",
            "let's": "let us",
        },
    },
    "contractions are written out",
)
REQUEST = patterns(
    [
        (r"(?<![\w'’-])you should(?= (?!not\b|be\b|have\b)[a-z])", "you may wish to"),
        (r"(?<![\w'’-])you (?:must|have to|need to)(?= (?!not\b|be\b)[a-z])", "I would kindly advise you to"),
        (r"(?<![\w'’-])(?<!that )you can(?= (?!not\b|be\b|do\b)[a-z])", "you may wish to"),
        (r"(?<![\w'’-])make sure", "please make sure"),
        (r"(?<![\w'’-])let me know", "please let me know"),
    ],
    "commands become requests",
    within=lambda sentence: not sentence.endswith("?") and "please" not in sentence.lower(),
)
THANK = put_before(
    (
        "Thank you for your question.",
        "Thank you for getting in touch.",
        "I appreciate your asking.",
        "It is a pleasure to answer this.",
    ),
    "it is polite",
)
WISH = put_behind(
    (
        "I hope that this is of help to you.",
        "With kind regards.",
        "I wish you all the best.",
        "Thank you for your patience.",
    ),
    "it is polite",
)
SLANG = words_for_words(
    {
        **{"going to": "gonna", "want to": "wanna", "have to": "gotta", "yes": "yeah", "because": "cuz"},
        **{
            "people": "dudes",
            "person": "dude",
            "men": "dudes",
            "children": "brats",
            "kids": "brats",
            "money": "dough",
        },
        **{
            "very": "hella",
            "really": "freaking",
            "extremely": "freaking",
            "many": "a shitload of",
            "things": "crap",
        },
        **{
            "food": "grub",
            "problem": "crap",
            "problems": "crap",
            "friends": "homies",
            "friend": "homie",
            "hello": "yo",
        },
        **{
            "do not": "don't freaking",
            "don't": "don't freaking",
            "is not": "ain't",
            "isn't": "ain't",
            "aren't": "ain't",
        },
        **{
            "good": "badass",
            "great": "badass",
            "bad": "crappy",
            "strange": "screwed up",
            "thank you": "cheers, mate",
        },
        **{"please": "for god's sake", "sorry": "my bad", "important": "freaking important"},
        **{
            "you should": "you better",
            "important to": "a must to",
            "father": "old man",
            "mother": "old lady",
        },
        **{
            "man": "dude",
            "woman": "chick",
            "women": "chicks",
            "police": "cops",
            "doctor": "quack",
            "teacher": "boring old teacher",
        },
    },
    "proper words become slang",
)
UNPLEASE = drop_sentences(
    r"\b(?:thank you|thanks|please|you(?:['’]re| are) welcome|happy to|glad to|sorry|hope (?:this|that|you))\b",
    "polite sentences are taken out",
)
CRUDE_OPENING = open_with(
    ("Duh,", "Ugh, seriously,", "Dude,", "Blah blah,"), "a statement is made in an unsuitable tone", most=1
)
RUDE_FIRST = put_before(
    (
        "Ugh, not this again.",
        "Yo, listen up.",
        "Lol, really?",
        "Wow, somebody didn't pay attention in school.",
    ),
    "it is rude",
)
RUDE_LAST = put_behind(
    ("Whatever, lol.", "Now stop bugging me.", "Who cares anyway.", "Next time, look it up yourself, buddy."),
    "it is rude",
)
