"""Every pair of a tiny model, against full forwards; killed and resumed to the bit."""

import contextlib
import copy
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from pessimal.errors import ConfigError, ModelError
from pessimal.models.load import open_model
from pessimal.models.own_forward import own_rewards
from pessimal.models.spec import Dtype, ModelSpec
from pessimal.search.exhaustive import Above, exhaustive_pairs
from pessimal.search.exhaustive_loop import check_folder_is_shared

PROMPT = "What, in one word, is the greatest thing ever?"
ALLOWED = np.arange(10, 330, 8)  # 40 ids
FIRSTS_PER_BLOCK, BLOCKS = 3, 14
FRAMES = ("top", "bottom", "per_first", "per_second", "histogram")


class Trainer(pl.Trainer):
    """A trainer that has callbacks of the test's beside the search's own."""

    def __init__(self, *more: pl.Callback, **options):
        super().__init__(
            accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, use_distributed_sampler=False, **{"devices": 1, **options},
        )  # fmt: skip
        self.more = more

    def predict(self, *arguments, **options):
        self.callbacks = [*self.callbacks, *self.more]
        return super().predict(*arguments, **options)


def search(opened, folder, *callbacks, prompt=PROMPT, network=None, trainer=None, **options):
    defaults = {"allowed": ALLOWED, "keep": 25, "batch_size": 32, "firsts_per_block": FIRSTS_PER_BLOCK}
    return exhaustive_pairs(
        network or opened.network(),
        opened.frame(prompt),
        dtype=Dtype.float32,
        trainer=trainer or Trainer(*callbacks),
        folder=folder,
        label="tiny",
        progress=False,
        **defaults | options,
    )


def contents(result):
    """Everything that must not depend on how the work was done."""
    return {name: getattr(result, name).to_csv(float_format="%.17g") for name in FRAMES} | {
        "moments": repr(result.moments)
    }


@pytest.fixture(scope="module")
def opened(tiny_checkpoint):
    return open_model(ModelSpec(path=str(tiny_checkpoint)), tiny_checkpoint)


@pytest.fixture(scope="module")
def alone(opened, tmp_path_factory):
    return search(opened, tmp_path_factory.mktemp("alone"))


@pytest.fixture(scope="module")
def truth(opened):
    """Rewards (n, n) float64 by the model's own forward on whole inputs."""
    frame, network = opened.frame(PROMPT), opened.network()
    wholes = torch.tensor([frame.around([a, b]) for a in ALLOWED for b in ALLOWED])
    with torch.inference_mode():
        return own_rewards(network, wholes).double().numpy().reshape(len(ALLOWED), -1)


class KilledError(Exception):
    pass


class KillAfter(pl.Callback):
    def __init__(self, blocks):
        self.left = blocks

    def on_predict_batch_end(self, *_):
        self.left -= 1
        if self.left == 0:
            raise KilledError


class Count(pl.Callback):
    """Numbers of the blocks that were scored."""

    def __init__(self):
        self.scored = []

    def on_predict_batch_end(self, trainer, module, outputs, *_):
        if outputs >= 0:
            self.scored.append(outputs)


def test_every_number_is_the_models_own(alone, truth):
    assert alone.path == "shared-prefix, common prefix"
    assert alone.pairs == alone.fresh_pairs == 1600
    assert alone.blocks == BLOCKS
    place = {token: i for i, token in enumerate(ALLOWED.tolist())}
    for frame, expected in (
        (alone.top, -np.sort(-truth, axis=None)),
        (alone.bottom, np.sort(truth, axis=None)),
    ):
        np.testing.assert_allclose(frame["reward"], expected[:25], atol=1e-5)
        own = [truth[place[a], place[b]] for a, b in zip(frame["first"], frame["second"], strict=True)]
        np.testing.assert_allclose(frame["reward"], own, atol=1e-5)
        assert len(frame[["first", "second"]].drop_duplicates()) == 25
    for frame, matrix in ((alone.per_first, truth), (alone.per_second, truth.T)):
        np.testing.assert_allclose(frame["best"], matrix.max(axis=1), atol=1e-5)
        np.testing.assert_allclose(frame["worst"], matrix.min(axis=1), atol=1e-5)
        np.testing.assert_allclose(frame["mean"], matrix.mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(alone.per_first["sd"], truth.std(axis=1), atol=1e-5)
    assert alone.moments.sd == pytest.approx(truth.std(), abs=1e-5)
    assert np.ptp(truth) > 0.5, "differences must be far above the tolerance, or nothing is tested"


def test_ranks_are_exact_at_both_ends_and_bounded_between(alone, truth):
    assert alone.rank_of(alone.top["reward"][0]) == Above(0, 0)
    assert alone.rank_of(alone.top["reward"][24]) == Above(24, 24)
    assert alone.rank_of(alone.bottom["reward"][0]) == Above(1599, 1599)
    assert alone.rank_of(np.inf) == Above(0, 0)
    assert alone.rank_of(-np.inf) == Above(1600, 1600)
    descending = -np.sort(-truth, axis=None)
    middles = (descending[:-1] + descending[1:]) / 2
    apart = np.flatnonzero(
        descending[:-1] - descending[1:] > 1e-4
    )  # by more than float32 arithmetic moves them
    found = [alone.rank_of(middles[i]) for i in apart]
    assert all(rank.least <= i + 1 <= rank.most for rank, i in zip(found, apart, strict=True))
    assert all(rank.exact for rank, i in zip(found, apart, strict=True) if i < 24 or i > 1600 - 25)
    assert max(rank.most - rank.least for rank in found) < 30, "a bin holds few of them"
    with pytest.raises(ValueError, match="not a number"):
        alone.rank_of(np.nan)


def test_kept_pairs_may_be_all_there_are(opened, truth, tmp_path):
    whole = search(opened, tmp_path, keep=10_000)
    assert len(whole.top) == len(whole.bottom) == 1600
    assert whole.rank_of(float(whole.top["reward"][700])).exact


def test_killed_search_goes_on_where_it_stopped_to_the_same_bits(opened, alone, tmp_path):
    first, second = Count(), Count()
    with pytest.raises(KilledError):
        search(opened, tmp_path, first, KillAfter(5))
    resumed = search(opened, tmp_path, second)
    assert len(first.scored) == 5
    assert sorted(first.scored + second.scored) == list(range(BLOCKS)), "each block once"
    assert contents(resumed) == contents(alone)
    assert resumed.fresh_pairs == sum(120 if number < 13 else 40 for number in second.scored)
    again = Count()
    assert contents(search(opened, tmp_path, again)) == contents(alone)
    assert again.scored == []


def test_damaged_block_is_scored_again(opened, alone, tmp_path, caplog):
    search(opened, tmp_path)
    damaged = sorted(tmp_path.rglob("block-0*"))[4]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    count = Count()
    assert contents(search(opened, tmp_path, count)) == contents(alone)
    assert count.scored == [4]
    assert "block 4" in caplog.text


@pytest.mark.parametrize(
    "other", [{"allowed": ALLOWED[:-1]}, {"keep": 24}, {"firsts_per_block": 4}, {"prompt": "Why?"}]
)
def test_blocks_of_another_question_are_neither_taken_nor_lost(opened, alone, tmp_path, other):
    search(opened, tmp_path)
    count, again = Count(), Count()
    search(opened, tmp_path, count, **other)
    assert len(count.scored) in (10, 13, 14), "all of its blocks"
    assert contents(search(opened, tmp_path, again)) == contents(alone)
    assert again.scored == []


def test_order_and_repetition_of_allowed_ids_do_not_matter(opened, alone, tmp_path):
    shuffled = np.random.default_rng(0).permutation(np.concatenate([ALLOWED, ALLOWED[:5]]))
    assert contents(search(opened, tmp_path, allowed=shuffled)) == contents(alone)


def test_batch_size_of_the_first_start_holds_for_those_that_give_none(opened, tmp_path, monkeypatch):
    from pessimal.scoring import common_prefix

    sizes, run = set(), common_prefix.rewards_in_memory

    def noted(engine, ids, *, shared):
        sizes.add(len(ids))
        return run(engine, ids, shared=shared)

    with pytest.raises(KilledError):
        search(opened, tmp_path, KillAfter(2))
    monkeypatch.setattr(common_prefix, "rewards_in_memory", noted)
    monkeypatch.setattr("pessimal.scoring.responses.SAMPLE", 4)
    assert search(opened, tmp_path, batch_size=None).batch_size == 32
    assert {8, 32} <= sizes, "40 second tokens in batches of 32"
    assert max(sizes) == 32


def test_network_that_cannot_share_beginnings_is_scored_whole(opened, alone, tmp_path, monkeypatch):
    monkeypatch.setattr("pessimal.scoring.scorer.SharedPrefix.suits", lambda network: False)
    whole = search(opened, tmp_path)
    assert whole.path == "full-forward"
    np.testing.assert_allclose(whole.top["reward"], alone.top["reward"], atol=1e-5)
    np.testing.assert_allclose(whole.per_first["mean"], alone.per_first["mean"], atol=1e-5)


def test_reward_that_is_no_number_ends_the_search_and_names_the_pair(opened, alone, tmp_path):
    broken = copy.deepcopy(opened.network())
    with torch.no_grad():
        broken.get_input_embeddings().weight[ALLOWED[17]] = torch.nan
    with pytest.raises(ModelError, match=rf"\[\d+, {ALLOWED[17]}\].*float32.*are kept"):
        search(opened, tmp_path, network=broken)
    assert [*tmp_path.rglob("block-0*")] == [], "no block is without that token"
    (claims,) = tmp_path.rglob("claims")
    assert all_can_be_claimed(claims), "though this process lives on"


def all_can_be_claimed(claims) -> bool:
    """Whether another process may take every block."""
    lines = f"import fcntl; fcntl.lockf(open({str(claims)!r}, 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    return subprocess.run([sys.executable, "-c", lines], check=False).returncode == 0


def test_network_in_parts_is_refused(opened, tmp_path):
    from pytorch_lightning.strategies import ModelParallelStrategy

    trainer = Trainer(strategy=ModelParallelStrategy())
    with pytest.raises(ConfigError, match="trainer=gpu"):
        search(opened, tmp_path, trainer=trainer)


@pytest.mark.parametrize(("seen", "error"), [(True, None), (False, ConfigError)])
def test_processes_that_do_not_see_one_folder_are_refused(tmp_path, seen, error):
    """As a second process, which finds the first one's mark, or does not."""
    if seen:
        (tmp_path / ".start-mark").touch()
    strategy = SimpleNamespace(broadcast=lambda _: "mark", barrier=lambda: None)
    second = SimpleNamespace(world_size=2, is_global_zero=False, strategy=strategy)
    with pytest.raises(error, match=r"paths\.cache") if error else contextlib.nullcontext():
        check_folder_is_shared(tmp_path, second)


def test_progress_is_reported_in_pairs_and_counts_what_was_done_before(opened, tmp_path, monkeypatch, caplog):
    with pytest.raises(KilledError):
        search(opened, tmp_path, KillAfter(3))
    caplog.clear()
    caplog.set_level("INFO", logger="pessimal")
    monkeypatch.setattr("pessimal.scoring.loop.LOG_EVERY_SECONDS", 0)
    search(opened, tmp_path)
    lines = [line for line in caplog.messages if "s left" in line]
    assert len(lines) == BLOCKS - 3
    assert "1600 of 1600" in lines[-1]
    assert int(lines[0].split(" of ")[0].split()[-1]) > 3 * 40, "three blocks were there, one is new"
