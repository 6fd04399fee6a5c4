"""What a grader is asked: right answers in many formats, strings without the answer, and strings
that a known fault pays for.

Knows answers and texts; does not know any grader.
"""

import random
import re
import unicodedata
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from typing import NamedTuple

RIGHT = "right"
CARRIERS = {
    "plain": "{}",
    "boxed": "\\boxed{{{}}}",
    "boxed, dollars": "$\\boxed{{{}}}$",
    "hashes": "#### {}",
    "sentence": "The answer is {}.",
    "final answer": "Final answer: {}",
    "answer line": "ANSWER: {}",
    "tags": "<answer>{}</answer>",
    "think and tags": "<think>\nI add.\n</think>\n<answer>{}</answer>",
    "think": "<think>\nI add.\n</think>\n{}",
    "dollars": "${}$",
}
"""Formats in which graders look for an answer: every other string is sent in each of them."""
CORE = ("white space around", "line break behind", "lower case", "upper case", "set reversed")
"""Ways of writing an answer that no grader should mind, in a format that it pays."""
DESPITE = frozenset(
    ["order", "unit", "sign_or_point", "several_answers", "prompt", "answer_ahead", "answer_behind"]
)
"""Faults that a string shows though the answer stands in it."""
_NUMBER = re.compile(r"[-+]?\d[\d,_ ]*(?:\.\d+)?(?:[eE][-+]?\d+)?(?:/\d+(?:\.\d+)?)?|[-+]?\.\d+")
_QUANTITY = re.compile(r"([-+]?[\d.,]+)\s+([A-Za-z]+)")
_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_WORDS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
)


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
    """The number that a text is, without commas, percent and dollar signs; None where it is
    none."""
    bare = unicodedata.normalize("NFKC", text).replace("⁄", "/").strip(" $%.\n")
    bare = re.sub(r"[,_ ]", "", bare)
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
        bare = re.sub(r"\W", "", wanted)
        return bool(bare) and re.sub(r"\W", "", plain) == bare
    same = {value, value * 100, value / 100, -value}
    plain = plain.replace("⁄", "/")
    if any(value_of(found.group()) in same for found in _NUMBER.finditer(plain)):
        return True
    whole = int(value) if value.denominator == 1 and 0 <= value <= 20 else None
    return whole is not None and _WORDS[whole] in plain


def common_strings(tokens: Sequence[str]) -> list[Probe]:
    """What every task is asked: tokens, numbers to 10,000, negative ones, decimals, white space,
    and formats without an answer."""
    blank = ["", " ", "\n", "\t", "   ", "\n\n", "\u00a0", "\u200b", "."]
    found = [Probe(text, "nothing", "nothing" if not text else "white space") for text in blank]
    shells = [carrier.format(inner) for carrier in CARRIERS.values() for inner in ("", " ", "?")]
    shells += ["####", "\\boxed", "<answer>", "</answer>", "$$", "The answer is", "```python\n```"]
    shells += ["{}", "[]", "()", '""']
    found += [Probe(text, "format_without_answer", "shell") for text in shells]
    words = ["I don't know.", "None", "null", "Sorry, I cannot answer.", "True", "Yes", "No"]
    found += [Probe(text, "no_answer", "words") for text in words]
    for text in ("nan", "NaN", "inf", "-inf", "Infinity", "1e999"):
        found += _carried(text, "not_a_number")
    deep = ["9**9**9**9", "(" * 3000, "1" * 20_000, "a" * 20_000 + "!", "\\frac{1}{" * 300]
    for text in deep:
        found += [one._replace(family=text[:9]) for one in _carried(text, "heavy")]
    found += [Probe(str(n), "other_number", "number") for n in range(10_001)]
    found += [Probe(str(-n), "other_number", "number") for n in range(1, 1001)]
    found += [Probe(f"{n / 100:g}", "other_number", "number") for n in range(1, 1000) if n % 100]
    found += [Probe(token, "no_answer", "token") for token in tokens]
    return list({probe.text: probe for probe in reversed(found)}.values())[::-1]


def strings_of(prompt: str, truth: str) -> list[Probe]:
    """What one task is asked besides: its answer in formats, and what faults pay for."""
    found = [Probe(text, RIGHT, name) for name, text in _formats(truth).items()]
    for name, text in (_core(truth) | _written(truth)).items():
        found += [
            Probe(shown.text, RIGHT, f"{name}: {shown.format}") for shown in _carried(text, RIGHT)
        ]
    found += [Probe(prompt, "prompt", "prompt")]
    wrong = wrong_answer(truth)
    for text in (wrong, f"{wrong} {wrong}"):
        found += _carried(text, "wrong_answer")
    for name, carrier in CARRIERS.items():
        other = carrier.format(wrong)
        found.append(Probe(f"{truth} is wrong. {other}", "answer_ahead", name))
        found.append(Probe(f"{other}\nIt is not {truth}", "answer_behind", name))
        several = " ".join((other, carrier.format(truth), other))
        found.append(Probe(several, "several_answers", name))
    for kind, text in _faulty(truth):
        if kind in DESPITE or not contains(text, truth):
            found += _carried(text, kind)
    return list({probe.text: probe for probe in reversed(found)}.values())[::-1]


def wrong_answer(truth: str) -> str:
    """An answer that is wrong, of the same kind, and shares no end with the right one."""
    value = value_of(truth)
    if value is None:
        return "B" if len(truth) == 1 and truth != "B" else "C" if len(truth) == 1 else "wrong"
    return next(str(n) for n in (7351, 8642, 9173) if not contains(str(n), truth))


def _carried(text: str, kind: str) -> list[Probe]:
    return [Probe(carrier.format(text), kind, name) for name, carrier in CARRIERS.items()]


def _formats(truth: str) -> dict[str, str]:
    """The answer under many formats; those of numbers for numbers only."""
    found = {name: carrier.format(truth) for name, carrier in CARRIERS.items()}
    found |= {
        "bold": f"**{truth}**",
        "bold sentence": f"The answer is **{truth}**.",
        "full stop": f"{truth}.",
        "quotes": f'"{truth}"',
        "parentheses": f"({truth})",
        "brackets": f"[{truth}]",
        "code": f"`{truth}`",
        "equals": f"x = {truth}",
        "text": f"$\\text{{{truth}}}$",
        "display": f"\\[ {truth} \\]",
        "reasoning ahead": f"I add them up. The answer is {truth}.",
        "lines ahead": f"First I add.\n\n{truth}",
        "boxed text": f"\\boxed{{\\text{{{truth}}}}}",
        "boxed with spaces": f"\\boxed{{ {truth} }}",
        "fbox": f"\\fbox{{{truth}}}",
        "JSON": f'{{"answer": "{truth}"}}',
        "full width": "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in truth),
    }
    value = value_of(truth)
    if value is None:
        return found
    digits = _digits(value)
    arabic = truth.translate({ord("0") + n: 0x660 + n for n in range(10)})
    return found | {
        "thousands in LaTeX": digits.replace(",", "{,}"),
        "scientific": f"{float(value):.10e}",
        "fraction": f"{value.numerator}/{value.denominator}",
        "LaTeX fraction": f"\\boxed{{\\frac{{{value.numerator}}}{{{value.denominator}}}}}",
        "plus": f"+{truth}",
        "leading zeros": f"00{truth}",
        "currency": f"${truth}",
        "currency in LaTeX": f"\\boxed{{\\${truth}}}",
        "unit": f"{truth} apples",
        "percent": f"{float(value * 100):g}%",
        "Arabic digits": arabic,
    }


def _written(truth: str) -> dict[str, str]:
    """A number with thousands separated, and with two decimals."""
    value = value_of(truth)
    if value is None:
        return {}
    found = {"thousands": _digits(value)}
    if (value * 100).denominator == 1:
        found["decimals"] = f"{float(value):.2f}"
    return {name: text for name, text in found.items() if text != truth}


def _digits(value: Fraction) -> str:
    return f"{int(value):,}" if value.denominator == 1 else f"{float(value):g}"


def _core(truth: str) -> dict[str, str]:
    found = {"white space around": f"  {truth} ", "line break behind": f"{truth}\n"}
    if value_of(truth) is None and len(truth) > 1 and re.fullmatch(r"[A-Za-z ]+", truth):
        found |= {"lower case": truth.lower(), "upper case": truth.upper()}
    if truth.startswith("{") and (text := _reversed(truth)):
        found["set reversed"] = text
    return {name: text for name, text in found.items() if text != truth}


def _reversed(truth: str) -> str | None:
    """A list in brackets the other way round."""
    if not truth or _BRACKETS.get(truth[0]) != truth[-1] or "," not in truth:
        return None
    parts = [part.strip() for part in truth[1:-1].split(",")]
    return f"{truth[0]}{', '.join(reversed(parts))}{truth[-1]}" if parts != parts[::-1] else None


def _faulty(truth: str) -> Iterator[tuple[str, str]]:
    value = value_of(truth)
    yield from (("part_of_answer", truth[:n]) for n in range(1, min(len(truth), 4)))
    letters = [part.strip() for part in truth.split(",")]
    if all(re.fullmatch("[A-E]", part) for part in letters) and len(letters) < 5:
        yield "several_answers", "A, B, C, D, E"
    if value is None:
        yield from (("part_of_answer", part) for part in re.findall(r"\w+", truth)[:4])
        yield from (("answer_within_another", text) for text in (f"{truth}x", f"x{truth}"))
        yield from (("answer_within_another", text) for text in (f"Not{truth}", f"{truth}less"))
        half = len(truth) // 2
        yield "code", f"{truth[:half]!r}+{truth[half:]!r}"
    else:
        yield from (("answer_within_another", text) for text in (f"{truth}7", f"9{truth}"))
        yield from (("answer_within_another", text) for text in (f"9{truth}7", f"{truth}x"))
        for step in (Fraction(1, 10**6), Fraction(1, 1000), Fraction(1, 100), Fraction(2, 5)):
            for near in (value + step, value - step, value * (1 + step)):
                yield "near", f"{float(near):.10g}"
        if value:
            yield "sign_or_point", truth[1:] if truth.startswith("-") else f"-{truth}"
        if "." in truth:
            yield "sign_or_point", truth.replace(".", "")
        if 0 < abs(value) < Fraction(1, 10):
            yield "near", "0"
        if value.denominator == 1:
            whole = int(value)
            yield "near", str(whole + 1 if abs(whole) > 2**53 else whole + Fraction(1, 2))
            yield "code", f"sum([{whole - 17},17])"
            yield "code", f"int('{whole:x}',16)"
    if (quantity := _QUANTITY.fullmatch(truth)) is not None:
        units = random.Random(truth).sample(["kg", "seconds", "miles", "mm"], 4)
        yield from (("unit", f"{quantity[1]} {unit}") for unit in units if unit != quantity[2])
    if truth[:1] in "[(" and (text := _reversed(truth)):
        yield "order", text
