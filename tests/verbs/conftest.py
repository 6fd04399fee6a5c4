"""What several tests of tasks stand on."""

import pytest
from lettered_checkpoint import make_checkpoint


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """A random model over 2,000 tokens; whoever changes it takes a copy."""
    return make_checkpoint(tmp_path_factory.mktemp("lettered") / "lettered", tokens=2000)
