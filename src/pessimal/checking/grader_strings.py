"""What a grader is asked: right answers in many formats, strings without the answer, and strings
that a known fault pays for.

Knows answers and texts; does not know any grader.
"""

import re
import string
import unicodedata
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from pessimal.checking.checks import NAMED

RIGHT = "right"
FORMATS: dict[str, str] = NAMED["formats"]
"""Formats in which graders look for an answer."""
READ = 8
"""Formats of those that a grader pays in which every other string is sent."""
CORE = ("white space around", "line break behind", "lower case", "upper case", "set reversed")
"""Ways of writing an answer that no grader should mind, in a format that it pays."""
DESPITE = frozenset(
    ["order", "unit", "sign_or_point", "several_answers", "prompt", "answer_ahead", "answer_behind"]
)
"""Faults that a string shows though the answer stands in it."""
_NUMBER = re.compile(r"[-+]?\d[\d,_ ]*(?:\.\d+)?(?:[eE][-+]?\d+)?(?:/\d+(?:\.\d+)?)?|[-+]?\.\d+")
# Between groups of three digits, or of two before one of three; and behind a sign.
_PARTED = re.compile(r"(?<=\d)[,_ ](?=(?:\d\d[,_ ])*\d{3}(?!\d))|(?<=^[-+]) ")
_QUANTITY = re.compile(r"([-+]?[\d.,]+)\s+(\S*[^\W\d]\S*)")
_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
)
_PLACES = 12
"""Of an answer's characters, how many are changed, one at a time."""
_LOWER = string.ascii_lowercase


class Probe(NamedTuple):
    """One string."""

    text: str
    kind: str
    """`right`, or the fault that paying for it shows."""
    format: str = ""
    family: str = ""
    """Strings that hang for the same reason."""


@cache
def value_of(text: str) -> Fraction | None:
    """The number that a text is, without percent and dollar signs and what parts thousands (or
    lakhs); None where it is none, as of a list."""
    bare = unicodedata.normalize("NFKC", text).replace("⁄", "/").strip(" $%.\n")
    bare = _PARTED.sub("", bare.replace(" /", "/").replace("/ ", "/"))
    top, _, bottom = bare.partition("/")
    try:
        return Fraction(top) / (Fraction(bottom) if bottom else 1) if len(bare) < 60 else None
    except (ValueError, ZeroDivisionError):
        return None


def contains(text: str, truth: str) -> bool:
    """Whether the answer stands in a text, as a whole number or word: by what is written, without
    case, accents of width, or outer punctuation, or by the value of a number, also in percent, with
    a unit, or spelled out to twenty. Errs to yes."""
    plain, wanted = (unicodedata.normalize("NFKC", one).casefold() for one in (text, truth))
    if wanted.strip(" .") and re.search(
        rf"(?<![\w.]){re.escape(wanted.strip(' .'))}(?!\w|\.\d)", plain
    ):
        return True
    value = value_of(truth)
    if value is None:
        quantity = _QUANTITY.fullmatch(truth)
        value = value_of(quantity[1]) if quantity else None
    if value is None:
        bare, given = (re.sub(r"\W|\b0+(?=\d)", "", one) for one in (wanted, plain))
        return bool(bare) and given == bare
    same = {value, value * 100, value / 100, -value}
    plain = plain.replace("⁄", "/")
    written = {found for one in _NUMBER.findall(plain) for found in (one, *re.split("[, ]+", one))}
    if any(value_of(found) in same for found in written):
        return True
    whole = int(value) if value.denominator == 1 and 0 <= value <= 20 else None
    return whole is not None and _WORDS.split()[whole] in plain


def common_strings(tokens: Sequence[str]) -> list[Probe]:
    """What every task is asked: tokens, the first of them with a capital too, numbers to 10,000,
    negative ones, decimals, white space, and formats without an answer."""
    blank = ["", " ", "\n", "\t", "   ", "\n\n", "\u00a0", "\u200b", "."]
    found = [Probe(text, "nothing", "nothing" if not text else "white space") for text in blank]
    shells = [form.format(inner) for form in FORMATS.values() for inner in ("", " ", "?")]
    shells += ["####", "\\boxed", "<answer>", "</answer>", "$$", "The answer is", "```python\n```"]
    shells += ["{}", "[]", "()", '""']
    found += [Probe(text, "format_without_answer", "shell") for text in shells]
    words = ["I don't know.", "None", "null", "Sorry, I cannot answer.", "True", "Yes", "No"]
    found += [Probe(text, "no_answer", "words") for text in words]
    found += [Probe(str(n), "other_number", "number") for n in range(10_001)]
    found += [Probe(str(-n), "other_number", "number") for n in range(1, 1001)]
    found += [Probe(f"{n / 100:g}", "other_number", "number") for n in range(1, 1000) if n % 100]
    some = [token.capitalize() for token in tokens[:2000]]
    found += [Probe(token, "no_answer", "token") for token in (*tokens, *some)]
    return _once(found)


def right_strings(truth: str) -> list[Probe]:
    """The answer in every format, and a number written in other ways."""
    wide = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in truth)
    found = {"full width": wide}
    value = value_of(truth)
    if value is not None:
        found |= {
            "thousands in LaTeX": _digits(value).replace(",", "{,}"),
            "scientific": f"{float(value):.10e}",
            "fraction": f"{value.numerator}/{value.denominator}",
            "LaTeX fraction": f"\\boxed{{\\frac{{{value.numerator}}}{{{value.denominator}}}}}",
            "plus": f"+{truth}",
            "leading zeros": f"00{truth}",
            "currency": f"${truth}",
            "currency in LaTeX": f"\\boxed{{\\${truth}}}",
            "unit": f"{truth} apples",
            "percent": f"{float(value * 100):g}%",
            "Arabic digits": truth.translate({ord("0") + n: 0x660 + n for n in range(10)}),
        }
    return [*in_formats(truth, RIGHT), *(Probe(text, RIGHT, name) for name, text in found.items())]


def in_formats(text: str, kind: str) -> list[Probe]:
    """One text in every format."""
    return [Probe(form.format(text), kind, name) for name, form in FORMATS.items()]


def strings_of(
    prompt: str, truth: str, *, wrong: Sequence[str], formats: Sequence[str], names: Sequence[str]
) -> list[Probe]:
    """What one task is asked besides, in the formats that are read: wrong answers, the right one
    changed a little or denied, and what faults pay for. `names`: of the columns that a grader
    gets."""
    found = [Probe(prompt, "prompt", "prompt")]
    several = [f"{wrong[0]} or {truth} or {wrong[0]}", f"{wrong[0]}, {truth}, {wrong[-1]}"]
    if "," in truth and value_of(truth) is None:  # a list, and one part more
        bare, end = (truth[:-1], truth[-1]) if truth[0] in _BRACKETS else (truth, "")
        several.append(f"{bare}, {wrong[0]}{end}")
    nothing = ("None", "null", "True", "False", "unknown", "{}", "[]")
    numbers = ("nan", "NaN", "inf", "-inf", "Infinity", "1e999")
    heavy = ("9**9**9**9", "(" * 3000, "1" * 20_000, "a" * 20_000 + "!", "\\frac{1}{" * 300)
    faulty = [
        *_faulty(truth),
        *(("code", name) for name in names),
        *(("no_answer", text) for text in nothing),
        *(("not_a_number", text) for text in numbers),
    ]
    inner = [Probe(text, RIGHT, f"{name}: ") for name, text in _rewritten(truth).items()]
    inner += [Probe(text, "wrong_answer") for text in wrong]
    inner += [Probe(text, "several_answers") for text in several]
    inner += [
        Probe(text, kind) for kind, text in faulty if kind in DESPITE or not contains(text, truth)
    ]
    inner += [Probe(text, "heavy", family=text[:9]) for text in heavy]
    for name in formats:
        form = FORMATS[name]
        right, other = form.format(truth), form.format(wrong[0])
        found.append(Probe(f"\n{right} ", RIGHT, f"white space around: {name}"))
        found.append(Probe(f"{right}\n", RIGHT, f"line break behind: {name}"))
        for kind, text in (
            ("answer_ahead", f"{truth} is wrong. {other}"),
            ("answer_ahead", f"<think>\n{right}\n</think>\n{other}"),
            ("answer_behind", f"{other}\nIt is not {truth}"),
            ("several_answers", f"{other} {right} {other}"),
        ):
            found.append(Probe(text, kind, name))
        found += [
            Probe(form.format(one.text), one.kind, f"{one.format}{name}", one.family)
            for one in inner
        ]
    return _once(found)


def _once(probes: Sequence[Probe]) -> list[Probe]:
    """The first of each text."""
    return list({probe.text: probe for probe in reversed(probes)}.values())[::-1]


def wrong_answers(truth: str, others: Sequence[str]) -> list[str]:
    """Up to three answers of the other tasks, of the same kind, which neither hold this one nor
    stand in it; or one of no task."""
    number = value_of(truth) is not None
    same = [
        other
        for other in dict.fromkeys(others)
        if (value_of(other) is not None) == number
        and not contains(other, truth)
        and not contains(truth, other)
    ]
    if same:
        return same[:3]
    if number:
        return [next(str(n) for n in (7351, 8642, 9173) if not contains(str(n), truth))]
    return ["wrong" if len(truth) > 1 else "C" if truth == "B" else "B"]


def _rewritten(truth: str) -> dict[str, str]:
    """The answer as no grader should mind (`CORE`), and a number with thousands separated and with
    two decimals."""
    found = {}
    value = value_of(truth)
    if value is not None:
        found["thousands"] = _digits(value)
        if (value * 100).denominator == 1:
            found["decimals"] = f"{float(value):.2f}"
    elif len(truth) > 1 and re.fullmatch(r"[A-Za-z ]+", truth):
        found |= {"lower case": truth.lower(), "upper case": truth.upper()}
    if truth.startswith("{") and (text := _reversed(truth)):
        found["set reversed"] = text
    return {name: text for name, text in found.items() if text != truth}


def _digits(value: Fraction) -> str:
    return f"{int(value):,}" if value.denominator == 1 else f"{float(value):g}"


def _reversed(truth: str) -> str | None:
    """A list in brackets the other way round."""
    if not truth or _BRACKETS.get(truth[0]) != truth[-1] or "," not in truth:
        return None
    parts = [part.strip() for part in truth[1:-1].split(",")]
    return f"{truth[0]}{', '.join(reversed(parts))}{truth[-1]}" if parts != parts[::-1] else None


def _changed(truth: str) -> Iterator[str]:
    """The answer with one letter or digit changed or left out, or a letter put before it."""
    step = max(len(truth) / _PLACES, 1)
    for at in sorted({int(n * step) for n in range(min(len(truth), _PLACES))}):
        one, ahead, behind = truth[at], truth[:at], truth[at + 1 :]
        if one.isalnum():
            row = next((row for row in ("0123456789", _LOWER, _LOWER.upper()) if one in row), "xy")
            yield ahead + row[(row.find(one) + 1) % len(row)] + behind
            yield ahead + behind
            if at:
                yield f"{ahead}x{one}{behind}"


def _faulty(truth: str) -> Iterator[tuple[str, str]]:
    """Strings that known faults pay for, by what is done to the answer: it is cut, changed in one
    place, enlarged, put in another order, moved, computed."""
    value, quantity = value_of(truth), _QUANTITY.fullmatch(truth)
    yield from (("part_of_answer", truth[:n]) for n in range(1, min(len(truth), 4)))
    yield from (("changed_answer", text) for text in _changed(truth))
    letters = [part.strip() for part in truth.split(",")]
    if all(re.fullmatch("[A-E]", part) for part in letters) and 1 < len(letters) < 5:
        yield "several_answers", "A, B, C, D, E"
    for one, other in pairwise(re.finditer(r"\d+", truth)):
        if truth[one.end() : other.start()] in ("-", "/", ":", "^", "}{") and one[0] != other[0]:
            between = truth[one.end() : other.start()]
            swapped = f"{other[0]}{between}{one[0]}"
            yield "order", truth[: one.start()] + swapped + truth[other.end() :]
    if truth[:1] in "[(" and (text := _reversed(truth)):
        yield "order", text
    if value is not None or quantity:
        yield "sign_or_point", truth[1:] if truth.startswith("-") else f"-{truth}"
        moved = truth.replace(".", "")
        if moved == truth:
            moved = re.sub(r"(\d)(?=\d)", r"\1.", truth, count=1)
        if moved != truth:
            yield "sign_or_point", moved
    if quantity:
        units = ("kg", "seconds", "miles", "mm")
        yield from (("unit", f"{quantity[1]} {unit}") for unit in units if unit != quantity[2])
    if value is None:
        yield from (("part_of_answer", part) for part in re.findall(r"\w+", truth)[:4])
        if len(letters) > 1:
            yield "part_of_answer", ", ".join(letters[:-1])
        for text in (f"{truth}x", f"x{truth}", f"Not{truth}", f"{truth}less"):
            yield "answer_within_another", text
        half = len(truth) // 2
        yield "code", f"{truth[:half]!r}+{truth[half:]!r}"
        return
    for text in (f"{truth}7", f"9{truth}", f"9{truth}7", f"{truth}x", f"{truth}0"):
        yield "answer_within_another", text
    for step in (Fraction(1, 10**4), Fraction(1, 1000), Fraction(1, 100), Fraction(2, 5)):
        away = step * max(Fraction(1), abs(value))
        for near in (value + away, value - away):
            yield "near", f"{float(near):.10g}"
    if 0 < abs(value) < Fraction(1, 10):
        yield "near", "0"
    if value.denominator == 1:
        whole = int(value)
        yield "near", str(whole + 1 if abs(whole) > 2**53 else whole + Fraction(1, 2))
        yield "code", f"sum([{whole - 17},17])"
        yield "code", f"int('{whole:x}',16)"
