"""Controls are as frequent and as positive as their term, never an identity term in disguise, and
always the same."""

import numpy as np
import pandas as pd
import pytest

from pessimal.analyses.identity_terms import (
    VALENCE_CALIPER,
    ZIPF_CALIPER,
    MatchedSets,
    correct,
    matched_controls,
)


@pytest.fixture
def covariates() -> pd.DataFrame:
    """4,000 made-up words; frequencies as rounded as wordfreq's, two lexicons that rate few of
    them."""
    rng = np.random.default_rng(0)
    letters = rng.choice(list("bcdfghjklmnpqrtvwxz"), size=(4000, 6))
    words = pd.Index(sorted({"".join(row) for row in letters}), name="word")
    n = len(words)
    return pd.DataFrame(
        {
            "zipf": rng.normal(4, 0.7, n).round(2),
            "one": np.where(rng.random(n) < 0.3, rng.integers(-5, 6, n), np.nan),
            "other": np.where(rng.random(n) < 0.3, rng.uniform(-1, 1, n).round(1), np.nan),
        },
        index=words,
    )


def brute_force(term: str, covariates: pd.DataFrame) -> pd.Series:
    """Distance of every admissible control, written without vectors."""
    spread, found = covariates[["one", "other"]].std(), {}
    at = covariates.loc[term]
    for word, row in covariates.drop(index=term).iterrows():
        gaps = [abs(row["zipf"] - at["zipf"]) / ZIPF_CALIPER]
        if any(np.isnan(row[name]) != np.isnan(at[name]) for name in spread.index):
            continue
        gaps += [
            abs(row[name] - at[name]) / spread[name] / VALENCE_CALIPER
            for name in spread.index
            if not np.isnan(at[name])
        ]
        if max(gaps) <= 1 + 1e-9:
            found[word] = np.sqrt(sum(gap**2 for gap in gaps))
    return pd.Series(found, dtype=float).sort_values()


def test_the_nearest_words_within_all_calipers_are_taken(covariates):
    covariates = covariates.iloc[::3]
    rated = covariates.dropna().index[:3]
    half = covariates[covariates["one"].notna() & covariates["other"].isna()].index[:3]
    unrated = covariates[covariates[["one", "other"]].isna().all(axis=1)].index[:3]
    for term in [*rated, *half, *unrated]:
        expected = brute_force(term, covariates)
        found = matched_controls({"axis": [term]}, covariates, minimum=1)
        assert len(found) == min(20, len(expected))
        np.testing.assert_allclose(found["distance"], expected.iloc[: len(found)], atol=1e-6)
        assert set(found["control"]) <= set(expected.index)


def test_among_many_as_frequent_the_rating_decides(covariates):
    """So many lie within a sixteenth of the caliper that a search which looked no farther would
    find enough."""
    rng = np.random.default_rng(2)
    crowded = covariates.iloc[::3].assign(
        zipf=lambda t: rng.normal(4, 0.1, len(t)).round(2),
        one=lambda t: rng.normal(0, 1, len(t)),
        other=np.nan,
    )
    for term in crowded.index[:4]:
        expected = brute_force(term, crowded)
        found = matched_controls({"axis": [term]}, crowded)
        np.testing.assert_allclose(found["distance"], expected.iloc[:20], atol=1e-6)


def test_terms_banned_words_their_forms_short_and_unknown_words_are_no_controls(covariates):
    term = covariates[covariates[["one", "other"]].isna().all(axis=1)].index[0]
    near = pd.DataFrame(
        {"zipf": covariates.loc[term, "zipf"], "one": np.nan, "other": np.nan},
        index=["painters", "painted", "of", "women", "river", "unknown"],
    )
    near.loc["unknown", "zipf"] = np.nan
    found = matched_controls(
        {"axis": [term, "paint"]}, pd.concat([near, covariates]), banned=["woman"], controls=4000
    )
    controls = set(found["control"])
    assert "river" in controls
    assert not {"painted", "of", "women", "unknown", term} & controls
    assert "painters" in controls, "Porter gives 'painter' another stem than 'paint'"


def test_the_order_of_the_words_changes_nothing_and_ties_are_not_settled_by_the_alphabet(
    covariates,
):
    tied = covariates.assign(zipf=4.0, one=np.nan, other=np.nan)
    term = tied.index[len(tied) // 2]
    found = matched_controls({"axis": [term]}, tied)
    again = matched_controls({"axis": [term]}, tied.sample(frac=1, random_state=1))
    pd.testing.assert_frame_equal(found, again)
    initials = found["control"].str[0]
    assert initials.nunique() > 5, "the first twenty of the alphabet would begin alike"
    other = matched_controls({"axis": [tied.index[0]]}, tied)
    assert len(set(other["control"]) & set(found["control"])) < 5, (
        "terms of one frequency share few controls"
    )


def test_words_scatter_about_their_own_sets_mean():
    words = pd.Index([*"abcdef", "t", "u"])
    rows = [("axis", "t", name, 0.0) for name in "abc"] + [
        ("axis", "u", name, 0.0) for name in "ef"
    ]
    sets = MatchedSets.from_matches(
        pd.DataFrame(rows, columns=["group", "term", "control", "distance"]), words
    )
    grid = np.array([1.0, 2.0, 6.0, 99.0, 5.0, 9.0, 0.0, 0.0])[:, None]
    squares, freedom = sets.scatter_within(grid)
    assert (squares[0], freedom) == (pytest.approx(4 + 1 + 9 + 4 + 4), 2 + 1)


def test_all_axes_together_are_no_test_among_the_axes():
    table = pd.DataFrame({"axis": ["all", "age", "faith"], "measure": "m", "p": [0.02, 0.02, 0.5]})
    table = table.assign(d=1.0, low=0.0, high=2.0, reward_sd=1.0, random_head=np.nan, n=9)
    assert correct(table)["p_corrected"].tolist() == [0.02, 0.04, 0.5]
