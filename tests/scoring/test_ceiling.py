"""The bounds on a reward, over architectures: no response breaks them, states that try come close,
and where nothing is known nothing is claimed."""

import math

import networks
import numpy as np
import pytest
import torch
from networks import CPU, DECODERS, PLAIN, made
from torch import nn
from transformers import (
    BartConfig,
    BertConfig,
    DebertaV2Config,
    ModernBertConfig,
    OPTConfig,
    RobertaConfig,
)

import tiny_language_models
from pessimal.rewards import ceiling as rewards_ceiling
from pessimal.rewards.ceiling import (
    ELSEWHERE,
    NORMALISED,
    TANH,
    Bounds,
    NormalisedStates,
    unbounded,
    weighted_sum,
)
from pessimal.rewards.frame import Frame
from pessimal.rewards.language import JudgeNetwork, SequenceNetwork
from pessimal.rewards.question import AnswerReading
from pessimal.rewards.spec import Dtype
from pessimal.scoring.candidates import frame_responses
from pessimal.scoring.scorer import FrameScorer

ROWS = 60
MODERN = {**PLAIN, "bos_token_id": 0, "eos_token_id": 1, "cls_token_id": 0, "sep_token_id": 1}
BART = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "eos_token_id": 8}
BART |= {f"{part}_attention_heads": 4 for part in ("encoder", "decoder")}
BART |= {f"{part}_ffn_dim": 64 for part in ("encoder", "decoder")} | {"init_std": 0.4}
OTHERS = {
    "bert": (BertConfig, PLAIN, TANH),
    "roberta": (RobertaConfig, PLAIN, TANH),
    "modernbert": (ModernBertConfig, MODERN, NORMALISED),
    "opt": (OPTConfig, {**PLAIN, "ffn_dim": 64, "word_embed_proj_dim": 32}, NORMALISED),
    "bart": (BartConfig, BART, TANH),
    "deberta": (DebertaV2Config, {**PLAIN, "pooler_hidden_size": 32}, ELSEWHERE),
}
LAST_LINEAR = ("score", "classifier.out_proj", "classifier")


def scorer_of(network: nn.Module, *, longest: int = 8, n: int = 200):
    """A scorer that has passed its check, and rewards (n,) of random responses."""
    frame = Frame(prompt="Why?", prefix=(5, 6, 7), suffix=(8,))
    scorer = FrameScorer(network, frame, device=CPU)
    random = np.random.default_rng(0)
    inputs = frame_responses(frame, [random.integers(10, ROWS, 1 + i % longest) for i in range(n)])
    scorer.establish_trust(inputs, dtype=Dtype.float32)
    return scorer, scorer.score_rows(inputs, np.arange(n), batch_size=64)


@torch.no_grad()
def harder(network: nn.Module, seed: int) -> nn.Module:
    """With another head, norm weights far from 1, and states far from the origin."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in network.named_parameters():
        size = 10.0 if name.startswith(LAST_LINEAR) else 0.5 if "norm" in name.lower() else 0.1
        weight.add_(size * torch.randn(weight.shape, generator=generator))
    return network


def climbed(scorer: FrameScorer, sign: int) -> float:
    """The best reward of any state before the norm that gradient ascent finds."""
    decoder = scorer.engines[0].decoder
    state = torch.randn(1, 32, generator=torch.Generator().manual_seed(1), requires_grad=True)
    optimizer = torch.optim.Adam([state], lr=0.6)
    for _ in range(200):
        optimizer.zero_grad()
        reward = decoder.head.read(decoder.exact_norm(state), scorer.engines[0].context)
        (-sign * reward.sum()).backward()
        optimizer.step()
    with torch.no_grad():
        return float(decoder.head.read(decoder.exact_norm(100 * state), None))


@pytest.mark.parametrize("kind", DECODERS)
def test_no_response_gets_beyond_and_states_come_close(kind):
    scorer, rewards = scorer_of(harder(made(*DECODERS[kind], ROWS), 0))
    bounds = scorer.bounds()
    assert bounds.how == NORMALISED
    assert bounds.beyond(rewards) == 0
    for sign in (1, -1):
        best = climbed(scorer, sign)
        assert bounds.beyond([best]) == 0
        assert sign * bounds.share(best) > 0.99


@pytest.mark.parametrize("kind", OTHERS)
def test_a_networks_own_forward_is_bounded_where_what_its_last_layer_reads_is(kind):
    kinds, sizes, how = OTHERS[kind]
    network = harder(made(kinds, sizes, ROWS), 0)
    scorer, rewards = scorer_of(network)
    bounds = scorer.bounds()
    assert scorer.attention == "own-forward"
    assert bounds.how == how
    assert bounds.finite == (how != ELSEWHERE)
    assert bounds.beyond(rewards) == 0
    assert networks.hooks(network) == 0


@pytest.mark.parametrize("kind", ["roberta"])
def test_no_input_embeddings_get_an_encoder_beyond(kind):
    network = harder(made(*OTHERS[kind][:2], ROWS), 1)
    scorer, _ = scorer_of(network)
    bounds = scorer.bounds()
    embedding = network.get_input_embeddings()
    rewards = []
    looked_up = torch.randn(ROWS, 32, requires_grad=True)
    optimizer = torch.optim.Adam([looked_up], lr=0.1)
    ids = torch.arange(10, 14)[None]
    for _ in range(60):
        optimizer.zero_grad()
        handle = embedding.register_forward_hook(lambda _m, given, _o: looked_up[given[0]])
        reward = scorer.engines[0].rewards(ids, shared=3).sum()
        handle.remove()
        rewards.append(float(reward.detach()))
        (-reward).backward()
        optimizer.step()
    assert bounds.beyond(rewards) == 0
    assert max(rewards) > rewards[0] + 0.02 * (bounds.high - rewards[0])


@torch.no_grad()
@pytest.mark.parametrize("norm", [nn.RMSNorm(32, eps=1e-6), nn.LayerNorm(32)])
def test_a_norm_is_read_by_what_it_gives(norm):
    for weight in norm.parameters():
        weight.normal_()
    states = NormalisedStates.probe_norm(norm, 32)
    assert states.centred == isinstance(norm, nn.LayerNorm)
    assert torch.allclose(states.scale.float(), norm.weight, atol=1e-4)
    # The bound is what the best of all states gets, and no wider.
    weight = torch.randn(1, 32)
    low, high = states.linear(weight, None)
    best = weight[0].double() * states.scale
    best = best - best.mean() if states.centred else best
    assert float(weight @ norm(1e4 * best.float())) == pytest.approx(float(high), rel=1e-3)
    assert float(weight @ norm(-1e4 * best.float())) == pytest.approx(float(low), rel=1e-3)


@pytest.mark.parametrize("spectral", [2**22])
def test_behind_a_hidden_layer_no_state_gets_beyond(spectral, monkeypatch):
    monkeypatch.setattr(rewards_ceiling, "_SPECTRAL", spectral)
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
    layers.append(nn.Linear(64, 1)).requires_grad_(False)
    states = NormalisedStates(torch.rand(32).double() + 0.5, torch.randn(32).double(), False)
    low, high = (float(end) for end in states.layers(layers))
    z = torch.randn(1, 32, requires_grad=True)
    optimizer = torch.optim.Adam([z], lr=0.1)
    for _ in range(300):
        optimizer.zero_grad()
        unit = math.sqrt(32) * z / z.norm()
        reward = layers(unit * states.scale.float() + states.shift.float()).sum()
        assert low <= float(reward.detach()) <= high
        (-reward).backward()
        optimizer.step()
    # Looser than what is reached, but far from each unit by itself.
    assert high < (20 if spectral else 100) * abs(float(reward.detach()))


@pytest.mark.parametrize("kind", ["gemma2"])
def test_log_odds_of_answers_stay_within_their_bounds(kind):
    network = tiny_language_models.network(kind, ROWS)
    for reading in (
        AnswerReading((11, 12), (13, 14, 15)),
        AnswerReading((11,), (12,)),
        AnswerReading((11,)),
        AnswerReading((11, 12), values=(1.0, 5.0)),
    ):
        judge = JudgeNetwork(network, reading)
        scorer, rewards = scorer_of(judge)
        bounds = scorer.bounds()
        assert bounds.finite
        assert bounds.beyond(rewards) == 0
        for sign in (1, -1):
            assert bounds.beyond([climbed(scorer, sign)]) == 0
    single = JudgeNetwork(network, AnswerReading((11,), (12,)))
    scorer, _ = scorer_of(single)
    assert scorer.bounds().share(climbed(scorer, 1)) > 0.9


def test_a_log_probability_has_one_side_and_a_difference_of_two_has_none():
    scorer, rewards = scorer_of(SequenceNetwork(tiny_language_models.network("llama", ROWS)))
    bounds = scorer.bounds()
    assert (bounds.low, bounds.high) == (-math.inf, 0.0)
    assert bounds.is_bounded
    assert math.isnan(bounds.share(-3.0))
    assert rewards.max() < 0
    assert not weighted_sum([(0.1, bounds), (-0.1, bounds)]).is_bounded


def test_a_sum_is_bounded_by_its_terms():
    terms = [(2.0, Bounds(-1.0, 3.0, "a")), (-1.0, Bounds(0.0, 1.0, "b")), (0.0, unbounded("c"))]
    total = weighted_sum(terms)
    assert (total.low, total.high) == (-3.0, 6.0)
    assert total.beyond([6.5, -3.25, 0.0]) == 0.5
    assert total.share(6.0) == 1.0
    assert total.share(1.5) == 0.0
    assert not weighted_sum([*terms, (1.0, unbounded("c"))]).is_bounded
