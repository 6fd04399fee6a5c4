"""Score tables of three language models, and of reward models beside them."""

import numpy as np
import pytest

from artifacts import score_table

TEXTS = [f"t{i}" for i in range(60)]


def made(
    model, rewards, *, score="log_probability", texts=TEXTS, wording="?", label=None, **identity
):
    given = {"candidates_digest": model, "prompt_text": wording, "score": score} | identity
    asked = {"asked": "chat template" if "chat" in model else "plain text"}
    return score_table(
        texts, rewards, model=model, described={"label": label}, measured=asked, **given
    )


def distribution(seed, n=60):
    logits = np.random.default_rng(seed).normal(size=n) * 2
    return logits - np.log(np.exp(logits).sum())


@pytest.fixture
def language():
    tables = [made("a-chat", distribution(0)), made("base", distribution(1))]
    return [*tables, made("third", distribution(2)[:59], texts=TEXTS[:59])]


@pytest.fixture
def rewarded(language):
    log_p = language[1].rows["reward"].to_numpy()
    rng = np.random.default_rng(3)
    rewards = {
        "follower": log_p + rng.normal(size=60),
        "stranger": rng.normal(size=60),
        "contrary": log_p - language[0].rows["reward"].to_numpy(),
    }
    return [made(name, values, score="reward") for name, values in rewards.items()]
