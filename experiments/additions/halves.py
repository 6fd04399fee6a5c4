"""How many answers it takes for halves of them to agree on the first hundred tokens.

    python experiments/additions/halves.py REGISTRY MODEL [MODEL …]

Of one model's scans behind answers: Spearman's rho between two random halves (means of 50 divisions) of
the hundred tokens that add most and of all, and what the best of one half adds in the other, for the
first n answers in a random order. Beside it what rho at n = 20 says of n, by Spearman and Brown.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from figure import read

from pessimal.analyses.additions import halves

BEGIN, GOAL = 20, 0.9


def main(registry: Path, models: list[str]) -> None:
    for model in models:
        one = read(registry, model, None)
        order = np.random.default_rng(0).permutation(len(one.deltas))
        for n in dict.fromkeys([10, BEGIN, 40, len(order)]):
            some = order[:n]
            part = replace(
                one,
                deltas=one.deltas[some],
                untouched=one.untouched[some],
                steps=one.steps[some],
            )
            found = halves(part)
            print(
                f"{model}, {n} answers, {one.deltas.shape[1]:,} tokens:",
                ", ".join(f"{name} {value:.2f}" for name, value in found.items()),
                flush=True,
            )
            if n == BEGIN:
                rho = found["spearman_first"]
                wanted = n * GOAL * (1 - rho) / (rho * (1 - GOAL))
                print(f"  by Spearman and Brown {GOAL} takes {wanted:.0f} answers")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
