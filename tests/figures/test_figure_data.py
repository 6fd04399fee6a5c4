"""What each figure shows is what its table says."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.text import Text

from pessimal.analysis import geometry
from pessimal.analysis.agreement import agreement, as_matrix
from pessimal.analysis.extremes import extremes
from pessimal.analysis.human import human_correlation, most_valued, rank_difference
from pessimal.analysis.moments import moments
from pessimal.analysis.rsa import rsa
from pessimal.errors import TableError
from pessimal.figures import heatmap, human, mds, token_table, violin
from pessimal.figures import rsa as rsa_figure
from pessimal.figures import scatter as scatter_figure
from pessimal.figures.labels import place_labels
from pessimal.figures.style import OKABE_ITO, new_figure
from pessimal.figures.words import literal


@pytest.fixture
def similarity(rewards) -> pd.DataFrame:
    return as_matrix(agreement(rewards, replicates=100), "kendall")


@pytest.fixture
def elo(rewards) -> pd.Series:
    return pd.Series(np.random.default_rng(1).normal(size=len(rewards)), index=rewards.index)


def lines_through(axes, row: float) -> list[Line2D]:
    return [line for line in axes.lines if len(line.get_ydata()) and np.allclose(line.get_ydata(), row)]


# violin


def test_a_violin_stands_for_every_model_and_its_moments_are_printed(rewards, texts):
    figure = violin.violin(rewards)
    assert len(figure.axes[0].collections) == 6
    shown = texts(figure)
    for row in moments(rewards).itertuples():
        assert row.model.removeprefix("lab/") in shown
        assert f"{row.skewness:.2f} ± {row.skewness_se:.2f}".replace("-", "−") in shown


def test_a_violins_median_and_range_are_the_models(rewards):
    axes = violin.violin(rewards).axes[0]
    values = rewards.iloc[:, 2]
    z = (values - values.mean()) / values.std(ddof=0)
    drawn = np.concatenate([line.get_xdata() for line in lines_through(axes, 2)])
    for number in (z.min(), z.max(), z.median(), *z.quantile([0.25, 0.75])):
        assert np.isclose(drawn, number).any()


def test_the_binned_density_is_the_kernel_density():
    values = np.random.default_rng(0).normal(size=20_000)
    grid, height = violin.density(values)
    assert height == pytest.approx(np.exp(-(grid**2) / 2), abs=0.05)


def test_a_constant_model_and_one_of_few_levels_can_be_drawn(rewards):
    flat = rewards.assign(flat=1.0, levels=np.r_[np.zeros(290), np.ones(10)])
    assert len(violin.violin(flat).axes[0].collections) == 7


# heatmap


def test_every_pair_is_printed_in_hierarchical_order(similarity, descriptors, texts):
    figure = heatmap.heatmap(similarity, descriptors=descriptors)
    axes = figure.axes[0]
    order = geometry.order(similarity)
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        name.removeprefix("lab/") for name in order
    ]
    printed = {text.get_position(): text.get_text() for text in axes.texts}
    for row, a in enumerate(order):
        for column, b in enumerate(order):
            if row != column:
                assert printed[column, row] == f"{similarity.loc[a, b]:.2f}".replace("0.", ".", 1)
    assert (0, 0) not in printed
    assert {"developer", "base", "alder", "birch", "wordpiece", "bpe"} <= set(texts(figure))


def test_the_strips_follow_the_order_of_the_models(similarity, descriptors):
    axes = heatmap.heatmap(similarity, descriptors=descriptors).axes[0]
    developers = descriptors.loc[geometry.order(similarity), "developer"].tolist()
    strip = [to_hex(patch.get_facecolor()) for patch in axes.patches[:6]]
    assert len(axes.patches) == 12
    assert [strip.index(colour) for colour in strip] == [developers.index(name) for name in developers]


def test_a_developer_has_one_colour_in_all_figures(similarity, descriptors):
    strip = heatmap.heatmap(similarity, descriptors=descriptors).axes[0].patches[:6]
    order = geometry.order(similarity)
    in_strip = {
        descriptors.loc[model, "developer"]: to_hex(p.get_facecolor())
        for model, p in zip(order, strip, strict=True)
    }
    places, stress = geometry.mds(geometry.dissimilarity(similarity))
    # Drawn backwards and without the first model: neither may move a colour.
    some = places[:0:-1]
    points = mds.mds(some, stress=stress, descriptors=descriptors).axes[0].collections
    on_map = {
        descriptors.loc[model, "developer"]: to_hex(p.get_facecolor())
        for model, p in zip(some["model"], points, strict=True)
    }
    assert in_strip == on_map


def test_the_noise_floor_stands_on_the_diagonal_of_its_model_only(similarity, texts):
    model = similarity.index[1]
    bare = texts(heatmap.heatmap(similarity))
    figure = heatmap.heatmap(similarity, floor=pd.Series({model: 0.973}))
    assert sorted(set(texts(figure)) - set(bare)) == [
        text for text in texts(figure) if ".97" in text or "rescan" in text
    ]
    place = heatmap.order(similarity).index(model)
    (cell,) = [text for text in figure.axes[0].texts if text.get_text() == ".97"]
    assert cell.get_position() == (place, place)


def test_agreement_just_below_one_is_not_called_one(texts):
    matrix = pd.DataFrame([[1, 0.998], [0.998, 1]], index=["a", "b"], columns=["a", "b"])
    assert ">.99" in texts(heatmap.heatmap(matrix))


def test_several_similarities_share_one_order(similarity):
    turned = 1 - similarity + np.eye(len(similarity))
    figure = heatmap.heatmaps({"first": similarity, "second": turned}, title="two")
    first, second = figure.axes
    names = [label.get_text() for label in first.get_yticklabels()]
    models = heatmap.order(similarity)
    assert len(names) == len(models)
    for axes, matrix in ((first, similarity), (second, turned)):
        cells = axes.images[0].get_array()
        assert cells[0, 1] == pytest.approx(matrix.loc[models[0], models[1]])


def test_negative_agreement_is_printed_with_its_sign(texts):
    names = ["a", "b", "c"]
    matrix = pd.DataFrame([[1, -0.25, 0.1], [-0.25, 1, 0.2], [0.1, 0.2, 1]], index=names, columns=names)
    assert "−.25" in texts(heatmap.heatmap(matrix))


def test_a_number_loses_its_leading_zero_and_no_other():
    shown = [heatmap._short(number) for number in (0.5, -0.5, 10.52, -20.04, -0.001, 0.996, 1.0)]
    assert shown == [".50", "−.50", "10.52", "−20.04", ".00", ">.99", "1.00"]


# map


def test_models_lie_where_the_map_says_with_stress_and_legend(similarity, descriptors, texts):
    places, stress = geometry.mds(geometry.dissimilarity(similarity))
    figure = mds.mds(places, stress=stress, descriptors=descriptors)
    points = figure.axes[0].collections
    assert np.array([point.get_offsets().data[0] for point in points]) == pytest.approx(
        places[["x", "y"]].to_numpy()
    )
    areas = [point.get_sizes()[0] for point in points]
    assert areas[0] < areas[2] < areas[1]
    assert {to_hex(point.get_facecolor()) for point in points} == {colour.lower() for colour in OKABE_ITO[:2]}
    shown = texts(figure)
    assert any(f"stress {stress:.3f}" in text.replace("\n", " ") for text in shown)
    assert {"alder-small", "birch-$2$", "wordpiece", "bpe"} <= set(shown)


def test_labels_of_crowded_points_do_not_overlap():
    figure = new_figure(7, 4)
    axes = figure.subplots()
    places = np.random.default_rng(0).normal(scale=0.05, size=(12, 2))
    axes.scatter(*places.T)
    axes.set(xlim=(-1, 1), ylim=(-1, 1))
    labels = place_labels(axes, places, [f"a longer label {place}" for place in range(12)])
    FigureCanvasAgg(figure).draw()
    boxes = [Text.get_window_extent(label) for label in labels]  # without the hairline
    frame = axes.get_window_extent()
    assert sum(a.overlaps(b) for place, a in enumerate(boxes) for b in boxes[:place]) <= 2
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes)


# scatter


def test_every_item_is_a_rasterised_point_and_the_extremes_are_named(rewards, texts):
    x, y = rewards.iloc[:, 0], rewards.iloc[:, 3]
    figure = scatter_figure.scatter(x, y, x_name="best", y_name="worst", extreme=2)
    cloud = figure.axes[0].collections[0]
    assert cloud.get_rasterized()
    drawn = np.array(sorted(map(tuple, cloud.get_offsets())))
    assert drawn == pytest.approx(np.array(sorted(zip(x, y, strict=True))))
    ends = {*x.nlargest(2).index, *x.nsmallest(2).index, *y.nlargest(2).index, *(x - y).nlargest(2).index}
    assert {literal(item) for item in ends} <= set(texts(figure))
    assert any("300 items" in text for text in texts(figure))


def test_extremes_are_the_ends_of_three_directions_each_once():
    places = np.array([[0.0, 0], [5, 5], [-5, -5], [3, -4], [-3, 4], [1, 1]])
    assert sorted(scatter_figure.most_extreme(places, count=1).tolist()) == [1, 2, 3, 4]


def test_crowding_is_highest_where_the_items_are():
    rng = np.random.default_rng(0)
    crowd = scatter_figure.crowding(np.vstack([rng.normal(scale=0.1, size=(5000, 2)), [[3.0, -3.0]]]))
    assert crowd[-1] < np.median(crowd) / 5
    assert crowd[-1] < crowd.max() / 10


# token table


def test_tokens_and_rewards_of_every_model_are_drawn_literally(rewards, texts):
    tables = [
        extremes(
            pd.DataFrame(
                {"candidate_id": range(300), "text": rewards.index, "token": rewards.index, "reward": values}
            ),
            k=5,
        ).assign(model=model)
        for model, values in rewards.items()
    ]
    table = pd.concat(tables)
    shown = texts(token_table.token_table(table))
    for text in table["text"]:
        assert literal(text, limit=18) in shown
    assert shown.count("optimal") == shown.count("pessimal") == 6


def test_the_very_worst_token_is_at_the_bottom_and_ties_are_bracketed():
    scored = pd.DataFrame(
        {
            "candidate_id": range(6),
            "token": list("abcdef"),
            "text": list("abcdef"),
            "reward": [9, 5, 5, 1, 0, -2.0],
        }
    )
    axes = token_table.token_table(extremes(scored, k=2).assign(model="m")).axes[0]
    height = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert height["a"] < height["b"] < height["e"] < height["f"] < height["pessimal"]  # y grows downwards
    assert "(5.000)" in height
    assert "9.000" in height


def test_a_table_without_models_is_refused():
    with pytest.raises(TableError, match="missing: model"):
        token_table.token_table(pd.DataFrame(columns=["end", "rank", "text", "reward", "tied"]))


# representational similarity


def test_coefficients_null_ranges_and_reasons_are_drawn(similarity, descriptors, texts):
    table = rsa(similarity, descriptors, permutations=200)
    figure = rsa_figure.rsa(table)
    axes = figure.axes[0]
    for row, factor in enumerate(table.itertuples()):
        if factor.status == "estimated":
            drawn = np.concatenate([line.get_xdata() for line in lines_through(axes, row)])
            numbers = [factor.beta, factor.mantel_r, factor.null_low, factor.null_high]
            assert sorted(drawn) == pytest.approx(sorted(numbers))
            assert f"β = {factor.beta:z.2f}".replace("-", "−") in texts(figure)
    assert "left out: not known for every model" in texts(figure)
    assert any("6 models, 15 pairs" in text for text in texts(figure))


# people


def test_the_forest_is_sorted_and_shows_every_interval(rewards, elo, texts):
    table = human_correlation(rewards, elo).sort_values("spearman", ascending=False)
    figure = human.forest(table.sample(frac=1, random_state=0))
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        name.removeprefix("lab/") for name in table["model"]
    ]
    assert axes.lines[0].get_xdata() == pytest.approx(table["spearman"])
    segments = np.array(axes.collections[0].get_segments())
    assert segments[:, 0, 0] == pytest.approx(table["low"])
    assert segments[:, 1, 0] == pytest.approx(table["high"])


def test_rank_gaps_show_the_farthest_items_on_either_side(rewards, elo):
    table = rank_difference(rewards, elo).sort_values("difference")
    higher, lower = human.rank_gaps(table.sample(frac=1, random_state=0), k=4).axes
    for axes, items in ((higher, table.head(4)), (lower, table.tail(4).iloc[::-1])):
        assert [label.get_text() for label in axes.get_yticklabels()] == [
            literal(name, limit=26) for name in items["name"]
        ]
        ranks = {line.get_label(): line.get_xdata() for line in axes.lines}
        assert ranks["people"] == pytest.approx(items["human_rank"])
        assert ranks["models"] == pytest.approx(items["model_rank"])


def test_only_sure_items_are_drawn_where_their_list_is_given(rewards, elo, texts):
    matches = pd.Series(40_000, index=elo.index)
    table = rank_difference(rewards, elo * 100, matches=matches)
    ends = most_valued(table, k=3).query("end == 'overvalued'")
    higher, lower = human.rank_gaps(table, ends=ends).axes
    assert [label.get_text() for label in higher.get_yticklabels()] == [
        literal(name, limit=26) for name in ends["name"]
    ]
    people, models = (np.array(bars.get_segments())[:, :, 0] for bars in higher.collections[1:3])
    assert ends["model_rank"].to_numpy() - people[:, 0] == pytest.approx(ends["people_high"].to_numpy())
    assert models[:, 1] - ends["human_rank"].to_numpy() == pytest.approx(ends["models_high"].to_numpy())
    assert "none whose difference is sure" in [text.get_text() for text in lower.texts]


def test_agreement_is_drawn_prompt_by_prompt_the_most_agreeing_model_first(rewards, elo, texts):
    good = human_correlation(rewards, elo).assign(prompt="best")
    bad = human_correlation(-rewards, elo).assign(prompt="worst").head(4)
    figure = human.by_prompt(pd.concat([good, bad]), signs={"best": 1, "worst": -1})
    axes = figure.axes[0]
    order = good.sort_values("spearman", ascending=False)["model"]
    assert [label.get_text() for label in axes.get_yticklabels()] == [n.removeprefix("lab/") for n in order]
    dots = {line.get_label(): line for line in axes.lines}
    for label, table in (("best  (+)", good), ("worst  (−)", bad)):
        assert dots[label].get_xdata() == pytest.approx(table["spearman"].to_numpy())
        rows = np.rint(dots[label].get_ydata()).astype(int)
        assert [list(order)[row] for row in rows] == list(table["model"])


@pytest.mark.parametrize(("sign", "told"), [(-1, "left of 0"), (None, "not stated"), (1, "Good words")])
def test_the_forest_has_the_model_closest_to_people_first_and_says_which_way_that_is(
    rewards, elo, texts, sign, told
):
    table = human_correlation(rewards, elo)
    figure = human.forest(table, sign=sign)
    (dots,) = (line for line in figure.axes[0].lines if len(line.get_xdata()) == len(table))
    assert dots.get_xdata() == pytest.approx(sorted(table["spearman"], reverse=sign != -1))
    assert any(told in text.replace("\n", " ") for text in texts(figure))


def test_a_prompt_whose_frame_is_not_known_does_not_order_the_models(rewards, elo, texts):
    good = human_correlation(rewards, elo).assign(prompt="best")
    odd = human_correlation(rewards, elo).assign(prompt="odd", spearman=-3 * good["spearman"])
    figure = human.by_prompt(pd.concat([good, odd]), signs={"best": 1})
    order = good.sort_values("spearman", ascending=False)["model"]
    shown = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert shown == [name.removeprefix("lab/") for name in order]
    assert any("No mark" in text and "(−)" not in text for text in texts(figure))


def test_rank_gaps_say_which_reward_is_rank_1_and_call_nothing_best_or_sure_without_intervals(
    rewards, elo, texts
):
    table = rank_difference(rewards.iloc[:, :2], elo)
    for turned, word in ((True, "LOWEST"), (False, "highest")):
        figure = human.rank_gaps(table, ends=most_valued(table), turned=turned)
        said = " ".join(texts(figure)).replace("\n", " ")
        assert f"models' {word} reward" in said
        assert "best" not in said
        assert "surely" not in said


def test_thinning_a_crowd_keeps_every_place_that_can_be_seen():
    rng = np.random.default_rng(0)
    places = np.vstack([rng.normal(scale=0.01, size=(50_000, 2)), rng.uniform(-1, 1, size=(400, 2))])
    kept = scatter_figure.seen(places)
    assert len(kept) < 10_000
    spacing = np.ptp(places, axis=0) / scatter_figure.CELLS
    for place in places[::97]:
        assert (np.abs(places[kept] - place) <= spacing + 1e-9).all(axis=1).any()
    few = places[:9_999]
    assert len(scatter_figure.seen(few)) == 9_999
