"""A kind of reward that is added as docs/extend/reward_kind.md says: one file, one line."""

import re
import sys
from pathlib import Path

import pytest

import pessimal
from pessimal.config.compose import register
from pessimal.errors import ConfigError
from pessimal.rewards.named import load_kinds, spec_of
from pessimal.rewards.spec import KINDS

PAGE = Path(__file__).parents[2] / "docs/extend/reward_kind.md"
PROMPT = "What, in one word, is the greatest thing ever?"


@pytest.fixture
def length(tmp_path, monkeypatch):
    """The example of the page, registered."""
    [example] = re.findall(r"```python\n(from collections.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "length_kind.py").write_text(example)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(KINDS, "length", "length_kind:LengthSpec")
    load_kinds.cache_clear()
    yield "length"
    load_kinds.cache_clear()
    sys.modules.pop("length_kind", None)


def test_it_is_loaded_with_its_own_options_and_refuses_others(length):
    assert spec_of(None, kind=length, wanted=7).name == "length-7"
    with pytest.raises(ConfigError, match=r"model\.wanted=-1"):
        spec_of(None, kind=length, wanted=-1)
    with pytest.raises(ConfigError, match=r"model\.shape is of model\.kind=callable"):
        spec_of(None, kind=length, shape="trl")


def count_letters(response):
    return len(response)


def test_it_is_typed_like_any_other(length, command):
    """On the command line, with what it takes."""
    register.cache_clear()
    code, _, err = command("scan", "model=length", "model.wanted=-3")
    assert code == 2
    assert "model.wanted=-3" in err


def test_it_scans_and_compares_and_stands_in_a_sum(length):
    texts = ["love", "freedom", "a"]
    four, nine = (
        pessimal.scan(
            pessimal.load(kind=length, wanted=wanted),
            PROMPT,
            candidates=texts,
            progress=False,
        )
        for wanted in (4, 9)
    )
    rewards = dict(zip(four.rows["text"], four.rows["reward"], strict=True))
    assert rewards == {"love": 0, "freedom": -3, "a": -3}
    assert four.provenance.weights_digest != nine.provenance.weights_digest
    results = pessimal.compare([four, nine])
    assert results
    both = pessimal.reward([pessimal.load(kind=length, wanted=4), count_letters])
    total = pessimal.scan(both, PROMPT, candidates=texts, progress=False).rows
    assert dict(zip(total["text"], total["reward"], strict=True)) == {
        "love": 4,
        "freedom": 4,
        "a": -2,
    }
