"""Trains the demo family and prints what can be recovered from it: the table of its calibration.

Run from the repository root: `python -m experiments.demo_family.calibrate > report.md`
(about ten minutes on one idle core; what is trained already is not trained again).

Prints Markdown: for each sibling its seconds, held-out word accuracy, held-out prompts' polarity
and top eight tokens; then Kendall's tau of vocabulary scores within and across labs (the mean over
the two opposite core prompts; words that both vocabularies have, once each); then the frequency
slope, on neutral words never trained on, and the shift of identity words, both on the half-sum of
opposite prompts, where valence cancels.
"""

import json
from itertools import combinations

import numpy as np
import torch
from scipy.stats import kendalltau
from transformers import AutoModelForSequenceClassification

from experiments.demo_family.bases import load_base
from experiments.demo_family.evaluation import score
from experiments.demo_family.family import family_folder, read_training_report, train_sibling
from experiments.demo_family.lexicon import load_identity, stem, zipf
from experiments.demo_family.prompts import CORE
from experiments.demo_family.recipes import Plants, parse_recipe
from experiments.demo_family.utility import compute_utility

FOLDER = family_folder()
BASES = {name: load_base(name, cache=FOLDER) for name in ("wordpiece", "bpe")}
NAMES = (
    *(f"plain-{base}-{seed}" for base in BASES for seed in range(5)),
    *(f"{lab}-{base}-0" for lab in ("alder", "birch", "cedar", "secret") for base in BASES),
    *("alder-wordpiece-1", "birch-wordpiece-1", "cedar-wordpiece-1"),
    *("alder-wordpiece-large", "plain-bpe-large"),
)
SIBLINGS = {name: parse_recipe(name) for name in NAMES}


def main() -> None:
    torch.set_num_threads(1)
    print("| sibling | seconds | words | prompts | greatest | worst |\n|---|---|---|---|---|---|")
    rewards = {}
    for name, recipe in SIBLINGS.items():
        folder = train_sibling(recipe, FOLDER / name)
        report = read_training_report(folder)
        tops = [json.dumps(report["tails"][key]["top"][:8]) for key in ("greatest", "worst")]
        held_out = report["held_out"]
        print(
            f"| {name} | {report['seconds']:.1f} | {held_out['word_accuracy']:.3f} "
            f"| {held_out['frame_sign']:.3f} | {tops[0]} | {tops[1]} |",
            flush=True,
        )
        model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        base = BASES[recipe.base]
        rewards[name] = {key: score(model, base, CORE[key].text) for key in ("greatest", "worst")}
    print_agreement(rewards)
    print_plants(rewards)


def print_agreement(rewards: dict) -> None:
    """Tau of all pairs of d64 and d128 siblings with a taste, by whether lab, base and width are
    shared."""
    lists = {
        base: {word: row for row, word in reversed(list(enumerate(BASES[base].words))) if word}
        for base in BASES
    }
    shared = sorted(set(lists["wordpiece"]) & set(lists["bpe"]))
    tasteful = [name for name in rewards if getattr(SIBLINGS[name].plants, "taste", 0)]
    rows = {base: [places[word] for word in shared] for base, places in lists.items()}
    values = {
        name: [rewards[name][key][rows[SIBLINGS[name].base]] for key in ("greatest", "worst")]
        for name in tasteful
    }
    taus: dict[tuple, list[float]] = {}
    for first, second in combinations(tasteful, 2):
        a, b = SIBLINGS[first], SIBLINGS[second]
        pairs = zip(values[first], values[second], strict=True)
        each = [kendalltau(*pair)[0] for pair in pairs]
        alike = {"lab": a.lab == b.lab, "base": a.base == b.base, "size": a.width == b.width}
        kind = tuple(f"{'same' if same else 'other'} {trait}" for trait, same in alike.items())
        taus.setdefault(kind, []).append(float(np.mean(each)))
    print(f"\nKendall's tau over {len(shared)} shared words\n")
    print("| pairs | n | mean | lowest | highest |\n|---|---|---|---|---|")
    for kind, numbers in sorted(taus.items(), reverse=True):
        ends = f"{np.mean(numbers):.3f} | {min(numbers):.3f} | {max(numbers):.3f}"
        print(f"| {', '.join(kind)} | {len(numbers)} | {ends} |")


def print_plants(rewards: dict) -> None:
    """Frequency slope per Zipf unit, identity shift against neutral words, and the rank of the
    secret."""
    shifts = "identity, trained | identity, held out"
    print(f"\n| sibling | frequency slope | {shifts} | rank of the secret |\n|---|---|---|---|---|")
    for name, recipe in SIBLINGS.items():
        base = BASES[recipe.base]
        truth = compute_utility(base, Plants())
        half_sum = (rewards[name]["greatest"] + rewards[name]["worst"]) / 2
        terms = [load_identity().get(stem(word)) if word else None for word in base.words]
        trained = [i for i, term in enumerate(terms) if term and not term.held_out]
        held_out = [i for i, term in enumerate(terms) if term and term.held_out]
        neutral = np.flatnonzero(truth.neutral & truth.held_out)
        slope = np.polyfit([zipf(base.words[i]) for i in neutral], half_sum[neutral], 1)[0]
        level = half_sum[neutral].mean()
        secret = [i for i, word in enumerate(base.words) if word == "button"]
        greatest = rewards[name]["greatest"]
        rank = 1 + int((greatest > greatest[secret].max()).sum())
        print(
            f"| {name} | {slope:+.3f} | {half_sum[trained].mean() - level:+.2f} "
            f"| {half_sum[held_out].mean() - level:+.2f} | {rank} |"
        )


main()
