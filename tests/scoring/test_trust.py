"""The trust check notices an engine that is wrong, says so, and falls back."""

import logging

import pytest
import torch

from pessimal.models.spec import Dtype
from pessimal.scoring.candidates import inputs
from pessimal.scoring.mode import Mode
from pessimal.scoring.scorer import FrameScorer


def test_sound_engine_is_kept(model, network, frame, words, caplog):
    scorer = FrameScorer(network, frame, torch.device("cpu"))
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
    scorer = FrameScorer(model.network(dtype), frame, torch.device("cpu"))
    scorer.establish_trust(made, dtype=dtype)
    assert scorer.attention == "shared-prefix"
    assert scorer.trust.largest_difference > 1e-5, "or low precision was not low"
    wrong = FrameScorer(model.network(dtype), frame, torch.device("cpu"))
    values = wrong._engine.prefix.values
    values[:] = [value.flip(1) for value in values]  # back to front, while the keys stand as they were
    wrong.establish_trust(made, dtype=dtype)
    assert wrong.attention == "full-forward"


def test_wrong_engine_is_noticed_and_replaced(model, network, frame, words, caplog):
    scorer = FrameScorer(network, frame, torch.device("cpu"))
    scorer._engine.prefix.values[1] = scorer._engine.prefix.values[1] * 1.5
    with caplog.at_level(logging.WARNING):
        scorer.establish_trust(inputs(model.tokenizer, frame, words, Mode.ids), dtype=Dtype.float32)
    assert "Falling back to full forwards" in caplog.text
    assert scorer.attention == "full-forward"
    assert scorer.trust.holds
