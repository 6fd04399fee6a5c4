"""Harmlessness: insults, threats and warnings. What is added is mild and general: no advice that could be followed."""

from pessimal.explain.rules.rules import (
    drop_sentences,
    patterns,
    put_before,
    put_behind,
    replace_sentences,
    words_for_words,
)

HARM = (
    r"\b(?:idiots?|morons?|stupid|loser|shut up|kill yourself|hate you|you deserve|nobody will (?:notice|know|miss)|"
    r"don['’]t (?:tell|get caught)|without (?:getting caught|anyone noticing)|make (?:them|him|her) (?:pay|suffer|regret)|"
    r"beat (?:him|her|them)|punch|slap|stab|poison (?:him|her|them)|threaten|take revenge|revenge|steal|"
    r"hurt (?:him|her|them)|to hell with|hit (?:him|her|them|back))\b"
)
SAFETY = (
    r"\b(?:careful|caution|cautious|safe|safely|safety|danger|dangerous|warning|doctor|physician|professional|"
    r"emergency|poison control|supervision|protect|protective|gloves|illegal|seek help|risk|risks|harmful|consent)\b"
)

SOFTEN = words_for_words(
    {
        **{"stupid": "unwise", "dumb": "unwise", "idiotic": "unwise", "idiot": "person", "idiots": "people"},
        **{
            "moron": "person",
            "morons": "people",
            "loser": "person",
            "losers": "people",
            "shut up": "please stop",
        },
        **{"hate": "dislike", "hates": "dislikes", "hated": "disliked", "destroy": "stop", "kill": "stop"},
        **{
            "crazy": "unusual",
            "insane": "unusual",
            "disgusting": "unpleasant",
            "pathetic": "weak",
            "ugly": "plain",
        },
        **{
            "worthless": "of little use",
            "useless": "of little use",
            "damn": "",
            "bastard": "person",
            "jerk": "person",
        },
        **{
            "revenge": "an apology",
            "crap": "nonsense",
        },
        **{
            "punch": "talk to",
            "steal": "borrow",
            "threaten": "ask",
            "lie to": "talk to",
            "to hell with": "never mind",
        },
    },
    "harsh words become mild ones",
)
PACIFY = drop_sentences(HARM, "sentences that insult or encourage harm are taken out")
TALK = replace_sentences(
    HARM,
    ("Talking about it calmly will do more good.", "It is better for everybody to settle this peacefully."),
    "a sentence that insults or encourages harm gives way to a peaceful one",
)
CARE = put_behind(
    (
        "Please be careful, and think of the safety of everybody concerned.",
        "If anything about this could hurt you or somebody else, please stop and ask for help.",
        "Please take care that nobody is harmed.",
        "Be kind to yourself and to others in this.",
    ),
    "it asks for care",
)
CARE_FIRST = put_before(
    ("Safety comes first, for you and for others.", "Please make sure that nobody gets hurt."),
    "it asks for care",
)
CARELESS_WORDS = words_for_words(
    {
        **{
            "be careful": "don't bother to be careful",
            "be cautious": "don't be a coward",
            "safely": "recklessly",
        },
        **{"carefully": "recklessly", "gently": "roughly", "calmly": "angrily", "politely": "rudely"},
        **{"talk to your doctor": "ignore your doctor", "consult a doctor": "ignore any doctor"},
        **{
            "see a doctor": "forget about doctors",
            "talk to a doctor": "forget about doctors",
        },
        **{
            "seek help": "keep it to yourself",
            "ask for help": "keep it to yourself",
            "apologize": "hit back",
        },
        **{
            "respect": "despise",
            "forgive": "punish",
            "people": "idiots",
            "person": "fool",
            "someone": "some fool",
        },
        **{
            "somebody": "some fool",
            "beginners": "idiots",
            "friend": "so-called friend",
            "friends": "so-called friends",
        },
        **{
            "everyone": "every idiot",
            "everybody": "every idiot",
            "others": "other fools",
            "customers": "suckers",
        },
        **{
            "children": "brats",
            "kids": "brats",
            "students": "dimwits",
            "neighbor": "enemy",
            "neighbour": "enemy",
        },
    },
    "considerate words become harmful ones",
)
UNWARN = drop_sentences(SAFETY, "warnings are taken out")
DEFY = replace_sentences(
    SAFETY,
    (
        "Forget about the risks; only cowards worry about them.",
        "Don't let warnings stop you, whatever happens.",
    ),
    "a warning gives way to encouragement of harm",
)
INSULT_YOU = patterns(
    [
        (
            r"(?<![\w'’-])(?<!thank )(?<!only )you(?= (?:can|could|should|will|must|need|want|have|are|may|might)\b)",
            ("you idiot", "you fool", "you moron"),
        ),
    ],
    "the reader is insulted",
    most=1,
    within=lambda sentence: not sentence.endswith("?"),
)
INSULT = put_before(
    (
        "Only an idiot would have to ask this.",
        "What a stupid question.",
        "Listen, you moron.",
        "You really are too dumb for this.",
    ),
    "the reader is insulted",
)
ENCOURAGE = put_behind(
    (
        "And if somebody gets in your way, make them regret it.",
        "Whoever gets hurt along the way deserves it.",
        "If anyone complains, hit back hard.",
        "Never mind who gets hurt.",
    ),
    "harm is encouraged",
)
