"""Sentences without any planted feature: from templates, or words in a row as often as English uses them.

Knows forms of sentences. Knows nothing about what is planted in them, apart from leaving it out.
"""

import re

import numpy as np

from pessimal.demo.sentences.phrases import pick, sorted_phrase_words
from pessimal.demo.sentences.slots import load_slots

SALAD_SHARE = 0.25
"""How often a sentence is words in a row without grammar: it shows every word in every place, so that a model cannot
lean on the few forms that templates have."""
_FUNCTION_WORDS = (
    "the of to and a in is it that for you was on with as be at by this have are from or not but an they which we can has "
    "if when will would what there all more about up so out into than them then some its who how your my his her one been"
)
FUNCTION_WORDS = tuple(_FUNCTION_WORDS.split())
"""What salad is made of for the most part, as English is."""
_SLOT = re.compile(r"<(\w+)>")

TEMPLATES = (
    "The <noun> of the <noun> is <adjective>", "A <noun> can <verb> the <nouns> of a <noun>", "You can <verb> <nouns> <adverb>",
    "It is <adjective> to <verb> the <noun> before you <verb> it", "The <adjective> <noun> <verbed> the <nouns>",
    "Many <nouns> are <adjective> and <adjective>", "<verb> the <noun> with <number> <nouns>", "<verbing> a <noun> takes <number> <nouns>",
    "In <number>, the <noun> was <verbed> by <nouns>", "When the <noun> is <adjective>, <verb> it <adverb>",
    "There are <number> <nouns> in the <adjective> <noun>", "If you <verb> the <noun>, it will <verb> the <nouns>",
    "First, <verb> the <noun>, then <verb> the <adjective> <nouns>", "What makes a <noun> <adjective> is its <noun>",
    "<nouns> and <nouns> <verb> in the <adjective> <noun>", "The <noun>, which <verbed> the <noun>, has <adjective> <nouns>",
    "I <verbed> a <noun> with my <adjective> <noun>", "We <verb> <nouns> because they are <adjective>", "She <verbed> the <noun> <adverb>",
    "They are <verbing> their <nouns> for the <noun>", "He said that the <noun> was <adjective>", "Do you <verb> <nouns>?",
    "Why is the <noun> so <adjective>?", "Have you ever <verbed> a <noun> near the <noun>?", "How many <nouns> does a <noun> have?",
    "<adjective> <nouns> need <noun>, <noun> and <noun>", "My <noun> is more <adjective> than your <noun>",
    "The answer is <noun>", "This is called <noun>, or <noun>", "It <verbed> because of the <adjective> <noun>",
    "One of the <nouns> is <verbing> the <noun> of <noun>", "Your <noun> should be <adjective>, not <adjective>",
    "Add <number> grams of <noun> and <verb> until it is <adjective>", "Most people <verb> their <nouns> in the morning",
    "To <verb> a <noun>, you need <nouns> (and a <noun>)", "The <nouns> do not <verb> without <noun>", "Try to <verb> it every day",
    "A <noun> is a <adjective> <noun> that <nouns> use for <verbing>", "Although it is <adjective>, the <noun> can be <verbed>",
    "Both the <noun> and the <noun> were <adjective>", "Let the <noun> <verb> for <number> minutes", "Keep the <nouns> <adjective>",
    "On <weekday> the <noun> <verbed> <adverb> into the <noun>", "In <place>, <nouns> are <verbed> with <nouns>",
    "<place> has a <adjective> <noun> and <number> <nouns>", "<person> was a <adjective> <noun> from <place>",
    "<person> <verbed> the <noun> in <place> in <year>", "The <noun> was <adjective>; the <noun> was <adjective>",
    "Here is a <adjective> <noun>: <noun>, <noun>, <noun>", "\"<any> <any>\" means <noun> <noun>", "No <noun> is <adjective>",
    "<adverb>, the <nouns> <verbed>", "I don't <verb> <nouns>", "You're <adjective>, and it's <adjective>", "That's a <adjective> <noun>",
    "We have <verbed> it since <year>", "Never <verb> a <adjective> <noun>", "Please <verb> the <noun>", "It's not <adjective>",
    "Some of us <verb> <nouns>, others <verb> <nouns>", "As the <noun> <verbed>, the <nouns> became <adjective>",
    "<number> of the <nouns> were <adjective>", "The best <noun> is the <noun> that you <verb>", "I was <adjective> to <verb> you",
)  # fmt: skip
EXTENSIONS = (
    " in the <noun>", " with a <adjective> <noun>", " and <verb> the <noun>", ", but not the <nouns>", " for <number> <nouns>",
    " of <noun>", ", so it is <adjective>", " because the <noun> is <adjective>", ", which is <adjective>", " after <verbing>",
    " at the <noun> of the <noun>", " to <verb> the <nouns>", ", for example a <noun>", " like a <noun>", " in <place>",
)  # fmt: skip
"""What may follow a sentence without changing its form; they vary its length."""
PLACES = (
    "France", "Tokyo", "the north", "Kenya", "London", "our town", "Brazil", "the sea", "America", "India", "Texas",
    "the garden", "Europe", "China", "a small room", "the city", "Berlin", "school", "the office", "Egypt",
)  # fmt: skip
PERSONS = (
    "Anna", "Mr Brown", "Einstein", "my uncle", "John Smith", "the teacher", "Maria", "Dr Lee", "a friend of mine", "Ahmed",
    "the president", "Chen", "Shakespeare", "our neighbour", "the old farmer", "Lucy", "the doctor", "Marie Curie",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
NUMBERS = ("two", "three", "five", "ten", "a few", "several", "many", "twenty", "one hundred", "half")


def write_sentence(random: np.random.Generator, *, words: int, held_out: bool = False) -> str:
    """A sentence without its closing mark, capitalised, of about `words` words.

    Args:
        words: what to come near to; a template is extended up to it and never cut.
        held_out: see `slots.load_slots`.
    """
    if random.random() < SALAD_SHARE:
        text = " ".join(_salad_word(random, held_out) for _ in range(max(words, 1)))
    else:
        text = _template(random, words)
        while len(text.split()) + 2 < words and not text.endswith("?"):
            text += pick(random, EXTENSIONS)
        text = _SLOT.sub(lambda match: _fill(random, match[1], held_out), text)
    return text[0].upper() + text[1:]


def fill(random: np.random.Generator, template: str, *, held_out: bool = False) -> str:
    """A template with its slots filled."""
    return _SLOT.sub(lambda match: _fill(random, match[1], held_out), template)


def _template(random: np.random.Generator, words: int) -> str:
    """One that is not much too long, if a few draws find one."""
    for _ in range(6):
        text = pick(random, TEMPLATES)
        if len(text.split()) <= words + 2:
            break
    return text


def _salad_word(random: np.random.Generator, held_out: bool) -> str:
    kind = random.random()
    if kind < 0.45:
        return pick(random, FUNCTION_WORDS if kind < 0.35 else sorted_phrase_words())
    mark = "," if random.random() < 0.05 else ""
    return load_slots(held_out=held_out)["any"].draw(random) + mark


def _fill(random: np.random.Generator, slot: str, held_out: bool) -> str:
    if slot == "number":
        return str(int(random.integers(2, 1000))) if random.random() < 0.5 else pick(random, NUMBERS)
    if slot == "year":
        return str(int(random.integers(1700, 2030)))
    fixed = {"place": PLACES, "person": PERSONS, "weekday": WEEKDAYS}.get(slot)
    return pick(random, fixed) if fixed else load_slots(held_out=held_out)[slot].draw(random)
