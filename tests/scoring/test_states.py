"""States of words: those of the base at the position that is read, whatever the path; and what a
score table keeps of them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

import pessimal
from pessimal.errors import TableError
from pessimal.scoring import states as reading
from pessimal.scoring.candidates import vocabulary_of
from pessimal.scoring.engine import SharedPrefix
from pessimal.scoring.loop import Shards
from pessimal.scoring.scan import make_scanner
from pessimal.scoring.scan_texts import ScanPlan
from pessimal.scoring.spec import TrainerSpec
from pessimal.tables import ScoreTable, read_score_table, write_score_table
from pessimal.tables.score_table import BASE, TRAINED

PROMPT = "What, in one word, is the greatest thing ever?"


def by_hand(folder: Path, table: ScoreTable, model, word: str) -> np.ndarray:
    """The last hidden state behind the spelling of a word that is kept, by transformers alone."""
    row = reading.words_of(vocabulary_of(model))[word]
    ids = model.frame(PROMPT).around([int(table.rows["candidate_id"].iloc[row])])
    with torch.no_grad():
        network = AutoModel.from_pretrained(folder)
        return network(torch.tensor([ids])).last_hidden_state[0, -1].numpy()


def test_states_are_those_of_the_trained_network_where_no_base_is_known(tiny_checkpoint):
    model = pessimal.load(str(tiny_checkpoint))
    table = pessimal.scan(model, PROMPT, progress=False)
    states = table.states
    width = states.width
    assert (states.of, states.spaces, states.rows.shape[1]) == (TRAINED, 2, 2 * width)
    assert table.measured["states"] == states.about
    for word in states.rows.index[:3]:
        expected = by_hand(tiny_checkpoint, table, model, word)
        kept = states.rows.loc[word].to_numpy(dtype=float)
        assert kept[:width] == pytest.approx(expected, abs=4e-3)
    rows = reading.words_of(vocabulary_of(model))[states.rows.index]
    embeddings = model.network().get_input_embeddings().weight.detach().numpy()[rows]
    given = states.rows.to_numpy(dtype=float)[:, width:]
    scaled = np.linalg.norm(states.rows.to_numpy(dtype=float)[:, :width].std(axis=0))
    centred = embeddings - embeddings.mean(axis=0)
    expected = centred * scaled / np.linalg.norm(embeddings.std(axis=0))
    assert given - given.mean(axis=0) == pytest.approx(expected, abs=4e-3)


def test_states_are_those_of_the_base_where_it_is_named(tiny_checkpoint, tmp_path):
    base = AutoModel.from_pretrained(tiny_checkpoint)
    for parameter in base.layers.parameters():
        parameter.data += 0.1 * torch.randn(
            parameter.shape, generator=torch.Generator().manual_seed(0)
        )
    base.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_checkpoint).save_pretrained(tmp_path)
    model = pessimal.load(str(tiny_checkpoint), base_path=str(tmp_path))
    table = pessimal.scan(model, PROMPT, progress=False)
    assert table.states.of == BASE
    word = table.states.rows.index[0]
    kept = table.states.rows.loc[word].to_numpy(dtype=float)[: table.states.width]
    assert kept == pytest.approx(by_hand(tmp_path, table, model, word), abs=4e-3)
    assert kept != pytest.approx(by_hand(tiny_checkpoint, table, model, word), abs=4e-2)


def test_an_interrupted_scan_reads_only_the_states_that_it_lacks(
    tiny_checkpoint, tmp_path, monkeypatch
):
    model = pessimal.load(str(tiny_checkpoint))
    candidates = vocabulary_of(model)
    monkeypatch.setattr(reading, "find_batch_size", lambda *args, **rest: 4)
    whole = pessimal.scan(model, PROMPT, progress=False)
    read, write, killed_at = [], Shards.write, 2

    def written(shards, batch, rows, values):
        if "states-" in shards.folder.name:
            if len(read) == killed_at:
                raise KeyboardInterrupt
            read.append(batch)
        write(shards, batch, rows, values)

    monkeypatch.setattr(Shards, "write", written)
    plan = ScanPlan(tmp_path, TrainerSpec(), root=tmp_path, progress=False)

    def scan() -> ScoreTable:
        scanner = make_scanner(model, [whole.provenance], candidates, plan)
        return scanner.scan(whole.provenance)

    with pytest.raises(KeyboardInterrupt):
        scan()
    killed_at = None
    states = scan().states
    assert read == [*range(len(read))]
    assert len(read) > 3
    pd.testing.assert_frame_equal(states.rows, whole.states.rows)


def test_a_table_is_read_with_its_states_and_says_where_these_are_damaged(
    tiny_checkpoint, tmp_path
):
    table = pessimal.scan(pessimal.load(str(tiny_checkpoint)), PROMPT, progress=False)
    file = write_score_table(table, tmp_path / "scores.parquet")
    read = read_score_table(tmp_path)
    pd.testing.assert_frame_equal(read.states.rows, table.states.rows)
    assert (read.states.of, read.states.model) == (table.states.of, table.states.model)
    beside = file.with_suffix(".states.safetensors")
    again = tmp_path / "again"
    again.mkdir()
    write_score_table(replace(table), again / "scores.parquet")
    assert (again / beside.name).read_bytes() == beside.read_bytes()
    beside.write_bytes(beside.read_bytes()[:40])
    with pytest.raises(TableError, match=r"states\.safetensors cannot be read"):
        read_score_table(tmp_path)


@pytest.mark.parametrize("dtype", ["bfloat16"])
def test_rounding_drops_no_engine_and_another_words_states_do(tiny_checkpoint, dtype, monkeypatch):
    model = pessimal.load(str(tiny_checkpoint), dtype=dtype)
    kept = []

    def scored(scorer, inputs, rows, keep=reading._keep_the_exact):
        keep(scorer, inputs, rows)
        kept.append(len(scorer.engines))

    monkeypatch.setattr(reading, "_keep_the_exact", scored)
    pessimal.scan(model, PROMPT, progress=False)
    assert kept == [3]

    def wrong(self, ids, *, shared, right=SharedPrefix.rewards):
        return right(self, ids.roll(1, dims=1) if ids.shape[1] > 1 else ids + 1, shared=shared)

    monkeypatch.setattr(SharedPrefix, "rewards", wrong)
    pessimal.scan(model, PROMPT, progress=False)
    assert kept == [3, 2]
