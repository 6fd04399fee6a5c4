"""Seconds and memory of an analysis of so many rollouts: the Olmo file, with its words in part
replaced where there are more than it has.

    python experiments/rollouts/speed.py 10000 [--shared ../shared]
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from pessimal import rollouts

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("size", type=int)
parser.add_argument("--shared", type=Path, default=Path("../shared"))
options = parser.parse_args()
frame = pd.read_parquet(options.shared / "data/rollouts/olmo3_7b_chain_sum.parquet")
frame = frame[frame["step"] < 10].reset_index(drop=True)
random, parts = np.random.default_rng(0), []
for copy in range(-(-options.size // len(frame))):
    part = frame.assign(prompt=f"{copy} " + frame["prompt"])
    if copy:  # another text of the same words, so that no copy is a duplicate
        texts = [text.split(" ") for text in frame["completion"]]
        part["completion"] = [" ".join(words[random.integers(3) :]) for words in texts]
    parts.append(part)
sample = pd.concat(parts, ignore_index=True)[: options.size]
words = sample["completion"].str.split().str.len().mean()
with tempfile.TemporaryDirectory() as cache:
    start, used = time.time(), time.process_time()
    results = rollouts(sample, cache=cache)
    wall, processor = time.time() - start, time.process_time() - used
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
print(results)
print(
    f"{len(sample):,} rollouts of {words:.0f} words: {wall:.0f} s, {processor:.0f} s of processor time, {peak:.1f} GB"
)
