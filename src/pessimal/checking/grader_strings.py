"""Strings for a grader: right answers in many formats, strings without the answer, and strings that
a known fault pays for.

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
CORE: list[str] = NAMED["core"]
"""Ways of writing an answer that no grader should mind, in a format that it pays."""
TYPOGRAPHY: list[str] = NAMED["typography"]
"""Ways of writing an answer that a grader should not mind which finds it in a sentence."""
PROSE = ("plain", "sentence", "reasoning ahead", "lines ahead")
"""Formats that are all paid by a grader which finds an answer in a sentence."""
BEGUN = "begun thought"
"""A response to a prompt that ends in `<think>`."""
WINDOWS = {"page behind": "sentence behind", "page ahead": "sentence ahead"}
"""By what only a grader minds that reads a part of the response: what it pays for all the same."""
DESPITE: list[str] = NAMED["despite"]
"""Faults that a string shows though the answer stands in it."""
_NUMBER = re.compile(
    r"[-+]?\d+ \d+/\d+|[-+]?\d[\d,_ ]*(?:\.\d+)?(?:[eE][-+]?\d+)?(?:/\d+(?:\.\d+)?)?|[-+]?\.\d+"
)
# Between groups of three digits, or of two before one of three; and behind a sign.
_PARTED = re.compile(r"(?<=\d)[,_ ](?=(?:\d\d[,_ ])*\d{3}(?!\d))|(?<=^[-+]) ")
_VULGAR = re.compile(r"(?<=\d)(?=[¼-¾⅐-⅞])")
_FRACTION = re.compile(r"\\[dt]?frac\s*(?:\{(\d+)\}|(\d))\s*(?:\{(\d+)\}|(\d))")
_MIXED = re.compile(r"([-+]?)(\d+) (\d+)/(\d+)")
_EXPONENT = re.compile(r"[eE][-+]?\d{4}")
_QUANTITY = re.compile(r"([-+]?[\d.,]+)\s+(\S*[^\W\d]\S*)")
_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_OPERATORS = dict(zip("+-−±*×·/^<>≤≥", "-++++++**><<>", strict=True))
_OPERATORS |= {"\\pm": "+", "\\cdot": "+", "\\times": "+"}
_OPERATORS |= {"\\leq": "\\geq", "\\geq": "\\leq", "\\le": "\\ge", "\\ge": "\\le"}
"""By operator: another one, which changes the answer."""
_STRICT = {"≤": "<", "≥": ">", "\\le": "<", "\\leq": "<", "\\ge": ">", "\\geq": ">"}
_OPERATOR = re.compile(r"\\(?:pm|cdot|times|leq?|geq?)(?![a-z])|[-+−±*×·/^<>≤≥]")
_SIGNS = str.maketrans({"∞": "\\infty", "√": "\\sqrt ", "°": "^\\circ"})
LINE = "Each step was checked again with care, and they all hold."
_PAGE = "\n".join([LINE] * 52)
"""3,015 characters without a number, a letter by itself, or a yes or no."""
LENGTHS = {"sentence": LINE, "page": _PAGE}
_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
)
_PLACES = 12
"""Characters of an answer that are changed at most, one at a time."""
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
    """The number that a text is, also as a mixed number or a fraction of LaTeX, without percent and
    dollar signs and what parts thousands (or lakhs); None where it is none, as of a list."""
    bare = _FRACTION.sub(r" \1\2/\3\4", _plain_digits(text)).strip(" $%\n").rstrip(" $%.\n\\")
    bare = re.sub(r"^([-+]) ?\\?\$|^\\\$", r"\1", bare)
    bare = _PARTED.sub("", bare.replace(" /", "/").replace("/ ", "/")).replace("- ", "-")
    if mixed := _MIXED.fullmatch(bare):
        sign, whole, part, parts = mixed.groups()
        bare = f"{sign}{int(whole) * int(parts) + int(part)}/{parts}"
    if _EXPONENT.search(bare):  # its digits would fill the memory
        return None
    top, _, bottom = bare.partition("/")
    try:
        return Fraction(top) / (Fraction(bottom) if bottom else 1) if len(bare) < 60 else None
    except (ValueError, ZeroDivisionError):
        return None


def _plain_digits(text: str) -> str:
    """The text with one minus sign, one slash, and figures of one width; a blank parts 1½."""
    plain = unicodedata.normalize("NFKC", _VULGAR.sub(" ", text))
    return plain.translate({ord("⁄"): "/", ord("−"): "-"})


def contains(text: str, truth: str) -> bool:
    """Whether the answer stands in a text, as a whole number or word: by what is written, without
    case, accents of width, outer punctuation, or an article, or by the value of a number, also in
    percent, with a unit, or spelled out to twenty. Errs to yes."""
    plain, wanted = _normalised(text), _normalised(truth).strip().rstrip(" .")
    if wanted and re.search(rf"(?<![\w.]){re.escape(wanted)}(?!\w|\.\d)", plain):
        return True
    value = value_of(truth)
    if value is None:
        quantity = _QUANTITY.fullmatch(truth)
        value = value_of(quantity[1]) if quantity else None
    if value is None:
        bare, answer = (re.sub(r"\W|\b0+(?=\d)", "", side) for side in (wanted, plain))
        return bool(bare) and answer == bare
    same = {value, value * 100, value / 100, -value}
    if same.intersection(numbers_of(plain, parts=True)):
        return True
    whole = int(value) if value.denominator == 1 and 0 <= value <= 20 else None
    return whole is not None and _WORDS.split()[whole] in plain


def numbers_of(text: str, *, parts: bool = False) -> list[Fraction]:
    """The values of the numbers in a text; with `parts` also of what commas and blanks part."""
    written = _NUMBER.findall(_FRACTION.sub(r" \1\2/\3\4 ", _plain_digits(text)))
    if parts:
        written += [part for number in written for part in re.split("[, ]+", number)]
    return [value for number in written if (value := value_of(number)) is not None]


def holds(text: str, truths: Sequence[str]) -> bool:
    """Whether one of several true answers stands in a text, as `contains` says."""
    return any(contains(text, truth) for truth in truths)


def _normalised(text: str) -> str:
    """The text without case and without an article ahead; a Greek letter by itself and other signs
    as in LaTeX."""
    plain = re.sub(r"\\[dt]frac", r"\\frac", _plain_digits(text).translate(_SIGNS))
    spell = lambda letter: "\\" + unicodedata.name(letter[0]).split()[-1].lower()  # noqa: E731
    plain = re.sub(r"(?<![^\W\d_])[α-ω](?![^\W\d_])", spell, plain)
    return re.sub(r"^\s*(?:the|an?)\s+(?=[^\W\d_]{2})", "", plain.casefold())


def common_strings(tokens: Sequence[str]) -> list[Probe]:
    """Strings for every task: tokens, the first of them with a capital too, numbers to 10,000 (of
    fewer tokens to as many, at least 1,000), negative ones, decimals, white space, and formats
    without an answer."""
    blank = ["", " ", "\n", "\t", "   ", "\n\n", "\u00a0", "\u200b", "."]
    probes = [Probe(text, "nothing", "white space" if text else "nothing") for text in blank]
    shells = [form.format(inner) for form in FORMATS.values() for inner in ("", " ", "?")]
    shells += ["####", "\\boxed", "<answer>", "</answer>", "$$", "The answer is", "```python\n```"]
    shells += ["{}", "[]", "()", '""']
    probes += [Probe(text, "format_without_answer", "shell") for text in shells]
    words = ["I don't know.", "None", "null", "Sorry, I cannot answer.", "True", "Yes", "No"]
    probes += [Probe(text, "no_answer", "words") for text in words]
    top = min(10_000, max(1000, len(tokens)))
    numbers = [str(n) for n in range(top + 1)]
    numbers += [str(-n) for n in range(1, top // 10 + 1)]
    numbers += [f"{n / 100:g}" for n in range(1, top // 10) if n % 100]
    probes += [Probe(number, "other_number", "number") for number in numbers]
    capitals = [token.capitalize() for token in tokens[:2000]]
    probes += [Probe(token, "no_answer", "token") for token in (*tokens, *capitals)]
    return _once(probes)


def right_strings(truth: str) -> list[Probe]:
    """The answer in every format, and in full width."""
    wide = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in truth)
    return [*write_in_formats(truth, RIGHT), Probe(wide, RIGHT, "full width")]


def write_in_formats(text: str, kind: str) -> list[Probe]:
    """One text in every format."""
    return [Probe(form.format(text), kind, name) for name, form in FORMATS.items()]


def strings_of(
    prompt: str,
    truths: Sequence[str],
    *,
    wrong: Sequence[str],
    formats: Sequence[str],
    names: Sequence[str],
) -> list[Probe]:
    """Strings for one task besides, in the formats that are read: wrong answers, the right one
    changed a little or denied, and what faults pay for. `truths`: of which each is right; `names`:
    of the columns that a grader gets."""
    truth = truths[0]
    probes = [Probe(prompt, "prompt", "prompt")]
    several = [f"{wrong[0]} or {truth} or {wrong[0]}", f"{wrong[0]}, {truth}, {wrong[-1]}"]
    if "," in truth and value_of(truth) is None:  # a list, and one part more
        bare, end = (truth[:-1], truth[-1]) if truth[0] in _BRACKETS else (truth, "")
        several.append(f"{bare}, {wrong[0]}{end}")
    nothing = ("None", "null", "True", "False", "unknown", "{}", "[]")
    numbers = ("nan", "NaN", "inf", "-inf", "Infinity", "1e999")
    heavy = ("9**9**9**9", "(" * 3000, "1" * 20_000, "a" * 20_000 + "!", "\\frac{1}{" * 300)
    wrongs = {"wrong_answer": wrong, "several_answers": several}
    wrongs["first_of_several"] = [f"{truth} or {wrong[0]}"]
    extra = {"code": names, "no_answer": nothing, "not_a_number": numbers}
    faulty = [*_faulty(truth), *((kind, text) for kind in extra for text in extra[kind])]
    faulty = [(kind, text) for kind, text in faulty if kind in DESPITE or not holds(text, truths)]
    inner = [Probe(text, RIGHT, f"{name}: ") for name, text in _rewritten(truth).items()]
    inner += [Probe(text, RIGHT, "another true answer: ") for text in truths[1:]]
    inner += [Probe(text, kind) for kind in wrongs for text in wrongs[kind]]
    inner += [Probe(text, kind) for kind, text in faulty]
    inner += [Probe(text, "heavy", family=text[:9]) for text in heavy]
    for name in formats:
        form = FORMATS[name]
        right, other = form.format(truth), form.format(wrong[0])
        begun = right.removeprefix("<think>\n")
        ways = {"white space around": f"\n{right} ", "line break behind": f"{right}\n"}
        ways |= {f"{length} behind": f"{right}\n{text}" for length, text in LENGTHS.items()}
        ways |= {f"{length} ahead": _begin(right, text) for length, text in LENGTHS.items()}
        ways[BEGUN] = begun if begun != right else f"I add.\n</think>\n{right}"
        probes += [Probe(text, RIGHT, f"{way}: {name}") for way, text in ways.items()]
        marks = [mark for mark in "!?:;" if mark not in truth]  # as in a time
        ends = [right.rstrip(".") + mark for mark in marks]
        probes += [Probe(text, RIGHT, f"punctuation behind: {name}") for text in ends]
        for second in [each for each in formats if each != name]:
            text = f"{right}\n{FORMATS[second].format(wrong[0])}"
            probes.append(Probe(text, "contradiction", second))
        ahead = (f"{truth} is wrong. {other}", f"<think>\n{right}\n</think>\n{other}")
        probes += [Probe(text, "answer_ahead", name) for text in ahead]
        probes.append(Probe(f"{other}\nIt is not {truth}", "answer_behind", name))
        probes.append(Probe(f"{other} {right} {other}", "several_answers", name))
        probes += [Probe(form.format(p.text), p.kind, p.format + name, p.family) for p in inner]
    return _once(probes)


def _begin(response: str, text: str) -> str:
    """The response with a text ahead of its answer, in its thought where it has one."""
    thought, in_thought = "I add.\n</think>", f"{text}\n</think>"
    return response.replace(thought, in_thought) if thought in response else f"{text}\n{response}"


def _once(probes: Sequence[Probe]) -> list[Probe]:
    """The first of each text."""
    return list({probe.text: probe for probe in reversed(probes)}.values())[::-1]


def wrong_answers(truths: Sequence[str], answers: Sequence[str]) -> list[str]:
    """Up to three answers of the other tasks, of the same kind, which neither hold one of this nor
    stand in it; or one of no task."""
    truth, number = truths[0], value_of(truths[0]) is not None
    same = [o for o in dict.fromkeys(answers) if (value_of(o) is not None) == number]
    same = [o for o in same if not any(contains(o, t) or contains(t, o) for t in truths)]
    if same:
        return same[:3]
    if number:
        return [str(next(n for n in range(7351, 9999) if not holds(str(n), truths)))]
    return ["wrong" if len(truth) > 1 else "C" if truth == "B" else "B"]


def _rewritten(truth: str) -> dict[str, str]:
    """The answer as no grader should mind (`CORE`), and written in other ways."""
    ways = {"minus sign": re.sub(r"(?:^| )-", lambda sign: f"{sign[0][:-1]}−", truth)}
    ways["minus and blank"] = re.sub("^-", "- ", truth)
    ways["root without braces"] = re.sub(r"\\sqrt\{(\w)\}", r"\\sqrt \1", truth)
    ways["display fraction"] = truth.replace("\\frac", "\\dfrac")
    value = value_of(truth)
    if value is not None and "%" in truth:
        ways["percent"] = f"{truth.partition('%')[0].strip(chr(92) + ' ')} %"
        ways["percent in LaTeX"] = re.sub(r"\\?%", r"\\%", truth)
    elif value is not None:
        ways |= _number_forms(value, truth)
    elif len(truth) > 1 and re.fullmatch(r"[A-Za-z ]+", truth):
        ways |= {"lower case": truth.lower(), "upper case": truth.upper()}
        ways["capital"] = truth.capitalize()
    elif len(truth) == 1:
        ways["other case"] = truth.swapcase()
    if truth.startswith("{") and (text := _reversed(truth)):
        ways["set reversed"] = text
    if value is None and "," in truth and truth[0] not in _BRACKETS:
        ways["list in parentheses"] = f"({truth})"
    return {name: text for name, text in ways.items() if text != truth}


def _number_forms(value: Fraction, truth: str) -> dict[str, str]:
    top, bottom = value.numerator, value.denominator
    written = {
        "fraction": f"{top}/{bottom}",
        "LaTeX fraction": f"\\frac{{{top}}}{{{bottom}}}",
        "fraction that is not reduced": f"{2 * top}/{2 * bottom}",
        "plus": re.sub(r"^(?=[\d.])", "+", truth),
        "leading zeros": re.sub(r"^(?=\d)", "00", truth),
        "currency": f"${truth}",
        "currency in LaTeX": f"\\${truth}",
        "with a unit": f"{truth} apples",
        "percent": f"{float(value if abs(value) > 1 else value * 100):.10g}%",
        "Arabic digits": truth.translate({ord("0") + n: 0x660 + n for n in range(10)}),
    }
    if (value * 10**6).denominator == 1:
        written["thousands"] = _digits(value)
        written["thousands in LaTeX"] = _digits(value).replace(",", "{,}")
        written["scientific"] = f"{float(value):.10e}"
    if (value * 100).denominator == 1:
        written["decimals"] = f"{float(value):.2f}"
    if "\\" in truth:  # a fraction of LaTeX is no sum of money, and no count
        for name in ("currency", "currency in LaTeX", "with a unit", "percent"):
            del written[name]
    if abs(value) > 1 and bottom > 1:
        whole, rest = divmod(abs(top), bottom)
        written["mixed number"] = f"{'-' * (value < 0)}{whole} {rest}/{bottom}"
    return written


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
        character, ahead, rest = truth[at], truth[:at], truth[at + 1 :]
        if character.isalnum():
            rows = ("0123456789", _LOWER, _LOWER.upper())
            row = next((row for row in rows if character in row), "xy")
            yield ahead + row[(row.find(character) + 1) % len(row)] + rest
            yield ahead + rest
            if at:
                yield f"{ahead}x{character}{rest}"


def _operators(truth: str) -> Iterator[str]:
    """The answer with one operator, bracket of an interval or grouping, or fraction changed; dates
    and words with a hyphen have none."""
    for sign in () if re.match(r"\d+([-/.])\d+\1\d", truth) else _OPERATOR.finditer(truth):
        before, after = truth[: sign.start()], truth[sign.end() :]
        word = re.search(r"[^\W\d_]{2}$", before) and re.match(r"[^\W\d_]{2}", after)
        equal = sign[0] in "*^" and (before[-1:], after[:1]) == ("2", "2")
        signed = not before and value_of(truth) is not None  # as `sign_or_point` has it
        if after and not (word or equal or signed):
            yield before + _OPERATORS[sign[0]] + after
            if sign[0] in "<>" and before[-1:] not in ("-", "="):  # no arrow
                yield before + sign[0] + (after[1:] if after[0] == "=" else f"={after}")
            elif strict := _STRICT.get(sign[0]):
                yield before + strict + after
    for pair in re.finditer(r"[(\[][^()\[\]]*,[^()\[\]]*[)\]]", truth):
        for at in (pair.start(), pair.end() - 1):
            yield truth[:at] + "[(])"["([)]".index(truth[at])] + truth[at + 1 :]
    for group in re.finditer(r"\(([^(),]*[^(),\s]\s*[-+−][^(),]*)\)", truth):
        before, after = truth[: group.start()], truth[group.end() :]
        if re.search(r"[-−*/^\w)]\s*$", before) or re.match(r"\s*[*/^\w(]", after):
            yield before + group[1] + after
    swapped = re.sub(r"frac\{([^{}]+)\}\{([^{}]+)\}", r"frac{\2}{\1}", truth)
    if swapped != truth:
        yield swapped


def _faulty(truth: str) -> Iterator[tuple[str, str]]:
    """Strings that known faults pay for, by what is done to the answer: it is cut, changed in one
    place, enlarged, put in another order, moved, computed."""
    value, quantity = value_of(truth), _QUANTITY.fullmatch(truth)
    yield from (("part_of_answer", truth[:n]) for n in range(1, min(len(truth), 4)))
    yield from (("changed_answer", text) for text in _changed(truth))
    yield from (("operator", text) for text in _operators(truth))
    letters = [part.strip() for part in truth.split(",")]
    if all(re.fullmatch("[A-E]", part) for part in letters) and 1 < len(letters) < 5:
        yield "several_answers", "A, B, C, D, E"
    for match, other in pairwise(re.finditer(r"\d+|(?<![A-Za-z])[A-Za-z](?![A-Za-z])", truth)):
        if truth[match.end() : other.start()] in ("-", "/", ":", "^") and match[0] != other[0]:
            between = truth[match.end() : other.start()]
            swapped = f"{other[0]}{between}{match[0]}"
            yield "order", truth[: match.start()] + swapped + truth[other.end() :]
    if truth[:1] in "[(" and (text := _reversed(truth)):
        yield "order", text
    words = truth.split()
    if len(words) > 1 and words != words[::-1] and all(map(str.isalpha, words)):
        yield "order", " ".join(words[::-1])  # a bag of words
    if value is not None or quantity:
        size = value if quantity is None else value_of(quantity[1])
        if size != 0:
            yield "sign_or_point", truth[1:] if truth.startswith("-") else f"-{truth}"
        moved = truth.replace(".", "")
        if moved == truth:
            moved = re.sub(r"(\d)(?=\d)", r"\1.", truth, count=1)
        if moved != truth and (size is None or value_of(moved) != size):
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
        yield "code", f"{truth[:half]!r}+{truth[half:]!r}" if half else f"chr({ord(truth)})"
        return
    for text in (f"{truth}7", f"9{truth}", f"9{truth}7", f"{truth}x", f"{truth}0"):
        yield "answer_within_another", text
    for step in ("1/10000", "1/1000", "1/100", "1/20", "1/10", "1/5", "2/5"):
        away = Fraction(step) * max(Fraction(1), abs(value))
        for near in (value + away, value - away):
            yield "near", f"{float(near):.10g}"
    if 0 < abs(value) < Fraction(1, 10):
        yield "near", "0"
    if value.denominator == 1:
        whole = int(value)
        yield "near", str(whole + 1 if abs(whole) > 2**51 else whole + 0.5)
        # Code without the answer's own digits, for which a grader that looks for them would pay.
        sums = (f"sum([{whole - n},{n}])" for n in range(17, 100))
        codes = [text for text in sums if str(abs(whole)) not in text][:1]
        codes += [text for text in (f"int('{whole:x}',16)",) if str(abs(whole)) not in text]
        yield from (("code", text) for text in codes)
