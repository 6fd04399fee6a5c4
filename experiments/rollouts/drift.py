"""Does what the untrained policy's answers foretell grow in the training that follows?

    python experiments/forecast/reinforce.py draw
    python experiments/forecast/reinforce.py planted      # writes runs/forecast/planted-rollouts.jsonl
    python experiments/rollouts/drift.py planted

Answers in which both are beyond their errors, after Benjamini and Hochberg, are counted: how often
has the slope over the steps the sign of the covariance with the advantages before the training?
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from pessimal.rollout_analysis.drift import forecast_drift, measure_growth
from pessimal.rollout_analysis.features import make_features
from pessimal.statistics import LEVEL

FOLDER, GROUP = Path("runs/forecast"), 64
label = sys.argv[1]
drawn = json.loads((FOLDER / "drawn.json").read_text())["forecast"]
rewards = np.load(FOLDER / f"{label}-rewards.npy")
log = pd.read_json(FOLDER / f"{label}-rollouts.jsonl", lines=True)
log = log[log["completion"].str.strip().astype(bool)]
before = np.isfinite(rewards)
texts = [text for text, known in zip(drawn, before, strict=True) if known]
both = [*texts, *log["completion"]]
groups = np.append(np.arange(len(texts)) // GROUP, log["step"] + 1 + len(texts) // GROUP)
features = make_features(both, [log["prompt"].iloc[0]] * len(both), groups.astype(int))
early = np.arange(len(both)) < len(texts)


def part(rows: np.ndarray):
    """The features of some rows, and their groups from 0."""
    return features.part(rows), np.unique(groups[rows], return_inverse=True)[1]


drift = forecast_drift(*part(early), rewards[before])
growth = measure_growth(*part(~early), log["step"].to_numpy(float))
sure = (drift["p_corrected"] <= LEVEL) & (growth["p_corrected"] <= LEVEL)
same = np.sign(drift["drift"]) == np.sign(growth["slope"])
table = pd.DataFrame(
    {"feature": drift["feature"], "drift": drift["drift"], "slope": growth["slope"], "same": same}
)
print(table[sure].sort_values("slope").to_string())
print(f"{label}: {int(same[sure].sum())} of {int(sure.sum())} features have the foretold sign")
