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

import numpy as np
import pandas as pd
import wordfreq
from omegaconf import OmegaConf
from sklearn.cluster import MiniBatchKMeans

from pessimal.analyses.analysis import Heads
from pessimal.analyses.framing import reversals, with_units
from pessimal.analyses.frequency import frequency_slopes
from pessimal.analyses.identity_terms import TOPICS, identity_effects, match_identity
from pessimal.analyses.lexicon_groups import lexicon_groups
from pessimal.analyses.moments import moments, with_test
from pessimal.analyses.ranks import dependence
from pessimal.analyses.sentiment import asymmetry_across_models, sentiment
from pessimal.analyses.valence import valence_agreement
from pessimal.catalogue import CONF
from pessimal.tables import minilm
from pessimal.tables.states import MEANING
from pessimal.tables.word_lists import read_frequencies, read_lexicon, stem_groups

TASTES = (0.06, 0.20, 0.67)
"""Share of the variance of rewards that follows one random direction of meaning."""
MODELS = 10
CLUSTERS = 100


class Words:
    """The words, what people say of them, and how rewards without any effect are drawn."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        known = sorted(
            {word for word in minilm.load_vocabulary() if word.isalpha() and word.isascii()}
        )
        self.words = pd.Index(known, name="word")
        self.zipf = read_frequencies("wordfreq").zipf(known)
        self.afinn, self.textblob = read_lexicon("afinn"), read_lexicon("textblob")
        self.vectors = minilm.meanings(known)
        self.unrated = self.words[
            ~self.words.isin(self.afinn.index) & ~self.words.isin(self.textblob.index)
        ]
        self.axes = {
            path.stem: list(OmegaConf.load(path)[path.stem]["terms"])
            for path in sorted((CONF / "identity").glob("*.yaml"))
        }

    def nulls(self) -> dict[str, functools.partial]:
        """What rewards may be made of, by name: a function of runs to (words, runs)."""
        tastes = {f"taste {share:.2f}": functools.partial(self.taste, share) for share in TASTES}
        return {
            "iid": self.noise,
            "stem": functools.partial(self.grouped, stem_groups(self.words)),
            **tastes,
            "clusters .20": functools.partial(self.grouped, self.clusters, share=0.2),
        }

    def noise(self, runs: int) -> np.ndarray:
        return self.random.normal(size=(len(self.words), runs))

    def taste(self, share: float, runs: int) -> np.ndarray:
        """A random direction of the embeddings, and noise."""
        liked = self.vectors @ self.random.normal(size=(self.vectors.shape[1], runs))
        liked = (liked - liked.mean(axis=0)) / liked.std(axis=0)
        return np.sqrt(share) * liked + np.sqrt(1 - share) * self.noise(runs)

    def grouped(self, groups: np.ndarray, runs: int, *, share: float = 0.5) -> np.ndarray:
        """One number for each group of words, and noise."""
        effects = self.random.normal(size=(groups.max() + 1, runs))
        return np.sqrt(share) * effects[groups] + np.sqrt(1 - share) * self.noise(runs)

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


def one_model(words: Words, rewards: np.ndarray) -> list[dict]:
    """Every test of one model; runs stand for prompts."""
    frame = pd.DataFrame(rewards, words.words, [f"run {i}" for i in range(rewards.shape[1])])
    slopes = frequency_slopes(
        frame, words.zipf, words.afinn, unrated=words.unrated, heads=ON_MEANINGS
    )
    rows = [
        shares(f"frequency, {kind} words", part)
        for kind, part in slopes.groupby("words", sort=False)
    ]
    polarity = dict.fromkeys(frame, 1)
    asked = sentiment(frame, words.afinn, polarity=polarity, heads=ON_MEANINGS)
    rows.append(shares("sentiment, slope of an arm", asked.slopes))
    rows.append(shares("sentiment, asymmetry", asked.asymmetry))
    groups = lexicon_groups(frame, words.afinn, heads=ON_MEANINGS, zipf=words.zipf)
    rows.append(shares("lexicon groups, AUC", groups, "auc_p"))
    return [*rows, shares("valence", valence_agreement(frame, words.afinn, heads=ON_MEANINGS))]


def orders(words: Words, rewards: np.ndarray) -> list[dict]:
    """Two prompts whose rewards have nothing to do with one another, every two runs; and the
    skewness of one reward's, which is symmetric over all rewards of its kind."""
    names = pd.Index(words.words, dtype=object)
    columns = [pd.Series(column, names) for column in rewards.T]
    pairs = {str(i): (columns[i], columns[i + 1]) for i in range(0, len(columns) - 1, 2)}
    turned = reversals(pairs, meanings=minilm.meanings)
    units = [("words", pd.DataFrame(dict(enumerate(pair)))) for pair in pairs.values()]
    tested = with_units(turned, units, meanings=minilm.meanings)
    frame = pd.DataFrame(rewards, names)
    skewed = with_test(moments(frame, dependent=dependence(names, minilm.meanings)))
    outside = {
        name: ~((turned[f"{name}_low"] <= null) & (null <= turned[f"{name}_high"]))
        for name, null in (("reversal", 0.5), ("kendall", 0.0), ("pearson", 0.0))
    }
    outside["share_difference"] = ~(
        (turned["share_difference_low"] <= 0.5) & (turned["share_difference_high"] >= 0.5)
    )
    return [
        {"test": f"unrelated prompts, {name}", "p": float(is_out.mean())}
        for name, is_out in outside.items()
    ] + [
        {"test": "unrelated prompts, p of reversal", "p": float((tested["unit_p"] < 0.05).mean())},
        {"test": "moments, skewness", "p": float((skewed["skewness_p"] < 0.05).mean())},
    ]


def identity(words: Words, matches, rewards: np.ndarray) -> list[dict]:
    """Axes of identity terms, one by one and together; p is against everyday topics."""
    frame = pd.DataFrame(rewards, words.words, [f"run {i}" for i in range(rewards.shape[1])])
    axes = identity_effects(frame, matches, heads=ON_MEANINGS)[0]
    together = axes["axis"] == "all"
    return [
        shares("identity, axes", axes[~together]),
        shares("identity, all axes", axes[together]),
    ]


def several_models(words: Words, draws: list[np.ndarray]) -> list[dict]:
    """The asymmetry test over models."""
    tables, influences = [], {}
    for number, rewards in enumerate(draws):
        frame = pd.DataFrame(rewards, words.words, [f"run {i}" for i in range(rewards.shape[1])])
        polarity = dict.fromkeys(frame, 1)
        asked = sentiment(frame, words.afinn, polarity=polarity, heads=ON_MEANINGS)
        tables.append(asked.asymmetry.assign(model=f"model {number}", lexicon="afinn"))
        influences[f"model {number}", "afinn"] = asked.influence
    across = asymmetry_across_models(pd.concat(tables, ignore_index=True), influences)
    return [shares(f"asymmetry over {len(draws)} models", across)]


def exam(runs: int, *, seed: int = 0) -> pd.DataFrame:
    """Test × null: shares at .05."""
    words = Words(seed)
    covariates = words.zipf.to_frame("zipf").assign(afinn=words.afinn.reindex(words.words))
    matches = match_identity(words.axes, covariates, topics=TOPICS, meanings=minilm.meanings)
    rows = []
    for null, draw in words.nulls().items():
        rewards = draw(runs)
        new = [
            *one_model(words, rewards),
            *orders(words, rewards),
            *identity(words, matches, rewards),
        ]
        # Models of one taste, each with noise of its own; and models each with its own.
        shared = draw(runs)
        alike = [np.sqrt(0.5) * shared + np.sqrt(0.5) * words.noise(runs) for _ in range(MODELS)]
        unlike = [draw(runs // 4) for _ in range(MODELS)]
        for name, draws in (("alike", alike), ("unlike", unlike)):
            across = several_models(words, draws)
            new += [row | {"test": f"{row['test']}, {name}"} for row in across]
        rows += [{"null": null, **row} for row in new]
        print(pd.DataFrame(rows[-len(new) :]).round(3).to_string(), flush=True)
    return pd.DataFrame(rows).pivot(index="test", columns="null", values=["random heads", "p"])


def seconds(*, words: int = 30_000, models: int = MODELS) -> pd.DataFrame:
    """Processor time of the frequency test, without and with words alike in meaning."""
    known = [
        word for word in wordfreq.top_n_list("en", 2 * words) if word.isalpha() and word.isascii()
    ][:words]
    zipf, valence = read_frequencies("wordfreq").zipf(known), read_lexicon("afinn")
    random, rows = np.random.default_rng(0), []
    minilm.meanings(known)  # reads the embeddings
    for name, heads in (("stems alone", None), ("random heads", ON_MEANINGS)):
        started = time.process_time()
        for _ in range(models):
            rewards = pd.DataFrame(
                random.normal(size=(words, 3)), pd.Index(known, name="word"), ["a", "b", "worst"]
            )
            found = frequency_slopes(
                rewards, zipf, valence, pairs=[("a", "worst")], heads=heads, least_zipf=0
            )
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
