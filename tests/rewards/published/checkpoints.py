"""Tiny random checkpoint folders of every published head, and the rewards that the published
classes give.

The classes are built here directly and their weights written out, so what they say does not depend
on any loading.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    Gemma2Config,
    LlamaConfig,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from pessimal.rewards.checkpoint_files import patch_older_names
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.obtain import open_model
from pessimal.rewards.reward_model import RewardModel
from pessimal.rewards.spec import Dtype
from published import vocabularies

HERE = Path(__file__).parent
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
ENCODER = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
GATED = {
    "num_objectives": 5,
    "gating_temperature": 1.5,
    "gating_hidden_dim": 12,
    "gating_n_hidden": 2,
}
# Tight enough to matter; two of Gemma 2's peculiarities.
GEMMA = {
    "head_dim": 8,
    "query_pre_attn_scalar": 8,
    "attn_logit_softcapping": 1.5,
    "sliding_window": 7,
}
LLAMA_OPENING = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
GEMMA_OPENING = "<end_of_turn>\n<start_of_turn>model\n"


@dataclass(frozen=True)
class Published:
    """A checkpoint folder, and the published class with the same weights."""

    folder: Path
    tokenizer: PreTrainedTokenizerFast
    network: nn.Module
    reward_of: Callable[[object], Tensor]
    """The reward in what the class's forward gives, at batch 1."""
    output: int | None = None
    """`model.output`, where the head has several."""

    @torch.inference_mode()
    def reward(self, ids: Sequence[int], **inputs: Tensor) -> float:
        """The published class's reward of one whole input, without padding."""
        whole = torch.tensor([ids])
        output = self.network(input_ids=whole, attention_mask=torch.ones_like(whole), **inputs)
        return float(self.reward_of(output).reshape(()))


def armorm(folder: Path) -> Published:
    tokenizer = vocabularies.llama3()
    config = LlamaConfig(**SIZES, **GATED, **vocabulary(tokenizer))
    return gated(
        folder, config, tokenizer, "armorm", "LlamaForRewardModelWithGating", LLAMA_OPENING
    )


def qrm_llama(folder: Path) -> Published:
    tokenizer = vocabularies.llama3()
    config = LlamaConfig(**SIZES, **GATED, num_quantiles=3, **vocabulary(tokenizer))
    return gated(
        folder, config, tokenizer, "qrm_llama", "LlamaForRewardModelWithGating31", LLAMA_OPENING
    )


def qrm_gemma(folder: Path) -> Published:
    tokenizer = vocabularies.gemma()
    config = Gemma2Config(**SIZES, **GEMMA, **GATED, num_quantiles=3, **vocabulary(tokenizer))
    config._attn_implementation = "eager"  # else transformers before 5.21 leaves soft-capping out
    return gated(
        folder, config, tokenizer, "qrm_llama", "Gemma2ForRewardModelWithGating31", GEMMA_OPENING
    )


def grm(folder: Path) -> Published:
    """The value head as a network of two layers."""
    return with_value_head(folder, vhead_layer_type="mlp", vhead_num_layers=1, vhead_num_neurons=24)


def grm_linear(folder: Path) -> Published:
    """The value head as one linear layer."""
    return with_value_head(folder, vhead_layer_type="linear")


def urm(folder: Path) -> Published:
    """Five attributes, of which the first is the reward; transformers' own class."""
    tokenizer = vocabularies.llama3()
    config = LlamaConfig(**SIZES, num_labels=5, **vocabulary(tokenizer))
    network = written(folder, LlamaForSequenceClassification(config), tokenizer)
    return Published(folder, tokenizer, network, lambda output: output.logits[:, 0], output=0)


def internlm2(folder: Path) -> Published:
    copy_code(folder, "internlm2")
    tokenizer = vocabularies.internlm()
    prepared = vocabulary(tokenizer) | {
        "reward_token_id": tokenizer.convert_tokens_to_ids("<reward>")
    }
    config = published_class(folder, "configuration_internlm2.InternLM2Config")(**SIZES, **prepared)
    network = published_class(folder, "modeling_internlm2.InternLM2ForRewardModel")(config)
    auto_map = {
        "AutoConfig": "configuration_internlm2.InternLM2Config",
        "AutoModel": "modeling_internlm2.InternLM2ForRewardModel",
    }
    network = written(folder, network, tokenizer, auto_map)
    network.config.use_cache = False  # or the class fails with the transformers that we have
    return Published(folder, tokenizer, network, lambda output: output[0])


def bert(folder: Path) -> Published:
    """An encoder that distinguishes prompt and response by token types."""
    tokenizer = vocabularies.bert()
    config = BertConfig(**ENCODER, num_labels=1, **vocabulary(tokenizer))
    network = written(folder, BertForSequenceClassification(config), tokenizer)
    return Published(folder, tokenizer, network, lambda output: output.logits)


def deberta(folder: Path) -> Published:
    """An encoder without token types, as OpenAssistant's reward models are."""
    tokenizer = vocabularies.deberta()
    config = DebertaV2Config(
        **ENCODER,
        num_labels=1,
        type_vocab_size=0,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        max_relative_positions=32,
        pooler_hidden_size=32,
        **vocabulary(tokenizer),
    )
    network = written(folder, DebertaV2ForSequenceClassification(config), tokenizer)
    return Published(folder, tokenizer, network, lambda output: output.logits)


def opened(checkpoint: Published, way: str, dtype: Dtype = Dtype.float32) -> RewardModel:
    """The checkpoint as pessimal opens it, `native` or with its `own code`."""
    spec = HeadSpec(
        path=str(checkpoint.folder),
        dtype=dtype,
        output=checkpoint.output,
        trust_remote_code=way == "own code",
    )
    return open_model(spec, checkpoint.folder)


CHECKPOINTS = {
    make.__name__: make
    for make in (armorm, qrm_llama, qrm_gemma, grm, grm_linear, urm, internlm2, bert, deberta)
}


def gated(folder: Path, config, tokenizer, kind: str, name: str, opening: str) -> Published:
    """A checkpoint whose code has this tokenizer's ids for the end of the prompt written in, as
    published code has."""
    copy_code(folder, kind)
    code = folder / "modeling_custom.py"
    pattern = tokenizer.encode(opening, add_special_tokens=False)
    text = code.read_text().replace("PROMPT_END = []", f"PROMPT_END = {pattern}")
    if name.startswith("Gemma2"):  # QRM's two classes differ in nothing but their backbone
        for llama, gemma in (("Llama", "Gemma2"), ("llama", "gemma2"), ("LLAMA", "GEMMA2")):
            text = text.replace(llama, gemma)
    code.write_text(text)
    network = published_class(folder, f"modeling_custom.{name}")(config)
    auto_map = {"AutoModelForSequenceClassification": f"modeling_custom.{name}"}
    return Published(
        folder,
        tokenizer,
        written(folder, network, tokenizer, auto_map),
        lambda output: output.score,
    )


def with_value_head(folder: Path, **head) -> Published:
    copy_code(folder, "grm")
    tokenizer = vocabularies.llama3()
    name = "modeling_grm.GRewardModel"
    network = published_class(folder, name)(LlamaConfig(**SIZES, **head, **vocabulary(tokenizer)))
    network = written(folder, network, tokenizer, {"AutoModelForSequenceClassification": name})
    return Published(folder, tokenizer, network, lambda output: output)


def copy_code(folder: Path, kind: str) -> None:
    shutil.copytree(
        HERE / kind, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )


def published_class(folder: Path, name: str) -> type:
    with patch_older_names():
        return get_class_from_dynamic_module(name, folder)


def vocabulary(tokenizer) -> dict[str, int | None]:
    """What a configuration takes over from its tokenizer."""
    return {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }


@torch.no_grad()
def written(
    folder: Path, network: nn.Module, tokenizer, auto_map: dict[str, str] | None = None
) -> nn.Module:
    """Give the network weights whose rewards vary, and write weights, configuration and tokenizer
    as published."""
    spread = torch.Generator().manual_seed(0)
    for name, weight in network.named_parameters():
        noise = torch.randn(weight.shape, generator=spread)
        if name == "gating.logit_scale":
            weight.fill_(1.7)
        elif name == "reward_transform_matrix" or (name.endswith("weight") and weight.dim() == 1):
            weight.add_(
                0.2 * noise
            )  # the identity and the norms, some way off what they begin with
        else:
            weight.copy_((0.3 if weight.dim() == 2 else 0.2) * noise)
    for name, buffer in network.named_buffers():
        if name.endswith("running_mean"):
            buffer.copy_(0.5 * torch.randn(buffer.shape, generator=spread))
        if name.endswith("running_var"):
            buffer.copy_(0.5 + 1.5 * torch.rand(buffer.shape, generator=spread))
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: w.contiguous() for name, w in network.state_dict().items()},
        folder / "model.safetensors",
    )
    config = network.config.to_dict() | {"architectures": [type(network).__name__]}
    if auto_map:
        config["auto_map"] = auto_map
    (folder / "config.json").write_text(json.dumps(config, default=str))
    tokenizer.save_pretrained(folder)
    return network.eval().requires_grad_(False)
