"""What the fuzz tests share: hostile texts, a number of cases a test, and what counts as a refusal.

Knows hypothesis. Does not know pessimal, but for its errors.
"""

from collections.abc import Callable

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pessimal.errors import UserError

HOSTILE = [
    "",
    " ",
    "\n",
    "\t",
    "\r",
    "\r\n",
    "\x00",
    "a\x00b",
    "\x1b[31m",
    "\x7f",
    "\x85",
    "\u2028",
    "\u2029",
    "\ufeff",
    "\ud83d",
    "\udc80",
    "\ud83d\ude00",
    "\u202eabc",
    "\u2066abc\u2069",
    "\u200b",
    "\u200d",
    "\u0301",
    "e\u0301",
    "שלום",
    "مرحبا",
    "می\u200cخواهم",
    "👩\u200d💻",
    "自由",
    "\ue000",
    "\U0010ffff",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script>",
    "</style>",
    "<!--",
    "-->",
    "]]>",
    "&lt;",
    "&#60;",
    "{{ 7*7 }}",
    "{% x",
    "=cmd()",
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "'=1",
    "＝1",
    '"',
    "'",
    '""',
    '"""',
    "a,b",
    "a;b",
    "\\",
    "\\n",
    "null",
    "nan",
    "NA",
    "None",
    "true",
    "inf",
    "-inf",
    "1e400",
    "0",
    "-0.0",
    "1_000",
    "١",
    "9" * 30,
    "0x10",
    "%",
    "*",
    "a*",
    "[",
    "]",
    "{",
    "}",
    "[]",
    "{}",
    "${a}",
    "${oc.env:HOME}",
    "$",
    "???",
    "~",
    "~no such user/x",
    "/",
    "..",
    "../x",
    "a/b",
    "C:\\x",
    "x" * 5000,
    "--help",
    "-m",
    "id:1",
    "id:99999999999999999999",
    "ſ",
    "ß",
    "İ",
]
"""Texts that have broken somebody's program."""
_ANY = st.characters(exclude_categories=())  # half characters too, which hypothesis would leave out
hostile = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(_ANY, max_size=12),
    st.lists(st.one_of(st.sampled_from(HOSTILE[:-15]), st.text(_ANY, max_size=4)), max_size=4).map(
        "".join
    ),
)
"""Any text, hostile ones first."""
whole = hostile.map(lambda text: text.encode("utf-8", "replace").decode())
"""Any text without half characters, as a file of UTF-8 holds it."""
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), hostile),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(hostile, inner, max_size=3)
    ),
    max_leaves=6,
)
"""Anything that JSON, as Python writes it, holds."""


def cases(n: int, **strategies) -> Callable:
    """Run a test on `n` cases, the same ones every time; arguments without a strategy are
    fixtures."""
    steady = settings(
        max_examples=n,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    return lambda check: steady(given(**strategies)(check))


def damaged(content: bytes, cuts: list[tuple[int, bytes]]) -> bytes:
    """`content` with bytes put over its own at some places, and cut off at the last of them."""
    for place, put in cuts:
        place %= len(content) + 1
        content = content[:place] + put + content[place + len(put) :]
    return content[: cuts[-1][0] % (len(content) + 1)] if len(cuts) > 2 else content


cuts = st.lists(st.tuples(st.integers(0, 5000), st.binary(max_size=3)), max_size=4)


def refused(attempt: Callable[[], object], *, naming: str = "", kinds: type | tuple = UserError):
    """What `attempt` gives, and whether it was refused; fails where the refusal has no message, or
    does not name what it is about. Any error that is not of `kinds` goes on its way."""
    try:
        return attempt(), False
    except kinds as error:
        message = str(error).strip()
        assert message, "an error without a message"
        assert naming in message, f"{message!r} does not name {naming!r}"
        assert "Traceback" not in message
        return error, True
