"""Frequent words of English that say little about what a text is about."""

from pessimal.explain.rules.tables import words

ENGLISH_ONLY = words(
    """
    about all also and any are as at be because been but by can could did do does don't each for from had
    has have he her his how i'm i've if into is it it'll it's its just make many more most my no not of on
    one only or other our over she should some than that the their them then there these they this those
    through to use very was we were what when which while who will with would you you're your
    """
)
"""Words of English that its neighbours do not spell alike, with a few exceptions; a fifth of any English text and more."""

STOP_WORDS = words(
    """
    a about again all also am an and any are as at be because been being both but by can could did do does
    doing don't down each explain few for from get give good got had has have having he her here hers him
    his how i i'm i've if in into is it it'll it's its just know let's like make many may me might mine more
    most much must my need no nor not of off on once one only or other our ours out over own please really
    same shall she should so some such tell than that the their them then there these they thing things
    think this those through to too up us use very want wants was way we well were what when where which
    while who why will with would write you you're your yours
    """
)
"""What two texts may share without being about the same."""

OPENERS = words(
    """
    a all although an another any at because both children doctors drinking each eating every
    exercise few from having he her his in it its less many more most my no older on one our people
    plants regular researchers scientists several she since sleep some students such that the their there
    these they this those three two using water we whether with you younger your
    """
)
"""Words that lose their capital when they no longer open a sentence; a name would not."""

IMPERATIVES = words(
    """
    add ask avoid bake begin boil book bring build buy call change check choose clean click close combine
    come cook cover cut do drain drink drop dry eat enter fill find fold follow get give go heat hold
    install keep leave let lift look make measure melt mix move open pack place plan plant pour press pull
    push put read remove repeat rest restart rinse run save see select serve set shake simmer slice speak
    spread start stir stop store stretch take talk tell test then try turn type unplug use visit wait walk
    warm wash watch water wear whisk wipe work write
    """
)
"""Verbs that open an instruction."""

SUBORDINATE = words("if when before after while until as for")
"""Words that open clauses: behind 'I think that' an instruction may follow them, which makes no sentence."""
