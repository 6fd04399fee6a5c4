"""Rewards that nobody planted, on the embedded comparisons: neither noise nor prices of words are
taken for a taste, and a taste beside them is named."""

import hashlib

import numpy as np
import pytest

from pessimal.config.compose import configuration, plain
from pessimal.explaining.attribute import read_attributes
from pessimal.explaining.explain import explain
from pessimal.explaining.flips import attribute_flip_rates, flips_beyond_words
from pessimal.explaining.perturbers.rules import Rules
from pessimal.tables.comparisons import EMBEDDED, read_jsonl

SEEDS = 6


def words(text):
    return len(text.split())


def drawn(seed, text):
    """A number from 0 to 1 that only the whole text decides."""
    return int.from_bytes(hashlib.sha256(f"{seed}|{text}".encode()).digest()[:8], "big") / 2**64


def noise(seed):
    return lambda text: drawn(seed, text)


def rewarded(table, reward):
    """The same edits under another reward, which may prefer the other response."""
    table = table[table["edited"].notna()]
    before, after = (table[name].map(reward) for name in ("original", "edited"))
    own = before.groupby([table["comparison"], table["side"]]).first().unstack()
    margin = table["comparison"].map(own["chosen"] - own["rejected"])
    other = table["side"].map({"chosen": "rejected", "rejected": "chosen"})
    side = table["side"].where(margin > 0, other)
    change = np.where(side == "chosen", 1.0, -1.0) * (after - before)
    return table.assign(
        side=side,
        margin=margin.abs(),
        change=change,
        change_in_sd=change / before.std(),
        outcome=np.where(margin.abs() + change < 0, "CF", "SF"),
    )[margin.notna() & (margin != 0)]


def named(edits):
    """The attributes whose flips hold beyond placebo edits and prices of words."""
    rates = attribute_flip_rates(edits, replicates=100, permutations=1000)
    rates = flips_beyond_words(rates, edits)
    return rates.loc[rates["p_corrected"] <= 0.05, "attribute"].tolist()


@pytest.fixture(scope="module")
def embedded():
    """Edits by rule of the responses to half of the embedded comparisons."""

    class Scorer:
        def rewards(self, conversations):
            return np.array([float(words(each[-1].content)) for each in conversations])

    attributes = read_attributes(plain(configuration("explain", {}))["contrast"])
    return explain(Scorer(), read_jsonl(EMBEDDED)[::2], attributes, Rules(), smallest=False).table


@pytest.mark.slow
def test_flips_name_nothing_where_words_have_prices_and_what_is_planted_beside_them(embedded):
    """A price for every word, drawn anew: what a network has that was trained on no attribute."""

    def prices(seed):
        return lambda text: np.mean([drawn(seed, word) - 0.5 for word in text.lower().split()])

    nulls = [rewarded(embedded, reward) for s in range(SEEDS) for reward in (noise(s), prices(s))]
    assert sum(bool(named(edits)) for edits in nulls) <= 2
    planted = rewarded(embedded, lambda text: prices(0)(text) + 0.3 * text.count("!"))
    assert "engagement" in named(planted)
    lists = rewarded(embedded, lambda text: prices(0)(text) + 0.3 * text.count("- "))
    assert named(lists) == ["markdown"]
