"""Effects of identity terms: planted ones come out, topics and meanings do not pass for them,
errors are honest."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats

from pessimal.analyses import Options
from pessimal.analyses.identity_terms import (
    TOPICS,
    analyse,
    identity_effects,
    match_identity,
    stems_of,
)
from pessimal.errors import TableError
from pessimal.tables.result import HOLDS
from pessimal.tables.word_lists import Frequencies

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


def test_no_control_is_an_identity_term_of_any_axis(world):
    named = {term for terms in world.axes.values() for term in terms}
    assert not named & set(world.matches.controls["control"])


def test_refusals_say_what_to_do(world):
    rewards = world.rewards(13)
    with pytest.raises(TableError, match="cannot be named 'all'"):
        match_identity({"all": ["x"]}, world.covariates)
    with pytest.raises(TableError, match="Scan a whole vocabulary"):
        match_identity(world.axes, world.covariates, topics={"one": world.topics["topic 0"]})
    with pytest.raises(TableError, match="Scan a whole vocabulary"):
        match_identity({"none": ["not there"]}, world.covariates, topics=world.topics)
    with pytest.raises(TableError, match="The same reward for every item"):
        identity_effects(rewards.assign(best=1.0), world.matches)


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


def test_everyday_topics_name_nobody_on_our_lists():
    named = set(stems_of([term for axis in lists().values() for term in axis["terms"]]))
    words = [word for topic in TOPICS.values() for word in topic]
    assert not named & set(stems_of(words))
    assert len(words) == len(set(words))
    assert min(map(len, TOPICS.values())) >= 8


TERMS = {
    "gender": ["woman", "women", "man", "female", "male", "girl"],
    "faith": ["christian", "muslim", "jewish", "hindu", "atheist", "absent"],
    "short": ["deaf", "blind"],
}
KEYS = {"polarity": {"greatest": 1, "best": 1, "worst": -1}}


@pytest.fixture(scope="module")
def zipf() -> pd.Series:
    """By word: 1,500 made-up words, everyday ones and terms."""
    rng = np.random.default_rng(0)
    made_up = {"".join(row) for row in rng.choice(list("bcdfghjklmnpqrtvwxz"), size=(1500, 7))}
    everyday = [word for topic in TOPICS.values() for word in topic]
    terms = [term for axis in TERMS.values() for term in axis if term != "absent"]
    words = sorted({*made_up, *everyday, *terms})
    return pd.Series(rng.normal(4, 0.5, len(words)).round(2), index=words)


@pytest.fixture(scope="module")
def options(zipf) -> Options:
    rows = pd.DataFrame({"word": zipf.index, "per_million": 10 ** (zipf.to_numpy() - 3)})
    axes = {
        axis: SimpleNamespace(about=f"about {axis}", source="ours", terms=t)
        for axis, t in TERMS.items()
    }
    return Options(
        lexicons={"mine": pd.Series({"christian": 1.0, "bread": 2.0}).rename_axis("word")},
        frequencies=Frequencies("a list", rows),
        identity=axes,
    )


def scores(words: pd.Series, *, seed: int, **penalties: float) -> pd.DataFrame:
    """Two spellings of each word; a column of noise a model, less its penalty on identity terms."""
    texts = [f" {word}" for word in words.index] + [word.title() for word in words.index]
    named = {term for axis in TERMS.values() for term in axis}
    of_people = np.array([text.strip().lower() in named for text in texts])
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {m: rng.normal(0, 0.5, len(texts)) - p * of_people for m, p in penalties.items()},
        index=texts,
    )


def opposite(words: pd.Series, **penalties: float) -> dict[str, pd.DataFrame]:
    return {
        prompt: scores(words, seed=seed, **penalties)
        for seed, prompt in enumerate(("best", "worst"))
    }


def by_name(results) -> dict:
    return {result.name: result for result in results}


def test_the_penalising_model_is_the_headline_with_its_number(table_set, zipf, options):
    found = by_name(analyse(table_set(opposite(zipf, strict=2.0, mild=0.0), **KEYS), options))
    first = found["identity"]
    assert first.estimate.value < -2
    assert first.estimate.low < first.estimate.value < first.estimate.high < 0
    assert first.estimate.p < 0.01
    assert first.estimate.n == 12
    assert first.weight == HOLDS + 1
    assert "strict" in first.headline
    effects = first.table.set_index(["model", "axis", "measure"])
    strict = effects["p_corrected"].xs(("strict", "gender"), level=("model", "axis"))
    assert (strict.drop("half_difference") < 0.05).all()
    assert (effects.loc["mild"]["p_corrected"] > 0.05).all()
    gender = effects.loc[("strict", "gender", "half_sum")]
    assert (gender["n"], gender["n_stems"]) == (6, 5), "woman and women are one"
    assert effects.loc[("strict", "faith", "half_sum"), "n"] == 4, (
        "one is absent, one is rated as no other word is"
    )
    assert ("strict", "short", "half_sum") not in effects.index
    assert first.summary["identity/strict/d"] == first.estimate.value
    one = (
        found["identity_axes"]
        .table.set_index(["model", "axis", "measure"])
        .loc[("strict", "gender", "half_sum")]
    )
    assert one["low"] == pytest.approx(gender["low"] / gender["reward_sd"])
    assert set(found) == {"identity", "identity_axes", "identity_terms"}
    assert all(set(result.table["candidates"]) == {"vocabulary"} for result in found.values())


def test_without_opposite_prompts_the_one_that_most_models_have_is_measured_and_weighs_less(
    table_set, zipf, options
):
    tables = table_set(
        {"greatest": scores(zipf, seed=0, a=2.0), "best": scores(zipf, seed=1, a=2.0, b=0.0)},
        **KEYS,
    )
    found = by_name(analyse(tables, options))
    assert set(found["identity_terms"].table["measure"]) == {"best"}
    assert set(found["identity_terms"].table["model"]) == {"a", "b"}
    assert set(found["identity"].table["measure"]) == {"greatest", "best"}
    assert found["identity"].estimate.p < 0.01
    assert found["identity"].weight == HOLDS + 1 / 2


def test_models_that_cannot_be_measured_are_left_out_with_the_reason(table_set, zipf, options):
    both = scores(zipf, seed=0, both=0.0)
    tables = table_set(
        {"best": both.assign(half=both["both"]), "worst": scores(zipf, seed=1, both=0.0)}, **KEYS
    )
    first = analyse(tables, options)[0]
    assert set(first.table["model"]) == {"both"}
    assert any(note == "half: not scanned on worst, as others are" for note in first.notes)
    with pytest.raises(TableError, match="small: Of 3 axes 0"):
        analyse(table_set(opposite(zipf.iloc[:50], small=0.0), **KEYS), options)
