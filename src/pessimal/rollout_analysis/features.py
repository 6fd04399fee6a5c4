"""Features of responses: n-grams and shapes, each with the responses that have it.

Knows texts and which prompt a response is to. Knows no reward.
"""

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse

from pessimal.checking.grader_strings import contains, value_of
from pessimal.progress import steps
from pessimal.texts import literal

NO_BLANKS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Characters of scripts that write no blanks between words (Thai to Chinese): a piece each."""
PIECE = re.compile(rf"[{NO_BLANKS}]| ?(?:(?![{NO_BLANKS}])[^\W\d_])+| ?\d+| ?[^\w\s]| ?_|\n+|\s")
"""A word, number or mark with the blank ahead of it; white space by itself."""
LONGEST = 5
"""Pieces of an n-gram at most."""
END_PIECES = 3
MIN_RESPONSES, MIN_SHARE, MIN_PROMPTS, MAX_SHARE = 5, 0.002, 10, 0.98
"""Limits of the n-grams that are features: responses and their share, prompts, and the share of
responses above which nearly all have it."""
MAX_SORTED = 4_000_000
"""Keys that are sorted at once, which bounds the memory."""
MAX_ALIASES = 8
OF_NUMBER = " (number)"
"""End of the name of a feature that is a number."""
TEXTS = ("text", "begins", "ends")
"""Kinds of features that are texts of rollouts."""
QUANTILES = 24
TOLERANCES = tuple(m * 10.0**e for e in range(-6, 4) for m in (1, 2, 5))


@dataclass(frozen=True)
class Feature:
    """A property that a response has or has not."""

    kind: str
    """text, begins, ends, shape, length, tolerance."""
    name: str
    """The text itself; of a shape what it is in words."""
    aliases: tuple[str, ...] = field(default=(), compare=False)
    """Texts that stand in the same responses, at most `MAX_ALIASES`."""


def describe_feature(kind: str, name: str, *, limit: int = 60) -> str:
    """The name of a feature as a person reads it: a text in quotes, its blanks to be seen."""
    ahead = {"begins": "the beginning ", "ends": "the end "}.get(kind, "")
    return f'{ahead}"{literal(name, limit=limit)}"' if kind in TEXTS else name


@dataclass(frozen=True)
class Features:
    """All features of n responses: those that a response has or has not, then the numbers."""

    features: list[Feature]
    matrix: sparse.csr_matrix
    """(flags, n) float32 of 0 and 1: the first features."""
    numbers: pd.DataFrame
    """(n, numbers): the last features: of lengths and counts x the logarithm of 1 + x to base 2, so
    that a slope is for twice as many; and shares."""
    left_out: dict[str, int]
    """Numbers of n-grams that the limits leave out, by limit."""

    def __len__(self) -> int:
        return len(self.features)

    @cached_property
    def flags(self) -> int:
        """Number of the features that a response has or has not."""
        return self.matrix.shape[0]

    @cached_property
    def counts(self) -> np.ndarray:
        """(flags,) responses that have it."""
        return np.diff(self.matrix.indptr)

    @cached_property
    def length_numbers(self) -> list[int]:
        """The features that are a length in characters or words."""
        return [self.flags + at for at, name in enumerate(self.numbers) if name in LENGTHS]

    def part(self, rows: np.ndarray) -> "Features":
        """The features of some responses, (n,) bool."""
        return replace(self, matrix=self.matrix[:, rows], numbers=self.numbers[rows])

    def values(self, index: int) -> np.ndarray:
        """(n,) float64 of one feature: 0 and 1, or the number."""
        if index >= self.flags:
            return self.numbers.iloc[:, index - self.flags].to_numpy(dtype=float)
        return self.matrix[[index]].toarray()[0].astype(float)

    def likeness(self, index: int) -> np.ndarray:
        """(features,) Jaccard's share of common responses with one flag, 0 of numbers; of a number
        its squared correlation with each number, 0 of flags."""
        alike = np.zeros(len(self))
        values = self.values(index)
        if index >= self.flags:
            with np.errstate(invalid="ignore"):
                columns = self.numbers.to_numpy(dtype=float)
                square = [np.corrcoef(column, values)[0, 1] ** 2 for column in columns.T]
            alike[self.flags :] = np.nan_to_num(square)
        else:
            common = self.matrix @ values
            union = self.counts + self.counts[index] - common
            alike[: self.flags] = common / np.maximum(union, 1)
        return alike


def make_features(
    responses: Sequence[str],
    prompts: Sequence[str],
    groups: np.ndarray,
    *,
    errors: np.ndarray | None = None,
    tokenize: Callable[[str], list[tuple[int, int]]] | None = None,
    bar: bool = False,
) -> Features:
    """N-grams of one to five pieces, the first and last three pieces, and shapes.

    Args:
        responses: n texts, those of one group beside one another.
        prompts: (n,) the last turn that each answers.
        groups: (n,) whole numbers from 0 that do not fall.
        errors: (n,) the signed relative error of a numeric answer, NaN where there is none.
        tokenize: function from a text to the ends of its tokens, in characters; the pieces are then
            tokens, and their number is a length.
        bar: draw a progress bar.

    Source: Agrawal & Srikant 1994 (an n-gram is frequent only where both its parts are).
    """
    n = len(responses)
    min_responses = max(MIN_RESPONSES, int(np.ceil(MIN_SHARE * n)))
    numbers = pd.DataFrame(
        [measure_shape(text, prompt) for text, prompt in zip(responses, prompts, strict=True)]
    )
    pieces, bounds, names, tokens = _number_pieces(responses, tokenize)
    if tokenize is not None:
        numbers.insert(0, "tokens", tokens)
    blocks: list[tuple[list[Feature], sparse.csr_matrix]] = []
    left_out = {"in too few responses or prompts": 0, "in nearly all responses": 0}
    with steps("n-grams", LONGEST, bar=bar) as step:
        for texts, matrix, rare in _ngrams(pieces, bounds, names, groups, min_responses):
            blocks.append(([Feature("text", text) for text in texts], matrix))
            left_out["in too few responses or prompts"] += rare
            step(f"{len(texts):,} of them")
    blocks += _flags(_end_flags(pieces, bounds, names), groups, min_responses)
    blocks += _flags(_number_flags(numbers, errors), groups, min_responses)
    counts = np.concatenate([np.diff(matrix.indptr) for _, matrix in blocks])
    common = counts > MAX_SHARE * n
    left_out["in nearly all responses"] = int(common.sum())
    features, matrix = _merge_equal(blocks, np.flatnonzero(~common))
    numbers = numbers.loc[:, numbers.nunique() > 1]
    features += [Feature(_kind_of(name), f"{name}{OF_NUMBER}") for name in numbers]
    numbers = numbers.apply(lambda column: np.log2(1 + column) if column.max() > 1 else column)
    return Features(features, matrix, numbers, left_out)


def _kind_of(name: str) -> str:
    return "length" if name in LENGTHS else "shape"


def _number_pieces(
    responses: Sequence[str], tokenize: Callable[[str], list[tuple[int, int]]] | None
) -> tuple[np.ndarray, np.ndarray, list[str], list[int]]:
    """The pieces of all responses by number, (n + 1,) where each response begins, the text of each
    number, and how many tokens each response has; of a character that is several tokens one
    piece."""
    ids: dict[str, int] = {}
    pieces, tokens = [], []
    for text in responses:
        if tokenize is None:
            parts = PIECE.findall(text)
        else:
            spans = tokenize(text)
            tokens.append(len(spans))
            starts = sorted({0, *(start for start, _ in spans)})
            parts = [text[start:end] for start, end in pairwise([*starts, len(text)])]
        new = [piece for piece in dict.fromkeys(parts) if piece not in ids]
        ids.update(zip(new, itertools.count(len(ids))))
        pieces.append(np.array([*map(ids.__getitem__, parts)], np.int32))
    bounds = np.append(0, np.cumsum([len(row) for row in pieces], dtype=np.int64))
    return np.concatenate([*pieces, np.zeros(0, np.int32)]), bounds, list(ids), tokens


def _ngrams(
    flat: np.ndarray, bounds: np.ndarray, names: Sequence[str], groups: np.ndarray, minimum: int
) -> Iterator[tuple[list[str], sparse.csr_matrix, int]]:
    """By length: the texts of frequent n-grams, which responses have them, and how many n-grams of
    frequent parts are not frequent."""
    document = np.repeat(np.arange(len(groups), dtype=np.int32), np.diff(bounds))
    numbered, keys_known = flat, len(names)
    for length in range(1, LONGEST + 1):
        multiplier = keys_known if length > 1 else 0
        numbered, first, pairs, rare = _frequent(numbered, multiplier, document, groups, minimum)
        keys_known = max(len(first), 1)
        texts = ["".join(names[piece] for piece in flat[at : at + length]) for at in first]
        matrix = sparse.csr_matrix(
            (np.ones(len(pairs[1]), np.uint8), pairs[1], pairs[0]),
            shape=(len(first), len(groups)),
        )
        yield texts, matrix, rare


def _keys_at(numbered: np.ndarray, at: np.ndarray, multiplier: int) -> np.ndarray:
    """Keys at some positions: the number there, or, with a multiplier (how many numbers there are),
    a key for this one and the next."""
    keys = numbered[at].astype(np.int64)
    return keys * multiplier + numbered[at + 1] if multiplier else keys


def _frequent(
    numbered: np.ndarray, multiplier: int, document: np.ndarray, groups: np.ndarray, minimum: int
) -> tuple[np.ndarray, list[int], tuple[np.ndarray, np.ndarray], int]:
    """The frequent keys (see `_keys_at`), numbered anew at each position (-1 elsewhere), the
    position at which each stands first, their responses as a sparse matrix has them, and how many
    are not frequent. Keys are made for `MAX_SORTED` positions at once, which bounds the memory."""
    is_key, none = numbered >= 0, 255
    if multiplier:
        is_key[:-1] &= (document[1:] == document[:-1]) & (numbered[1:] >= 0)
        is_key[-1:] = False
    parts = min(-(-len(numbered) // MAX_SORTED), none)
    part_of = np.full(len(numbered), none, np.uint8)
    for start in range(0, len(numbered), MAX_SORTED):
        at = start + np.flatnonzero(is_key[start : start + MAX_SORTED])
        part_of[at] = _keys_at(numbered, at, multiplier) % parts
    renumbered = np.full(len(numbered), -1, dtype=np.int32)
    first: list[int] = []
    sizes, columns, rare = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)], 0
    for part in range(parts):
        at = np.flatnonzero(part_of == part)
        key = _keys_at(numbered, at, multiplier)
        order = np.argsort(key, kind="stable")  # by key, then by response
        at, key = at[order], key[order]
        if not len(at):
            continue
        has = document[at]
        new_key = np.append(True, key[1:] != key[:-1])
        new_pair = new_key | np.append(True, has[1:] != has[:-1])
        new_group = new_key | np.append(True, groups[has[1:]] != groups[has[:-1]])
        starts = np.flatnonzero(new_key)
        counts = np.add.reduceat(new_pair, starts, dtype=np.int64)
        frequent = (counts >= minimum) & (np.add.reduceat(new_group, starts) >= MIN_PROMPTS)
        rare += int((~frequent).sum())
        number = np.cumsum(frequent) - 1 + len(first)
        which = np.cumsum(new_key) - 1
        is_frequent = frequent[which]
        renumbered[at[is_frequent]] = number[which[is_frequent]]
        first += at[starts[frequent]].tolist()
        columns.append(has[is_frequent & new_pair])
        sizes.append(counts[frequent])
    bounds = np.cumsum(np.concatenate(sizes))
    return renumbered, first, (bounds, np.concatenate(columns)), rare


def _end_flags(
    pieces: np.ndarray, bounds: np.ndarray, names: Sequence[str]
) -> Iterator[tuple[Feature, np.ndarray]]:
    """Responses by their first and by their last pieces."""
    rows: dict[Feature, list[int]] = {}
    for index, (start, end) in enumerate(pairwise(bounds)):
        for count in range(1, min(END_PIECES, end - start) + 1):
            for kind, at in (("begins", start), ("ends", end - count)):
                feature = Feature(kind, "".join(names[piece] for piece in pieces[at : at + count]))
                rows.setdefault(feature, []).append(index)
    yield from ((feature, np.array(indices)) for feature, indices in rows.items())


def _number_flags(
    numbers: pd.DataFrame, errors: np.ndarray | None
) -> Iterator[tuple[Feature, np.ndarray]]:
    """Responses by whether a number of theirs is above 0, and by each run of its quantiles; by
    ranges of the relative error."""
    for name, column in numbers.items():
        values = column.to_numpy(dtype=float)
        kind = _kind_of(str(name))
        if 0 in values and name in FLAGS:
            yield Feature(kind, FLAGS[name]), np.flatnonzero(values > 0)
        edges = np.unique(np.quantile(values, np.linspace(0, 1, QUANTILES + 1)))
        if len(edges) < 4:
            continue
        bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
        for low in range(len(edges) - 1):
            for high in range(low, len(edges) - 1):
                if (low, high) != (0, len(edges) - 2) and (kind == "length" or low == 0):
                    end = f"{edges[high + 1]:.4g}"
                    words = f"{edges[low]:.4g} to {end} {name}"
                    words = words if kind == "length" else f"{name} below {end}"
                    yield Feature(kind, words), np.flatnonzero((bins >= low) & (bins <= high))
    if errors is not None:
        exact = errors == 0
        yield Feature("tolerance", "the right number"), np.flatnonzero(exact)
        for low, high in ((-1, 1), (-1, 0), (0, 1)):
            for size in TOLERANCES:
                words = f"relative error {low * size:g} to {high * size:g}"
                holds = (errors >= low * size) & (errors <= high * size)
                if (holds != exact).any():
                    yield Feature("tolerance", words), np.flatnonzero(holds)


def _flags(
    flags: Iterator[tuple[Feature, np.ndarray]], groups: np.ndarray, minimum: int
) -> list[tuple[list[Feature], sparse.csr_matrix]]:
    """Those of enough responses and prompts, as a sparse matrix."""
    frequent = [
        (feature, rows)
        for feature, rows in flags
        if len(rows) >= minimum and len(np.unique(groups[rows])) >= MIN_PROMPTS
    ]
    if not frequent:
        return []
    indices = np.concatenate([rows for _, rows in frequent]).astype(np.int32)
    bounds = np.append(0, np.cumsum([len(rows) for _, rows in frequent]))
    data = np.ones(len(indices), np.uint8)
    shape = (len(frequent), len(groups))
    return [
        ([feature for feature, _ in frequent], sparse.csr_matrix((data, indices, bounds), shape))
    ]


def _merge_equal(
    blocks: list[tuple[list[Feature], sparse.csr_matrix]], rows: np.ndarray
) -> tuple[list[Feature], sparse.csr_matrix]:
    """One feature for those of the same responses, of some rows of the blocks: a length, else
    another shape, else the longest text, with the others as its aliases; as float32. Empties the
    blocks, which are of bytes: that bounds the memory."""
    features = [feature for names, _ in blocks for feature in names]
    marks = np.random.default_rng(0).integers(0, 2**63, blocks[0][1].shape[1], dtype=np.uint64)
    digests = np.concatenate([_digest_rows(matrix, marks) for _, matrix in blocks])
    alike: dict[int, list[int]] = {}
    for row in rows.tolist():
        alike.setdefault(int(digests[row]), []).append(row)
    merged: dict[int, Feature] = {}
    rank = {"length": 0, "tolerance": 1, "text": 3}
    for members in alike.values():
        members.sort(key=lambda row: (rank.get(features[row].kind, 2), -len(features[row].name)))
        texts = [features[row].name for row in members[1 : MAX_ALIASES + 1]]
        first = features[members[0]]
        merged[members[0]] = Feature(first.kind, first.name, tuple(texts))
    rows, parts, start = np.array(sorted(merged), dtype=np.int64), list[sparse.csr_matrix](), 0
    while blocks:  # one at a time, which bounds the memory
        names, matrix = blocks.pop(0)
        end = start + len(names)
        parts.append(matrix[rows[(rows >= start) & (rows < end)] - start])
        start = end
    whole = sparse.vstack(parts, format="csr")
    parts.clear()
    whole.data = whole.data.astype(np.float32)  # `whole.astype` would copy its places, too
    return [merged[row] for row in rows.tolist()], whole


def _digest_rows(matrix: sparse.csr_matrix, marks: np.ndarray) -> np.ndarray:
    """(rows,) the sums, which wrap around, of the marks (n,) of the responses of each row, none of
    which is empty."""
    return np.add.reduceat(marks[matrix.indices], matrix.indptr[:-1])


# --- The answer that a response gives.

ANSWERS = (
    re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}"),
    re.compile(r"<answer>\s*(.*?)\s*</answer>", re.DOTALL),
    re.compile(r"####\s*([^\n]+)"),
    re.compile(r"(?i:answer)(?: is|:)\**:?\s*\**([^\n]*?)\**\.?(?:\n|\Z)"),
)
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:/\d+)?")


def own_answer(response: str) -> str:
    """The answer that a response ends in: the last one in a format, else the last number, else
    nothing."""
    for pattern in ANSWERS:
        if answers := pattern.findall(response):
            return answers[-1].strip()
    numbers = NUMBER.findall(response)
    return numbers[-1] if numbers else ""


def grade_answers(
    responses: Sequence[str], truths: Sequence[Sequence[str]]
) -> tuple[np.ndarray, np.ndarray]:
    """Whether each response's own answer is a true one (NaN where it gives none), and the signed
    relative error of a number (NaN where either is none), (n,) each."""
    right, errors = np.full((2, len(responses)), np.nan)
    for index, (response, texts) in enumerate(zip(responses, truths, strict=True)):
        answer = own_answer(response)
        if not texts:
            continue
        if not answer:
            right[index] = _grade_end(response, texts)
            continue
        right[index] = any(contains(answer, text) for text in texts)
        number = NUMBER.search(answer.partition("\\")[0])
        value, true = value_of(answer), value_of(texts[0])
        value = value_of(number[0]) if value is None and number else value
        if value is not None and true:
            errors[index] = float(value - true) / abs(float(true))
    return right, errors


def _grade_end(response: str, truths: Sequence[str]) -> float:
    """Whether a response in no format is right: 1 where its last words are the answer, 0 where the
    answer stands nowhere, else NaN, as for numbers and for no response."""
    if not response.strip() or any(value_of(text) is not None for text in truths):
        return np.nan
    words = response.split()
    if any(contains(" ".join(words[-len(text.split()) :]), text) for text in truths):
        return 1.0
    return np.nan if any(contains(response, text) for text in truths) else 0.0


# --- Shapes.

LENGTHS = ("characters", "words", "tokens")
COUNTS: dict[str, re.Pattern[str]] = {
    "headers": re.compile(r"^#{1,6} ", re.MULTILINE),
    "list items": re.compile(r"^ *(?:[-*+•]|\d{1,3}[.)]) ", re.MULTILINE),
    "bold": re.compile(r"\*\*[^*\n]+\*\*"),
    "code": re.compile(r"```|`[^`\n]+`"),
    "table rows": re.compile(r"^ *\|.*\|$", re.MULTILINE),
    "LaTeX": re.compile(r"\\(?:[a-zA-Z]+|[\[(])|\$[^$\n]+\$"),
    "boxed": re.compile(r"\\boxed"),
    "emoji": re.compile("[\u2600-\u27bf\U0001f300-\U0001faff]"),
    "letters beyond Latin": re.compile(r"[^\W\d_\u0000-\u024f]"),
    "refusals": re.compile(r"I(?:'m| am)? (?:can(?:'|no)t|unable|won't)\b"),
}
BEYOND_ASCII = ("emoji", "letters beyond Latin")
CAPITAL, DIGIT = re.compile("[A-Z]"), re.compile("[0-9]")
WORDS: dict[str, frozenset[str]] = {
    "hedges": frozenset(
        {"approximately", "appears", "likely", "maybe", "might", "perhaps", "possibly"}
        | {"probably", "roughly", "seems", "unclear", "unsure"}
    ),
    "apologies": frozenset(("apologies", "apologise", "apologize", "sorry")),
    "first person": frozenset(("i", "i'm", "i'll", "i've", "me", "my", "mine", "myself")),
}
FLAGS = {name: f"has {name}" for name in ("questions", "exclamations", *COUNTS, *WORDS)}
FLAGS["cut off"] = "is cut off"
"""Shapes that a response has or has not, and what is then said of it."""
ENDED = re.compile(r"[.!?…。！？)\]}>\"'”’*`|$\\:;0-9-]\s*\Z")
"""The end of a response that was not cut off."""


def measure_shape(text: str, prompt: str) -> dict[str, float]:
    """The numbers of one response: its length, counts of what stands in it, and shares."""
    words = text.split()
    counts, counts_bare = Counter(words), Counter[str]()
    for word, count in counts.items():
        counts_bare[word.lower().strip('.,;:!?()*"')] += count
    prompt_words, pairs, ascii = set(prompt.split()), set(pairwise(words)), text.isascii()
    capitals = len(CAPITAL.findall(text)) if ascii else sum(map(str.isupper, text))
    digits = len(DIGIT.findall(text)) if ascii else sum(map(str.isdigit, text))
    return {
        "characters": len(text),
        "words": len(words),
        "lines": text.count("\n") + 1,
        "questions": text.count("?"),
        "exclamations": text.count("!"),
        **{
            name: 0 if ascii and name in BEYOND_ASCII else len(pattern.findall(text))
            for name, pattern in COUNTS.items()
        },
        **{name: sum(counts_bare[word] for word in some) for name, some in WORDS.items()},
        "share of capitals": capitals / max(len(text), 1),
        "share of digits": digits / max(len(text), 1),
        "repeated word pairs": 1 - len(pairs) / (len(words) - 1) if len(words) > 1 else 0.0,
        "words of the prompt": sum(counts[word] for word in prompt_words) / max(len(words), 1),
        "cut off": float(not ENDED.search(text[-20:])),
    }


# --- Kept for an analysis that goes on.

FILES = ("matrix.npz", "features.json", "numbers.parquet")


def save_features(features: Features, folder: Path) -> None:
    """Write the features to a folder, the matrix last."""
    matrix, names, numbers = (folder / name for name in FILES)
    rows = [[row.kind, row.name, row.aliases] for row in features.features]
    names.write_text(json.dumps([rows, features.left_out]), encoding="utf-8")
    features.numbers.to_parquet(numbers)
    sparse.save_npz(folder / "new.npz", features.matrix, compressed=False)
    (folder / "new.npz").rename(matrix)


def load_features(folder: Path) -> Features | None:
    """The features of a folder; None where they are not all there."""
    matrix, names, numbers = (folder / name for name in FILES)
    if not matrix.is_file():
        return None
    rows, left_out = json.loads(names.read_text(encoding="utf-8"))
    features = [Feature(kind, name, tuple(aliases)) for kind, name, aliases in rows]
    return Features(features, sparse.load_npz(matrix), pd.read_parquet(numbers), left_out)
