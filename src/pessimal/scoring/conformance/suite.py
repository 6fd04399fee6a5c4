"""The suite of one model on one prompt: loads its network once a precision, and asks every check in order."""

import gc
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch

from pessimal.errors import ModelError
from pessimal.models.frame import Frame
from pessimal.models.load import RewardModel
from pessimal.models.spec import Dtype
from pessimal.scoring.candidates import Inputs, vocabulary
from pessimal.scoring.conformance import forwards, padding, tokens
from pessimal.scoring.conformance.check import Check, does_not_apply
from pessimal.scoring.conformance.forwards import Subject
from pessimal.scoring.conformance.precision import precision_check, precision_table
from pessimal.scoring.conformance.sample import framed, sample_responses

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """How much is asked."""

    sample: int
    """Random tokens of the vocabulary; a quarter as many longer responses come on top."""
    batch_size: int
    """Responses of a batch, against one by one."""
    dtypes: Sequence[Dtype]
    """Precisions compared with float32; empty for none. The network is loaded once for each."""
    seed: int


@dataclass(frozen=True)
class Conformance:
    """What the suite found."""

    checks: list[Check]
    precision: pd.DataFrame | None
    """See `precision_table`; None where precisions were not compared."""
    facts: dict
    """What the table is of: precision, device, path, responses, and how far their rewards spread."""

    @property
    def failed(self) -> list[Check]:
        return [check for check in self.checks if check.passed is False]


@dataclass
class _Answers:
    """What one precision gave."""

    rewards: dict[str, np.ndarray] = field(default_factory=dict)
    """float64 (n,) by the path's name: the model's own forward, and the fastest."""
    head: Check | None = None
    """In float32."""
    checks: list[Check] = field(default_factory=list)
    facts: dict = field(default_factory=dict)
    problem: str | None = None
    """Why there is nothing of the above."""


def conformance(model: RewardModel, frame: Frame, plan: Plan, *, device: torch.device) -> Conformance:
    """Ask everything. One network is in memory at a time.

    Raises ModelError where the device cannot run the model in its own precision.
    """
    words = vocabulary(model.tokenizer, size=model.embedding_rows)
    special = model.tokenizer.all_special_ids
    responses = sample_responses(words, special, size=plan.sample, seed=plan.seed)
    inputs, answers = framed(frame, responses), {}
    for dtype in dict.fromkeys([model.spec.dtype, *plan.dtypes]):
        log.info("%s: asking in %s", model.name, dtype.value)
        answers[dtype] = _ask(model, frame, inputs, plan, dtype, device)
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    native = answers[model.spec.dtype]
    precision, dtypes = _compare(answers, plan)
    checks = [
        *native.checks,
        _head(answers),
        *dtypes,
        *tokens.beginnings(model.tokenizer, frame, closing=model.closing),
        *tokens.round_trip(
            model.tokenizer, frame, words, responses=responses, closing=model.closing, seed=plan.seed
        ),
    ]
    return Conformance(checks, precision, native.facts)


def _ask(
    model: RewardModel, frame: Frame, inputs: Inputs, plan: Plan, dtype: Dtype, device: torch.device
) -> _Answers:
    """Load the network in one precision and ask; in the model's own precision all there is to ask of a network."""
    native = dtype is model.spec.dtype
    try:
        network = model.network(dtype).to(device)
        subject = Subject.of(network, frame, inputs, dtype=dtype, batch_size=plan.batch_size)
    except (ModelError, RuntimeError) as error:
        problem = _problem(error, dtype, device)
        if problem is None or (native and isinstance(error, ModelError)):
            raise
        if native:
            other = "bfloat16" if dtype is Dtype.float32 else "float32"
            raise ModelError(f"{model.name!r}: {problem}. Type model.dtype={other}") from error
        return _Answers(problem=problem)
    own, fastest = subject.scorer.own, subject.fastest
    return _Answers(
        rewards={own.name: subject.own} | ({} if fastest is own else {fastest.name: subject.fast}),
        head=forwards.head(subject) if dtype is Dtype.float32 and subject.sound else None,
        checks=_of_network(subject, model, frame, plan) if native else [],
        facts={
            "dtype": dtype.value,
            "device": str(device),
            "attention": fastest.name,
            "n": len(inputs),
            "spread": float(subject.own.std()) if subject.sound else None,
        },
    )


def _problem(error: Exception, dtype: Dtype, device: torch.device) -> str | None:
    """Why a precision cannot be had here; None where the error is of another kind."""
    if isinstance(error, torch.OutOfMemoryError):
        return f"{device} has too little memory for {dtype.value}"
    if isinstance(error, ModelError):
        return str(error)
    return f"{device} cannot compute in {dtype.value}: {error}" if "not implemented" in str(error) else None


def _of_network(subject: Subject, model: RewardModel, frame: Frame, plan: Plan) -> list[Check]:
    if not subject.sound:
        return [forwards.finite(subject), *_not_measured()]
    return [
        forwards.finite(subject),
        *forwards.determinism(subject),
        *forwards.batch(subject),
        *padding.padding(subject, model, frame, seed=plan.seed),
        *forwards.engines(subject),
    ]


def _not_measured() -> list[Check]:
    """The same rows where there is nothing to compare."""
    names = {
        **forwards.REPEATABLE,
        **forwards.BATCHES,
        **padding.SIDES,
        "pad_is_eos": padding.PAD_IS_EOS,
        **dict(forwards.ENGINES.values()),
    }
    return [does_not_apply(name, what, "not measured: see finite") for name, what in names.items()]


def _head(answers: dict[Dtype, _Answers]) -> Check:
    exact = answers.get(Dtype.float32)
    if exact is not None and exact.head is not None:
        return exact.head
    why = "it is measured in float32 only; type dtypes=[float32]"
    if exact is not None:
        why = exact.problem or "not measured: in float32, rewards are not numbers"
    return does_not_apply("head", forwards.HEAD, why)


def _compare(answers: dict[Dtype, _Answers], plan: Plan) -> tuple[pd.DataFrame | None, list[Check]]:
    """The table of precisions, and a row for each that was asked for."""
    exact = answers.get(Dtype.float32)
    own = None if exact is None else exact.rewards.get("own-forward")
    problem = None
    if plan.dtypes and own is None:
        problem = f"nothing to compare with: {exact.problem}"
    elif plan.dtypes and not np.isfinite(own).all():
        problem = "nothing to compare with: in float32, rewards are not numbers"
    asked = {
        (dtype, path): found
        for dtype in plan.dtypes
        for path, found in answers[dtype].rewards.items()
    }  # fmt: skip
    table = precision_table(asked) if plan.dtypes and problem is None else None
    rows = [
        precision_check(dtype, table, own, problem or answers[dtype].problem)
        for dtype in plan.dtypes
        if dtype is not Dtype.float32
    ]
    return table, rows
