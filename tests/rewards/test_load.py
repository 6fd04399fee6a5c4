"""Loading: digests follow the files, and what is no reward model is refused."""

import json
import shutil

import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, LlamaForCausalLM

import pessimal
from pessimal.errors import ModelError
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.obtain import open_model
from pessimal.rewards.spec import Dtype
from pessimal.scoring.engine import own_rewards
from tiny_language_models import CHAT, network, tokenizer
from tolerance import close


@pytest.fixture
def copy(tiny_checkpoint, tmp_path):
    return shutil.copytree(tiny_checkpoint, tmp_path / "copy")


def test_weights_are_counted_and_digested_without_loading_them(tiny_checkpoint, copy):
    model = open_model(HeadSpec(path=str(tiny_checkpoint)), tiny_checkpoint)
    assert model.description.parameters == sum(p.numel() for p in model.network().parameters())
    twin = open_model(HeadSpec(path=str(copy)), copy)
    assert twin.weights_digest == model.weights_digest
    network = AutoModelForSequenceClassification.from_pretrained(copy)
    network.score.weight.data += 1
    network.save_pretrained(copy)
    assert open_model(HeadSpec(path=str(copy)), copy).weights_digest != model.weights_digest


def test_tokenizer_digest_does_not_depend_on_earlier_calls(tiny_checkpoint):
    first = open_model(HeadSpec(path=str(tiny_checkpoint)), tiny_checkpoint)
    first.tokenizer(["love", "peace and war"], padding=True, truncation=True, max_length=4)
    from pessimal.rewards.weights import tokenizer_digest

    assert tokenizer_digest(first.tokenizer) == first.tokenizer_digest


def test_network_comes_in_the_precision_asked_for(tiny_checkpoint):
    model = open_model(HeadSpec(path=str(tiny_checkpoint), dtype=Dtype.bfloat16), tiny_checkpoint)
    assert model.network().dtype is torch.bfloat16
    assert model.network(Dtype.float32).dtype is torch.float32
    assert not model.network().training


def test_language_model_without_a_reward_head_is_refused(copy):
    config = AutoConfig.from_pretrained(copy)
    config.num_labels = 2  # as a language model's configuration has it
    LlamaForCausalLM(config).save_pretrained(copy)
    with pytest.raises(ModelError, match=r"score\.weight.*random"):
        open_model(HeadSpec(path=str(copy)), copy).network()


@pytest.fixture
def with_three_outputs(copy):
    config = AutoConfig.from_pretrained(copy)
    config.num_labels = 3
    network = AutoModelForSequenceClassification.from_config(config)
    network.save_pretrained(copy)
    return network.eval()


@torch.no_grad()
def test_output_that_is_named_is_the_reward(copy, with_three_outputs):
    ids = torch.tensor([[5, 6, 7]])
    network = open_model(HeadSpec(path=str(copy), output=2), copy).network()
    assert close(own_rewards(network, ids), with_three_outputs(input_ids=ids).logits[:, 2])


@pytest.mark.parametrize("changed", [{"rms_norm_eps": 0.1}, {"gating_temperature": 2}])
def test_configuration_is_part_of_what_a_model_is(tiny_checkpoint, copy, changed):
    first = open_model(HeadSpec(path=str(tiny_checkpoint)), tiny_checkpoint)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"transformers_version": "4.0"}))
    assert open_model(HeadSpec(path=str(copy)), copy).config_digest == first.config_digest
    (copy / "config.json").write_text(json.dumps(config | changed))
    assert open_model(HeadSpec(path=str(copy)), copy).config_digest != first.config_digest
    assert open_model(HeadSpec(path=str(copy)), copy).weights_digest == first.weights_digest


def test_own_code_that_is_run_is_part_of_what_a_model_is(copy):
    def digest() -> str:
        return open_model(HeadSpec(path=str(copy), trust_remote_code=True), copy).config_digest

    (copy / "modeling_own.py").write_text("SCALE = 1")
    before = digest()
    (copy / "modeling_own.py").write_text("SCALE = 2")
    assert digest() != before


def test_what_is_typed_for_a_language_model_names_its_kind(tmp_path):
    words = tokenizer(template=CHAT)
    network("llama", len(words)).save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    path = str(tmp_path)
    asked = {"template": "{prompt} {response}", "logit": 3}
    judge = pessimal.load(path, kind="judge", judge=asked)
    assert judge.typed == f"model=judge model.path={path}"
    implicit = pessimal.load(path, kind="implicit", implicit={"reference": path})
    assert implicit.typed == f"model=implicit model.path={path} model.implicit.reference={path}"
