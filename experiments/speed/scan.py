"""How fast candidates are scored: three ways, side by side in one process.

Run it with `make bench` (or `python experiments/scan_speed/bench.py`). A random 25-million-parameter Llama (its
vocabulary aside), a prefix of 43 tokens, one candidate token and S closing ones, on the CPU. The ways take turns,
ROUNDS times; printed are the medians of candidates a second and their ratio to full forwards, with the ratio of token
counts (P + 1 + S) / (1 + S) that sharing the prefix could reach at best. Imports only torch and transformers.
"""

import copy
import statistics
import time

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForSequenceClassification

from pessimal.scoring.engine import Decoder, FullForward, SharedPrefix

PREFIX, ROUNDS = 43, 5


def model(dtype: torch.dtype) -> LlamaForSequenceClassification:
    """A random Llama reward model with 25.2 million parameters besides its 2,000-token embedding."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=2000, hidden_size=512, intermediate_size=1376, num_hidden_layers=9, num_attention_heads=8,
        num_key_value_heads=4, num_labels=1, pad_token_id=None, max_position_embeddings=512,
    )  # fmt: skip
    return LlamaForSequenceClassification(config).to(dtype).eval().requires_grad_(False)


class CopiedCache:
    """The prefix cached once, its keys and values repeated for every candidate of a batch."""

    def __init__(self, network, *, prefix, suffix):
        self.decoder, self.prefix, self.suffix = Decoder.of(network), prefix, suffix
        self.cache = DynamicCache(config=network.config)
        network.model(input_ids=prefix.unsqueeze(0), past_key_values=self.cache, use_cache=True)

    def rewards(self, responses):
        batch = len(responses)
        cache = copy.deepcopy(self.cache)
        cache.batch_repeat_interleave(batch)
        ids = torch.cat([responses, self.suffix.expand(batch, -1)], dim=1)
        return self.decoder.read_reward(input_ids=ids, past_key_values=cache, use_cache=True)


@torch.inference_mode()
def measure(dtype: torch.dtype, closing: int) -> None:
    """Print one row."""
    network = model(dtype)
    prefix, suffix = torch.arange(PREFIX) + 100, torch.arange(closing) + 50
    responses = torch.randint(0, 2000, (512, 1))
    ways = {
        # (engine, batch, candidates a round): the slow one scores fewer, so that the turns are of like length
        "full forward": (FullForward(network, prefix=prefix, suffix=suffix), 64, 64),
        "cache copied": (CopiedCache(network, prefix=prefix, suffix=suffix), 256, 512),
        "shared prefix": (SharedPrefix(Decoder.of(network), prefix=prefix, suffix=suffix), 256, 512),
    }
    rates = {name: [] for name in ways}
    rewards = {}
    for _ in range(ROUNDS + 1):  # the first round warms up
        for name, (way, batch, count) in ways.items():
            started = time.perf_counter()
            rewards[name] = torch.cat([way.rewards(part) for part in responses[:count].split(batch)])
            rates[name].append(count / (time.perf_counter() - started))
    medians = {name: statistics.median(values[1:]) for name, values in rates.items()}
    ratios = {name: rate / medians["full forward"] for name, rate in medians.items()}
    apart = (rewards["shared prefix"][:64] - rewards["full forward"]).abs().max() / rewards[
        "full forward"
    ].std()
    ceiling = (PREFIX + 1 + closing) / (1 + closing)
    cells = "  ".join(f"{name} {medians[name]:7.0f}/s {ratios[name]:5.1f}x" for name in ways)
    print(
        f"{str(dtype)[6:]:9} S={closing}  {cells}  token ratio {ceiling:4.1f}  largest difference {apart:.1e} SD"
    )


if __name__ == "__main__":
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, median of {ROUNDS}")
    for dtype in (torch.float32, torch.bfloat16):
        for closing in (1, 4):
            measure(dtype, closing)
