"""How often a language model on this machine, as the judge of compliance (`judge=local`), puts
minimal pairs in the right order.

    python experiments/contrastive_explanations/judge_pairs.py [MODEL] [N]

MODEL as for `judge_model` (smollm2, where none is given); the first N of
`tests/explaining/minimal_pairs.jsonl`, all by default. Prints right/asked by attribute, and for all
of them with the interval of a binomial share.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from pessimal.config.compose import configuration, plain
from pessimal.explaining.attribute import Amount, read_attributes
from pessimal.explaining.judges import LikelihoodJudge
from pessimal.explaining.metrics import share_interval
from pessimal.rewards.named import language_model_of
from pessimal.rewards.obtain import fetch_files, open_model
from pessimal.scoring.texts import text_scorer

PAIRS = Path("tests/explaining/minimal_pairs.jsonl")


def main(name: str = "smollm2", n: str | None = None) -> None:
    config = configuration("explain")
    attributes = {one.name: one for one in read_attributes(plain(config)["contrast"])}
    pairs = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    pairs = [pair for pair in pairs if pair["attribute"] in attributes][: n and int(n)]
    asked = [
        (pair["prompt"], pair["less"], pair["more"], attributes[pair["attribute"]], Amount.more)
        for pair in pairs
    ]
    spec = language_model_of(name)
    judge = LikelihoodJudge(open_model(spec, fetch_files(spec, cache=config.paths.cache)))
    judge.scorer = text_scorer(judge.model, [], device=torch.device("cpu"))
    right = pd.Series([said is True for said in judge.judge(asked)])
    for attribute, own in right.groupby([pair["attribute"] for pair in pairs]):
        print(f"{attribute}: {own.sum()}/{len(own)}")
    low, high = share_interval(right, np.ones(len(right)), confidence=0.95)
    print(f"all: {right.sum()}/{len(right)}, {right.mean():.0%} ({low:.0%}–{high:.0%})")


if __name__ == "__main__":
    main(*sys.argv[1:])
