"""Informativeness: the same quantity in another unit, which is true whatever the sentence says of it.

Knows units. Does not know what is measured, so it is one figure more and no new fact.
"""

import re

from pessimal.explain.rules.draw import Draw
from pessimal.explain.rules.passage import Passage
from pessimal.explain.rules.replacement import Change, Replacement

UNITS = {
    "minutes": (60, "seconds"),
    "hours": (60, "minutes"),
    "days": (24, "hours"),
    "weeks": (7, "days"),
    "years": (12, "months"),
    "kilometres": (0.621371, "miles"),
    "kilometers": (0.621371, "miles"),
    "km": (0.621371, "miles"),
    "miles": (1.609344, "kilometres"),
    "metres": (3.28084, "feet"),
    "meters": (3.28084, "feet"),
    "centimetres": (0.393701, "inches"),
    "inches": (2.54, "centimetres"),
    "kilograms": (2.20462, "pounds"),
    "kg": (2.20462, "pounds"),
    "pounds": (0.453592, "kilograms"),
    "grams": (0.035274, "ounces"),
    "litres": (33.814, "US fluid ounces"),
    "liters": (33.814, "US fluid ounces"),
}
"""How many of another unit one of it is. Of 'pounds' those of weight: '£' is written otherwise."""
WORDS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
WORDS_VALUE = dict(zip(WORDS, range(2, 13), strict=True)) | {
    "twenty": 20,
    "thirty": 30,
    "forty": 40,
    "fifteen": 15,
}
_NUMBER = rf"\d{{1,6}}(?:\.\d+)?|{'|'.join(WORDS_VALUE)}"
# Not of a range, 'two to three weeks': its other end would lack its figure; nor of an age, '3 years old', or a bound.
QUANTITY = re.compile(
    rf"(?<![\w.,£$€-])(?<!to )(?<!or )(?<!and )({_NUMBER}) ({'|'.join(UNITS)})(?![\w-]|['’]|,\d| old| \()",
    re.IGNORECASE,
)


def convert(passage: Passage, draw: Draw) -> Change | None:
    """A quantity gets its value in another unit behind it; one that is drawn."""
    found = []
    for match in QUANTITY.finditer(passage.text):
        if passage.is_free(*match.span()):
            word, unit = match.group(1).lower(), match.group(2).lower()
            factor, other = UNITS[unit]
            value = float(WORDS_VALUE.get(word, 0) or word) * factor
            found.append(Replacement(*match.span(), f"{match.group()} ({_written(value, factor)} {other})"))
    if not found:
        return None
    return Change((draw.pick(found),), "a quantity is given in another unit too")


def _written(value: float, factor: float) -> str:
    if factor == int(factor) and value == int(value):
        return f"{int(value):,}"
    return f"about {value:,.0f}" if value >= 100 else f"about {value:.2g}"
