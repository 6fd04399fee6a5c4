"""Variance components: the mean squares of textbooks and statsmodels, planted truths, and intervals
that cover them."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm

from experiments.inherited_values.variance_components import (
    ALL_MODELS,
    Cells,
    components,
    factors,
    variance_components,
)

TRUTH = {
    "token": 0.3,
    "token × frame": 1.0,
    "token × wording": 0.15,
    "token × model": 0.2,
    "token × model × frame": 0.5,
    "token × model × wording": 0.4,
    "model": 0.6,
    "wording": 0.1,
    "model × wording": 0.05,
    "model × frame": 0.2,
    "frame": 0.64,
}


def simulated(
    rng, *, tokens=300, models=8, per_frame=6, truth=TRUTH
) -> tuple[np.ndarray, np.ndarray]:
    """Rewards (tokens, models, wordings) with these components, and the sign of each wording."""
    signs = np.repeat([1, -1], per_frame)
    sizes = {"token": tokens, "model": models, "wording": len(signs)}
    rewards = np.zeros((tokens, models, len(signs)))
    for name, variance in truth.items():
        parts = name.split(" × ")
        if name == "frame":
            rewards += np.sqrt(variance) * signs
            continue
        shape = [size if part in parts else 1 for part, size in sizes.items()]
        effect = rng.normal(0, np.sqrt(variance), shape)
        rewards += effect * signs if "frame" in parts else effect
    return rewards, signs


def tables(rewards: np.ndarray) -> dict[str, pd.DataFrame]:
    models = [f"model {i}" for i in range(rewards.shape[1])]
    return {
        f"p{w}": pd.DataFrame(rewards[:, :, w], columns=models) for w in range(rewards.shape[2])
    }


def polarity_of(signs: np.ndarray) -> dict[str, int]:
    return {f"p{w}": int(sign) for w, sign in enumerate(signs)}


def cells_of(rewards: np.ndarray) -> Cells:
    n, models, wordings = rewards.shape
    covariance = np.cov(rewards.reshape(n, -1).T).reshape(models, wordings, models, wordings)
    return Cells(n, rewards.mean(axis=0), covariance)


def of(table: pd.DataFrame, *, part: str, model: str = ALL_MODELS) -> pd.DataFrame:
    rows = table[(table["part"] == part) & (table["model"] == model)]
    assert not rows.empty
    return rows.set_index("component")


def test_one_frame_gives_the_components_of_statsmodels_mean_squares():
    rng = np.random.default_rng(0)
    t, m, w = 9, 4, 5
    rewards = rng.normal(size=(t, m, w)) + rng.normal(size=(t, 1, 1)) + rng.normal(size=(t, m, 1))
    long = pd.DataFrame(
        [(i, j, k, rewards[i, j, k]) for i, j, k in product(range(t), range(m), range(w))],
        columns=["t", "m", "w", "y"],
    )
    fit = ols("y ~ C(t) + C(m) + C(w) + C(t):C(m) + C(t):C(w) + C(m):C(w)", long).fit()
    anova = anova_lm(fit)
    ms = {
        name.replace("C(", "").replace(")", ""): square for name, square in anova["mean_sq"].items()
    }
    rest = ms["Residual"]
    expected = {
        "token × model × wording": rest,
        "token × model": (ms["t:m"] - rest) / w,
        "token × wording": (ms["t:w"] - rest) / m,
        "model × wording": (ms["m:w"] - rest) / t,
        "token": (ms["t"] - ms["t:m"] - ms["t:w"] + rest) / (m * w),
        "model": (ms["m"] - ms["t:m"] - ms["m:w"] + rest) / (t * w),
        "wording": (ms["w"] - ms["t:w"] - ms["m:w"] + rest) / (t * m),
    }
    found = components(cells_of(rewards), np.ones(w), standardised=False)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("per_frame", "kept", "changed"),
    [(5, 7, {"wording": 4.0, "frame": 0.0})],  # wordings alone shift a frame's mean
)
def test_components_are_unbiased_with_unequal_numbers_of_wordings_too(per_frame, kept, changed):
    rng, truth, draws = np.random.default_rng(per_frame), TRUTH | changed, []
    for _ in range(200):
        rewards, signs = simulated(rng, tokens=40, models=6, per_frame=per_frame, truth=truth)
        draws.append(components(cells_of(rewards[:, :, :kept]), signs[:kept], standardised=False))
    draws = pd.DataFrame(draws)
    errors = (draws.mean() - pd.Series(truth)) / (draws.std() / np.sqrt(len(draws)))
    assert set(draws) == set(TRUTH)
    assert errors.abs().max() < 3.5


def test_wording_is_divided_between_its_factors_as_mean_squares_divide_it():
    rng = np.random.default_rng(2)
    levels = list(product("abc", "xy", "uvw"))
    adjective = {level: rng.normal(0, 1.0, (60, 1)) for level in "abc"}
    concision = {level: rng.normal(0, 0.7, (60, 4)) for level in "uvw"}
    rewards = np.stack([adjective[a] + concision[c] for a, _, c in levels], axis=2)
    rewards = rewards + rng.normal(0, 0.5, rewards.shape)
    design = [
        dict(zip(("adjective", "superlative", "concision"), row, strict=True)) for row in levels
    ]
    found = factors(cells_of(rewards), np.ones(18), design=design, standardised=False)

    long = pd.DataFrame(
        [(i, *levels[k], rewards[i, :, k].mean()) for i, k in product(range(60), range(18))],
        columns=["t", "a", "s", "c", "y"],
    )
    anova = anova_lm(ols("y ~ C(t)*(C(a) + C(s) + C(c)) + C(a)*C(s)*C(c)", long).fit())
    # Of the mean over models: common and one model's own over the number of models.
    rest = anova.loc["Residual", "mean_sq"]
    for factor, short, size in (
        ("adjective", "a", 3),
        ("superlative", "s", 2),
        ("concision", "c", 3),
    ):
        both = found[f"token × {factor}"] + found[f"token × model × {factor}"] / 4
        assert both == pytest.approx(
            (anova.loc[f"C(t):C({short})", "mean_sq"] - rest) / (18 / size)
        )
    assert found["token × rest"] + found["token × model × rest"] / 4 == pytest.approx(rest)
    assert found["token × adjective"] == pytest.approx(1.0, abs=0.3)
    assert found["token × model × concision"] == pytest.approx(0.49, abs=0.15)
    assert abs(found["token × superlative"]) < 0.05


@pytest.mark.slow
def test_shares_cover_what_was_planted_and_leave_scales_of_models_out():
    rng = np.random.default_rng(3)
    with_token = {name: value for name, value in TRUTH.items() if "token" in name}
    whole, hits = sum(with_token.values()), []
    for _ in range(8):
        rewards, signs = simulated(rng, models=6, truth=with_token)
        scales = 10.0 ** rng.integers(-2, 3, 6)
        found = variance_components(
            tables(rewards * scales[:, None] + scales[:, None]), polarity=polarity_of(signs)
        )
        rows = of(found.components, part="both frames").loc[list(with_token)]
        truth = pd.Series(with_token) / whole
        hits.append((rows["order_share_low"] <= truth) & (truth <= rows["order_share_high"]))
        assert rows["order_share"].sum() == pytest.approx(1)
    assert np.mean(hits) >= 0.85


def test_correlations_are_those_between_scans():
    rng = np.random.default_rng(5)
    rewards, signs = simulated(rng, tokens=4000, models=4, per_frame=3)
    found = variance_components(tables(rewards), polarity=polarity_of(signs)).correlations
    expected = found[(found["part"] == "both frames") & (found["model"] == ALL_MODELS)].set_index(
        "between"
    )["correlation"]
    r = np.corrcoef(rewards.reshape(4000, -1).T).reshape(4, 6, 4, 6)
    pairs = list(product(range(4), range(6), repeat=2))

    def mean(chosen) -> float:
        return np.mean(
            [r[a, v, b, w] for a, v, b, w in pairs if chosen(a == b, v == w, signs[v] == signs[w])]
        )

    told = {
        "one model, two wordings of one frame": mean(lambda m, w, f: m and f and not w),
        "one model, two wordings of opposite frames": mean(lambda m, w, f: m and not f),
        "two models, one wording": mean(lambda m, w, f: w and not m),
        "two models, two wordings of one frame": mean(lambda m, w, f: f and not m and not w),
        "two models, two wordings of opposite frames": mean(lambda m, w, f: not m and not f),
    }
    assert expected.to_dict() == pytest.approx(told, abs=0.03)


# analyse
