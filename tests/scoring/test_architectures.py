"""Other architectures: whichever path suits them, the reward is the model's own."""

import logging

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification
from transformers.models.bert import BertConfig
from transformers.models.gemma2 import Gemma2Config
from transformers.models.gpt2 import GPT2Config
from transformers.models.gpt_neox import GPTNeoXConfig
from transformers.models.gpt_oss import GptOssConfig
from transformers.models.llama import LlamaConfig
from transformers.models.mistral import MistralConfig
from transformers.models.nemotron import NemotronConfig
from transformers.models.qwen2 import Qwen2Config
from transformers.models.qwen2_moe import Qwen2MoeConfig
from transformers.models.qwen3 import Qwen3Config

from pessimal.models.spec import Dtype, Mode
from pessimal.scoring.candidates import inputs
from pessimal.scoring.engine import SharedPrefix
from pessimal.scoring.scorer import FrameScorer

SMALL = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8,
}  # fmt: skip
ALIKE = {**SMALL, "num_key_value_heads": 4}
GEMMA = {**SMALL, "query_pre_attn_scalar": 8, "attn_logit_softcapping": None}
NEOX = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.4}
WINDOWED = {"use_sliding_window": True, "max_window_layers": 1}  # the second layer only
DECODERS = {
    "llama, a key for two queries": (LlamaConfig, SMALL),
    "llama, a key for each query": (LlamaConfig, ALIKE),
    "llama, one key for all": (LlamaConfig, {**SMALL, "num_key_value_heads": 1}),
    "qwen2": (Qwen2Config, SMALL),
    "qwen2, a window in one layer": (Qwen2Config, {**SMALL, **WINDOWED, "sliding_window": 6}),
    "qwen3": (Qwen3Config, SMALL),
    "qwen3, a window in one layer": (Qwen3Config, {**SMALL, **WINDOWED, "sliding_window": 6}),
    "mistral": (MistralConfig, {**SMALL, "sliding_window": None}),
    "mistral, a window of two": (MistralConfig, {**SMALL, "sliding_window": 2}),
    "mistral, a window that cuts the prefix": (MistralConfig, {**SMALL, "sliding_window": 9}),
    "mistral, a window longer than everything": (MistralConfig, {**SMALL, "sliding_window": 100}),
    "gemma2": (Gemma2Config, {**GEMMA, "sliding_window": 100}),
    "gemma2, soft-capping": (
        Gemma2Config,
        {**GEMMA, "sliding_window": 100, "attn_logit_softcapping": 0.5},
    ),
    "gemma2, soft-capping and a window": (
        Gemma2Config,
        {**GEMMA, "sliding_window": 6, "attn_logit_softcapping": 0.5},
    ),
    "gpt-neox": (GPTNeoXConfig, NEOX),
    "gpt-neox, one block after the other": (GPTNeoXConfig, {**NEOX, "use_parallel_residual": False}),
    "gpt2": (GPT2Config, GPT2),
    "gpt2, scaled by layer": (GPT2Config, {**GPT2, "scale_attn_by_inverse_layer_idx": True}),
}
CPU = torch.device("cpu")


@torch.no_grad()
def made(kind, sizes, rows: int):
    """A random network whose biases and norms are not what they begin with."""
    # Enough for rewards that vary, and not so much that rounding grows from layer to layer.
    sizes = {"initializer_range": 0.2, **sizes}
    config = kind(**sizes, vocab_size=rows, num_labels=1, pad_token_id=3)
    torch.manual_seed(0)
    network = AutoModelForSequenceClassification.from_config(config).eval().requires_grad_(False)
    for weight in network.parameters():
        weight.add_(0.1 * torch.randn(weight.shape))
    network.reward_output = 0
    return network


@torch.no_grad()
def own(network, wholes: list[list[int]]) -> torch.Tensor:
    """Rewards (n,) of whole inputs, each alone, by nothing but the network."""
    pad, network.config.pad_token_id = network.config.pad_token_id, None
    rewards = [network(input_ids=torch.tensor([whole])).logits[0, 0] for whole in wholes]
    network.config.pad_token_id = pad
    return torch.stack(rewards)


def close(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    assert theirs.std() > 0.05, "rewards that do not vary would make this test empty"
    return bool((ours - theirs).abs().max() <= 1e-5 * theirs.std().clamp(min=1))


def responses(model, length: int, n: int = 16) -> torch.Tensor:
    return torch.randint(model.embedding_rows, (n, length), generator=torch.Generator().manual_seed(length))


@torch.no_grad()
@pytest.mark.parametrize("name", DECODERS)
def test_reward_is_the_models_own_by_every_engine(model, frame, name):
    network = made(*DECODERS[name], model.embedding_rows)
    scorer = FrameScorer(network, frame, device=CPU)
    assert [engine.name for engine in scorer.engines] == ["shared-prefix", "full-forward", "own-forward"]
    before = network.config._attn_implementation
    for length in (1, 2, 7):
        wholes = torch.tensor([frame.around(row) for row in responses(model, length).tolist()])
        theirs = own(network, wholes.tolist())
        for engine in scorer.engines:
            rewards = engine.rewards(wholes[:, len(frame.prefix) :], shared=len(frame.prefix))
            assert close(rewards, theirs), engine.name
    assert network.config._attn_implementation == before, "the model is left as it was"


@torch.no_grad()
@pytest.mark.parametrize("name", DECODERS)
def test_reward_is_the_models_own_where_less_than_the_prefix_is_shared(model, frame, name):
    network = made(*DECODERS[name], model.embedding_rows)
    scorer = FrameScorer(network, frame, device=CPU)
    length = len(frame.prefix)
    for shared in (1, length // 2, length - 1):
        # As where a response merges with the template's last tokens: these are then others than in the prefix.
        changed = responses(model, length - shared + 1)
        wholes = torch.cat(
            [
                torch.tensor(frame.prefix[:shared]).expand(len(changed), -1),
                changed,
                torch.tensor(frame.suffix).expand(len(changed), -1),
            ],
            dim=1,
        )
        theirs = own(network, wholes.tolist())
        for engine in scorer.engines:
            assert close(engine.rewards(wholes[:, shared:], shared=shared), theirs), (engine.name, shared)


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("gemma2, soft-capping", {"attn_logit_softcapping": None}),
        ("gemma2, soft-capping and a window", {"sliding_window": 100}),
        ("mistral, a window of two", {"sliding_window": None}),
        ("mistral, a window that cuts the prefix", {"sliding_window": None}),
        ("qwen2, a window in one layer", {"use_sliding_window": False}),
        ("qwen3, a window in one layer", {"use_sliding_window": False}),
    ],
)
def test_what_is_peculiar_to_an_architecture_matters_here(model, frame, name, without):
    kind, sizes = DECODERS[name]
    wholes = [frame.around(row) for row in responses(model, 2).tolist()]
    with_it, without_it = (
        own(made(kind, each, model.embedding_rows), wholes) for each in (sizes, {**sizes, **without})
    )
    assert (with_it - without_it).abs().max() > 1e-2


@pytest.mark.parametrize("name", DECODERS)
def test_check_before_a_scan_keeps_the_shared_prefix(model, frame, words, name, caplog):
    network = made(*DECODERS[name], model.embedding_rows)
    scorer = FrameScorer(network, frame, device=CPU)
    scorer.establish_trust(inputs(model.tokenizer, frame, words, Mode.ids), dtype=Dtype.float32)
    assert scorer.attention == "shared-prefix"
    assert scorer.trust.holds
    assert scorer.trust.largest_difference <= 1e-5 * max(1, scorer.trust.spread)
    assert not caplog.records


@pytest.mark.parametrize("mode", [Mode.ids, Mode.text])
def test_rewards_of_a_whole_vocabulary_are_the_models_own(model, frame, words, mode):
    network = made(*DECODERS["gemma2, soft-capping and a window"], model.embedding_rows)
    scorer = FrameScorer(network, frame, device=CPU)
    candidates = inputs(model.tokenizer, frame, words, mode)
    rows = np.arange(len(candidates))
    ours = torch.from_numpy(scorer.score_rows(candidates, rows, batch_size=64))
    theirs = own(network, [candidates.whole(row) for row in rows]).double()
    assert close(ours, theirs)
    assert np.array_equal(scorer.own_rewards(candidates, rows[:20]), theirs[:20].numpy())


@torch.no_grad()
def test_encoder_with_a_chat_template_is_scored_by_its_own_forward(model, frame, words):
    network = made(BertConfig, {**NEOX, "initializer_range": 0.4}, model.embedding_rows)
    scorer = FrameScorer(network, frame, device=CPU)
    assert [engine.name for engine in scorer.engines] == ["own-forward"]
    scorer.establish_trust(inputs(model.tokenizer, frame, words, Mode.ids), dtype=Dtype.float32)
    assert scorer.trust.holds
    wholes = torch.tensor([frame.around(row) for row in responses(model, 2).tolist()])
    rewards = scorer.rewards(wholes[:, len(frame.prefix) :], shared=len(frame.prefix))
    assert close(rewards, own(network, wholes.tolist()))


@torch.no_grad()
def test_layers_of_an_unknown_kind_are_not_shared(model, frame):
    network = made(*DECODERS["qwen3"], model.embedding_rows)
    network.config.layer_types = ["full_attention", "chunked_attention"]
    assert not SharedPrefix.suits(network)
    assert FrameScorer(network, frame, device=CPU).attention != "shared-prefix"


def test_window_that_is_only_in_the_mask_is_not_shared(model, frame, caplog):
    # As in Qwen2-MoE: rows longer than the window would be scored wrong, and a sample of short ones would not show it.
    sizes = {
        **SMALL, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "num_experts": 4,
        "use_sliding_window": True, "sliding_window": 35, "max_window_layers": 0,
    }  # fmt: skip
    network = made(Qwen2MoeConfig, sizes, rows=model.embedding_rows)
    with caplog.at_level(logging.WARNING):
        scorer = FrameScorer(network, frame, device=CPU)
    assert scorer.attention == "full-forward"
    assert "not given the sliding window" in caplog.text


def test_attention_sinks_are_not_shared(model, frame, caplog):
    sizes = {**SMALL, "num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 64}
    network = made(GptOssConfig, sizes, rows=model.embedding_rows)
    with caplog.at_level(logging.WARNING):
        scorer = FrameScorer(network, frame, device=CPU)
    assert scorer.attention == "full-forward"
    assert "s_aux" in caplog.text


def test_engine_that_does_not_run_gives_way_to_one_that_does(model, frame, words, caplog):
    # Nemotron hands nothing on to its attention.
    network = made(NemotronConfig, SMALL, rows=model.embedding_rows)
    with caplog.at_level(logging.WARNING):
        scorer = FrameScorer(network, frame, device=CPU)
        scorer.establish_trust(inputs(model.tokenizer, frame, words, Mode.ids), dtype=Dtype.float32)
    assert scorer.attention == "full-forward"
    assert "does not run NemotronForSequenceClassification" in caplog.text
    assert scorer.trust.holds
