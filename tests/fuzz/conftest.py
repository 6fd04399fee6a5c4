"""Fuzz tests work in an empty folder and leave nothing in the checkout."""

import tempfile

import pytest
from hypothesis.configuration import set_hypothesis_home_dir

# It keeps tables of Unicode there, from before the first fixture on.
_HOME = tempfile.TemporaryDirectory(prefix="hypothesis-")
set_hypothesis_home_dir(_HOME.name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all cases of a module: a case overwrites what the one before it wrote."""
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def elsewhere(folder):
    """The working folder is an empty one, so that no relative path of a case means anything."""
    with pytest.MonkeyPatch.context() as patch:
        (folder / "empty").mkdir()
        patch.chdir(folder / "empty")
        yield folder / "empty"
