"""Responses in a frame: the way that scores them is checked against the model's own forward before it is used."""

import copy
import logging

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification
from transformers.models.bert import BertConfig

from pessimal.models.frame import Frame
from pessimal.models.spec import Dtype
from pessimal.scoring import common_prefix
from pessimal.scoring.common_prefix import ResponseScorer
from pessimal.scoring.engine import SharedPrefix
from pessimal.scoring.trust import SAMPLE

CPU = torch.device("cpu")
LENGTH = 4


def scorer(network, frame, *, length=LENGTH, dtype=Dtype.float32, allowed=None, **options) -> ResponseScorer:
    rows = network.get_input_embeddings().weight.shape[0]
    return ResponseScorer(
        network,
        frame,
        dtype=dtype,
        device=CPU,
        length=length,
        allowed=np.arange(rows) if allowed is None else allowed,
        **options,
    )


def changes(frame, anchor: torch.Tensor, n: int = 48) -> torch.Tensor:
    """Responses (n, L) that each differ from the anchor in one place, the places in turn."""
    rows, places = anchor.repeat(n, 1), torch.arange(n) % len(anchor)
    rows[torch.arange(n), places] = torch.randint(300, (n,), generator=torch.Generator().manual_seed(0))
    return rows


@pytest.fixture
def anchor():
    return torch.randint(300, (LENGTH,), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def spoilt(monkeypatch):
    """Make `SharedPrefix.continued` wrong: `spoil` gets a layer's values (key-value heads, P + L − 1, head size)."""

    def spoil_with(spoil):
        sound = SharedPrefix.continued

        def wrong(engine, ids):
            found = sound(engine, ids)
            found.prefix.values[-1] = spoil(found.prefix.values[-1].clone())
            return found

        monkeypatch.setattr(SharedPrefix, "continued", wrong)

    return spoil_with


def close(ours, theirs) -> bool:
    ours, theirs = np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float)
    assert theirs.std() > 0.05, "rewards that do not vary would make this test empty"
    return bool(np.abs(ours - theirs).max() <= 1e-5 * max(1.0, theirs.std()))


def test_rewards_are_the_models_own(network, frame, anchor, caplog):
    made = scorer(network, frame)
    assert made.path == "shared-prefix, common prefix"
    assert made.trust.holds
    assert made.trust.n >= SAMPLE
    assert 0 < made.common_prefix_difference < 1e-5
    assert not caplog.records
    rows = changes(frame, anchor)
    own = made.own_rewards(rows)
    assert own.dtype == np.float64
    by_hand = [network(input_ids=torch.tensor([frame.around(row)])).logits.item() for row in rows.tolist()]
    assert not close(own, by_hand), "the Hub's pooling reads before the pad token that ends this template"
    assert close(made.rewards(rows, anchor=anchor), own)
    assert close(made.rewards(rows), own)
    assert made.gradient(anchor).shape == (LENGTH, network.config.vocab_size)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_every_length_up_to_the_longest_is_scored(network, frame, anchor, length):
    made = scorer(network, frame)
    rows = changes(frame, anchor[:length])
    assert close(made.rewards(rows, anchor=anchor[:length]), made.own_rewards(rows))


def test_responses_of_one_token_have_nothing_to_share(network, frame, caplog):
    made = scorer(network, frame, length=1)
    rows = torch.arange(40)[:, None]
    assert close(made.rewards(rows, anchor=rows[3]), made.own_rewards(rows))
    assert not caplog.records


@pytest.mark.parametrize(
    ("where", "spoil"),
    [
        ("everywhere", lambda values: 1.5 * values),
        ("at the first token of a response", lambda values: _at(values, -LENGTH + 1)),
        ("at the last token that is shared", lambda values: _at(values, -1)),
        ("no numbers", lambda values: values * torch.nan),
    ],
)
def test_wrong_beginnings_are_noticed_and_not_shared(network, frame, anchor, spoilt, caplog, where, spoil):
    spoilt(spoil)
    with caplog.at_level(logging.WARNING):
        made = scorer(network, frame)
    assert "Sharing the beginnings of responses differs from the model's own forward" in caplog.text, where
    assert not made.common_prefix_difference <= made.trust.tolerance
    assert made.path == "shared-prefix", "the prompt is still shared"
    rows = changes(frame, anchor, n=100)
    assert close(made.rewards(rows, anchor=anchor), made.own_rewards(rows))


def _at(values: torch.Tensor, place: int) -> torch.Tensor:
    values[:, place] *= 3
    return values


@pytest.fixture
def wrong_at(monkeypatch):
    """Make the engine wrong where it shares so many tokens and runs so many."""
    single, several = SharedPrefix.rewards, common_prefix.packed_rewards

    def spoil(*, shared: int, own: int):
        def wrong(engine, ids, **asked):
            hit = asked["shared"] == shared and ids.shape[1] == own
            return single(engine, ids, **asked) + (0.5 if hit else 0.0)

        def wrong_pack(engine, groups):
            hits = [(g.shared, g.ids.shape[1]) == (shared, own) for g in groups for _ in g.ids]
            return several(engine, groups) + 0.5 * torch.tensor(hits).float()

        monkeypatch.setattr(SharedPrefix, "rewards", wrong)
        monkeypatch.setattr(common_prefix, "packed_rewards", wrong_pack)

    return spoil


@pytest.mark.parametrize("place", range(1, LENGTH))
def test_beginnings_of_every_length_are_checked(network, frame, wrong_at, caplog, place):
    wrong_at(shared=len(frame.prefix) + place, own=LENGTH - place + len(frame.suffix))
    with caplog.at_level(logging.WARNING):
        assert scorer(network, frame).path == "shared-prefix"


@pytest.mark.parametrize("length", range(1, LENGTH + 1))
def test_responses_of_every_length_are_checked(network, frame, wrong_at, caplog, length):
    wrong_at(shared=len(frame.prefix), own=length + len(frame.suffix))
    with caplog.at_level(logging.WARNING):
        assert scorer(network, frame).path == "full-forward"


def test_small_rounding_is_no_reason_for_mistrust(network, frame, spoilt, caplog):
    spoilt(lambda values: values * (1 + 1e-6))
    assert scorer(network, frame).path == "shared-prefix, common prefix"
    assert not caplog.records


def test_network_whose_prompt_cannot_be_shared_shares_nothing(network, frame, anchor, monkeypatch):
    monkeypatch.setattr(SharedPrefix, "suits", lambda _: False)
    made = scorer(network, frame)
    assert made.path == "full-forward"
    assert made.common_prefix_difference == 0.0
    rows = changes(frame, anchor)
    assert close(made.rewards(rows, anchor=anchor), made.own_rewards(rows))


def test_encoder_with_token_types_goes_by_its_own_forward(anchor):
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, vocab_size=300,
        num_labels=1, initializer_range=0.4,
    )  # fmt: skip
    network = AutoModelForSequenceClassification.from_config(config).eval().requires_grad_(False)
    network.reward_output = 0
    frame = Frame(prompt="?", prefix=(1, 7, 9, 2), suffix=(2,), typed=True)
    made = scorer(network, frame)
    assert made.path == "own-forward"
    rows = changes(frame, anchor)
    wholes = torch.tensor([frame.around(row) for row in rows.tolist()])
    types = torch.tensor([[0] * 4 + [1] * (LENGTH + 1)]).expand_as(wholes)
    with torch.no_grad():
        by_hand = network(input_ids=wholes, token_type_ids=types).logits[:, 0]
    assert close(made.rewards(rows, anchor=anchor), by_hand)
    assert close(made.own_rewards(rows), by_hand)
    assert made.gradient(anchor).shape == (LENGTH, 300)


def test_check_is_made_of_allowed_tokens_only(model, frame):
    network = model.network()
    allowed = np.arange(10, 30)
    others = np.setdiff1d(np.arange(network.config.vocab_size), [*allowed, *frame.around([])])
    network.get_input_embeddings().weight[others] = torch.nan
    assert scorer(network, frame, allowed=allowed).trust.n >= SAMPLE
    everything = scorer(network, frame).trust
    assert everything is None or everything.n < SAMPLE, "or nothing was forbidden"


def test_model_without_a_number_is_left_to_the_search_to_refuse(model, frame, anchor):
    network = model.network()
    network.score.weight.fill_(torch.nan)
    made = scorer(network, frame)
    assert made.trust is None
    assert made.rewards(anchor[None]).isnan().all()


def test_low_precision_is_trusted_within_its_rounding(model, frame, caplog):
    made = scorer(model.network(Dtype.bfloat16), frame, dtype=Dtype.bfloat16)
    assert made.path == "shared-prefix, common prefix"
    assert 1e-5 < made.common_prefix_difference <= made.trust.tolerance
    assert not caplog.records


def test_same_model_gives_the_same_check(network, frame):
    first, second = (scorer(copy.deepcopy(network), frame) for _ in range(2))
    assert first.trust == second.trust
    assert first.common_prefix_difference == second.common_prefix_difference
