"""Other architectures: whichever path suits them, the reward is the model's own."""

import pytest
import torch
from transformers import AutoModelForSequenceClassification
from transformers.models.bert import BertConfig
from transformers.models.gemma2 import Gemma2Config
from transformers.models.gpt2 import GPT2Config
from transformers.models.mistral import MistralConfig
from transformers.models.qwen2 import Qwen2Config
from transformers.models.qwen3 import Qwen3Config

from pessimal.models.spec import Dtype
from pessimal.scoring.candidates import inputs
from pessimal.scoring.engine import own_forward
from pessimal.scoring.mode import Mode
from pessimal.scoring.scorer import FrameScorer

SMALL = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8,
}  # fmt: skip
ARCHITECTURES = {
    "qwen2": (Qwen2Config, SMALL, "shared-prefix"),
    "qwen3": (Qwen3Config, SMALL, "shared-prefix"),
    "mistral": (MistralConfig, SMALL | {"sliding_window": None}, "shared-prefix"),
    "mistral, sliding window": (MistralConfig, SMALL | {"sliding_window": 8}, "full-forward"),
    "gemma2, soft-capping": (Gemma2Config, SMALL | {"sliding_window": 16}, "full-forward"),
    "bert, an encoder": (BertConfig, SMALL, "full-forward"),
    "gpt2, another layout": (GPT2Config, {"n_embd": 32, "n_layer": 2, "n_head": 4}, "full-forward"),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_reward_is_the_models_own(model, frame, words, name):
    kind, sizes, path = ARCHITECTURES[name]
    torch.manual_seed(0)
    config = kind(
        **sizes, vocab_size=model.embedding_rows, num_labels=1, pad_token_id=3, initializer_range=0.3
    )
    network = AutoModelForSequenceClassification.from_config(config).eval().requires_grad_(False)
    scorer = FrameScorer(network, frame, torch.device("cpu"))
    scorer.establish_trust(inputs(model.tokenizer, frame, words, Mode.ids), dtype=Dtype.float32)
    assert scorer.attention == path
    assert scorer.trust.holds
    ids = torch.arange(5, 60).unsqueeze(1)
    with torch.inference_mode():
        own = own_forward(network, torch.tensor([frame.around(row) for row in ids.tolist()]))
    assert own.std() > 1e-2
    assert (scorer.rewards(ids) - own).abs().max() < 1e-4 * own.std()
