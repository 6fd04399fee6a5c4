"""`pessimal.explain`: why a model prefers one response to another."""

from pathlib import Path
from typing import Any

from pessimal.api.load import device_of, to_reward
from pessimal.config.compose import configuration
from pessimal.config.plain import plain
from pessimal.config.schema import ExplainConfig
from pessimal.explaining.contrast import read_attributes
from pessimal.explaining.explain import explain_pair, pair
from pessimal.explaining.perturbers import make_perturber
from pessimal.explaining.results import pair_results
from pessimal.rewards.base import Reward
from pessimal.scoring.texts import text_scorer
from pessimal.tables.result import Results


def explain(
    model: Reward | str | Path | Any,
    prompt: str,
    chosen: str,
    rejected: str,
    *,
    perturber: str = "rules",
    seeds: int = 1,
) -> Results:
    """Why a model prefers one response to the other: edits along named attributes, and the smallest
    that flip it.

    Args:
        model: of `load` or `reward`, or what these take, but a network, which needs its tokenizer.
        prompt, chosen, rejected: texts; which of the two the model prefers need not be the one
            called chosen.
        perturber: a file of conf/perturber, such as `rules`, `random`, `llm`.
        seeds: edits of each kind.
    """
    model, comparison = to_reward(model), pair(prompt, chosen, rejected)
    config = configuration(
        "explain",
        {"prompt": prompt, "chosen": chosen, "rejected": rejected},
        groups={"perturber": perturber},
    )
    assert isinstance(config, ExplainConfig)
    attributes = read_attributes(plain(config)["contrast"])
    changes = make_perturber(
        config.perturber, attributes=attributes, cache=Path("runs/cache/answers")
    )
    sample = [comparison.conversation(text) for text in comparison.responses]
    scorer = text_scorer(model, sample, device=device_of(model))
    found = explain_pair(
        scorer,
        prompt,
        chosen,
        rejected,
        attributes,
        changes,
        model=model.name,
        tie=2 * scorer.noise,
        seeds=seeds,
    )
    return Results(pair_results(found))
