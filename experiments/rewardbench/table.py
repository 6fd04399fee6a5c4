"""Writes docs/rewardbench.md from models.csv: which of RewardBench's registered models load, as
what, and by which command.

    python experiments/rewardbench/table.py

models.csv was made by hand from the registry's names and kinds (allenai/reward-bench at commit
5822f16, scripts/configs/eval_configs.yaml and rewardbench/models/__init__.py). Its columns: the
model; what RewardBench registers it as; `model.kind` here; the head (a file of
src/pessimal/rewards/heads, or encoder, own code); the reference of an implicit reward;
`model.output` of several; a file of conf/model; what has to be prepared; whether it loads; why not.
"""

import csv
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/rewardbench.md"
LOADS = {"yes": "yes", "prepared": "once prepared", "no": "no"}
NEEDS = {
    "weights": "[safetensors](#weights-as-safetensors)",
    "template": "[a chat template](#a-chat-template)",
    "tokenizer": "[a tokenizer](#a-tokenizer-from-elsewhere)",
    "package": "a package of its own: `experiments/pairrm/README.md`",
    "hf": "its `-hf` repository, for transformers",
}
INTRODUCTION = """# RewardBench's models

RewardBench 1 and 2 (Lambert et al. 2024, Malik et al. 2025) register {n} models. {loads} of them load here: {yes} as they are,
{prepared} once something is prepared; {no} do not. By what RewardBench registers them as:

{counts}

*Loads* means: architecture and head are read natively (tests/rewards), from the names of the weights that the published code
shows. No model could be fetched where this was written, so run [check](verbs/check.md) first. Where RewardBench writes a chat
template of its own, pessimal takes the tokenizer's.

"""
PREPARATION = """
## What has to be prepared

### Weights as safetensors

Weights are read from nothing else. Where a repository has only pickles (known of those marked; not looked up for all):

```python
# AutoModelForCausalLM for an implicit reward
from transformers import AutoModelForSequenceClassification, AutoTokenizer

AutoModelForSequenceClassification.from_pretrained(ID, revision=REVISION).save_pretrained(DIR)
AutoTokenizer.from_pretrained(ID, revision=REVISION).save_pretrained(DIR)
```

and `model.path=DIR`. Starling-RM-7B-alpha comes without a configuration; its weights become a checkpoint by

```python
import torch
from huggingface_hub import snapshot_download
from pathlib import Path
from safetensors.torch import save_file
from transformers import AutoConfig

file = next(Path(snapshot_download("berkeley-nest/Starling-RM-7B-alpha")).glob("*.[pb][ti]*"))
weights = torch.load(file, map_location="cpu", weights_only=True)
kept = {k: v.clone() for k, v in weights.items() if k.startswith(("transformer.", "v_head."))}
AutoConfig.from_pretrained("meta-llama/Llama-2-7b-chat-hf").save_pretrained(DIR)
save_file(kept, f"{DIR}/model.safetensors")
```

### A chat template

Without one there is no slot for a response. Give the tokenizer the one that the model was trained with, and the folder as
`model.path`:

```python
tokenizer.chat_template = "…"
tokenizer.save_pretrained(DIR)
```

The files in `conf/model` of Beaver and Starling name theirs.

### A tokenizer from elsewhere

Starling's repositories have none of their own: the 7B model was trained with Llama 2's (`meta-llama/Llama-2-7b-chat-hf`), the
34B model with Yi's (`01-ai/Yi-34B-Chat`), as RewardBench has it. Save it into the folder that `model.path` names.
"""


def rows() -> list[dict[str, str]]:
    """The rows of models.csv."""
    with (HERE / "models.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def command(row: dict[str, str]) -> str:
    """What to type for a model."""
    if row["preset"]:
        other = " model.judge.opponent=TEXT" * row["preset"].startswith("pair-")
        return f"model={row['preset']}{other}"
    path = row["model"] + ("-hf" if "hf" in row["needs"].split() else "")
    if row["kind"] == "implicit":
        return f"model=implicit model.path={path} model.implicit.reference={row['reference']}"
    typed = f"model=auto model.path={path}"
    if row["kind"] == "pairrm":
        typed += " model.kind=pairrm model.opponent=TEXT"
    if row["output"]:
        typed += f" model.output={row['output']}"
    if row["head"] == "own code":
        typed += " model.trust_remote_code=true model.revision=COMMIT"
    return typed


def counted(table: list[dict[str, str]]) -> str:
    """How many of each registered kind load."""
    lines = ["| registered as | models | load | once prepared | do not |", "|---|---|---|---|---|"]
    for kind in sorted({row["registered"] for row in table}):
        own = Counter(row["loads"] for row in table if row["registered"] == kind)
        lines.append(f"| {kind} | {own.total()} | {own['yes']} | {own['prepared']} | {own['no']} |")
    total = Counter(row["loads"] for row in table)
    lines.append(
        f"| all | {total.total()} | {total['yes']} | {total['prepared']} | {total['no']} |"
    )
    return "\n".join(lines)


def page(table: list[dict[str, str]]) -> str:
    """The page, in Markdown."""
    total = Counter(row["loads"] for row in table)
    text = INTRODUCTION.format(
        n=len(table), loads=total["yes"] + total["prepared"], counts=counted(table), **total
    )
    text += "| model | registered as | kind | head | type | loads | needs, or why not |\n|---|---|---|---|---|---|---|\n"
    for row in table:
        note = row["why"] or ", ".join(NEEDS[need] for need in row["needs"].split())
        typed = "" if row["loads"] == "no" else f"`{command(row)}`"
        cells = [
            row["model"],
            row["registered"],
            row["kind"],
            row["head"],
            typed,
            LOADS[row["loads"]],
            note,
        ]
        text += "| " + " | ".join(cells) + " |\n"
    return text + PREPARATION


if __name__ == "__main__":
    PAGE.write_text(page(rows()))
    print(counted(rows()))
    print(PAGE)
