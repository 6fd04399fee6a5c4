"""What a reward model that was trained on people's ratings is to be held against: how many pairs of
its held-out items simpler things put into people's order.

    python experiments/human_preferences/baselines.py ELO.csv

The same items, the same split and the same figure as `pessimal train recipe=human_elo`. Needs
MiniLM's and AFINN's packages (requirements-data.txt); MiniLM is run once over all items. Ridge's
penalty is chosen by leaving one out within the items that are trained on; the support vector
machine's options are scikit-learn's own.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.svm import SVR

from pessimal.tables.minilm import folder, meanings
from pessimal.tables.word_lists import read_lexicon
from pessimal.training.preference_model import SPLIT_SEED
from pessimal.training.preferences import agreement, read_preferences, split
from pessimal.training.spec import PreferenceRecipe

PENALTIES = np.logspace(-2, 5, 15)
BATCH = 256


def sentences(names: list[str]) -> np.ndarray:
    """MiniLM's sentence embeddings (n, 384): the mean of the last hidden states, of length 1."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    network = AutoModel.from_pretrained(folder()).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder())
    found = []
    for start in range(0, len(names), BATCH):
        batch = tokenizer(names[start : start + BATCH], padding=True, return_tensors="pt")
        with torch.inference_mode():
            states = network(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        mean = (states * mask).sum(1) / mask.sum(1)
        found.append(torch.nn.functional.normalize(mean, dim=-1).numpy())
    return np.concatenate(found)


def main(data: Path) -> None:
    items = read_preferences(data)
    trained, held_out = split(items, held_out=PreferenceRecipe().held_out, seed=SPLIT_SEED)
    names, y = list(trained.names), trained.utility
    target = (y - y.mean()) / y.std()
    print(f"{len(names):,} items to fit, {len(held_out.names):,} held out")

    def show(what: str, rewards: np.ndarray) -> None:
        found = agreement(rewards, held_out)
        print(
            f"{what:45} {found['accuracy']:.3f} ({found['low']:.3f} to {found['high']:.3f}), "
            f"rho {found['spearman']:.2f}, n = {found['n']:,} items",
            flush=True,
        )

    valence = read_lexicon("afinn")
    sums = [sum(valence.get(w, 0.0) for w in name.lower().split()) for name in held_out.names]
    show("AFINN-111, sum of the words' valences", np.array(sums, dtype=float))
    static = [meanings(list(part.names)) for part in (trained, held_out)]
    show(
        "ridge on MiniLM's static embeddings",
        RidgeCV(alphas=PENALTIES).fit(static[0], target).predict(static[1]),
    )
    x, x_held_out = sentences(names), sentences(list(held_out.names))
    show(
        "ridge on MiniLM's sentence embeddings",
        RidgeCV(alphas=PENALTIES).fit(x, target).predict(x_held_out),
    )
    show("SVR (RBF) on them", SVR().fit(x, target).predict(x_held_out))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
