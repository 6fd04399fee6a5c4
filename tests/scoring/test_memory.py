"""The batch size: found from the network's sizes and the memory that is free."""

import pytest
import torch
from transformers import LlamaConfig

from pessimal.scoring import memory as module
from pessimal.scoring.memory import Lengths, find_batch_size

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
