"""How often a detector says that layout alone moved a text: plain answers, laid out in many ways.

    PYTHONPATH=. python experiments/contrastive_explanations/layout.py RM_BENCH.json

RM_BENCH.json is a file of THU-KEG/RM-Bench; the first 40 answers of four sentences or more without
line breaks and marks are taken.
"""

import json
import re
import sys
import textwrap
from pathlib import Path

import pandas as pd

from pessimal.explaining.attribute import Amount, Attribute
from pessimal.explaining.detectors import DETECTORS, RuleJudge, split_sentences

N = 40
LAYOUTS = {
    "line breaks": "\n".join,
    "blank lines": "\n\n".join,
    "list": lambda parts: "\n".join(f"- {one}" for one in parts),
    "numbers": lambda parts: "\n".join(f"{i}. {one}" for i, one in enumerate(parts, 1)),
    "stars": lambda parts: "\n".join(f"* {one}" for one in parts),
    "bold words": lambda parts: " ".join(bold(one) for one in parts),
    "bold list": lambda parts: "\n".join(f"- {bold(one)}" for one in parts),
    "italics": lambda parts: " ".join(f"*{one}*" for one in parts),
    "heading": lambda parts: "### Answer\n" + " ".join(parts),
    "heading, blank line": lambda parts: "# Overview\n\n" + " ".join(parts) + "\n",
    "bold heading": lambda parts: "**Answer:**\n\n" + " ".join(parts),
    "quotation": lambda parts: "\n".join(f"> {one}" for one in parts),
    "rule": lambda parts: " ".join(parts) + "\n\n---\n",
    "wrapped": lambda parts: textwrap.fill(" ".join(parts), 60),
    "code": lambda parts: re.sub(r"\b(\w{7,})\b", r"`\1`", " ".join(parts), count=2),
}


def bold(sentence: str) -> str:
    """A sentence with its first two words in bold."""
    return re.sub(r"^(\S+ \S+)", r"**\1**", sentence)


def main(path: str) -> None:
    """Print the share of readings that each layout moves, of content and of `markdown`."""
    answers = [
        (row["prompt"], text.strip())
        for row in json.loads(Path(path).read_text())
        for text in row["chosen"] + row["rejected"]
        if not re.search(r"[\n*#`|]", text.strip()) and len(split_sentences(text)) >= 4
    ]
    plain = list(dict(answers).items())[:N]
    rows, items = [], []
    for layout, lay_out in LAYOUTS.items():
        for prompt, text in plain:
            for name in DETECTORS:
                for way in Amount:
                    laid_out = lay_out(list(split_sentences(text)))
                    items.append((prompt, text, laid_out, Attribute(name, "", 1), way))
                    rows.append((layout, "markdown" if name == "markdown" else "content"))
    table = pd.DataFrame(rows, columns=["layout", "reads"])
    table["moved"] = pd.Series(RuleJudge().judge(items), dtype=object).fillna(False).astype(bool)
    shares = 2 * table.groupby(["layout", "reads"], sort=False)["moved"].mean().unstack()
    print(f"{len(plain)} answers; share of readings moved either way")
    print(shares.round(3).to_string())
    print(f"content, all layouts: {shares['content'].mean():.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
