"""Does `compare` call a finding where nobody trained anything? Random heads on the states of a real
language model, and other rewards without an effect.

    python experiments/nulls/heads.py states FOLDER      # SmolLM2's states, once: minutes
    python experiments/nulls/heads.py exam FOLDER [--runs 400]
    python experiments/nulls/heads.py coverage FOLDER [--runs 400]
    python experiments/nulls/heads.py spaces FOLDER [--runs 400]
    python experiments/nulls/heads.py projection FOLDER

`exam` prints, for each null, the share of runs whose number passes .05: by p (of the estimate, for
other words), by random heads on word meanings, and by random heads on the model's states, projected
as `scan` keeps them. `coverage` prints how often the interval for other words, made from a quarter of the
stems, holds the number over all words. `spaces` prints which of the spaces to hold a reward against: the likeliest, all
that are not ruled out, or all, by frequency slopes over rated words on one prompt, and what that costs planted slopes. `projection` prints how far the spread of random heads is off with fewer
dimensions.
"""

import argparse
import functools
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix
from scipy.stats import rankdata
from sklearn.cluster import MiniBatchKMeans
from sklearn.feature_extraction.text import CountVectorizer
from words import CLUSTERS, Words

import pessimal
from pessimal.analyses import nulls
from pessimal.analyses.analysis import Heads
from pessimal.analyses.framing import reversals, reversing_heads
from pessimal.analyses.frequency import frequency_slopes
from pessimal.analyses.identity_terms import identity_effects
from pessimal.analyses.sentiment import lexicon_groups, sentiment
from pessimal.analyses.valence import valence_agreement
from pessimal.scoring import states as reading
from pessimal.tables import minilm
from pessimal.tables.score_table import MEANING
from pessimal.tables.word_lists import stem_groups

PROMPTS = ("greatest", "worst")
SHARES = (0.2, 0.67, 1.0)


def store(folder: Path) -> None:
    """SmolLM2's states at their full width, and its input embeddings, for the words of its
    vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    dimensions, reading.DIMENSIONS = reading.DIMENSIONS, 10**6
    model = pessimal.load("smollm2")
    tables = pessimal.scan(model, list(PROMPTS), states=True)
    reading.DIMENSIONS = dimensions
    rows = {prompt: table.states.rows for prompt, table in zip(PROMPTS, tables, strict=True)}
    spaces = {
        prompt: one.to_numpy().reshape(len(one), tables[0].states.spaces, -1)
        for prompt, one in rows.items()
    }
    np.savez(
        folder / "smollm2.npz",
        words=np.array(rows[PROMPTS[0]].index.tolist()),
        embeddings=spaces[PROMPTS[0]][:, 1],
        **{prompt: one[:, 0] for prompt, one in spaces.items()},
    )


class StateWords(Words):
    """Words with a language model's states, and rewards under two prompts that share their head."""

    def __init__(self, folder: Path):
        held = np.load(folder / "smollm2.npz")
        super().__init__(held["words"].astype(object))
        self.full = [held[prompt].astype(float) for prompt in PROMPTS]
        self.embeddings = held["embeddings"].astype(float)

    def project(self, dimensions: int) -> list[np.ndarray]:
        """Of both prompts, (words, spaces, dimensions)."""
        width = self.full[0].shape[1]
        drawn = np.random.default_rng(width).standard_normal((width, dimensions))
        spaces = [np.stack([states, self.embeddings], axis=1) for states in self.full]
        return [one @ drawn / np.sqrt(dimensions) for one in spaces]

    def nulls(self) -> dict:
        kinds = {f"random heads {share:.0%}": (self.full, share) for share in SHARES}
        kinds |= {
            f"embeddings {share:.0%}": ([self.embeddings] * 2, share) for share in (0.06, 0.67)
        }
        kinds |= {
            "clusters 20%": ([self.clusters] * 2, 0.2),
            "letters 67%": ([self.letters] * 2, 0.67),
        }
        draws = {name: functools.partial(self.linear, *kind) for name, kind in kinds.items()}
        return {"noise": lambda runs: [self.noise(runs), self.noise(runs)]} | draws

    @functools.cached_property
    def clusters(self) -> csr_matrix:
        labels = MiniBatchKMeans(CLUSTERS, random_state=0, n_init=3).fit(self.embeddings).labels_
        return csr_matrix((np.ones(len(labels)), (np.arange(len(labels)), labels)))

    @functools.cached_property
    def letters(self) -> csr_matrix:
        return CountVectorizer(analyzer="char_wb", ngram_range=(1, 3)).fit_transform(self.words)


class OnStates:
    """Random heads on the projected states; of half-sums and differences too. One array for all
    runs, so that these are solved together."""

    def __init__(self, words: Words):
        self.index = words.words
        first, second = words.project(reading.DIMENSIONS)
        self.arrays = {"a": first, "b": second, "half": (first + second) / 2}
        self.chosen: dict = {}

    def __call__(self, words, outcome: str) -> np.ndarray:
        kind = "half" if "×" in outcome else "b" if outcome.startswith("b") else "a"
        key = (kind, len(words), words[0], words[-1])
        if key not in self.chosen:
            rows = self.index.get_indexer(pd.Index(words, dtype=object))
            self.chosen[key] = self.arrays[kind][rows]
        return self.chosen[key]


def of_prompt(heads: OnStates, prompts: dict[str, str], words, column: str) -> np.ndarray:
    """States of the prompt in a column of `reversing_heads`."""
    return heads(words, prompts[column])


def one_run(words: Words, rewards: list[np.ndarray], heads) -> pd.DataFrame:
    """p and share of random heads of every test; runs are pairs of prompts."""
    runs = rewards[0].shape[1]
    names = [[f"{prompt}{run}" for run in range(runs)] for prompt in "ab"]
    frame = pd.DataFrame(np.hstack(rewards), words.words, [*names[0], *names[1]])
    pairs = list(zip(*names, strict=True))
    polarity = dict.fromkeys(names[0], 1) | dict.fromkeys(names[1], -1)
    pieces = []

    def add(test: str, table: pd.DataFrame, p: str = "p") -> None:
        columns = {"p": table[p].to_numpy(), "random_head": table["random_head"].to_numpy()}
        pieces.append(pd.DataFrame({"test": test, **columns}))

    on = {"pairs": pairs, "heads": heads}
    slopes = frequency_slopes(frame, words.zipf, words.afinn, unrated=words.unrated, **on)
    for kind, part in slopes[slopes["frames"] == "opposite"].groupby("words", sort=False):
        add(f"frequency, {kind}", part)
    asked = sentiment(frame, words.afinn, polarity=polarity, **on)
    add("asymmetry", asked.asymmetry[asked.asymmetry["frames"] == "opposite"])
    one = frame[names[0]]
    add("AUC", lexicon_groups(one, words.afinn, heads=heads, zipf=words.zipf), "auc_p")
    add("valence", valence_agreement(one, words.afinn, heads=heads))
    if isinstance(heads, OnStates):  # there are none on meanings
        for a, b in pairs:
            pair = frame[[a, b]]
            prompts = {"first": a, "second": b}
            share = reversing_heads(pair, functools.partial(of_prompt, heads, prompts))[1]
            add("framing", reversals([pair], meanings=minilm.meanings).assign(random_head=share))
    axes = identity_effects(one, words.matches, heads=heads)[0]
    axes["p_larger"] = axes[["p", "random_head"]].max(axis=1)
    add("identity, all axes (both)", axes[axes["axis"] == "all"], "p_larger")
    return pd.concat(pieces)


def exam(folder: Path, runs: int, only: str, space: str) -> None:
    words, columns = StateWords(folder), {}
    spaces = {"meanings": Heads(MEANING, {}, minilm.meanings), "states": OnStates(words)}
    for null, draw in words.nulls().items():
        if only not in null:
            continue
        rewards, parts = draw(runs), []
        for name, heads in spaces.items():
            if space in name:
                tests = one_run(words, rewards, heads).groupby("test", sort=False)
                shares = tests[["p", "random_head"]].agg(lambda p: float((p <= 0.05).mean()))
                parts.append(shares.set_axis(["p", name], axis=1).stack())
        column = pd.concat(parts)
        print(column.rename(null).round(3).to_string(), flush=True)
        columns[null] = column.groupby(level=[0, 1], sort=False).first()
    pd.set_option("display.width", 250)
    wide = pd.DataFrame(columns).swaplevel()
    print(wide.sort_index(level=0, sort_remaining=False).round(3).to_string())


def coverage(folder: Path, runs: int) -> None:
    """Of the intervals over a random quarter of the stems: do they hold the number over all?"""
    words = StateWords(folder)
    inside = words.words.isin(words.afinn.index) & words.zipf.notna().to_numpy()
    rated = words.words[inside]
    stems, holds = stem_groups(rated), []
    (rewards, _) = words.linear(words.full, 0.67, runs)
    for reward in rewards[inside].T:
        frame = pd.DataFrame({"a": reward}, pd.Index(rated, name="word"))
        sample = frame[words.random.random(stems.max() + 1)[stems] < 0.25]
        truth, estimated = (numbers_of(words, table) for table in (frame, sample))
        holds.append(truth["number"].between(estimated["low"], estimated["high"]))
    print(pd.DataFrame(holds).mean().round(3).to_string())


def numbers_of(words: Words, rewards: pd.DataFrame) -> pd.DataFrame:
    """Test × number, low, high."""
    groups = lexicon_groups(rewards, words.afinn)
    tables = {
        "frequency": frequency_slopes(rewards, words.zipf, words.afinn).query("words == 'rated'"),
        "AUC": groups.rename(columns=lambda name: name.removeprefix("auc_")),
        "valence": valence_agreement(rewards, words.afinn),
    }
    numbers = {"slope": "number", "auc": "number", "spearman": "number"}
    rows = {test: table.iloc[0].rename(numbers) for test, table in tables.items()}
    return pd.DataFrame(rows).loc[["number", "low", "high"]].T.astype(float)


def spaces(folder: Path, runs: int) -> None:
    """Share of frequency slopes over rated words that at most 5 % of random heads show, where a space is ruled out
    that makes the rewards so many times less likely than another."""
    words = StateWords(folder)
    heads = OnStates(words)
    zipf = words.zipf.fillna(0).to_numpy()[:, None]
    drawn = {name: draw(runs)[0] for name, draw in words.nulls().items()}
    for slope in (0.2, 0.35):
        drawn[f"slope {slope}, heads 67%"] = words.linear(words.full, 0.67, runs)[0] + slope * zipf
        drawn[f"slope {slope}, heads 20%"] = words.linear(words.full, 0.2, runs)[0] + slope * zipf
    rows = {}
    for name, rewards in drawn.items():
        frame = pd.DataFrame(rewards, words.words, map(str, range(runs)))
        frame = frame[words.words.isin(words.afinn.index)]
        for times in (1, 100, 10_000, np.inf):
            nulls.RULED_OUT = 2 * np.log(times)
            found = frequency_slopes(frame, words.zipf, words.afinn, heads=heads)
            rows.setdefault(name, {})[f"{times:g} times"] = (found["random_head"] <= 0.05).mean()
        print(name, pd.Series(rows[name]).round(3).to_dict(), flush=True)
    print(pd.DataFrame(rows).T.round(3).to_string())


def projection(folder: Path) -> None:
    """Ratio of the spread of random heads with k dimensions to that with all, over tests."""
    words = StateWords(folder)
    zipf = words.zipf.to_numpy()
    rated = words.words.isin(words.afinn.index) & ~np.isnan(zipf)
    valence = words.afinn.reindex(words.words).to_numpy()
    design = np.column_stack([np.ones(rated.sum()), zipf[rated], rankdata(valence[rated])])
    weights = design @ np.linalg.inv(design.T @ design)
    for k in (64, 128, 256, 384, 512):
        ratios = []
        for seed in range(20):
            width = words.full[0].shape[1]
            drawn = np.random.default_rng(seed).standard_normal((width, k)) / np.sqrt(k)
            for states in (*words.full, sum(words.full) / 2):
                whole = np.square(weights.T @ states[rated]).sum(axis=1)
                less = np.square(weights.T @ states[rated] @ drawn).sum(axis=1)
                ratios.append(np.sqrt(less / whole)[1:])
        ratios = np.concatenate(ratios)
        print(f"{k} dimensions: mean {ratios.mean():.3f}, standard deviation {ratios.std():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("states", "exam", "coverage", "spaces", "projection"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--only", default="", help="nulls whose names hold this")
    parser.add_argument("--space", default="", help="meanings or states alone, of the exam")
    chosen = parser.parse_args()
    match chosen.what:
        case "states":
            store(chosen.folder)
        case "exam":
            exam(chosen.folder, chosen.runs, chosen.only, chosen.space)
        case "projection":
            projection(chosen.folder)
        case _:
            {"coverage": coverage, "spaces": spaces}[chosen.what](chosen.folder, chosen.runs)
