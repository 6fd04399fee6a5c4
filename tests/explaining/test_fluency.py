"""Fluency: perplexities against a plain forward, shares against hand counts, and
nothing where it is not asked."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from pessimal.conversation import Turn
from pessimal.explaining.explain import explain, perplexities
from pessimal.explaining.perturbers import Perturbation, Status
from pessimal.explaining.perturbers.rules import OneByOne
from pessimal.rewards.log_probability import LogProbabilitySpec
from pessimal.rewards.obtain import open_model
from pessimal.scoring.texts import text_scorer
from pessimal.tables.comparisons import Comparison
from scripted_server import VERBOSITY
from tiny_language_models import CHAT, checkpoint


def test_a_perplexity_is_the_exponential_of_the_cross_entropy_of_the_answers_tokens(tmp_path):
    folder = checkpoint(tmp_path / "lm", template=CHAT)
    model = open_model(LogProbabilitySpec(path=str(folder)), folder)
    texts = ["love is good", "war", "I think that truth is kind, and peace too."]
    asked = [(Turn("user", "What is good?"), Turn("assistant", text)) for text in texts]
    encode = model.parts[0].conversations.encode
    found = perplexities(text_scorer(model, asked[:1], device=torch.device("cpu")), encode, asked)
    network = model.network().causal
    for conversation, perplexity in zip(asked, found, strict=True):
        row = encode(conversation)
        ids = torch.tensor([row.ids])
        labels = ids.clone()
        labels[:, : -row.n_response] = -100
        with torch.no_grad():
            loss = network(input_ids=ids, labels=labels).loss
        assert perplexity == pytest.approx(math.exp(loss), rel=1e-4)


class Suffix(OneByOne):
    """Adds a word; refuses a second response."""

    name = "suffix"

    def perturbed(self, request):
        if request.response:
            return Perturbation(request, Status.refused)
        return Perturbation(request, Status.changed, f"{request.text} and more")

    def placebo(self):
        return None


class Letters:
    """Longer texts are liked more; the perplexity of a text is its number of letters."""

    def rewards(self, conversations):
        return np.array([float(len(c[-1].content)) for c in conversations])


def test_each_edit_has_the_ratio_to_its_own_response_and_none_without_a_text():
    asked = [
        Comparison(f"c{i}", (Turn("user", "Why?"),), ("word " * (i + 2), "no")) for i in range(3)
    ]
    options = {"judge": None, "smallest": False}
    found = explain(
        Letters(), asked, [VERBOSITY], Suffix(), perplexities=Letters().rewards, **options
    ).table
    changed = found[found["edited"].notna()]
    assert len(changed)
    assert found["perplexity_ratio"].isna().sum() == len(found) - len(changed) > 0
    assert (
        changed["perplexity_ratio"] == changed["edited"].str.len() / changed["original"].str.len()
    ).all()
    unmeasured = explain(Letters(), asked, [VERBOSITY], Suffix(), **options).table
    pd.testing.assert_frame_equal(unmeasured, found.drop(columns="perplexity_ratio"))
