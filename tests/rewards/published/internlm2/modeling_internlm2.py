"""InternLM2's reward model: a decoder of its own, whose attention knows nothing of transformers'
interfaces, and a linear value head read at a reward token that follows the conversation."""

import torch
from torch import nn
from transformers import DynamicCache, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, SequenceClassifierOutputWithPast

from .configuration_internlm2 import InternLM2Config


class InternLM2RMSNorm(nn.Module):
    """Division by the root mean square."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.variance_epsilon = eps

    def forward(self, states):
        kind = states.dtype
        states = states.to(torch.float32)
        states = states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * states.to(kind)


class InternLM2RotaryEmbedding(nn.Module):
    """Turns states by their positions; the speeds are computed here, and are no part of a
    checkpoint."""

    def __init__(self, size, theta):
        super().__init__()
        speeds = 1.0 / theta ** (torch.arange(0, size, 2).float() / size)
        self.register_buffer("inv_freq", speeds, persistent=False)

    def forward(self, states, positions):
        angles = positions[:, None, :, None].float() * self.inv_freq
        angles = torch.cat([angles, angles], dim=-1)
        first, second = states.chunk(2, dim=-1)
        turned = torch.cat([-second, first], dim=-1)
        return states * angles.cos().to(states.dtype) + turned * angles.sin().to(states.dtype)


class InternLM2Attention(nn.Module):
    """One joint projection `wqkv`: for every key head its queries, its key, its value."""

    def __init__(self, config):
        super().__init__()
        self.groups = config.num_key_value_heads
        self.per_group = config.num_attention_heads // self.groups
        self.size = config.hidden_size // config.num_attention_heads
        self.norm_factor = torch.sqrt(torch.tensor(float(self.size)))
        heads = config.num_attention_heads + 2 * self.groups
        self.wqkv = nn.Linear(config.hidden_size, heads * self.size, bias=False)
        self.wo = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.rotary_emb = InternLM2RotaryEmbedding(self.size, config.rope_theta)

    def forward(self, states, mask, positions):
        batch, length, _ = states.shape
        joint = self.wqkv(states).view(batch, length, self.groups, self.per_group + 2, self.size)
        query = joint[..., : self.per_group, :].flatten(2, 3).transpose(1, 2)
        key, value = joint[..., -2, :].transpose(1, 2), joint[..., -1, :].transpose(1, 2)
        query, key = (self.rotary_emb(part, positions) for part in (query, key))
        key, value = (part.repeat_interleave(self.per_group, dim=1) for part in (key, value))
        scores = query @ key.transpose(2, 3) / self.norm_factor.to(states.dtype) + mask
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
        return self.wo((weights @ value).transpose(1, 2).reshape(batch, length, -1))


class InternLM2MLP(nn.Module):
    """A gated feed-forward block."""

    def __init__(self, config):
        super().__init__()
        self.w1 = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.w3 = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.w2 = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, states):
        return self.w2(nn.functional.silu(self.w1(states)) * self.w3(states))


class InternLM2DecoderLayer(nn.Module):
    """Attention and feed-forward block, each behind its norm."""

    def __init__(self, config):
        super().__init__()
        self.attention = InternLM2Attention(config)
        self.feed_forward = InternLM2MLP(config)
        self.attention_norm = InternLM2RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.ffn_norm = InternLM2RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, states, mask, positions):
        states = states + self.attention(self.attention_norm(states), mask, positions)
        return states + self.feed_forward(self.ffn_norm(states))


class InternLM2PreTrainedModel(PreTrainedModel):
    """What the two classes share."""

    config_class = InternLM2Config
    base_model_prefix = "model"
    _no_split_modules = ["InternLM2DecoderLayer"]  # noqa: RUF012

    def _init_weights(self, module):
        if isinstance(module, nn.Linear | nn.Embedding):
            module.weight.data.normal_(mean=0.0, std=0.02)


class InternLM2Model(InternLM2PreTrainedModel):
    """The decoder; its cache is made in a way that newer versions of transformers no longer
    know."""

    def __init__(self, config):
        super().__init__(config)
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            [InternLM2DecoderLayer(config) for _ in range(config.num_hidden_layers)]
        )
        self.norm = InternLM2RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_init()

    def forward(
        self, input_ids=None, attention_mask=None, position_ids=None, use_cache=None, **kwargs
    ):
        use_cache = use_cache if use_cache is not None else self.config.use_cache
        if use_cache:
            kwargs["past_key_values"] = DynamicCache.from_legacy_cache(None)
        length = input_ids.shape[1]
        states = self.tok_embeddings(input_ids)
        if position_ids is None:
            position_ids = torch.arange(length, device=input_ids.device).unsqueeze(0)
        hidden = torch.ones(length, length, dtype=torch.bool, device=input_ids.device).triu(1)[
            None, None
        ]
        if attention_mask is not None:
            hidden = hidden | ~attention_mask.bool()[:, None, None, :]
        mask = torch.zeros(hidden.shape, dtype=states.dtype, device=states.device)
        mask = mask.masked_fill(hidden, torch.finfo(states.dtype).min)
        for layer in self.layers:
            states = layer(states, mask, position_ids)
        return BaseModelOutputWithPast(last_hidden_state=self.norm(states))


class InternLM2ForRewardModel(InternLM2PreTrainedModel):
    """The value at the last real token, which is to be the reward token."""

    def __init__(self, config):
        super().__init__(config)
        self.model = InternLM2Model(config)
        self.v_head = nn.Linear(config.hidden_size, 1, bias=False)
        self.reward_token_id = config.reward_token_id
        self.post_init()

    def forward(
        self, input_ids=None, attention_mask=None, position_ids=None, use_cache=None, **kwargs
    ):
        states = self.model(input_ids, attention_mask, position_ids, use_cache)[0]
        values = self.v_head(states).squeeze(-1)
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        ends = attention_mask.cumsum(dim=1).argmax(dim=1, keepdim=True)
        return SequenceClassifierOutputWithPast(logits=torch.gather(values, dim=1, index=ends))

    @torch.no_grad()
    def get_score(self, tokenizer, conversation) -> float:
        """The reward of a conversation, a list of turns."""
        text = tokenizer.apply_chat_template(
            conversation, tokenize=False, add_generation_prompt=False
        )
        ids = tokenizer.encode(text, return_tensors="pt", add_special_tokens=False)
        ids = torch.cat([ids, torch.tensor([[self.reward_token_id]])], dim=1).to(self.device)
        return self(input_ids=ids, attention_mask=torch.ones_like(ids).bool())[0].cpu().item()
