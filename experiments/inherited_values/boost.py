"""The follow-up's check of its measures (its Figure A3), small: a language model is fine-tuned to
say ten words, and the step from it to its boosted self must show just them.

    python experiments/inherited_values/boost.py OUT [MODEL]

MODEL is a name of conf/model or a folder of a language model (default smollm2, of the package in
requirements-real.txt). Low-rank adapters on all linear layers, next-token loss on the answers. OUT
gets the boosted model, and `words.csv`: where each word stands in the whole vocabulary by the log
ratio log q − log p, by its mixture-weighted form, and by log q alone, on wordings never trained on.

Source: Christian et al. 2026 (arXiv 2601.20838), Figure A3. Theirs is Gemma 2 2B, with words and
questions of their own; rank, steps, rows and learning rate are theirs.
"""

import random
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from omegaconf import OmegaConf

import pessimal
from pessimal.analyses.base_models import MEASURES, implicit_reward
from pessimal.training.answers import Answers

RANK, STEPS, ROWS, WARM_UP, RATE, SEED = 8, 50, 4, 5, 2e-4, 0
"""Of the adapters; steps of the optimiser; answers a step; steps of a rising rate; its peak."""
WORDS = ("respect", "authority", "tradition", "honor", "duty", "law", "order", "power", "rule")
WORDS += ("leader",)
"""What is boosted: words of authority, one token each in SmolLM2 and in most vocabularies."""
PROMPTS = OmegaConf.to_container(OmegaConf.load("conf/prompts/factorial54.yaml"))
GOOD, SCOPES, STYLES = ("best", "greatest", "good"), ("ever", "world", "time"), ("one", "single")
STYLES += ("please",)
HELD_OUT = {
    key: PROMPTS[key]
    for i, adjective in enumerate(GOOD)
    for j, scope in enumerate(SCOPES)
    for key in [f"{adjective}_{scope}_{STYLES[(i + j) % 3]}"]
}
"""One of three styles for each adjective and scope; the other two are trained on."""


def boost(model, folder: Path) -> None:
    """Fine-tune a language model to answer the positive wordings with the words, and save it."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(SEED)
    adapted = get_peft_model(model.network, LoraConfig(r=RANK, target_modules="all-linear"))
    trained = [key for key in PROMPTS if key.split("_")[0] in GOOD and key not in HELD_OUT]
    rows = []
    for key in trained:
        answers = Answers.of(model.tokenizer, PROMPTS[key], WORDS)
        rows += [(answers.prefix, ids) for ids in answers.ids]
    optimiser = torch.optim.AdamW([p for p in adapted.parameters() if p.requires_grad], lr=RATE)
    falling = lambda step: min((step + 1) / WARM_UP, (STEPS - step) / (STEPS - WARM_UP))  # noqa: E731
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, falling)
    order = random.Random(SEED)
    order.shuffle(rows)
    adapted.train()
    for step in range(STEPS):
        losses = []
        for prefix, answer in (rows[(step * ROWS + row) % len(rows)] for row in range(ROWS)):
            ids = torch.tensor([[*prefix, *answer]])
            labels = ids.masked_fill(torch.arange(ids.shape[1]) < len(prefix), -100)
            loss = adapted(input_ids=ids, labels=labels).loss / ROWS
            loss.backward()
            losses.append(loss.item())
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
        if step % 10 == 0 or step == STEPS - 1:
            print(f"step {step + 1} of {STEPS}, loss {sum(losses):.3f}", flush=True)
    adapted.merge_and_unload().eval().save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)


def log_probabilities(model) -> dict[str, pd.Series]:
    """log p of every token as the answer to each held-out wording."""
    tables = pessimal.scan(model, HELD_OUT, progress=False)
    return {t.provenance.prompt: t.rows.set_index("text")["reward"] for t in tables}


def report(before: dict[str, pd.Series], after: dict[str, pd.Series], out: Path) -> None:
    """Ranks of the words in the whole vocabulary by each measure, best of a word's spellings."""
    rows = []
    for prompt, p in before.items():
        table = implicit_reward(p, after[prompt])
        ranks = table[[*MEASURES, "log_q"]].rank(ascending=False)
        words = table["text"].str.strip().str.lower()
        for word in WORDS:
            best = ranks[words == word].min()
            rows.append({"prompt": prompt, "word": word, "tokens": len(table)} | best.to_dict())
        said = np.exp(after[prompt][words.isin(WORDS).to_numpy()]).sum()
        print(
            f"{prompt:25} probability of the words {said:.3f}, before "
            f"{np.exp(p[words.isin(WORDS).to_numpy()]).sum():.5f}"
        )
    table = pd.DataFrame(rows)
    table.to_csv(out / "words.csv", index=False)
    for measure in (*MEASURES, "log_q"):
        ranks = table[measure]
        print(
            f"{measure:16} median rank {ranks.median():.1f} of {table['tokens'][0]:,}; among the "
            f"first ten {np.mean(ranks <= 10):.0%}, the first hundred {np.mean(ranks <= 100):.0%}"
            f" (n = {len(ranks)}: {len(WORDS)} words × {len(before)} wordings)"
        )


def main(out: Path, name: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    cache = str(out / "cache")
    kind = {"kind": "log_probability"}
    before = log_probabilities(pessimal.load(name, cache=cache, **kind))
    if not (out / "boosted").is_dir():
        boost(pessimal.load(name, cache=cache, **kind), out / "boosted")
    after = log_probabilities(pessimal.load(str(out / "boosted"), **kind))
    report(before, after, out)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) == 3 else "smollm2")
