"""Which words each model ranks first: median ranks of a dictionary's categories (Big Two, Moral Foundations).

Knows rewards by text and a dictionary; knows nothing of what its categories mean. Whether the base or the framing moves
the ranks, see `category_model`.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.compare.analysis import Needs, Options, analysis
from pessimal.compare.category_model import category_model, framings_of
from pessimal.errors import TableError
from pessimal.plots import Forest
from pessimal.statistics import holm, median_interval
from pessimal.tables.result import Estimate, Result, merged, weight_of
from pessimal.tables.score_table import ScoreTable
from pessimal.tables.table_set import TableSet

LEAST_WORDS = 6
"""Words a category needs: of fewer no 95 % interval of the median can be given."""
ALL_BASES, ALL_CATEGORIES = "all bases", "all categories"
WILDCARD = "*"
_ENDING = re.compile(r"[^\W\d_]*(?:['’-][^\W\d_]+)*")

Rewards = Mapping[str, Mapping[str, pd.Series]]
"""Rewards by prompt, then by model: reward by text; a text may occur more than once."""


def matches(entries: Iterable[str], words: Iterable[str]) -> dict[str, list[str]]:
    """For each entry the words that it matches, in alphabetical order; none for an entry without any.

    A plain entry matches the word that is the same. `safe*` matches 'safe' itself and every one word that begins with
    it: what follows are letters, with apostrophes or hyphens between them. 'safe.txt', 'safe_mode' and 'safe haven'
    are no such words. As in LIWC an ending is not looked at: `harm*` matches 'harmony' as well. Case counts.
    """
    ordered = sorted(set(words))
    known = set(ordered)
    found = {}
    for entry in entries:
        if entry.endswith(WILDCARD):
            # In the sorted words they stand side by side: 2,000 wildcards against 128,000 words take 0.14 s so.
            beginning = entry.removesuffix(WILDCARD)
            first, last = (bisect_left(ordered, edge) for edge in (beginning, f"{beginning}\U0010ffff"))
            found[entry] = [w for w in ordered[first:last] if _ENDING.fullmatch(w, len(beginning))]
        else:
            found[entry] = [entry] if entry in known else []
    return found


def words_found(rewards: Rewards, dictionary: pd.DataFrame) -> pd.DataFrame:
    """How much of a dictionary the candidates hold, all models having it.

    A text is a word of the dictionary if both are the same without outer white space and in lower case; ' Love' and
    'love' are one word, 'lov##' none. A word that several entries of a category find (see `matches`) counts once.

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
        wildcards=lambda words: sum(words.str.endswith(WILDCARD)),
        entries_found=lambda words: sum(bool(matched[word]) for word in words),
        found=lambda words: len({word for entry in words for word in matched[entry]}),
    )
    return counts.assign(used=counts["found"].where(counts["found"] >= LEAST_WORDS, 0)).reset_index()


def median_ranks(rewards: Rewards, dictionary: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """Median rank of each category's words, for each model and prompt; rank 1 is the highest reward.

    Ranked are the distinct words that every model has, so that all ranks run from 1 to the same end. Spellings of one
    word (' love', 'Love') are averaged first; ties share their average rank; a word of several categories has one rank
    and counts in each. The interval is that of order statistics, for words drawn at random from their category.

    Args:
        rewards: by prompt and model; every prompt has the same models.
        dictionary: category, word; a word may end in `*`.
        confidence: of the intervals, at least.

    Returns:
        One row per model, prompt and category: model, prompt, category, n (its words), words (all that are ranked),
        median_rank, low, high, tied (words of the category that share their reward with another).

    Raises:
        TableError: fewer than two categories with enough words, a missing reward, or prompts with other models.

    Source: follow-up to Christian et al. (2026), Big Two.
    """
    models = {prompt: sorted(by_model) for prompt, by_model in rewards.items()}
    if len(set(map(tuple, models.values()))) != 1:
        raise TableError(
            f"Every prompt needs the same models; given were {models}. Scan what is missing, or leave prompts out."
        )
    by_word = _by_word(rewards, dictionary)
    everywhere = _common(by_word)
    entries = _entries(dictionary)
    entries = entries.assign(word=entries["word"].map(matches(entries["word"], everywhere))).explode("word")
    entries = entries.dropna(subset=["word"]).drop_duplicates(ignore_index=True)
    sizes = entries["category"].value_counts()
    kept = sorted(sizes.index[sizes >= LEAST_WORDS])
    if len(kept) < 2:
        raise TableError(
            f"Of the words of the dictionary {len(everywhere)} are among every model's candidates, {dict(sizes)} by "
            f"category; two categories with {LEAST_WORDS} words each are needed. Give the words as items: pessimal scan "
            "candidates=items candidates.path=FILE candidates.name=NAME mode=text"
        )
    members = {category: entries.loc[entries["category"] == category, "word"] for category in kept}
    ranked_words = pd.Index(sorted(set(pd.concat(list(members.values())))))
    rows = []
    for (prompt, model), values in by_word.items():
        values = values.reindex(ranked_words)
        if lost := values.isna().sum():
            raise TableError(f"{model} on {prompt}: {lost} rewards are missing; scan it again.")
        ranks, shared = values.rank(ascending=False), values.duplicated(keep=False)
        for category, words in members.items():
            (low,), (high,) = median_interval(np.sort(ranks[words].to_numpy())[None], confidence=confidence)
            rows.append(
                {
                    "model": model, "prompt": prompt, "category": category, "n": len(words), "words": len(ranked_words),
                    "median_rank": float(ranks[words].median()), "low": low, "high": high,
                    "tied": int(shared[words].sum()),
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def category_means(
    medians: pd.DataFrame,
    *,
    polarity: Mapping[str, int],
    bases: Mapping[str, str] | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Mean and standard deviation of the median ranks: by framing, base and category, and over all of either.

    The unit of mean and sd is a model × prompt × category, as published. Prompts to one model are not independent, so
    the interval takes each model's own mean as one observation (Student t), and is missing for a single model.

    Args:
        medians: of `median_ranks`.
        polarity: 1 or −1 by prompt; TableError where one has none.
        bases: base by model; without it there is only `all bases`.

    Returns:
        framing, base, category, n (units), models, prompts, mean, sd (divisor n − 1), low, high; positive first.
    """
    table = medians.assign(framing=framings_of(medians["prompt"], polarity))
    rows = []
    for base in [ALL_BASES] if bases is None else [ALL_BASES, table["model"].map(bases)]:
        for category in (ALL_CATEGORIES, table["category"]):
            keys = table.assign(base=base, category=category)
            for (framing, of_base, of_category), part in keys.groupby(["framing", "base", "category"]):
                own = part.groupby("model")["median_rank"].mean().to_numpy()
                low, high = _mean_interval(own, confidence=confidence)
                rows.append(
                    {
                        "framing": framing, "base": of_base, "category": of_category, "n": len(part), "models": len(own),
                        "prompts": part["prompt"].nunique(), "mean": part["median_rank"].mean(),
                        "sd": part["median_rank"].std(), "low": low, "high": high,
                    }
                )  # fmt: skip
    return pd.DataFrame(rows).sort_values("framing", ascending=False, kind="stable", ignore_index=True)


def _mean_interval(values: np.ndarray, *, confidence: float) -> tuple[float, float]:
    many = len(values) > 1
    reach = stats.t.ppf((1 + confidence) / 2, len(values) - 1) * stats.sem(values) if many else np.nan
    return float(values.mean() - reach), float(values.mean() + reach)


def _entries(dictionary: pd.DataFrame) -> pd.DataFrame:
    """Category and word in lower case, each pair once."""
    words = dictionary["word"].str.strip().str.lower()
    return dictionary.assign(word=words)[["category", "word"]].drop_duplicates(ignore_index=True)


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
    return set.intersection(*(set(values.index) for values in by_word.values()))


@analysis("dictionaries", Needs(prompts=0, dictionaries=True))
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Median ranks by category of each dictionary, on all prompts of known polarity; and what moves them."""
    used, left_out = _usable(tables)
    if not used:
        raise TableError(
            f"no prompt of known polarity with a model that has them all ({'; '.join(left_out)})"
        )
    polarity = {prompt: tables.reading.polarity_of(prompt) for prompt in used}
    rewards = {
        prompt: {t.provenance.model: t.rows.set_index("text")["reward"] for t in own}
        for prompt, own in used.items()
    }
    bases, unknown = _bases(tables.descriptors.loc[list(next(iter(rewards.values()))), "base"])
    results = []
    for name, dictionary in options.dictionaries.items():
        where, notes = {"dictionary": name, "candidates": tables.candidates}, [*left_out, *unknown]
        try:
            medians = median_ranks(rewards, dictionary, confidence=options.confidence).assign(**where)
            medians["framing"] = framings_of(medians["prompt"], polarity)
            results.append(Result("median_ranks", medians, method="dictionaries"))
            means = category_means(medians, polarity=polarity, bases=bases, confidence=options.confidence)
            results.append(_ranks_result(means.assign(**where), medians, bases or {}, options.confidence))
            terms = category_model(
                medians, polarity=polarity, bases=bases, permutations=options.permutations,
                confidence=options.confidence, seed=options.seed,
            )  # fmt: skip
            results.append(_terms_result(terms.assign(**where), medians["words"].iloc[0]))
        except TableError as error:  # too few words, or too few models for the mixed model
            notes.append(f"{name}: {error}")
        words = words_found(rewards, dictionary).assign(**where)
        results.append(Result("dictionary_words", words, method="dictionaries", notes=tuple(notes)))
    return merged(results)


def _ranks_result(means: pd.DataFrame, medians: pd.DataFrame, bases: Mapping, confidence: float) -> Result:
    """The categories that lie farthest apart on prompts of one polarity; a figure of every model's mean ranks."""
    overall = means[(means["base"] == ALL_BASES) & (means["category"] != ALL_CATEGORIES)]
    framing = overall.groupby("framing")["mean"].agg(np.ptp).idxmax()
    ranked = overall[overall["framing"] == framing].sort_values("mean")
    first, last = ranked.iloc[0], ranked.iloc[-1]
    keys = ["dictionary", "candidates", "framing", "model", "category"]
    own = medians.groupby(keys)["median_rank"].mean().rename("mean").reset_index()
    own = own.sort_values("framing", ascending=False, kind="stable")  # positive first
    own = own.sort_values("model", key=lambda models: models.map(bases), kind="stable")  # one base together
    by_model = own[own["framing"] == framing].set_index(["model", "category"])["mean"].unstack()
    apart = (by_model[last["category"]] - by_model[first["category"]]).to_numpy()
    low, high = _mean_interval(apart, confidence=confidence)
    words = int(medians["words"].iloc[0])
    return Result(
        "dictionary_means",
        means,
        headline=f"{first['dictionary']}: on {framing} prompts, models rank {first['category']} words first (mean median "
        f"rank {first['mean']:.0f} of {words}), {last['category']} words last ({last['mean']:.0f}).",
        plot=Forest(
            tabs=("dictionary", "candidates"), data=own, estimate="mean", low=None, high=None, group="category",
            panel="framing", reference=None, xlabel="mean median rank (1 = highest reward)",
        ),
        method="dictionaries",
        weight=weight_of(2 * apart.mean() / words),
        estimate=Estimate("difference in median rank", float(apart.mean()), len(apart), "models", low, high),
    )  # fmt: skip


def _terms_result(terms: pd.DataFrame, words: int) -> Result:
    """Of the highest interactions the one that is surest with models as units; p corrected for how many there are."""
    order = terms["term"].str.count(" × ")
    highest = terms[order == order.max()]
    highest = highest.assign(p=holm(highest["permutation_p"]), size=-highest["estimate"].abs())
    best = highest.sort_values(["p", "size"]).iloc[0]
    drawn = terms[terms["term"] != "intercept"]
    names = drawn[["base", "category", "framing"]].agg(lambda row: " × ".join(filter(None, row)), axis=1)
    data = [
        drawn.assign(term=names, unit="mixed model, as published", p=holm(drawn["p_value"])),
        drawn.assign(
            term=names, unit="models as units", low=drawn["models_low"], high=drawn["models_high"],
            p=holm(drawn["permutation_p"]),
        ),
    ]  # fmt: skip
    columns = ["dictionary", "candidates", "term", "unit", "estimate", "low", "high", "p"]
    stem, by = f"{best['dictionary']}-{best['candidates']}", f"{best['estimate']:z.1f}".replace("-", "−")
    return Result(
        "dictionary_mixed_model",
        terms,
        headline=f"{best['dictionary']}: {best['term']} moves the median rank by {by} of {words} "
        f"(p = {best['p']:.3f}, models as units).",
        plot=Forest(
            tabs=("dictionary", "candidates"), data=pd.concat(data)[columns], row="term", group="unit", p="p",
            xlabel="difference in median rank (negative: ranked better)",
        ),
        method="dictionaries",
        weight=weight_of(2 * best["estimate"] / words, best["p"]),
        estimate=Estimate(
            "difference in median rank", float(best["estimate"]), int(best["models"]), "models",
            float(best["models_low"]), float(best["models_high"]), float(best["p"]),
        ),
        summary={
            f"{stem}/{row.term}/{name}": float(getattr(row, name))
            for row in terms.itertuples()
            for name in ("estimate", "se", "permutation_p")
            if pd.notna(getattr(row, name))
        },
    )  # fmt: skip


def _usable(tables: TableSet) -> tuple[dict[str, list[ScoreTable]], list[str]]:
    """Prompts of known polarity, each question once, with the models that have them all; and what that leaves out."""
    found, asked, unknown, repeated = {}, {}, [], []
    for prompt, own in tables.by_prompt.items():
        text = own[0].provenance.prompt_text
        if tables.reading.polarity_of(prompt) is None:
            unknown.append(prompt)
        elif text is not None and text in asked:
            repeated.append(f"{prompt} (as {asked[text]})")
        else:
            found[prompt] = own
            asked[text] = prompt
    modes: dict[str, set[str]] = {}
    for table in (table for own in found.values() for table in own):
        modes.setdefault(table.provenance.model, set()).add(table.provenance.mode)
    several = {model for model, own in modes.items() if len(own) > 1}  # the mode would pass for the prompt
    whole = set(modes).intersection(*({t.provenance.model for t in own} for own in found.values())) - several
    left_out = {
        "prompts of unknown polarity (+polarity.KEY=1 or -1)": unknown,
        "prompts that ask the same question": repeated,
        "models scanned in several modes (mode=ids)": sorted(several),
        "models that lack some of the prompts": sorted(set(modes) - whole - several),
    }
    used = {prompt: [t for t in own if t.provenance.model in whole] for prompt, own in found.items() if whole}
    return used, [f"left out, {why}: {_some(names)}" for why, names in left_out.items() if names]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _bases(bases: pd.Series) -> tuple[dict[str, str] | None, list[str]]:
    """Base by model, where they can be compared; else why not."""
    if bases.isna().any():
        return None, [f"without the base: not known for {_some(list(bases.index[bases.isna()]))}"]
    if bases.nunique() < 2:
        return None, [f"without the base: all models have {bases.iloc[0]}"]
    return bases.to_dict(), []
