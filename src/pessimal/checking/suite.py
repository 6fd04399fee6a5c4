"""The suite of one model on one prompt: loads its network once a precision, and runs every check in
order, on random tokens of its vocabulary and longer responses made of them.

Special tokens are left out: a pad or end token inside a response is a question of its own
(`pad_is_eos`).
"""

import functools
import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from pessimal.checking.checks import (
    WHAT,
    Check,
    as_table,
    check_beginning,
    check_limit,
    precision_check,
    precision_table,
    round_trip,
)
from pessimal.conversation import Prompt
from pessimal.errors import ModelError
from pessimal.progress import steps
from pessimal.rewards.base import NetworkReward, Part
from pessimal.rewards.frame import Frame
from pessimal.rewards.heads import Head
from pessimal.rewards.language import LanguageNetwork, SequenceNetwork
from pessimal.rewards.network import RewardNetwork
from pessimal.rewards.spec import Dtype
from pessimal.scoring.candidates import Candidates, Inputs, batches, frame_responses, vocabulary
from pessimal.scoring.engine import Engine, FullForward, OwnForward, SharedPrefix, rewards_in
from pessimal.scoring.scorer import FrameScorer
from pessimal.scoring.trust import allowed, judge, largest_difference
from pessimal.tables.result import Estimate, Result, weight_of

LENGTHS = range(2, 10)
"""Tokens of the longer responses, in turn."""


@dataclass(frozen=True)
class CheckPlan:
    """Extent of the checks."""

    sample: int
    """Random tokens of the vocabulary; a quarter as many longer responses come on top."""
    batch_size: int
    """Responses of a batch, against one by one."""
    dtypes: Sequence[Dtype]
    """Precisions compared with float32; empty for none. The network is loaded once for each."""
    seed: int

    @property
    def steps(self) -> int:
        """Number of calls of `step` by `conformance`, at most."""
        return len(set(self.dtypes)) + 2


@dataclass(frozen=True)
class Conformance:
    """Results of the suite."""

    checks: list[Check]
    precision: pd.DataFrame | None
    """See `precision_table`; None where precisions were not compared."""
    details: dict[str, Any]
    """Conditions of the table: precision, device, path, responses, and how far their rewards
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
    results, checks = list[Conformance](), list[Check]()
    for number, part in enumerate(model.parts, start=1):
        frame = part.conversations.frame(text)
        label = f"checking {model.name}" + (f", part {number}" if number > 1 else "")
        with steps(label, plan.steps, bar=progress) as step:
            results.append(conformance(model, part, frame, plan, device=device, step=step))
        checks += [replace(check, part=number) for check in results[-1].checks]
    return replace(results[0], checks=checks)


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
    inputs = frame_responses(frame, responses)
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
    checks.append(check_beginning(*where))
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
        checked = CheckedNetwork(model, network, frame, inputs, dtype, plan.batch_size)
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
    spread = float(checked.own_rewards.std()) if checked.sound else None
    details = {"dtype": dtype.value, "device": str(device), "attention": fastest.name}
    return _Measured(
        rewards=rewards,
        checks=check_network(checked, seed=plan.seed) if native else [],
        head=head(checked) if dtype is Dtype.float32 and checked.sound else None,
        details=details | {"n": len(inputs), "spread": spread},
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
    note = exact.problem or "not measured: in float32, rewards are not numbers"
    return exact.head or Check("head", note=note)


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
        paths = [(dtype, measured[dtype].rewards.items()) for dtype in plan.dtypes]
        table = precision_table({(dtype, name): v for dtype, rows in paths for name, v in rows})
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


# --- The checks of one network.


INSTEAD = "Scans are not affected. In code of your own: network.config.pad_token_id = "
INSTEAD += (
    "tokenizer.pad_token_id, the tokenizer.padding_side that passes, or batches of one length"
)
SIDES = ("padding_right", "padding_left")
ENGINES = {SharedPrefix.name: "shared_prefix", FullForward.name: "full_forward"}


@dataclass(eq=False)
class CheckedNetwork:
    """A network in a frame, and the rewards that the others are held to. It must be on its device
    already."""

    model: NetworkReward
    network: RewardNetwork
    frame: Frame
    inputs: Inputs
    dtype: Dtype
    batch_size: int

    def __post_init__(self) -> None:
        network, frame, inputs, batch_size = self.network, self.frame, self.inputs, self.batch_size
        self.scorer = FrameScorer(network, frame, device=next(network.parameters()).device)
        rows = np.arange(len(inputs))
        self.own_rewards = self.scorer.own_rewards(inputs, rows)
        """Rewards float64 (n,) by the model's own forward, one by one."""
        self.fast = self.scorer.score_rows(inputs, rows, batch_size=batch_size)
        """Rewards float64 (n,) by the engine that a scan would take, in batches."""
        self._alone: dict[str, np.ndarray] = {}

    @property
    def is_stepped(self) -> bool:
        """Whether its reward is read at the steps of a response."""
        return getattr(self.network, "steps", None) is not None

    @property
    def sound(self) -> bool:
        """Whether all rewards are numbers."""
        return bool(np.isfinite(self.own_rewards).all() and np.isfinite(self.fast).all())

    @property
    def fastest(self) -> Engine:
        """The engine that a scan would take."""
        return self.scorer.engines[0]

    @property
    def full(self) -> FullForward | None:
        """The engine that runs whole inputs and reads the head; None where pessimal knows none for
        this network."""
        return next((e for e in self.scorer.engines if isinstance(e, FullForward)), None)

    def rewards(self, engine: Engine, *, size: int, turned: bool = False) -> np.ndarray:
        """Rewards float64 (n,) by one engine in batches of `size`; `turned` moves every response on
        by one row."""
        if engine is self.scorer.own_forward and size == 1:
            return self.own_rewards
        if isinstance(self.network, SequenceNetwork):
            self.network.forget()  # or a repetition would be read off its last answer
        plan = batches(self.inputs, size=size)
        plan = [np.roll(rows, 1) for rows in plan] if turned else plan
        return self.scorer.rewards_by(engine, self.inputs, plan)

    def alone(self, engine: Engine) -> np.ndarray:
        """Rewards float64 (n,) by one engine, one by one."""
        if engine.name not in self._alone:
            self._alone[engine.name] = self.rewards(engine, size=1)
        return self._alone[engine.name]

    @functools.cached_property
    def rounding(self) -> float:
        """By how much full forwards differ from `own_rewards`: the noise that low precision brings
        along."""
        forward = self.scorer.own_forward
        other_rewards = (
            self.alone(self.full or forward),
            self.rewards(forward, size=self.batch_size),
        )
        return max(largest_difference(other, self.own_rewards) for other in other_rewards)


def check_network(checked: CheckedNetwork, *, seed: int) -> list[Check]:
    """All checks of this file but that of the head, which is for float32."""
    if not checked.sound:
        names = list(WHAT)[1 : list(WHAT).index("head")]
        return [finite(checked), *(Check(name, note="not measured: see finite") for name in names)]
    checks = [finite(checked), *determinism(checked), *batch(checked)]
    return [*checks, *padding(checked, seed=seed), *engines(checked), ceiling(checked)]


def finite(checked: CheckedNetwork) -> Check:
    """Whether all rewards are numbers; nothing else can be checked where they are not."""
    bad = int((~np.isfinite(checked.own_rewards) | ~np.isfinite(checked.fast)).sum())
    other = "bfloat16" if checked.dtype is Dtype.float16 else "float32"
    note = f"In {checked.dtype.value} these rewards are no numbers: type model.dtype={other}. If "
    note += "no precision gives numbers, the weights are damaged"
    return check_limit("finite", bad, 0, n=len(checked.own_rewards), unit="responses", note=note)


def determinism(checked: CheckedNetwork) -> list[Check]:
    """The same batch twice, and with its responses in another order."""
    limit, size = allowed(checked.own_rewards, dtype=checked.dtype), checked.batch_size

    note = "Look for dropout that stays on (network.eval()), state in the model's own code, or GPU "
    note += "kernels: torch.use_deterministic_algorithms(True)"

    def check(name: str, engine: Engine) -> Check:
        first = checked.rewards(engine, size=size)
        again = [checked.rewards(engine, size=size, turned=turned) for turned in (False, True)]
        largest = max(largest_difference(rewards, first) for rewards in again)
        return check_limit(name, largest, limit, n=len(first), note=note)

    return _own_and_fastest(checked, "determinism", check)


def batch(checked: CheckedNetwork) -> list[Check]:
    """One by one against batches of equal lengths, so without any padding."""
    limit = allowed(checked.own_rewards, dtype=checked.dtype)
    note = f"A reward depends on what else is in the batch of {checked.batch_size}: type "
    note += "model.dtype=float32, and where that is so, batch_size=1"

    def check(name: str, engine: Engine) -> Check:
        single = checked.alone(engine)
        apart = largest_difference(single, checked.rewards(engine, size=checked.batch_size))
        return check_limit(name, apart, limit, n=len(single), note=note)

    return _own_and_fastest(checked, "batch", check)


def _own_and_fastest(
    checked: CheckedNetwork, name: str, check: Callable[[str, Engine], Check]
) -> list[Check]:
    """A check of the model's own forward, and of the engine of scans where that is another."""
    first = check(f"{name}_own", checked.scorer.own_forward)
    if isinstance(checked.fastest, OwnForward):
        return [first, Check(f"{name}_engine", note="the model's own forward is its only path")]
    return [first, check(f"{name}_engine", checked.fastest)]


def engines(checked: CheckedNetwork) -> list[Check]:
    """Every engine against the model's own forward, as the trust check before a scan does it."""
    engines = {engine.name: engine for engine in checked.scorer.engines}
    checks = []
    reason = "this layout or head is not known"
    reason = reason if checked.full is None else "attention cannot be shared"
    for engine_name, name in ENGINES.items():
        if (engine := engines.get(engine_name)) is None:
            checks.append(Check(name, note=reason))
            continue
        ways = [checked.alone(engine)]
        ways += [checked.rewards(engine, size=checked.batch_size) for _ in range(2)]
        trust = judge(checked.own_rewards, *ways, rounding=checked.rounding, dtype=checked.dtype)
        note = f"Kendall's tau with the model's own order is {trust.kendall:.3f}. Scans take a "
        note += "slower path by themselves. Please report it, with the model's name"
        limit = trust.tolerance
        checks.append(check_limit(name, trust.largest_difference, limit, n=trust.n, note=note))
    return checks


def ceiling(checked: CheckedNetwork) -> Check:
    """All rewards, by either path, against the bounds that the head has over all states."""
    bounds, rewards = checked.scorer.bounds(), np.concatenate([checked.own_rewards, checked.fast])
    if not bounds.is_bounded:
        return Check("ceiling", note=f"no bound is known: {bounds.how}")
    note = "The network's own forward does not read its reward as its weights say. Look at its "
    note += "class, or at hooks on it; please report it, with the model's name"
    share, beyond = max(abs(bounds.share(reward)) for reward in rewards), bounds.beyond(rewards)
    reached = f"At most {share:.0%} of the way to a bound" if bounds.finite else ""
    return check_limit("ceiling", beyond, 0.0, n=len(checked.fast), note=note, otherwise=reached)


@torch.no_grad()
def head(checked: CheckedNetwork) -> Check:
    """pessimal's reading of the last hidden state against the network's own output, both at batch
    1, in float32."""
    full = checked.full
    reader = None if full is None else full.decoder.head
    if full is None or not isinstance(reader, Head) or checked.is_stepped:
        return Check("head", note="the reward is the model's own output")
    rewards = []
    for row in range(len(checked.inputs)):
        ids = torch.tensor([checked.inputs.ids(row)], device=checked.scorer.device)
        final = full.decoder.backbone(input_ids=ids, use_cache=False).last_hidden_state[:, -1]
        rewards.append(reader.read(final.float(), full.context).item())
    note = f"{type(reader).__name__} is not how this model reads its reward. Scans take its own "
    note += "forward, which is slower. To add its head: docs/extend/head.md"
    limit = allowed(checked.own_rewards, dtype=checked.dtype)
    difference = largest_difference(np.array(rewards), checked.own_rewards)
    return check_limit("head", difference, limit, n=len(rewards), note=note)


def padding(checked: CheckedNetwork, *, seed: int) -> list[Check]:
    """Both sides, and where the reward is read; all by the model's own class."""
    if isinstance(checked.network, LanguageNetwork) or checked.is_stepped:
        note = "the model's own class reads no reward"
        return [Check(name, note=note) for name in (*SIDES, "pad_is_eos")]
    inputs = [checked.inputs.ids(row) for row in range(len(checked.inputs))]
    alone = np.concatenate([as_published(checked, [ids]) for ids in inputs])
    return [*_sides(checked, inputs, alone, seed=seed), _pad_is_eos(checked, alone)]


def _sides(
    checked: CheckedNetwork, inputs: Sequence[Sequence[int]], alone: np.ndarray, *, seed: int
) -> list[Check]:
    """Batches of unequal lengths, padded with an attention mask and no position ids, against batch
    1 (`alone`); where both are read at the same wrong position, this does not see it."""
    pad = checked.model.tokenizer.pad_token_id
    if pad is None:
        return [Check(name, note="the tokenizer has no pad token") for name in SIDES]
    order = np.random.default_rng(seed).permutation(len(inputs))  # lengths mixed
    limit = allowed(checked.own_rewards, rounding=checked.rounding, dtype=checked.dtype)
    checks = []
    for name in SIDES:
        rewards, problem = np.full(len(inputs), np.nan), ""
        try:
            for rows in np.split(order, range(checked.batch_size, len(order), checked.batch_size)):
                batch = [inputs[row] for row in rows]
                rewards[rows] = as_published(checked, batch, pad=pad, left=name == "padding_left")
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # what the model's own code makes of a padded batch
            reason = str(error).strip()[:200].rstrip(".")
            problem = f"It stops with {type(error).__name__}: {reason}. "
        largest, note = largest_difference(rewards, alone), problem + INSTEAD
        checks.append(check_limit(name, largest, limit, n=len(inputs), note=note))
    return checks


def _pad_is_eos(checked: CheckedNetwork, alone: np.ndarray) -> Check:
    """The reward at the last position against what the model's own class reads at batch 1
    (`alone`), on the sample and on the pad token as the response."""
    model, frame = checked.model, checked.frame
    configured = checked.network.config.get_text_config().pad_token_id
    pad = model.tokenizer.pad_token_id if configured is None else configured
    if pad is None:
        return Check("pad_is_eos", note="neither tokenizer nor configuration has a pad token")
    expected, read = checked.own_rewards, alone
    if 0 <= pad < model.embedding_rows:
        pad_response = frame_responses(frame, [[pad]])
        expected = np.append(expected, checked.scorer.own_rewards(pad_response, np.arange(1)))
        read = np.append(read, as_published(checked, [pad_response.ids(0)]))
    limit = allowed(expected, dtype=checked.dtype)
    wrong = ~(np.abs(read - expected) <= limit)
    rest = ", the pad token by itself alone" if wrong.sum() == wrong[-1] else ""
    n = len(expected)
    note = f"The model's own class reads another token's reward for {wrong.sum()} of {n} responses"
    note += f"{rest}. pessimal reads the last token. Where the model's card says otherwise, type "
    note += "model.read=own; else in code of your own network.config.pad_token_id = ID, one that "
    note += "occurs in no conversation"
    return check_limit("pad_is_eos", largest_difference(read, expected), limit, n=n, note=note)


@torch.no_grad()
def as_published(
    checked: CheckedNetwork, inputs: Sequence[Sequence[int]], *, pad: int = 0, left: bool = False
) -> np.ndarray:
    """Rewards float64 (batch,) of whole inputs, padded to one length where they are not of one, as
    any user would."""
    network, frame, length = checked.network, checked.frame, max(map(len, inputs))
    ids, mask, types = (torch.full((len(inputs), length), fill) for fill in (pad, 0, 0))
    for row, sequence in enumerate(inputs):
        start = length - len(sequence) if left else 0
        ids[row, start : start + len(sequence)] = torch.tensor(sequence)
        mask[row, start : start + len(sequence)] = 1
        types[row, start + len(frame.prefix) : start + len(sequence)] = 1
    tensors = {"input_ids": ids, "attention_mask": mask}
    if frame.typed:
        tensors["token_type_ids"] = types
    output = network(**{name: value.to(checked.scorer.device) for name, value in tensors.items()})
    rewards = rewards_in(output).double().view(len(inputs), -1)
    return rewards[:, network.reward_output].cpu().numpy()


# --- Results.


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
