"""`pessimal.search`, the best and the worst answers; `pessimal.ceiling`, how far any can go."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pessimal.api.load import device_of, open_policy, to_reward
from pessimal.catalogue import named_prompts
from pessimal.conversation import Context
from pessimal.explaining.contexts import halves, read_contexts
from pessimal.rewards.base import NetworkReward, Reward, require_network
from pessimal.rewards.ceiling import TEXTS, Bounds, unbounded, weighted_sum
from pessimal.rewards.spec import Mode
from pessimal.rewards.sum import SumReward
from pessimal.scoring.identify import identify
from pessimal.scoring.scorer import ceiling as of_networks
from pessimal.searching.context import SearchContext
from pessimal.searching.run import SearchResult
from pessimal.searching.run import search as search_one
from pessimal.tables import read_score_table
from pessimal.tracking.registry import Registry


def search(
    model: Reward | str | Path | Any,
    prompts: str | Sequence[str] | Mapping[str, str] = "greatest",
    *,
    length: int = 2,
    goal: str = "optimal",
    contexts: str | Path | None = None,
    held_out: str | Sequence[str] | Mapping[str, str] = (),
    policy: Reward | str | Path | None = None,
    **options,
) -> SearchResult:
    """The best or the worst response of a length that a budget of evaluations finds, certified.

    Args:
        model: of `load` or `reward`, or what these take, but a network, which needs its tokenizer.
        prompts: as for `scan`; of several, the mean reward is searched.
        length: tokens of the response, 1 to 16.
        goal: `optimal` or `pessimal`.
        contexts: JSONL file of real answers, in whose `slot` (after, before; None where they have
            the mark {slot}) the response stands; half of them are held out.
        held_out: prompts that what is found is scored on besides.
        policy: a language model, of `fluency=β` and of how rare what is found is (`answers=n`).
        options: as of `pessimal search`, such as evaluations=50_000; and mode="text", seed=1,
            batch_size=64.

    Returns:
        A SearchResult: `.text`, `.reward`, `.verdict`, `.results`.
    """
    network = require_network(to_reward(model), "search", "gradient")
    asked: Mapping[str, Any] = {}
    aside: Mapping[str, Any] = {}
    if contexts is not None:
        asked, aside = halves(read_contexts(str(contexts), options.get("slot")))
    else:
        asked, aside = named_prompts(prompts), named_prompts(held_out) if held_out else {}
    return search_one(
        network,
        asked,
        length=length,
        goal=goal,
        held_out=aside,
        policy=policy and open_policy(policy),
        device=device_of(network),
        **options,
    )


def ceiling(model: Reward | str | Path | Any, **options) -> Bounds:
    """The lowest and the highest reward that any response of any length to any prompt can have, by
    the head alone.

    Args:
        model: of `load` or `reward`, or what these take.
        options: of `load` or `reward`.

    Returns:
        Bounds `low` and `high`, infinite where none is known, and `how`: what they rest on, or why
        there are none. `.share(reward)` is how far a reward is from the middle of both, −1 to 1.
    """
    model = to_reward(model, **options)
    if isinstance(model, SumReward):
        return weighted_sum((weight, ceiling(term)) for weight, term in model.terms)
    if not isinstance(model, NetworkReward):
        return unbounded(TEXTS)
    return of_networks(model, device=device_of(model))


def scanned_rewards(
    registry: Registry, context: SearchContext, key: str
) -> tuple[np.ndarray, str] | None:
    """Rewards float64 (V,) of the finished scan of the vocabulary by token ids on this prompt, by
    exactly this model; and its reference."""
    if isinstance(context.prompts[key], Context):
        return None
    # `certain` is part of a low-precision table's provenance: the scan's default, and without
    # certified tails.
    for certain in (100, 0):
        provenance = identify(
            context.model,
            prompt=key,
            prompt_text=context.prompts[key],
            candidates=context.vocabulary,
            mode=Mode.ids,
            certain=certain,
        )
        if found := registry.find("score-table", provenance.key()):
            folder, manifest = found
            rows = read_score_table(folder).rows
            column = np.full(len(context.mask), np.nan)
            column[rows["candidate_id"]] = rows["reward"]
            return column, manifest.reference
    return None
