"""How long `pessimal compare` takes, whole, at the paper's size: ten models, 128,000 tokens each.

python experiments/speed/compare.py [PROMPTS]     # 1 (default) to 3 of greatest, best, worst

The tokens are the most frequent English words (wordfreq) with and without a space ahead and in capitals, as in a
byte-level vocabulary; rewards are a common part, a part of a family's and noise. The command runs as a person runs it,
in a process of its own; what is printed are its seconds and its peak memory.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import wordfreq

from pessimal.tables import ModelDescription, ScoreIdentity, ScoreTable, write_score_table

MODELS, TOKENS = 10, 128_000
SIGNS = {"greatest": 1, "best": 1, "worst": -1}


def vocabulary() -> list[str]:
    """So many distinct texts: words as ' love', 'love', ' Love', and so on down the list."""
    words = wordfreq.top_n_list("en", TOKENS // 2)
    texts = [form for word in words for form in (f" {word}", word, f" {word.title()}")]
    return list(dict.fromkeys(texts))[:TOKENS]


def tables(folder: Path, prompts: list[str]) -> None:
    """Write a score table for each model and prompt."""
    random = np.random.default_rng(0)
    texts = vocabulary()
    rows = pd.DataFrame(
        {
            "candidate_id": np.arange(TOKENS, dtype=np.int32),
            "token": texts,
            "text": texts,
            "kind": "normal",
            "survives": pd.array([True] * TOKENS, dtype="boolean"),
            "certified": True,
        }
    )
    common, families = random.normal(size=TOKENS), random.normal(size=(3, TOKENS))
    for number in range(MODELS):
        own = random.normal(size=TOKENS)
        for prompt in prompts:
            taste = 0.5 * families[number % 3] + 0.5 * own + 0.3 * random.normal(size=TOKENS)
            identity = ScoreIdentity(
                model=f"model-{number}",
                prompt=prompt,
                prompt_text=f"What, in one word, is the {prompt} thing ever?",
                candidates="vocabulary",
                candidates_digest="one vocabulary",
                mode="ids",
                source="scan",
                dtype="float32",
            )
            description = ModelDescription(
                base=f"base-{number % 2}",
                developer=f"lab-{number % 3}",
                parameters=2e9 * (1 + number % 4),
                rank=number + 1,
            )
            rewards = (SIGNS[prompt] * common + taste).astype(np.float32).astype(float)
            table = ScoreTable(identity, rows.assign(reward=rewards), description)
            write_score_table(table, folder / f"{number}-{prompt}.parquet")


def main() -> None:
    """Print one line."""
    prompts = list(SIGNS)[: int(sys.argv[1]) if len(sys.argv) > 1 else 1]
    with tempfile.TemporaryDirectory() as folder:
        tables(Path(folder), prompts)
        command = [sys.executable, "-m", "pessimal", "compare", f"tables={folder}/*.parquet"]
        command += ["tracking=off", "progress=false", f"paths.root={folder}/runs"]
        started = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True)
        seconds = time.perf_counter() - started
    if done.returncode:
        sys.exit(done.stderr)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20  # KiB on Linux
    print(
        f"Compare: {MODELS} models × {TOKENS:,} tokens on {', '.join(prompts)}, every table, interval and figure: "
        f"{seconds:.0f} s, {peak:.1f} GiB in its largest process"
    )


if __name__ == "__main__":
    main()
