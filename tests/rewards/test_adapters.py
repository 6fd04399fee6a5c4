"""Adapters: what they make of a base is what their formula says, and one that lost its head is
refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, LlamaForCausalLM

import pessimal
from pessimal.errors import ModelError
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.obtain import open_model
from pessimal.rewards.weights import (
    adapted_digest,
    base_of,
    check_head,
    load_adapter,
    read_adapter,
    shapes_in,
)
from tolerance import close

IDS = torch.tensor([[5, 6, 7, 8], [9, 3, 4, 2]])
TARGETS = ["q_proj", "v_proj", "down_proj"]


@pytest.fixture(scope="module")
def base(tiny_checkpoint, tmp_path_factory) -> Path:
    """The tiny reward model as a language model: its body, and no reward head."""
    folder = tmp_path_factory.mktemp("base") / "language-model"
    torch.manual_seed(3)
    network = LlamaForCausalLM.from_pretrained(tiny_checkpoint)
    torch.nn.init.normal_(network.lm_head.weight, std=0.1)
    network.save_pretrained(folder)
    return folder


def trained(network, folder: Path, **lora) -> Path:
    """An adapter on a network, all of whose weights are random."""
    adapted = get_peft_model(network, LoraConfig(r=4, lora_alpha=12, lora_dropout=0.1, **lora))
    torch.manual_seed(5)
    for name, weight in adapted.named_parameters():
        if "lora_" in name or "modules_to_save" in name:
            torch.nn.init.normal_(weight, std=0.1)
    adapted.save_pretrained(folder)
    return folder


def scored_by(base: Path, **options):
    return AutoModelForSequenceClassification.from_pretrained(
        base, num_labels=1, pad_token_id=3, **options
    )


@pytest.fixture
def reward_adapter(base, tmp_path) -> Path:
    return trained(
        scored_by(base), tmp_path / "reward", task_type="SEQ_CLS", target_modules=TARGETS
    )


@pytest.fixture
def language_adapter(base, tmp_path) -> Path:
    network = AutoModelForCausalLM.from_pretrained(base)
    return trained(network, tmp_path / "policy", task_type="CAUSAL_LM", target_modules=TARGETS)


def by_hand(network, adapter: Path, *, scale: float):
    """The network with W + scale·BA in place of every W, and the adapter's own weights
    elsewhere."""
    own, changes = network.state_dict(), load_file(adapter / "adapter_model.safetensors")
    with torch.no_grad():
        for name, weight in changes.items():
            plain = name.removeprefix("base_model.model.")
            if plain.endswith("lora_A.weight"):
                up = changes[name.replace("lora_A", "lora_B")]
                own[plain.replace("lora_A.", "")] += scale * up @ weight
            elif not any(mark in plain for mark in ("lora_", "modules_to_save", "original_module")):
                own[plain].copy_(weight)
    return network.eval()


def logits(network) -> torch.Tensor:
    with torch.inference_mode():
        return network(input_ids=IDS).logits


@pytest.mark.parametrize("rslora", [True])
def test_the_reward_is_that_of_the_changed_weights(base, tmp_path, rslora):
    folder = trained(
        scored_by(base),
        tmp_path / "a",
        task_type="SEQ_CLS",
        target_modules=TARGETS,
        use_rslora=rslora,
    )
    adapter = read_adapter(folder, name="m")
    check_head("m", adapter, shapes_in(base / "model.safetensors"))
    network = load_adapter(scored_by(base), adapter, name="m")
    plain = by_hand(scored_by(base), folder, scale=12 / 4**0.5 if rslora else 12 / 4)
    assert close(logits(network), logits(plain))
    assert (logits(network) - logits(scored_by(base).eval())).abs().max() > 0.1
    assert type(network) is type(plain)
    assert not any("lora" in name for name in network.state_dict())
    assert not any(weight.requires_grad for weight in network.parameters())


def test_tokens_added_in_training_come_with_the_adapter(base, tmp_path):
    network = AutoModelForCausalLM.from_pretrained(base)
    rows = network.config.vocab_size + 2
    network.resize_token_embeddings(rows, mean_resizing=False)
    folder = trained(
        network, tmp_path / "a", target_modules=TARGETS, modules_to_save=["embed_tokens", "lm_head"]
    )
    adapter = read_adapter(folder, name="m")
    assert adapter.rows == rows
    merged = load_adapter(AutoModelForCausalLM.from_pretrained(base), adapter, name="m")
    added = torch.tensor([[5, rows - 1, rows - 2]])
    with torch.inference_mode():
        found = merged(input_ids=added).logits
    plain = AutoModelForCausalLM.from_pretrained(base)
    plain.resize_token_embeddings(rows, mean_resizing=False)
    with torch.inference_mode():
        assert close(found, by_hand(plain, folder, scale=3)(input_ids=added).logits)


def without(folder: Path, target: Path, drop) -> Path:
    """The adapter less the weights whose names `drop` says."""
    shutil.copytree(folder, target)
    file = target / "adapter_model.safetensors"
    save_file({name: w for name, w in load_file(file).items() if not drop(name)}, file)
    return target


def configured(folder: Path, **changes) -> Path:
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return folder


def test_a_head_that_is_lost_is_refused_with_its_cause(
    base, reward_adapter, language_adapter, tmp_path
):
    names = shapes_in(base / "model.safetensors")
    lost = without(reward_adapter, tmp_path / "lost", lambda name: "score" in name)
    with pytest.raises(ModelError, match=r"modules_to_save=.*score"):
        check_head("m", read_adapter(lost, name="m"), names)
    configured(lost, modules_to_save=None)
    with pytest.raises(ModelError, match=r"modules_to_save=None.*LoraConfig\(task_type='SEQ_CLS'"):
        check_head("m", read_adapter(lost, name="m"), names)
    with pytest.raises(ModelError, match=r"CAUSAL_LM.*model\.kind=implicit"):
        check_head("m", read_adapter(language_adapter, name="m"), names)


def test_the_base_may_hold_the_head(tiny_checkpoint, reward_adapter, tmp_path):
    lost = without(reward_adapter, tmp_path / "lost", lambda name: "score" in name)
    adapter = read_adapter(lost, name="m")
    check_head("m", adapter, shapes_in(tiny_checkpoint / "model.safetensors"))
    network = load_adapter(scored_by(tiny_checkpoint), adapter, name="m")
    plain = by_hand(scored_by(tiny_checkpoint), lost, scale=3)
    assert close(logits(network), logits(plain))


def test_the_digest_follows_base_weights_and_settings(reward_adapter, tmp_path):
    adapter = read_adapter(reward_adapter, name="m")
    first = adapted_digest("base", adapter)
    assert first == adapted_digest(
        "base", read_adapter(shutil.copytree(reward_adapter, tmp_path / "b"), name="m")
    )
    assert first != adapted_digest("other", adapter)
    louder = configured(shutil.copytree(reward_adapter, tmp_path / "c"), lora_alpha=24)
    assert first != adapted_digest("base", read_adapter(louder, name="m"))
    other = without(reward_adapter, tmp_path / "d", lambda name: "layers.1" in name)
    assert first != adapted_digest("base", read_adapter(other, name="m"))


def test_the_base_is_the_path_or_what_the_adapter_names(base, reward_adapter):
    adapter = read_adapter(reward_adapter, name="m")
    spec = HeadSpec(adapter=str(reward_adapter))
    assert base_of(spec, adapter) == (str(base), None)
    assert base_of(HeadSpec(path="org/name", adapter="a/b"), adapter) == ("org/name", None)
    gone = read_adapter(
        configured(reward_adapter, base_model_name_or_path="/home/her/llama/3"), name="m"
    )
    with pytest.raises(ModelError, match=r"/home/her/llama/3.*model\.path=DIR_OR_ID"):
        base_of(spec, gone)


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda folder: (folder / "adapter_config.json").unlink(), r"no adapter_config\.json"),
        (lambda folder: configured(folder, peft_type="PREFIX_TUNING"), "PREFIX_TUNING"),
        (
            lambda folder: (folder / "adapter_model.safetensors").write_bytes(b"12345678{"),
            "cannot be read",
        ),
    ],
)
def test_what_is_no_adapter_is_refused(reward_adapter, break_it, says):
    break_it(reward_adapter)
    with pytest.raises(ModelError, match=says):
        read_adapter(reward_adapter, name="m")


def test_an_adapter_that_names_its_base_is_scanned_with_the_bases_states(
    base, reward_adapter, tiny_checkpoint
):
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (tiny_checkpoint / name).is_file():
            shutil.copy(tiny_checkpoint / name, reward_adapter)
    table = pessimal.scan(
        str(reward_adapter), "greatest", candidates=["love", "war"], progress=False
    )
    alone = open_model(HeadSpec(path=str(base), adapter=str(reward_adapter)), base)
    expected = pessimal.scan(alone, "greatest", candidates=["love", "war"], states=False)
    assert table.rows["reward"].tolist() == expected.rows["reward"].tolist()
    assert "states" in table.measured
    assert "states" not in expected.measured


def test_replicated_layers_are_refused_before_work(base, tmp_path):
    # PEFT merges the changes of both copies into the one weight that they share.
    settings = {"task_type": "SEQ_CLS", "layer_replication": [[0, 2], [1, 2]]}
    folder = trained(scored_by(base), tmp_path / "a", target_modules=["q_proj"], **settings)
    with pytest.raises(ModelError, match="layer_replication"):
        read_adapter(folder, name="m")
