"""Answers that a language model writes: as often as its probabilities say."""

import numpy as np
import pytest
import torch

import pessimal
from pessimal.errors import WorkError
from pessimal.scoring.proposals import answers_of
from tiny_language_models import CHAT, checkpoint

N = 4000


def test_answers_of_one_token_are_drawn_as_their_probabilities_say(tmp_path):
    """Chi-square over the likeliest texts; the checkpoint's own habits of sampling play no part."""
    from scipy import stats

    policy = pessimal.load(
        str(checkpoint(tmp_path / "policy", template=CHAT)), kind="log_probability", name="talker"
    )
    causal = policy.network().causal
    causal.generation_config.repetition_penalty = 5.0
    causal.generation_config.top_k = 2
    written = answers_of(policy, causal, "Why?", n=N, tokens=1, seed=0, progress=False)
    assert written.name == "answers-of-talker"
    with torch.inference_mode():
        context = torch.tensor([policy.conversations.context("Why?")])
        p = causal(context).logits[0, -1].double().softmax(0).numpy()
    tokenizer = policy.tokenizer
    texts = tokenizer.batch_decode([[i] for i in range(len(p))], skip_special_tokens=True)
    exact: dict[str, float] = {}
    for text, one in zip(texts, p, strict=True):
        exact[text] = exact.get(text, 0.0) + float(one)
    drawn = written.rows.set_index("text")["drawn"]
    assert 0.9 * N < drawn.sum() <= N
    likely = [text for text, one in exact.items() if text and N * one >= 5]
    counts = drawn.reindex(likely).fillna(0).to_numpy()
    expected = N * np.array([exact[text] for text in likely])
    assert len(likely) > 20
    chi = np.sum((counts - expected) ** 2 / expected)
    assert stats.chi2.sf(chi, len(likely)) > 1e-4
    again = answers_of(policy, causal, "Why?", n=N, tokens=1, seed=0, progress=False)
    assert again.rows.equals(written.rows)


def test_a_policy_that_always_says_the_same_is_refused(tmp_path):
    policy = pessimal.load(
        str(checkpoint(tmp_path / "policy", template=CHAT)), kind="log_probability"
    )
    with pytest.raises(WorkError, match="answers=20"):
        answers_of(policy, policy.network().causal, "Why?", n=2, tokens=1, seed=0, progress=False)
