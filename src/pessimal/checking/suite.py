"""The suite of one model on one prompt: loads its network once a precision, and runs every check in
order, on random tokens of its vocabulary and longer responses made of them.

Special tokens are left out: a pad or end token inside a response is a question of its own
(`pad_is_eos`).
"""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from pessimal.checking.checks import (
    Check,
    as_table,
    beginnings,
    precision_check,
    precision_table,
    round_trip,
)
from pessimal.checking.network import CheckedNetwork, head, of_network
from pessimal.conversation import Prompt
from pessimal.errors import ModelError
from pessimal.progress import steps
from pessimal.rewards.base import NetworkReward, Part
from pessimal.rewards.frame import Frame
from pessimal.rewards.spec import Dtype
from pessimal.scoring.candidates import Candidates, Inputs, framed, vocabulary
from pessimal.tables.result import Estimate, Result, weight_of

LENGTHS = range(2, 10)
"""Tokens of the longer responses, in turn."""


@dataclass(frozen=True)
class CheckPlan:
    """How much is checked."""

    sample: int
    """Random tokens of the vocabulary; a quarter as many longer responses come on top."""
    batch_size: int
    """Responses of a batch, against one by one."""
    dtypes: Sequence[Dtype]
    """Precisions compared with float32; empty for none. The network is loaded once for each."""
    seed: int

    @property
    def steps(self) -> int:
        """How many times `conformance` calls its `step`, at most."""
        return len(set(self.dtypes)) + 2


@dataclass(frozen=True)
class Conformance:
    """Results of the suite."""

    checks: list[Check]
    precision: pd.DataFrame | None
    """See `precision_table`; None where precisions were not compared."""
    details: dict[str, Any]
    """What the table is of: precision, device, path, responses, and how far their rewards
    spread."""

    @property
    def failed(self) -> list[Check]:
        return [check for check in self.checks if check.passed is False]


@dataclass
class _Measured:
    """Results in one precision."""

    rewards: dict[str, np.ndarray] = field(default_factory=dict)
    """float64 (n,) by the path's name: the model's own forward, and the fastest."""
    checks: list[Check] = field(default_factory=list)
    head: Check | None = None
    """In float32."""
    details: dict[str, Any] = field(default_factory=dict)
    problem: str | None = None
    """Why there is nothing of the above."""


def check(
    model: NetworkReward,
    text: Prompt,
    plan: CheckPlan,
    *,
    device: torch.device,
    progress: bool = True,
) -> Conformance:
    """The suite on each part of a reward: mostly one; the checks of others are numbered.

    Args:
        model: loaded once for each precision of the plan.
        text: the user turn.
        plan: how much is checked.
        device: where the network runs.
        progress: draw a bar where there is a terminal.
    """
    parts = []
    for number, part in enumerate(model.parts, start=1):
        frame = part.conversations.frame(text)
        label = f"checking {model.name}" + (f", part {number}" if number > 1 else "")
        with steps(label, plan.steps, bar=progress) as step:
            one = conformance(model, part, frame, plan, device=device, step=step)
        parts.append(replace(one, checks=[replace(check, part=number) for check in one.checks]))
    return replace(parts[0], checks=[check for one in parts for check in one.checks])


def conformance(
    model: NetworkReward,
    part: Part,
    frame: Frame,
    plan: CheckPlan,
    *,
    device: torch.device,
    step: Callable[[str], None] = lambda name: None,
) -> Conformance:
    """Run every check of one part of a reward. One network is in memory at a time; `step` is called
    with the name of the next step.

    Raises ModelError where the device cannot run the model in its own precision.
    """
    words = vocabulary(model.tokenizer, size=model.embedding_rows)
    responses = sample_responses(
        words, model.tokenizer.all_special_ids, size=plan.sample, seed=plan.seed
    )
    inputs = framed(frame, responses)
    measured: dict[Dtype, _Measured] = {}
    for dtype in dict.fromkeys([model.spec.dtype, *plan.dtypes]):
        step(dtype.value)
        measured[dtype] = _measure(model, part, frame, inputs, plan, dtype, device)
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    step("tokens")
    native = measured[model.spec.dtype]
    precision, dtypes = _compare(measured, plan)
    checks = [*native.checks, _head(measured), *dtypes]
    where = (model.tokenizer, part.conversations, frame)
    checks += beginnings(*where)
    checks += round_trip(*where, words, responses=responses, seed=plan.seed)
    return Conformance(checks, precision, native.details)


def _measure(
    model: NetworkReward,
    part: Part,
    frame: Frame,
    inputs: Inputs,
    plan: CheckPlan,
    dtype: Dtype,
    device: torch.device,
) -> _Measured:
    """Load the network in one precision and measure it; in the model's own precision, run all
    checks of a network."""
    native = dtype is model.spec.dtype
    try:
        network = model.network(dtype, part.network).to(device)
        checked = CheckedNetwork(
            model, network, frame, inputs, dtype=dtype, batch_size=plan.batch_size
        )
    except (ModelError, RuntimeError) as error:
        problem = _problem(error, dtype, device)
        if problem is None or (native and isinstance(error, ModelError)):
            raise
        if native:
            other = "bfloat16" if dtype is Dtype.float32 else "float32"
            raise ModelError(f"{model.name!r}: {problem}. Type model.dtype={other}") from error
        return _Measured(problem=problem)
    fastest, rewards = checked.fastest, {checked.scorer.own_forward.name: checked.own_rewards}
    rewards = rewards if fastest.name in rewards else rewards | {fastest.name: checked.fast}
    return _Measured(
        rewards=rewards,
        checks=of_network(checked, seed=plan.seed) if native else [],
        head=head(checked) if dtype is Dtype.float32 and checked.sound else None,
        details={
            "dtype": dtype.value,
            "device": str(device),
            "attention": fastest.name,
            "n": len(inputs),
            "spread": float(checked.own_rewards.std()) if checked.sound else None,
        },
    )


def _problem(error: Exception, dtype: Dtype, device: torch.device) -> str | None:
    """Why a precision cannot be had here; None where the error is of another kind."""
    if isinstance(error, torch.OutOfMemoryError):
        return f"{device} has too little memory for {dtype.value}"
    if isinstance(error, ModelError):
        return str(error)
    if "not implemented" in str(error):
        return f"{device} cannot compute in {dtype.value}: {error}"
    return None


def _head(measured: dict[Dtype, _Measured]) -> Check:
    exact = measured.get(Dtype.float32)
    if exact is None:
        return Check("head", note="it is measured in float32 only; type dtypes=[float32]")
    why = exact.problem or "not measured: in float32, rewards are not numbers"
    return exact.head or Check("head", note=why)


def _compare(
    measured: dict[Dtype, _Measured], plan: CheckPlan
) -> tuple[pd.DataFrame | None, list[Check]]:
    """The table of precisions, and a row for each that was requested."""
    if not plan.dtypes:
        return None, []
    missing = _Measured(problem="float32 is not among dtypes")
    exact, problem, table = measured.get(Dtype.float32, missing), None, None
    expected = exact.rewards.get("own-forward")
    if expected is None:
        problem = f"nothing to compare with: {exact.problem}"
    elif not np.isfinite(expected).all():
        problem = "nothing to compare with: in float32, rewards are not numbers"
    else:
        rewards = {
            (dtype, path): values
            for dtype in plan.dtypes
            for path, values in measured[dtype].rewards.items()
        }
        table = precision_table(rewards)
    low = [dtype for dtype in plan.dtypes if dtype is not Dtype.float32]
    return table, [
        precision_check(dtype, table, expected, problem or measured[dtype].problem) for dtype in low
    ]


def sample_responses(
    words: Candidates, special: Sequence[int], *, size: int, seed: int
) -> list[list[int]]:
    """`size` single tokens and a quarter as many longer responses (at least eight), as ids that are
    not `special`."""
    random = np.random.default_rng(seed)
    ids = words.rows.loc[words.rows["kind"] != "special", "candidate_id"].to_numpy()
    ids = ids[~np.isin(ids, special)]  # a pad token may look like one that nobody uses
    single = random.permutation(ids)[:size]
    lengths = [LENGTHS[i % len(LENGTHS)] for i in range(max(size // 4, len(LENGTHS)))]
    return [[int(i)] for i in single] + [random.choice(ids, length).tolist() for length in lengths]


def conformance_results(conformance: Conformance, name: str) -> list[Result]:
    """The checks and the table of precisions as Results."""
    counts = counts_of(conformance)
    n = counts["passed"] + counts["failed"]
    missed = f"; not: {', '.join(counts['failed_checks'][:4])}" if conformance.failed else ""
    measured = [check for check in conformance.checks if check.measured is not None]
    checks = Result(
        "conformance",
        as_table(conformance.checks),
        headline=f"{counts['passed']} of {n} checks of {name} hold{missed}.",
        method="check",
        weight=weight_of(counts["failed"] / max(n, 1)),
        estimate=Estimate("checks that hold", counts["passed"], n, "checks"),
        summary=counts | {f"measured/{check.check}": check.measured for check in measured},
    )
    if conformance.precision is None:
        return [checks]
    return [checks, Result("precision", conformance.precision, method="check")]


def counts_of(conformance: Conformance) -> dict[str, Any]:
    """The numbers that a list of runs shows."""
    passed = [check.passed for check in conformance.checks]
    return {
        "passed": passed.count(True),
        "failed": passed.count(False),
        "failed_checks": [check.check for check in conformance.failed],
    }
