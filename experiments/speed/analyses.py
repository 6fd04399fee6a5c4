"""How long the analyses over score tables take at the paper's size: ten models, 128,000 tokens each.

python experiments/speed/analyses.py
"""

import time

import numpy as np
import pandas as pd

from pessimal.analysis.agreement import agreement

MODELS, TOKENS = 10, 128_000


def main() -> None:
    """Print one line an analysis."""
    random = np.random.default_rng(0)
    common = random.normal(size=TOKENS)
    rewards = pd.DataFrame(
        {f"model-{i}": common + random.normal(scale=1 + i / 5, size=TOKENS) for i in range(MODELS)}
    )
    started = time.perf_counter()
    table = agreement(rewards)
    print(
        f"Compare: rank correlations with intervals of {MODELS} models on {TOKENS:,} tokens ({len(table)} pairs): "
        f"{time.perf_counter() - started:.1f} s"
    )


if __name__ == "__main__":
    main()
