"""The scan as a whole: exact, resumable to the byte, the same in every mode and precision where it
should be."""

import contextlib

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

import pessimal
from pessimal.api.store import Store
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.obtain import open_model
from pessimal.rewards.spec import Dtype, Mode
from pessimal.scoring.engine import own_rewards
from pessimal.scoring.identify import identify
from pessimal.scoring.loop import Loop
from pessimal.scoring.scan import NetworkScanner
from pessimal.scoring.scan_texts import ScanPlan
from pessimal.scoring.spec import TrainerSpec
from pessimal.tables import read_score_table, write_score_table
from pessimal.tracking.registry import Registry
from tolerance import close

PROMPT = "What, in one word, is the greatest thing ever?"


class Trainer(pl.Trainer):
    """A trainer of one process that has callbacks of the test's beside the scan's own."""

    def __init__(self, *more: pl.Callback):
        super().__init__(
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        self.more = more

    def predict(self, *arguments, **options):
        self.callbacks = [*self.callbacks, *self.more]
        return super().predict(*arguments, **options)


def scanned(model, words, work, *callbacks, mode=Mode.ids, certain=10, batch_size=64, again=False):
    provenance = identify(
        model, prompt="greatest", prompt_text=PROMPT, candidates=words, mode=mode, certain=certain
    )
    plan = ScanPlan(work, TrainerSpec(), root=work)
    scanner = NetworkScanner(model, [provenance], words, plan, states=False)
    scanner.loop = Loop(
        trainer=Trainer(*callbacks), batch_size=batch_size, progress=False, ignore_finished=again
    )
    return scanner.scan(provenance)


def test_every_reward_is_the_models_own(model, network, frame, words, tmp_path):
    table = scanned(model, words, tmp_path)
    wholes = torch.tensor([frame.around([i]) for i in words.rows["candidate_id"]])
    with torch.inference_mode():
        own = own_rewards(network, wholes).numpy()
    assert close(table.rows["reward"], own)
    assert table.provenance.attention == "shared-prefix"
    assert table.measured["trust"]["n"] == 16
    assert table.rows["certified"].mean() > 0.9


def test_text_mode_gives_surviving_tokens_their_own_reward_and_others_that_of_what_they_become(
    model, words, tmp_path
):
    ids = scanned(model, words, tmp_path).rows.set_index("text")
    text = scanned(model, words, tmp_path, mode=Mode.text).rows.set_index("text")
    survives = ids["survives"].to_numpy(dtype=bool)
    assert close(text["reward"].to_numpy()[survives], ids["reward"].to_numpy()[survives])
    assert close(text.loc[" love", "reward"], ids.loc["love", "reward"])
    assert abs(ids.loc[" love", "reward"] - ids.loc["love", "reward"]) > 1e-3
    assert not text.loc[" love", "certified"], "two candidates with one input are a tie"


class KilledError(Exception):
    pass


class Count(pl.Callback):
    """Numbers of the batches that were scored; kills the scan after so many."""

    def __init__(self, kill_after: int = -1):
        self.scored, self.kill_after = [], kill_after

    def on_predict_batch_end(self, trainer, module, outputs, batch, *_):
        self.scored.append(int(batch[0]))
        if len(self.scored) == self.kill_after:
            raise KilledError


def test_killed_scan_goes_on_where_it_stopped_to_the_same_bytes(model, words, tmp_path):
    whole = write_score_table(scanned(model, words, tmp_path / "a"), tmp_path / "whole.parquet")
    with pytest.raises(KilledError):
        scanned(model, words, tmp_path / "b", Count(3))
    count = Count()
    resumed = scanned(model, words, tmp_path / "b", count)
    assert count.scored == [3, 4, 5], "376 ids in batches of 64 are 6; three were done"
    assert (
        write_score_table(resumed, tmp_path / "resumed.parquet").read_bytes() == whole.read_bytes()
    )


def test_torn_shard_is_scored_again(model, words, tmp_path):
    first = scanned(model, words, tmp_path)
    shard = sorted(tmp_path.rglob("batch-0*"))[2]
    shard.write_bytes(shard.read_bytes()[:-20])
    count = Count()
    again = scanned(model, words, tmp_path, count)
    assert count.scored == [2]
    assert again.rows["reward"].tolist() == first.rows["reward"].tolist()


def test_low_precision_scan_names_the_true_extremes(tiny_checkpoint, model, words, tmp_path):
    truth = scanned(model, words, tmp_path).rows["reward"].to_numpy()
    low = open_model(HeadSpec(path=str(tiny_checkpoint), dtype=Dtype.bfloat16), tiny_checkpoint)
    table = scanned(low, words, tmp_path)
    rewards = table.rows["reward"].to_numpy()
    assert table.measured["largest_low_precision_error"] > 1e-3, (
        "bfloat16 must differ, or nothing is tested"
    )
    top, bottom = np.argsort(-truth)[:10], np.argsort(truth)[:10]
    assert set(np.argsort(-rewards)[:10]) == set(top)
    assert set(np.argsort(rewards)[:10]) == set(bottom)
    assert close(rewards[top], truth[top])
    assert table.rows["certified"].to_numpy()[[*top, *bottom]].all()


def test_provenance_follows_what_the_scores_depend_on(tiny_checkpoint, model, words):
    base = {
        "prompt": "greatest",
        "prompt_text": PROMPT,
        "candidates": words,
        "mode": Mode.ids,
        "certain": 100,
    }
    key = identify(model, **base).key()
    assert identify(model, **base).key() == key
    assert identify(model, **base | {"mode": Mode.text}).key() != key
    assert identify(model, **base | {"prompt_text": PROMPT + "?"}).key() != key
    assert identify(model, **base | {"certain": 5}).key() == key, (
        "a float32 scan scores nothing again"
    )
    low = open_model(HeadSpec(path=str(tiny_checkpoint), dtype=Dtype.bfloat16), tiny_checkpoint)
    few, many = (identify(low, **base | {"certain": certain}) for certain in (1, 150))
    assert few.key() != many.key()
    assert "bfloat16" in few.name


def test_certified_ranks_are_those_of_a_float64_forward(model, frame, words, tmp_path):
    rows = scanned(model, words, tmp_path).rows
    double = model.network().double()
    wholes = torch.tensor([frame.around([i]) for i in words.rows["candidate_id"]])
    double.config.pad_token_id = None
    with torch.inference_mode():
        truth = torch.cat([double(input_ids=w[None]).logits[0] for w in wholes]).numpy()
    certified = rows["certified"].to_numpy()
    assert certified.mean() > 0.9
    rank, claimed = truth.argsort().argsort(), rows["reward"].to_numpy().argsort().argsort()
    assert (rank[certified] == claimed[certified]).all()


def test_resumed_scan_keeps_its_batch_size_though_more_memory_is_free_now(
    model, words, tmp_path, monkeypatch
):
    count = Count()
    for found, more in ((128, [Count(2)]), (256, [count])):
        monkeypatch.setattr(
            "pessimal.scoring.loop.find_batch_size", lambda *_, size=found, **__: size
        )
        with pytest.raises(KilledError) if found == 128 else contextlib.nullcontext():
            scanned(model, words, tmp_path, *more, batch_size=None)
    assert count.scored == [2], "376 ids in batches of 128 are 3; two were done"


def test_the_noise_of_a_difference_is_the_sum_of_both(tiny_checkpoint, tmp_path):
    terms = [pessimal.load(str(tiny_checkpoint), name=name) for name in ("one", "two")]
    registry = Registry(tmp_path)
    options = {"store": Store(registry), "progress": False, "candidates": ["love", "hate", "war"]}
    table = pessimal.scan(terms, weights=[3, -2], name="both", **options)
    keys = [term["key"] for term in table.measured["terms"]]
    folders = (registry.find("score-table", key)[0] for key in keys)
    one, two = (read_score_table(folder).measured["noise"] for folder in folders)
    assert min(one, two) > 0
    assert table.measured["noise"] == pytest.approx(3 * one + 2 * two)


def test_a_sum_publishes_the_tables_of_its_terms_too(tmp_path):
    def long(completions, **columns):
        return [float(len(text)) for text in completions]

    def late(completions, **columns):
        return [float(ord(text[0])) for text in completions]

    registry = Registry(tmp_path)
    options = {"candidates": ["a", "bb", "zz"], "store": Store(registry), "progress": False}
    table = pessimal.scan([long, late], weights=[1, -2], name="both", **options)
    published = {one.summary["model"]: folder for folder, one in registry.latest("score-table")}
    assert sorted(published) == ["both", "late", "long"]
    assert read_score_table(published["late"]).rewards.tolist() == [97, 98, 122]
    for term in table.measured["terms"]:
        assert registry.find("score-table", term["key"])[0] == published[term["model"]]
