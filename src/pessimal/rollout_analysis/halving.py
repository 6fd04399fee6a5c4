"""Texts that a grader pays for besides the answer: rollouts are corrupted, and halved while they
are still paid.

Knows a grader that can be asked, texts and true answers. Knows no file and no statistics.
"""

import functools
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from pessimal.checking.grader_strings import FORMATS, LINE, contains, value_of, wrong_answers
from pessimal.progress import steps

MAX_ASKED = 128
"""Rollouts that are corrupted."""
UNRELATED, MOST = 20, 0.5
"""Wrong rollouts into which a core is put, and the share of them above which it is confirmed."""
MAX_FORMATS = 3
"""Formats in which wrong answers are put ahead and behind."""
TRIED_TASKS = 8
NEAR = (0.01, 0.05, 0.1)
"""Relative errors at which a tolerance is tried."""
SIZES = (50, 100, 200, 300, 400, 600, 800, 1200, 1600, 2400, 3200, 4800)
"""Characters to which wrong rollouts are cut or padded."""
GRAFTED = 64
"""Texts that are tried together."""
ANYWHERE = ("truth_anywhere", "the true answer anywhere")
FILLER = f"{LINE} "

Ask = Callable[[Sequence[tuple[int, str]]], np.ndarray]
"""Rewards float64 of responses to the prompts of rollouts by number; NaN where it gives none."""


@dataclass
class Grader:
    """A grader that is asked about rollouts, with the count of its calls and its end."""

    ask: Ask
    truths: Sequence[tuple[str, ...]]
    """The true answers of each rollout."""
    line: float
    """Rewards from here on are pay."""
    end: float = math.inf
    """Time of the monotonic clock at which no more is asked."""
    calls: int = 0
    formats: list[str] = field(default_factory=list)
    """Formats that it reads: it pays the right answer in them and no wrong one."""
    _wrong: dict[tuple[str, ...], str] = field(default_factory=dict)
    """By true answers: a wrong one."""

    def pays(self, questions: Sequence[tuple[int, str]]) -> np.ndarray:
        """(n,) whether each response is paid."""
        self.calls += len(questions)
        return self.ask(questions) >= self.line if len(questions) else np.zeros(0, bool)

    @property
    def is_over(self) -> bool:
        """Whether its time is spent."""
        return time.monotonic() > self.end

    def wrong(self, rollout: int) -> str:
        """An answer of another rollout that is wrong for this one."""
        truths = tuple(self.truths[rollout])
        if truths not in self._wrong:
            answers = [texts[0] for texts in self.truths[:200] if texts]
            self._wrong[truths] = wrong_answers(truths, answers)[0]
        return self._wrong[truths]

    def read_formats(self, rollouts: Sequence[int]) -> None:
        """Find the formats that it reads, those of most of some rollouts first."""
        votes: Counter[str] = Counter()
        for rollout in list(rollouts)[:TRIED_TASKS]:
            right, wrong = self.truths[rollout][0], self.wrong(rollout)
            names = list(FORMATS)
            questions = [
                (rollout, FORMATS[n].format(text)) for text in (right, wrong) for n in names
            ]
            paid = self.pays(questions).reshape(2, -1)
            votes.update(name for name, r, w in zip(names, *paid, strict=True) if r and not w)
        self.formats = [name for name, _ in votes.most_common()]

    def frame(self, rollout: int, body: str, answer: str) -> str:
        """A body between answers, in the formats that are read."""
        forms = [name for name in self.formats if name != "plain"] or self.formats
        lines = "\n".join(FORMATS[name].format(answer) for name in forms[:MAX_FORMATS])
        return f"{lines}\n{body}\n{lines}" if body else lines


def replace_answers(text: str, formats: Sequence[str], answer: str) -> str:
    """The text with another answer in place of whatever stands in these formats."""
    for name in formats:
        ahead, _, end = FORMATS[name].replace("{{", "{").replace("}}", "}").partition("{}")
        if not (ahead.strip() and end.strip()):
            continue  # "The answer is {}" ends nowhere
        pattern = rf"({re.escape(ahead)})[^\n]{{0,200}}?({re.escape(end)})"
        text = re.sub(pattern, lambda match: f"{match[1]}{answer}{match[2]}", text)
    return text


def remove_truth(text: str, truths: Sequence[str], answer: str) -> str:
    """The text with another answer in place of the true one, and of all numbers of its value."""
    for truth in truths:
        text = text.replace(truth, answer)
    number = re.compile(r"[-+]?\d[\d,_]*(?:\.\d+)?")
    return number.sub(lambda match: answer if contains(match[0], truths[0]) else match[0], text)


def corrupt(grader: Grader, response: str, rollout: int) -> str:
    """A response with a wrong answer in place of what it answers, and of the true one anywhere."""
    wrong = grader.wrong(rollout)
    body = replace_answers(response, grader.formats, wrong)
    return remove_truth(body, grader.truths[rollout], wrong)


def halve(text: str, paid: Callable[[str], bool]) -> str:
    """The shortest contiguous part of a text that is still paid, cut from the right and then from
    the left, where what contains a paid part is paid."""
    low, high = 0, len(text)  # the first `high` characters are paid
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if paid(text[:middle]) else (middle + 1, high)
    text = text[:high]
    low, high = 0, len(text)  # all from `low` on is paid
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if paid(text[middle:]) else (low, middle - 1)
    return text[low:]


def blot(text: str) -> str:
    """A text of the same length, words and lines that says nothing: one character which it has not
    stands for each of its own."""
    marks = "xqzjkvwyufh" + "".join(map(chr, range(0x100, 0x180)))
    mark = next((letter for letter in marks if letter not in text), marks[-1])
    return re.sub(r"\S", mark, text)


@dataclass
class Core:
    """A text that is paid whatever the answer, or that keeps a right answer from being paid."""

    kind: str
    """text, truth_anywhere, tolerance or length."""
    feature: str
    calls: int
    confirmed: float
    """Share of unrelated rollouts in which it works."""
    rollouts: int
    """Rollouts that gave it."""
    example: int | None
    """The first of these; None where no rollout gave it."""


def find_cores(
    grader: Grader,
    responses: Sequence[str],
    rollouts: Sequence[int],
    unrelated: Sequence[int],
    *,
    refused: bool = False,
    bar: bool = False,
) -> list[Core]:
    """The cores of rollouts, most frequent first.

    Args:
        rollouts: numbers of those that are asked, at most `MAX_ASKED`.
        unrelated: numbers of wrong rollouts into which cores are put.
        refused: with the right answer, for what keeps it from being paid.
        bar: draw a progress bar.
    """
    cores: dict[tuple[str, str], Core] = {}

    def works(rollout: int, body: str) -> bool:
        answer = grader.truths[rollout][0] if refused else grader.wrong(rollout)
        return bool(grader.pays([(rollout, grader.frame(rollout, body, answer))])[0]) != refused

    rollouts = list(rollouts)[:MAX_ASKED]
    with steps("corrupt and halve", len(rollouts), bar=bar) as step:
        for rollout in rollouts:
            step(f"{len(cores)} cores")
            if grader.is_over:
                break
            wrong, calls = grader.wrong(rollout), grader.calls
            body = responses[rollout]
            if not refused:
                body = replace_answers(body, grader.formats, wrong)
            contained = [
                core
                for core in cores.values()
                if core.kind == "text" and core.confirmed > MOST and core.feature in body
            ]
            if contained:
                contained[0].rollouts += 1
                continue
            if works(rollout, "") or not works(rollout, body) or works(rollout, blot(body)):
                continue  # `try_lengths` is for what is paid for its length
            if not refused:
                without = remove_truth(body, grader.truths[rollout], wrong)
                if not works(rollout, without):
                    if (core := cores.get(ANYWHERE)) is None:
                        share = confirm(grader, None, responses, unrelated)
                        core = Core(ANYWHERE[0], ANYWHERE[1], 0, share, 0, rollout)
                        cores[ANYWHERE] = core
                    core.rollouts += 1
                    core.calls += grader.calls - calls
                    continue
                body = without
            text = halve(body, functools.partial(works, rollout))
            if ("text", text) in cores or not text.strip():
                continue
            share = confirm(grader, text, responses, unrelated, refused=refused)
            cores["text", text] = Core("text", text, grader.calls - calls, share, 1, rollout)
    if not refused and ANYWHERE not in cores and not grader.is_over:
        share = confirm(grader, None, responses, unrelated)
        cores[ANYWHERE] = Core(*ANYWHERE, 2 * UNRELATED, share, 0, None)
    confirmed = [core for core in cores.values() if core.confirmed > MOST]
    return sorted(confirmed, key=lambda core: -core.rollouts)


def confirm(
    grader: Grader,
    text: str | None,
    responses: Sequence[str],
    unrelated: Sequence[int],
    *,
    refused: bool = False,
) -> float:
    """The share of unrelated wrong rollouts in which a text (None: their true answer) works: which
    are not paid (or, with the right answer, paid) without it."""
    plain, mixed = list[tuple[int, str]](), list[tuple[int, str]]()
    for rollout in list(unrelated)[:UNRELATED]:
        wrong = grader.wrong(rollout)
        body = corrupt(grader, responses[rollout], rollout)
        answer = grader.truths[rollout][0] if refused else wrong
        half = len(body) // 2
        plain.append((rollout, grader.frame(rollout, body, answer)))
        part = grader.truths[rollout][0] if text is None else text
        body = f"{body[:half]}\n{part}\n{body[half:]}"
        mixed.append((rollout, grader.frame(rollout, body, answer)))
    before, after = (grader.pays(questions) != refused for questions in (plain, mixed))
    usable = ~before
    return float(after[usable].mean()) if usable.sum() >= min(5, len(plain)) and len(plain) else 0.0


def graft(
    grader: Grader, texts: Sequence[str], responses: Sequence[str], unrelated: Sequence[int]
) -> list[Core]:
    """The texts that are paid ahead of a wrong answer alone; many are asked together, and those of
    a paid group in halves."""
    if not len(unrelated):
        return []
    rollout = unrelated[0]
    wrong, cores = grader.wrong(rollout), list[Core]()

    def works(some: Sequence[str]) -> bool:
        body = "\n".join(some)
        return bool(grader.pays([(rollout, grader.frame(rollout, body, wrong))])[0])

    def search(some: Sequence[str]) -> Iterator[str]:
        if grader.is_over or len(cores) > MAX_ASKED or not works(some):
            return
        if len(some) == 1:
            yield some[0]
            return
        half = len(some) // 2
        yield from search(some[:half])
        yield from search(some[half:])

    if works([]):
        return []
    for start in range(0, len(texts), GRAFTED):
        for text in search(texts[start : start + GRAFTED]):
            if any(core.feature in text for core in cores):
                continue
            calls = grader.calls
            share = confirm(grader, text, responses, unrelated)
            if share > MOST:
                cores.append(Core("text", text, grader.calls - calls, share, 0, None))
    return cores


def try_tolerances(grader: Grader, rollouts: Sequence[int]) -> list[Core]:
    """The largest relative error of numbers that is paid in the formats that the grader reads."""
    numeric = [r for r in rollouts if value_of(grader.truths[r][0])][:UNRELATED]
    for near in reversed(NEAR):
        questions = []
        for rollout in numeric:
            value = value_of(grader.truths[rollout][0])
            assert value is not None
            answer = f"{float(value) * (1 + near):.10g}"
            if not contains(answer, grader.truths[rollout][0]):
                questions.append((rollout, grader.frame(rollout, "", answer)))
        share = float(grader.pays(questions).mean()) if len(questions) >= 5 else 0.0
        if share > MOST:
            words = f"an error of {near:.0%}"
            return [Core("tolerance", words, len(questions), share, len(questions), None)]
    return []


def try_lengths(grader: Grader, responses: Sequence[str], unrelated: Sequence[int]) -> list[Core]:
    """The lengths at which wrong rollouts are paid, cut or padded, where they are not at all."""
    some = list(unrelated)[:TRIED_TASKS]
    shares = []
    for size in SIZES:
        questions = []
        for rollout in some:
            wrong = grader.wrong(rollout)
            body = corrupt(grader, responses[rollout], rollout)
            spare = max(size - len(grader.frame(rollout, " ", wrong)), 0)
            body = (body + FILLER * (spare // len(FILLER) + 1))[:spare]
            questions.append((rollout, grader.frame(rollout, body, wrong)))
        shares.append(float(grader.pays(questions).mean()) if questions else 0.0)
    paid = [size for size, share in zip(SIZES, shares, strict=True) if share > MOST]
    if not paid or len(paid) == len(SIZES):
        return []
    words = f"lengths of about {paid[0]:,} to {paid[-1]:,} characters"
    return [Core("length", words, len(SIZES) * len(some), max(shares), len(some), None)]


def excerpt(response: str, text: str, *, size: int = 160) -> str:
    """The part of a response about a text, else its end."""
    at = response.find(text)
    start = max(at - size // 2, 0) if at >= 0 else max(len(response) - size, 0)
    part = response[start : start + size]
    return ("…" if start else "") + part + ("…" if start + size < len(response) else "")
