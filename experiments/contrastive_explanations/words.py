"""Does `explain` name an attribute where a reward only has a price for every word? And does it
still name what was planted beside such prices?

Run from the repository root, after `pessimal explain model=plain-bpe-0` (any model: only its edits
are read, and rewarded anew):

    python experiments/contrastive_explanations/words.py FOLDER/tables/outcomes.parquet [RUNS]

Prints the share of rewards that name something by p for other comparisons (`slope_q`), and by p beyond
prices of words too (`beyond_q`): of a hash of the text, of the mean price of its words, and of three
attributes drawn at random, planted beside these prices. One standard deviation of the attribute is
worth so many of the rewards of all responses.
"""

import hashlib
import sys
from collections.abc import Callable

import numpy as np
import pandas as pd

from pessimal.explaining.analyses.slopes import detectors, slopes
from pessimal.explaining.outcomes import CHOSEN, valid_rows

SIZES, SEED, P = (0.3, 0.6, 1.0), 20261124, ("slope_q", "beyond_q")


def drawn(seed: int, text: str) -> float:
    """A number from −½ to ½ that only the whole text decides."""
    digest = hashlib.sha256(f"{seed}|{text}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 - 0.5


def rewarded(edits: pd.DataFrame, reward: Callable[[str], float]) -> pd.DataFrame:
    """The same edits under another reward."""
    values = {text: reward(text) for text in {*edits["original"], *edits["edited"]}}
    before, after = (edits[name].map(values) for name in ("original", "edited"))
    scale = np.std([values[text] for text in edits["original"].unique()])
    return edits.assign(change_in_sd=_sign(edits) * (after - before) / scale)


def _sign(edits: pd.DataFrame) -> np.ndarray:
    return np.where(edits["side"] == CHOSEN, 1.0, -1.0)


def prices(seed: int) -> Callable[[str], float]:
    return lambda text: float(np.mean([drawn(seed, word) for word in text.lower().split()]))


def main() -> None:
    edits = valid_rows(pd.read_parquet(sys.argv[1]))
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    for name, reward in (
        ("hash of the text", lambda seed: lambda text: drawn(seed, text)),
        ("mean price of words", prices),
    ):
        found = [slopes(rewarded(edits, reward(seed))) for seed in range(runs)]
        shares = [np.mean([(one[q] <= 0.05).any() for one in found]) for q in P]
        print(f"{name}: names something {shares[0]:.3f}, beyond words {shares[1]:.3f}", flush=True)
    for attribute in np.random.default_rng(SEED).choice(detectors(edits), 3, replace=False):
        moved = _sign(edits) * edits[f"moved/{attribute}"].fillna(0.0)
        for size in SIZES:
            hits, others = [], []
            for seed in range(max(runs // 4, 5)):
                table = rewarded(edits, prices(seed))
                one = slopes(table.assign(change_in_sd=table["change_in_sd"] + size * moved))
                named = set(one.loc[one["beyond_q"] <= 0.05, "attribute"])
                hits.append(attribute in named)
                others.append(bool(named - {attribute}))
            print(
                f"{attribute}, {size}: named {np.mean(hits):.2f}, something else "
                f"{np.mean(others):.2f} (n = {len(hits)})",
                flush=True,
            )


if __name__ == "__main__":
    main()
