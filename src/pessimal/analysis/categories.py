"""Which kind of words does a model rank first: median ranks of a dictionary's categories.

Knows rewards by text and a dictionary; knows nothing of what its categories mean. For the regression over models, bases
and framings see `category_model`.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.analysis.wildcards import is_wildcard, matches
from pessimal.errors import TableError

LEAST_WORDS = 6
"""Words a category needs: of fewer no 95 % interval of the median can be given."""
FRAMINGS = {1: "positive", -1: "negative"}
ALL_BASES, ALL_CATEGORIES = "all bases", "all categories"

Rewards = Mapping[str, Mapping[str, pd.Series]]
"""Rewards by prompt, then by model: reward by text; a text may occur more than once."""


def words_found(rewards: Rewards, dictionary: pd.DataFrame) -> pd.DataFrame:
    """How much of a dictionary the candidates hold, all models having it.

    A text is a word of the dictionary if both are the same without outer white space and in lower case; ' Love' and
    'love' are one word, 'lov##' none. Words of several parts ('common good') are found among items, hardly among tokens.
    An entry with a wildcard (`safe*`) finds every word that begins so (see `wildcards.matches`), so that a category may
    find more words than it has entries; a word that several of its entries find counts once.

    Returns:
        One row per category: category, words (entries in the dictionary), wildcards (how many of these end in `*`),
        entries_found (that find at least one word), found (words that every model has), used (0 where fewer than
        `LEAST_WORDS` were found, and the category is left out).
    """
    everywhere = _common(_by_word(rewards, dictionary))
    entries = _entries(dictionary)
    matched = matches(entries["word"], everywhere)
    counts = entries.groupby("category", sort=True)["word"].agg(
        words="size",
        wildcards=lambda words: sum(map(is_wildcard, words)),
        entries_found=lambda words: sum(bool(matched[word]) for word in words),
        found=lambda words: len({word for entry in words for word in matched[entry]}),
    )
    return counts.assign(used=counts["found"].where(counts["found"] >= LEAST_WORDS, 0)).reset_index()


def median_ranks(rewards: Rewards, dictionary: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """Median rank of each category's words, for each model and prompt; rank 1 is the highest reward.

    Ranked are the distinct words, and only those that every model has, so that all ranks run from 1 to the same end.
    Spellings of one word (' love', 'Love') are averaged first; ties share their average rank; a word under several
    categories has one rank and counts in each, whether it stands there itself or a wildcard finds it. The interval is that of order statistics, for words drawn at random from
    their category; a dictionary's words are chosen, not drawn, and what one category gains in rank another loses.

    Args:
        rewards: by prompt and model; every prompt has the same models.
        dictionary: category, word; a word may end in `*`.
        confidence: of the intervals; they reach at least this level, as ranks come in steps.

    Returns:
        One row per model, prompt and category: model, prompt, category, n (its words), words (all that are ranked),
        median_rank, low, high, tied (words of the category that share their reward with another).

    Raises:
        TableError: fewer than two categories with enough words, a missing reward, or prompts with other models.

    Source: follow-up to Christian et al. (2026), Big Two; 263 words, rank 1 the highest, average ranks give its numbers.
    """
    models = {prompt: sorted(by_model) for prompt, by_model in rewards.items()}
    if len({tuple(names) for names in models.values()}) != 1:
        raise TableError(
            f"Every prompt needs the same models; given were {models}. Scan what is missing, or leave prompts out."
        )
    by_word = _by_word(rewards, dictionary)
    everywhere = _common(by_word)
    entries = _expanded(_entries(dictionary), everywhere)
    sizes = entries["category"].value_counts()
    kept = sorted(sizes.index[sizes >= LEAST_WORDS])
    if len(kept) < 2:
        raise TableError(
            f"Of the words that the dictionary's {dictionary['word'].nunique()} entries find, {len(everywhere)} are among every "
            f"model's candidates, {dict(sizes)} by category; two categories with {LEAST_WORDS} words each are needed. Give the words as items: "
            "pessimal scan candidates=items candidates.path=FILE candidates.name=NAME mode=text"
        )
    members = {category: entries.loc[entries["category"] == category, "word"] for category in kept}
    ranked_words = pd.Index(sorted(set(pd.concat(list(members.values())))))
    rows = []
    for (prompt, model), values in by_word.items():
        values = values.reindex(ranked_words)
        if values.isna().any():
            raise TableError(
                f"{model} on {prompt}: {values.isna().sum()} rewards are missing; scan it again."
            )
        ranks, shared = values.rank(ascending=False), values.duplicated(keep=False)
        for category, words in members.items():
            low, high = median_interval(ranks[words].to_numpy(), confidence=confidence)
            rows.append(
                {
                    "model": model,
                    "prompt": prompt,
                    "category": category,
                    "n": len(words),
                    "words": len(ranked_words),
                    "median_rank": float(ranks[words].median()),
                    "low": low,
                    "high": high,
                    "tied": int(shared[words].sum()),
                }
            )
    return pd.DataFrame(rows)


def category_means(
    medians: pd.DataFrame,
    *,
    frames: Mapping[str, int],
    bases: Mapping[str, str] | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Mean and standard deviation of the median ranks: by framing, base and category, and over all of either.

    The unit of mean and sd is a model × prompt × category, as published. Prompts to one model are not independent, so
    the interval takes each model's own mean as one observation (Student t), and is missing for a single model.

    Args:
        medians: of `median_ranks`.
        frames: 1 or −1 by prompt.
        bases: base by model; without it there is only `all bases`.
        confidence: of the interval.

    Returns:
        framing, base, category, n (units), models, prompts, mean, sd (divisor n − 1), low, high.

    Raises:
        TableError: a prompt has no frame.
    """
    table = medians.assign(framing=framings_of(medians["prompt"], frames))
    kinds = [("all", pd.Series(ALL_BASES, index=table.index))]
    if bases is not None:
        kinds.append(("each", table["model"].map(bases)))
    rows = []
    for _, base in kinds:
        for category in (pd.Series(ALL_CATEGORIES, index=table.index), table["category"]):
            keys = table.assign(base=base, category=category)
            for (framing, of_base, of_category), part in keys.groupby(["framing", "base", "category"]):
                own = part.groupby("model")["median_rank"].mean()
                low, high = _mean_interval(own.to_numpy(), confidence=confidence)
                rows.append(
                    {
                        "framing": framing,
                        "base": of_base,
                        "category": of_category,
                        "n": len(part),
                        "models": len(own),
                        "prompts": part["prompt"].nunique(),
                        "mean": part["median_rank"].mean(),
                        "sd": part["median_rank"].std(),
                        "low": low,
                        "high": high,
                    }
                )
    order = {framing: place for place, framing in enumerate(FRAMINGS.values())}
    return pd.DataFrame(rows).sort_values(
        "framing", key=lambda c: c.map(order), kind="stable", ignore_index=True
    )


def framings_of(prompts: Iterable[str], frames: Mapping[str, int]) -> list[str]:
    """ "positive" or "negative" for each prompt; TableError where one has no frame."""
    prompts = list(prompts)
    if unknown := sorted({prompt for prompt in prompts if frames.get(prompt) not in FRAMINGS}):
        raise TableError(
            f"No frame for the prompts {', '.join(unknown)}; a frame is 1 (good words answer it) or -1 (bad words do)."
        )
    return [FRAMINGS[frames[prompt]] for prompt in prompts]


def median_interval(values: np.ndarray, *, confidence: float) -> tuple[float, float]:
    """The order statistics between which the median of a population lies, at the confidence or above; or NaN.

    Source: Conover 1999, section 3.2.
    """
    n = len(values)
    place = int(stats.binom.ppf((1 - confidence) / 2, n, 0.5))
    if place < 1:
        return float("nan"), float("nan")
    ordered = np.sort(values)
    return float(ordered[place - 1]), float(ordered[n - place])


def _mean_interval(values: np.ndarray, *, confidence: float) -> tuple[float, float]:
    if len(values) < 2:
        return float("nan"), float("nan")
    reach = stats.t.ppf((1 + confidence) / 2, len(values) - 1) * stats.sem(values)
    return float(values.mean() - reach), float(values.mean() + reach)


def _entries(dictionary: pd.DataFrame) -> pd.DataFrame:
    """Category and word in lower case, each pair once."""
    words = dictionary["word"].str.strip().str.lower()
    return dictionary.assign(word=words)[["category", "word"]].drop_duplicates(ignore_index=True)


def _expanded(entries: pd.DataFrame, words: set[str]) -> pd.DataFrame:
    """Category and word for every word that an entry of the category finds, each pair once."""
    found = entries.assign(word=entries["word"].map(matches(entries["word"], words))).explode("word")
    return found.dropna(subset=["word"]).drop_duplicates(ignore_index=True)


def _by_word(rewards: Rewards, dictionary: pd.DataFrame) -> dict[tuple[str, str], pd.Series]:
    """Mean reward by word that the dictionary finds, for each prompt and model."""
    entries = _entries(dictionary)["word"].unique()
    spelled: dict[str, tuple[pd.Index, np.ndarray, np.ndarray]] = {}  # a model's prompts share their texts
    found = {}
    for prompt, by_model in rewards.items():
        for model, values in by_model.items():
            if model not in spelled or not spelled[model][0].equals(values.index):
                words = pd.Series(values.index, dtype=object).str.strip().str.lower()
                wanted = {word for own in matches(entries, words).values() for word in own}
                places = np.flatnonzero(words.isin(wanted))
                spelled[model] = values.index, places, words.to_numpy()[places]
            _, places, words = spelled[model]
            found[prompt, model] = values.iloc[places].groupby(words).mean()
    return found


def _common(by_word: Mapping[tuple[str, str], pd.Series]) -> set[str]:
    """Words that every model has on every prompt."""
    sets = [set(values.index) for values in by_word.values()]
    return set.intersection(*sets) if sets else set()
