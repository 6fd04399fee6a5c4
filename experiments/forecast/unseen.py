"""What share of an optimised policy its unwritten answers could take, by a sibling's ceiling; after
`reinforce.py draw`.

python experiments/forecast/unseen.py
"""

import json
from collections import Counter

import numpy as np

import pessimal
from pessimal.analyses import Options
from pessimal.analyses.forecast import forecast
from pessimal.scoring.candidates import Candidates, item_candidates
from pessimal.tables.score_table import drawn_from

with open("runs/forecast/drawn.json", encoding="utf-8") as file:
    whole = json.load(file)["forecast"]
model = pessimal.load("plain-bpe-0")
for label, texts in {
    "whole answers": whole,
    "first words": [(text.split() or [""])[0] for text in whole],
}.items():
    counts = Counter(text for text in texts if text)
    rows = item_candidates(list(counts), name=drawn_from("smollm2")).rows
    answers = Candidates("answers", rows.assign(drawn=np.array(list(counts.values()))))
    table = pessimal.scan(model, "greatest", candidates=answers, states=False)
    print(label, len(counts), "different; ceiling", table.measured["ceiling"]["high"])
    path = forecast(None, table, Options(meanings=None))["forecast"]
    print(path[["way", "kl", "support", "unseen", "policy_deviation"]].round(3).to_string())
