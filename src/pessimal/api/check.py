"""`pessimal.check`: whether a model's score depends on how it is computed."""

from pathlib import Path
from typing import Any

from pessimal.api.load import device_of, to_reward
from pessimal.catalogue import named_prompts
from pessimal.checking import CheckPlan
from pessimal.checking import check as check_parts
from pessimal.checking.results import conformance_results
from pessimal.rewards.base import Reward, require_network
from pessimal.tables.result import Results


def check(
    model: Reward | str | Path | Any,
    prompt: str = "greatest",
    *,
    sample: int = 64,
    batch_size: int = 16,
    seed: int = 0,
) -> Results:
    """Whether a model's score is the same whatever the batch, the padding and the path, on random
    responses.

    Args:
        model: of `load` or `reward`, or what these take, but a network, which needs its tokenizer.
        prompt: as for `scan`.
        sample: random tokens; a quarter as many longer responses come on top.
    """
    [text] = named_prompts(prompt).values()
    network = require_network(to_reward(model), "check")
    plan = CheckPlan(sample, batch_size, [], seed)
    found = check_parts(network, text, plan, device=device_of(network), progress=False)
    return Results(conformance_results(found, network.name))
