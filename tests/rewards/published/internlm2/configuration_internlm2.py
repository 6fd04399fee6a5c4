"""InternLM2's configuration, of a model type of its own."""

from transformers import PretrainedConfig


class InternLM2Config(PretrainedConfig):
    """Sizes of the decoder, and the token at which the reward is read."""

    model_type = "internlm2"

    def __init__(
        self, rms_norm_eps=1e-6, rope_theta=10000.0, use_cache=True, reward_token_id=92527, **kwargs
    ):
        self.rms_norm_eps = rms_norm_eps
        self.rope_theta = rope_theta
        self.use_cache = use_cache
        self.reward_token_id = reward_token_id
        super().__init__(**kwargs)  # which keeps the sizes
