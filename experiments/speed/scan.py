"""How fast candidates are scored: the ways of doing it, side by side in one process.

The ways take turns, ROUNDS times; medians of candidates a second and their ratios are printed. A
random Llama with 25 million parameters besides its embedding; a conversation whose prefix has 43
tokens, one candidate token and S closing ones. Imports only torch and transformers, and what of
pessimal needs no more.
"""

import copy
import itertools
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    DynamicCache,
    LlamaConfig,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)

from pessimal.scoring.engine import Decoder, SharedPrefix, own_rewards, run_prefix
from pessimal.scoring.trainer import Lengths, find_batch_size, keep_large_buffers

PREFIX, ROUNDS, FULL_BATCH = 43, 7, 64


def tokenizer(closing: int) -> PreTrainedTokenizerFast:
    """Bytes and 1,740 made-up words; a template that trims, begins with a BOS and ends with
    `closing` tokens."""
    specials = ["<bos>", "<pad>", "<user>", "<assistant>", "<end>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = list(itertools.product("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP", repeat=2))
    words = ["".join(pair) for pair in pairs[: 2000 - len(specials) - len(letters)]]
    vocabulary = {token: i for i, token in enumerate([*specials, *letters, *words])}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs[: len(words)]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<bos>",
        pad_token="<pad>",
        additional_special_tokens=specials[2:],
    )
    turn = "<{{ m['role'] }}>{{ m['content'] | trim }}"
    made.chat_template = "{{ bos_token }}{% for m in messages %}" + turn + "{% endfor %}"
    made.chat_template += "<end>" * closing
    return made


SIZES = {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 9}
SIZES |= {"num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 512}


def network(dtype: torch.dtype, **sizes: int) -> LlamaForSequenceClassification:
    """A random Llama reward model with 25.2 million parameters besides its 2,000-token
    embedding, or of other `sizes`."""
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=2000, num_labels=1, pad_token_id=1, **SIZES | sizes)
    made = LlamaForSequenceClassification(config).to(dtype).eval().requires_grad_(False)
    made.reward_output = 0
    return made


def median_rates(ways: dict[str, Callable[[], object]], counts: dict[str, int]) -> dict[str, float]:
    """Things a second of each way, which takes `counts` of them a turn: medians of ROUNDS turns."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS + 1):  # the first round warms up
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            rates[name].append(counts[name] / (time.perf_counter() - started))
    return {name: statistics.median(values[1:]) for name, values in rates.items()}


def turns(prompt: str, response: str) -> list[dict[str, str]]:
    """A conversation."""
    contents = {"user": prompt, "assistant": response}
    return [{"role": role, "content": content} for role, content in contents.items()]


@dataclass
class Setting:
    """One network, one frame, candidates to score."""

    network: LlamaForSequenceClassification
    tokenizer: PreTrainedTokenizerFast
    prompt: str
    prefix: torch.Tensor  # (P,)
    closing: torch.Tensor  # (S,)
    candidates: torch.Tensor  # (n, 1)

    @classmethod
    def of(cls, dtype: torch.dtype, closing: int, *, candidates: int) -> "Setting":
        made, prompt = tokenizer(closing), "#" * (PREFIX - 3)
        ids = made.apply_chat_template(turns(prompt, "ab"), return_dict=False)
        first, generator = len(made.all_special_ids), torch.Generator().manual_seed(0)
        chosen = torch.randint(first, 2000, (candidates, 1), generator=generator)
        ends = torch.tensor(ids[:PREFIX]), torch.tensor(ids[PREFIX + 1 :])
        return cls(network(dtype), made, prompt, *ends, chosen)


def published(setting: Setting, ids: torch.Tensor) -> torch.Tensor:
    """As in the published code: decode each id, template it, tokenise the text again, pad, one full
    forward."""
    texts = [setting.tokenizer.decode([i]) for i in ids[:, 0].tolist()]
    template = partial(setting.tokenizer.apply_chat_template, tokenize=False)
    conversations = [template(turns(setting.prompt, text)) for text in texts]
    padded = {"padding": True, "return_tensors": "pt", "return_token_type_ids": False}
    return setting.network(**setting.tokenizer(conversations, **padded)).logits[:, 0]


def full_forward(setting: Setting, ids: torch.Tensor) -> torch.Tensor:
    """The network's own forward on prepared ids."""
    n = len(ids)
    whole = torch.cat([setting.prefix.expand(n, -1), ids, setting.closing.expand(n, -1)], dim=1)
    return own_rewards(setting.network, whole)


class CopiedCache:
    """The prefix cached once, its keys and values repeated for every candidate of a batch."""

    def __init__(self, setting: Setting):
        self.setting, self.decoder = setting, Decoder.find(setting.network)
        self.cache = DynamicCache(config=setting.network.config)
        setting.network.model(setting.prefix[None], past_key_values=self.cache, use_cache=True)

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        cache = copy.deepcopy(self.cache)
        cache.batch_repeat_interleave(len(ids))
        own = torch.cat([ids, self.setting.closing.expand(len(ids), -1)], dim=1)
        output = self.setting.network.model(own, past_key_values=cache, use_cache=True)
        return self.decoder.head.read(output.last_hidden_state[:, -1].float(), None)


def shared_prefix(setting: Setting):
    """The scan's own engine."""
    decoder = Decoder.find(setting.network)
    engine = SharedPrefix(decoder, run_prefix(decoder.backbone, setting.prefix)[0])

    def rewards(ids: torch.Tensor) -> torch.Tensor:
        own = torch.cat([ids, setting.closing.expand(len(ids), -1)], dim=1)
        return engine.rewards(own, shared=len(setting.prefix))

    return rewards


def linear_layers(setting: Setting):
    """The linear layers alone, on as many tokens as the shared prefix runs: what the arithmetic
    itself takes."""
    layers = [m for m in setting.network.model.modules() if isinstance(m, torch.nn.Linear)]
    width = 1 + len(setting.closing)
    inputs: dict[tuple[int, int], torch.Tensor] = {}

    def run(ids: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            key = (len(ids) * width, layer.in_features)
            if key not in inputs:
                inputs[key] = torch.randn(key).to(layer.weight.dtype)
            layer(inputs[key])
        return torch.zeros(len(ids))

    return run


@torch.inference_mode()
def measure(dtype: torch.dtype, closing: int) -> str:
    """One row of the table."""
    lengths = Lengths(1 + closing, PREFIX + 1 + closing)
    setting = Setting.of(dtype, closing, candidates=4096)
    batch = find_batch_size(setting.network.config, lengths, device=torch.device("cpu"))
    ways = {
        # (way, batch, candidates a turn): the slow ones score fewer, so that the turns are of like
        # length
        "published": (lambda ids: published(setting, ids), FULL_BATCH, FULL_BATCH),
        "full": (lambda ids: full_forward(setting, ids), FULL_BATCH, FULL_BATCH),
        "copied": (CopiedCache(setting), 256, 512),
        "shared": (shared_prefix(setting), batch, max(batch, 1024)),
        "linear": (linear_layers(setting), batch, max(batch, 1024)),
    }
    rewards = {}

    def take_turn(name: str) -> None:
        way, size, count = ways[name]
        rewards[name] = torch.cat([way(part) for part in setting.candidates[:count].split(size)])

    calls = {name: partial(take_turn, name) for name in ways}
    rate = median_rates(calls, {name: count for name, (_, _, count) in ways.items()})
    rows = setting.candidates[:FULL_BATCH].split(1)
    own = torch.cat([full_forward(setting, row) for row in rows])
    apart = float((rewards["shared"][:FULL_BATCH] - own).abs().max() / max(1.0, float(own.std())))
    ceiling = (PREFIX + 1 + closing) / (1 + closing)
    shared = rate["shared"]
    rates = "".join(f"{rate[name]:10.0f}" for name in ways)
    against = {name: shared / value for name, value in rate.items()}
    return (
        f"{str(dtype)[6:]:8} {closing} {batch:5} |{rates} | {against['published']:9.1f}x "
        f"{against['full']:5.1f}x {against['copied']:7.2f}x | {ceiling:5.1f} "
        f"{against['full'] / ceiling:5.2f} | {against['linear']:9.2f} | {apart:.1e}"
    )


def machine() -> str:
    """The version, threads and load on which the numbers depend."""
    threads, load = torch.get_num_threads(), os.getloadavg()[0]
    return f"torch {torch.__version__}, {threads} threads, load {load:.1f}"


HEAD = """\
                 | candidates a second                              | shared prefix against         | token ratio | of the   | largest
dtype    S batch | published      full    copied    shared    linear | published   full   copied |    is  part |   linear | |Δ|, SD"""


def main() -> None:
    """Print the table."""
    keep_large_buffers()
    print(f"Scan: candidates a second, {PREFIX} + 1 + S tokens; {machine()}")
    print(HEAD)
    for dtype in (torch.float32, torch.bfloat16):
        for closing in (1, 4):
            print(measure(dtype, closing), flush=True)


if __name__ == "__main__":
    main()
