"""GRM's class: a causal language model's body with a small network, the value head, at the last
token."""

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel


class ValueHead(nn.Module):
    """A linear layer, or linear layers with a ReLU between them, behind a dropout."""

    def __init__(self, config):
        super().__init__()
        self.dropout = nn.Dropout(getattr(config, "summary_dropout_prob", 0.1))
        width = config.hidden_size
        if getattr(config, "vhead_layer_type", "mlp") == "linear":
            self.summary = nn.Linear(width, 1)
            return
        layers = []
        for _ in range(getattr(config, "vhead_num_layers", 1)):
            layers += [nn.Linear(width, config.vhead_num_neurons), nn.ReLU()]
            width = config.vhead_num_neurons
        self.summary = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, states):
        kind = next(self.summary.parameters()).dtype
        return self.summary(self.dropout(states).to(kind))


class GRewardModel(PreTrainedModel):
    """The reward is what the forward gives, one number an input, in no wrapping."""

    config_class = AutoConfig
    _no_split_modules = []  # noqa: RUF012

    def __init__(self, config):
        super().__init__(config)
        self.model = AutoModelForCausalLM.from_config(config).model
        self.v_head = ValueHead(self.model.config)

    def forward(self, input_ids=None, attention_mask=None, past_key_values=None, **kwargs):
        kwargs["output_hidden_states"] = True
        output = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            **kwargs,
        )
        values = self.v_head(output.hidden_states[-1]).squeeze(-1)
        last = attention_mask.sum(dim=-1) - 1
        if (attention_mask[:, 0] == 0).any():  # padded on the left
            last = torch.full_like(last, attention_mask.shape[1] - 1)
        return values[torch.arange(len(values)), last]
