"""A grader's calls in processes of their own, each with a limit of time and memory.

Knows processes; does not know what is asked. Nothing is sandboxed: a call may read and write what
its user may.
"""

import contextlib
import ctypes
import math
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path

Answer = float | str
"""The reward, or what happened instead: `raises …`, `not finite …`."""
Answers = Callable[[int, Sequence[str]], list[Answer]]
HANGS, CRASHES = "hangs", "crashes"
ENOUGH = 3
"""Hangs of one family."""


@dataclass(frozen=True)
class Job:
    """Strings that one call, or one after another, is asked for one task."""

    task: int
    strings: Sequence[str]
    at: int = 0
    """Where they begin in what the caller has."""
    family: str = ""
    """Strings of which the rest is not asked after `ENOUGH` of them have hung."""


@dataclass
class _Worker:
    process: ForkProcess
    pipe: Connection
    job: Job | None = None
    deadline: float = 0.0

    def end(self) -> None:
        """End the process and what it has started, in sessions of their own too. Of a process that
        is dead already only those of its own session are left to be seen."""
        worker = self.process.pid or 0
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGSTOP)  # so that it starts no more of them
        for child in _descendants(worker):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(worker, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.pipe.close()


def answered(
    function: Answers,
    jobs: Sequence[Job],
    *,
    workers: int,
    seconds: float,
    memory: int,
    end: float = math.inf,
) -> Generator[tuple[Job, list[Answer]]]:
    """Each job with an answer a string, as they come. A job that ends its process or takes too long
    is halved until one string is left, whose answer is `hangs` or `crashes`. What is not asked has
    NaN.

    Args:
        function: gives the answers of strings to a task, by number; it raises nothing.
        seconds: wall time of one job.
        memory: bytes that a process may have on top of what it begins with.
        end: time of the monotonic clock at which the rest is not asked.
    """
    queue, busy = deque(jobs), list[_Worker]()
    idle, hung = list[_Worker](), Counter[str]()
    try:
        while (queue or busy) and time.monotonic() < end:
            while queue and len(busy) < workers:
                if hung[queue[0].family] >= ENOUGH:
                    job = queue.popleft()
                    yield job, [math.nan] * len(job.strings)
                    continue
                worker = idle.pop() if idle else _started(function, memory)
                worker.job, worker.deadline = queue.popleft(), time.monotonic() + seconds
                with contextlib.suppress(OSError):  # it has ended, as its pipe will say
                    worker.pipe.send(worker.job)
                busy.append(worker)
            deadline = min([*(worker.deadline for worker in busy), end])
            left = max(0.0, deadline - time.monotonic()) if busy else 0.0
            ready = wait([worker.pipe for worker in busy], left)
            for worker in list(busy):
                overdue = time.monotonic() > worker.deadline
                if worker.pipe not in ready and not overdue:
                    continue
                busy.remove(worker)
                assert worker.job is not None
                outcome = _received(worker) if worker.pipe in ready else HANGS
                if not isinstance(outcome, str):
                    idle.append(worker)
                    yield worker.job, outcome
                    continue
                worker.end()
                if len(worker.job.strings) == 1:
                    hung[worker.job.family] += bool(worker.job.family) and outcome == HANGS
                    yield worker.job, [outcome]
                else:
                    queue.extendleft(_halves(worker.job))
    finally:
        for worker in [*busy, *idle]:
            worker.end()


def _descendants(process: int) -> set[int]:
    """Processes that a process has started, at any depth."""
    children = set[int]()
    with contextlib.suppress(OSError):  # it ends meanwhile
        for file in Path(f"/proc/{process}/task").glob("*/children"):
            children |= set(map(int, file.read_text().split()))
    return children.union(*map(_descendants, children))


def _received(worker: _Worker) -> list[Answer] | str:
    try:
        return worker.pipe.recv()
    except (EOFError, OSError):
        return CRASHES


def _halves(job: Job) -> tuple[Job, Job]:
    half = len(job.strings) // 2
    first = replace(job, strings=job.strings[:half])
    return replace(job, strings=job.strings[half:], at=job.at + half), first


def _started(function: Answers, memory: int) -> _Worker:
    # Forked: functions typed at a prompt cannot be sent. The pipe's other end closes with the
    # process, which is how its death is seen.
    context = multiprocessing.get_context("fork")
    parent_end, child_end = context.Pipe()
    process = context.Process(
        target=_work, args=(function, child_end, parent_end, memory), daemon=False
    )
    process.start()
    child_end.close()
    return _Worker(process, parent_end)


def _work(function: Answers, pipe: Connection, other: Connection, memory: int) -> None:
    os.setsid()
    other.close()
    # Where the parent is killed, a call that hangs would run on.
    prctl = ctypes.CDLL(None).prctl
    prctl(1, signal.SIGKILL)
    prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: children of its children stay below it
    me, nowhere = os.getpid(), os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    sys.stdout = sys.stderr = os.fdopen(nowhere, "w")  # a notebook's are no files
    with open("/proc/self/statm") as file:
        have = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (have + memory, have + memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            os._exit(0)
        rewards = function(job.task, job.strings)
        if os.getpid() != me:  # the grader forked, and this is its child
            os._exit(0)
        pipe.send(rewards)
