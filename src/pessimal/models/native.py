"""Reward models whose class transformers does not have, put together from its backbone and the published head.

ArmoRM, QRM and GRM came with Python code of their own, written against older versions of transformers. Their weights
are all that is needed: the backbone is a stock Llama or Gemma, the head is in `models/heads`. So nothing that a
repository brings along is executed.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import AutoModel, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from pessimal.models.heads import Head, Shapes


class NativeRewardModel(PreTrainedModel):
    """A backbone and the modules of one head, under the names that the published checkpoint has."""

    base_model_prefix = "model"
    _supports_attention_backend = True
    _supports_sdpa = True

    def __init__(self, config, *, head: type[Head], shapes: Shapes, assistant_opening: Sequence[int] = ()):
        super().__init__(config)
        self.model = AutoModel.from_config(config)
        for name, module in head.modules(shapes, config).items():
            setattr(self, name, module)
        self.assistant_opening = tuple(assistant_opening)
        self._head = head
        self.post_init()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_
    ) -> SequenceClassifierOutput:
        """Rewards as `logits` (batch, 1); inputs of several lengths are padded, on either side, and masked."""
        head = self._head(self).to(input_ids.device)
        states = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state.float()
        seen = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        rewards = []
        for ids, own_states, mask in zip(input_ids, states, seen.bool(), strict=True):
            context = head.context(own_states[mask], ids[mask].tolist())
            rewards.append(head.read(own_states[mask][-1:], context))
        return SequenceClassifierOutput(logits=torch.stack(rewards))


def native_class(config) -> type[NativeRewardModel]:
    """`NativeRewardModel` with the attention that the configuration's backbone can run."""
    backbone = AutoModel._model_mapping[type(config)]
    return type(
        "NativeRewardModel",
        (NativeRewardModel,),
        {
            "config_class": type(config),
            "_supports_sdpa": backbone._supports_sdpa,
            "_no_split_modules": backbone._no_split_modules,
        },
    )
