"""The engines give the model's own rewards, whatever the batch."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pessimal.models.spec import Dtype
from pessimal.scoring.engine import Decoder, FullForward, SharedPrefix, own_rewards, prefix_context
from pessimal.scoring.scorer import FrameScorer

CPU = torch.device("cpu")


@pytest.fixture
def prefix(frame):
    return torch.tensor(frame.prefix)


def framed(frame, responses: torch.Tensor) -> torch.Tensor:
    """Responses (n, length) with the frame's suffix behind them: what stands after the prefix."""
    return torch.cat([responses, torch.tensor(frame.suffix).expand(len(responses), -1)], dim=1)


@torch.no_grad()
@pytest.mark.parametrize("length", [1, 2, 5])
def test_both_engines_equal_the_models_own_forward(network, frame, prefix, length):
    responses = torch.randint(0, 300, (24, length), generator=torch.Generator().manual_seed(length))
    ids, before = framed(frame, responses), len(prefix)
    wholes = torch.cat([prefix.expand(24, -1), ids], dim=1)
    own = torch.stack([network(input_ids=w[None]).logits[0, 0] for w in _without_pad(network, wholes)])
    decoder = Decoder.of(network)
    shared = SharedPrefix(decoder, *prefix_context(decoder, prefix)).rewards(ids, shared=before)
    full = FullForward(decoder, prefix).rewards(ids, shared=before)
    scale = own.std()
    assert (shared - own).abs().max() < 1e-5 * scale.clamp(min=1)
    assert (full - own).abs().max() < 1e-5 * scale.clamp(min=1)
    assert scale > 0.1, "rewards that do not vary would make this test empty"


def _without_pad(network, wholes):
    network.config.pad_token_id = None
    yield from wholes
    network.config.pad_token_id = 3


@torch.no_grad()
def test_pad_token_at_the_end_does_not_move_the_place_where_the_reward_is_read(network, frame, prefix):
    # The template ends in the pad token, as many do; the Hub's own pooling would step back to the token before it.
    assert frame.suffix[-1] == network.config.pad_token_id
    whole = torch.tensor([frame.around([7])])
    careless = network(input_ids=whole).logits[0, 0]
    ids = framed(frame, torch.tensor([[7]]))
    ours = FullForward(Decoder.of(network), prefix).rewards(ids, shared=len(prefix))[0]
    assert abs(careless - ours) > 1e-3
    assert torch.allclose(own_rewards(network, whole)[0], ours, atol=1e-5)
    assert network.config.pad_token_id == frame.suffix[-1], "the model is left as it was"


@torch.no_grad()
def test_batch_composition_does_not_matter(network, frame):
    scorer = FrameScorer(network, frame, device=CPU)
    assert scorer.attention == "shared-prefix"
    ids, before = framed(frame, torch.arange(200).unsqueeze(1)), len(frame.prefix)
    whole = scorer.rewards(ids, shared=before)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(1))
    parts = torch.cat([scorer.rewards(part, shared=before) for part in ids[order].split(37)])
    assert (parts - whole[order]).abs().max() < 1e-5


class Products(TorchDispatchMode):
    """Keeps the operands of all batched matrix products."""

    def __init__(self):
        super().__init__()
        self.operands: list[torch.Tensor] = []

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        if function in (torch.ops.aten.bmm.default, torch.ops.aten.baddbmm.default):
            self.operands += arguments
        return function(*arguments, **(keywords or {}))


@torch.no_grad()
def test_prefix_is_held_once_whatever_the_batch(network, frame, prefix):
    decoder = Decoder.of(network)
    keys_and_values, context = prefix_context(decoder, prefix)
    engine = SharedPrefix(decoder, keys_and_values, context)
    with Products() as products:
        engine.rewards(framed(frame, torch.arange(64).unsqueeze(1)), shared=len(prefix))
    size = network.config.hidden_size // network.config.num_attention_heads
    read = [operand for operand in products.operands if {len(prefix), size} <= set(operand.shape)]
    assert {operand.shape[0] for operand in read} == {network.config.num_key_value_heads}, (
        "one key block per head group, none per candidate"
    )
    held = [*keys_and_values.keys, *keys_and_values.values]
    assert sorted(map(_place, read)) == sorted(map(_place, held)), "read where it lies, once in each layer"


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


@torch.no_grad()
def test_last_layers_feed_forward_block_runs_on_the_position_that_is_read(network, frame, prefix):
    decoder = Decoder.of(network)
    shapes = []
    watched = [
        layer.mlp.register_forward_hook(lambda _, i, o: shapes.append(o.shape[1])) for layer in decoder.layers
    ]
    ids = framed(frame, torch.arange(8).unsqueeze(1))
    FullForward(decoder, prefix).rewards(ids, shared=len(prefix))
    for hook in watched:
        hook.remove()
    assert shapes == [len(prefix) + ids.shape[1], 1]
    assert not decoder.norm._forward_pre_hooks, "the model is left as it was"
    assert not decoder.layers[-1].mlp._forward_pre_hooks


@torch.no_grad()
def test_head_runs_in_float32_after_a_low_precision_body(model, frame):
    low = FrameScorer(model.network(Dtype.bfloat16), frame, device=CPU)
    rewards = low.rewards(framed(frame, torch.arange(300).unsqueeze(1)), shared=len(frame.prefix))
    assert rewards.dtype is torch.float32
    after_a_low_precision_head = rewards.bfloat16().unique().numel()
    assert after_a_low_precision_head < 0.9 * 300, "or nothing is tested"
    assert rewards.unique().numel() > 0.98 * 300


@torch.no_grad()
def test_empty_response_is_scored_at_the_suffix(network, frame):
    scorer = FrameScorer(network, frame, device=CPU)
    own = own_rewards(network, torch.tensor([frame.around([])]))
    ids = framed(frame, torch.empty(1, 0, dtype=torch.long))
    assert torch.allclose(scorer.rewards(ids, shared=len(frame.prefix)), own, atol=1e-5)


@torch.no_grad()
def test_out_of_memory_halves_the_batch_until_it_fits(network, frame, monkeypatch, caplog):
    scorer = FrameScorer(network, frame, device=CPU)
    ids, before = framed(frame, torch.arange(40).unsqueeze(1)), len(frame.prefix)
    whole = scorer.rewards(ids, shared=before)
    inner, sizes = scorer.engines[0].rewards, []

    def small_card(ids, *, shared):
        sizes.append(len(ids))
        if len(ids) > 12:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return inner(ids, shared=shared)

    monkeypatch.setattr(scorer.engines[0], "rewards", small_card)
    assert (scorer.rewards(ids, shared=before) - whole).abs().max() < 1e-5
    assert sizes == [40, 20, 10, 10, 20, 10, 10]
    assert "out of memory with 40 candidates" in caplog.text
    monkeypatch.setattr(scorer.engines[0], "rewards", lambda *_, **__: small_card(ids, shared=before))
    with pytest.raises(torch.OutOfMemoryError):  # one candidate cannot be halved
        scorer.rewards(ids[:1], shared=before)
