"""Seconds and memory of an analysis of so many rollouts of 400 words on average: the Olmo file, its
texts cut for that, and without their first words where there are more than it has.

    python experiments/rollouts/speed.py 10000 [--shared ../shared]
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

WORDS = 700
MEASURED = """
import sys, time
from pessimal import rollouts
start, used = time.time(), time.process_time()
print(*rollouts(sys.argv[1], cache=sys.argv[2]), sep="\\n")
print(f"{time.time() - start:.0f} s, {time.process_time() - used:.0f} s of processor time")
"""


def make_sample(shared: Path, size: int) -> pd.DataFrame:
    """Rollouts of `WORDS` words or less."""
    frame = pd.read_parquet(shared / "data/rollouts/olmo3_7b_chain_sum.parquet")
    frame = frame[frame["step"] < 10].reset_index(drop=True)
    random, parts = np.random.default_rng(0), []
    texts = [text.split(" ") for text in frame["completion"]]
    for copy in range(-(-size // len(frame))):
        part = frame.assign(prompt=f"{copy} " + frame["prompt"])
        starts = random.integers(3, size=len(texts)) * (copy > 0)  # so that none is a duplicate
        parts.append(
            part.assign(
                completion=[
                    " ".join(w[at : at + WORDS]) for w, at in zip(texts, starts, strict=True)
                ]
            )
        )
    return pd.concat(parts, ignore_index=True)[:size]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("size", type=int)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rollouts.parquet"
        sample = make_sample(options.shared, options.size)
        sample.to_parquet(file)
        words = sample["completion"].str.split().str.len().mean()
        print(f"{len(sample):,} rollouts of {words:.0f} words", flush=True)
        start = time.time()
        subprocess.run([sys.executable, "-c", MEASURED, str(file), folder], check=True)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
        print(f"{time.time() - start:.0f} s with imports, {peak:.1f} GB")
