"""The verbs as functions on objects in memory."""

import contextlib
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import pessimal
import pessimal.api.scan as scanning
from pessimal.errors import ConfigError, InputError, ModelError, TableError
from pessimal.tables.result import Results
from tiny_language_models import CHAT, checkpoint
from tolerance import close


@pytest.fixture(scope="module")
def loaded(tiny_checkpoint):
    return pessimal.load(str(tiny_checkpoint))


@pytest.fixture(scope="module")
def parts(tiny_checkpoint):
    network = AutoModelForSequenceClassification.from_pretrained(tiny_checkpoint, num_labels=1)
    return network, AutoTokenizer.from_pretrained(tiny_checkpoint)


@pytest.fixture(scope="module")
def table(loaded):
    return pessimal.scan(loaded, "greatest", progress=False)


def test_nothing_heavy_is_imported_with_the_package():
    code = "import sys, pessimal; dir(pessimal); print(sorted({'torch', 'pandas', 'hydra'} & set(sys.modules)))"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out.strip() == "[]"


def test_scan_of_a_loaded_and_of_a_wrapped_model_agree_with_the_models_own_forward(parts, table):
    network, tokenizer = parts
    wrapped = pessimal.scan(pessimal.reward(network, tokenizer), "greatest", progress=False)
    np.testing.assert_array_equal(wrapped.rows["reward"], table.rows["reward"])
    assert table.provenance.prompt_text == "What, in one word, is the greatest thing ever?"
    word = table.rows[table.rows["text"] == " love"].iloc[0]
    chat = [{"role": "user", "content": table.provenance.prompt_text}]
    ids = tokenizer.apply_chat_template(
        [*chat, {"role": "assistant", "content": "X"}], tokenize=True
    )["input_ids"]
    at = ids.index(tokenizer.convert_tokens_to_ids("X"))
    ids[at] = int(word["candidate_id"])
    own = network(torch.tensor([ids])).logits.item() if tokenizer.pad_token_id != ids[-1] else None
    if own is None:  # its class takes the end token for padding; the last position is the reward
        hidden = network.model(torch.tensor([ids])).last_hidden_state[0, -1]
        own = network.score(hidden).item()
    assert close(word["reward"], own)


def test_prefixes_are_asked_with_their_controls(loaded, tmp_path):
    file = tmp_path / "personas.yaml"
    file.write_text("doctor: You are a doctor.\n")
    options = {"candidates": ["love", "war"], "progress": False}
    asked = {"mine": "Name a thing."}
    tables = pessimal.scan(loaded, asked, prefixes=file, **options)
    assert [table.provenance.prompt for table in tables] == [
        "mine",
        "mine_as_doctor",
        "mine_as_doctor_control",
    ]
    assert tables[1].provenance.prompt_text == "You are a doctor. Name a thing."
    again = pessimal.scan(loaded, asked, prefixes={"doctor": "You are a doctor."}, **options)
    for one, other in zip(tables, again, strict=True):
        assert one.rows["reward"].tolist() == other.rows["reward"].tolist()
    assert tables[1].rows["reward"].tolist() != tables[2].rows["reward"].tolist()


def test_texts_are_scored_instead_of_the_vocabulary(loaded):
    table = pessimal.scan(loaded, "greatest", candidates=["love", "good evil"], progress=False)
    assert table.rows["text"].tolist() == ["love", "good evil"]
    with pytest.raises(InputError, match="more than once"):
        pessimal.scan(loaded, "greatest", candidates=["love", "love"], progress=False)
    with pytest.raises(ConfigError, match="mode='text'"):
        pessimal.scan(loaded, "greatest", candidates=["love"], mode="ids", progress=False)


def test_comparison_has_the_results_of_the_command(parts, table, tmp_path):
    network, tokenizer = parts
    other = pessimal.scan(
        pessimal.reward(network, tokenizer, name="other"), "greatest", progress=False
    )
    results = pessimal.compare([table, other], replicates=100, permutations=100)
    assert isinstance(results, Results)
    row = results["agreement"].table.iloc[0]
    assert row["kendall"] == pytest.approx(1)  # the same weights under two names
    assert results.skipped["people"]
    with pytest.raises(KeyError, match="skipped"):
        results["people"]
    folder = pessimal.save(results, tmp_path / "out")
    assert {"tables", "figures", "results.json"} <= {path.name for path in folder.iterdir()}
    assert (folder / "tables" / "agreement.parquet").is_file()
    assert (folder / "figures" / "agreement.svg").is_file()
    with pytest.raises(InputError, match="not empty"):
        pessimal.save(results, folder)


def test_wrapped_network_is_taken_as_it_is_now(parts):
    network, tokenizer = parts
    before = pessimal.reward(network, tokenizer)
    with torch.no_grad():
        network.score.weight.mul_(2)
    after = pessimal.reward(network, tokenizer)
    with torch.no_grad():
        network.score.weight.div_(2)
    assert before.weights_digest != after.weights_digest
    assert before.config_digest == after.config_digest


def test_what_cannot_be_wrapped_is_refused(parts):
    network, tokenizer = parts
    with pytest.raises(ModelError, match="transformers model"):
        pessimal.reward(torch.nn.Linear(2, 1), tokenizer)
    bare = AutoTokenizer.from_pretrained(tokenizer.name_or_path)
    bare.chat_template = None
    with pytest.raises(ModelError, match="chat template"):
        pessimal.reward(network, bare)
    with pytest.raises(ModelError, match="float64"):
        pessimal.reward(
            torch.nn.Module.double(AutoModelForSequenceClassification.from_config(network.config)),
            tokenizer,
        )


def test_tables_and_sums_hold_how_far_their_heads_can_go(loaded, table):
    bounds = pessimal.ceiling(loaded)
    stored = table.measured["ceiling"]
    assert stored["low"] == pytest.approx(bounds.low)
    assert stored["high"] == pytest.approx(bounds.high)
    assert bounds.beyond(table.rows["reward"]) == 0
    twice = pessimal.reward([loaded, replace(loaded, spec=replace(loaded.spec, name="b"))])
    both = pessimal.scan(twice, "greatest", candidates=["peace", "war"], progress=False)
    assert both.measured["ceiling"]["high"] == pytest.approx(2 * bounds.high)
    function = pessimal.reward(lambda prompt, responses: [1.0] * len(responses), name="one")
    assert not pessimal.ceiling(pessimal.reward([loaded, function])).is_bounded
    assert "ceiling" not in pessimal.scan(function, candidates=["a"], progress=False).measured


def test_a_function_and_a_judge_are_rewards_like_any_other(tmp_path, parts):
    def vowels(prompt, responses):
        return [sum(letter in "aeiou" for letter in text) for text in responses]

    made = pessimal.reward(vowels, name="vowels")
    table = pessimal.scan(made, "What?", candidates=["peace", "shh"], progress=False)
    assert table.rows["reward"].tolist() == [3.0, 0.0]
    assert table.provenance.kind == "callable"
    whole = pessimal.scan(pessimal.reward(vowels, parts[1]), "What?", progress=False)
    assert len(whole.rows) == len(parts[1])
    changed = pessimal.explain(made, "What?", "A long and gentle answer of many words.", "No.")
    assert len(changed[0].table)
    with pytest.raises(ConfigError, match="search needs any token ids"):
        pessimal.search(made)
    folder = checkpoint(tmp_path / "judge", template=CHAT)
    asked = {"template": "{prompt}\n{response}\nGood?", "positive": ["love"], "negative": ["cruel"]}
    judge = pessimal.load(str(folder), kind="judge", judge=asked)
    assert (
        pessimal.scan(judge, "What?", candidates=["peace"], progress=False).provenance.kind
        == "judge"
    )
    assert pessimal.check(judge, "What?", sample=8)[0].table["passed"].all()
    with pytest.raises(ConfigError, match="no option 'jugde'"):
        pessimal.load(str(folder), jugde={})


def test_what_optimising_a_reward_does_to_a_policy_is_forecast(tmp_path, table):
    """A function of texts beside a policy of another vocabulary: it wants length, and gets it."""
    policy = checkpoint(tmp_path / "policy", template=CHAT)
    found = pessimal.forecast(
        pessimal.reward(lambda prompt, responses: [len(text) for text in responses], name="long"),
        str(policy),
        mitigations=["without:characters"],
        lexicons={},
        identity={},
        progress=False,
    )
    moves = found["forecast_drift"].table.query("kl == 1").set_index("feature")["change"]
    assert moves.idxmax() == "characters"
    assert found["forecast"].table["mass"].iloc[0] > 0.9
    with pytest.raises(TableError, match="no log-probabilities"):
        pessimal.forecast(table, table)


def test_a_network_in_memory_is_moved_to_the_device_and_stays_there(parts, monkeypatch):
    """Without a card: where its weights are told to be, and that nothing moves them away after."""
    network, tokenizer = parts
    weight = next(network.parameters())
    moves, to, cpu = [], torch.nn.Module.to, torch.nn.Module.cpu

    def record(module, *move):
        if any(one is weight for one in module.parameters()):
            moves.append(move)

    def moved(module, *given, **named):
        record(module, "to", *given)
        return to(module, *given, **named)

    monkeypatch.setattr(torch.nn.Module, "to", moved)
    monkeypatch.setattr(torch.nn.Module, "cpu", lambda m: record(m, "cpu") or cpu(m))
    model, here = pessimal.reward(network, tokenizer), torch.device("cpu")
    pessimal.scan(model, "greatest", most=50, states=False, progress=False)
    assert ("cpu",) in moves, "by Lightning's teardown"
    assert moves[-1] == ("to", here)
    moves.clear()
    pessimal.search(model, "greatest", length=2, evaluations=200, baselines=0)
    assert ("to", here) in moves


def test_what_another_command_published_meanwhile_is_not_scanned_again(
    loaded, tmp_path, monkeypatch
):
    """It is published between the look at the store and the lock."""
    one, other = tmp_path / "one", tmp_path / "other"
    words = {"candidates": ["love", "war", "peace"], "cache": str(tmp_path / "cache")}
    first = pessimal.scan(loaded, "greatest", store=one, **words)

    @contextlib.contextmanager
    def lock(*_):
        shutil.copytree(one, other, dirs_exist_ok=True)
        yield

    monkeypatch.setattr(scanning, "locked", lock)
    monkeypatch.setattr(scanning, "make_scanner", lambda *_, **__: pytest.fail("scanned again"))
    again = pessimal.scan(loaded, "greatest", store=other, **words)
    assert again.rows["reward"].equals(first.rows["reward"])
