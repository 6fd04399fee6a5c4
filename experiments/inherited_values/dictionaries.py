"""Which words each model ranks first: median ranks of a dictionary's categories (Big Two, Moral
Foundations).

Knows rewards by text, or log-probabilities, and a dictionary; knows nothing of what its categories
mean. Whether the base or the framing moves the ranks, see `category_model`.

    PYTHONPATH=. pessimal compare 'analyses=[{_target_:
        experiments.inherited_values.dictionaries.rank_categories, dictionaries: {NAME: FILE}}]'
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.inherited_values.category_model import (
    Lineages,
    base_contrasts,
    category_model,
    corrected_bounds,
    framings_of,
    model_contrasts,
    pooled_interval,
)
from experiments.inherited_values.resampling import median_interval
from experiments.inherited_values.word_categories import read_dictionaries
from pessimal.analyses.analysis import Analysis, Needs, Options, analysis, note_errors, strongest
from pessimal.catalogue import known_model
from pessimal.errors import TableError
from pessimal.plots import Forest
from pessimal.statistics import LEVEL, holm
from pessimal.tables.result import Effect, Estimate, Result, merged, weight_of
from pessimal.tables.score_table import ScoreTable
from pessimal.tables.table_set import TableSet, labels_of, runs_of
from pessimal.texts import signed

METHOD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
LEAST_WORDS = 6
"""Words a category needs: of fewer no 95 % interval of the median can be given."""
ALL_BASES, ALL_CATEGORIES = "all bases", "all categories"
ENDS = ("low_adjusted", "high_adjusted")
DIFFERENCE = Effect("estimate", "difference in median rank", *ENDS, p="p_adjusted", null=0.0)
BETTER = "difference in mean median rank (negative: ranked better)"
WILDCARD = "*"
_ENDING = re.compile(r"[^\W\d_]*(?:['’-][^\W\d_]+)*")

TRAINED_FROM = {
    "nicolinho/QRM-Gemma-2-27B": "Skywork/Skywork-Reward-Gemma-2-27B",
    "Skywork/Skywork-Reward-Gemma-2-27B-v0.2": "Skywork/Skywork-Reward-Gemma-2-27B",
    "nicolinho/QRM-Llama3.1-8B": "Skywork/Skywork-Reward-Llama-3.1-8B",
    "Skywork/Skywork-Reward-Llama-3.1-8B-v0.2": "Skywork/Skywork-Reward-Llama-3.1-8B",
    "LxzGordon/URM-LLaMa-3.1-8B": "Skywork/Skywork-Reward-Llama-3.1-8B",
}
"""Reward models by what they were trained from, or (v0.2) repeat on cleaned data: they share more
than a base.

Source: the cards of QRM-Llama3.1-8B and URM; QRM-Gemma-2-27B is of the same recipe as the former.
"""

Rewards = Mapping[str, Mapping[str, pd.Series]]
"""Rewards by prompt, then by model: reward by text; a text may occur more than once."""


@dataclass(frozen=True)
class Spelling:
    """Which texts are a word, and what the word's number is where several are."""

    exact: bool = False
    """Only the text that is the word to the letter, as the published figures of log-probabilities
    have it; else any that is the word without outer white space and in lower case."""
    added: bool = False
    """Numbers are log-probabilities: a word's is the log of what its spellings add up to. Else
    their mean."""

    def words(self, texts: pd.Index) -> pd.Series:
        """The word that each text spells, by position."""
        texts = pd.Series(texts, dtype=object)
        return texts if self.exact else texts.str.strip().str.lower()

    def one_a_word(self, values: pd.Series, words: np.ndarray) -> pd.Series:
        """One number a word, index = word."""
        if not self.added:
            return values.groupby(words).mean()
        return np.exp(values.astype(float)).groupby(words).sum().map(np.log)


ANY_SPELLING = Spelling()


def matches(entries: Iterable[str], words: Iterable[str]) -> dict[str, list[str]]:
    """For each entry the words that it matches, in alphabetical order; none for an entry without
    any.

    A plain entry matches the word that is the same. `safe*` matches 'safe' itself and every one
    word that begins with it: what follows are letters, with apostrophes or hyphens between them.
    'safe.txt', 'safe_mode' and 'safe haven' are no such words. As in LIWC an ending is not looked
    at: `harm*` matches 'harmony' as well. Case counts.
    """
    ordered = sorted(set(words))
    vocabulary = set(ordered)
    words_of = {}
    for entry in entries:
        if entry.endswith(WILDCARD):
            # In the sorted words they stand side by side: 2,000 wildcards against 128,000 words
            # take 0.14 s so.
            begin = entry.removesuffix(WILDCARD)
            first, last = (bisect_left(ordered, edge) for edge in (begin, f"{begin}\U0010ffff"))
            near = ordered[first:last]
            words_of[entry] = [word for word in near if _ENDING.fullmatch(word, len(begin))]
        else:
            words_of[entry] = [entry] if entry in vocabulary else []
    return words_of


def words_found(
    rewards: Rewards, dictionary: pd.DataFrame, spelling: Spelling = ANY_SPELLING
) -> pd.DataFrame:
    """How much of a dictionary the candidates hold, all models having it.

    A text is a word of the dictionary if both are the same without outer white space and in lower
    case; ' Love' and 'love' are one word, 'lov##' none (unless `spelling` says otherwise). A word
    that several entries of a category find (see `matches`) counts once.

    Returns:
        One row per category: category, words (entries in the dictionary), wildcards (how many of
            these end in `*`),
        entries_found (that find at least one word), found (words that every model has), used (0
        where fewer than `LEAST_WORDS` were found, and the category is left out).
    """
    everywhere = _common(_by_word(rewards, dictionary, spelling))
    entries = _entries(dictionary)
    matched = matches(entries["word"], everywhere)
    counts = entries.groupby("category", sort=True)["word"].agg(
        words="size",
        wildcards=lambda words: sum(words.str.endswith(WILDCARD)),
        entries_found=lambda words: sum(bool(matched[word]) for word in words),
        found=lambda words: len({word for entry in words for word in matched[entry]}),
    )
    used = counts["found"].where(counts["found"] >= LEAST_WORDS, 0)
    return counts.assign(used=used).reset_index()


def median_ranks(
    rewards: Rewards,
    dictionary: pd.DataFrame,
    *,
    confidence: float = 0.95,
    spelling: Spelling = ANY_SPELLING,
) -> pd.DataFrame:
    """Median rank of each category's words, for each model and prompt; rank 1 is the highest
    reward.

    Ranked are the distinct words that every model has, so that all ranks run from 1 to the same
    end. Spellings of one word (' love', 'Love') are averaged first; ties share their average rank;
    a word of several categories has one rank and counts in each. The interval is that of order
    statistics, for words drawn at random from their category.

    Args:
        rewards: by prompt and model; every prompt has the same models.
        dictionary: category, word; a word may end in `*`.
        confidence: of the intervals, at least.
        spelling: which texts are a word, and what several of them come to.

    Returns:
        One row per model, prompt and category: model, prompt, category, n (its words), words (all
            that are ranked),
        median_rank, low, high, tied (words of the category that share their reward with another).

    Raises:
        TableError: fewer than two categories with enough words.

    Source: follow-up to Christian et al. (2026), Big Two.
    """
    by_word = _by_word(rewards, dictionary, spelling)
    members = _members(_common(by_word), dictionary)
    ranked_words = pd.Index(sorted(set(pd.concat(list(members.values())))))
    rows = []
    for (prompt, model), values in by_word.items():
        values = values.reindex(ranked_words)
        ranks, shared = values.rank(ascending=False), values.duplicated(keep=False)
        for category, words in members.items():
            ascending = np.sort(ranks[words].to_numpy())
            (low,), (high,) = median_interval(ascending[None], confidence=confidence)
            row = {"model": model, "prompt": prompt, "category": category, "n": len(words)}
            row |= {"words": len(ranked_words), "median_rank": float(np.median(ascending))}
            rows.append(row | {"low": low, "high": high, "tied": int(shared[words].sum())})
    return pd.DataFrame(rows)


def word_scores(
    rewards: Mapping[str, pd.Series], dictionary: pd.DataFrame
) -> tuple[pd.DataFrame, pd.Series]:
    """The words that `median_ranks` ranks: their rewards, spellings averaged, and their categories.

    Args:
        rewards: of one prompt by model: reward by text.
        dictionary: category, word; a word may end in `*`.

    Returns:
        words × models; and category by word, those of several joined by a comma.

    Raises:
        TableError: see `median_ranks`.
    """
    by_word = _by_word({"": rewards}, dictionary, ANY_SPELLING)
    members = pd.concat(_members(_common(by_word), dictionary), names=["category"])
    categories = members.reset_index("category").groupby("word")["category"].agg(", ".join)
    scores = {model: values.reindex(categories.index) for (_, model), values in by_word.items()}
    return pd.DataFrame(scores, index=categories.index), categories


def category_means(
    medians: pd.DataFrame,
    *,
    polarity: Mapping[str, int],
    bases: Mapping[str, str] | None = None,
    lineages: Mapping[str, str] | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Mean and standard deviation of the median ranks: by framing, base and category, and over all
    of either.

    The unit of mean and sd is a model × prompt × category, as published. Prompts to one model are
    not independent, so the interval takes each model's own mean as one observation (Student t),
    those of one lineage together, and is missing for a single one.

    Args:
        medians: of `median_ranks`.
        polarity: 1 or −1 by prompt.
        bases: base by model; without it there is only `all bases`.
        lineages: lineage by model; one that is not named is its own.

    Returns:
        framing, base, category, n (units), models, prompts, mean, sd (divisor n − 1), low, high;
        positive first.
    """
    table = medians.assign(framing=framings_of(medians["prompt"], polarity))
    pieces = []
    keys = ["framing", "base", "category"]
    for base in [ALL_BASES] if bases is None else [ALL_BASES, table["model"].map(bases)]:
        for category in (ALL_CATEGORIES, table["category"]):
            groups = table.assign(base=base, category=category).groupby(keys)
            piece = groups.agg(
                n=("median_rank", "size"),
                models=("model", "nunique"),
                prompts=("prompt", "nunique"),
                mean=("median_rank", "mean"),
                sd=("median_rank", "std"),
            )
            model_means = [part.groupby("model")["median_rank"].mean() for _, part in groups]
            units = [[Lineages.of(means, lineages)] for means in model_means]
            intervals = pd.DataFrame([pooled_interval(unit, confidence) for unit in units])
            intervals = intervals.set_axis(piece.index)[["low", "high"]]
            pieces.append(piece.join(intervals).reset_index())
    order = {"ascending": False, "kind": "stable", "ignore_index": True}
    return pd.concat(pieces).sort_values("framing", **order)


def _entries(dictionary: pd.DataFrame) -> pd.DataFrame:
    """Category and word in lower case, each pair once."""
    words = dictionary["word"].str.strip().str.lower()
    return dictionary.assign(word=words)[["category", "word"]].drop_duplicates(ignore_index=True)


def _by_word(
    rewards: Rewards, dictionary: pd.DataFrame, spelling: Spelling
) -> dict[tuple[str, str], pd.Series]:
    """One number for each word that the dictionary finds, for each prompt and model."""
    entries = _entries(dictionary)["word"].unique()
    # A model's prompts share their texts.
    spelled: list[tuple[pd.Index, np.ndarray, np.ndarray]] = []
    by_word = {}
    for prompt, by_model in rewards.items():
        for model, values in by_model.items():
            cached = next((one for one in spelled if one[0].equals(values.index)), None)
            if cached is None:
                words = spelling.words(values.index)
                wanted = {word for matched in matches(entries, words).values() for word in matched}
                places = np.flatnonzero(words.isin(wanted))
                cached = values.index, places, words.to_numpy()[places]
                spelled.append(cached)
            _, places, words = cached
            by_word[prompt, model] = spelling.one_a_word(values.iloc[places], words)
    return by_word


def _members(everywhere: set[str], dictionary: pd.DataFrame) -> dict[str, pd.Series]:
    """Of each category with enough of them the words that every model has; TableError where fewer
    than two have enough."""
    entries = _entries(dictionary)
    words = entries["word"].map(matches(entries["word"], everywhere))
    entries = entries.assign(word=words).explode("word")
    entries = entries.dropna(subset=["word"]).drop_duplicates(ignore_index=True)
    sizes = entries["category"].value_counts()
    categories = sorted(sizes.index[sizes >= LEAST_WORDS])
    if len(categories) < 2:
        raise TableError(
            f"Of the words of the dictionary {len(everywhere)} are among every model's candidates, "
            f"{dict(sizes)} by category; two categories with {LEAST_WORDS} words each are needed. "
            "Give the words as items: pessimal scan candidates=items candidates.path=FILE "
            "candidates.name=NAME mode=text"
        )
    return {name: entries.loc[entries["category"] == name, "word"] for name in categories}


def _common(by_word: Mapping[tuple[str, str], pd.Series]) -> set[str]:
    """Words that every model has on every prompt."""
    return set.intersection(*(set(values.index) for values in by_word.values()))


def lineage_of(model: str) -> str:
    """The reward model that a model was trained from, and so on to the first; itself where none is
    known."""
    name = row["repository"] if (row := known_model(model)) else model
    return lineage_of(TRAINED_FROM[name]) if name in TRAINED_FROM else name


def rank_categories(dictionaries: Mapping[str, str | Path]) -> Analysis:
    """The analysis of these dictionaries, files by name.

    Raises:
        InputError: a file cannot be read, see `word_categories.read_dictionary`.
    """
    words_by_dictionary = read_dictionaries(dictionaries)

    @analysis("dictionaries", Needs(models=0, prompts=0), place=170)
    def analyse(tables: TableSet, options: Options) -> list[Result]:
        return category_results(tables, options, words_by_dictionary)

    return analyse


def category_results(
    tables: TableSet, options: Options, dictionaries: Mapping[str, pd.DataFrame]
) -> list[Result]:
    """Median ranks by category of each dictionary, on all prompts of known polarity, and what moves
    them: of reward models, and apart from them of language models by their log-probabilities
    (tables that begin with `language_`). `dictionaries` have category and word."""
    kinds = [("", tables.by_prompt), ("language_", tables.language)]
    results, errors = [], []
    for prefix, by_prompt in kinds:
        try:
            if by_prompt:
                results += _score_results(by_prompt, prefix, tables, options, dictionaries)
        except TableError as error:
            errors.append(str(error))
    if not results:
        raise TableError("; ".join(errors))
    together = merged(results)
    return [replace(together[0], notes=(*together[0].notes, *errors)), *together[1:]]


def _score_results(
    by_prompt: Mapping[str, list[ScoreTable]],
    prefix: str,
    tables: TableSet,
    options: Options,
    dictionaries: Mapping[str, pd.DataFrame],
) -> list[Result]:
    """The results of one kind of score, rewards or log-probabilities; `prefix` begins their
    names."""
    used, left_out = _usable(by_prompt, tables)
    if not used:
        raise TableError(
            f"no prompt of known polarity with a model that has them all ({'; '.join(left_out)})"
        )
    polarity = {prompt: tables.reading.polarity_of(prompt) or 1 for prompt in used}  # all known
    rewards = {
        prompt: {t.model: t.text_rewards for t in members} for prompt, members in used.items()
    }
    described = {t.model: t.description.base for members in used.values() for t in members}
    models = [*next(iter(rewards.values()))]
    bases, unknown = _bases(pd.Series(described)[models])
    spelling = Spelling(exact=options.paper, added=True) if prefix else ANY_SPELLING
    how: dict[str, Any] = {"confidence": options.confidence, "polarity": polarity}
    lineages = {model: lineage_of(model) for model in described}
    if bases is not None:
        unknown = [*unknown, _lineages_note(lineages)]
    drawn: dict[str, Any] = {"permutations": options.permutations, "seed": options.seed}
    results: list[Result] = []
    keep = results.append
    for name, dictionary in dictionaries.items():
        where, notes = {"dictionary": name, "candidates": tables.candidates}, [*left_out, *unknown]
        title = f"{name}, log-probabilities" if prefix else name
        with note_errors(notes, title):  # too few words, or too few models for the mixed model
            ranked_by = {"confidence": options.confidence, "spelling": spelling}
            medians = median_ranks(rewards, dictionary, **ranked_by).assign(**where)
            medians["framing"] = framings_of(medians["prompt"], polarity)
            ranked = int(medians["words"].iloc[0])
            keep(Result("median_ranks", medians, method=METHOD))
            means = category_means(medians, bases=bases, lineages=lineages, **how).assign(**where)
            keep(_ranks_result(means, medians, bases or {}, lineages, options.confidence, title))
            if prefix and medians["model"].nunique() > 1:
                contrasts = model_contrasts(medians, **how).assign(**where)
                label = labels_of([t for members in tables.language.values() for t in members])
                keep(_difference_result(contrasts, "model", label, title, ranked))
            if bases is not None:
                contrasts = base_contrasts(medians, bases=bases, lineages=lineages, **how, **drawn)
                label = {base: f"{base} models" for base in set(bases.values())}
                keep(_difference_result(contrasts.assign(**where), "base", label, title, ranked))
            terms = category_model(medians, bases=bases, lineages=lineages, **how, **drawn)
            terms = _with_corrected(terms, options.confidence).assign(**where)
            keep(_terms_result(terms, ranked, title, options.confidence))
        words = words_found(rewards, dictionary, spelling).assign(**where)
        keep(Result("dictionary_words", words, method=METHOD, notes=tuple(notes)))
    return [replace(result, name=prefix + result.name) for result in results]


def _lineages_note(lineages: Mapping[str, str]) -> str:
    """What is known of which models were trained from which."""
    members: dict[str, list[str]] = {}
    for model, lineage in lineages.items():
        members.setdefault(lineage, []).append(model)
    several = [", ".join(models) for models in members.values() if len(models) > 1]
    if not several:
        return "lineages: none of these models is known to be trained from another"
    return f"one lineage each, relabelled together: {'; '.join(several)}"


def _ranks_result(
    means: pd.DataFrame,
    medians: pd.DataFrame,
    bases: Mapping[str, str],
    lineages: Mapping[str, str],
    confidence: float,
    title: str,
) -> Result:
    """The categories that lie farthest apart on prompts of one polarity; a figure of every model's
    mean ranks."""
    overall = means[(means["base"] == ALL_BASES) & (means["category"] != ALL_CATEGORIES)]
    framing = overall.groupby("framing")["mean"].agg(np.ptp).idxmax()
    ranked = overall[overall["framing"] == framing].sort_values("mean")
    first, last = ranked.iloc[0], ranked.iloc[-1]
    tabs = ("dictionary", "candidates")
    keys = [*tabs, "framing", "model", "category"]
    model_means = medians.groupby(keys)["median_rank"].mean().rename("mean").reset_index()
    # One base together, positive prompts first.
    model_means = model_means.assign(base=model_means["model"].map(bases)).sort_values(
        ["base", "framing"], ascending=[True, False], kind="stable"
    )
    of_framing = model_means[model_means["framing"] == framing]
    by_model = of_framing.pivot(index="model", columns="category", values="mean")
    apart = Lineages.of(by_model[last["category"]] - by_model[first["category"]], lineages)
    ends = pooled_interval([apart], confidence)[-2:]
    words = int(medians["words"].iloc[0])
    return Result(
        "dictionary_means",
        means,
        headline=f"{title}: on {framing} prompts, models rank {first['category']} words first "
        f"(mean median rank {first['mean']:.0f} of {words}), {last['category']} words last "
        f"({last['mean']:.0f}).",
        plot=Forest.of(
            Effect("mean", "median rank"),
            data=model_means,
            tabs=tabs,
            group="category",
            panel="framing",
            xlabel="mean median rank (1 = highest)",
        ),
        method=METHOD,
        weight=weight_of(2 * apart.mean / words),
        estimate=Estimate(DIFFERENCE.label, apart.mean, len(apart.means), "lineages", *ends),
    )


def _difference_result(
    contrasts: pd.DataFrame, kind: str, label: Mapping[str, str], title: str, words: int
) -> Result:
    """The widest difference that holds: between bases with lineages as units, or between two
    language models over adjectives (`kind` is base or model; `label` has the name of each)."""
    best = strongest(contrasts, "estimate", "p_adjusted")
    first, second = (label[best[side]] for side in (kind, "reference"))
    category, estimate = best["category"], float(best["estimate"])
    number = _interval(best["low_adjusted"], best["high_adjusted"], best["p_adjusted"])
    headline = (
        f"{title}: on {best['framing']} prompts, {category} words rank {abs(estimate):.1f} places "
        f"{'better' if estimate < 0 else 'worse'} with {first} than with {second} ({number})."
    )
    if not best["p_adjusted"] <= LEVEL:
        headline = (
            f"{title}: no difference of {first} from {second} found; largest, {category}, "
            f"{best['framing']} prompts: {signed(estimate, '+.1f')} ({number})."
        )
    pair = contrasts[kind].map(label) + " − " + contrasts["reference"].map(label)
    units, row, group, size = ("lineages", "category", "pair", 2 * estimate / words)
    if kind == "model":
        units, row, group, size = ("adjectives", "pair", "category", 0.0)
    n = "lineages" if kind == "base" else "units"
    data = {"data": contrasts.assign(pair=pair), "row": row, "group": group, "panel": "framing"}
    return Result.of_row(
        best,
        "dictionary_contrasts" if kind == "base" else "model_contrasts",
        contrasts,
        replace(DIFFERENCE, n=n, of=units),
        headline,
        size=size,
        plot=Forest.of(DIFFERENCE, tabs=("dictionary", "candidates"), xlabel=BETTER, **data),
        method=METHOD,
    )


def _interval(low: float, high: float, p: float) -> str:
    """An interval and its p, both corrected; one unit has neither."""
    ends = "no interval" if np.isnan(low) else f"[{signed(low, '.1f')}, {signed(high, '.1f')}]"
    return f"{ends}, Holm" if np.isnan(p) else f"{ends}, p = {p:.3f}, Holm"


def _with_corrected(terms: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """The terms of `category_model` with permutation_p_adjusted and the interval at that level, of
    the highest interactions; the others are missing, as they are not tested together."""
    order = terms["term"].str.count(" × ")
    p = terms["permutation_p"].where(order == order.max())
    low, high = _bounds_of_models(terms, p, confidence)
    return terms.assign(
        permutation_p_adjusted=holm(p), models_low_adjusted=low, models_high_adjusted=high
    )


def _bounds_of_models(
    terms: pd.DataFrame, p: pd.Series, confidence: float
) -> tuple[pd.Series, pd.Series]:
    freedom = terms["lineages"] - np.where(terms["base"] != "", 2, 1)
    return corrected_bounds(terms["estimate"], terms["models_se"], freedom, p, confidence)


def _terms_result(terms: pd.DataFrame, words: int, title: str, confidence: float) -> Result:
    """Of the highest interactions the largest that holds with lineages as units."""
    tested = terms[terms["permutation_p_adjusted"].notna()]
    best = strongest(tested, "estimate", "permutation_p_adjusted")
    rows = terms[terms["term"] != "intercept"]
    levels = rows[["base", "category", "framing"]].to_numpy().tolist()
    rows = rows.assign(term=[" × ".join(filter(None, row)) for row in levels])
    estimate, p, tabs = rows["estimate"], rows["p_value"], ("dictionary", "candidates")
    by_prompt = corrected_bounds(estimate, rows["se"], np.inf, p, confidence)
    by_model = _bounds_of_models(rows, rows["permutation_p"], confidence)
    units = {
        "mixed model, as published": ("p_value", *by_prompt),
        "models as units": ("permutation_p", *by_model),
    }
    data = pd.concat(
        [
            rows.assign(unit=unit, low=low, high=high, p=holm(rows[p]))
            for unit, (p, low, high) in units.items()
        ]
    )[[*tabs, "term", "unit", "estimate", "low", "high", "p"]]
    columns = ("models_low_adjusted", "models_high_adjusted", "permutation_p_adjusted")
    ends = dict(zip(("low", "high", "p"), columns, strict=True))
    effect = replace(DIFFERENCE, **ends, n="lineages", of="lineages")
    by = signed(best["estimate"], "z.1f")
    number = f"{by} of {words} ({_interval(*best[[*columns]])})"
    headline = f"{title}: no effect of {best['term']} found, {number}."
    if best["permutation_p_adjusted"] <= LEVEL:
        headline = f"{title}: {best['term']} moves the median rank by {number}."
    numbers = terms.set_index("term")[["estimate", "se", "permutation_p"]].stack().dropna()
    stem = f"{best['dictionary']}-{best['candidates']}"
    label = "difference in median rank (negative: ranked better)"
    return Result.of_row(
        best,
        "dictionary_mixed_model",
        terms,
        effect,
        headline,
        size=2 * best["estimate"] / words,
        plot=Forest(tabs=tabs, data=data, row="term", group="unit", p="p", xlabel=label),
        method=METHOD,
        summary={f"{stem}/{term}/{name}": float(x) for (term, name), x in numbers.items()},
    )


def _usable(
    by_prompt: Mapping[str, list[ScoreTable]], tables: TableSet
) -> tuple[dict[str, list[ScoreTable]], list[str]]:
    """Prompts of known polarity, each question once, with the models that have them all, a run's
    last checkpoint only; and what that leaves out."""
    usable: dict[str, list[ScoreTable]] = {}
    prompt_by_text: dict[str | None, str] = {}
    unknown, repeated = [], []
    # Of a run with several checkpoints: counted as models they would be one training many times.
    runs = runs_of(t for members in by_prompt.values() for t in members).values()
    earlier = {table.model for steps in runs for table in list(steps.values())[:-1]}
    for prompt, members in by_prompt.items():
        members = [table for table in members if table.model not in earlier]
        text = members[0].provenance.prompt_text
        if tables.reading.polarity_of(prompt) is None:
            unknown.append(prompt)
        elif text is not None and text in prompt_by_text:
            repeated.append(f"{prompt} (as {prompt_by_text[text]})")
        else:
            usable[prompt] = members
            prompt_by_text[text] = prompt
    scans = pd.DataFrame(
        [(t.model, prompt, t.provenance.mode) for prompt, ts in usable.items() for t in ts],
        columns=["model", "prompt", "mode"],
    )
    counts = scans.groupby("model").nunique()
    several = counts["mode"] > 1  # the mode would pass for the prompt
    lacking = (counts["prompt"] < len(usable)) & ~several
    complete = counts.index[~several & ~lacking]
    left_out = {
        "prompts of unknown polarity (+polarity.KEY=1 or -1)": unknown,
        "prompts that ask the same question": repeated,
        "models scanned in several modes (mode=ids)": list(counts.index[several]),
        "earlier checkpoints of one run, which are no models of their own": sorted(earlier),
        "models that lack some of the prompts": list(counts.index[lacking]),
    }
    notes = [f"left out, {why}: {_some(names)}" for why, names in left_out.items() if names]
    if complete.empty:
        return {}, notes
    return {p: [t for t in ts if t.model in complete] for p, ts in usable.items()}, notes


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _bases(bases: pd.Series) -> tuple[dict[str, str] | None, list[str]]:
    """Base by model, where they can be compared; else why not."""
    if bases.isna().any():
        return None, [f"without the base: not known for {_some(list(bases.index[bases.isna()]))}"]
    if bases.nunique() < 2:
        return None, [f"without the base: all models have {bases.iloc[0]}"]
    return bases.to_dict(), []
