"""Reward models a few kilobytes large, saved in folders, and their rewards by their own forward."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers.processors import TemplateProcessing
from transformers import LlamaConfig, LlamaForSequenceClassification

from pessimal.conversation import Turn
from pessimal.rewards.base import NetworkReward
from pessimal.scoring.texts import text_scorer
from tiny_language_models import CHAT, tokenizer

PROMPT, WORDS = "What is the greatest thing ever?", ("love", "war and peace", "truth")
SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}


def save(network: Any, words: Any, folder: Path) -> Any:
    """The network with random weights that spread its rewards, saved with its tokenizer."""
    torch.manual_seed(0)
    for weight in network.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.3)
    network.eval().save_pretrained(folder)
    words.save_pretrained(folder)
    return network


def save_llama(folder: Path, *, template: str | None = CHAT) -> Any:
    words = tokenizer(template=template)
    config = LlamaConfig(vocab_size=len(words), num_labels=1, pad_token_id=1, **SHAPE)
    return save(LlamaForSequenceClassification(config), words, folder)


def rename(folder: Path, name: Any, config: dict | None = None, **more: torch.Tensor) -> None:
    """Give the weights of a saved model other names; add weights, and fields of its config.json."""
    weights = {name(key): value for key, value in load_file(folder / "model.safetensors").items()}
    save_file(weights | more, folder / "model.safetensors", metadata={"format": "pt"})
    fields = json.loads((folder / "config.json").read_text()) | (config or {})
    (folder / "config.json").write_text(json.dumps(fields))


def own_rewards(network: Any, inputs: list[list[int]]) -> list[float]:
    """Rewards of whole inputs by the network's own forward, one by one and without padding."""
    with torch.no_grad():
        return [network(input_ids=torch.tensor([ids])).logits[0, 0].item() for ids in inputs]


def templated(words: Any, messages: list[dict], **options: Any) -> str:
    return words.apply_chat_template(messages, tokenize=False, **options)


def messages_to(response: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": response}]


def template_ids(words: Any, **options: Any) -> list[list[int]]:
    """Inputs for WORDS, as the chat template writes them."""
    texts = [templated(words, messages_to(word), **options) for word in WORDS]
    return [words(text, add_special_tokens=False)["input_ids"] for text in texts]


def rewards(model: NetworkReward) -> list[float]:
    """Rewards of WORDS as pessimal scores them."""
    asked = [(Turn("user", PROMPT), Turn("assistant", word)) for word in WORDS]
    return text_scorer(model, asked[:2], device=torch.device("cpu")).rewards(asked).tolist()


def encoder_tokenizer() -> Any:
    """One that puts [CLS] and [SEP] around a text, and between the texts of a pair."""
    words = tokenizer()
    words.add_special_tokens({"cls_token": "[CLS]", "sep_token": "[SEP]"})
    ids = [(token, words.convert_tokens_to_ids(token)) for token in ("[CLS]", "[SEP]")]
    words._tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=ids
    )
    words.model_input_names = ["input_ids", "attention_mask"]
    return words
