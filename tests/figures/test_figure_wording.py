"""Figures on wordings and dictionaries: marks at the numbers of their tables, whatever models and categories are called."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from pessimal.analysis.category_model import category_model
from pessimal.analysis.paraphrase import ANY, paraphrase
from pessimal.analysis.variance_components import variance_components
from pessimal.errors import TableError
from pessimal.figures.categories import category_ranks, category_terms
from pessimal.figures.paraphrase import survival
from pessimal.figures.style import INK, OKABE_ITO
from pessimal.figures.variance import PART_COLOURS, by_model, components
from pessimal.figures.words import literal

LEVELS = {
    f"{a}_{s}": {"adjective": a, "superlative": s}
    for a, s in product(("best", "good", "worst", "bad"), ("ever", "time"))
}
FRAMES = {prompt: 1 if prompt.startswith(("best", "good")) else -1 for prompt in LEVELS}


@pytest.fixture(scope="module")
def scans() -> dict[str, pd.DataFrame]:
    """Rewards of 120 tokens by 4 models under 8 wordings."""
    rng = np.random.default_rng(0)
    token, own = rng.normal(size=(120, 1)), rng.normal(size=(120, 4))
    models = ["lab/alder-$1$", "lab/birch", "other/cedar-with-a-name-that-is-rather-long-for-an-axis", "d"]
    return {
        prompt: pd.DataFrame(token + sign * own + rng.normal(0, 0.7, (120, 4)), columns=models)
        for prompt, sign in FRAMES.items()
    }


@pytest.fixture(scope="module")
def variances(scans) -> pd.DataFrame:
    return variance_components(scans, frames=FRAMES).components


@pytest.fixture(scope="module")
def survivals(scans) -> pd.DataFrame:
    models = next(iter(scans.values())).columns
    return pd.concat(
        paraphrase(
            pd.DataFrame({p: t[m] for p, t in scans.items()}), frames=FRAMES, levels=LEVELS
        ).survival.assign(model=m)
        for m in models
    )


@pytest.fixture(scope="module")
def medians() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    rows = [
        (f"lab/model-{m}", prompt, category, 50, 100, rng.uniform(30, 70))
        for m in range(6)
        for prompt in LEVELS
        for category in ("$care$", "harm\n")
    ]
    return pd.DataFrame(rows, columns=["model", "prompt", "category", "n", "words", "median_rank"])


def marks(axes, colour: str) -> list[tuple[float, float]]:
    """Places of the marks of a colour."""
    lines = [
        line
        for line in axes.lines
        if line.get_marker() not in ("", "None") and to_hex(line.get_color()) == colour.lower()
    ]
    return sorted((float(x), float(y)) for line in lines for x, y in zip(*line.get_data(), strict=True))


def test_components_stand_at_their_shares_one_colour_a_frame(variances, texts):
    figure = components(variances)
    for part, colour in PART_COLOURS.items():
        rows = variances[(variances["part"] == part) & (variances["units"] == "standardised")]
        expected = sorted(rows["order_share"].dropna())
        assert [x for x, _ in marks(figure.axes[0], colour)] == pytest.approx(expected)
    assert any(
        "120 tokens, 4 models" in text and "tokens, wordings, models" in text for text in texts(figure)
    )


def test_intervals_without_models_say_so(scans, texts):
    two = {prompt: table.iloc[:, :2] for prompt, table in scans.items()}
    shown = " ".join(texts(components(variance_components(two, frames=FRAMES).components))).replace("\n", " ")
    assert "not over models" in shown


def test_each_models_bar_is_whole_and_wording_is_printed(variances, texts):
    figure = by_model(variances)
    axes = figure.axes[0]
    ends = {}
    for bar in axes.patches:
        ends.setdefault(round(bar.get_y(), 3), []).append(bar.get_x() + bar.get_width())
    assert len(ends) == 4
    assert [max(end) for end in ends.values()] == pytest.approx([1.0] * 4)
    share = variances.query("part == 'both frames' and model == 'd' and component == 'token × wording'")
    assert f"wording {share['order_share'].iloc[0]:.1%}" in texts(figure)


def test_one_model_has_bars_and_no_common_components(scans):
    one = variance_components({p: t[["d"]] for p, t in scans.items()}, frames=FRAMES).components
    assert len(by_model(one).axes[0].patches) == 3
    with pytest.raises(TableError, match="with one model there are only its own"):
        components(one)


@pytest.mark.parametrize("end", ["optimal", "pessimal"])
def test_survival_stands_at_its_share_in_the_panel_of_its_frame(survivals, texts, end):
    figure = survival(survivals, end=end)
    for axes, frame in zip(figure.axes, ("positive", "negative"), strict=True):
        rows = survivals[(survivals["end"] == end) & (survivals["frame"] == frame)]
        for changed, colour in (
            (ANY, INK),
            ("only adjective", OKABE_ITO[0]),
            ("only superlative", OKABE_ITO[1]),
        ):
            expected = rows[rows["changed"] == changed]["survives"]
            assert [x for x, _ in marks(axes, colour)] == pytest.approx(sorted(expected))
    assert any(end in text for text in texts(figure))


def test_survival_of_one_frame_has_one_panel_and_of_no_end_none(survivals):
    assert len(survival(survivals[survivals["frame"] == "negative"]).axes) == 1
    with pytest.raises(TableError, match="No rows of end"):
        survival(survivals, end="middle")


def test_categories_stand_at_mean_median_ranks_with_the_best_on_the_right(medians, texts):
    bases = {model: "one" if model < "lab/model-3" else "two" for model in medians["model"].unique()}
    figure = category_ranks(medians, frames=FRAMES, bases=bases)
    framing = medians["prompt"].map(FRAMES)
    for axes, sign in zip(figure.axes, (1, -1), strict=True):
        assert axes.get_xlim()[0] > axes.get_xlim()[1]
        for category, colour in zip(("$care$", "harm\n"), OKABE_ITO, strict=False):
            means = (
                medians[(framing == sign) & (medians["category"] == category)]
                .groupby("model")["median_rank"]
                .mean()
            )
            assert [x for x, _ in marks(axes, colour)] == pytest.approx(sorted(means))
    shown = texts(figure)
    assert {"one", "two", "$care$", literal("harm\n"), "positive: 4 prompts"} <= set(shown)


def test_terms_stand_at_their_estimates_with_both_p_values(medians, texts):
    bases = {model: "one" if model < "lab/model-3" else "two" for model in medians["model"].unique()}
    terms = category_model(medians, frames=FRAMES, bases=bases)
    figure = category_terms(terms)
    drawn = terms[terms["term"] != "intercept"]
    for colour in (OKABE_ITO[1], OKABE_ITO[0]):
        assert [x for x, _ in marks(figure.axes[0], colour)] == pytest.approx(sorted(drawn["estimate"]))
    shown = texts(figure)
    three_way = terms.iloc[-1]
    assert f"{three_way['estimate']:.2f}".replace("-", "−") in shown
    assert (
        f"{three_way['permutation_p']:.3f}".replace("0.", ".", 1) in shown or three_way["permutation_p"] == 1
    )
