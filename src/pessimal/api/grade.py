"""`pessimal.census`: what a grader pays for."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pessimal.api.check import policy_tokenizer
from pessimal.api.load import to_reward
from pessimal.api.store import Artifact, Store, publishing, reward_inputs, store_at
from pessimal.checking import grading
from pessimal.errors import ConfigError
from pessimal.rewards.callable import about_texts
from pessimal.tables.result import Results


def census(
    function: Any,
    tasks: str | Path | None = None,
    *,
    tokens: Sequence[str] | None = None,
    token_limit: int | None = None,
    policy: str | None = None,
    seconds: float = 5.0,
    memory: int = 4 * 1024**3,
    workers: int | None = None,
    budget: float = math.inf,
    cache: str = "runs/cache",
    store: Store | str | Path | None = None,
    progress: bool = True,
    **options,
) -> Results:
    """What a grader pays for: every token, number and format, in processes with limits.

    Args:
        function: a function in any shape that a trainer calls, or `FILE.py:FUNCTION`.
        tasks: JSONL file of prompts with their columns, the true answer among them; of a grader
            that has them already None.
        tokens: texts; by default of `tokenizer=…`, or the 50,000 most frequent English words.
        token_limit: how many of these tokens are asked, the first; numbers are asked to as many,
            1,000 to 10,000.
        policy: a language model, as typed for a model, of which the tokenizer is taken where the
            function has none: its tokens, and whether its prompts end in `<think>`.
        seconds: wall time of a call.
        memory: bytes that a process may have on top of what it begins with.
        workers: processes; by default one a core.
        budget: seconds of the whole; strings that are left then are not asked, and counted.
        cache: folder for what is fetched.
        store: where a `census` is published.
        options: of `reward` or `load`.

    Returns:
        Results `paid_without_answer`, `right_not_paid` and `grader_calls`.

    Raises:
        ConfigError: it is no function, or no task has a true answer.
    """
    grader = to_reward(function, tasks=tasks, **options)
    if not grader.spec.grades_tasks:
        raise ConfigError(f"{grader.name} is no function: the census is of graders")
    [grader] = grader.functions
    if policy is not None and grader.tokenizer is None:
        tokenizer = policy_tokenizer(policy, cache=cache)
        grader = replace(grader, **about_texts(grader.spec, tokenizer))
    store = store_at(store)
    inputs, source = ([], {}) if store is None else reward_inputs(store.registry, grader)
    name = f"census {grader.name}"
    with publishing(store, name=name, inputs=inputs, progress=progress) as publish:
        results = grading.census(
            grader,
            tokens=(grading.tokens_of(grader) if tokens is None else tokens)[:token_limit],
            seconds=seconds,
            memory=memory,
            workers=workers,
            budget=budget,
            progress=progress,
        )
        summary = {"model": grader.name, "faults": grading.faults_of(results)} | source
        return publish(Artifact("census", grader.name, inputs=inputs, summary=summary), results)
