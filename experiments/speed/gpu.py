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

from pessimal.scoring.engine import Decoder, SharedPrefix, run_prefix
from pessimal.scoring.trainer import Lengths, find_batch_size

PREFIX = 40
SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim"),
)
GEOMETRIES: dict[str, tuple[type[PreTrainedConfig], tuple[int, ...], int]] = {
    # class and sizes of the configuration, closing tokens of the chat template
    "llama-3-8b": (LlamaConfig, (128_256, 4096, 14_336, 32, 32, 8, 128), 1),
    "llama-3.2-3b": (LlamaConfig, (128_256, 3072, 8192, 28, 24, 8, 128), 1),
    "qwen3-0.6b": (Qwen3Config, (151_936, 1024, 3072, 28, 16, 8, 128), 2),
    "gemma-2-2b": (Gemma2Config, (256_000, 2304, 9216, 26, 8, 4, 256), 2),
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
    make, sizes, closing = GEOMETRIES[name]
    config = make(**dict(zip(SIZES, sizes, strict=True)), num_labels=1, pad_token_id=0)
    torch.manual_seed(0)
    torch.cuda.reset_peak_memory_stats()
    with torch.device(device):
        network = AutoModelForSequenceClassification.from_config(config, dtype=torch.bfloat16)
    network.eval().requires_grad_(False).reward_output = 0
    decoder = Decoder.find(network)
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
    layers = (m for m in decoder.backbone.modules() if isinstance(m, torch.nn.Linear))
    linear = sum(layer.weight.numel() for layer in layers)
    floor = 2 * linear * own * len(ids) / rate
    peak = torch.cuda.max_memory_allocated() / 2**30
    distinct = rewards.unique().numel()
    return (
        f"{name:14} {len(ids):8} {own:2} {batch:6} {seconds:8.2f} s  floor {floor:6.2f} s  "
        f"{floor / seconds:5.2f} of it  peak {peak:5.1f} GiB  distinct rewards {distinct}"
    )


def main(names: list[str]) -> None:
    """Print the table; says so where there is no card."""
    if not torch.cuda.is_available():
        print("Absolute times: no CUDA card on this machine, not measured")
        return
    device = torch.device("cuda")
    rate = reached_rate(device)
    device_name = torch.cuda.get_device_name()
    print(f"Absolute times on {device_name}: {rate / 1e12:.0f} TFLOP/s reached, P = {PREFIX}")
    for name in names or GEOMETRIES:
        print(measure(name, rate, device), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
