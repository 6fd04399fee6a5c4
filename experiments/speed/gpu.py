"""Absolute seconds of full-vocabulary scans on one card, with random weights in published
geometries.

    python experiments/speed/gpu.py [llama-3-8b gemma-2-2b …]

Needs a CUDA card; of pessimal's libraries only torch, transformers and omegaconf. Beside each time stands the arithmetic
floor: two operations a parameter of the linear layers and token, at the rate that this card reaches
on one large product of matrices.
"""

import sys
import time

import torch
from transformers import (
    AutoModelForSequenceClassification,
    Gemma2Config,
    LlamaConfig,
    PreTrainedConfig,
    Qwen3Config,
)

from pessimal.scoring.engine import Decoder, SharedPrefix
from pessimal.scoring.memory import Lengths, find_batch_size
from pessimal.scoring.shared_prefix import run_prefix

PREFIX = 40
GEOMETRIES: dict[str, tuple[PreTrainedConfig, int]] = {
    # configuration, closing tokens of the chat template
    "llama-3-8b": (
        LlamaConfig(
            vocab_size=128_256,
            hidden_size=4096,
            intermediate_size=14_336,
            num_hidden_layers=32,
            num_attention_heads=32,
            num_key_value_heads=8,
            rope_theta=500_000.0,
        ),
        1,
    ),
    "llama-3.2-3b": (
        LlamaConfig(
            vocab_size=128_256,
            hidden_size=3072,
            intermediate_size=8192,
            num_hidden_layers=28,
            num_attention_heads=24,
            num_key_value_heads=8,
            rope_theta=500_000.0,
        ),
        1,
    ),
    "qwen3-0.6b": (
        Qwen3Config(
            vocab_size=151_936,
            hidden_size=1024,
            intermediate_size=3072,
            num_hidden_layers=28,
            num_attention_heads=16,
            num_key_value_heads=8,
            head_dim=128,
        ),
        2,
    ),
    "gemma-2-2b": (
        Gemma2Config(
            vocab_size=256_000,
            hidden_size=2304,
            intermediate_size=9216,
            num_hidden_layers=26,
            num_attention_heads=8,
            num_key_value_heads=4,
            head_dim=256,
            sliding_window=4096,
        ),
        2,
    ),
}


def reached_rate(device: torch.device) -> float:
    """Operations a second of one large bfloat16 product."""
    a, b = (torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(20):
        a @ b
    torch.cuda.synchronize()
    return 20 * 2 * 8192**3 / (time.perf_counter() - started)


@torch.inference_mode()
def measure(name: str, rate: float, device: torch.device) -> str:
    """One row of the table."""
    config, closing = GEOMETRIES[name]
    config.num_labels, config.pad_token_id = 1, 0
    torch.manual_seed(0)
    torch.cuda.reset_peak_memory_stats()
    with torch.device(device):
        network = AutoModelForSequenceClassification.from_config(config, dtype=torch.bfloat16)
    network.eval().requires_grad_(False).reward_output = 0
    decoder = Decoder.of(network)
    prefix = torch.arange(100, 100 + PREFIX, device=device)
    engine = SharedPrefix(decoder, run_prefix(decoder.backbone, prefix)[0])
    own = 1 + closing
    batch = find_batch_size(config, Lengths(own, PREFIX + own), device=device)
    ids = torch.arange(config.vocab_size, device=device).unsqueeze(1)
    ids = torch.cat([ids, torch.full((len(ids), closing), 7, device=device)], dim=1)
    engine.rewards(ids[:batch], shared=PREFIX)
    torch.cuda.synchronize()
    started = time.perf_counter()
    rewards = torch.cat([engine.rewards(part, shared=PREFIX) for part in ids.split(batch)])
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    linear = sum(
        m.weight.numel() for m in decoder.backbone.modules() if isinstance(m, torch.nn.Linear)
    )
    floor = 2 * linear * own * len(ids) / rate
    peak = torch.cuda.max_memory_allocated() / 2**30
    return (
        f"{name:14} {len(ids):8} {own:2} {batch:6} {seconds:8.2f} s  floor {floor:6.2f} s  "
        f"{floor / seconds:5.2f} of it  "
        f"peak {peak:5.1f} GiB  distinct rewards {rewards.unique().numel()}"
    )


def main(names: list[str]) -> None:
    """Print the table; says so where there is no card."""
    if not torch.cuda.is_available():
        print("Absolute times: no CUDA card on this machine, not measured")
        return
    device = torch.device("cuda")
    rate = reached_rate(device)
    print(
        f"Absolute times on {torch.cuda.get_device_name()}: {rate / 1e12:.0f} TFLOP/s reached, P = "
        f"{PREFIX}"
    )
    for name in names or GEOMETRIES:
        print(measure(name, rate, device), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
