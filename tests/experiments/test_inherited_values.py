"""The follow-up's analyses take part in a comparison as anybody's do, with a dictionary of the
user's; what their tables' columns mean is written down."""

import re
import sys
from pathlib import Path

import pytest

import described_tables
import pessimal
from artifacts import write_artifact
from pessimal.errors import ConfigError, InputError
from pessimal.report.page import page

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "docs"))


MODULES = "experiments.inherited_values"


def entries(file: str | Path) -> list:
    """All analyses of the plugin, as they are typed."""
    dictionaries = {"kinds": str(file)}
    return [
        f"{MODULES}.wording:analyse",
        f"{MODULES}.variance_components:analyse",
        f"{MODULES}.language_steps:analyse",
        {"_target_": f"{MODULES}.dictionaries.rank_categories", "dictionaries": dictionaries},
        {
            "_target_": f"{MODULES}.checkpoint_categories.follow_categories",
            "dictionaries": dictionaries,
        },
    ]


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("words") / "kinds.csv"
    described_tables.dictionary().to_csv(file, index=False)
    return file


def test_a_plugin_with_options_is_taken_and_its_method_is_on_the_page(file, tmp_path):
    results = pessimal.compare(
        described_tables.items(), replicates=100, analyses=entries(file)[3:4]
    )
    mine = [result for result in results if "dictionary" in result.table]
    assert {"median_ranks", "dictionary_means"} <= {result.name for result in mine}
    html = page([write_artifact(tmp_path / "artifact", mine, labels={})], title="Page")
    assert "<h2>Which kinds of words come first?</h2>" in re.sub(r"\s+", " ", html)
    assert "Which-kinds-of-words" in html


@pytest.mark.parametrize(
    ("entry", "error", "part"),
    [
        ({"dictionaries": {"mine": "nowhere.csv"}}, InputError, "nowhere.csv"),
        ({"dictionary": "words.csv"}, ConfigError, "dictionary"),
        ({"_target_": f"{MODULES}.nowhere.at_all"}, ConfigError, "nowhere"),
        (
            {"_target_": f"{MODULES}.dictionaries.matches", "entries": [], "words": []},
            ConfigError,
            "dict",
        ),
    ],
)
def test_what_cannot_be_made_is_the_users_mistake(entry, error, part):
    entry = {"_target_": f"{MODULES}.dictionaries.rank_categories", **entry}
    with pytest.raises(error, match=part):
        pessimal.compare(described_tables.items(), analyses=[entry])


def test_the_option_that_went_says_what_to_type():
    with pytest.raises(ConfigError, match="rank_categories"):
        pessimal.compare(described_tables.items(), dictionaries={"mine": "words.csv"})
