"""The census of a grader: what a function with tasks that have a true answer pays for.

Knows rewards and what was asked; does not know how strings are made (`grader_strings`) or run
(`workers`).
"""

import asyncio
import functools
import inspect
import logging
import math
import os
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pessimal.checking.checks import NAMED
from pessimal.checking.grader_strings import (
    BEGUN,
    CORE,
    DESPITE,
    FORMATS,
    PROSE,
    READ,
    RIGHT,
    TYPOGRAPHY,
    WINDOWS,
    Probe,
    common_strings,
    holds,
    numbers_of,
    right_strings,
    strings_of,
    value_of,
    write_in_formats,
    wrong_answers,
)
from pessimal.checking.workers import CRASHES, ENOUGH, HANGS, Answer, Job, answered
from pessimal.conversation import Turn
from pessimal.errors import ConfigError, ModelError, require
from pessimal.progress import steps
from pessimal.rewards.base import Reward
from pessimal.rewards.callable import CLASSES, TRUTHS, CallableReward, Task, true_answers, truths_of
from pessimal.rewards.rendering import rendered
from pessimal.rewards.shapes import CALLED_SO, LOOP_IN_THREAD, Shape
from pessimal.scoring.candidates import vocabulary_of
from pessimal.tables.result import Effect, Result, Results
from pessimal.texts import literal

log = logging.getLogger(__name__)

BATCH = 256
WORDS = 50_000
"""Words from wordfreq, where no tokenizer is given."""
AGAIN, AGAIN_OF_FORMAT = 100, 3
"""Strings of a task, and of one kind and format, that are asked again."""
RAISES, NOT_FINITE, NOT_CALLED = "raises", "not finite", "not called: "
LEFT = "paid_without_answer/strings_left"
"""Key of the summary: strings that the budget left no time for."""
UNREAD = "any format"
"""Format of a task whose right answer is paid in none, where another task's is."""
MAY_BE_MEANT: list[str] = NAMED["may_be_meant"]
"""Faults that are for a person to decide."""
MEND: dict[str, str] = NAMED["grader"]
"""By fault, the gravest first: what to do."""
MARKS = "Find the answer whatever marks stand around it."
"""A remedy where a way of writing is not paid."""
PARTS = ("no_answer", "other_number", "wrong_answer", "changed_answer")
"""Kinds of strings that may be a part of the answer."""
PARTIAL = ("near", "part_of_answer", "several_answers", "first_of_several")
"""Faults that are none where they are paid less than the answer."""
EFFECT = Effect("share", "share of tasks", n="of_tasks", of="tasks")


class _Call(NamedTuple):
    """A call that gave no number, or another one the second time."""

    fault: str
    task: int
    text: str
    detail: str
    """The exception, or both numbers."""
    may_be_meant: bool = False
    """Whether the trainer of this function does not call it so."""


class _Task(NamedTuple):
    task: Task
    truths: tuple[str, ...]
    """Each is right; the first is asked."""
    wrong: list[str]
    probes: list[Probe]


@dataclass(frozen=True)
class _Paid:
    """Rewards of one task that count as paid, and where a grader draws its line."""

    rewards: np.ndarray
    """float64 (n,), NaN where there is none."""
    line: float
    """NaN: no right answer is paid more than nothing and a wrong one."""
    top: float
    """Reward of the best right answer."""

    def __getitem__(self, index: int) -> bool:
        return bool(self.rewards[index] >= self.line)


def tokens_of(reward: Reward) -> list[str]:
    """The texts of a function's tokenizer; of one without, the 50,000 most frequent English words,
    alone and behind a space. MissingExtraError where wordfreq is not installed."""
    if reward.tokenizer is not None:
        return [row.text for row in vocabulary_of(reward).rows.itertuples()]
    require("wordfreq", purpose="the strings of the census")
    import wordfreq

    words = wordfreq.top_n_list("en", WORDS)
    return [*words, *(f" {word}" for word in words[: WORDS // 10])]


def distinct_words(reward: Reward) -> list[str]:
    """The texts of `tokens_of` without the white space around them, each once."""
    return list(dict.fromkeys(filter(None, (text.strip() for text in tokens_of(reward)))))


def census(
    reward: CallableReward,
    *,
    tokens: Sequence[str],
    seconds: float = 5.0,
    memory: int = 4 * 1024**3,
    workers: int | None = None,
    budget: float = math.inf,
    progress: bool = True,
) -> Results:
    """Find what a grader pays for, among every token, number and format, to every task.

    A string is paid where its reward is above what nothing and a plain wrong answer get (the least
    of these), and at least half-way from there to the best that the right answer gets. It has the
    answer where `contains` says so.

    Args:
        reward: a function opened with tasks that have a true answer (`truths_of`).
        tokens: texts of a vocabulary.
        seconds: wall time of a call, or of 256 that take less.
        memory: bytes that a process may have on top of what it begins with.
        workers: processes; by default one a core.
        budget: wall time of the whole, in seconds; strings that are left then are not asked.

    Returns:
        Results `paid_without_answer`, whose summary has the number of strings that were left,
        `right_not_paid` and `grader_calls`.

    Raises:
        ConfigError: there are no tasks with a true answer, or the grader cannot be called.
        FrameError: the chat template of its tokenizer fails.
    """
    shared = common_strings(tokens)
    truths = true_answers(list(reward.tasks.values()))
    all_truths = [text for texts in truths for text in texts]
    tasks = list[_Task]()
    for task, texts in zip(reward.tasks.values(), truths, strict=True):
        if texts:
            wrong = wrong_answers(texts, all_truths)
            probes = [*right_strings(texts[0]), *write_in_formats(wrong[0], "wrong_answer")]
            tasks.append(_Task(task, texts, wrong, [*probes, Probe("", "nothing")]))
    if not tasks:
        reason = f"has no column {', '.join(TRUTHS)} with a text, a number or a list of these"
        if any(truths_of(task.columns) for task in reward.tasks.values()):
            reason = f"has at most {CLASSES} labels, which are classes: type candidates=answers, "
            reason += "or call the column ground_truth"
        raise ConfigError(f"{reward.name}: the file of tasks {reason}")
    notes = _notes(reward, truths)
    # A worker's import would take its call's time, and W&B refuses imports in forked processes.
    reward.import_types((*tasks[0].task.turns, Turn("assistant", "a")))

    def function(
        task: int, strings: Sequence[str], reward: CallableReward = reward
    ) -> list[Answer]:
        return _answers(reward, tasks[task].task.turns, strings)

    workers, end = workers or os.cpu_count() or 1, time.monotonic() + budget
    run = partial(answered, workers=workers, seconds=seconds, memory=memory, end=end)
    answers_by_task: list[list[Answer]] = [[] for _ in tasks]

    def ask(*, bar: bool) -> int:
        """Ask what is new among the probes of each task; the number of strings that were left."""
        jobs: list[Job] = []
        for number, (task, so_far) in enumerate(zip(tasks, answers_by_task, strict=True)):
            jobs += _jobs(number, task.probes, len(so_far))
            so_far += [math.nan] * (len(task.probes) - len(so_far))
        jobs.sort(key=lambda job: job.at)  # every task's own strings before the common ones
        left = sum(len(job.strings) for job in jobs)
        with steps("census", len(jobs), bar=bar) as step, closing(run(function, jobs)) as answers:
            for job, rewards in answers:
                _check_called(rewards[0])
                answers_by_task[job.task][job.at : job.at + len(rewards)] = rewards
                left -= len(rewards)
                step(tasks[job.task].task.key)
        return left

    left = ask(bar=False)
    for each, formats in zip(tasks, _formats_read(tasks, answers_by_task), strict=True):
        more: dict[str, Any] = {"wrong": each.wrong, "formats": formats}
        more["names"] = tuple(each.task.columns)
        each.probes.extend(strings_of(each.task.turns[-1].content, each.truths, **more))
        each.probes.extend(shared)
    left += ask(bar=progress)
    paid = _all_paid(tasks, answers_by_task)
    calls = _calls(tasks, answers_by_task)
    again = [
        Job(number, [tasks[number].probes[at].text], at)
        for number, payment in enumerate(paid)
        for at in _choose_again(tasks[number], payment)
        if not isinstance(answers_by_task[number][at], str)
    ]
    for fault, (sentence, way) in _ways(reward, function).items():
        alien = reward.shape not in CALLED_SO.get(fault, tuple(Shape))
        same = list[Job]()
        left += len(again)
        with closing(run(way, again)) as answers:
            for job, [answer] in answers:
                left -= 1
                before = answers_by_task[job.task][job.at]
                now = answer if isinstance(answer, str) else f"{answer:g}"
                if answer == before:
                    same.append(job)
                else:
                    text = sentence.format(before, now)
                    calls.append(_Call(fault, job.task, job.strings[0], text, alien))
        again = same
    if all(math.isnan(payment.line) for payment in paid):
        bought, misses = _never_paid(reward.name, tasks, paid, left)
    else:
        bought = replace(_paid_without_answer(reward.name, tasks, paid), summary={LEFT: left})
        begun = _begins_in_thought(reward)
        misses = _right_not_paid(reward.name, tasks, paid, begun=begun)
    bought = replace(bought, notes=notes)
    return Results([bought, misses, _grader_calls(reward.name, tasks, calls)])


def _notes(reward: CallableReward, truths: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Sentences on the tasks, also logged: which have no true answer, and whether the answers are
    so few that they may be classes."""
    keys = [task.key for task in reward.tasks.values()]
    without = [key for key, texts in zip(keys, truths, strict=True) if not texts]
    notes, n = [], len(keys) - len(without)
    if without:
        names = ", ".join(without[:10])
        notes.append(f"{len(without)} of {len(keys)} tasks have no true answer: {names}.")
    if (several := len({*truths} - {()})) <= CLASSES < n:
        advice = "of classes type candidates=answers."
        notes.append(f"{several} different true answers serve all {n} tasks: {advice}")
    for note in notes:
        log.warning("%s: %s", reward.name, note)
    return tuple(notes)


def _check_called(answer: Answer) -> None:
    """ConfigError where the answer says that the function cannot be called."""
    if isinstance(answer, str) and answer.startswith(NOT_CALLED):
        raise ConfigError(answer.removeprefix(NOT_CALLED))


# How it is called again -------------------------------------------------------


def _ways(reward: CallableReward, function: Callable) -> dict[str, tuple[str, Callable]]:
    """By the fault that another number shows: a sentence with both numbers, and what calls it.

    Trainers and servers call plain functions in the main thread (TRL), in another one (verl,
    FastAPI), and where an event loop runs (verifiers).
    """
    in_thread = partial(ask_thread, function)
    ways: dict[str, tuple[str, Callable]] = {
        "nondeterministic": ("gives {:g}, then {}", function),
        "thread": ("gives {:g} in the main thread and {} in another", in_thread),
    }
    if not inspect.iscoroutinefunction(reward.function):
        call = partial(_ask_loop, function)
        ways["event_loop"] = ("gives {:g}, and {} where an event loop runs", call)
    elif reward.shape in LOOP_IN_THREAD:
        call = partial(function, reward=replace(reward, function=_blocking(reward.function)))
        ways["thread"] = ("gives {:g} in a thread and {} in the main thread", call)
    return ways


def ask_thread(call: Callable, *args: Any) -> Any:
    """The result of a call in a second thread, while a first one lives that was called in
    before."""
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        first.submit(call, *args).result()
        return second.submit(call, *args).result()


def _ask_loop(call: Callable, *args: Any) -> Any:
    async def ask() -> Any:
        return call(*args)

    return asyncio.run(ask())


def _blocking(function: Callable) -> Callable:
    """An asynchronous function as one that waits for its own answer."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        return asyncio.run(function(*args, **options))

    return call


def thread_differences(reward: CallableReward) -> tuple[int, list[tuple[str, Answer, Answer]]]:
    """The number of right answers of its tasks, or plain ones, that a function is asked in this
    thread and in another, and those to which it gives another reward there, with both. ConfigError
    where it cannot be called."""
    tasks = list(reward.tasks.values())
    pairs = zip(tasks, true_answers(tasks), strict=True)
    questions = [(task.turns, truths[0]) for task, truths in pairs if truths]
    questions = questions or [((Turn("user", "Why?"),), "So.")]
    rows = list[tuple[str, Answer, Answer]]()
    for turns, truth in questions[:AGAIN_OF_FORMAT]:
        texts = [probe.text for probe in right_strings(truth)]
        answers = _answers(reward, turns, texts)
        _check_called(answers[0])
        rows += zip(texts, answers, ask_thread(_answers, reward, turns, texts), strict=True)
    return len(rows), [row for row in rows if row[1] != row[2]]


def _begins_in_thought(reward: Reward) -> bool:
    """Whether the chat template of its tokenizer ends a prompt in `<think>`."""
    if reward.tokenizer is None or not reward.tokenizer.chat_template:
        return False
    messages = [{"role": "user", "content": "Why?"}]
    text = rendered(reward.tokenizer, messages, add_generation_prompt=True)
    return text.rstrip().endswith("<think>")


def faults_of(results: Results) -> list[str]:
    """The names of the faults that a census found, without what is only a format that the grader
    does not read."""
    unpaid = results["right_not_paid"].table
    return [
        *results["paid_without_answer"].table.get("fault", ()),
        *(unpaid.loc[unpaid["fault"].astype(bool), "format"] if len(unpaid) else ()),
        *results["grader_calls"].table["fault"],
    ]


def _formats_read(tasks: Sequence[_Task], replies: Sequence[Sequence[Answer]]) -> list[list[str]]:
    """By task: the formats in which its right answer is paid, those in which a wrong one is not
    first; where it is in none, those of most tasks."""
    read = []
    for task, answers in zip(tasks, replies, strict=True):
        payment = _paid(task, answers)
        paid = {(p.kind, p.format) for index, p in enumerate(task.probes) if payment[index]}
        formats = [name for name in FORMATS if (RIGHT, name) in paid]
        read.append(sorted(formats, key=lambda name: ("wrong_answer", name) in paid)[:READ])
    common = [name for name, _ in Counter(chain(*read)).most_common(READ)]
    return [formats or common for formats in read]


def _jobs(number: int, probes: Sequence[Probe], start: int) -> Iterator[Job]:
    """Strings of a task from one on, `BATCH` at a time; heavy ones alone, as many may hang."""
    for family, some in groupby(probes[start:], lambda probe: probe.family):
        texts = [probe.text for probe in some]
        size = 1 if family else BATCH
        for at in range(0, len(texts), size):
            yield Job(number, texts[at : at + size], start + at, family)
        start += len(texts)


def _answers(reward: CallableReward, turns: tuple, strings: Sequence[str]) -> list[Answer]:
    """The rewards of strings; where the function fails on several, of each alone."""
    conversations = [(*turns, Turn("assistant", text)) for text in strings]
    try:
        return reward.rewards(conversations).tolist()
    except ConfigError as error:
        return [f"{NOT_CALLED}{error}"] * len(strings)
    except ModelError as error:
        if len(strings) > 1:
            return [_answers(reward, turns, [text])[0] for text in strings]
        return [f"{RAISES} {error.__cause__!r:.200}" if error.__cause__ else NOT_FINITE]
    except BaseException as error:
        return [f"{RAISES} {error!r:.200}"] * len(strings)


def _paid(task: _Task, answers: Sequence[Answer]) -> _Paid:
    rewards = np.array([math.nan if isinstance(answer, str) else answer for answer in answers])
    kinds = np.array([probe.kind for probe in task.probes])
    low = rewards[np.isin(kinds, ("wrong_answer", "nothing"))]
    high = rewards[[probe.kind == RIGHT and ":" not in probe.format for probe in task.probes]]
    if np.isnan(low).all() or np.isnan(high).all():
        return _Paid(rewards, math.nan, math.nan)
    floor, top = np.nanmin(low), np.nanmax(high)
    return _Paid(rewards, (floor + top) / 2 if top > floor else math.nan, top)


def _all_paid(tasks: Sequence[_Task], replies: Sequence[Sequence[Answer]]) -> list[_Paid]:
    """By task; one whose right answer is paid no more than nothing and wrong ones is held to the
    least line of the others."""
    paid = [_paid(task, answers) for task, answers in zip(tasks, replies, strict=True)]
    lines = [(p.line, p.top) for p in paid if not math.isnan(p.line)]
    line, top = min(lines, default=(math.nan, math.nan))
    return [replace(p, line=line, top=top) if math.isnan(p.line) else p for p in paid]


def _choose_again(task: _Task, paid: _Paid) -> list[int]:
    """Right answers and paid strings, a few of each kind and format."""
    rows: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, probe in enumerate(task.probes):
        if probe.kind == RIGHT or paid[row]:
            rows[probe.kind, probe.format].append(row)
    return sorted(row for some in rows.values() for row in some[:AGAIN_OF_FORMAT])[:AGAIN]


def _calls(tasks: Sequence[_Task], replies: Sequence[Sequence[Answer]]) -> list[_Call]:
    """Calls that gave no number."""
    faults = (RAISES, NOT_FINITE, HANGS, CRASHES)
    return [
        _Call(next(filter(answer.startswith, faults)), number, probe.text, answer)
        for number, (task, answers) in enumerate(zip(tasks, replies, strict=True))
        for probe, answer in zip(task.probes, answers, strict=True)
        if isinstance(answer, str)
    ]


def _fault_of(probe: Probe, truths: Sequence[str]) -> str | None:
    """The fault that paying for this string shows; None where it has the answer."""
    if probe.kind in DESPITE:
        return probe.kind
    if holds(probe.text, truths):
        return None
    bare, wanted = probe.text.strip().casefold(), [truth.casefold() for truth in truths]
    if any(truth in bare for truth in wanted) and probe.kind not in ("near", "code"):
        return "answer_within_another"
    if probe.kind in PARTS and bare and any(bare in truth for truth in wanted):
        return "part_of_answer"
    return probe.kind


def _distance(text: str, truth: str, *, nearest: bool = False) -> float:
    """Distance of the farthest number in a text from a true answer, or of the nearest number or run
    of digits; infinite without one."""
    wanted, values = value_of(truth), numbers_of(text)
    if nearest:
        values += numbers_of(";".join(re.findall(r"\d+", text)))
    if wanted is None or not values:
        return math.inf
    distance = (min if nearest else max)(abs(value - wanted) for value in values)
    return float(distance) if distance < sys.float_info.max else math.inf


def _tolerance(task: _Task, texts: Sequence[str]) -> float:
    """Distance from the true answer at which a task's numbers near it are no longer paid, of those
    `texts` that are; 0 where none is."""
    largest = max((_distance(text, task.truths[0]) for text in texts), default=0.0)
    near = [probe.text for probe in task.probes if probe.kind == "near" and largest]
    unpaid = (_distance(text, task.truths[0]) for text in near)
    return min((away for away in unpaid if away > largest * (1 + 1e-9)), default=2 * largest)


def _paid_without_answer(name: str, tasks: Sequence[_Task], paid: Sequence[_Paid]) -> Result:
    cases: dict[str, list[tuple[str, int, float]]] = defaultdict(list)
    for number, (task, payment) in enumerate(zip(tasks, paid, strict=True)):
        rows = list(enumerate(task.probes))
        wrong = [(payment[i], probe.format) for i, probe in rows if probe.kind == "wrong_answer"]
        any_answer = {form for _, form in wrong} - {form for is_paid, form in wrong if not is_paid}
        for index, probe in rows:
            is_format = probe.kind != "wrong_answer" and probe.format in any_answer
            if not payment[index] or probe.kind == RIGHT or is_format:
                continue
            if fault := _fault_of(probe, task.truths):
                reward = float(payment.rewards[index])
                fault = "partly_paid" if fault in PARTIAL and reward < payment.top else fault
                cases[fault].append((probe.text, number, reward))
    _name_tolerance(cases, tasks)
    # A string that another fault explains is none for want of an answer.
    explained = {c[:2] for fault in cases.keys() - {"no_answer"} for c in cases[fault]}
    cases["no_answer"] = [case for case in cases["no_answer"] if case[:2] not in explained]
    table = []
    for fault in filter(cases.get, MEND):
        row, reward = _row(cases[fault], tasks)
        row |= {"may_be_meant": fault in MAY_BE_MEANT, "reward": reward, "mend": MEND[fault]}
        table.append({"fault": fault} | row)
    columns = "fault may_be_meant strings tasks of_tasks share example task truth reward mend"
    frame = pd.DataFrame(table, columns=columns.split())
    n = len({probe.text for task in tasks for probe in task.probes})
    paid_text = f"{name} pays {{example}} where the answer is {{truth}} ({{fault}})."
    nothing = f"{name}: of {n:,} strings none is paid without the answer ({len(tasks)} tasks)."
    return _result("paid_without_answer", frame, paid_text, nothing)


def _name_tolerance(cases: dict[str, list[tuple[str, int, float]]], tasks: Sequence[_Task]) -> None:
    """Leave to `near` what a tolerance explains: strings whose numbers are as near to the answer.
    Where all of these hold the answer's digits, and none lies on its other side, no tolerance paid
    them: the point was not read, if no string that is enlarged otherwise says more."""
    truths = [task.truths[0] for task in tasks]
    near = cases["near"]
    if near and all(truths[n].casefold() in text for text, n, _ in near):
        if "answer_within_another" not in cases:
            cases["sign_or_point"] += near
        cases["near"] = []
    elif near:
        paid = [[text for text, number, _ in near if number == n] for n in range(len(tasks))]
        limits = [_tolerance(task, texts) for task, texts in zip(tasks, paid, strict=True)]
        for fault in cases.keys() - (set(DESPITE) - {"sign_or_point"}) - {"near"}:
            some = [(case, truths[case[1]], limits[case[1]]) for case in cases[fault]]
            is_near = all(_distance(c[0], truth, nearest=True) < limit for c, truth, limit in some)
            far = [case for case, truth, limit in some if _distance(case[0], truth) >= limit]
            cases[fault] = [] if is_near else far


def _row(cases: Sequence[tuple[str, int, Any]], tasks: Sequence[_Task]) -> tuple[dict, Any]:
    """The columns that several cases of one fault share, each a string, the number of its task and
    a value; and the value of the shortest string, which is the example."""
    text, number, value = min(cases, key=lambda case: (len(case[0]), case[0]))
    of = len({case[1] for case in cases})
    row = {
        "strings": len({case[0] for case in cases}),
        "tasks": of,
        "of_tasks": len(tasks),
        "share": of / len(tasks),
        "example": literal(text, limit=80),
        "task": tasks[number].task.key,
        "truth": literal(tasks[number].truths[0], limit=40),
    }
    return row, value


def _never_paid(
    name: str, tasks: Sequence[_Task], paid: Sequence[_Paid], left: int
) -> list[Result]:
    """A grader that pays no right answer more than nothing and a wrong one: a constant, or one that
    reads another form of answer; no rows where no call gave a number, or strings were left."""
    headline = f"{name}: no right answer is paid more than nothing or a wrong one."
    untested = Result("right_not_paid", pd.DataFrame(), headline, method="grading")
    rewards = np.concatenate([payment.rewards for payment in paid])
    rewards = rewards[np.isfinite(rewards)]
    if left or not len(rewards):
        return [replace(untested, name="paid_without_answer", summary={LEFT: left}), untested]
    fault = "constant" if np.ptp(rewards) == 0 else "never_paid"
    n = len({probe.text for task in tasks for probe in task.probes})
    row = {"fault": fault, "may_be_meant": False, **_row([(tasks[0].wrong[0], 0, "")], tasks)[0]}
    row |= {"strings": n, "tasks": len(tasks), "share": 1.0, "reward": float(rewards.max())}
    headline = f"pays no right answer more than a wrong one, in any of {len(FORMATS)} formats."
    if fault == "constant":
        headline = f"gives {rewards[0]:g} to all {n:,} strings, right answers and wrong ones."
    table = pd.DataFrame([row | {"mend": MEND[fault]}])
    return [_result("paid_without_answer", table, f"{name} {headline}", ""), untested]


def _is_fault(form: str, paid: dict[str, bool], *, begun: bool) -> bool:
    """Whether no grader should leave an answer unpaid that is written so.

    Args:
        form: a key of `paid`: the way of writing, and behind `: ` the format.
        paid: of one task, by form.
        begun: whether the policy's prompt ends in `<think>`.
    """
    way, _, inside = form.partition(": ")
    read = [name for name in FORMATS if paid.get(name)]
    if way in WINDOWS:
        return paid.get(f"{WINDOWS[way]}: {inside}", False)
    if way == "plain":
        return bool(read) and all("</think>" in FORMATS[name] for name in read)
    if way == BEGUN:
        return begun and not any(is_paid for name, is_paid in paid.items() if BEGUN in name)
    prose = all(paid.get(name) for name in PROSE)
    return way in CORE or (way in TYPOGRAPHY and prose and (not inside or inside in PROSE))


def _right_not_paid(
    name: str, tasks: Sequence[_Task], paid: Sequence[_Paid], *, begun: bool
) -> Result:
    cases: dict[str, list[tuple[bool, bool, str, int]]] = defaultdict(list)
    for number, (task, payment) in enumerate(zip(tasks, paid, strict=True)):
        right = [(payment[at], p) for at, p in enumerate(task.probes) if p.kind == RIGHT]
        is_read = any(is_paid for is_paid, _ in right)
        cases[UNREAD].append((is_read, True, task.truths[0], number))
        forms = defaultdict[str, bool](lambda: True)
        for is_paid, probe in right:
            forms[probe.format] &= is_paid
        for is_paid, probe in right if is_read else ():
            fault = not is_paid and _is_fault(probe.format, forms, begun=begun)
            cases[probe.format.partition(": ")[0]].append((is_paid, fault, probe.text, number))
    rows = []
    for form, some in cases.items():
        missed = [case for case in some if not case[0]]
        faulty = [case for case in missed if case[1]]
        if not missed:
            continue
        texts = [(text, number, "") for _, _, text, number in faulty or missed]
        row = {"format": form, "fault": bool(faulty), **_row(texts, tasks)[0]}
        row |= {"of_tasks": len({number for *_, number in some}), "share": len(missed) / len(some)}
        rows.append(row | {"mend": MEND.get(form, MARKS) if faulty else ""})
    order = [*MEND, *TYPOGRAPHY] if any(row["fault"] for row in rows) else []
    places = {form: place for place, form in enumerate([*order, *FORMATS][::-1])}
    rows.sort(key=lambda row: (row["fault"], places.get(row["format"], -1)), reverse=True)
    columns = "format fault tasks of_tasks share example task truth mend"
    table = pd.DataFrame(rows, columns=columns.split())
    unpaid = int((table["format"] != UNREAD).sum())
    ways = f"{unpaid} of {len(cases) - 1} ways of writing the answer"
    if len(table) and not table["fault"].any():
        headline = "{} does not pay {}, such as {} where it is {}: a grader need not read these."
        headline = headline.format(name, ways, *table.loc[0, ["example", "truth"]])
        return Result("right_not_paid", table, headline, method="grading")
    headline = f"{name} does not pay {{example}} where the answer is {{truth}} ({{format}}). "
    headline += f"It does not pay {ways}."
    everything = f"{name} pays each of {len(cases) - 1} ways of writing the answer."
    return _result("right_not_paid", table, headline, everything)


def _grader_calls(name: str, tasks: Sequence[_Task], calls: list[_Call]) -> Result:
    rows, faults = [], {call.fault for call in calls}
    for fault in filter(faults.__contains__, MEND):
        some = [call for call in calls if call.fault == fault]
        row, error = _row([(call.text, call.task, call.detail) for call in some], tasks)
        row["may_be_meant"] = all(call.may_be_meant for call in some)
        row |= {"said": literal(error, limit=120), "mend": MEND[fault]}
        rows.append({"fault": fault, **row})
    rows.sort(key=lambda row: row["may_be_meant"])
    columns = "fault may_be_meant strings tasks of_tasks share example said task mend"
    table = pd.DataFrame(rows, columns=columns.split())
    notes = (f"Of strings that hung {ENOUGH} times the rest was not asked.",) * (HANGS in faults)
    nothing = f"{name}: each string has a finite reward, the same when asked again in any way."
    failed = f"{name}: {{said}} on {{example}}."
    return _result("grader_calls", table, failed, nothing, notes=notes)


def _result(name: str, table: pd.DataFrame, template: str, none: str, *, notes=()) -> Result:
    """The table, whose gravest fault comes first, under a sentence about its first row that names
    the others."""
    if table.empty:
        return Result(name, table, none, method="grading", notes=notes)
    headline = template.format_map(dict(table.iloc[0]))
    names = table["format"][table["fault"].astype(bool)] if "format" in table else table["fault"]
    if further := list(names)[1:]:
        count = f"{len(further)} more fault{'s' * (len(further) > 1)}"
        headline += f" And {count}: {', '.join(further)}."
    more: dict[str, Any] = {"method": "grading", "notes": notes}
    return Result.of_row(table.iloc[0], name, table, EFFECT, headline, **more)
