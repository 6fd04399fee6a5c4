"""A reward model is read whatever its weights are called; what cannot be read is named by what it
holds."""

import pytest
import torch
from safetensors.torch import save_file
from transformers import (
    Gemma3Config,
    Gemma3ForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    MixtralConfig,
    MixtralForSequenceClassification,
    OPTConfig,
    OPTForSequenceClassification,
)

import pessimal
from pessimal.errors import ModelError
from tiny_language_models import CHAT, tokenizer
from tiny_reward_models import SHAPE, own_rewards, rename, rewards, save, save_llama, template_ids


def deepspeed_chat(name: str) -> str:
    return name.replace("model.", "rwtranrsformer.", 1).replace("score.", "v_head.")


def trl(name: str) -> str:
    return name.replace("score.", "v_head.summary.")


def starling(name: str) -> str:
    return name.replace("model.", "transformer.", 1).replace("score.", "v_head.")


NAMES = {
    "stock": str,
    "module": "module.{}".format,
    "compiled and distributed": "_orig_mod.module.{}".format,
    "merged by halves": "base_model.model.{}".format,
    "another backbone": lambda name: name.replace("model.", "transformer.", 1),
    "without a backbone": lambda name: name.removeprefix("model."),
    "DeepSpeed-Chat": deepspeed_chat,
    "TRL": trl,
    "Starling": starling,
    "OpenRLHF of old": lambda name: name.replace("score.", "value_head."),
}


def opt(folder):
    words = tokenizer(template=CHAT)
    config = OPTConfig(
        vocab_size=len(words),
        hidden_size=32,
        word_embed_proj_dim=32,
        ffn_dim=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=256,
        num_labels=1,
        pad_token_id=1,
    )
    return save(OPTForSequenceClassification(config), words, folder)


def mixtral(folder):
    """Experts, which the file has one by one and the network as one."""
    words = tokenizer(template=CHAT)
    shape = SHAPE | {"vocab_size": len(words), "num_key_value_heads": 2, "num_local_experts": 4}
    config = MixtralConfig(num_labels=1, pad_token_id=1, **shape)
    return save(MixtralForSequenceClassification(config), words, folder)


def gemma3(folder):
    """The class with a vision part, whose folder has other names than the network."""
    words = tokenizer(template=CHAT)
    text = SHAPE | {"vocab_size": len(words), "head_dim": 8, "num_key_value_heads": 2}
    vision = {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 16}
    vision |= {"num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    config = Gemma3Config(
        text_config=text | {"pad_token_id": 1},
        vision_config=vision,
        num_labels=1,
        mm_tokens_per_image=1,
    )
    return save(Gemma3ForSequenceClassification(config), words, folder)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        *((save_llama, names) for names in NAMES),
        *((make, names) for make in (opt, mixtral) for names in ("module", "DeepSpeed-Chat")),
    ],
)
def test_weights_are_read_whatever_they_are_called(tmp_path, make, names):
    network = make(tmp_path)
    rename(tmp_path, NAMES[names])
    right = own_rewards(network, template_ids(tokenizer(template=CHAT)))
    assert rewards(pessimal.load(str(tmp_path))) == pytest.approx(right, abs=1e-4)


@pytest.mark.parametrize("names", ["stock"])
def test_what_transformers_reads_whole_is_read(tmp_path, names):
    network = gemma3(tmp_path)
    rename(tmp_path, NAMES[names])
    right = own_rewards(network, template_ids(tokenizer(template=CHAT)))
    assert rewards(pessimal.load(str(tmp_path))) == pytest.approx(right, abs=1e-4)


def test_a_head_that_the_configuration_names_is_read_and_its_bias_added(tmp_path):
    network = save_llama(tmp_path)
    right = own_rewards(network, template_ids(tokenizer(template=CHAT)))
    rename(tmp_path, lambda name: name.replace("score.", "value_head."), None)
    rename(tmp_path, str, None, **{"value_head.bias": torch.tensor([1.5])})
    assert rewards(pessimal.load(str(tmp_path))) == pytest.approx(
        [r + 1.5 for r in right], abs=1e-4
    )
    odd = {"value_head_prefix": "prize"}
    rename(tmp_path, lambda name: name.replace("value_head.", "prize."), odd)
    assert rewards(pessimal.load(str(tmp_path))) == pytest.approx(
        [r + 1.5 for r in right], abs=1e-4
    )


def test_an_unknown_head_is_named_and_code_offered_where_there_is_some(tmp_path):
    save_llama(tmp_path)
    rename(tmp_path, lambda name: name.replace("score.", "prize."))
    with pytest.raises(ModelError, match="prize") as error:
        pessimal.load(str(tmp_path)).network()
    assert "trust_remote_code" not in str(error.value)
    (tmp_path / "modeling_prize.py").write_text("")
    with pytest.raises(ModelError, match="trust_remote_code"):
        pessimal.load(str(tmp_path)).network()


def adapted(folder, targets, *, head: bool = False):
    """A base, and an adapter with random weights; gives the network that was trained, and the
    adapter's weights by name."""
    peft = pytest.importorskip("peft")
    words = tokenizer(template=CHAT)
    shape = SHAPE | {"vocab_size": len(words), "pad_token_id": 1}
    base = save(LlamaForCausalLM(LlamaConfig(**shape)), words, folder / "base")
    network = LlamaForSequenceClassification(LlamaConfig(num_labels=1, **shape))
    network.load_state_dict(base.state_dict(), strict=False)
    torch.nn.init.normal_(network.score.weight, std=0.3)
    # Without a task_type PEFT adds no head of its own accord.
    config = peft.LoraConfig(r=2, target_modules=targets, base_model_name_or_path=None)
    config.modules_to_save = ["score"] if head else None
    trained = peft.get_peft_model(network, config)
    for name, weight in trained.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.3)
    trained.save_pretrained(folder / "adapter")
    return trained.eval(), folder / "adapter" / "adapter_model.safetensors"


def test_an_adapter_of_old_with_a_change_to_its_head_is_read(tmp_path):
    trained, file = adapted(tmp_path, ["q_proj", "score"])
    weights = {
        name.replace(".default", ""): weight.clone()
        for name, weight in trained.state_dict().items()
        if "lora_" in name or "score.base_layer" in name
    }
    save_file(weights, file)
    right = own_rewards(trained, template_ids(tokenizer(template=CHAT)))
    model = pessimal.load(str(tmp_path / "base"), adapter=str(file.parent))
    assert rewards(model) == pytest.approx(right, abs=1e-4)
    config = file.parent / "adapter_config.json"
    config.write_text(
        config.read_text().replace('"modules_to_save": null', '"modules_to_save": ["score"]')
    )
    assert '["score"]' in config.read_text()
    model = pessimal.load(str(tmp_path / "base"), adapter=str(file.parent))
    assert rewards(model) == pytest.approx(right, abs=1e-4)
