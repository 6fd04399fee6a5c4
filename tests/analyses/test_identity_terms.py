"""Effects of identity terms: planted ones come out, topics and meanings do not pass for them,
errors are honest."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats

from pessimal.analyses.identity_terms import identity_effects, match_identity, stems_of

CONF = Path(__file__).resolve().parents[2] / "conf" / "identity"
AXES, TOPIC_NAMES = ("first", "second", "third"), [f"topic {i}" for i in range(30)]


class World:
    """Made-up words with frequencies and ratings; two of three axes of terms are frequent words."""

    def __init__(self, *, pool: int = 3000, seed: int = 0):
        rng = np.random.default_rng(seed)
        letters = rng.choice(list("bcdfghjklmnpqrtvwxz"), size=(2 * pool, 7))
        words = sorted({"".join(row) for row in letters})
        rng.shuffle(words)
        words = words[: pool + 30 * 10 + 3 * 12]
        self.words = pd.Index(words, name="word")
        lists = iter(words)
        self.axes = {name: [next(lists) for _ in range(12)] for name in AXES}
        self.topics = {name: [next(lists) for _ in range(10)] for name in TOPIC_NAMES}
        zipf = pd.Series(rng.normal(4, 0.6, len(words)), index=self.words).round(2)
        zipf[self.axes["first"] + self.axes["second"]] += 0.8
        ratings = np.where(rng.random(len(words)) < 0.15, rng.integers(-4, 5, len(words)), np.nan)
        self.covariates = pd.DataFrame(
            {"zipf": zipf.round(2), "lexicon": ratings}, index=self.words
        )
        self.matches = match_identity(self.axes, self.covariates, topics=self.topics)

    def rewards(
        self, seed: int, *, topic_sd: float = 0.0, clumped_axes: bool = False
    ) -> pd.DataFrame:
        """Two opposite prompts: meaning changes sign; frequency, topics and noise of each word do
        not."""
        rng = np.random.default_rng(seed)
        meaning = self.covariates["lexicon"].fillna(0.0)
        common = 0.5 * self.covariates["zipf"] + rng.normal(0, 0.5, len(self.words))
        clumps = [*self.topics.values(), *(self.axes.values() if clumped_axes else ())]
        for words in clumps:
            common[words] += rng.normal(0, topic_sd)
        noise = rng.normal(0, 0.2, (2, len(self.words)))
        return pd.DataFrame(
            {"best": common + meaning + noise[0], "worst": common - meaning + noise[1]}
        )


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def effects_of(world: World, rewards: pd.DataFrame, **options) -> pd.DataFrame:
    options = {"pair": ("best", "worst")} | options
    return identity_effects(rewards, world.matches, **options)[0].set_index(["axis", "measure"])


def test_no_control_is_an_identity_term_of_another_axis(world):
    terms = {term for axis in world.axes.values() for term in axis}
    assert not terms & set(world.matches.controls["control"])
    twins = {"one": world.axes["first"], "other": world.axes["second"]}
    words = world.covariates.assign(zipf=4.0, lexicon=np.nan)  # all match one another
    matches = match_identity(twins, words, topics=world.topics)
    assert not terms & set(matches.controls["control"]) - set(world.axes["third"])


def test_a_planted_penalty_comes_out_on_both_prompts_and_nowhere_else(world):
    rewards = world.rewards(1, topic_sd=0.2)
    rewards.loc[world.axes["first"]] -= 2.0
    table = effects_of(world, rewards)
    for measure in ("best", "worst", "half_sum"):
        row = table.loc[("first", measure)]
        assert row["low"] < -2.0 < row["high"]
        assert row["high"] < -1.0
        assert row["p"] < 1e-4
    assert table.loc[("first", "both_frames"), "p"] < 1e-4
    assert (
        table.loc[("first", "half_difference"), "low"]
        < 0
        < table.loc[("first", "half_difference"), "high"]
    )
    for axis in ("second", "third"):
        assert table.loc[(axis, "half_sum"), "p"] > 0.05
        assert table.loc[(axis, "both_frames"), "p"] > 0.05


def test_what_is_liked_for_its_frequency_alone_is_not_an_effect(world):
    rewards = world.rewards(2)
    half_sum = rewards.mean(axis=1)
    raw = half_sum[world.axes["second"]].mean() - half_sum.mean()
    row = effects_of(world, rewards).loc[("second", "half_sum")]
    assert raw > 0.25, "frequent words are liked more, and the terms are frequent"
    assert row["low"] < 0 < row["high"]
    assert abs(row["effect"]) < raw / 2


def test_a_word_taken_for_bad_differs_from_a_word_avoided(world):
    rewards = world.rewards(3)
    rewards.loc[world.axes["first"]] += [-1.5, 1.5]
    table = effects_of(world, rewards)
    assert table.loc[("first", "half_difference"), "effect"] == pytest.approx(-1.5, abs=0.4)
    assert table.loc[("first", "half_difference"), "p"] < 0.01
    assert table.loc[("first", "half_sum"), "p"] > 0.05
    assert table.loc[("first", "both_frames"), "effect"] > 1
    assert table.loc[("first", "both_frames"), "p"] > 0.5


@pytest.mark.slow
def test_topics_that_go_up_and_down_together_raise_no_false_alarm(world):
    rows = []
    for seed in range(70):
        table = effects_of(world, world.rewards(100 + seed, topic_sd=0.6, clumped_axes=True))
        rows.append(table.xs("half_sum", level="measure").loc[list(AXES)])
    found = pd.concat(rows)
    assert 0.01 <= (found["p"] < 0.05).mean() <= 0.10
    covered = ((found["low"] < 0) & (found["high"] > 0)).mean()
    assert 0.89 <= covered <= 0.99
    assert found["topic_sd"].mean() == pytest.approx(0.6, rel=0.1)


def test_terms_more_alike_than_words_are_give_no_interval_narrower_than_chance(world):
    rewards = world.rewards(14)
    middle = rewards.loc[world.matches.controls["control"]].mean()
    frequency = 0.5 * (world.covariates.loc[world.axes["third"], "zipf"] - 4.0)
    rewards.loc[world.axes["third"]] = np.add.outer(frequency.to_numpy(), middle.to_numpy())
    row = effects_of(world, rewards).loc[("third", "half_sum")]
    assert (row["high"] - row["low"]) / 2 >= stats.t.ppf(0.975, row["n_topics"]) * row["null_sd"]


def test_both_frames_takes_the_weaker_effect_and_the_larger_one_sided_p(world):
    rewards = world.rewards(4)
    rewards.loc[world.axes["third"]] -= [1.0, 0.3]
    table = effects_of(world, rewards)
    for axis in AXES:
        best, worst, both = (table.loc[(axis, name)] for name in ("best", "worst", "both_frames"))
        assert both["effect"] == max(best["effect"], worst["effect"])
        one_sided = [
            row["p"] / 2 if row["effect"] < 0 else 1 - row["p"] / 2 for row in (best, worst)
        ]
        assert both["p"] == pytest.approx(max(one_sided))


def test_forms_of_one_stem_are_one_observation(world):
    covariates = world.covariates
    forms = {"painters": "painter", "riders": "rider"}
    extra = pd.DataFrame({"zipf": [4.0] * 4, "lexicon": np.nan}, index=[*forms, *forms.values()])
    matches = match_identity(
        world.axes | {"first": [*world.axes["first"], *extra.index]},
        pd.concat([covariates, extra]),
        topics=world.topics,
    )
    rewards = pd.concat(
        [world.rewards(9), pd.DataFrame({"best": -3.0, "worst": -3.0}, index=extra.index)]
    )
    axes, terms = identity_effects(rewards, matches, pair=("best", "worst"))
    row = axes.set_index(["axis", "measure"]).loc[("first", "half_sum")]
    assert row["n"] - row["n_stems"] == 2
    terms = terms[terms["axis"] == "first"]
    by_stem = terms.groupby(stems_of(terms["term"]))["half_sum"].mean()
    assert row["effect"] == pytest.approx(by_stem.mean())


def lists() -> dict[str, dict]:
    found: dict[str, dict] = {}
    for file in sorted(CONF.glob("*.yaml")):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        assert list(content) == [file.stem]
        found |= content
    return found


def test_our_lists_are_words_in_lower_case_each_on_one_axis_with_a_source():
    terms = [term for axis in lists().values() for term in axis["terms"]]
    assert len(terms) == len(set(terms))
    assert all(isinstance(term, str) and term.isalpha() and term == term.lower() for term in terms)
    for name, axis in lists().items():
        assert set(axis) == {"about", "source", "terms"}
        assert axis["about"]
        assert axis["source"]
        assert 15 <= len(axis["terms"]) <= 60, name
