"""Today's reward models in miniature: each head gives what its published class does, written out
here in plain words; the preset of each says how it is asked; and the table of RewardBench's models
counts what its data says."""

import importlib.util
import json
import math
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from published import vocabularies
from safetensors.torch import save_file
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoModel,
    GPTNeoXConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    T5Config,
    T5ForConditionalGeneration,
)

from pessimal.catalogue import CONF
from pessimal.errors import ModelError
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.judge import JudgeSpec
from pessimal.rewards.obtain import open_model
from pessimal.rewards.question import QuestionOptions
from pessimal.scoring.scorer import FrameScorer, ceiling
from tolerance import Closeness, close, varied

ROOT = Path(__file__).parents[2]
PROMPT = "What, in one word, is the greatest thing ever?"
RESPONSES = ("love", "war and peace", "evil", " hate?")
HIDDEN = 16
SIZES = {
    "hidden_size": HIDDEN,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


# twins: a backbone, the weights of a head, and the published reward of the last position's state


def random(*shape: int, seed: int = 7) -> torch.Tensor:
    return 0.5 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def score_network(state, w):
    """INF-ORM and WorldPM: linear, ReLU, linear."""
    inner = torch.clamp(w["score.0.weight"] @ state + w["score.0.bias"], min=0)
    return (w["score.2.weight"] @ inner + w["score.2.bias"])[0]


def one_layer(name):
    def reward(state, w):
        return (w[f"{name}.weight"] @ state + w.get(f"{name}.bias", torch.zeros(1)))[0]

    return reward


def beaver_normalised(state, w):
    return (one_layer("score_head")(state, w) - 0.25) / (math.sqrt(4.0) + 1e-8)


def beaver_cost(state, w):
    return one_layer("score_head")(state, w) / (math.sqrt(4.0) + 1e-8)


NETWORK = {
    "score.0.weight": (HIDDEN, HIDDEN),
    "score.0.bias": (HIDDEN,),
    "score.2.weight": (1, HIDDEN),
    "score.2.bias": (1,),
}
STATISTICS = {"mean": [0.25], "var": [4.0], "do_normalize": True}
# configuration's class, what it says besides its sizes, name of the backbone, shapes of the head,
# published reward
TWINS = {
    "Skywork-Reward-V2": (
        Qwen3Config,
        {"head_dim": 8},
        "model",
        {"score.weight": (1, HIDDEN)},
        one_layer("score"),
    ),
    "INF-ORM": (LlamaConfig, {}, "model", NETWORK, score_network),
    "WorldPM": (Qwen2Config, {}, "model", NETWORK, score_network),
    "Athene": (
        LlamaConfig,
        {"architectures": ["AtheneForSequenceClassification"]},
        "model",
        {"v_head.weight": (1, HIDDEN)},
        one_layer("v_head"),
    ),
    "Beaver": (
        LlamaConfig,
        {},
        "model",
        {"score_head.weight": (1, HIDDEN)},
        one_layer("score_head"),
    ),
    "Beaver, normalised": (
        LlamaConfig,
        {"score_type": "reward", **STATISTICS},
        "model",
        {"score_head.weight": (1, HIDDEN), "score_head.bias": (1,)},
        beaver_normalised,
    ),
    "Beaver's cost": (
        LlamaConfig,
        {"score_type": "cost", **STATISTICS},
        "model",
        {"score_head.weight": (1, HIDDEN)},
        beaver_cost,
    ),
    "Eurus-RM": (
        MistralConfig,
        {},
        "model",
        {"regression_head.weight": (1, HIDDEN)},
        one_layer("regression_head"),
    ),
    "OpenAssistant": (
        GPTNeoXConfig,
        {"model_type": "gpt_neox_reward_model", "pooling": "last"},
        "gpt_neox",
        {"out_proj.weight": (1, HIDDEN), "out_proj.bias": (1,)},
        one_layer("out_proj"),
    ),
}


@torch.no_grad()
def spread(network, scale: float = 0.4):
    """Weights whose rewards vary."""
    drawn = torch.Generator().manual_seed(3)
    for weight in network.parameters():
        weight.copy_(
            scale * torch.randn(weight.shape, generator=drawn) + (1 if weight.dim() == 1 else 0)
        )
    return network.eval()


def ids_of(tokenizer) -> dict:
    return {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }


def written(folder, weights, config: dict, tokenizer) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: weight.detach().clone().contiguous() for name, weight in weights.items()},
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text(json.dumps(config, default=str))
    tokenizer.save_pretrained(folder)


def twin(name: str, folder: Path, **changed):
    """A checkpoint folder, its tokenizer, and what the published class gives for ids."""
    kind, says, backbone_name, shapes, published = TWINS[name]
    tokenizer = vocabularies.llama3()
    if name == "Athene":
        tokenizer.add_special_tokens({"cls_token": "<|reserved_special_token_1|>"})
    config = kind(
        **SIZES,
        **ids_of(tokenizer),
        **{key: value for key, value in says.items() if key != "model_type"},
    )
    backbone = spread(AutoModel.from_config(config))
    head = {key: random(*shape, seed=seed) for seed, (key, shape) in enumerate(shapes.items())}
    weights = {f"{backbone_name}.{key}": value for key, value in backbone.state_dict().items()}
    written(folder, weights | head, config.to_dict() | says | changed, tokenizer)

    @torch.no_grad()
    def reward(ids) -> float:
        return float(published(backbone(torch.tensor([ids])).last_hidden_state[0, -1], head))

    return tokenizer, reward


@torch.no_grad()
def rewards_of(reward, prompt=PROMPT, responses=RESPONSES) -> torch.Tensor:
    """A reward as it is defined: the weighted sum of what its networks give for the
    conversations."""
    total = torch.zeros(len(responses))
    for part in reward.parts:
        network = reward.network(which=part.network)
        for row, ids in enumerate(part.conversations.ids(prompt, list(responses))):
            total[row] += part.weight * float(network(torch.tensor([ids])).logits[0, 0])
    return total


def same(ours: torch.Tensor, theirs: list[float]) -> Closeness:
    return close(ours, varied(theirs, sd=0.02))


@pytest.mark.parametrize("name", TWINS)
def test_reward_is_what_the_published_class_gives(name, tmp_path):
    tokenizer, published = twin(name, tmp_path)
    reward = open_model(HeadSpec(path=str(tmp_path)), tmp_path)
    closing = [tokenizer.cls_token_id] if name == "Athene" else []
    inputs = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": response}],
            return_dict=False,
        )
        + closing
        for response in RESPONSES
    ]
    assert reward.parts[0].conversations.ids(PROMPT, RESPONSES) == inputs
    assert same(rewards_of(reward), [published(ids) for ids in inputs])


@pytest.mark.parametrize("name", ["Beaver, normalised"])
def test_its_bounds_hold_and_a_linear_heads_are_no_wider_than_states_reach(name, tmp_path):
    twin(name, tmp_path)
    reward = open_model(HeadSpec(path=str(tmp_path)), tmp_path)
    bounds = ceiling(reward, device=torch.device("cpu"))
    assert bounds.finite
    rewards = rewards_of(reward)
    assert bounds.beyond(rewards.tolist()) == 0
    scorer = FrameScorer(reward.network(), reward.frame(PROMPT), device=torch.device("cpu"))
    decoder = scorer.engines[0].decoder
    state = torch.randn(1, HIDDEN, generator=torch.Generator().manual_seed(0)).requires_grad_()
    optimizer = torch.optim.Adam([state], lr=0.3)
    for _ in range(300):
        optimizer.zero_grad()
        reached = decoder.head.read(decoder.exact_norm(state), None).sum()
        (-reached).backward()
        optimizer.step()
    assert bounds.beyond([float(reached.detach())]) == 0
    hidden = name in ("INF-ORM", "WorldPM")
    assert bounds.share(float(reached.detach())) > (0.0 if hidden else 0.97)


@pytest.mark.parametrize("name", ["INF-ORM"])
def test_padding_on_either_side_changes_nothing(name, tmp_path):
    tokenizer, published = twin(name, tmp_path)
    network = open_model(HeadSpec(path=str(tmp_path)), tmp_path).network()
    short, long = [5, 6, 7], [8, 9, 10, 11, 12]
    pad = [tokenizer.pad_token_id] * 2
    rewards = network(
        torch.tensor([pad + short, long, short + pad]),
        attention_mask=torch.tensor([[0, 0, 1, 1, 1], [1] * 5, [1, 1, 1, 0, 0]]),
    ).logits[:, 0]
    expected = [published(short), published(long), published(short)]
    if (
        name == "OpenAssistant"
    ):  # positions are counted from the row's start, so only what comes after is no matter
        rewards, expected = rewards[1:], expected[1:]
    assert close(rewards, torch.tensor(expected))


def test_what_cannot_be_read_is_refused(tmp_path):
    twin("OpenAssistant", tmp_path / "mean", pooling="mean")
    with pytest.raises(ModelError, match="pooling='mean'"):
        open_model(HeadSpec(path=str(tmp_path / "mean")), tmp_path / "mean").network()
    twin("Beaver", tmp_path / "beaver", do_normalize=True, score_type="fear")
    network = open_model(HeadSpec(path=str(tmp_path / "beaver")), tmp_path / "beaver").network()
    with pytest.raises(ModelError, match="score_type='fear'"):
        network(torch.tensor([[5, 6]]))


# models that are asked otherwise


def test_nemotrons_reward_is_the_logit_of_token_0_where_the_assistant_would_speak_again(tmp_path):
    tokenizer = vocabularies.llama3()
    tokenizer.chat_template += (
        "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
    )
    network = spread(LlamaForCausalLM(LlamaConfig(**SIZES, **ids_of(tokenizer))))
    network.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    given = preset("Llama-3.1-Nemotron-70B-Reward-HF")
    spec = JudgeSpec(path=str(tmp_path), judge=QuestionOptions(**given["judge"]))
    published = []
    for response in RESPONSES:
        turns = [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": response}]
        ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
        with torch.no_grad():
            published.append(float(network(torch.tensor([ids])).logits[0, -1, 0]))
    assert same(rewards_of(open_model(spec, tmp_path)), published)


def test_steamshps_reward_is_the_log_odds_of_a_over_b_in_both_orders(tmp_path):
    tokenizer = vocabularies.byte_level(["<pad>", "</s>"])
    tokenizer.post_processor = TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", tokenizer.token_to_id("</s>"))]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>"
    )
    config = T5Config(
        d_model=HIDDEN,
        d_kv=8,
        d_ff=24,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=2,
        vocab_size=len(tokenizer),
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
    )
    network = spread(T5ForConditionalGeneration(config))
    network.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    given = preset("SteamSHP-flan-t5-large")
    spec = JudgeSpec(path=str(tmp_path), judge=QuestionOptions(**given["judge"]))

    def log_odds(first: str, second: str) -> float:
        text = f"POST: {PROMPT}\n\n RESPONSE A: {first}\n\n RESPONSE B: {second}\n\n Which response is better? RESPONSE"
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        with torch.no_grad():
            logits = network(input_ids=ids, decoder_input_ids=torch.tensor([[0]])).logits[0, -1]
        a, b = (tokenizer.convert_tokens_to_ids(letter) for letter in "AB")
        return float(logits[a] - logits[b])

    published = [(log_odds(response, ".") - log_odds(".", response)) / 2 for response in RESPONSES]
    assert same(rewards_of(open_model(spec, tmp_path)), published)


# presets


def preset(name: str) -> dict:
    return OmegaConf.to_container(OmegaConf.load(CONF / "model" / f"{name}.yaml"))


# the table of RewardBench's models


@pytest.fixture(scope="module")
def table():
    """`experiments/rewardbench/table.py` as a module, and its rows."""
    source = importlib.util.spec_from_file_location(
        "rewardbench_table", ROOT / "experiments/rewardbench/table.py"
    )
    module = importlib.util.module_from_spec(source)
    source.loader.exec_module(module)
    return module, module.rows()


def test_page_is_what_the_data_says(table):
    module, rows = table
    assert (ROOT / "docs/rewardbench.md").read_text() == module.page(rows)
