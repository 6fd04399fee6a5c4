"""The batch size: found from the network's sizes and the memory that is free."""

import pytest
import torch
from transformers import LlamaConfig

from pessimal.scoring import trainer as module
from pessimal.scoring.trainer import Lengths, find_batch_size

SHORT = Lengths(run=3, seen=50)


def found(hidden: int, lengths: Lengths, device: str = "cuda") -> int:
    config = LlamaConfig(
        hidden_size=hidden, intermediate_size=4 * hidden, num_attention_heads=hidden // 64
    )
    return find_batch_size(config, lengths, device=torch.device(device))


@pytest.fixture
def free(monkeypatch):
    """A function that sets how many GiB of a card are free."""

    def put(gib: float) -> None:
        monkeypatch.setattr(
            torch.cuda, "mem_get_info", lambda device=None: (int(gib * 2**30), 2**40)
        )

    return put


@pytest.mark.parametrize(
    "asked",
    [
        [(8, 512, SHORT), (8, 4096, SHORT), (8, 32_768, SHORT)],
        [(0.5, 512, Lengths(own, own + 50)) for own in (3, 30, 300)],
        [(0.5, 512, Lengths(30, seen)) for seen in (50, 5_000, 50_000)],
        [(gib, 4096, SHORT) for gib in (8, 1, 0.1)],
    ],
    ids=["wider networks", "longer candidates", "longer prefixes", "less memory"],
)
def test_it_falls_with(free, asked):
    sizes = []
    for gib, hidden, lengths in asked:
        free(gib)
        sizes.append(found(hidden, lengths))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]


def test_what_it_allows_fits_into_the_memory_there_is(free, monkeypatch):
    free(2)
    assert 4 * found(4096, Lengths(20, 70)) * 20 * 4 * 4096 < 2 * 2**30, (
        "bytes of one float32 activation"
    )
    lengths = Lengths(100, 150)
    on_cpu = found(1024, lengths, "cpu")
    assert 4 * on_cpu * 100 * 4 * 1024 < 2**28
    monkeypatch.setattr(module, "_CPU_BYTES", 2**20)
    assert found(1024, lengths, "cpu") < on_cpu
