"""Every pair of a tiny model, against full forwards; killed and resumed to the bit."""

import itertools
import os
import signal

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from experiments.optimal_pessimal_tokens.exhaustive_pairs import (
    Bins,
    Blocks,
    BlockStore,
    exhaustive_pairs,
    main,
    merge,
    summarise,
)
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.obtain import open_model
from pessimal.rewards.spec import Dtype
from pessimal.scoring.engine import own_rewards
from tolerance import close, slack

PROMPT = "What, in one word, is the greatest thing ever?"
ALLOWED = np.arange(10, 330, 8)  # 40 ids
FIRSTS_PER_BLOCK, BLOCKS = 3, 14
FRAMES = ("top", "bottom", "per_first", "per_second", "histogram")


class Trainer(pl.Trainer):
    """A trainer that has callbacks of the test's beside the search's own."""

    def __init__(self, *more: pl.Callback, **options):
        super().__init__(
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
            **{"devices": 1, **options},
        )
        self.more = more

    def predict(self, *arguments, **options):
        self.callbacks = [*self.callbacks, *self.more]
        return super().predict(*arguments, **options)


def search(opened, folder, *callbacks, prompt=PROMPT, network=None, trainer=None, **options):
    defaults = {
        "allowed": ALLOWED,
        "keep": 25,
        "batch_size": 32,
        "firsts_per_block": FIRSTS_PER_BLOCK,
    }
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
    return {name: getattr(result, name).to_csv(float_format="%.17g") for name in FRAMES}


@pytest.fixture(scope="module")
def opened(tiny_checkpoint):
    return open_model(HeadSpec(path=str(tiny_checkpoint)), tiny_checkpoint)


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
    assert alone.pairs == 1600
    place = {token: i for i, token in enumerate(ALLOWED.tolist())}
    for frame, expected in (
        (alone.top, -np.sort(-truth, axis=None)),
        (alone.bottom, np.sort(truth, axis=None)),
    ):
        assert close(frame["reward"], expected[:25])
        own = [
            truth[place[a], place[b]] for a, b in zip(frame["first"], frame["second"], strict=True)
        ]
        assert close(frame["reward"], own)
        assert len(frame[["first", "second"]].drop_duplicates()) == 25
    for frame, matrix in ((alone.per_first, truth), (alone.per_second, truth.T)):
        assert close(frame["best"], matrix.max(axis=1))
        assert close(frame["worst"], matrix.min(axis=1))
        assert close(frame["mean"], matrix.mean(axis=1))
    assert close(alone.per_first["sd"], truth.std(axis=1))
    assert np.ptp(truth) > 0.5, "differences must be far above the tolerance, or nothing is tested"


def test_ranks_are_exact_at_both_ends_and_bounded_between(alone, truth):
    for reward, above in (
        (np.inf, 0),
        (alone.top["reward"][0], 0),
        (alone.top["reward"][24], 24),
        (alone.bottom["reward"][0], 1599),
        (-np.inf, 1600),
    ):
        assert alone.above(reward) == (above, above)
    descending = -np.sort(-truth, axis=None)
    middles = (descending[:-1] + descending[1:]) / 2
    # By more than float32 arithmetic moves them.
    apart = np.flatnonzero(descending[:-1] - descending[1:] > 2 * slack(truth))
    for i in apart:
        least, most = alone.above(middles[i])
        assert least <= i + 1 <= most < least + 30, "a bin holds few of them"
        assert least == most or 24 <= i <= 1600 - 25


def test_killed_search_goes_on_where_it_stopped_to_the_same_bits(opened, alone, tmp_path):
    first, second = Count(), Count()
    with pytest.raises(KilledError):
        search(opened, tmp_path, first, KillAfter(5))
    resumed = search(opened, tmp_path, second)
    assert len(first.scored) == 5
    assert sorted(first.scored + second.scored) == list(range(BLOCKS)), "each block once"
    assert contents(resumed) == contents(alone)
    again = Count()
    assert contents(search(opened, tmp_path, again)) == contents(alone)
    assert again.scored == []


@pytest.mark.parametrize(("goal", "sign"), [("optimal", 1)])
def test_a_search_stands_where_full_forwards_put_it(tiny_checkpoint, opened, tmp_path, goal, sign):
    ids = ALLOWED[:12].tolist()
    (tmp_path / "ids.txt").write_text("\n".join(f"id:{one}" for one in ids))
    options = ["--allowed=", f"--allowed-path={tmp_path / 'ids.txt'}", "--keep=10"]
    options += [f"--goal={goal}", "--evaluations=100", "--prompt", PROMPT]
    made = main([str(tiny_checkpoint), str(tmp_path / "out"), *options])
    every = list(itertools.product(ids, repeat=2))
    frame = opened.frame(PROMPT)
    with torch.inference_mode():
        wholes = torch.tensor([frame.around(list(pair)) for pair in every])
        rewards = own_rewards(opened.network(), wholes).double().numpy()
    for end, way in (("top_pairs", 1), ("bottom_pairs", -1)):
        expected = way * np.sort(way * rewards)[::-1][:10]
        assert close(made[end]["reward"].to_numpy(), expected)
        assert close(made[end]["own_reward"].to_numpy(), expected)
    assert made["histogram"]["n"].sum() == len(every)
    standing = made["standing"]
    assert len(standing)
    assert (standing["of"] == len(every)).all()
    for row in standing.itertuples():
        above = (sign * rewards > sign * row.reward + slack(rewards)).sum()
        assert row.rank <= 1 + above <= row.rank_most + 1
    assert set(made) == {file.stem for file in (tmp_path / "out").glob("*.parquet")}


# --- Blocks of pairs and what they give together, against one table of all pairs taken apart by
# plain means.

TOKENS = np.array([3, 5, 8, 9, 11, 20, 21, 30, 31, 32, 40])


@pytest.fixture(params=["distinct", "tied", "equal"])
def rewards(request):
    """Rewards (n, n) float32: all different, a few values many times, or one value throughout."""
    n, random = len(TOKENS), np.random.default_rng(0)
    return {
        "distinct": random.normal(size=(n, n)),
        "tied": random.integers(-2, 3, size=(n, n)),
        "equal": np.full((n, n), 0.25),
    }[request.param].astype(np.float32)


def tables(rewards, *, keep, firsts_per_block, bins=None):
    plan = Blocks(TOKENS, keep, firsts_per_block)
    bins = bins or Bins.around(rewards.ravel())
    blocks = []
    for number in range(plan.count):
        rows = np.searchsorted(TOKENS, plan.firsts(number))
        made = summarise(
            rewards[rows], firsts=plan.firsts(number), seconds=plan.tokens, keep=keep, bins=bins
        )
        blocks.append(made)
    return merge(plan, bins, blocks)


def ordered(rewards, sign):
    """All pairs as (reward, first, second), outermost first, by Python's own sort."""
    pairs = [
        (float(rewards[i, j]), int(a), int(b))
        for i, a in enumerate(TOKENS)
        for j, b in enumerate(TOKENS)
    ]
    return sorted(pairs, key=lambda pair: (-sign * pair[0], pair[1], pair[2]))


@pytest.mark.parametrize("keep", [7, 500])
@pytest.mark.parametrize("firsts_per_block", [4])
def test_ends_are_those_of_all_pairs_sorted_and_ties_go_by_ids(rewards, keep, firsts_per_block):
    made = tables(rewards, keep=keep, firsts_per_block=firsts_per_block)
    for frame, sign in ((made.top, 1), (made.bottom, -1)):
        expected = ordered(rewards, sign)[:keep]
        assert list(zip(frame["reward"], frame["first"], frame["second"], strict=True)) == expected
        further = [int((sign * rewards > sign * reward).sum()) for reward, _, _ in expected]
        assert frame["rank"].tolist() == [1 + count for count in further]


@pytest.mark.parametrize("sample", [[-1e30, 1e30], [-2.0, 1.0]])
def test_bins_are_laid_around_any_sample_and_are_closed_below(sample):
    sample = np.array(sample, dtype=np.float32)
    bins, spread = Bins.around(sample), float(sample.max()) - float(sample.min())
    assert (np.diff(bins.edges) == 2.0**bins.exponent).all()
    assert bins.edges[0] <= sample.min() - 0.99 * spread
    assert bins.edges[-1] >= sample.max() + 0.99 * spread
    assert bins.count(sample)[1:-1].sum() == len(sample)
    assert spread == 0 or 2.0**bins.exponent < spread / 600, "fine enough to be of use"
    counts = Bins(exponent=-3, lowest=-4).count(
        np.array([-9, -0.50000006, -0.5, -0.375, 1e30], dtype=np.float32)
    )
    assert counts[[0, 1, 2, -1]].tolist() == [2, 1, 1, 1]


# --- Blocks on disk, and who is at work on which of the others.

IDS = np.arange(3)
BLOCK = summarise(
    np.arange(9, dtype=np.float32).reshape(3, 3), firsts=IDS, seconds=IDS, keep=2, bins=Bins(0, 0)
)


@pytest.fixture
def store(tmp_path):
    made = BlockStore(tmp_path / "pairs")
    made.write(7, BLOCK)
    return made


@pytest.fixture
def other(store):
    """other(numbers): a process that claims these blocks and lives until it is killed; its id."""
    children = []

    def start(numbers) -> int:
        ready, tell = os.pipe()
        child = os.fork()
        if not child:
            held = BlockStore(store.folder)
            os.write(tell, b"1" if all(held.take(number) for number in numbers) else b"0")
            signal.pause()
            os._exit(0)
        children.append(child)
        assert os.read(ready, 1) == b"1"
        os.close(ready)
        os.close(tell)
        return child

    yield start
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_block_torn_or_changed_anywhere_is_not_taken(store):
    (file,) = store.folder.glob("*.npz")
    whole = file.read_bytes()
    for place in range(0, len(whole), 97):
        file.write_bytes(whole[:place])
        assert store.read(7) is None, place
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x40]) + whole[place + 1 :])
        read = store.read(7)  # a byte of the container that says nothing of an array may change
        assert read is None or all(np.array_equal(read[name], BLOCK[name]) for name in BLOCK), place


def test_block_that_another_process_has_is_left_to_it_until_it_dies(store, other):
    child = other([0, 1])
    assert not store.take(0)
    assert store.take(2)
    assert store.take_next([1, 7, 0, 3]) == 3, "1 and 0 are the other's, 7 is finished"
    os.kill(child, signal.SIGKILL)
    while not store.take(1):
        pass
    assert store.take_next([1, 7, 0, 3]) == 1
