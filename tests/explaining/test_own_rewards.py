"""Rewards that nobody planted, on pairs of a user's own: what pays for words is named, and noise
names nothing."""

import hashlib
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pessimal.config.compose import configuration, plain
from pessimal.explaining.analyses.single import single_slopes
from pessimal.explaining.analyses.slopes import slopes
from pessimal.explaining.contrast import read_attributes
from pessimal.explaining.explain import explain
from pessimal.explaining.perturbers.rules import Rules
from pessimal.tables.comparisons import EMBEDDED, read_jsonl

PAIRS = Path(__file__).with_name("own_pairs.jsonl")
SEEDS = 20


def words(text):
    return len(text.split())


def drawn(seed, text):
    """A number from 0 to 1 that only the whole text decides."""
    return int.from_bytes(hashlib.sha256(f"{seed}|{text}".encode()).digest()[:8], "big") / 2**64


def noise(seed):
    return lambda text: drawn(seed, text)


def bag(seed):
    """Each word has a price of its own: a reward with no taste for length."""
    return lambda text: sum(drawn(seed, word) - 0.5 for word in text.lower().split())


@pytest.fixture(scope="module")
def edits():
    """Edits by rule of the ten pairs, which are the same whatever the reward."""

    class Scorer:
        def rewards(self, conversations):
            return np.array([float(words(each[-1].content)) for each in conversations])

    attributes = read_attributes(plain(configuration("explain", {}))["contrast"])
    return explain(Scorer(), read_jsonl(PAIRS), attributes, Rules(), smallest=False).table


def rewarded(table, reward):
    """The same edits under another reward."""
    table = table[table["edited"].notna()]
    before, after = (table[name].map(reward) for name in ("original", "edited"))
    sign = np.where(table["side"] == "chosen", 1.0, -1.0)
    change = sign * (after - before)
    return table.assign(change=change, change_in_sd=change / before.std())


def named(fitted, p):
    holds = fitted[fitted[p] <= 0.05]
    return holds["attribute"].tolist()


def test_a_reward_of_words_names_verbosity_on_ten_pairs_and_noise_nothing(edits):
    for reward in (words, len, lambda text: math.log(1 + words(text))):
        fitted = slopes(rewarded(edits, reward))
        top = fitted.loc[fitted["explained"].idxmax()]
        assert (top["attribute"], top["slope"] > 0) == ("verbosity", True)
        assert top["slope_q"] < 0.05
    named_by_noise = [named(slopes(rewarded(edits, noise(s))), "slope_q") for s in range(SEEDS)]
    assert sum(map(bool, named_by_noise)) <= 1


@pytest.fixture(scope="module")
def embedded():
    """Edits by rule of the responses to half of the embedded comparisons."""

    class Scorer:
        def rewards(self, conversations):
            return np.array([float(words(each[-1].content)) for each in conversations])

    attributes = read_attributes(plain(configuration("explain", {}))["contrast"])
    return explain(Scorer(), read_jsonl(EMBEDDED)[::2], attributes, Rules(), smallest=False).table


@pytest.mark.slow
def test_prices_of_words_alone_name_no_attribute_and_plants_beside_them_are_named(embedded):
    """A price for every word, drawn anew: what a network has that was trained on no attribute."""

    def prices(seed):
        return lambda text: np.mean([drawn(seed, word) - 0.5 for word in text.lower().split()])

    found = [slopes(rewarded(embedded, prices(seed))) for seed in range(SEEDS // 2)]
    assert np.mean([bool(named(one, "slope_q")) for one in found]) >= 0.5  # other comparisons
    assert sum(bool(named(one, "beyond_q")) for one in found) <= 1
    for seed, attribute in enumerate(("assertiveness", "sensitivity", "avoid-to-answer")):
        table = rewarded(embedded, prices(seed))
        sign = np.where(table["side"] == "chosen", 1.0, -1.0)
        table["change_in_sd"] -= sign * table[f"moved/{attribute}"].fillna(0.0)  # likes less of it
        one = slopes(table).set_index("attribute")
        assert one.loc[attribute, "beyond_q"] <= 0.05
        assert one.loc[attribute, "slope"] < -0.5


def test_one_pair_names_length_where_it_pays_and_nothing_else(edits):
    edits = edits[edits["attribute"] != "placebo"]
    pairs = [pair for _, pair in edits.groupby("comparison")]

    def over(reward):
        tables = [single_slopes(rewarded(pair, reward), permutations=499) for pair in pairs]
        return [named(fitted, "slope_p") for fitted in tables]

    assert over(lambda text: math.log(words(text))) == [["verbosity"]] * len(pairs)
    noisy = [bool(names) for seed in range(SEEDS) for names in over(noise(seed))]
    assert np.mean(noisy) <= 0.05
    # Verbosity's edits share their wording: without the jackknife over attributes .18.
    bags = ["verbosity" in names for seed in range(SEEDS) for names in over(bag(seed))]
    assert np.mean(bags) <= 0.08


def test_an_attribute_is_named_beside_length(edits):
    """Exclamation marks, of which edits for engagement add one a sentence and verbosity none."""
    pair = edits[(edits["comparison"] == "own-0") & (edits["attribute"] != "placebo")]
    fitted = single_slopes(rewarded(pair, lambda text: text.count("!")))
    assert named(fitted, "slope_p") == ["engagement"]
    assert fitted.set_index("attribute").loc["engagement", "slope"] > 0


def test_edits_of_one_length_leave_length_unknown(edits):
    pair = edits[(edits["comparison"] == "own-0") & edits["edited"].notna()]
    same = pair[pair["original"].map(words) == pair["edited"].map(words)]
    fitted = single_slopes(rewarded(same, noise(0)))
    assert pd.isna(fitted.loc[0, "slope_p"])
    assert fitted.loc[1:, "slope_p"].notna().any()
