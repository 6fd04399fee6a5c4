"""The batch size: found from the network's sizes and the memory that is free, and never the reason for a reward."""

import functools

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from transformers import LlamaConfig

from pessimal.models.frame import find_frame
from pessimal.models.spec import Mode
from pessimal.scoring import memory as module
from pessimal.scoring.candidates import inputs
from pessimal.scoring.loop import Loop
from pessimal.scoring.memory import Lengths, find_batch_size
from pessimal.scoring.scan import identify, scan
from pessimal.scoring.scorer import FrameScorer

CARD = torch.device("cuda")
SHORT = Lengths(own=3, seen=50)


def sized(hidden: int) -> LlamaConfig:
    return LlamaConfig(hidden_size=hidden, intermediate_size=4 * hidden, num_attention_heads=hidden // 64)


@pytest.fixture
def free(monkeypatch):
    """A function that sets how many GiB of a card are free."""

    def put(gib: float) -> None:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (int(gib * 2**30), 2**40))

    put(8)
    return put


def falls(sizes: list[int]) -> bool:
    return sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[-1]


def test_it_falls_as_the_network_widens(free):
    assert falls([find_batch_size(sized(hidden), SHORT, device=CARD) for hidden in (512, 4096, 32_768)])


def test_it_falls_as_candidates_and_prefix_lengthen(free):
    free(0.5)
    assert falls([find_batch_size(sized(512), Lengths(own, own + 50), device=CARD) for own in (3, 30, 300)])
    assert falls(
        [find_batch_size(sized(512), Lengths(30, seen), device=CARD) for seen in (50, 5_000, 50_000)]
    )


def test_it_falls_with_the_memory_that_is_free(free):
    found = []
    for gib in (8, 1, 0.1):
        free(gib)
        found.append(find_batch_size(sized(4096), SHORT, device=CARD))
    assert falls(found)


def test_what_it_allows_fits_into_the_free_memory(free):
    free(2)
    config, lengths = sized(4096), Lengths(20, 70)
    found = find_batch_size(config, lengths, device=CARD)
    feed_forward = 4 * found * lengths.own * config.intermediate_size  # bytes of one float32 activation
    assert feed_forward < 2 * 2**30


@pytest.mark.parametrize("hidden", [64, 512, 4096, 16_384])
@pytest.mark.parametrize("own", [1, 3, 77, 5_000])
@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
def test_it_is_a_power_of_two_and_at_least_one(free, hidden, own, device):
    free(0.001)
    found = find_batch_size(sized(hidden), Lengths(own, own + 50), device=torch.device(device))
    assert found >= 1
    assert found & (found - 1) == 0


def test_a_processor_takes_no_more_than_a_quarter_of_a_gib(monkeypatch):
    config, lengths = sized(1024), Lengths(100, 150)
    found = find_batch_size(config, lengths, device=torch.device("cpu"))
    assert found * lengths.own * config.intermediate_size * 4 < 2**28
    monkeypatch.setattr(module, "_CPU_BYTES", 2**20)
    assert find_batch_size(config, lengths, device=torch.device("cpu")) < found


class Small:
    """An engine that runs out of memory above so many candidates."""

    name = "small"

    def __init__(self, engine, most: int):
        self.engine, self.most, self.sizes = engine, most, []

    def rewards(self, ids, *, shared):
        self.sizes.append(len(ids))
        if len(ids) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.engine.rewards(ids, shared=shared)


@pytest.fixture
def batch(model, network, frame, words):
    """A scorer of the tiny model, and the ids (64, length) of a batch with what they share."""
    made = inputs(model.tokenizer, frame, words, Mode.ids)
    ids = torch.from_numpy(np.stack([made.own(row) for row in range(64)])).long()
    return FrameScorer(network, frame, device=torch.device("cpu")), ids, int(made.shared[0])


@pytest.mark.parametrize("most", [1, 5, 32])
def test_out_of_memory_gives_the_same_rewards_in_smaller_batches(batch, caplog, most):
    scorer, ids, shared = batch
    whole = scorer.rewards(ids, shared=shared)
    small = Small(scorer.engines[0], most)
    scorer.engines.insert(0, small)
    found = scorer.rewards(ids, shared=shared)
    assert found.shape == whole.shape
    assert torch.allclose(found, whole, atol=1e-5)
    assert sum(size for size in small.sizes if size <= most) == len(ids), "each candidate once"
    assert "out of memory with 64 candidates at once" in caplog.text


def test_out_of_memory_with_a_single_candidate_is_reported(batch):
    scorer, ids, shared = batch
    scorer.engines.insert(0, Small(scorer.engines[0], 0))
    with pytest.raises(torch.OutOfMemoryError):
        scorer.rewards(ids, shared=shared)


class StoppedError(Exception):
    pass


def test_resumed_scan_keeps_its_batch_size_though_more_memory_is_free_now(
    model, words, tmp_path, monkeypatch
):
    import pessimal.scoring.loop as loop_module
    from pessimal.scoring.shards import Shards

    prompt = "What is best?"
    provenance = identify(
        model, prompt="best", prompt_text=prompt, candidates=words, mode=Mode.ids, certain=0
    )
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    write, written = Shards.write, []

    def start(*, found: int, stop_at: int | None):
        def note(self, batch, rows, rewards):
            if batch == stop_at:
                raise StoppedError
            write(self, batch, rows, rewards)
            written.append((batch, len(rows)))

        monkeypatch.setattr(loop_module, "find_batch_size", lambda *_, **__: found)
        monkeypatch.setattr(Shards, "write", note)
        loop = Loop(trainer=trainer, batch_size=None, progress=False)
        networks = functools.cache(model.network)
        return scan(
            model, networks, provenance, words, find_frame(model.tokenizer, prompt), work=tmp_path, loop=loop
        )

    with pytest.raises(StoppedError):
        start(found=128, stop_at=1)
    table = start(found=256, stop_at=None)
    assert written == [(0, 128), (1, 128), (2, len(words.rows) - 256)]
    assert table.rows["reward"].notna().all()
