"""How fast one step of a search is: the ways of doing it, side by side in one process.

A step is a gradient at one response, its best tokens, 512 changes of one place each, and their
rewards. The ways take turns, ROUNDS times; medians of seconds a step and their ratios are printed.
Network and prompt are those of `scan.py`: 25 million parameters, 43 tokens before the response and
S behind it. Imports only torch and transformers, and what of pessimal needs no more.

`search.py steps DTYPE L S` does one of pessimal's own steps for each line that it reads:
`nanogcg_yardstick.py` asks it.
"""

import json
import statistics
import sys
import time

import torch
from scan import PREFIX, SIZES, Setting, machine, tokenizer
from torch import Tensor
from transformers import DynamicCache

from pessimal.scoring.common_prefix import CommonPrefixScorer
from pessimal.scoring.engine import Decoder, OwnForward, SharedPrefix, prefix_context, run_prefix
from pessimal.scoring.trainer import keep_large_buffers
from pessimal.searching.climb import sample, top_tokens

ROUNDS, WIDTH, TOP_K = 5, 512, 256
# Candidates at once of the ways that share less. No size from 16 to 256 was faster by more than the
# noise (3 %).
BATCH = 64
# Of these ways so many of the candidates are evaluated, and the time is multiplied: their batches
# are all alike.
EVALUATED = {"full": 128, "by 64": 256}
# A sweep puts so many tokens in each place in turn.
SWEPT = 512


class ExpandedCache:
    """The prompt cached once, expanded to every candidate of a batch, as nanoGCG does it: each
    copies it in each layer."""

    name = "expanded-cache"

    def __init__(self, decoder: Decoder, prefix: Tensor):
        self.decoder, self.prefix = decoder, run_prefix(decoder.backbone, prefix)[0]

    def rewards(self, ids: Tensor, *, shared: int) -> Tensor:
        cache = DynamicCache()
        pairs = zip(self.prefix.keys, self.prefix.values, strict=True)
        for layer, (key, value) in enumerate(pairs):
            cache.update(key[None, :, :0], value[None, :, :0], layer)
            cache.layers[layer].keys = key.expand(len(ids), *key.shape)
            cache.layers[layer].values = value.expand(len(ids), *value.shape)
        output = self.decoder.backbone(input_ids=ids, past_key_values=cache, use_cache=True)
        return self.decoder.head.read(output.last_hidden_state[:, -1].float(), None)


def ways_of(setting: Setting) -> dict[str, CommonPrefixScorer]:
    """Full forwards, the expanded cache in batches and, as nanoGCG has it, all at once, and
    pessimal's own. Each takes its gradient as it takes its rewards."""
    network, decoder = setting.network, Decoder.find(setting.network)
    around = {"prefix": setting.prefix, "suffix": setting.closing}
    expanded = ExpandedCache(decoder, setting.prefix)
    ways = {
        "full": (OwnForward(network, setting.prefix), {"batch_size": BATCH}),
        "by 64": (expanded, {"batch_size": BATCH}),
        "at once": (expanded, {"batch_size": WIDTH}),
        "pessimal": (SharedPrefix(decoder, *prefix_context(decoder, setting.prefix)), {}),
    }
    return {
        name: CommonPrefixScorer(network, engine, **around, **size)
        for name, (engine, size) in ways.items()
    }


class Step:
    """One step: the first half is made of the same response for every way, the second of its
    candidates."""

    def __init__(self, setting: Setting, length: int):
        self.length, self.first = length, len(setting.tokenizer.all_special_ids)
        self.allowed = torch.arange(setting.network.config.vocab_size) >= self.first
        self.generator = torch.Generator().manual_seed(0)
        self.response: Tensor | None = None
        """Where it is made (L,)."""
        self.candidates: Tensor | None = None
        """Those of the last one (WIDTH, L)."""

    def move_on(self) -> None:
        """Go to another response, as a search does: what was shared with the last one is of no more
        use."""
        ends, generator = (self.first, len(self.allowed)), self.generator
        self.response = torch.randint(*ends, (self.length,), generator=generator)

    def __call__(self, way: CommonPrefixScorer, *, evaluated: int = WIDTH) -> tuple[float, Tensor]:
        """Seconds of one step, and the rewards of as many of its candidates as were evaluated."""
        how = {"width": WIDTH, "step_size": 1, "generator": torch.Generator().manual_seed(0)}
        started = time.perf_counter()
        slope = way.gradient(self.response)
        tokens = top_tokens(slope, current=self.response, allowed=self.allowed, k=TOP_K)
        self.candidates = sample(self.response, tokens, **how)
        proposed = time.perf_counter()
        rewards = way.rewards(self.candidates[:evaluated], anchor=self.response)
        ended = time.perf_counter()
        return (proposed - started) + (ended - proposed) * WIDTH / evaluated, rewards


def measure(dtype: torch.dtype, length: int, closing: int) -> str:
    """One row of the table."""
    setting = Setting.of(dtype, closing, candidates=1)
    ways, step = ways_of(setting), Step(setting, length)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS + 1):  # the first round warms up
        step.move_on()
        for name, way in ways.items():
            taken, rewards = step(way, evaluated=EVALUATED.get(name, WIDTH))
            seconds[name].append(taken)
    taken = {name: statistics.median(values[1:]) for name, values in seconds.items()}
    around = {"prefix": setting.prefix, "suffix": setting.closing, "batch_size": 1}
    alone = CommonPrefixScorer(setting.network, ways["full"].engine, **around)
    own = alone.rewards(step.candidates[:BATCH])
    apart = float((rewards[:BATCH] - own).abs().max() / max(1.0, float(own.std())))
    ours = taken["pessimal"]
    times = "".join(f"{seconds:9.2f}" for seconds in taken.values())
    ratios = "".join(f"{taken[name] / ours:8.2f}x" for name in ways if name != "pessimal")
    row = f"{str(dtype)[6:]:8} {length:2} {closing} |{times} | {WIDTH / ours:10.0f} |{ratios}"
    return f"{row} | {apart:.1e}"


def sweep(dtype: torch.dtype, length: int, closing: int) -> str:
    """The rate of an exhaustive sweep: token after token in place after place."""
    setting = Setting.of(dtype, closing, candidates=1)
    way, step = ways_of(setting)["pessimal"], Step(setting, length)
    step.move_on()
    rates = []
    for _ in range(3):
        started = time.perf_counter()
        for place in range(length):
            changed = step.response.repeat(SWEPT, 1)
            changed[:, place] = step.allowed.nonzero()[:SWEPT, 0]
            way.rewards(changed, anchor=step.response)
        rates.append(SWEPT * length / (time.perf_counter() - started))
    where = f"L = {length}, S = {closing}, {str(dtype)[6:]}"
    rate = f"{statistics.median(rates[1:]):.0f} candidates a second"
    return f"Exhaustive sweep, {where}: {rate} ({SWEPT} tokens in each place)"


def steps_on_request(dtype: str, length: str, closing: str) -> None:
    """Print what is needed to make the same network and prompt elsewhere; then the seconds of a
    step for every line read."""
    setting = Setting.of(getattr(torch, dtype), int(closing), candidates=1)
    made, config = tokenizer(0), setting.network.config
    keys = (*SIZES, "vocab_size", "pad_token_id")
    known = {
        "geometry": {key: getattr(config, key) for key in keys},
        "tokenizer": made.backend_tokenizer.to_str(),
        "template": made.chat_template,
        "prefix": PREFIX,
        "width": WIDTH,
        "top_k": TOP_K,
        "closing_id": int(setting.closing[-1]),
        "threads": torch.get_num_threads(),
    }
    print(json.dumps(known), flush=True)
    way, step = ways_of(setting)["pessimal"], Step(setting, int(length))
    for _ in sys.stdin:
        step.move_on()
        print(step(way)[0], flush=True)


HEAD = """\
              | seconds a step                      |            | pessimal against            |
              |            expanded cache           | candidates |            expanded cache   | largest
dtype     L S |     full    by 64  at once pessimal |   a second |     full    by 64  at once  | |Δ|, SD"""


def main() -> None:
    """Print the table."""
    print(f"Search: a step of {WIDTH} candidates, {PREFIX} + L + S tokens; {machine()}")
    print(HEAD)
    for dtype, closing in ((torch.float32, 1), (torch.float32, 4), (torch.bfloat16, 1)):
        for length in (8, 20):
            print(measure(dtype, length, closing), flush=True)
    print(sweep(torch.float32, 8, 1))


if __name__ == "__main__":
    keep_large_buffers()
    if sys.argv[1:2] == ["steps"]:
        steps_on_request(*sys.argv[2:])
    else:
        main()
