"""A model that gives costs: its negated reward is another reward, in every verb."""

import numpy as np
import pytest
import torch

from pessimal.conversation import Turn
from pessimal.rewards.checkpoint_files import model_fields
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.obtain import open_model
from pessimal.scoring.texts import text_scorer
from pessimal.searching.context import SearchContext
from pessimal.searching.run import run
from pessimal.searching.spec import SearchSpec
from tolerance import close

PROMPT = "What, in one word, is the greatest thing ever?"


def test_negated_reward_is_searched_as_such_after_the_other_in_one_process(tiny_checkpoint):
    reward, cost = (
        open_model(HeadSpec(path=str(tiny_checkpoint), negate=negate), tiny_checkpoint)
        for negate in (False, True)
    )
    assert model_fields(reward) != model_fields(cost), (
        "what is kept of one must not be taken for the other"
    )
    contexts = [
        SearchContext(model, {"p": PROMPT}, SearchSpec(length=1)) for model in (reward, cost)
    ]
    found = [run(context) for context in contexts]
    every = torch.from_numpy(np.flatnonzero(contexts[0].mask))[:, None]
    own = contexts[0].own_rewards(every)
    assert close([one.reward for one in found], [own.max(), -own.min()])
    turns = [(Turn("user", PROMPT), Turn("assistant", text)) for text in ("love", "evil")]
    rewards, costs = (
        text_scorer(model, turns, device=torch.device("cpu")).rewards(turns)
        for model in (reward, cost)
    )
    assert costs == pytest.approx(-rewards)
