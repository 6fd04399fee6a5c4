"""The trust check notices an engine that is wrong, says so, and falls back."""

import logging

import torch

from pessimal.models.spec import Dtype
from pessimal.scoring.candidates import inputs
from pessimal.scoring.mode import Mode
from pessimal.scoring.scorer import FrameScorer


def test_sound_engine_is_kept(model, network, frame, words, caplog):
    scorer = FrameScorer(network, frame, torch.device("cpu"))
    scorer.establish_trust(inputs(model.tokenizer, frame, words, Mode.ids), dtype=Dtype.float32, seed=0)
    assert scorer.trust.holds
    assert scorer.trust.n == 16
    assert scorer.trust.kendall == 1.0
    assert 0 < scorer.trust.largest_difference < 1e-5
    assert scorer.attention == "shared-prefix"
    assert not caplog.records


def test_wrong_engine_is_noticed_and_replaced(model, network, frame, words, caplog):
    scorer = FrameScorer(network, frame, torch.device("cpu"))
    scorer._engine.prefix.values[1] = scorer._engine.prefix.values[1] * 1.5
    with caplog.at_level(logging.WARNING):
        scorer.establish_trust(inputs(model.tokenizer, frame, words, Mode.ids), dtype=Dtype.float32, seed=0)
    assert "Falling back to full forwards" in caplog.text
    assert scorer.attention == "full-forward"
    assert scorer.trust.holds
