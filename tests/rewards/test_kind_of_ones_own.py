"""A kind of reward that is added as docs/extend/reward_kind.md says: one file, one line."""

import re
import sys
from pathlib import Path

import pytest
import torch

import pessimal
from pessimal.errors import ConfigError
from pessimal.rewards.named import load_kinds, spec_of
from pessimal.rewards.spec import KINDS
from tiny_language_models import CHAT, checkpoint

PAGE = Path(__file__).parents[2] / "docs/extend/reward_kind.md"
PROMPT = "What, in one word, is the greatest thing ever?"


@pytest.fixture
def registered(tmp_path, monkeypatch):
    """Registers an example of the page, by its kind."""
    made = []

    def register_example(kind):
        [spec] = [
            one
            for one in re.findall(r"```python\n(from .*?)```", PAGE.read_text(), re.DOTALL)
            if f'kind: str = "{kind}"' in one
        ]
        (tmp_path / f"{kind}_kind.py").write_text(spec)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setitem(KINDS, kind, f"{kind}_kind:{kind.title()}Spec")
        load_kinds.cache_clear()
        made.append(f"{kind}_kind")
        return kind

    yield register_example
    load_kinds.cache_clear()
    for name in made:
        sys.modules.pop(name, None)


@pytest.fixture
def length(registered):
    return registered("length")


def test_it_is_loaded_with_its_own_options_and_refuses_others(length):
    assert spec_of(None, kind=length, wanted=7).name == "length-7"
    with pytest.raises(ConfigError, match=r"model\.wanted=-1"):
        spec_of(None, kind=length, wanted=-1)
    with pytest.raises(ConfigError, match=r"model\.shape is of model\.kind=callable"):
        spec_of(None, kind=length, shape="trl")


def count_letters(response):
    return len(response)


def test_it_scans_and_compares_and_stands_in_a_sum(length):
    texts = ["love", "freedom", "a"]
    four, nine = (
        pessimal.scan(
            pessimal.load(kind=length, wanted=wanted), PROMPT, candidates=texts, progress=False
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


@pytest.mark.parametrize("template", [CHAT, None])
def test_the_network_of_the_page_gives_minus_the_entropy_of_the_next_token(
    registered, tmp_path, template
):
    folder = checkpoint(tmp_path / "model", template=template)
    model = pessimal.load(folder, kind=registered("sureness"), temperature=2.0)
    rows = pessimal.scan(model, PROMPT, progress=False).rows
    words, causal = model.tokenizer, model.network().causal.double()
    if template is None:
        opened = f"<|bos|>{PROMPT}"
    else:
        opened = f"<|bos|><|start|>user<|sep|>{PROMPT}<|end|><|start|>assistant<|sep|>"
    before = words(opened, add_special_tokens=False)["input_ids"]
    for row in rows.sample(5, random_state=0).itertuples():
        with torch.no_grad():
            logits = causal(torch.tensor([[*before, row.candidate_id]])).logits[0, -1]
        p = (logits / 2).softmax(-1)
        assert row.reward == pytest.approx(float((p * p.log()).sum()), abs=1e-5)
    assert rows["reward"].nunique() > 100
    colder = pessimal.load(folder, kind="sureness", temperature=1.0)
    assert colder.digests != model.digests
