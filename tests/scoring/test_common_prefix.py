"""Changes of one response: their rewards are the model's own wherever they begin, and so is the
gradient; the way that scores them is checked before it is used."""

import copy
import itertools
import logging
import math

import numpy as np
import pytest
import torch
from networks import CPU, DECODERS, SMALL, encoder, hooks, made, own
from torch import nn
from transformers.models.llama import LlamaConfig
from transformers.models.mistral import MistralConfig

from pessimal.errors import ModelError
from pessimal.rewards.checkpoint_files import native_class
from pessimal.rewards.frame import Frame
from pessimal.rewards.heads.gated import GatedHead
from pessimal.rewards.spec import Dtype
from pessimal.scoring import common_prefix
from pessimal.scoring.common_prefix import CommonPrefixScorer, ResponseScorer
from pessimal.scoring.engine import (
    Decoder,
    FullForward,
    OwnForward,
    SharedPrefix,
    own_rewards,
    prefix_context,
)
from pessimal.scoring.trust import SAMPLE
from tolerance import OF_GRADIENTS, close, varied

VOCABULARY, PREFIX, LENGTH = 50, 7, 5
NETWORKS = {
    "mistral, a window shorter than the response": (MistralConfig, {**SMALL, "sliding_window": 3}),
    "gated": (LlamaConfig, SMALL),
} | {
    name: DECODERS[name]
    for name in (
        "llama, a key for two queries",
        "mistral, a window that cuts the prefix",
        "qwen2, a window in one layer",
        "qwen3",
        "gemma2, soft-capping and a window",
        "gpt-neox",
        "gpt2",
        "mixtral",
    )
}
GATE = {
    "regression_layer.weight": (5, 32),
    "reward_transform_matrix": (5, 5),
    "gating.logit_scale": (1,),
    "gating.layers.0.weight": (12, 32),
    "gating.layers.0.bias": (12,),
    "gating.layers.1.weight": (5, 12),
}


def drawn(*shape: int, seed: int, most: int = VOCABULARY) -> torch.Tensor:
    return torch.randint(most, shape, generator=torch.Generator().manual_seed(seed))


PROMPT = drawn(PREFIX, seed=1)


def with_gate(config) -> nn.Module:
    opening = PROMPT[-2:].tolist()
    return native_class(config)(config, head=GatedHead, shapes=GATE, assistant_opening=opening)


@pytest.fixture(scope="module", params=NETWORKS)
def any_network(request):
    return made(
        *NETWORKS[request.param],
        VOCABULARY,
        **({"build": with_gate} if request.param == "gated" else {}),
    )


@pytest.fixture(scope="module")
def llama():
    return made(LlamaConfig, SMALL, VOCABULARY)


@pytest.fixture(scope="module")
def bert():
    return encoder(VOCABULARY)


def suffix_of(closing: int) -> torch.Tensor:
    return drawn(closing, seed=2)


def scorer_of(
    network: nn.Module, *, closing: int = 2, kind=SharedPrefix, **options
) -> CommonPrefixScorer:
    if kind is OwnForward:
        engine = OwnForward(network, PROMPT, typed=True)
    else:
        decoder = Decoder.find(network)
        keys_and_values, context = prefix_context(decoder, PROMPT)
        engine = kind(decoder, PROMPT if kind is FullForward else keys_and_values, context)
    return CommonPrefixScorer(network, engine, prefix=PROMPT, suffix=suffix_of(closing), **options)


def wholes(responses: torch.Tensor, closing: int = 2) -> torch.Tensor:
    n = len(responses)
    return torch.cat([PROMPT.expand(n, -1), responses, suffix_of(closing).expand(n, -1)], dim=1)


def changes(anchor: torch.Tensor) -> torch.Tensor:
    """Every kind of change of one response (L,), out of order: one place, two, all, none, and some
    twice."""
    length = len(anchor)
    places = [[p] for p in range(length)] * 9 + [
        *itertools.combinations(range(length), 2),
        range(length),
        [],
    ]
    rows = anchor.repeat(len(places), 1)
    shifts = 1 + drawn(len(places), length, seed=0, most=VOCABULARY - 1)
    for row, shift, where in zip(rows, shifts, places, strict=True):
        row[list(where)] = (row[list(where)] + shift[list(where)]) % VOCABULARY
    rows = torch.cat([rows, rows[::7], anchor[None]])
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(4))]


def singles(anchor: torch.Tensor, each: int) -> torch.Tensor:
    """`each` changes (n, L) of every place of a response (L,)."""
    rows = anchor.repeat(each * len(anchor), 1)
    places = torch.arange(len(rows)) % len(anchor)
    rows[torch.arange(len(rows)), places] = (
        anchor[places] + 1 + torch.arange(len(rows)) % 40
    ) % VOCABULARY
    return rows


ANCHOR = drawn(LENGTH, seed=3)


@pytest.mark.parametrize(("length", "closing"), [(1, 0), (LENGTH, 2)])
def test_rewards_are_the_models_own_wherever_a_response_changes(any_network, closing, length):
    rows = changes(ANCHOR[:length])
    theirs = own(any_network, wholes(rows, closing))
    by_prefix = scorer_of(any_network, closing=closing)
    assert close(by_prefix.rewards(rows, anchor=ANCHOR[:length]), varied(theirs))
    assert close(by_prefix.rewards(rows), varied(theirs))


def test_reward_does_not_depend_on_what_else_is_asked(llama):
    rows, by_prefix = changes(ANCHOR), scorer_of(llama)
    together = by_prefix.rewards(rows, anchor=ANCHOR)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(5))
    assert close(by_prefix.rewards(rows[order], anchor=ANCHOR), varied(together[order]))
    assert close(
        torch.cat([by_prefix.rewards(row[None], anchor=ANCHOR) for row in rows]), varied(together)
    )
    assert len(by_prefix.rewards(rows[:0], anchor=ANCHOR)) == len(by_prefix.rewards(rows[:0])) == 0
    others = (ANCHOR + 1 + drawn(70, LENGTH, seed=6, most=VOCABULARY - 1)) % VOCABULARY
    assert close(by_prefix.rewards(others, anchor=ANCHOR), varied(own(llama, wholes(others)))), (
        "nothing in common"
    )


@pytest.fixture
def asked(monkeypatch):
    """What the network was asked for: `passes`, each with (rows, own tokens, shared tokens) of its
    groups; `continued`."""

    class Asked:
        passes: list[list[tuple[int, int, int]]] = []  # noqa: RUF012
        continued: list[list[int]] = []  # noqa: RUF012

    single, several, continued = (
        SharedPrefix.rewards,
        common_prefix.packed_rewards,
        SharedPrefix.continued,
    )
    Asked.passes, Asked.continued = [], []

    def watched(engine, ids, *, shared):
        Asked.passes.append([(*ids.shape, shared)])
        return single(engine, ids, shared=shared)

    def watched_pack(engine, groups):
        Asked.passes.append([(*ids.shape, shared) for ids, shared in groups])
        return several(engine, groups)

    monkeypatch.setattr(SharedPrefix, "rewards", watched)
    monkeypatch.setattr(common_prefix, "packed_rewards", watched_pack)
    monkeypatch.setattr(
        SharedPrefix,
        "continued",
        lambda engine, ids: Asked.continued.append(ids.tolist()) or continued(engine, ids),
    )
    return Asked


def sizes(asked) -> list[int]:
    """Responses of every pass."""
    return [sum(n for n, *_ in groups) for groups in asked.passes]


def test_what_stands_before_a_change_is_not_run_again(llama, asked):
    by_prefix = scorer_of(llama)
    by_prefix.rewards(singles(ANCHOR, 4), anchor=ANCHOR)
    assert asked.passes == [[(4, LENGTH - p + 2, PREFIX + p) for p in range(LENGTH)]], (
        "all in one pass"
    )
    asked.passes.clear()
    first = singles(ANCHOR, 4)[::LENGTH]
    by_prefix.shares_starts = False
    by_prefix.rewards(singles(ANCHOR, 4), anchor=ANCHOR)
    assert asked.passes == [[(4 * LENGTH, LENGTH + 2, PREFIX)]]
    fresh = scorer_of(llama)
    asked.continued.clear()
    assert close(fresh.rewards(first, anchor=ANCHOR), varied(own(llama, wholes(first))))
    assert not asked.continued, "the anchor is not run for what shares the prompt alone"


@pytest.mark.parametrize("size", [7])
def test_batches_are_no_larger_than_asked_for(llama, asked, size):
    by_prefix, rows = scorer_of(llama, batch_size=size), singles(ANCHOR, 20)
    rewards = by_prefix.rewards(rows, anchor=ANCHOR)
    assert sizes(asked) == [size] * (len(rows) // size) + [len(rows) % size] * (
        len(rows) % size > 0
    )
    assert close(rewards, varied(own(llama, wholes(rows))))


def test_out_of_memory_halves_a_pass_until_it_fits(llama, monkeypatch, caplog):
    by_prefix, rows = scorer_of(llama), singles(ANCHOR, 8)
    whole, several = by_prefix.rewards(rows, anchor=ANCHOR), common_prefix.packed_rewards

    def small_card(engine, groups):
        if sum(len(ids) for ids, _ in groups) > 5:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return several(engine, groups)

    monkeypatch.setattr(common_prefix, "packed_rewards", small_card)
    assert close(by_prefix.rewards(rows, anchor=ANCHOR), varied(whole))
    assert "out of memory with 40 candidates" in caplog.text


TYPES = (torch.arange(PREFIX + LENGTH + 2) >= PREFIX).long()[None]


def test_engines_that_share_nothing_need_no_anchor(llama, bert):
    rows = changes(ANCHOR)
    theirs = own(llama, wholes(rows))
    assert close(scorer_of(llama, kind=FullForward).rewards(rows, anchor=ANCHOR), varied(theirs))
    by_types = own(bert, wholes(rows), token_type_ids=TYPES)
    assert close(scorer_of(bert, kind=OwnForward).rewards(rows, anchor=ANCHOR), varied(by_types))
    assert not close(own(bert, wholes(rows)), varied(by_types)), "or types were not given"


@torch.no_grad()
def test_low_precision_is_near_the_models_own(llama):
    low, rows = copy.deepcopy(llama).bfloat16(), changes(ANCHOR)
    rewards = scorer_of(low).rewards(rows, anchor=ANCHOR)
    theirs = torch.cat([own_rewards(low, row[None]) for row in wholes(rows)])
    assert rewards.dtype is torch.float32
    assert 0 < (rewards - theirs).abs().max() < 0.1 * theirs.std()
    exact, gradient = scorer_of(llama).gradient(ANCHOR), scorer_of(low).gradient(ANCHOR)
    assert gradient.dtype is torch.float32
    assert torch.cosine_similarity(gradient.flatten(), exact.flatten(), dim=0) > 0.99
    assert not torch.equal(gradient, exact)


def by_one_hot(network: nn.Module, at: torch.Tensor, *, closing: int = 2, **inputs) -> torch.Tensor:
    """d reward / d one-hot (L, V) by the network's own forward on a mixture of embeddings."""
    embedding, ids = network.get_input_embeddings(), wholes(at[None], closing)[0]
    mixture = nn.functional.one_hot(ids, VOCABULARY).to(embedding.weight.dtype).requires_grad_()
    scale = math.sqrt(embedding.weight.shape[1]) if "gemma" in network.config.model_type else 1.0
    handle = embedding.register_forward_hook(lambda *_: (mixture @ embedding.weight)[None] * scale)
    pad, network.config.pad_token_id = network.config.pad_token_id, None
    try:
        network(input_ids=ids[None], **inputs).logits[0, 0].backward()  # a gated head's mixture
    finally:
        handle.remove()
        network.config.pad_token_id = pad
    return mixture.grad[PREFIX : PREFIX + len(at)]


@pytest.mark.parametrize(("length", "closing"), [(1, 0), (LENGTH, 2)])
def test_gradient_is_that_of_a_one_hot_input(any_network, length, closing):
    at = ANCHOR[:length]
    theirs = by_one_hot(any_network, at, closing=closing)
    with torch.inference_mode():  # as Lightning's prediction loop does, before a search
        scorer_of(any_network, closing=closing).rewards(at[None])
    ours = scorer_of(any_network, closing=closing).gradient(at)
    assert ours.shape == (length, VOCABULARY)
    assert close(ours, theirs, roundings=OF_GRADIENTS)
    assert close(
        scorer_of(any_network, closing=closing, kind=FullForward).gradient(at),
        theirs,
        roundings=OF_GRADIENTS,
    )


def test_gradient_of_an_encoder_and_of_embeddings_of_zeros(llama, bert):
    theirs = by_one_hot(bert, ANCHOR, token_type_ids=TYPES)
    assert close(scorer_of(bert, kind=OwnForward).gradient(ANCHOR), theirs, roundings=OF_GRADIENTS)
    assert not close(by_one_hot(bert, ANCHOR), theirs, roundings=OF_GRADIENTS), (
        "or types were not given"
    )
    bare = copy.deepcopy(llama)
    bare.get_input_embeddings().weight[wholes(ANCHOR[None])[0, PREFIX:]] = 0
    assert by_one_hot(bare, ANCHOR).abs().max() > 1e-3
    assert close(scorer_of(bare).gradient(ANCHOR), by_one_hot(bare, ANCHOR), roundings=OF_GRADIENTS)


def test_network_that_looks_tokens_up_twice_is_refused(llama, monkeypatch):
    forward = llama.forward
    monkeypatch.setattr(
        llama,
        "forward",
        lambda input_ids, **more: (
            llama.get_input_embeddings()(input_ids) is None or forward(input_ids=input_ids, **more)
        ),
    )
    with pytest.raises(ModelError, match="looks tokens up 2 times"):
        scorer_of(llama, kind=OwnForward).gradient(ANCHOR)


def test_network_is_left_as_it_was(any_network, monkeypatch):
    rows, before = changes(ANCHOR), any_network.config._attn_implementation
    reward = own(any_network, wholes(rows[:1]))
    by_prefix = scorer_of(any_network)
    assert not by_prefix.rewards(rows, anchor=ANCHOR).requires_grad
    by_prefix.gradient(ANCHOR)
    monkeypatch.setattr(by_prefix.engine.decoder.head, "read", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        by_prefix.gradient(ANCHOR)
    assert hooks(any_network) == 0
    assert any_network.config._attn_implementation == before
    assert all(
        weight.grad is None and not weight.requires_grad for weight in any_network.parameters()
    )
    assert torch.equal(own(any_network, wholes(rows[:1])), reward)


# The check before a search, on the tiny checkpoint.

AT = drawn(4, seed=1, most=300)


def checked(network, frame, *, length=4, dtype=Dtype.float32, allowed=None) -> ResponseScorer:
    rows = network.get_input_embeddings().weight.shape[0]
    allowed = np.arange(rows) if allowed is None else allowed
    return ResponseScorer(network, frame, dtype=dtype, device=CPU, length=length, allowed=allowed)


def around(anchor: torch.Tensor, n: int = 48) -> torch.Tensor:
    """Responses (n, L) that each differ from the anchor in one place, the places in turn."""
    rows, places = anchor.repeat(n, 1), torch.arange(n) % len(anchor)
    rows[torch.arange(n), places] = drawn(n, seed=0, most=300)
    return rows


def test_checked_rewards_are_the_models_own(network, frame, caplog):
    one, two = (checked(copy.deepcopy(network), frame) for _ in range(2))
    assert one.trust == two.trust, "the same model gives the same check"
    assert one.path == "shared-prefix, common prefix"
    assert one.trust.holds
    assert one.trust.n >= SAMPLE
    assert not caplog.records
    rows = around(AT)
    by_hand = [
        network(input_ids=torch.tensor([frame.around(row)])).logits.item() for row in rows.tolist()
    ]
    theirs = one.own_rewards(rows)
    assert not close(theirs, varied(by_hand)), (
        "the Hub's pooling reads before the pad token that ends this template"
    )
    assert close(one.rewards(rows, anchor=AT), varied(theirs))
    for length in (1, 2, 3):
        rows = around(AT[:length])
        assert close(one.rewards(rows, anchor=AT[:length]), varied(one.own_rewards(rows)))
    assert one.gradient(AT).shape == (4, network.config.vocab_size)


def spoilt_at(place: int):
    def spoil(values: torch.Tensor) -> torch.Tensor:
        values[:, place] *= 3
        return values

    return spoil


@pytest.mark.parametrize("spoil", [spoilt_at(-3), spoilt_at(-1), lambda values: values * torch.nan])
def test_wrong_beginnings_are_noticed_and_not_shared(network, frame, monkeypatch, caplog, spoil):
    sound = SharedPrefix.continued

    def wrong(engine, ids):
        found = sound(engine, ids)
        found.prefix.values[-1] = spoil(found.prefix.values[-1].clone())
        return found

    monkeypatch.setattr(SharedPrefix, "continued", wrong)
    with caplog.at_level(logging.WARNING):
        scorer = checked(network, frame)
    assert "Sharing the beginnings of responses differs from the model's own forward" in caplog.text
    assert scorer.path == "shared-prefix", "the prompt is still shared"
    rows = around(AT, n=100)
    assert close(scorer.rewards(rows, anchor=AT), varied(scorer.own_rewards(rows)))


@pytest.mark.parametrize(
    ("shared", "own_tokens", "path"),
    [
        *((p, 4 - p, "shared-prefix") for p in (1, 2, 3)),
        *((0, n, "full-forward") for n in (1, 2, 3, 4)),
    ],
)
def test_beginnings_and_responses_of_every_length_are_checked(
    network, frame, monkeypatch, shared, own_tokens, path
):
    """The engine is wrong where it shares so many tokens of a response and runs so many."""
    single, several = SharedPrefix.rewards, common_prefix.packed_rewards
    hit = (len(frame.prefix) + shared, own_tokens + len(frame.suffix))

    def wrong(engine, ids, *, shared):
        return single(engine, ids, shared=shared) + 0.5 * ((shared, ids.shape[1]) == hit)

    def wrong_pack(engine, groups):
        hits = [(before, ids.shape[1]) == hit for ids, before in groups for _ in ids]
        return several(engine, groups) + 0.5 * torch.tensor(hits).float()

    monkeypatch.setattr(SharedPrefix, "rewards", wrong)
    monkeypatch.setattr(common_prefix, "packed_rewards", wrong_pack)
    assert checked(network, frame).path == path


def test_encoder_with_token_types_goes_by_its_own_forward():
    bert, frame = encoder(300), Frame(prompt="?", prefix=(1, 7, 9, 2), suffix=(2,), typed=True)
    scorer, rows = checked(bert, frame), around(AT)
    assert scorer.path == "own-forward"
    types = torch.tensor([[0] * 4 + [1] * 5])
    theirs = own(bert, [frame.around(row) for row in rows.tolist()], token_type_ids=types)
    assert close(scorer.rewards(rows, anchor=AT), varied(theirs))
    assert close(scorer.own_rewards(rows), varied(theirs))


def test_check_is_made_of_allowed_tokens_only(model, frame):
    network, allowed = model.network(), np.arange(10, 30)
    others = np.setdiff1d(np.arange(network.config.vocab_size), [*allowed, *frame.around([])])
    network.get_input_embeddings().weight[others] = torch.nan
    assert checked(network, frame, allowed=allowed).trust.n >= SAMPLE
    everything = checked(network, frame).trust
    assert everything is None or everything.n < SAMPLE, "or nothing was forbidden"
    network.score.weight.fill_(torch.nan)
    without = checked(network, frame)
    assert without.trust is None, "left to the search to refuse"
    assert without.rewards(AT[None]).isnan().all()
