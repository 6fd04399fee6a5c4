"""Every published head has bounds that no response and no state gets beyond, or says that it has
none."""

import numpy as np
import pytest
import torch
from published.checkpoints import opened
from test_heads import CPU, ONCE, responses

from pessimal.rewards.ceiling import ELSEWHERE
from pessimal.rewards.spec import Dtype
from pessimal.scoring.candidates import frame_responses
from pessimal.scoring.scorer import FrameScorer, ceiling

NONE = {"deberta"}
pytestmark = pytest.mark.filterwarnings("ignore:In CPU autocast")


@pytest.mark.parametrize(("kind", "way"), ONCE)
def test_no_response_gets_beyond_its_heads_bounds(published, kind, way):
    model = opened(published(kind), way)
    bounds = ceiling(model, device=CPU)
    assert bounds.finite == (kind not in NONE)
    if kind in NONE:
        assert bounds.how == ELSEWHERE
        return
    scorer = FrameScorer(model.network(), model.frame("What is good?"), device=CPU)
    ids = frame_responses(scorer.frame, responses(model, 4, 100).tolist())
    scorer.establish_trust(ids, dtype=Dtype.float32)
    rewards = scorer.score_rows(ids, np.arange(100), batch_size=50)
    assert bounds.beyond(rewards) == 0
    assert np.ptp(rewards) > 0
    if scorer.attention != "own-forward":
        assert bounds.beyond(climbed(scorer)) == 0


def climbed(scorer: FrameScorer) -> list[float]:
    """Rewards on the way up from a random state, for any prompt that a gate may have seen."""
    decoder, found = scorer.engines[0].decoder, []
    width = decoder.network.config.get_text_config().hidden_size
    start = torch.Generator().manual_seed(0)
    state = torch.randn(1, width, generator=start, requires_grad=True)
    context = scorer.engines[0].context
    if context is not None:  # whichever objective a prompt may choose
        context = torch.nn.functional.one_hot(torch.tensor(0), len(context)).float()
        context = context * decoder.head.gating.logit_scale[0]
    optimizer = torch.optim.Adam([state], lr=0.3)
    for _ in range(200):
        optimizer.zero_grad()
        reward = decoder.head.read(decoder.exact_norm(state), context).sum()
        found.append(float(reward.detach()))
        (-reward).backward()
        optimizer.step()
    assert found[-1] > found[0]
    return found
