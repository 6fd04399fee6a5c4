"""A head that is added as docs/extend/head.md says."""

import re
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel

import pessimal
from pessimal import extensions
from pessimal.rewards.heads import heads

PAGE = Path(__file__).parents[2] / "docs/extend/head.md"


@pytest.fixture
def my_head(tmp_path, monkeypatch):
    """The example of the page, offered by a package."""
    [example] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "my_head_of_the_page.py").write_text(example)
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("mine", "my_head_of_the_page:MyHead", "pessimal.heads")
    monkeypatch.setattr(
        extensions, "entry_points", lambda group: [point] if group == "pessimal.heads" else []
    )
    heads.cache_clear()
    yield
    heads.cache_clear()


@pytest.mark.usefixtures("my_head")
def test_the_head_of_the_page_is_the_linear_layer_at_the_last_token(tiny_checkpoint, tmp_path):
    weights = load_file(tiny_checkpoint / "model.safetensors")
    weight = weights.pop("score.weight")
    folder = tmp_path / "model"
    folder.mkdir()
    for file in tiny_checkpoint.glob("*[!s]"):
        if file.suffix != ".safetensors":
            (folder / file.name).write_bytes(file.read_bytes())
    weights["my_head.weight"] = weight
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    scans = [pessimal.scan(one, "Who?", progress=False).rows for one in (tiny_checkpoint, folder)]
    assert scans[1]["reward"].tolist() == pytest.approx(scans[0]["reward"].tolist(), abs=1e-5)

    model = pessimal.load(folder)
    frame = model.frame("Who?")
    backbone = AutoModel.from_config(AutoConfig.from_pretrained(folder)).eval()
    backbone.load_state_dict(
        {k.removeprefix("model."): v for k, v in weights.items() if k.startswith("model.")}
    )
    with torch.no_grad():
        state = backbone(torch.tensor([frame.around([77])])).last_hidden_state[0, -1]
    row = scans[1].set_index("candidate_id").loc[77]
    assert row["reward"] == pytest.approx(float(weight[0] @ state), abs=1e-5)
