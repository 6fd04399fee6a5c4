"""Do tests over words reject too often? Made-up rewards without the effect, on the words of
MiniLM's vocabulary.

    python experiments/nulls/words.py [--runs 400]
    python experiments/nulls/words.py --seconds

Prints one row per test and null: the share of runs in which at most 5 % of random heads on the
words' meanings show as much, and beside it that of p < .05, which is about other words under the
same reward. With `--seconds`, only what random heads cost: ten models, three prompts, 30,000 words.
Heads on a language model's own states: heads.py.
"""

import argparse
import functools
import time
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
import wordfreq
from omegaconf import OmegaConf
from scipy import stats
from sklearn.cluster import MiniBatchKMeans

from pessimal.analyses.analysis import Heads
from pessimal.analyses.extremes import add_test, moments
from pessimal.analyses.framing import reversals
from pessimal.analyses.frequency import frequency_slopes
from pessimal.analyses.identity_terms import TOPICS, identity_effects, match_identity
from pessimal.analyses.ranks import dependence
from pessimal.analyses.sentiment import lexicon_groups, sentiment
from pessimal.analyses.valence import valence_agreement
from pessimal.catalogue import CONF
from pessimal.tables import minilm
from pessimal.tables.score_table import MEANING
from pessimal.tables.word_lists import read_frequencies, read_lexicon, stem_groups

TASTES = (0.06, 0.20, 0.67)
"""Share of the variance of rewards that follows one random direction of meaning."""
MODELS = 10
CLUSTERS = 100


class Words:
    """The words, what people say of them, and how rewards without any effect are drawn."""

    def __init__(self, words: Iterable[str], seed: int = 0):
        self.random = np.random.default_rng(seed)
        self.words = pd.Index(words, name="word", dtype=object)
        self.zipf = read_frequencies("wordfreq").zipf(self.words)
        self.afinn = read_lexicon("afinn")
        rated = self.words.isin(self.afinn.index) | self.words.isin(read_lexicon("textblob").index)
        self.unrated = self.words[~rated]

    @functools.cached_property
    def matches(self):
        """Terms of groups of people and their controls, as `identity_effects` takes them."""
        files = sorted((CONF / "identity").glob("*.yaml"))
        axes = {file.stem: list(OmegaConf.load(file)[file.stem]["terms"]) for file in files}
        covariates = self.zipf.to_frame("zipf").assign(afinn=self.afinn.reindex(self.words))
        return match_identity(axes, covariates, topics=TOPICS, meanings=minilm.meanings)

    def noise(self, runs: int) -> np.ndarray:
        return self.random.normal(size=(len(self.words), runs))

    def mixed(self, effects: np.ndarray, share: float) -> np.ndarray:
        """Rewards (words, runs) of whose variance so much is the effects', and the rest noise."""
        return np.sqrt(share) * effects + np.sqrt(1 - share) * self.noise(effects.shape[1])

    def linear(self, features: Sequence, share: float, runs: int) -> list[np.ndarray]:
        """Rewards (words, runs) by each of the features: one random head on all, and noise."""
        head = self.random.normal(size=(features[0].shape[1], runs))
        return [self.mixed(stats.zscore(part @ head), share) for part in features]


class MeaningWords(Words):
    """Those of MiniLM's vocabulary."""

    def __init__(self, seed: int):
        vocabulary = {word for word in minilm.load_vocabulary() if word.isalpha()}
        super().__init__(sorted(filter(str.isascii, vocabulary)), seed)
        self.vectors = minilm.meanings(list(self.words))

    def nulls(self) -> dict[str, functools.partial]:
        """What rewards may be made of, by name: a function of runs to (words, runs)."""
        tastes = {f"taste {share:.2f}": functools.partial(self.taste, share) for share in TASTES}
        return {
            "iid": self.noise,
            "stem": functools.partial(self.grouped, stem_groups(self.words)),
            **tastes,
            "clusters .20": functools.partial(self.grouped, self.clusters, share=0.2),
        }

    def taste(self, share: float, runs: int) -> np.ndarray:
        """A random direction of the embeddings, and noise."""
        return self.linear([self.vectors], share, runs)[0]

    def grouped(self, groups: np.ndarray, runs: int, *, share: float = 0.5) -> np.ndarray:
        """One number for each group of words, and noise."""
        effects = self.random.normal(size=(groups.max() + 1, runs))
        return self.mixed(effects[groups], share)

    @functools.cached_property
    def clusters(self) -> np.ndarray:
        """Of like meaning; a taste for some clusters is none for a direction, so the mixed model is
        wrong here."""
        return MiniBatchKMeans(CLUSTERS, random_state=0, n_init=3).fit(self.vectors).labels_


ON_MEANINGS = Heads(MEANING, {}, minilm.meanings)


def shares(test: str, table: pd.DataFrame, p: str = "p") -> dict:
    """One row of the exam."""
    counts = {"random heads": table["random_head"], "p": table[p]}
    return {"test": test} | {name: float((one < 0.05).mean()) for name, one in counts.items()}


def frame_of(words: Words, rewards: np.ndarray) -> pd.DataFrame:
    """Rewards words × runs, which stand for prompts."""
    return pd.DataFrame(rewards, words.words, [f"run {i}" for i in range(rewards.shape[1])])


def one_model(words: Words, rewards: np.ndarray) -> list[dict]:
    """Every test of one model."""
    frame, on = frame_of(words, rewards), {"heads": ON_MEANINGS}
    slopes = frequency_slopes(frame, words.zipf, words.afinn, unrated=words.unrated, **on)
    kinds = slopes.groupby("words", sort=False)
    rows = [shares(f"frequency, {kind} words", part) for kind, part in kinds]
    asked = sentiment(frame, words.afinn, polarity=dict.fromkeys(frame, 1), **on)
    rows.append(shares("sentiment, slope of an arm", asked.slopes))
    rows.append(shares("sentiment, asymmetry", asked.asymmetry))
    groups = lexicon_groups(frame, words.afinn, heads=ON_MEANINGS, zipf=words.zipf)
    rows.append(shares("lexicon groups, AUC", groups, "auc_p"))
    return [*rows, shares("valence", valence_agreement(frame, words.afinn, heads=ON_MEANINGS))]


def orders(words: Words, rewards: np.ndarray) -> list[dict]:
    """Two prompts whose rewards have nothing to do with one another, every two runs; and the
    skewness of one reward's, which is symmetric over all rewards of its kind."""
    names = pd.Index(words.words, dtype=object)
    pairs = [pd.DataFrame(rewards[:, i : i + 2], names) for i in range(0, rewards.shape[1] - 1, 2)]
    turned = reversals(pairs, meanings=minilm.meanings)
    frame = pd.DataFrame(rewards, names)
    skewed = add_test(moments(frame, dependent=dependence(names, minilm.meanings)))
    rejected = {}
    rejected["unrelated prompts, p of reversal"] = turned["p"] < 0.05
    rejected["moments, skewness"] = skewed["skewness_p"] < 0.05
    return [{"test": test, "p": float(runs.mean())} for test, runs in rejected.items()]


def identity(words: Words, rewards: np.ndarray) -> list[dict]:
    """Axes of identity terms, one by one and together; p is against everyday topics."""
    axes = identity_effects(frame_of(words, rewards), words.matches, heads=ON_MEANINGS)[0]
    kinds = {"identity, axes": axes["axis"] != "all", "identity, all axes": axes["axis"] == "all"}
    return [shares(test, axes[rows]) for test, rows in kinds.items()]


def exam(runs: int, *, seed: int = 0) -> pd.DataFrame:
    """Test × null: shares at .05."""
    words, rows = MeaningWords(seed), []
    for null, draw in words.nulls().items():
        rewards = draw(runs)
        new = [row for test in (one_model, orders, identity) for row in test(words, rewards)]
        rows += [{"null": null, **row} for row in new]
        print(pd.DataFrame(rows[-len(new) :]).round(3).to_string(), flush=True)
    return pd.DataFrame(rows).pivot(index="test", columns="null", values=["random heads", "p"])


def seconds(*, words: int = 30_000, models: int = MODELS) -> pd.DataFrame:
    """Processor time of the frequency test, without and with words alike in meaning."""
    frequent = filter(str.isascii, wordfreq.top_n_list("en", 2 * words))
    known = list(filter(str.isalpha, frequent))[:words]
    zipf, valence = read_frequencies("wordfreq").zipf(known), read_lexicon("afinn")
    random, rows = np.random.default_rng(0), []
    minilm.meanings(known)  # reads the embeddings
    for name, heads in (("stems alone", None), ("random heads", ON_MEANINGS)):
        started = time.process_time()
        for _ in range(models):
            draws = random.normal(size=(words, 3))
            rewards = pd.DataFrame(draws, pd.Index(known, name="word"), ["a", "b", "worst"])
            how = {"pairs": [("a", "worst")], "heads": heads, "least_zipf": 0}
            found = frequency_slopes(rewards, zipf, valence, **how)
        n = int(found["n"].max())
        rows.append({"errors": name, "unrated words": n, "seconds": time.process_time() - started})
    return pd.DataFrame(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--seconds", action="store_true")
    chosen = parser.parse_args()
    if chosen.seconds:
        print(seconds().round(1).to_string(index=False))
        raise SystemExit
    pd.set_option("display.width", 250)
    print(exam(chosen.runs).round(3).to_string(na_rep=""))
