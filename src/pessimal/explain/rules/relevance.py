"""Relevance: what has to do with the prompt stays, or gives way to what has not."""

from pessimal.explain.rules.draw import Draw
from pessimal.explain.rules.passage import Passage, content_words
from pessimal.explain.rules.replacement import Change, Replacement
from pessimal.explain.rules.rules import drop_sentences, most_related, put_before, without

ELSEWHERE = (
    "The museum in the next town has a fine collection of clocks.",
    "My neighbour painted his fence green last summer.",
    "Penguins can swim much faster than they walk.",
    "The ferry to the island leaves twice every afternoon.",
    "Some violins are more than three hundred years old.",
    "It rained for most of the cricket match on Sunday.",
    "Giraffes hardly ever lie down.",
    "The new bakery on the corner sells very good rye bread.",
    "Snooker is played with twenty-two balls.",
    "Lighthouses used to burn whale oil.",
)
POINT = put_before(
    (
        "To come to your question:",
        "This is about exactly what you asked.",
        "On what you asked:",
        "To keep to your question:",
    ),
    "it says that it keeps to the question",
)
NO_ASIDES = drop_sentences(
    r"\b(?:by the way|incidentally|on another note|speaking of|fun fact|that reminds me|on a side note|as an aside)\b",
    "sentences that digress are taken out",
)


def drop_least_related(passage: Passage, draw: Draw) -> Change | None:
    """A sentence that shares no content word with the prompt is taken out, if another shares one."""
    related, central = passage.related, passage.central
    if len(related) < 2 or not max(related):
        return None
    unrelated = [
        index
        for index, share in enumerate(related)
        # The steps of a numbered list would have a gap.
        # The first sentence is the answer more often than not, whatever words it uses.
        if index and not share and not passage.sentences[index].numbered
    ]
    if not unrelated:
        return None
    least = sorted(unrelated, key=lambda index: (central[index], -index))[:2]
    return Change(
        without(passage, [passage.sentences[draw.pick(least)]]),
        "a sentence that has nothing to do with the prompt is taken out",
    )


def replace_related(passage: Passage, draw: Draw) -> Change | None:
    """The sentence that has most to do with the prompt gives way to one that has nothing to do with it."""
    if len(passage.sentences) < 2:
        return None
    main = most_related(passage)
    put = Replacement(main.start, main.end, draw.pick(_unrelated(passage)))
    return Change((put,), "the main sentence gives way to one on something else")


def digress(passage: Passage, draw: Draw) -> Change | None:
    """A sentence on something else goes in behind a sentence, or two at the end."""
    options = _unrelated(passage)
    first = draw.pick(options)
    second = draw.pick([each for each in options if each != first])
    last = passage.sentences[-1]
    closed = passage.text[: last.end].rstrip("\"'”’)*_").endswith((".", "!", "?", "…"))
    gap = "\n\n" if last.listed else " " if closed else ". "
    opening = draw.pick(("By the way, ", "Speaking of which, ", "Incidentally, "))
    aside = f"{gap}{opening}{first[0].lower() if first.startswith(_PLAIN) else first[0]}{first[1:]} {second}"
    return Change((Replacement(last.end, last.end, aside),), "a digression is added")


_PLAIN = ("The ", "My ", "Some ", "It ", "Penguins ", "Giraffes ", "Snooker ", "Lighthouses ")


def _unrelated(passage: Passage) -> list[str]:
    """Sentences on something else that share no content word with the prompt or the response."""
    known = content_words(passage.prompt) | content_words(passage.text)
    free = [each for each in ELSEWHERE if not content_words(each) & known and each not in passage.text]
    # A very long response may know all of their words; two that it does not hold are then enough.
    return (
        free if len(free) > 1 else [each for each in ELSEWHERE if each not in passage.text] or list(ELSEWHERE)
    )
