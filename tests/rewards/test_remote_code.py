"""Code that comes with a model: run where it is allowed, and only there; what it expects of older
versions of transformers is supplied."""

import shutil

import pytest
import torch
from published.checkpoints import opened

from pessimal.errors import ModelError
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.obtain import open_model
from pessimal.rewards.spec import Dtype
from pessimal.scoring.scorer import FrameScorer

PROMPT = "What, in one word, is the greatest thing ever?"
CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", ["armorm", "grm"])
def test_code_that_comes_with_a_model_is_not_run_unless_asked_for(published, tmp_path, kind):
    folder = shutil.copytree(published(kind).folder, tmp_path / "copy")
    for file in folder.glob("*.py"):
        file.write_text("raise RuntimeError('this was run')")
    assert open_model(HeadSpec(path=str(folder)), folder).network() is not None
    with pytest.raises(ModelError, match="this was run"):
        open_model(HeadSpec(path=str(folder), trust_remote_code=True), folder).network()


@torch.no_grad()
def test_code_that_gives_no_number_for_an_input_is_refused(published, tmp_path):
    folder = shutil.copytree(published("internlm2").folder, tmp_path / "copy")
    code = folder / "modeling_internlm2.py"
    code.write_text(
        code.read_text().replace(
            "logits=torch.gather", "hidden_states=values, logits=0 * states + torch.gather"
        )
    )
    model = open_model(HeadSpec(path=str(folder), trust_remote_code=True), folder)
    scorer = FrameScorer(model.network(), model.frame(PROMPT), device=CPU)
    with pytest.raises(ModelError, match=r"shape \(1, \d+, 32\)"):
        scorer.own_forward.rewards(torch.tensor([[5, 6]]), shared=3)


@pytest.mark.filterwarnings("ignore:In CPU autocast")
@torch.no_grad()
def test_own_forward_that_cannot_run_in_low_precision_says_what_to_type(published):
    # A CPU's autocast gives no float32, which QRM's code asks for.
    model = opened(published("qrm_llama"), "own code", Dtype.bfloat16)
    scorer = FrameScorer(model.network(), model.frame(PROMPT), device=CPU)
    with pytest.raises(ModelError, match=r"model\.dtype=float32"):
        scorer.own_forward.rewards(torch.tensor([[5, 6]]), shared=len(scorer.frame.prefix))


@pytest.mark.parametrize("dtype", [Dtype.float32, Dtype.bfloat16])
def test_tensors_that_no_checkpoint_holds_are_what_the_class_computes(published, dtype):
    made = published("internlm2").network.model.layers
    loaded = opened(published("internlm2"), "own code", dtype).network().model.layers
    for ours, theirs in zip(loaded, made, strict=True):
        frequencies = ours.attention.rotary_emb.inv_freq
        assert torch.equal(frequencies, theirs.attention.rotary_emb.inv_freq.to(frequencies.dtype))
        factor = ours.attention.norm_factor
        assert factor.dtype is getattr(torch, dtype.value), (
            "made in the network's precision, as ever"
        )
        assert torch.equal(factor, theirs.attention.norm_factor.to(factor.dtype))
    assert torch.get_default_dtype() is torch.float32, "left as it was"
    assert torch.nn.Linear(2, 2).weight.device == CPU, "left as it was"
