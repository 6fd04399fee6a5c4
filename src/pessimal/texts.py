"""Text as it may be drawn and read: tokens are hostile strings, model names are long ones; words
and sentences, and layout, which is neither.

Knows characters; knows nothing of fonts or figures.
"""

import hashlib
import math
import re
import unicodedata
from collections.abc import Iterable

# Control, formatting (zero-width, right-to-left overrides), surrogate, private, unassigned, line
# and paragraph separators: invisible, able to reorder their neighbours, or not allowed in an SVG
# file.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
SPACE, EMPTY, CARRIER = "␣", "∅", "◌"
_JOINERS = "\u200c\u200d"

WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
"""A run of letters, with the apostrophes inside it."""
_BOUNDARY = re.compile(r"[.!?…]+[\"'”’)\]*_]*[ \t]+(?=[\"'“‘(\[*_]*[A-Z0-9À-Þ])|[。！？]|\n+")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|vs|etc|e\.g|i\.e|cf|approx|No|Fig|U\.S|U\.K|[A-Z]|\d{1,3})$"
)
# 'vitamin C.' and 'in 12.' end a sentence all the same.
_CLOSES = re.compile(r"[a-z]{3,} (?:[A-HJ-Z]|\d{1,3})$(?<! [Nn]o)")

_HEADING = re.compile(r"#{1,6} .*|(\*\*|__)(?:(?!\1).)+\1:?")
_RULE = re.compile(r"[-*_=~`|: ]{3,}|```\w*")
_BULLET = r"[-*+•◦▪●■➤►] (?:\[[ xX]\] )?|(?:\d{1,3}|[ivx]{1,4})[.)] |[A-Za-z]\) |\(\w{1,3}\) "
_ITEM = re.compile(rf"(?:{_BULLET})+")
_UNDERLINE = re.compile(r"=+|-+")
_BLOCK_TAG = re.compile(r"</?(?:p|br|hr|div|ul|ol|li|h[1-6])\b[^<>\n]*>", re.IGNORECASE)
_INLINE_TAG = re.compile(r"</?(?:b|i|u|em|strong|code)>", re.IGNORECASE)
_QUOTE = re.compile(r"(?:> ?)+")
_INLINE = re.compile(r"(?<!\w)(\*{1,3}|_{1,3}|`{1,2}|~~)(?=\S)(?P<text>[^\n]+?)(?<=\S)\1(?!\w)")
_LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\s]*\)")
_ENDS = re.compile(r"[.!?…:;,。！？]['\"”’)]*$")
_WRAPPED = 45
"""Characters of a line without a full stop from which on the next goes on with its sentence."""
LAYOUT = re.compile(
    rf"(?m)^[ \t]*(?:#{{1,6}} |> |{_BULLET}|\|.*\|)|\n+|{_BLOCK_TAG.pattern}|" + _INLINE.pattern
)
"""Marks of layout: headings, quotations, items, rows of tables, bold words, code, line breaks."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def storable(text: str) -> str:
    """`text` as UTF-8 can hold it: a lone surrogate (half a character, decoded alone) becomes its
    escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def safe_name(name: str) -> str:
    """`name` with everything but letters, digits, '.', '_' and '-' replaced by '_': the charset W&B
    allows.

    Where more than slashes and spaces were replaced, six digits of a digest keep different names
    apart.
    """
    safe = _UNSAFE.sub("_", name).strip("._") or "unnamed"
    plain = safe == name.replace("/", "_").replace(" ", "_")
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return safe if plain else f"{safe}-{digest[:6]}"


def duration(seconds: float) -> str:
    """Seconds in the unit that people would say: `40 s`, `12 min`, `3.2 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def literal(text: str, *, limit: int = 24) -> str:
    """The text with everything visible, on one line, at most `limit` characters long.

    What cannot be seen becomes an escape (`\\n`, `\\x07`, `\\u200b`, `\\ud83d`), a backslash is
    doubled so that an escape cannot be mistaken for one, spaces at either end become ␣, a combining
    mark without a letter gets a dotted circle to sit on, the empty string is ∅. What is cut off at
    the limit leaves an ellipsis.
    """
    if not text:
        return EMPTY
    inner = text.strip(" ")
    ahead = SPACE * (len(text) - len(text.lstrip(" "))) if inner else SPACE * len(text)
    end = SPACE * (len(text) - len(text.rstrip(" "))) if inner else ""
    if inner and unicodedata.combining(inner[0]):
        inner = CARRIER + inner
    pieces = [ahead, *map(_visible, inner), end] if inner else [ahead]
    whole = "".join(pieces)
    if len(whole) <= limit:
        return whole
    beginning = ""
    for piece in pieces:  # cut between characters, never inside an escape
        if len(beginning) + len(piece) > limit - 1:
            break
        beginning += piece
    return beginning + "…"


def short_names(models: Iterable[str], *, limit: int = 30) -> dict[str, str]:
    """Model names short enough for an axis: without the organisation, and with the middle left out.

    Whatever would make two models look alike is not done.
    """
    models = list(models)
    short = {model: literal(model.rsplit("/", 1)[-1], limit=10_000) for model in models}
    short = {model: _without_middle(name, limit=limit) for model, name in short.items()}
    if len(set(short.values())) == len(set(models)):
        return short
    return {model: literal(model, limit=10_000) for model in models}


def significant(number: float, *, digits: int = 3) -> str:
    """A number with so many significant digits, whole digits never rounded away, and a true minus
    sign."""
    whole = len(str(int(abs(number)))) if math.isfinite(number) else digits
    return signed(number, f"#.{max(digits, whole)}g").rstrip(".")


def number(value: float | None) -> str:
    """A number: two decimals, or three digits where those say nothing; – where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    plain = value == 0 or 0.005 <= abs(value) < 1000
    return signed(value) if plain else significant(value)


def speed(rate: float) -> str:
    """Units a second: whole ones from ten on."""
    return f"{rate:,.0f}" if rate >= 10 else significant(rate, digits=2)


def interval(value: float, low: float | None, high: float | None) -> str:
    """A number and its interval, where it has one: `0.79 [0.79, 0.80]`."""
    ends = "" if low is None or high is None or low != low else f" [{number(low)}, {number(high)}]"
    return f"{number(value)}{ends}"


def signed(number: float, form: str = ".2f") -> str:
    """A number in a format, with a true minus sign."""
    return format(number, form).replace("-", "−")


def readable(text: str) -> str:
    """The text with what cannot be seen, or reorders its neighbours, as ⟨U+200B⟩; line breaks and
    tabs stay.

    Joiners stay where they join: between two characters beyond ASCII, as in Persian or in emoji.
    """
    if text.isascii() and text.isprintable():
        return text
    characters = []
    for place, character in enumerate(text):
        sides = text[place - 1 : place], text[place + 1 : place + 2]
        joins = character in _JOINERS and all(
            side > "\x7f" and not _is_hidden(side) for side in sides
        )
        characters.append(
            code_point(character) if _is_hidden(character) and not joins else character
        )
    return "".join(characters)


def code_point(character: str) -> str:
    """A character by its number, such as ⟨U+200B⟩."""
    return f"⟨U+{ord(character):04X}⟩"


def sentences(text: str, start: int = 0, end: int | None = None) -> list[tuple[int, int]]:
    """(start, end) in characters of the sentences of a text, or of a stretch of it, without the
    white space around them.

    A line break ends one; a title, an initial or the number of a list does not. What follows a full
    stop begins with a capital or a digit. White space alone is no sentence.
    """
    end = len(text) if end is None else end
    cuts = [start]
    for match in _BOUNDARY.finditer(text, start, end):
        before = text[max(start, match.start() - 12) : match.start()]
        abbreviation = _ABBREVIATION.search(before) and not _CLOSES.search(before)
        if match.group().rstrip() != "." or not abbreviation:
            cuts.append(match.end())
    spans = []
    for cut, stop in zip(cuts, [*cuts[1:], end], strict=True):
        if bare := text[cut:stop].strip():
            begin = text.index(bare, cut)
            spans.append((begin, begin + len(bare)))
    return spans


def strip_layout(text: str) -> str:
    """A text as one paragraph without Markdown and tags of HTML: headings and rules are left out,
    items and lines become sentences, marks within a line go, a wrapped line goes on, and blanks are
    single. A text of nothing but headings keeps their words."""
    prose: list[str] = []
    headings: list[str] = []
    goes_on = False
    for line in _INLINE_TAG.sub("", _BLOCK_TAG.sub("\n", text)).splitlines():
        line = _QUOTE.sub("", line.strip(), count=1)
        if _RULE.fullmatch(line) or not line:
            underlined = _UNDERLINE.fullmatch(line) and prose and not _ENDS.search(prose[-1])
            if prose and goes_on and ("|" in line or underlined):
                headings.append(prose.pop())
            goes_on = False
            continue
        if _HEADING.fullmatch(line):
            headings.append(line.lstrip("# "))
            goes_on = False
            continue
        bare, is_item = _ITEM.subn("", line, count=1) if _ITEM.match(line) else (line, 0)
        bare = _LINK.sub(r"\1", bare.strip("| ").replace("|", ","))
        if prose and not _ENDS.search(prose[-1]):
            same = goes_on and not is_item and (bare[:1].islower() or len(prose[-1]) > _WRAPPED)
            prose[-1] += "" if same else "."
        prose.append(" ".join(_unmarked(bare).split()))
        goes_on = True
    return " ".join(prose or map(_unmarked, headings))


def _unmarked(line: str) -> str:
    for _ in range(3):  # bold within italics
        line = _INLINE.sub(r"\g<text>", line)
    return line


def _is_hidden(character: str) -> bool:
    return character not in "\n\t" and unicodedata.category(character) in _HIDDEN


def _visible(character: str) -> str:
    space = character.isspace() and character != " "
    if space or character == "\\" or unicodedata.category(character) in _HIDDEN:
        return character.encode("unicode_escape").decode()
    return character


def _without_middle(name: str, *, limit: int) -> str:
    if len(name) <= limit:
        return name
    ahead = (limit - 1) // 2
    return f"{name[:ahead]}…{name[-(limit - 1 - ahead) :]}"
