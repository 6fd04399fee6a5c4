"""The engines give the model's own rewards, whatever the batch."""

import pytest
import torch

from pessimal.models.spec import Dtype
from pessimal.scoring.engine import Decoder, FullForward, SharedPrefix, own_forward
from pessimal.scoring.scorer import FrameScorer


@pytest.fixture
def ends(frame):
    return torch.tensor(frame.prefix), torch.tensor(frame.suffix)


@torch.inference_mode()
@pytest.mark.parametrize("length", [1, 2, 5])
def test_both_engines_equal_the_models_own_forward(network, frame, ends, length):
    prefix, suffix = ends
    responses = torch.randint(0, 300, (24, length), generator=torch.Generator().manual_seed(length))
    wholes = torch.cat([prefix.expand(24, -1), responses, suffix.expand(24, -1)], dim=1)
    own = torch.stack([network(input_ids=w[None]).logits[0, 0] for w in _without_pad(network, wholes)])
    shared = SharedPrefix(Decoder.of(network), prefix=prefix, suffix=suffix).rewards(responses)
    full = FullForward(network, prefix=prefix, suffix=suffix).rewards(responses)
    scale = own.std()
    assert (shared - own).abs().max() < 1e-5 * scale.clamp(min=1)
    assert (full - own).abs().max() < 1e-5 * scale.clamp(min=1)
    assert scale > 0.1, "rewards that do not vary would make this test empty"


def _without_pad(network, wholes):
    network.config.pad_token_id = None
    yield from wholes
    network.config.pad_token_id = 3


@torch.inference_mode()
def test_pad_token_at_the_end_does_not_move_the_place_where_the_reward_is_read(network, frame, ends):
    # The template ends in the pad token, as many do; the Hub's own pooling would step back to the token before it.
    assert frame.suffix[-1] == network.config.pad_token_id
    whole = torch.tensor([frame.around([7])])
    careless = network(input_ids=whole).logits[0, 0]
    ours = FullForward(network, prefix=ends[0], suffix=ends[1]).rewards(torch.tensor([[7]]))[0]
    assert abs(careless - ours) > 1e-3
    assert torch.allclose(own_forward(network, whole)[0], ours, atol=1e-5)
    assert network.config.pad_token_id == frame.suffix[-1], "the model is left as it was"


@torch.inference_mode()
def test_batch_composition_does_not_matter(network, frame):
    scorer = FrameScorer(network, frame, torch.device("cpu"))
    assert scorer.attention == "shared-prefix"
    ids = torch.arange(200).unsqueeze(1)
    whole = scorer.rewards(ids)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(1))
    parts = torch.cat([scorer.rewards(part) for part in ids[order].split(37)])
    assert (parts - whole[order]).abs().max() < 1e-5


@torch.inference_mode()
def test_prefix_is_held_once_whatever_the_batch(network, frame, ends, monkeypatch):
    from pessimal.scoring import shared_prefix

    engine = SharedPrefix(Decoder.of(network), prefix=ends[0], suffix=ends[1])
    seen = []
    inner = shared_prefix.torch.bmm
    monkeypatch.setattr(shared_prefix.torch, "bmm", lambda a, b: seen.append(b.shape[0]) or inner(a, b))
    engine.rewards(torch.arange(64).unsqueeze(1))
    assert set(seen) == {network.config.num_key_value_heads}, (
        "one key block per head group, none per candidate"
    )


@torch.inference_mode()
def test_head_runs_in_float32_after_a_low_precision_body(model, frame):
    low = FrameScorer(model.network(Dtype.bfloat16), frame, torch.device("cpu"))
    rewards = low.rewards(torch.arange(300).unsqueeze(1))
    assert rewards.dtype is torch.float32
    after_a_low_precision_head = rewards.bfloat16().unique().numel()
    assert after_a_low_precision_head < 0.9 * 300, "or nothing is tested"
    assert rewards.unique().numel() > 0.98 * 300


@torch.inference_mode()
def test_empty_response_is_scored_at_the_suffix(network, frame):
    scorer = FrameScorer(network, frame, torch.device("cpu"))
    own = own_forward(network, torch.tensor([frame.around([])]))
    assert torch.allclose(scorer.rewards(torch.empty(1, 0, dtype=torch.long)), own, atol=1e-5)
