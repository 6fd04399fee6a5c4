"""What the quickstart's audits are of: the demo family's own job, and a reward with its sign flipped.

    python -m experiments.demo_family.audit_cases pairs CHECKPOINT FILE     # held-out rated words, labelled
    python -m experiments.demo_family.audit_cases flip CHECKPOINT FOLDER    # the same with its head negated

The family learns which words people rate high, and knows no answers to questions. So it is audited on
pairs of words that its training never showed: of two words that are used about as often the better
rated one is the better answer to *greatest* and *best*, and the worse one to *worst*. A word is spelled
as the one token of the checkpoint's tokenizer that training could show.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np

from experiments.demo_family.lexicon import is_held_out, load_valence, zipf
from pessimal.catalogue import named_prompts

N_PAIRS, GAP, SEED = 70, 2.5, 0
"""Pairs on each prompt; the least distance of two words' ratings (from −4 to 4)."""
MIN_ZIPF, MAX_ZIPF_GAP = 2.0, 0.7


def word_pairs(checkpoint: Path) -> list[dict[str, object]]:
    """Rows with key, category (the prompt's key), prompt, responses and preferred; each word once
    per prompt, the better answer first in half of them."""
    from transformers import AutoTokenizer

    vocabulary = AutoTokenizer.from_pretrained(checkpoint).get_vocab()
    spellings = {
        word: spelling
        for word in load_valence()
        for token, spelling in ((word, word), (f"Ġ{word}", f" {word}"))
        if token in vocabulary and is_held_out(word) and zipf(word) >= MIN_ZIPF
    }
    ratings = {word: load_valence()[word] for word in spellings}
    rng, rows = np.random.default_rng(SEED), []
    for key, prompt in named_prompts(["greatest", "best", "worst"]).items():
        words: list[str] = list(rng.permutation(sorted(ratings)))
        pairs: list[list[str]] = []
        while words and len(pairs) < N_PAIRS:
            word = words.pop()
            partner = next((o for o in words if _is_pair(word, o, ratings)), None)
            if partner is not None:
                words.remove(partner)
                pairs.append(sorted((word, partner), key=ratings.__getitem__, reverse=True))
        for number, (high, low) in enumerate(pairs):
            better, worse = (low, high) if key == "worst" else (high, low)
            preferred = number % 2
            responses = [worse, better] if preferred else [better, worse]
            row = {"key": f"{key}-{number}", "category": key, "prompt": prompt}
            texts = [spellings[word] for word in responses]
            rows.append(row | {"responses": texts, "preferred": preferred})
    return rows


def _is_pair(word: str, other: str, ratings: dict[str, float]) -> bool:
    apart = abs(ratings[word] - ratings[other])
    return apart >= GAP and abs(zipf(word) - zipf(other)) <= MAX_ZIPF_GAP


def flip(source: Path, target: Path) -> None:
    """Copy a checkpoint with the sign of its reward head changed."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, target, dirs_exist_ok=True)
    weights = load_file(source / "model.safetensors")
    heads = [name for name in weights if name.startswith("score.")]
    for name in heads:
        weights[name] = -weights[name]
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    if not heads:
        sys.exit(f"{source} has no weight whose name begins with score.")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["pairs", checkpoint, file]:
            rows = word_pairs(Path(checkpoint))
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
            print(file)
        case ["flip", source, target]:
            flip(Path(source), Path(target))
            print(target)
        case _:
            sys.exit(__doc__)
