"""The engines give the model's own rewards, whatever the batch and the architecture; one that does
not is noticed and replaced."""

import logging

import numpy as np
import pytest
import torch
from networks import CPU, DECODERS, encoder, hooks, made, own
from torch.utils._python_dispatch import TorchDispatchMode

from pessimal.rewards.formats import Templated
from pessimal.rewards.spec import Dtype, Mode
from pessimal.scoring.candidates import inputs
from pessimal.scoring.engine import Decoder, FullForward, SharedPrefix, own_rewards, prefix_context
from pessimal.scoring.scorer import FrameScorer
from pessimal.scoring.trust import judge
from tolerance import close, slack, varied


def frame_responses(frame, responses: torch.Tensor) -> torch.Tensor:
    """Responses (n, length) with the frame's suffix behind them: what stands after the prefix."""
    return torch.cat([responses, torch.tensor(frame.suffix).expand(len(responses), -1)], dim=1)


def drawn(most: int, length: int, n: int = 16) -> torch.Tensor:
    return torch.randint(most, (n, length), generator=torch.Generator().manual_seed(length))


@torch.no_grad()
@pytest.mark.parametrize("name", DECODERS)
def test_reward_is_the_models_own_by_every_engine(model, frame, words, name, caplog):
    network = made(*DECODERS[name], model.embedding_rows)
    scorer = FrameScorer(network, frame, device=CPU)
    assert [engine.name for engine in scorer.engines] == [
        "shared-prefix",
        "full-forward",
        "own-forward",
    ]
    before, length = network.config._attn_implementation, len(frame.prefix)
    # Where less is shared, a response merges with the template's last tokens: these are then others
    # than in the prefix.
    for shared, run in [
        (length, 1),
        (length, 2),
        (length, 7),
        *((s, length - s + 1) for s in (1, length // 2)),
    ]:
        ids = frame_responses(frame, drawn(model.embedding_rows, run))
        theirs = own(
            network,
            torch.cat([torch.tensor(frame.prefix[:shared]).expand(len(ids), -1), ids], dim=1),
        )
        for engine in scorer.engines:
            assert close(engine.rewards(ids, shared=shared), varied(theirs)), (
                engine.name,
                shared,
                run,
            )
    assert network.config._attn_implementation == before, "the model is left as it was"
    scorer.establish_trust(
        inputs(Templated(model.tokenizer), frame, words, Mode.ids), dtype=Dtype.float32
    )
    assert scorer.attention == "shared-prefix"
    assert scorer.trust.holds
    assert scorer.trust.n == 16
    assert scorer.trust.largest_difference <= slack(theirs)
    assert not [record for record in caplog.records if record.name.startswith("pessimal")]


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("gemma2, soft-capping", {"attn_logit_softcapping": None}),
        ("mistral, a window of two", {"sliding_window": None}),
    ],
)
def test_what_is_peculiar_to_an_architecture_matters_here(model, frame, name, without):
    kind, sizes = DECODERS[name]
    wholes = [frame.around(row) for row in drawn(model.embedding_rows, 2).tolist()]
    with_it, without_it = (
        own(made(kind, each, model.embedding_rows), wholes)
        for each in (sizes, {**sizes, **without})
    )
    assert (with_it - without_it).abs().max() > 1e-2


@torch.no_grad()
def test_encoder_with_a_chat_template_is_scored_by_its_own_forward(model, frame, words):
    network = encoder(model.embedding_rows)
    scorer = FrameScorer(network, frame, device=CPU)
    assert [engine.name for engine in scorer.engines] == ["own-forward"]
    scorer.establish_trust(
        inputs(Templated(model.tokenizer), frame, words, Mode.ids), dtype=Dtype.float32
    )
    assert scorer.trust.holds
    wholes = torch.tensor([frame.around(row) for row in drawn(model.embedding_rows, 2).tolist()])
    rewards = scorer.rewards(wholes[:, len(frame.prefix) :], shared=len(frame.prefix))
    assert close(rewards, varied(own(network, wholes)))


# Rows longer than a window that is only in the mask would be scored wrong, and a sample of short


@torch.no_grad()
def test_pad_token_at_the_end_does_not_move_the_place_where_the_reward_is_read(network, frame):
    # The template ends in the pad token, as many do; the Hub's own pooling would step back to the
    # token before it.
    assert frame.suffix[-1] == network.config.pad_token_id
    whole, prefix = torch.tensor([frame.around([7])]), torch.tensor(frame.prefix)
    careless = network(input_ids=whole).logits[0, 0]
    ours = FullForward(Decoder.find(network), prefix).rewards(
        frame_responses(frame, torch.tensor([[7]])), shared=len(prefix)
    )
    assert abs(careless - ours[0]) > 1e-3
    assert close(own_rewards(network, whole), ours)
    assert network.config.pad_token_id == frame.suffix[-1], "the model is left as it was"


@torch.no_grad()
def test_batch_composition_does_not_matter(network, frame):
    scorer, before = FrameScorer(network, frame, device=CPU), len(frame.prefix)
    ids = frame_responses(frame, torch.arange(200).unsqueeze(1))
    whole = scorer.rewards(ids, shared=before)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(1))
    parts = torch.cat([scorer.rewards(part, shared=before) for part in ids[order].split(37)])
    assert close(parts, whole[order])
    empty = scorer.rewards(
        frame_responses(frame, torch.empty(1, 0, dtype=torch.long)), shared=before
    )
    assert close(empty, own_rewards(network, torch.tensor([frame.around([])])))


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
def test_prefix_is_held_once_and_the_last_block_runs_on_the_position_that_is_read(network, frame):
    decoder, prefix = Decoder.find(network), torch.tensor(frame.prefix)
    keys_and_values, context = prefix_context(decoder, prefix)
    ids, shapes = frame_responses(frame, torch.arange(64).unsqueeze(1)), []
    with Products() as products:
        SharedPrefix(decoder, keys_and_values, context).rewards(ids, shared=len(prefix))
    size = network.config.hidden_size // network.config.num_attention_heads
    read = [operand for operand in products.operands if {len(prefix), size} <= set(operand.shape)]
    assert {operand.shape[0] for operand in read} == {network.config.num_key_value_heads}, (
        "one key block per head group, none per candidate"
    )
    held = [*keys_and_values.keys, *keys_and_values.values]
    places = [sorted(t.untyped_storage().data_ptr() for t in tensors) for tensors in (read, held)]
    assert places[0] == places[1], "read where it lies, once in each layer"
    watched = [
        layer.mlp.register_forward_hook(lambda _, i, o: shapes.append(o.shape[1]))
        for layer in decoder.layers
    ]
    FullForward(decoder, prefix).rewards(ids, shared=len(prefix))
    for hook in watched:
        hook.remove()
    assert shapes == [len(prefix) + ids.shape[1], 1]
    assert hooks(network) == 0, "the model is left as it was"


@torch.no_grad()
def test_out_of_memory_halves_the_batch_until_it_fits(network, frame, monkeypatch, caplog):
    scorer = FrameScorer(network, frame, device=CPU)
    ids, before = frame_responses(frame, torch.arange(40).unsqueeze(1)), len(frame.prefix)
    whole = scorer.rewards(ids, shared=before)
    inner, sizes = scorer.engines[0].rewards, []

    def small_card(ids, *, shared):
        sizes.append(len(ids))
        if len(ids) > 12:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return inner(ids, shared=shared)

    monkeypatch.setattr(scorer.engines[0], "rewards", small_card)
    assert close(scorer.rewards(ids, shared=before), whole)
    assert sizes == [40, 20, 10, 10, 20, 10, 10]
    assert "out of memory with 40 candidates" in caplog.text
    monkeypatch.setattr(
        scorer.engines[0], "rewards", lambda *_, **__: small_card(ids, shared=before)
    )
    with pytest.raises(torch.OutOfMemoryError):  # one candidate cannot be halved
        scorer.rewards(ids[:1], shared=before)


# The trust check.


@pytest.mark.parametrize(("off", "holds"), [(50, True), (2000, False)])
@pytest.mark.parametrize("spread", [1e-3])
def test_rounding_of_rewards_that_hardly_vary_is_no_reason_for_mistrust(spread, off, holds):
    """`off` in float32 roundings of a reward of 101: 4e-4 and 1.5e-2."""
    own = 101 + spread * np.arange(4)
    moved = own + off * 2.0**-17
    assert judge(own, moved, moved, moved, rounding=0.0, dtype=Dtype.float32).holds is holds


def spoilt(network, frame, spoil) -> FrameScorer:
    """A scorer whose shared prefix holds other values than the model computed."""
    scorer = FrameScorer(network, frame, device=CPU)
    prefix = scorer.engines[0]._start(len(frame.prefix))
    prefix.values[:] = spoil(prefix.values)
    return scorer


@pytest.mark.parametrize("dtype", [Dtype.bfloat16])
def test_rounding_is_no_reason_for_mistrust_but_a_wrong_engine_is(model, frame, words, dtype):
    candidates = inputs(Templated(model.tokenizer), frame, words, Mode.ids)
    scorer = FrameScorer(model.network(dtype), frame, device=CPU)
    scorer.establish_trust(candidates, dtype=dtype)
    assert scorer.attention == "shared-prefix"
    assert scorer.trust.largest_difference > 1e-5, "or low precision was not low"
    # Back to front, while the keys stand as they were.
    wrong = spoilt(model.network(dtype), frame, lambda values: [v.flip(1) for v in values])
    wrong.establish_trust(candidates, dtype=dtype)
    assert wrong.attention == "full-forward"


def test_wrong_engine_is_noticed_and_replaced_down_to_the_models_own_forward(
    model, frame, words, caplog
):
    candidates = inputs(Templated(model.tokenizer), frame, words, Mode.ids)
    one = spoilt(model.network(), frame, lambda values: [values[0], *(1.5 * v for v in values[1:])])
    both = FrameScorer(model.network(), frame, device=CPU)
    both.engines[0].decoder.head.layers.weight.mul_(2)  # a copy in float32, which both engines read
    for scorer, path in ((one, "full-forward"), (both, "own-forward")):
        with caplog.at_level(logging.WARNING):
            scorer.establish_trust(candidates, dtype=Dtype.float32)
        assert f"Falling back to {path}" in caplog.text
        assert scorer.attention == path
        assert scorer.trust.holds
