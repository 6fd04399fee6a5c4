"""Checks of one network in one precision: repeats, batches, engines and the head against its own forward.

Arithmetic of what is allowed: `trust`. Padding, which no engine uses, is next door.
"""

import functools
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from pessimal.models.frame import Frame
from pessimal.models.spec import Dtype
from pessimal.scoring.candidates import Inputs, batches
from pessimal.scoring.conformance.check import Check, at_most, does_not_apply, largest_difference
from pessimal.scoring.engine import Engine, FullForward, OwnForward, SharedPrefix
from pessimal.scoring.scorer import FrameScorer
from pessimal.scoring.trust import allowed, judge

_NO_ENGINE = "this model is scored by its own forward, the only path it has"
REPEATABLE = {
    "determinism_own": "Run twice, and in another order, the model's own forward gives the same rewards.",
    "determinism_engine": "Run twice, and in another order, the engine of scans gives the same rewards.",
}
BATCHES = {
    "batch_own": "One by one and in batches, the model's own forward gives the same rewards.",
    "batch_engine": "One by one and in batches, the engine of scans gives the same rewards.",
}
ENGINES = {
    SharedPrefix.name: ("shared_prefix", "Running the prompt only once gives the model's own rewards."),
    FullForward.name: (
        "full_forward",
        "Whole inputs, final norm and head in float32, give the model's own rewards.",
    ),
}
HEAD = "The head, as pessimal reads it, gives the model's own reward."


@dataclass(frozen=True)
class CheckedNetwork:
    """A network in a frame, and the rewards that the others are held to."""

    network: nn.Module
    scorer: FrameScorer
    inputs: Inputs
    dtype: Dtype
    batch_size: int
    own: np.ndarray
    """Rewards float64 (n,) by the model's own forward, one by one."""
    fast: np.ndarray
    """Rewards float64 (n,) by the engine that a scan would take, in batches."""
    _alone: dict[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(
        cls, network: nn.Module, frame: Frame, inputs: Inputs, *, dtype: Dtype, batch_size: int
    ) -> "CheckedNetwork":
        """`network` must be on its device already."""
        scorer = FrameScorer(network, frame, device=next(network.parameters()).device)
        rows = np.arange(len(inputs))
        return cls(
            network=network,
            scorer=scorer,
            inputs=inputs,
            dtype=dtype,
            batch_size=batch_size,
            own=scorer.own_rewards(inputs, rows),
            fast=scorer.score_rows(inputs, rows, batch_size=batch_size),
        )

    @property
    def sound(self) -> bool:
        """Whether all rewards are numbers."""
        return bool(np.isfinite(self.own).all() and np.isfinite(self.fast).all())

    @property
    def fastest(self) -> Engine:
        """The engine that a scan would take."""
        return self.scorer.engines[0]

    def alone(self, engine: Engine) -> np.ndarray:
        """Rewards float64 (n,) by one engine, one by one; computed once."""
        if engine is self.scorer.own:
            return self.own
        if engine.name not in self._alone:
            self._alone[engine.name] = self.rewards(engine, size=1)
        return self._alone[engine.name]

    def rewards(self, engine: Engine, *, size: int, turned: bool = False) -> np.ndarray:
        """Rewards float64 (n,) by one engine in batches of `size`; `turned` moves every response on by one row."""
        plan = batches(self.inputs, size=size)
        return self.scorer.rewards_by(
            engine, self.inputs, (np.roll(rows, 1) for rows in plan) if turned else plan
        )

    @functools.cached_property
    def rounding(self) -> float:
        """By how much full forwards differ from `own`: the noise that low precision brings along."""
        full = next((e for e in self.scorer.engines if e.name == FullForward.name), self.scorer.own)
        return max(
            largest_difference(self.alone(full), self.own),
            largest_difference(self.rewards(self.scorer.own, size=self.batch_size), self.own),
        )


def finite(checked: CheckedNetwork) -> Check:
    """Whether all rewards are numbers; nothing else can be checked where they are not."""
    bad = int((~np.isfinite(checked.own) | ~np.isfinite(checked.fast)).sum())
    return at_most(
        "finite",
        "Every reward is a number.",
        bad,
        0,
        n=len(checked.own),
        unit="responses",
        note=f"In {checked.dtype.value} these rewards overflow or are undefined, so a scan would stop. The dtype rows say "
        f"which precision gives numbers: try model.dtype={'bfloat16' if checked.dtype is Dtype.float16 else 'float32'}. "
        "If none does, the weights are damaged.",
    )


def determinism(checked: CheckedNetwork) -> list[Check]:
    """The same batch twice, and with its responses in another order."""
    note = (
        "Two scans would not give the same table. Look for dropout that stays on (network.eval()), noise or state in "
        "the model's own code, or nondeterministic GPU kernels: torch.use_deterministic_algorithms(True)"
    )
    limit, size = allowed(checked.own, dtype=checked.dtype), checked.batch_size
    checks = []
    for name, engine in _own_and_fastest(checked, REPEATABLE):
        if engine is None:
            checks.append(does_not_apply(name, REPEATABLE[name], _NO_ENGINE))
            continue
        first = checked.rewards(engine, size=size)
        again = largest_difference(checked.rewards(engine, size=size), first)
        turned = largest_difference(checked.rewards(engine, size=size, turned=True), first)
        checks.append(
            at_most(
                name,
                REPEATABLE[name],
                max(again, turned),
                limit,
                n=len(first),
                unit="reward",
                note=f"{'The same batch run twice differs' if again > limit else 'Only the order within a batch differs'}. {note}",
            )
        )
    return checks


def batch(checked: CheckedNetwork) -> list[Check]:
    """One by one against batches of equal lengths, so without any padding."""
    note = (
        f"A reward depends on what else is in the batch of {checked.batch_size}. In low precision that is rounding: type "
        "model.dtype=float32. In float32 the model's code mixes the inputs of a batch: score one by one, batch_size=1"
    )
    limit = allowed(checked.own, dtype=checked.dtype)
    checks = []
    for name, engine in _own_and_fastest(checked, BATCHES):
        if engine is None:
            checks.append(does_not_apply(name, BATCHES[name], _NO_ENGINE))
            continue
        single = checked.alone(engine)
        apart = largest_difference(single, checked.rewards(engine, size=checked.batch_size))
        checks.append(at_most(name, BATCHES[name], apart, limit, n=len(single), unit="reward", note=note))
    return checks


def engines(checked: CheckedNetwork) -> list[Check]:
    """Every engine against the model's own forward, as the trust check before a scan does it."""
    there = {engine.name: engine for engine in checked.scorer.engines}
    rounding = checked.rounding
    checks = []
    for engine_name, (name, what) in ENGINES.items():
        if engine_name not in there:
            why = (
                "attention of this kind cannot be shared" if FullForward.name in there else "pessimal does not know"
                " this layout or head: whole inputs go through the model's own forward"
            )  # fmt: skip
            checks.append(does_not_apply(name, what, why))
            continue
        engine = there[engine_name]
        single = checked.alone(engine)
        batched, repeated = (checked.rewards(engine, size=checked.batch_size) for _ in range(2))
        trust = judge(checked.own, single, batched, repeated, rounding=rounding, dtype=checked.dtype)
        checks.append(
            at_most(
                name,
                what,
                trust.largest_difference,
                trust.tolerance,
                n=trust.n,
                unit="reward",
                note=f"Kendall's tau with the model's own order is {trust.kendall:.3f}. Scans notice this and take a "
                "slower path by themselves; there is nothing to type. Please report it, with the model's name.",
            )
        )
    return checks


def head(checked: CheckedNetwork) -> Check:
    """pessimal's reading of the last hidden state against the network's own output, both at batch 1, in float32."""
    full = next((e for e in checked.scorer.engines if isinstance(e, FullForward)), None)
    if full is None:
        return does_not_apply("head", HEAD, "the reward is the model's own output")
    read = []
    with torch.no_grad():
        for row in range(len(checked.inputs)):
            ids = torch.tensor([checked.inputs.whole(row)], device=checked.scorer.device)
            final = full.decoder.backbone(input_ids=ids, use_cache=False).last_hidden_state[:, -1]
            read.append(full.decoder.head.read(final.float(), full.context).item())
    return at_most(
        "head",
        HEAD,
        largest_difference(np.array(read), checked.own),
        allowed(checked.own, dtype=checked.dtype),
        n=len(read),
        unit="reward",
        note=f"{type(full.decoder.head).__name__} is not how this model reads its reward, or model.output names another "
        "output. Scans notice and take the model's own forward, which is slower. To add its head: "
        "src/pessimal/models/heads/README.md",
    )


def _own_and_fastest(checked: CheckedNetwork, names) -> list[tuple[str, Engine | None]]:
    own, fast = names
    other = None if isinstance(checked.fastest, OwnForward) else checked.fastest
    return [(own, checked.scorer.own), (fast, other)]
