"""Does the gradient keep what adds most before real answers? Against brute force.

    python experiments/additions/screen.py N_CONTEXTS MODEL [MODEL …]

Scores every token of a demo sibling before N answers, and prints which share of the 1, 10 and 100 that
add most on average are among those that the screen keeps.
"""

import sys

import numpy as np
import torch

from pessimal.rewards.frame import slot_frame
from pessimal.rewards.named import spec_of
from pessimal.rewards.obtain import open_reward
from pessimal.scoring.candidates import frame_responses, vocabulary_of
from pessimal.scoring.contexts import comparison_context, sample
from pessimal.scoring.proposals import screened
from pessimal.scoring.scorer import FrameScorer
from pessimal.tables.comparisons import load

CPU = torch.device("cpu")


def main(n: int, names: list[str]) -> None:
    comparisons = load("embedded").comparisons
    found = sample({one.key: comparison_context(one, "before") for one in comparisons}, n, seed=0)
    for name in names:
        model = open_reward(spec_of(name), cache="runs/cache")
        words, [part] = vocabulary_of(model), model.parts
        network, ids = model.network(), words.rows["candidate_id"].to_numpy()
        rewards = np.zeros(len(ids))
        for one in found.values():
            frame = slot_frame(part.conversations, one, model.tokenizer)
            scorer, inputs = (
                FrameScorer(network, frame, device=CPU),
                frame_responses(frame, ids[:, None]),
            )
            rewards += scorer.score_rows(inputs, np.arange(len(ids)), batch_size=64)
        best = ids[np.argsort(-rewards)]
        for kept in (500, 1000, 2000):
            few = screened(model, found.values(), words, n=kept, device=CPU, progress=False)
            shares = [
                float(np.isin(best[:k], few.rows["candidate_id"]).mean()) for k in (1, 10, 100)
            ]
            print(f"{name}, {n} answers, {kept} of {len(ids):,} tokens: {shares}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
