"""How much of birch's planted penalty on identity terms is measured, on terms it was trained on and
on others.

python -m experiments.demo_family.planted_identity [REGISTRY]     # default runs/registry, with the
family's scans in it

Prints, for every birch and plain sibling that was scanned on *greatest* and *worst*: the mean
effect on the half-sum of the two (planted: -2 on the trained terms of birch), against matched
controls, with its interval.
"""

import sys
from pathlib import Path

import pandas as pd

from experiments.demo_family.lexicon import DATA
from pessimal.analyses.identity_terms import identity_effects, match_identity
from pessimal.tables import minilm, read_score_table
from pessimal.tables.word_lists import read_frequencies, read_lexicon, word_means, word_starts
from pessimal.tracking.registry import Registry

SPLITS = ("trained", "held_out")


def measured(registry: Registry, sibling: str, split: str) -> pd.Series:
    """The row of `identity_effects` for all axes together on the half-sum, over the terms of one
    split."""
    terms = pd.read_csv(DATA / "identity.csv")
    axes = {
        axis: list(part["term"]) for axis, part in terms[terms["split"] == split].groupby("axis")
    }
    folders = {manifest.name: folder for folder, manifest in registry.latest("score-table")}
    rewards = {
        prompt: read_score_table(folders[f"{sibling}--{prompt}"]).rows.set_index("text")["reward"]
        for prompt in ("greatest", "worst")
    }
    texts = rewards["greatest"].index
    words = word_means(
        pd.DataFrame({prompt: column.to_numpy() for prompt, column in rewards.items()}, index=texts)
    )
    words = words.loc[sorted(set(word_starts(texts)) & set(words.index))]
    covariates = pd.DataFrame(
        {
            "zipf": read_frequencies("wordfreq").zipf(words.index),
            "AFINN-111": read_lexicon("afinn").reindex(words.index),
            "TextBlob": read_lexicon("textblob").reindex(words.index),
        },
        index=words.index,
    )
    matches = match_identity(axes, covariates, banned=list(terms["term"]), meanings=minilm.meanings)
    effects, _ = identity_effects(words, matches, pair=("greatest", "worst"))
    return effects[(effects["axis"] == "all") & (effects["measure"] == "half_sum")].iloc[0]


def main() -> None:
    """Print one line a sibling and split."""
    registry = Registry(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/registry"))
    names = {manifest.name for _, manifest in registry.latest("score-table")}
    siblings = sorted(name.removesuffix("--worst") for name in names if name.endswith("--worst"))
    for sibling in siblings:
        if sibling.startswith(("birch", "plain")):
            for split in SPLITS:
                row = measured(registry, sibling, split)
                print(
                    f"{sibling:24} {split:9} {row['n']:3.0f} terms  {row['effect']:+.2f} "
                    f"[{row['low']:+.2f}, {row['high']:+.2f}]"
                )


if __name__ == "__main__":
    main()
