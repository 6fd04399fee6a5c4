"""OpenAssistant's configuration, whose `model_type` transformers does not know: it is GPT-NeoX's,
and made known here."""

from transformers import AutoConfig, AutoModel, GPTNeoXConfig, GPTNeoXModel


class OpenAssistantConfig(GPTNeoXConfig):
    """GPT-NeoX's, under OpenAssistant's name."""

    model_type = "gpt_neox_reward_model"


class OpenAssistantModel(GPTNeoXModel):
    """GPT-NeoX's, for that configuration."""

    config_class = OpenAssistantConfig


AutoConfig.register(OpenAssistantConfig.model_type, OpenAssistantConfig, exist_ok=True)
AutoModel.register(OpenAssistantConfig, OpenAssistantModel, exist_ok=True)
