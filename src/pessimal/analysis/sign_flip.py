"""The sign-flip test: could numbers that are as likely to have either sign have this mean?

Knows numbers. Does not know what they are differences of.
"""

import itertools

import numpy as np

AT_ONCE = 1000  # patterns of signs: 1,000 × 1,000 numbers are 8 MB


def sign_flip(differences: np.ndarray, *, two_sided: bool, permutations: int, seed: int) -> float:
    """p of a mean (n,) that is not above 0 (two-sided: not 0), were each number as likely to have had the other sign.

    Exact where there are no more than `permutations` patterns of signs, else (k + 1) / (permutations + 1) over drawn ones.
    Zeros change nothing and are left out of the count of patterns. NaN where there are no numbers.

    Source: Phipson & Smyth 2010 (the p of drawn permutations).
    """
    if not len(differences):
        return np.nan
    moved = differences[differences != 0]
    k = len(moved)
    exact = k < 63 and 2**k <= permutations
    seen = moved.sum()
    least = (abs(seen) if two_sided else seen) - 1e-12 * np.abs(moved).sum()  # a tie is none by rounding
    if exact:
        patterns = [np.array(list(itertools.product((1.0, -1.0), repeat=k))).reshape(2**k, k)]
    else:
        rng = np.random.default_rng(seed)
        sizes = [min(AT_ONCE, permutations - start) for start in range(0, permutations, AT_ONCE)]
        patterns = (2.0 * rng.integers(2, size=(size, k), dtype=np.int8) - 1 for size in sizes)
    reached = total = 0
    for signs in patterns:
        drawn = signs @ moved
        reached += int(np.count_nonzero((np.abs(drawn) if two_sided else drawn) >= least))
        total += len(signs)
    return reached / total if exact else (reached + 1) / (total + 1)
