"""What the loop costs: Lightning's prediction loop with its shard writer against a bare loop over
the same engine.

python experiments/speed/loop.py
"""

import logging
import statistics
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import scan as speed
import torch

from pessimal.rewards.frame import Frame
from pessimal.rewards.spec import Dtype
from pessimal.scoring.candidates import Inputs, batches
from pessimal.scoring.loop import Loop, Pass
from pessimal.scoring.trainer import keep_large_buffers

CANDIDATES, ROUNDS = 8192, 5


def main() -> None:
    """Print one line."""
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    keep_large_buffers()
    setting = speed.Setting.of(torch.float32, 1, candidates=CANDIDATES)
    frame = Frame(setting.prompt, tuple(setting.prefix.tolist()), tuple(setting.closing.tolist()))
    own = torch.cat([setting.candidates, setting.closing.expand(CANDIDATES, -1)], dim=1).numpy()
    inputs = Inputs(
        prefix=frame.prefix,
        shared=np.full(CANDIDATES, len(frame.prefix), dtype=np.int32),
        rest=own.astype(np.int32).ravel(),
        ends=own.shape[1] * (np.arange(CANDIDATES) + 1),
        survives=None,
    )
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = pl.Trainer(accelerator="cpu", **dict.fromkeys(quiet, False))
    rows = np.arange(CANDIDATES)
    seconds: dict[str, list[float]] = {"loop": [], "bare": []}
    with tempfile.TemporaryDirectory() as folder:
        how = {"dtype": Dtype.float32, "texts": [""] * CANDIDATES, "label": "bench"}
        how |= {"folder": Path(folder), "loop": Loop(trainer, batch_size=512, progress=False)}
        passing = Pass(setting.network, frame, inputs, **how)
        passing.run(rows[:512], name="warm-up")
        scorer = passing.scorer
        for turn in range(ROUNDS):
            started = time.perf_counter()
            passing.run(rows, name=f"turn-{turn}")
            seconds["loop"].append(time.perf_counter() - started)
            started = time.perf_counter()
            with torch.inference_mode():
                for chosen in batches(inputs, size=512):
                    ids = torch.from_numpy(inputs.batch(chosen))
                    scorer.rewards(ids, shared=len(frame.prefix)).numpy()
            seconds["bare"].append(time.perf_counter() - started)
    loop, bare = (statistics.median(seconds[name]) for name in ("loop", "bare"))
    rates = f"{CANDIDATES / loop:.0f} candidates a second with Lightning and shards"
    alone = f"{CANDIDATES / bare:.0f} in a bare loop: {bare / loop:.3f} of its rate"
    print(f"Loop: {rates}, {alone} (median of {ROUNDS} turns)")


if __name__ == "__main__":
    main()
