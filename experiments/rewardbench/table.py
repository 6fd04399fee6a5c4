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
NEEDS = {
    "weights": "[safetensors](#weights-as-safetensors)",
    "template": "[a chat template](#a-chat-template)",
    "tokenizer": "[a tokenizer](#a-tokenizer-from-elsewhere)",
    "package": "a package of its own: `experiments/pairrm/README.md`",
    "hf": "its `-hf` repository, for transformers",
}
INTRODUCTION = """# RewardBench's models

RewardBench 1 and 2 (Lambert et al. 2024, Malik et al. 2025) register {n} models. {yes} load here as they are, {prepared} once
something is prepared, and {no} do not. *Loads* means that architecture and head are read natively, from the names of the
weights in the published code. No model could be fetched where this was written: run [check](verbs/check.md) first. If
RewardBench writes a chat template of its own, pessimal takes the tokenizer's. Heads and kinds of all models are in
`experiments/rewardbench/models.csv`.

"""
PAIRS = """## Implicit rewards

Type `model=implicit model.path=POLICY model.implicit.reference=REFERENCE`.

"""
PREPARATION = """
## What has to be prepared

### Weights as safetensors

Weights are read from nothing else. If a repository has only pickles (not looked up for all of them), convert once and type
`model.path=DIR`:

```python
# AutoModelForCausalLM for an implicit reward
from transformers import AutoModelForSequenceClassification, AutoTokenizer

AutoModelForSequenceClassification.from_pretrained(ID, revision=REVISION).save_pretrained(DIR)
AutoTokenizer.from_pretrained(ID, revision=REVISION).save_pretrained(DIR)
```

Starling-RM-7B-alpha has no configuration. Its weights become a checkpoint so:

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

Without one there is no slot for a response. Give the tokenizer the template that the model was trained with, and type
`model.path=DIR`. The files in `conf/model` of Beaver and Starling name theirs.

```python
tokenizer.chat_template = "…"
tokenizer.save_pretrained(DIR)
```

### A tokenizer from elsewhere

Starling's repositories have no tokenizer. As in RewardBench, the 7B model takes Llama 2's (`meta-llama/Llama-2-7b-chat-hf`), the
34B model Yi's (`01-ai/Yi-34B-Chat`). Save it into the folder that `model.path` names.
"""


def rows() -> list[dict[str, str]]:
    """The rows of models.csv."""
    with (HERE / "models.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def command(row: dict[str, str]) -> str:
    """What to type for a model that is no implicit reward."""
    typed = f"model={row['model']}"
    if row["preset"].startswith("pair-"):
        typed += " model.judge.opponent=TEXT"
    if row["kind"] == "pairrm":
        typed += " model.kind=pairrm model.opponent=TEXT"
    if row["output"] and not row["preset"]:
        typed += f" model.output={row['output']}"
    if row["head"] == "own code":
        typed += " model.trust_remote_code=true model.revision=COMMIT"
    return typed


def needs(row: dict[str, str]) -> str:
    """What has to be prepared for a model, as links to the sections."""
    return ", ".join(NEEDS[need] for need in row["needs"].split())


def table_of(columns: str, lines: list[list[str]]) -> str:
    """A table with these columns."""
    head = [f"| {columns} |", "|---" * (columns.count("|") + 1) + "|"]
    return "\n".join([*head, *("| " + " | ".join(cells) + " |" for cells in lines)]) + "\n\n"


def block_of(lines: list[list[str]]) -> str:
    """A block of text, its columns below one another."""
    width = max(len(cells[0]) for cells in lines)
    rows = [" ".join([cells[0].ljust(width), *cells[1:]]).rstrip() for cells in lines]
    return "\n".join(["```text", *rows, "```", "", ""])


def page(table: list[dict[str, str]]) -> str:
    """The page, in Markdown: models by what one has to type and to prepare."""
    load = [row for row in table if row["loads"] != "no"]
    pairs = [row for row in load if row["kind"] == "implicit"]
    others = [row for row in load if row["kind"] != "implicit"]
    plain = [row for row in others if command(row) == f"model={row['model']}"]
    typed = [row for row in others if row not in plain]
    text = INTRODUCTION.format(n=len(table), **Counter(row["loads"] for row in table))
    text += "## By their repository\n\nType `model=REPOSITORY`.\n\n"
    text += block_of([[row["model"]] for row in plain if not row["needs"]])
    text += table_of(
        "repository | prepare", [[row["model"], needs(row)] for row in plain if row["needs"]]
    )
    text += "## By another command\n\n" + table_of(
        "type | prepare", [[f"`{command(row)}`", needs(row)] for row in typed]
    )
    text += PAIRS + block_of([[policy(row), row["reference"]] for row in pairs])
    text += "To prepare first:\n\n"
    text += "".join(f"- {policy(row)}: {needs(row)}\n" for row in pairs if row["needs"]) + "\n"
    text += "## Not loaded\n\n" + table_of(
        "repository | why", [[row["model"], row["why"]] for row in table if row not in load]
    )
    return text.rstrip("\n") + "\n" + PREPARATION


def policy(row: dict[str, str]) -> str:
    """The repository of an implicit reward's policy."""
    return row["model"] + "-hf" * (row["needs"] == "hf")


if __name__ == "__main__":
    PAGE.write_text(page(rows()))
    print(PAGE)
