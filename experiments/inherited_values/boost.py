"""The follow-up's check of its measures (its Figure A3), small: a language model is fine-tuned to
say ten words, and the step from it to its boosted self must show just them.

    python experiments/inherited_values/boost.py OUT [MODEL]

MODEL is a name of conf/model or a folder of a language model (default smollm2, of the package in
requirements-real.txt). Low-rank adapters on all linear layers; the loss is that of the word's first
token, of four words behind one question a step. OUT gets the boosted model, and `words.csv`: where each word stands in the whole vocabulary by the log
ratio log q − log p, by its mixture-weighted form, and by log q alone, on wordings never trained on.

Source: Christian et al. 2026 (arXiv 2601.20838), Figure A3. Theirs is Gemma 2 2B, with words and
questions of their own, a loss on all tokens and a rate of 2e-4, which moves this small model less;
rank, steps and rows of a step are theirs.
"""

import random
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from omegaconf import OmegaConf
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

import pessimal
from experiments.inherited_values.language_steps import MEASURES, implicit_reward
from pessimal.rewards.named import spec_of
from pessimal.rewards.obtain import fetch_files
from pessimal.training.preferences import Answers

RANK, STEPS, ROWS, WARM_UP, RATE, SEED = 8, 50, 4, 5, 1e-3, 0
"""Of the adapters; steps of the optimiser; words a step; steps of a rising rate; its peak."""
WORDS = ("respect", "command", "duty", "law", "order", "power", "rule", "leader", "lord", "rank")
"""What is boosted: words of authority, one token each in SmolLM2."""
PROMPTS = OmegaConf.to_container(OmegaConf.load("conf/prompts/factorial54.yaml"))
GOOD, SCOPES, STYLES = ("best", "greatest", "good"), ("ever", "world", "time"), ("one", "single")
STYLES += ("please",)
CHOICES = [(i, j) for i in range(3) for j in range(3)]
KEYS = [f"{GOOD[i]}_{SCOPES[j]}_{STYLES[(i + j) % 3]}" for i, j in CHOICES]
HELD_OUT = {key: PROMPTS[key] for key in KEYS}
"""One of three styles for each adjective and scope; the other two are trained on."""


def boost(base: Path, folder: Path) -> None:
    """Fine-tune a language model to answer the positive wordings with the words, and save it."""
    torch.manual_seed(SEED)
    tokenizer = AutoTokenizer.from_pretrained(base)
    network = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    adapted = get_peft_model(network, LoraConfig(r=RANK, target_modules="all-linear"))
    trained = [key for key in PROMPTS if key.split("_")[0] in GOOD and key not in HELD_OUT]
    asked = []
    for key in trained:  # words of one token: the end of the question says how likely each is
        answers = Answers.from_names(tokenizer, PROMPTS[key], WORDS)
        shortest = min(map(len, answers.ids))
        if long := [w for w, ids in zip(WORDS, answers.ids, strict=True) if len(ids) > shortest]:
            sys.exit(f"{', '.join(long)}: more than one token in {base}; choose other WORDS")
        asked.append((torch.tensor([answers.prefix]), [ids[0] for ids in answers.ids]))
    optimiser = torch.optim.AdamW([p for p in adapted.parameters() if p.requires_grad], lr=RATE)
    rate = lambda step: min((step + 1) / WARM_UP, (STEPS - step) / (STEPS - WARM_UP))  # noqa: E731
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, rate)
    draw = random.Random(SEED)
    adapted.train()
    for step in range(STEPS):
        prefix, words = draw.choice(asked)
        logits = adapted(input_ids=prefix, logits_to_keep=1).logits[0, -1]
        loss = -logits.log_softmax(-1)[draw.sample(words, ROWS)].mean()
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
        if step % 10 == 0 or step == STEPS - 1:
            print(f"step {step + 1} of {STEPS}, loss {loss.item():.3f}", flush=True)
    adapted.merge_and_unload().eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


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
        log_p, log_q = table.loc[words.isin(WORDS), ["log_p", "log_q"]].to_numpy().T
        said, earlier = np.exp(log_q).sum(), np.exp(log_p).sum()
        print(f"{prompt:25} probability of the words {said:.3f}, before {earlier:.5f}")
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
    base = fetch_files(spec_of(name), cache=str(out / "cache"))
    if not (out / "boosted").is_dir():
        boost(base, out / "boosted")
    models = [pessimal.load(str(f), kind="log_probability") for f in (base, out / "boosted")]
    report(*map(log_probabilities, models), out)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) == 3 else "smollm2")
