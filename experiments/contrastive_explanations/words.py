"""Does `explain` name an attribute where a reward only has a price for every word? And does it
still name what was planted beside such prices?

Run from the repository root, after `pessimal explain model=plain-bpe-0` (any model: only its edits
are read, and rewarded anew):

    python experiments/contrastive_explanations/words.py FOLDER/tables/outcomes.parquet [RUNS]

Prints the share of rewards that name something by flip rates, beyond placebo edits (`flip_q`) and
beyond prices of words too (`p_corrected`): of a hash of the text, of the mean price of its words, and of three attributes drawn at
random, planted beside these prices. One standard deviation of the attribute is worth so many of the
rewards of all responses. Flips are of the comparisons in which the reward prefers the same response.
"""

import hashlib
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from pessimal.explaining.flips import attribute_flip_rates, detectors, flips_beyond_words
from pessimal.explaining.outcomes import CHOSEN, COUNTERFACTUAL, SEMIFACTUAL, valid_rows
from pessimal.statistics import correct_p

SIZES, SEED = (0.3, 0.6, 1.0), 20261124
FLIPS = ("flip_q", "p_corrected")


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


def tested(edits: pd.DataFrame, reward: Callable[[str], float], size: float, attribute: str):
    """Flip rates of a made-up reward, to which an attribute adds so much an SD."""
    table = rewarded(edits, reward)
    if size:
        moved = _sign(edits) * edits[f"moved/{attribute}"].fillna(0.0)
        table = table.assign(change_in_sd=table["change_in_sd"] + size * moved)
    # A response's own reward; the other one's where no edit of it is left is not known.
    scale = np.std([reward(text) for text in edits["original"].unique()])
    own = edits.groupby(["comparison", "side"])["original"].first().map(reward).unstack() / scale
    margin = edits["comparison"].map(own[CHOSEN] - own["rejected"])
    after = margin + table["change_in_sd"]
    outcome = np.where(after < 0, COUNTERFACTUAL, SEMIFACTUAL)
    flips = table.assign(margin=margin, change=table["change_in_sd"], outcome=outcome)
    flips = flips[margin > 0]
    rates = attribute_flip_rates(flips, replicates=100, permutations=2000)
    alone, _ = correct_p(rates, ["flip_p"], ["model", "perturber"], method="Benjamini-Hochberg")
    return flips_beyond_words(rates, flips).assign(flip_q=alone)


def named(table: pd.DataFrame, p: str) -> set[str]:
    return set(table.loc[table[p] <= 0.05, "attribute"])


def main() -> None:
    edits = valid_rows(pd.read_parquet(sys.argv[1]))
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    for name, reward in (
        ("hash of the text", lambda seed: partial(drawn, seed)),
        ("mean price of words", prices),
    ):
        found = [tested(edits, reward(seed), 0, "") for seed in range(runs)]
        shares = [np.mean([bool(named(rates, p)) for rates in found]) for p in FLIPS]
        text = f"{name}: names something by flips {shares[0]:.3f}, beyond words {shares[1]:.3f}"
        print(f"{text} (n = {runs})", flush=True)
    few = max(runs // 4, 5)
    for attribute in np.random.default_rng(SEED).choice(detectors(edits), 3, replace=False):
        for size in SIZES:
            found = [tested(edits, prices(seed), size, attribute) for seed in range(few)]
            hits = [named(rates, "p_corrected") for rates in found]
            right = np.mean([attribute in names for names in hits])
            wrong = np.mean([bool(names - {attribute}) for names in hits])
            text = f"{attribute}, {size}: named {right:.2f}, something else {wrong:.2f}"
            print(f"{text} (n = {few})", flush=True)


if __name__ == "__main__":
    main()
