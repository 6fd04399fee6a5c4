"""InternLM2's configuration, of a model type of its own."""

from transformers import PretrainedConfig


class InternLM2Config(PretrainedConfig):
    """Sizes of the decoder, and the token at which the reward is read."""

    model_type = "internlm2"

    def __init__(
        self,
        vocab_size=103168,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=None,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
        use_cache=True,
        reward_token_id=92527,
        **kwargs,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = num_key_value_heads or num_attention_heads
        self.rms_norm_eps = rms_norm_eps
        self.rope_theta = rope_theta
        self.use_cache = use_cache
        self.reward_token_id = reward_token_id
        super().__init__(**kwargs)
