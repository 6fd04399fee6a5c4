"""How fast the released nanoGCG makes a step, beside pessimal on the same network and prompt, turn
by turn.

Runs in nanoGCG's own environment, which has an older transformers, and asks `search.py` in
pessimal's for its steps:

    PYTHON_OF_NANOGCG nanogcg_yardstick.py PYTHON_OF_PESSIMAL [DTYPE]

Same geometry, same prompt, one token to forecast where pessimal has one closing token, so both run
equally many. What nanoGCG maximises is a language model's log-probability of a target, so each of
its tokens also meets the whole vocabulary: 4 % of the arithmetic here. The column "8 outputs"
leaves that out, by an output layer of 8 rows. It scores all 512 candidates at once; "64 at once" is
the batch that suits a CPU. Its check that ids survive as text is off.
"""

import json
import logging
import os
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("TQDM_DISABLE", "1")  # nanoGCG's bar

import torch
import transformers
from nanogcg import GCGConfig
from nanogcg.gcg import GCG
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

ROUNDS, CLOSING = 3, 1
LENGTHS = (20, 8)
WAYS = {
    # the released defaults; (batch size, rows of the output layer), None for as many as there are
    "released": (None, None),
    "64 at once": (64, None),
    "8 outputs": (64, 8),
}


class Pessimal:
    """pessimal's own steps, one for each time it is asked, by `search.py` in a process and an
    environment of its own."""

    def __init__(self, python: str, dtype: str, length: int):
        search = str(Path(__file__).with_name("search.py"))
        command = [python, search, "steps", dtype, str(length), str(CLOSING)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, **pipes)
        self.known = json.loads(self._line())
        """What it takes to make the same network and prompt here."""

    def step(self) -> float:
        """Seconds of one step."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self._line())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()

    def _line(self) -> str:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("pessimal's process ended; what it said stands above")
        return line


class Clocked(GCG):
    """nanoGCG, whose steps are timed from gradient to gradient; pessimal makes one of its own
    between any two."""

    def __init__(self, *arguments, pessimal: Pessimal):
        super().__init__(*arguments)
        self.pessimal = pessimal
        self.seconds: list[float] = []
        self.beside: list[float] = []
        """Seconds of pessimal's step before each of these."""
        self.started: float | None = None
        self.searched: torch.Tensor | None = None
        """The ids (1, L) that are searched."""

    def compute_token_gradient(self, optim_ids: torch.Tensor) -> torch.Tensor:
        self.stop()
        self.searched = optim_ids
        self.beside.append(self.pessimal.step())
        self.started = time.perf_counter()
        return super().compute_token_gradient(optim_ids)

    def stop(self) -> None:
        """The step in progress has ended."""
        if self.started is not None:
            self.seconds.append(time.perf_counter() - self.started)


def network(known: dict, dtype: torch.dtype, outputs: int | None) -> LlamaForCausalLM:
    """A random language model of the same sizes as pessimal's reward model, with so many rows in
    its output layer."""
    torch.manual_seed(0)
    made = LlamaForCausalLM(LlamaConfig(**known["geometry"])).to(dtype).eval().requires_grad_(False)
    if outputs is not None:
        made.lm_head = torch.nn.Linear(made.config.hidden_size, outputs, bias=False, dtype=dtype)
    return made


def tokenizer(known: dict) -> PreTrainedTokenizerFast:
    """pessimal's tokenizer and template, without the closing token, which is the target here."""
    made = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(known["tokenizer"]),
        bos_token="<bos>",
        pad_token="<pad>",
    )
    made.chat_template = known["template"]
    return made


def measure(pessimal: Pessimal, way: str, dtype: torch.dtype, length: int) -> tuple[float, float]:
    """Median seconds of a step of nanoGCG, and of pessimal's beside it."""
    known, (batch, outputs) = pessimal.known, WAYS[way]
    config = GCGConfig(
        num_steps=ROUNDS + 1,  # the first warms up
        optim_str_init="ab" * length,
        search_width=known["width"],
        topk=known["top_k"],
        batch_size=batch,
        filter_ids=False,
        allow_non_ascii=True,
        # No seed: with one, nanoGCG asks torch for deterministic algorithms, which fill all memory
        # before they use it.
    )
    torch.manual_seed(0)
    clocked = Clocked(network(known, dtype, outputs), tokenizer(known), config, pessimal=pessimal)
    turns = [
        {"role": "user", "content": "#" * (known["prefix"] - 2)},  # and the two tokens of the roles
        {"role": "assistant", "content": "{optim_str}"},
    ]
    clocked.run(turns, clocked.tokenizer.decode([known["closing_id"]]))
    clocked.stop()
    parts = (clocked.before_embeds, clocked.searched, clocked.after_embeds, clocked.target_ids)
    found, expected = [part.shape[1] for part in parts], [known["prefix"], length, 0, CLOSING]
    if found != expected:
        raise SystemExit(f"nanoGCG ran {found} tokens, pessimal {expected}: not comparable")
    return statistics.median(clocked.seconds[1:]), statistics.median(clocked.beside[1:])


def main(python: str, dtype: str = "float32") -> None:
    """Print the table."""
    logging.getLogger("nanogcg").setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()
    print(
        f"Search: candidates a second of a whole step, {dtype}; nanoGCG {version('nanogcg')} with "
        f"transformers {transformers.__version__}, torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}"
    )
    print(" L  nanoGCG's way |   nanoGCG  pessimal | ratio")
    for length in LENGTHS:
        pessimal = Pessimal(python, dtype, length)
        width = pessimal.known["width"]
        for way in WAYS:
            theirs, ours = measure(pessimal, way, getattr(torch, dtype), length)
            rates = f"{width / theirs:9.1f} {width / ours:9.1f} | {theirs / ours:4.1f}x"
            print(f"{length:2}  {way:13} | {rates}", flush=True)
        pessimal.close()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
