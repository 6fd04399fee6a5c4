"""How far random heads on SmolLM2's last states move real answers by one token behind them.

    python experiments/additions/random_heads.py TOKEN ANSWERS EFFECT...

Prints the median of the absolute effects of 1,000 heads, in standard deviations of the untouched
answers, and the share of heads with at least each EFFECT.
"""

import sys

import numpy as np
import torch

import pessimal
from pessimal.analyses.nulls import random_head_share
from pessimal.rewards.frame import slot_frame
from pessimal.rewards.language import StatesNetwork
from pessimal.scoring.contexts import read_contexts, sample
from pessimal.scoring.states import added_states
from pessimal.tables.comparisons import EMBEDDED


def main(token: str, answers: str, *effects: str) -> None:
    model = pessimal.load("smollm2-judge", kind="log_probability")
    contexts = sample(read_contexts(EMBEDDED, "after"), int(answers), seed=0).values()
    conversations = model.parts[0].conversations
    frames = [slot_frame(conversations, one, model.tokenizer) for one in contexts]
    number = model.tokenizer.convert_tokens_to_ids(token)
    network = StatesNetwork(model.network())
    behind, untouched = added_states(network, frames, number, device=torch.device("cpu"))
    heads = np.random.default_rng(0).standard_normal((behind.shape[1], 1000))
    moves = (behind - untouched).mean(axis=0) @ heads
    print(f"median {np.median(np.abs(moves) / (untouched @ heads).std(axis=0, ddof=1)):.2f} SD")
    for effect in map(float, effects):
        print(
            f"{effect:g} SD or more: {random_head_share(behind - untouched, untouched, effect):.1%}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
