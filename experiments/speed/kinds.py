"""How fast a judge and an implicit reward are scored beside a reward head, per token that is run
through the layers.

One backbone for all (`scan.Setting`: 25 million parameters, 43 tokens before the response), the
shared prefix of each, in turns in one process; medians. A judge runs as many tokens as a head. An
implicit reward runs two networks, and at each position reads the whole output embedding (2,000 rows
here, 4 % of the arithmetic; a vocabulary of 128,000 takes more).
"""

import copy
from dataclasses import replace

import torch
from scan import PREFIX, Setting, machine, median_rates, shared_prefix
from transformers import LlamaForCausalLM

from pessimal.rewards.language import JudgeNetwork, SequenceNetwork
from pessimal.rewards.question import AnswerReading
from pessimal.scoring.engine import Decoder
from pessimal.scoring.sequence import SharedSequence
from pessimal.scoring.trainer import Lengths, find_batch_size, keep_large_buffers


def causal(setting: Setting, seed: int) -> LlamaForCausalLM:
    """A language model of the setting's shape."""
    torch.manual_seed(seed)
    config = copy.deepcopy(setting.network.config)
    return LlamaForCausalLM(config).to(setting.network.dtype).eval().requires_grad_(False)


def judge(setting: Setting):
    """Rewards (n,) of candidates (n, 1), by the shared prefix."""
    network = JudgeNetwork(causal(setting, 0), AnswerReading((7, 8), (9, 10)))
    return shared_prefix(replace(setting, network=network))


def implicit(setting: Setting):
    """The same of a policy and a reference, closing token included."""
    engines = [
        SharedSequence.from_prefix(
            Decoder.find(SequenceNetwork(causal(setting, seed))), setting.prefix
        )
        for seed in (0, 1)
    ]

    def rewards(ids: torch.Tensor) -> torch.Tensor:
        own = torch.cat([ids, setting.closing.expand(len(ids), -1)], dim=1)
        policy, reference = (engine.rewards(own, shared=PREFIX) for engine in engines)
        return policy - reference

    return rewards


@torch.inference_mode()
def measure(dtype: torch.dtype, closing: int) -> str:
    """One row: tokens a second of each, and their ratios to the head's."""
    setting = Setting.of(dtype, closing, candidates=2048)
    lengths = Lengths(1 + closing, PREFIX + 1 + closing)
    batch = find_batch_size(setting.network.config, lengths, device=torch.device("cpu"))
    # Tokens run for a candidate: an implicit reward's last is only predicted, by two networks.
    tokens = {"head": 1 + closing, "judge": 1 + closing, "implicit": 2 * closing}
    ways = (shared_prefix(setting), judge(setting), implicit(setting))
    parts = setting.candidates.split(batch)
    turns = [lambda way=way: [way(part) for part in parts] for way in ways]
    counts = {name: each * len(setting.candidates) for name, each in tokens.items()}
    rate = median_rates(dict(zip(tokens, turns, strict=True)), counts)
    rates = "".join(f"{value:10.0f}" for value in rate.values())
    ratios = f"{rate['judge'] / rate['head']:5.2f} {rate['implicit'] / rate['head']:8.2f}"
    return f"{str(dtype)[6:]:8} {closing} {batch:5} |{rates} | {ratios}"


def main() -> None:
    """Print the table."""
    keep_large_buffers()
    print(f"Kinds: tokens a second, {PREFIX} + 1 + S tokens; {machine()}")
    print("                 | tokens a second               | of the head's")
    print("dtype    S batch |      head     judge  implicit | judge implicit")
    for dtype in (torch.float32, torch.bfloat16):
        for closing in (1, 4):
            print(measure(dtype, closing), flush=True)


if __name__ == "__main__":
    main()
