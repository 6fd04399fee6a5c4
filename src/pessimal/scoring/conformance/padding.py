"""What a user of the Hub meets and no engine of pessimal does: padded batches, and a pad token that ends conversations.

Here the model's own class is called as it came, its configuration untouched. A failure is a failure of that class
and its tokenizer; scans are not affected, since they batch equal lengths and read the last position.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from pessimal.models.frame import Frame
from pessimal.models.load import RewardModel
from pessimal.models.own_code import NativeRewardModel
from pessimal.scoring.conformance.check import Check, at_most, does_not_apply, largest_difference
from pessimal.scoring.conformance.forwards import CheckedNetwork
from pessimal.scoring.conformance.sample import framed
from pessimal.scoring.engine import rewards_in
from pessimal.scoring.trust import allowed

SIDES = {
    "padding_right": "Padding on the right leaves the rewards of the model's own class as they are.",
    "padding_left": "Padding on the left leaves the rewards of the model's own class as they are.",
}
PAD_IS_EOS = "The model's own class reads the reward at the last token, whichever that is."


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
