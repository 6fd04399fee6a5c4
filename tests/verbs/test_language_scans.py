"""Language models from the command line to tables: scanned, found again, refused with advice, put
beside rewards."""

import numpy as np
import pytest
from transformers import AutoModelForCausalLM

from pessimal.tables import read_score_table
from tiny_language_models import checkpoint


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


@pytest.mark.parametrize(("more", "message"), [(["mode=text"], "mode=ids")])
def test_what_does_not_fit_is_reported_before_anything_is_loaded(
    command, base, more, message, monkeypatch
):
    monkeypatch.setattr(
        "pessimal.rewards.language.load_language_network", lambda *_, **__: pytest.fail("loaded")
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
        "pessimal.rewards.language.load_language_network", lambda *_, **__: pytest.fail("loaded")
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
