"""The trust check notices an engine that is wrong, says so, and falls back."""

import logging

import numpy as np
import pytest
import torch

from pessimal.models.spec import Dtype, Mode
from pessimal.scoring.candidates import inputs
from pessimal.scoring.scorer import FrameScorer
from pessimal.scoring.trust import sample_rows

CPU = torch.device("cpu")


def spoilt(scorer: FrameScorer, spoil) -> FrameScorer:
    """A scorer whose shared prefix holds other values than the model computed."""
    engine = scorer.engines[0]
    prefix = engine._start(len(scorer.frame.prefix))
    prefix.values[:] = spoil(prefix.values)
    return scorer


def test_sound_engine_is_kept(model, network, frame, words, caplog):
    scorer = FrameScorer(network, frame, device=CPU)
    scorer.establish_trust(inputs(model.tokenizer, frame, words, Mode.ids), dtype=Dtype.float32)
    assert scorer.trust.holds
    assert scorer.trust.n == 16
    assert scorer.trust.kendall == 1.0
    assert 0 < scorer.trust.largest_difference < 1e-5
    assert scorer.attention == "shared-prefix"
    assert not caplog.records


@pytest.mark.parametrize("dtype", [Dtype.bfloat16, Dtype.float16])
def test_rounding_is_no_reason_for_mistrust_but_a_wrong_engine_is(model, frame, words, dtype):
    made = inputs(model.tokenizer, frame, words, Mode.ids)
    scorer = FrameScorer(model.network(dtype), frame, device=CPU)
    scorer.establish_trust(made, dtype=dtype)
    assert scorer.attention == "shared-prefix"
    assert scorer.trust.largest_difference > 1e-5, "or low precision was not low"
    # Back to front, while the keys stand as they were.
    wrong = spoilt(
        FrameScorer(model.network(dtype), frame, device=CPU), lambda values: [v.flip(1) for v in values]
    )
    wrong.establish_trust(made, dtype=dtype)
    assert wrong.attention == "full-forward"


def test_wrong_engine_is_noticed_and_replaced(model, network, frame, words, caplog):
    scorer = spoilt(
        FrameScorer(network, frame, device=CPU), lambda values: [values[0], *(1.5 * v for v in values[1:])]
    )
    with caplog.at_level(logging.WARNING):
        scorer.establish_trust(inputs(model.tokenizer, frame, words, Mode.ids), dtype=Dtype.float32)
    assert "Falling back to full-forward" in caplog.text
    assert scorer.attention == "full-forward"
    assert scorer.trust.holds


def test_engines_that_are_all_wrong_leave_the_models_own_forward(model, frame, words, caplog):
    scorer = FrameScorer(model.network(), frame, device=CPU)
    scorer.engines[0].decoder.head.score.weight.mul_(2)  # a copy in float32, which both engines read
    with caplog.at_level(logging.WARNING):
        scorer.establish_trust(inputs(model.tokenizer, frame, words, Mode.ids), dtype=Dtype.float32)
    assert "Falling back to full-forward" in caplog.text
    assert "Falling back to own-forward" in caplog.text
    assert scorer.attention == "own-forward"
    assert scorer.trust.holds


def test_sample_has_one_of_every_rare_kind():
    kinds = np.tile([10, 2], (1000, 1))
    kinds[7], kinds[500] = [10, 40], [8, 4]
    rows = sample_rows(kinds, n=16, seed=0)
    assert {7, 500} <= set(rows.tolist())
    assert len(rows) == 18
    assert len(set(rows.tolist())) == 18
    many = np.column_stack([np.full(1000, 10), np.arange(1000)])
    rows = sample_rows(many, n=16, seed=0)
    assert {0, 999} <= set(rows.tolist()), "from the shortest to the longest"
    assert len(rows) == 32
