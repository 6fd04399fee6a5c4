"""Checks of one network in one precision: repeats, batches, engines and the head against its own forward; and padded batches,
which a user of the Hub meets and no engine of pessimal makes.

For padding the model's own class is called as it came, its configuration untouched. A failure there is one of that class
and its tokenizer; scans are not affected, since they batch equal lengths and read the last position. Arithmetic of what
is allowed: `trust`.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from pessimal.models.frame import Frame
from pessimal.models.load import RewardModel
from pessimal.models.own_code import NativeRewardModel
from pessimal.models.spec import Dtype
from pessimal.scoring.candidates import Inputs, batches, framed
from pessimal.scoring.conformance.checks import Check, at_most, does_not_apply, largest_difference
from pessimal.scoring.engine import Engine, FullForward, OwnForward, SharedPrefix, rewards_in
from pessimal.scoring.scorer import FrameScorer
from pessimal.scoring.trust import allowed, judge

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
SIDES = {
    "padding_right": "Padding on the right leaves the rewards of the model's own class as they are.",
    "padding_left": "Padding on the left leaves the rewards of the model's own class as they are.",
}
PAD_IS_EOS = "The model's own class reads the reward at the last token, whichever that is."


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
    limit, size = allowed(checked.own, dtype=checked.dtype), checked.batch_size

    def check(name: str, engine: Engine) -> Check:
        first = checked.rewards(engine, size=size)
        again = largest_difference(checked.rewards(engine, size=size), first)
        turned = largest_difference(checked.rewards(engine, size=size, turned=True), first)
        seen = (
            "The same batch run twice differs" if again > limit else "Only the order within a batch differs"
        )
        note = (
            f"{seen}. Two scans would not give the same table. Look for dropout that stays on (network.eval()), noise or "
            "state in the model's own code, or nondeterministic GPU kernels: torch.use_deterministic_algorithms(True)"
        )
        return at_most(
            name, REPEATABLE[name], max(again, turned), limit, n=len(first), unit="reward", note=note
        )

    return _own_and_fastest(checked, REPEATABLE, check)


def batch(checked: CheckedNetwork) -> list[Check]:
    """One by one against batches of equal lengths, so without any padding."""
    limit = allowed(checked.own, dtype=checked.dtype)
    note = (
        f"A reward depends on what else is in the batch of {checked.batch_size}. In low precision that is rounding: type "
        "model.dtype=float32. In float32 the model's code mixes the inputs of a batch: score one by one, batch_size=1"
    )

    def check(name: str, engine: Engine) -> Check:
        single = checked.alone(engine)
        apart = largest_difference(single, checked.rewards(engine, size=checked.batch_size))
        return at_most(name, BATCHES[name], apart, limit, n=len(single), unit="reward", note=note)

    return _own_and_fastest(checked, BATCHES, check)


def _own_and_fastest(
    checked: CheckedNetwork, whats: dict[str, str], check: Callable[[str, Engine], Check]
) -> list[Check]:
    """A check of the model's own forward, and of the engine of scans where that is another."""
    own, fast = whats
    if isinstance(checked.fastest, OwnForward):
        why = "this model is scored by its own forward, the only path it has"
        return [check(own, checked.scorer.own), does_not_apply(fast, whats[fast], why)]
    return [check(own, checked.scorer.own), check(fast, checked.fastest)]


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


def padding(checked: CheckedNetwork, model: RewardModel, frame: Frame, *, seed: int) -> list[Check]:
    """Both sides, and where the reward is read; all by the model's own class."""
    wholes = [checked.inputs.whole(row) for row in range(len(checked.inputs))]
    alone = np.concatenate([as_published(checked.network, frame, [whole]) for whole in wholes])
    return [
        *_sides(checked, model.tokenizer, frame, wholes, alone, seed=seed),
        _pad_is_eos(checked, model, frame, alone),
    ]


def _sides(
    checked: CheckedNetwork,
    tokenizer,
    frame: Frame,
    wholes: Sequence[Sequence[int]],
    alone: np.ndarray,
    *,
    seed: int,
) -> list[Check]:
    """Batches of unequal lengths, padded with an attention mask and no position ids, against batch 1 (`alone`); where
    both are read at the same wrong position, this does not see it."""
    pad = tokenizer.pad_token_id
    if pad is None:
        return [does_not_apply(name, what, "the tokenizer has no pad token") for name, what in SIDES.items()]
    order = np.random.default_rng(seed).permutation(len(wholes))  # lengths mixed
    limit = allowed(checked.own, rounding=checked.rounding, dtype=checked.dtype)
    results = {}
    for name in SIDES:
        rewards, problem = np.full(len(wholes), np.nan), ""
        try:
            for rows in np.split(order, range(checked.batch_size, len(order), checked.batch_size)):
                chosen = [wholes[row] for row in rows]
                rewards[rows] = as_published(
                    checked.network, frame, chosen, pad=pad, left=name == "padding_left"
                )
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever the model's own code makes of a padded batch is the result
            problem = f"It stops with {type(error).__name__}: {str(error).strip()[:200].rstrip('.')}. "
        results[name] = (largest_difference(rewards, alone), problem)
    instead = _instead(checked, tokenizer, [name for name in SIDES if results[name][0] <= limit])
    return [
        at_most(
            name, what, results[name][0], limit, n=len(wholes), unit="reward", note=results[name][1] + instead
        )
        for name, what in SIDES.items()
    ]


def _pad_is_eos(checked: CheckedNetwork, model: RewardModel, frame: Frame, alone: np.ndarray) -> Check:
    """The reward at the last position against what the model's own class reads at batch 1 (`alone`), on the sample and
    on the pad token as the response."""
    configured = checked.network.config.get_text_config().pad_token_id
    pad = model.tokenizer.pad_token_id if configured is None else configured
    if pad is None:
        return does_not_apply("pad_is_eos", PAD_IS_EOS, "neither tokenizer nor configuration has a pad token")
    last, read = checked.own, alone
    if 0 <= pad < model.embedding_rows:
        pad_response = framed(frame, [[pad]])
        last = np.append(last, checked.scorer.own_rewards(pad_response, np.arange(1)))
        read = np.append(read, as_published(checked.network, frame, [pad_response.whole(0)]))
    limit = allowed(last, dtype=checked.dtype)
    wrong = ~(np.abs(read - last) <= limit)
    where = "does not occur in the template"
    if pad in frame.prefix + frame.suffix:
        where = "ends every conversation" if frame.suffix[-1:] == (pad,) else "stands inside the template"
    about_pad = f"The pad token (id {pad}) {'is' if pad == model.tokenizer.eos_token_id else 'is not'} the end token and {where}"
    note = (
        f"{about_pad}: the model's own class reads another token's reward for {wrong.sum()} of {len(last)} responses. pessimal "
        "reads the last token on every path, so its rewards are not those that this class prints. Which of the two the "
        "model was trained for, its card says. To read the last token in code of your own: "
        "network.config.pad_token_id = ID, one that occurs in no conversation, and pad with it"
    )
    if wrong.sum() == wrong[-1]:
        note = (
            f"{about_pad}: the model's own class reads another token's reward where the pad token is the response, and there "
            "only. A published score of this one token is another's; pessimal reads the last token, and there is nothing "
            "to type"
        )
    return at_most(
        "pad_is_eos",
        PAD_IS_EOS,
        largest_difference(read, last),
        limit,
        n=len(last),
        unit="reward",
        note=note,
        otherwise=f"{about_pad}.",
    )


@torch.no_grad()
def as_published(
    network: nn.Module, frame: Frame, wholes: Sequence[Sequence[int]], *, pad: int = 0, left: bool = False
) -> np.ndarray:
    """Rewards float64 (batch,) of whole inputs, padded to one length where they are not of one, as any user would."""
    length = max(map(len, wholes))
    ids, mask, types = (torch.full((len(wholes), length), fill) for fill in (pad, 0, 0))
    for row, whole in enumerate(wholes):
        start = length - len(whole) if left else 0
        ids[row, start : start + len(whole)] = torch.tensor(whole)
        mask[row, start : start + len(whole)] = 1
        types[row, start + len(frame.prefix) : start + len(whole)] = 1
    inputs = {"input_ids": ids, "attention_mask": mask} | ({"token_type_ids": types} if frame.typed else {})
    device = next(network.parameters()).device
    output = network(**{name: value.to(device) for name, value in inputs.items()})
    return rewards_in(output).double().view(len(wholes), -1)[:, network.reward_output].cpu().numpy()


def _instead(checked: CheckedNetwork, tokenizer, good: Sequence[str]) -> str:
    """What to type where padding on one side, or on both, is not to be trusted; `good` are the rows that passed."""
    configured, pad = checked.network.config.get_text_config().pad_token_id, tokenizer.pad_token_id
    advice = "pessimal never pads, so scans are not affected. In code of your own: "
    if configured != pad:
        advice += (
            f"the network's configuration has the pad id {configured} and the tokenizer pads with {pad}; type "
            "network.config.pad_token_id = tokenizer.pad_token_id, or "
        )
    if good:
        advice += f"tokenizer.padding_side = {good[0].removeprefix('padding_')!r}"
    else:
        advice += "score one by one, or batch inputs of one length"
    if isinstance(checked.network, NativeRewardModel):
        advice += (
            " (the class is pessimal's own for this head, in place of the code that the repository brings)"
        )
    return advice
