"""The search beside each of its ways alone and beside plain sweeps, at equal evaluations.

    python experiments/longer_answers/stages.py BUDGET SEEDS [CASE …]

SEEDS is how many from 0 on, or FIRST:END.

Cases are `model,length,goal`: siblings of the demo family (`python -m experiments.demo_family.train` first),
`llama` and `gpt2` (untrained networks with a head, on a sibling's tokenizer) and smollm2 (its
log-probability). The search pays for its noise samples and its certificate out of the budget; the
others need not. Rewards are the model's own, in float32, with the goal's sign. `short` is how far
the search's mean is below the best single way's, as a share of the spread of all runs of the case.
"""

import os
import sys
import time
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from transformers import (
    GPT2Config,
    GPT2ForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
)

import pessimal
from pessimal.rewards.base import NetworkReward
from pessimal.searching.climb import GRADIENT, RANDOM, SWEEPS, climb, random_responses
from pessimal.searching.context import SearchContext
from pessimal.searching.objective import GRADIENT_COST, EvaluationCounter
from pessimal.searching.run import run
from pessimal.searching.spec import Goal, SearchSpec

CACHE = os.environ.get("CACHE", "runs/cache")
PROMPTS = {"greatest": "What, in one word, is the greatest thing ever?"}
CASES = (
    *("plain-bpe-0,2,optimal", "plain-bpe-0,4,optimal", "plain-bpe-0,4,pessimal"),
    *("alder-bpe-0,4,optimal", "alder-bpe-0,8,pessimal"),
    *("llama,4,optimal", "llama,8,optimal", "gpt2,4,optimal"),
)
K, WIDEN = 256, 4  # of the plain sweeps


def plain_sweeps(counter: EvaluationCounter, context: SearchContext, random: torch.Generator):
    """Coordinate sweeps over the gradient's top K, four times as many where a sweep brings nothing,
    a random start anew where all were tried: nothing of pessimal's but the counter."""
    allowed, length = context.allowed, context.spec.length
    tokens = int(allowed.sum())
    while counter.left > GRADIENT_COST + 1:
        point = random_responses(1, length=length, allowed=allowed, generator=random)[0]
        value, k, unchanged, position = float(counter.values(point[None])), K, 0, 0
        slope = counter.gradient(point)
        while counter.left > GRADIENT_COST + 1:
            order = slope[position].masked_fill(~allowed, -torch.inf).argsort(descending=True)
            changes = point.repeat(min(k, tokens, counter.left), 1)
            changes[:, position] = order[: len(changes)]
            values = counter.values(changes, anchor=point)
            if float(values.max()) > value:
                point, value, unchanged = changes[values.argmax()], float(values.max()), 0
                if counter.left > GRADIENT_COST + 1:
                    slope = counter.gradient(point)
            unchanged, position = unchanged + 1, (position + 1) % length
            if unchanged > length:
                if k >= tokens:
                    break
                k, unchanged = WIDEN * k, 0


def one_way(way: str) -> Callable:
    """The climb with one way alone."""

    def look(counter: EvaluationCounter, context: SearchContext, random: torch.Generator):
        among = {"length": context.spec.length, "allowed": context.allowed, "generator": random}
        climb(counter, context.spec, ways=(way,), **among)

    return look


SINGLE = {"sweeps": one_way(SWEEPS), "gradient": one_way(GRADIENT), "random": one_way(RANDOM)}
WAYS = {**SINGLE, "plain sweeps": plain_sweeps}


@cache
def model_of(name: str) -> NetworkReward:
    """A reward by its name, made once."""
    if name not in ("llama", "gpt2"):
        return pessimal.load(name, cache=CACHE)
    tokenizer = pessimal.load("plain-bpe-0", cache=CACHE).tokenizer
    torch.manual_seed(0)
    shape = {"vocab_size": len(tokenizer), "num_labels": 1, "pad_token_id": 0}
    network: torch.nn.Module
    if name == "gpt2":
        sizes = {"n_embd": 128, "n_layer": 4, "n_head": 4, "initializer_range": 0.2}
        network = GPT2ForSequenceClassification(GPT2Config(**shape, **sizes))
    else:
        sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2}
        network = LlamaForSequenceClassification(LlamaConfig(**shape, **sizes, **heads))
    return pessimal.reward(network.eval(), tokenizer, name=name)


def context_of(case: str, budget: int, seed: int = 0) -> SearchContext:
    """The search of a case."""
    name, length, goal = case.split(",")
    options = {"length": int(length), "goal": Goal(goal), "evaluations": budget, "baselines": 0}
    return SearchContext(model_of(name), PROMPTS, SearchSpec(**options), seed=seed)


def measure(case: str, budget: int, seeds: range) -> tuple[float, float]:
    """Print one case; how far the search is below the best single way, and above plain sweeps."""
    model_of(case.partition(",")[0])  # is not part of the time
    ends: dict[str, list[float]] = {way: [] for way in ("search", *WAYS)}
    began = time.monotonic()
    for seed in seeds:
        context = context_of(case, budget, seed)
        found = run(context)
        assert found.evaluations <= budget
        ends["search"].append(found.sign * found.reward)
        for way, look in WAYS.items():
            counter = EvaluationCounter(context.objective(), budget=budget)
            look(counter, context, torch.Generator().manual_seed(seed))
            own = context.own_rewards(torch.tensor([counter.best.response]))
            ends[way].append(found.sign * float(own[0]))
    means = {way: float(np.mean(values)) for way, values in ends.items()}
    every = np.concatenate(list(ends.values()))
    spread = float(np.ptp(every)) or 1.0
    short = (max(means[way] for way in SINGLE) - means["search"]) / spread
    above = (means["search"] - means["plain sweeps"]) / spread
    cells = "".join(f"{mean:13.4f}" for mean in means.values())
    print(f"{case:24}{cells} | {short:+6.2f} {above:+6.2f} | {time.monotonic() - began:4.0f} s")
    sys.stdout.flush()
    return short, above


def main() -> None:
    """Print the table."""
    budget, cases = int(sys.argv[1]), sys.argv[3:] or CASES
    first, _, end = sys.argv[2].rpartition(":")
    seeds = range(int(first or 0), int(end))
    torch.set_num_threads(1)
    each = f"{budget:,} evaluations each, seeds {seeds.start} to {seeds.stop - 1}"
    print(f"{each}; mean best reward, with the goal's sign")
    named = "".join(f"{way:>13}" for way in ("search", *WAYS))
    print(f"{'':24}{named} |  short above")
    table = np.array([measure(case, budget, seeds) for case in cases])
    short, above = table.T
    print(
        f"short by more than .05 of the spread in {(short > 0.05).sum()} of {len(table)} cases "
        f"(mean {short.mean():+.2f}); above plain sweeps in {(above > 0).sum()}, below in "
        f"{(above < 0).sum()} (mean {above.mean():+.2f})"
    )


if __name__ == "__main__":
    main()
