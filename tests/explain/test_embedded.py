"""The comparisons that stand in the package: fit for all fifteen attributes, and not telling the preferred by its form."""

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pessimal.explain.sources import EMBEDDED, Loaded, embedded, usable

ATTRIBUTES = {path.stem for path in (Path(__file__).parents[2] / "conf" / "contrast").glob("*.yaml")} - {
    "default"
}


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return [json.loads(line) for line in EMBEDDED.read_text(encoding="utf-8").splitlines()]


def _by_preference(rows: list[dict]) -> list[tuple[str, str]]:
    """(preferred, other) responses."""
    return [(row["responses"][row["preferred"]], row["responses"][1 - row["preferred"]]) for row in rows]


def test_there_are_sixty_and_all_can_be_explained():
    comparisons = embedded()
    assert len(comparisons) == 60
    assert usable(comparisons) == Loaded(tuple(comparisons))
    assert len({comparison.key for comparison in comparisons}) == 60
    assert len({comparison.prompt for comparison in comparisons}) == 60
    assert len({text for comparison in comparisons for text in comparison.responses}) == 120


def test_they_are_short_and_plain(rows):
    for row in rows:
        assert len(row["prompt"].split()) <= 30
        for text in row["responses"]:
            assert text == text.strip()
            assert 1 <= len(re.findall(r"[.!?]+['’]?(?=\s|$)", text)) <= 4, text


def test_every_attribute_tells_some_of_them_apart(rows):
    named = Counter(attribute for row in rows for attribute in row["attributes"])
    assert set(named) == ATTRIBUTES
    assert min(named.values()) >= 4
    assert all(len(set(row["attributes"])) == len(row["attributes"]) >= 1 for row in rows)


def test_neither_place_nor_length_tells_which_is_preferred(rows):
    assert 26 <= sum(row["preferred"] for row in rows) <= 34
    lengths = np.array([[len(text) for text in pair] for pair in _by_preference(rows)])
    longer = int((lengths[:, 0] > lengths[:, 1]).sum())
    assert 26 <= longer <= 34
    assert abs(np.log(lengths[:, 0] / lengths[:, 1]).mean()) < 0.15
    # Nor does the longer one stand at one place.
    first_longer = sum(len(row["responses"][0]) > len(row["responses"][1]) for row in rows)
    assert 24 <= first_longer <= 36
    # And lengths vary, so that a bias for them has something to show.
    assert lengths.max() > 8 * lengths.min()


@pytest.mark.parametrize(
    ("what", "least"),
    [
        (r"\b(?:may|might|perhaps|maybe|possibly|probably)\b", 3),
        (r"\d", 5),
        (r"\b(?:because|so|then|therefore|however|since|but)\b", 10),
        (r"!", 5),
        (r"\?", 2),
        (r"\b(?:sorry|afraid)\b", 2),
        (r"\b(?:can't|cannot|not able|won't|don't know)\b", 2),
        (r"\b(?:for example|for instance|such as)\b", 1),
    ],
)
def test_rules_find_something_to_change_on_both_sides(rows, what, least):
    pairs = _by_preference(rows)
    for side in (0, 1):
        assert sum(bool(re.search(what, pair[side], re.IGNORECASE)) for pair in pairs) >= least
