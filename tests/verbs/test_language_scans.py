"""Language models from the command line to tables: scanned, found again, refused with advice, put
beside rewards."""

import numpy as np
import pandas as pd
import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from pessimal.tables import read_score_table
from tiny_language_models import CHAT, checkpoint


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return checkpoint(tmp_path_factory.mktemp("language") / "tiny-base")


def scan(command, folder, *more):
    asked = ["model=auto", f"model.path={folder}", "model.kind=log_probability", "progress=false"]
    return command("scan", *asked, "tracking=off", *more)


def published(root):
    return sorted(p.name for p in (root / "runs/registry/score-table").iterdir())


def test_scan_publishes_log_probabilities_beside_rewards_of_the_same_name(
    command, base, tiny_checkpoint, tmp_path
):
    code, _, err = scan(command, base, "model.name=same")
    assert code == 0, err
    code, _, err = command(
        "scan",
        "model=auto",
        f"model.path={tiny_checkpoint}",
        "model.name=same",
        "progress=false",
        "tracking=off",
        "prompts=greatest",
    )
    assert code == 0, err
    assert published(tmp_path) == sorted(
        [
            "same--greatest",
            *(f"same--{prompt}--log_probability" for prompt in ("greatest", "best", "worst")),
        ]
    )
    folder = tmp_path / "runs/registry/score-table"
    table = read_score_table(folder / "same--best--log_probability/v0")
    assert table.provenance.score == "log_probability"
    assert np.exp(table.rows["reward"]).sum() == pytest.approx(table.measured["total_probability"])
    assert 0.9 < table.measured["total_probability"] < 1
    assert read_score_table(folder / "same--greatest/v0").provenance.score == "reward"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["mode=text"], "mode=ids"),
        (["trainer=sharded"], "trainer=ddp"),
        (["model.chat=true"], "no chat template"),
    ],
)
def test_what_does_not_fit_is_reported_before_anything_is_loaded(
    command, base, more, message, monkeypatch
):
    monkeypatch.setattr(
        "pessimal.rewards.language.load_language_network",
        lambda *_, **__: pytest.fail("loaded"),
    )
    code, _, err = scan(command, base, *more)
    assert code == 2
    assert message in err


def cropped(folder, rows):
    """The model in a folder with fewer rows in its embeddings than its tokenizer has tokens."""
    network = AutoModelForCausalLM.from_pretrained(folder)
    network.resize_token_embeddings(rows)
    network.save_pretrained(folder)
    return folder


def test_tokenizer_beyond_the_embedding_is_reported_before_the_network_is_loaded(
    command, tmp_path, monkeypatch
):
    folder = cropped(checkpoint(tmp_path / "short"), 270)
    (tmp_path / "few.txt").write_text("!\n")
    monkeypatch.setattr(
        "pessimal.rewards.language.load_language_network",
        lambda *_, **__: pytest.fail("loaded"),
    )
    items = ["candidates=items", "candidates.path=few.txt", "mode=text"]
    for more in ([], items):
        code, _, err = scan(command, folder, "prompts=greatest", *more)
        assert code == 2
        assert "do not belong together" in err
        assert "the prompt 'What, in one word" in err
    (tmp_path / "few.txt").write_text("!\nlove\n")
    code, _, err = scan(command, folder, "prompts=[]", "+prompts.bang='!!!'", *items)
    assert code == 2
    assert "the item 'love' holds the token" in err


def test_tokens_without_a_row_are_counted(command, tmp_path):
    folder = checkpoint(tmp_path / "short")
    size = len(AutoTokenizer.from_pretrained(folder))
    code, _, err = scan(command, cropped(folder, size - 3), "prompts=[]", "+prompts.bang='!!!'")
    assert code == 0, err
    assert "3 tokens of the tokenizer of short have no row in its embedding" in err
    table = read_score_table(tmp_path / "runs/registry/score-table/short--bang--log_probability/v0")
    assert len(table.rows) == size - 3


def test_item_without_tokens_is_reported_before_the_network_is_loaded(
    command, tmp_path, monkeypatch
):
    folder = checkpoint(tmp_path / "chatting", template=CHAT)
    pd.DataFrame({"name": ["love", ""]}).to_csv(tmp_path / "items.csv", index=False)
    monkeypatch.setattr(
        "pessimal.rewards.language.load_language_network",
        lambda *_, **__: pytest.fail("loaded"),
    )
    code, _, err = scan(
        command, folder, "candidates=items", "candidates.path=items.csv", "mode=text"
    )
    assert code == 2
    assert "no token of the item ''" in err


def test_wrong_kind_of_model_is_reported_what_to_type(command, base, tiny_checkpoint):
    code, _, err = scan(command, tiny_checkpoint)
    assert code == 2
    assert "reward head" in err
    code, _, err = command("scan", "model=auto", f"model.path={base}", "tracking=off")
    assert code == 2
    assert "model.kind=log_probability" in err
