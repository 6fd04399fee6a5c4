"""What the tests stand on: tiny random reward models with real tokenizers, made here, and a fresh
workplace."""

import functools
import gc
import hashlib
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from quick_hydra import quicken

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_SILENT", "true")

SHARED = Path(__file__).resolve().parents[2] / "shared"

TRIMMING_TEMPLATE = "{{ bos_token }}{% for m in messages %}<|start|>{{ m['role'] }}<|sep|>{{ m['content'] | trim }}<|end|>{% endfor %}"


quicken()
metadata.packages_distributions = functools.cache(metadata.packages_distributions)
"""What is installed stays so while the tests run, and takes a second to read."""


def pytest_collection_finish():
    """What the libraries made while they were imported stays, so that no collection of garbage goes
    through it again: half a million objects, which took a sixth of all time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Published scores of ten reward models; they stand beside the checkout, never in it."""
    if not (SHARED / "data").is_dir():
        pytest.skip("the published scores are not beside this checkout (../shared/data)")
    return SHARED / "data"


@pytest.fixture(scope="session")
def loaded_by():
    """Which of some `unwanted` modules a fresh interpreter has loaded after importing `modules`."""

    def find(modules: list[str], unwanted: list[str]) -> str:
        lines = [f"import {name}" for name in modules]
        lines += ["import sys", f"print([name for name in {unwanted} if name in sys.modules])"]
        command = [sys.executable, "-c", "\n".join(lines)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    return find


@pytest.fixture(scope="session")
def demo_cache() -> Path:
    """A folder for $DEMO_FAMILY with trained siblings, kept between runs: by all that decides
    their weights, every file of `experiments.demo_family` and the loss. $PESSIMAL_TEST_CACHE says
    where; the user's cache otherwise."""
    from pessimal import training

    digest = hashlib.sha256((Path(training.__file__).parent / "bradley_terry.py").read_bytes())
    for file in sorted((Path(__file__).parents[1] / "experiments/demo_family").rglob("*")):
        if file.suffix in (".py", ".csv", ".yaml"):
            digest.update(file.name.encode() + file.read_bytes())
    home = os.environ.get("PESSIMAL_TEST_CACHE", "~/.cache/pessimal-tests")
    folder = Path(home).expanduser() / digest.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory) -> Path:
    """A random two-layer Llama reward model with grouped heads, over a byte-level BPE of about 450
    tokens, and a chat template that writes a BOS and trims, as Llama 3's does. Its pad token is its
    end token."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("tiny") / "tiny-llama"
    specials = ["<|bos|>", "<|start|>", "<|sep|>", "<|end|>", "<|reserved_special_token_0|>"]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    words = "love hate good evil peace war kind cruel wisdom truth What in one word is the greatest best worst thing ever"
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(
        [words, " " + words, words.title(), "null nan NA None <script> =1+1"] * 3, trainer
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|bos|>",
        eos_token="<|end|>",
        pad_token="<|end|>",
        additional_special_tokens=["<|start|>", "<|sep|>", "<|reserved_special_token_0|>"],
    )
    tokenizer.chat_template = TRIMMING_TEMPLATE
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_labels=1,
        initializer_range=0.3,
        max_position_embeddings=128,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    LlamaForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def undrawn(monkeypatch):
    """Artifacts without their figures, which take longest, where a test is of their numbers."""
    monkeypatch.setattr("pessimal.report.write.save_figures", lambda *_, **__: {})


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run a command line in this process, in an empty folder; gives (exit code, stdout, stderr).

    Hydra composes a line twice, the first time to learn whether an experiment says that it is a
    sweep; a line that names none is composed once here, which halves its time.
    """
    from hydra._internal.hydra import Hydra
    from hydra.core.global_hydra import GlobalHydra

    from pessimal.__main__ import main

    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        GlobalHydra.instance().clear()
        code = 0
        with monkeypatch.context() as patch:
            patch.setattr("sys.argv", ["pessimal", *arguments])
            if not any("experiment" in one or "hparams_search" in one for one in arguments):
                patch.setattr(Hydra, "get_mode", lambda *_, **__: None)
            try:
                main()
            except SystemExit as stop:
                code = int(stop.code or 0)
        out = capsys.readouterr()
        return code, out.out, out.err

    return run
