"""Quantised weights compute what their dequantised values do, their heads stay whole, and GGUF
files are read as written."""

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    LlamaConfig,
    LlamaForSequenceClassification,
)

from pessimal.errors import ModelError
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.log_probability import LogProbabilitySpec
from pessimal.rewards.spec import Dtype, Quantize
from pessimal.rewards.weights import (
    check_gguf,
    gguf_shapes,
    load_adapter,
    loading_options,
    read_adapter,
    settle,
)
from tiny_language_models import CHAT, checkpoint
from tolerance import close

bitsandbytes = pytest.mark.skipif(
    importlib.util.find_spec("bitsandbytes") is None,
    reason="needs bitsandbytes: pip install 'pessimal[quantised]'",
)
IDS = torch.tensor([[5, 6, 7, 8], [9, 3, 4, 2]])
BLOCKS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def rewards(network) -> torch.Tensor:
    with torch.inference_mode():
        return network.eval()(input_ids=IDS).logits


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A reward model whose layers are whole blocks of bitsandbytes' (64 weights) wide."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_labels=1,
        initializer_range=0.2,
        pad_token_id=3,
    )
    made = tmp_path_factory.mktemp("quantised") / "reward"
    LlamaForSequenceClassification(config).save_pretrained(made)
    return made


def loaded(folder: Path, quantize: Quantize | None):
    spec = HeadSpec(path=str(folder), quantize=quantize)
    config = AutoConfig.from_pretrained(folder)
    options = {"num_labels": 1, "use_safetensors": True, "dtype": torch.float32}
    options |= loading_options(spec, config, Dtype.float32)
    network = AutoModelForSequenceClassification.from_pretrained(folder, **options)
    settle(network, name="m", dtype=Dtype.float32)
    return network


def four_bits(weight: torch.Tensor, kind: str) -> torch.Tensor:
    """Each block of 64 weights over its largest, rounded to the nearest of 16 values: QLoRA
    (Dettmers et al. 2023)."""
    from bitsandbytes.functional import get_4bit_type

    values = get_4bit_type(kind, device="cpu")
    blocks = weight.reshape(-1, 64)
    largest = blocks.abs().amax(dim=1, keepdim=True)
    nearest = (blocks / largest).unsqueeze(-1).sub(values).abs().argmin(dim=-1)
    return (values[nearest] * largest).view_as(weight)


@bitsandbytes
@pytest.mark.parametrize("kind", ["nf4"])
def test_four_bits_are_the_nearest_of_sixteen_values_and_the_head_is_whole(folder, kind):
    network = loaded(folder, Quantize(kind))
    plain = loaded(folder, None)
    with torch.no_grad():
        for name, weight in plain.named_parameters():
            if name.split(".")[-2] in BLOCKS:
                weight.copy_(four_bits(weight, kind))
    assert close(rewards(network), rewards(plain))
    assert (rewards(network) - rewards(loaded(folder, None))).abs().max() > 1e-3
    assert network.score.weight.dtype is torch.float32
    torch.testing.assert_close(network.score.weight, loaded(folder, None).score.weight)


@bitsandbytes
def test_eight_bits_are_rows_over_their_largest(folder):
    network, plain = loaded(folder, Quantize.int8), loaded(folder, None)
    for name, weight in plain.named_parameters():
        if name.split(".")[-2] in BLOCKS:
            own = network.get_submodule(name.removesuffix(".weight")).weight
            largest = weight.detach().abs().amax(dim=1, keepdim=True)
            off = (own.data.float() * own.SCB[:, None] / 127 - weight).abs()
            assert (
                off / largest
            ).max() < 0.51 / 127 + 2**-11  # half a step, of weights that are float16 first
    assert network.score.weight.dtype is torch.float32
    layer = network.model.layers[0].mlp.up_proj
    inputs = torch.randn(5, 64, generator=torch.Generator().manual_seed(2)).half().float()
    largest, scales = inputs.abs().amax(dim=1, keepdim=True), layer.weight.SCB.clone()
    steps = torch.round(127 * inputs / largest) @ layer.weight.data.float().T
    with torch.inference_mode():
        found = layer(inputs)
    expected = steps * largest * scales / 127**2
    # The layer's output is float16.
    torch.testing.assert_close(found, expected, atol=2e-3, rtol=2e-3)


@bitsandbytes
def test_a_quantised_base_keeps_the_adapter_beside_its_weights(folder, tmp_path):
    from peft import LoraConfig, get_peft_model

    trained = get_peft_model(
        loaded(folder, None),
        LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=["score"]),
    )
    torch.manual_seed(1)
    for name, weight in trained.named_parameters():
        if "lora_" in name or "modules_to_save" in name:
            torch.nn.init.normal_(weight, std=0.2)
    trained.save_pretrained(tmp_path / "adapter")
    network = load_adapter(
        loaded(folder, Quantize.nf4), read_adapter(tmp_path / "adapter", name="m"), name="m"
    )
    own = trained.state_dict()
    plain = loaded(folder, None)
    with torch.no_grad():
        plain.score.weight.copy_(own["base_model.model.score.modules_to_save.default.weight"])
        for name, weight in plain.named_parameters():
            if name.split(".")[-2] in BLOCKS:
                weight.copy_(four_bits(weight, "nf4"))
            if name.endswith("q_proj.weight"):
                stem = f"base_model.model.{name.removesuffix('.weight')}"
                weight += (
                    2 * own[f"{stem}.lora_B.default.weight"] @ own[f"{stem}.lora_A.default.weight"]
                )
    assert close(rewards(network), rewards(plain))
    assert "score.weight" in network.state_dict()


def permuted(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a query or key projection in the order of GGUF files, whose rotary pairs stand beside
    one another."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def write_gguf(folder: Path, target: Path, *, eight_bits: bool = False) -> None:
    """A tiny Llama and its tokenizer as one GGUF file; its matrices as they are, or in blocks of
    eight bits (Q8_0)."""
    import gguf

    network, tokenizer = (
        AutoModelForCausalLM.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    config, backend = network.config, json.loads(tokenizer.backend_tokenizer.to_str())
    writer = gguf.GGUFWriter(target, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    tokens += [f"<unlisted_{i}>" for i in range(config.vocab_size - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    special = {token.content for token in tokenizer.added_tokens_decoder.values()}
    writer.add_token_types([3 if token in special else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in backend["model"]["merges"]])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_chat_template(tokenizer.chat_template)
    for name, weight in network.state_dict().items():
        stem, values = name.removesuffix(".weight"), weight.numpy()
        if stem.startswith("model.layers."):
            _, _, layer, own = stem.split(".", 3)
            if own.endswith(("q_proj", "k_proj")):
                heads = (
                    config.num_attention_heads
                    if own.endswith("q_proj")
                    else config.num_key_value_heads
                )
                values = permuted(values, heads)
            stem = f"blk.{layer}.{GGUF_NAMES[own]}"
        else:
            stem = {
                "model.embed_tokens": "token_embd",
                "model.norm": "output_norm",
                "lm_head": "output",
            }[stem]
        kind = gguf.GGMLQuantizationType.Q8_0 if eight_bits and values.ndim == 2 else None
        values = gguf.quants.quantize(values, kind) if kind else values
        writer.add_tensor(f"{stem}.weight", values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def language_model(tmp_path_factory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("gguf") / "llama", template=CHAT)


def from_gguf(folder: Path, file: str):
    spec = LogProbabilitySpec(path="org/name", file=file)
    check_gguf(spec, folder)
    config = AutoConfig.from_pretrained(folder, gguf_file=file)
    options = loading_options(spec, config, Dtype.float32)
    return AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=torch.float32, **options
    )


def test_a_gguf_file_is_the_network_and_the_tokenizer_it_was_written_from(language_model, tmp_path):
    write_gguf(language_model, tmp_path / "tiny.gguf")
    network, plain = (
        from_gguf(tmp_path, "tiny.gguf"),
        AutoModelForCausalLM.from_pretrained(language_model),
    )
    assert close(rewards(network), rewards(plain))
    own = AutoTokenizer.from_pretrained(tmp_path, gguf_file="tiny.gguf")
    written = AutoTokenizer.from_pretrained(language_model)
    assert own.chat_template == written.chat_template
    talk = [{"role": "user", "content": "What is the greatest thing ever?"}]
    assert own.apply_chat_template(talk, return_dict=False) == written.apply_chat_template(
        talk, return_dict=False
    )
    shapes = {name: list(weight.shape) for name, weight in plain.named_parameters()}
    assert gguf_shapes(AutoConfig.from_pretrained(tmp_path, gguf_file="tiny.gguf")) == shapes


def test_a_quantised_gguf_file_is_rounded_in_blocks_of_32(language_model, tmp_path):
    write_gguf(language_model, tmp_path / "q8.gguf", eight_bits=True)
    plain = AutoModelForCausalLM.from_pretrained(language_model)
    before = rewards(plain)
    with torch.no_grad():
        for weight in plain.parameters():
            if weight.dim() == 2:
                blocks = weight.reshape(-1, 32)
                step = blocks.abs().amax(dim=1, keepdim=True) / 127
                rounded = torch.where(step > 0, blocks / step, blocks)
                rounded = torch.trunc(
                    rounded + 0.5 * rounded.sign()
                )  # halves away from zero, as C's roundf
                weight.copy_((rounded * step.half().float()).view_as(weight))
    found = rewards(from_gguf(tmp_path, "q8.gguf"))
    assert close(found, rewards(plain))
    assert (found - before).abs().max() > 1e-3


def test_gguf_files_that_cannot_be_asked_are_refused(tmp_path, language_model):
    shutil.copytree(language_model, tmp_path / "m")
    (tmp_path / "m" / "there.gguf").touch()
    folder = str(tmp_path / "m")
    with pytest.raises(ModelError, match=r"no file 'gone\.gguf'.*there\.gguf"):
        check_gguf(LogProbabilitySpec(path="org/name", file="gone.gguf"), tmp_path / "m")
    with pytest.raises(ModelError, match=r"model\.kind=log_probability"):
        check_gguf(HeadSpec(path=folder, file="there.gguf"), tmp_path / "m")
    both = LogProbabilitySpec(path=folder, file="there.gguf", quantize=Quantize.int8)
    with pytest.raises(ModelError, match=r"model\.quantize"):
        check_gguf(both, tmp_path / "m")
