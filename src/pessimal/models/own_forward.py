"""The model's own reward: its untouched forward on whole inputs, the measure that everything else is held to."""

import torch
from torch import Tensor, nn

from pessimal.errors import ModelError


def own_rewards(network: nn.Module, ids: Tensor, types: Tensor | None = None) -> Tensor:
    """Rewards (batch,) float32 of whole inputs `ids` (batch, length) of one length, by the network's own forward.

    `types` (batch, length) are token types, for encoders that mark prompt and response by them. Hub classifiers
    read the reward at the last token that is not the pad token; inputs here have no padding, and a template may well
    end in the pad token (pad = eos), so a token that is not in the batch stands in for it meanwhile: the last
    position is read.
    """
    config = network.config.get_text_config()
    pad = config.pad_token_id
    config.pad_token_id = _absent(ids, config.vocab_size)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if types is not None:
        inputs["token_type_ids"] = types
    try:
        output = network(**inputs)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        if network.dtype is torch.float32:
            raise
        # QRM's code asks for float32 from autocast, which a CPU does not give.
        raise ModelError(
            f"the own forward of {type(network).__name__} fails in {network.dtype} on {ids.device.type}: {error}. Type "
            "model.dtype=float32; or, for a head that pessimal knows, leave out model.trust_remote_code"
        ) from error
    finally:
        config.pad_token_id = pad
    rewards = rewards_in(output)
    outputs = rewards.numel() // len(ids)
    if rewards.dim() > 2 or len(rewards) != len(ids) or network.reward_output >= outputs:
        raise ModelError(
            f"{type(network).__name__} gives a tensor of shape {tuple(rewards.shape)} for {len(ids)} inputs; a reward "
            f"model gives one number an input, or several of which model.output={network.reward_output} is the reward"
        )
    return rewards.float().view(len(ids), -1)[:, network.reward_output]


def rewards_in(output) -> Tensor:
    """GRM gives nothing else, ArmoRM and QRM call it `score`, most `logits`, the others give it first."""
    if isinstance(output, Tensor):
        return output
    named = (getattr(output, name, None) for name in ("score", "logits"))
    return next((rewards for rewards in named if rewards is not None), output[0])


def _absent(ids: Tensor, vocabulary: int) -> int:
    """An id that is not among `ids`."""
    present = set(ids.unique().tolist())
    return next(i for i in range(vocabulary + 1) if i not in present)
