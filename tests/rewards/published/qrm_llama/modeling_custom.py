"""QRM's class over a Llama: every objective by its quantiles, mixed by a gate that reads the end of
the prompt."""

from dataclasses import dataclass

import torch
from torch import nn
from transformers import LlamaModel, LlamaPreTrainedModel
from transformers.models.llama.modeling_llama import LLAMA_INPUTS_DOCSTRING
from transformers.utils import ModelOutput, add_start_docstrings_to_model_forward

PROMPT_END = []  # ids of "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"; each checkpoint has its own


def find_prompt_end(ids: list[int]) -> int:
    """Where the pattern begins for the last time."""
    length = len(PROMPT_END)
    for start in reversed(range(len(ids) - length + 1)):
        if ids[start : start + length] == PROMPT_END:
            return start
    raise ValueError("the pattern that ends the prompt was not found")


class GatingNetwork(nn.Module):
    """Triples of a linear layer without bias, ReLU and batch norm, a last linear layer, softmax,
    and a scale."""

    def __init__(self, inputs, outputs, temperature, hidden_dim, n_hidden, logit_scale=1.0):
        super().__init__()
        self.temperature = temperature
        self.logit_scale = nn.Parameter(torch.ones(1) * logit_scale)
        self.layers = nn.ModuleList()
        for _ in range(n_hidden):
            self.layers.extend(
                [nn.Linear(inputs, hidden_dim, bias=False), nn.ReLU(), nn.BatchNorm1d(hidden_dim)]
            )
            inputs = hidden_dim
        self.layers.append(nn.Linear(inputs, outputs))

    def forward(self, states):
        for layer in self.layers:
            states = layer(states)
        return torch.softmax(states / self.temperature, dim=1) * self.logit_scale[0]


@dataclass
class QuantileOutput(ModelOutput):
    """What the forward gives."""

    reward_quantiles: torch.FloatTensor | None = None
    rewards: torch.FloatTensor | None = None
    gating_output: torch.FloatTensor | None = None
    score: torch.FloatTensor | None = None
    logits: torch.FloatTensor | None = None


class LlamaForRewardModelWithGating31(LlamaPreTrainedModel):
    """A Llama with the quantile head; the reward is `score` (batch, 1)."""

    def __init__(self, config):
        super().__init__(config)
        settings = config.to_dict()
        self.num_objectives = settings.get("num_objectives", 19)
        self.num_quantiles = config.num_quantiles
        self.model = LlamaModel(config)
        self.regression_layer = nn.Linear(
            config.hidden_size, self.num_quantiles * self.num_objectives, bias=False
        )
        self.post_init()
        self.reward_transform_matrix = nn.Parameter(
            torch.eye(self.num_objectives), requires_grad=False
        )
        self.gating = GatingNetwork(
            config.hidden_size,
            self.num_objectives,
            temperature=settings.get("gating_temperature", 10),
            hidden_dim=settings.get("gating_hidden_dim", 1024),
            n_hidden=settings.get("gating_n_hidden", 3),
        )

    @add_start_docstrings_to_model_forward(LLAMA_INPUTS_DOCSTRING)
    def forward(self, input_ids=None, attention_mask=None, position_ids=None, return_dict=None):
        return_dict = return_dict if return_dict is not None else self.config.use_return_dict
        states = self.model(
            input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            return_dict=return_dict,
        )[0]
        batch, length = input_ids.shape
        if self.config.pad_token_id is None and batch > 1:
            raise ValueError("no padding token, so one input at a time")
        last = -1
        if self.config.pad_token_id is not None:
            last = (torch.eq(input_ids, self.config.pad_token_id).int().argmax(-1) - 1) % length
        rows = torch.arange(batch, device=states.device)
        final = states[rows, last]
        prompt = states[rows, [find_prompt_end(ids) for ids in input_ids.tolist()]]
        with torch.autocast(device_type=states.device.type, dtype=torch.float32):
            quantiles = self.regression_layer(final.float()).reshape(
                batch, self.num_objectives, self.num_quantiles
            )
            gate = self.gating(prompt.float())
            rewards = quantiles.float().mean(dim=2) @ self.reward_transform_matrix
            score = torch.sum(gate * rewards, dim=1, keepdim=True)
        return QuantileOutput(
            reward_quantiles=quantiles,
            rewards=rewards,
            gating_output=gate,
            score=score,
            logits=score,
        )
