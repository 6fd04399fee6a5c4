"""Files: the same bytes each time, text as text, well-formed whatever the tokens."""

import warnings
from xml.etree import ElementTree

import matplotlib
import matplotlib.image
import pytest
from matplotlib.figure import Figure

from pessimal.figures import save as saving
from pessimal.figures.save import save, save_all
from pessimal.figures.scatter import scatter
from pessimal.figures.style import STYLE, colours
from pessimal.figures.violin import violin
from pessimal.figures.words import literal


def hostile_scatter(rewards) -> Figure:
    return scatter(rewards.iloc[:, 0], rewards.iloc[:, 1], x_name="best", y_name="$worst$", extreme=12)


@pytest.mark.parametrize("draw", [violin, hostile_scatter])
def test_the_same_table_gives_the_same_bytes(rewards, tmp_path, draw):
    first = save(draw(rewards), tmp_path / "one", "figure")
    again = save(draw(rewards), tmp_path / "two", "figure")
    assert [path.name for path in first] == ["figure.svg", "figure.png"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]


def test_saving_a_figure_twice_gives_the_same_bytes(rewards, tmp_path):
    figure = hostile_scatter(rewards)
    first = [path.read_bytes() for path in save(figure, tmp_path, "figure")]
    assert [path.read_bytes() for path in save(figure, tmp_path, "figure")] == first


def test_many_figures_by_several_processes_are_the_same_bytes(rewards, tmp_path, monkeypatch):
    monkeypatch.setattr(saving.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(saving, "FEW", 1)
    figures = {"violin": violin(rewards), "scatter": hostile_scatter(rewards)}
    (tmp_path / "many").mkdir()
    save_all(figures, tmp_path / "many")
    for name, figure in {"violin": violin(rewards), "scatter": hostile_scatter(rewards)}.items():
        for file in save(figure, tmp_path / "one", name):
            assert (tmp_path / "many" / file.name).read_bytes() == file.read_bytes()


def test_a_failure_of_the_disk_in_another_process_is_the_callers(rewards, tmp_path, monkeypatch):
    monkeypatch.setattr(saving.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(saving, "FEW", 0)
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OSError, match="file"):
        save_all({"violin": violin(rewards)}, tmp_path / "file")


def test_other_data_gives_other_bytes(rewards, tmp_path):
    first = save(violin(rewards), tmp_path / "one", "figure")
    other = save(violin(rewards**3), tmp_path / "two", "figure")
    assert all(a.read_bytes() != b.read_bytes() for a, b in zip(first, other, strict=True))


def test_hostile_tokens_survive_as_text_of_a_well_formed_svg(rewards, hostile, tmp_path):
    only = rewards[: len(hostile)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no missing-glyph warnings, no mathtext
        svg, _ = save(hostile_scatter(only), tmp_path, "figure")
    shown = [element.text for element in ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert {literal(token) for token in hostile} <= set(shown)
    assert "reward, $worst$" in shown


def test_the_paper_is_white_on_a_dark_page_too(rewards, tmp_path):
    _, png = save(violin(rewards), tmp_path, "figure")
    corner = matplotlib.image.imread(png)[0, 0]
    assert corner.tolist() == [1, 1, 1, 1]


def test_drawing_leaves_matplotlib_as_it_was(rewards, tmp_path):
    before = {name: value for name, value in matplotlib.rcParams.items() if name != "backend"}
    save(violin(rewards), tmp_path, "figure")
    assert before.items() <= dict(matplotlib.rcParams).items()
    assert matplotlib.rcParams["svg.fonttype"] != STYLE["svg.fonttype"]


def test_more_categories_than_colours_stay_distinct():
    assert len(set(colours(map(str, range(20))).values())) == 20
