"""Which category of a dictionary (Agency, Communion) each model ranks first, and whether its base has to do with it."""

from collections.abc import Mapping

import pandas as pd

from pessimal.analysis.categories import category_means, framings_of, median_ranks, words_found
from pessimal.analysis.category_model import category_model
from pessimal.config.schema import CompareConfig
from pessimal.errors import TableError
from pessimal.figures.categories import category_ranks, category_terms
from pessimal.report.contents import Contents, Entry, Section
from pessimal.tasks.findings.factorial import not_in_one_mode, sign_of, some
from pessimal.tasks.findings.group import Group
from pessimal.tasks.findings.sources import Sources
from pessimal.tracking.registry import safe_name


def dictionaries(
    members: Mapping[str, Group], config: CompareConfig, contents: Contents, sources: Sources
) -> None:
    """A section for each dictionary on one candidate set: median ranks by category, and the mixed model.

    Args:
        members: by prompt, of one candidate set, core prompts and factorial alike; used are those with a frame.
        config: frames, permutations, confidence, seed.
        contents: gets the sections, the tables dictionary_words, median_ranks, dictionary_means and
            dictionary_mixed_model, and their figures.
        sources: the dictionaries.
    """
    used, left_out = _usable(members, config)
    for name, dictionary in sources.dictionaries.items():
        candidates = next(iter(members.values())).candidates
        section = contents.section(
            f"{name} · {candidates}",
            f"Median ranks of the words of each category of the dictionary {name}, on {len(used)} prompts. Left out: "
            f"{'; '.join(left_out) or 'nothing'}.",
        )
        if not used:
            section.entries.append(
                Entry("Not compared", "No prompt with a frame and a model that has them all.")
            )
            continue
        _dictionary(name, dictionary, used, config, contents, section)


def _dictionary(
    name: str,
    dictionary: pd.DataFrame,
    used: Mapping[str, Group],
    config: CompareConfig,
    contents: Contents,
    section: Section,
) -> None:
    first = next(iter(used.values()))
    where = {"dictionary": name, "candidates": first.candidates}
    stem = safe_name(f"{name}-{first.candidates}")
    frames = {prompt: sign_of(prompt, config) for prompt in used}
    rewards = {prompt: _by_model(group) for prompt, group in used.items()}
    counts = words_found(rewards, dictionary)
    contents.add_table("dictionary_words", counts, **where)
    try:
        medians = median_ranks(rewards, dictionary, confidence=config.confidence)
    except TableError as error:
        section.entries.append(Entry("No median ranks", str(error), table="dictionary_words", where=where))
        return
    bases, known = _bases(first)
    means = category_means(medians, frames=frames, bases=bases, confidence=config.confidence)
    contents.add_table(
        "median_ranks", medians.assign(framing=framings_of(medians["prompt"], frames)), **where
    )
    contents.add_table("dictionary_means", means, **where)
    labels = first.labels()
    shown = medians.assign(model=medians["model"].map(labels))
    by_label = {labels[model]: base for model, base in bases.items()} if bases else None
    contents.figures[f"{stem}-ranks"] = category_ranks(
        shown, frames=frames, bases=by_label, title=f"Which words come first: {name}"
    )
    section.entries.append(
        Entry(
            "Median ranks",
            f"{_found(medians, counts)} Rank 1 is the highest reward; ties share their average rank. "
            f"{_means(means)} The interval of a model's median is over words, which were chosen and not drawn; that of a "
            "mean is over models.",
            figure=f"{stem}-ranks",
            table="dictionary_means",
            where=where,
        )
    )
    try:
        terms = category_model(
            medians,
            frames=frames,
            bases=bases,
            permutations=config.permutations,
            confidence=config.confidence,
            seed=config.seed,
        )
    except TableError as error:
        section.entries.append(Entry("What moves the median rank", f"No mixed model: {error}"))
        return
    contents.add_table("dictionary_mixed_model", terms, **where)
    contents.figures[f"{stem}-terms"] = category_terms(terms, title=f"What moves the median rank: {name}")
    section.entries.append(
        Entry(
            "What moves the median rank",
            f"{known} {_terms(terms)} The mixed model takes a model's prompts for independent draws beyond one intercept, and "
            "its p values are then far too small where models differ in how they take to a category; the second p takes "
            "models as units. Terms are not corrected for their number.",
            figure=f"{stem}-terms",
            table="dictionary_mixed_model",
            where=where,
        )
    )
    for row in terms.itertuples():
        contents.summary[f"{stem}/{row.term}/estimate"] = float(row.estimate)
        contents.summary[f"{stem}/{row.term}/se"] = float(row.se)
        if pd.notna(row.permutation_p):
            contents.summary[f"{stem}/{row.term}/permutation_p"] = float(row.permutation_p)


def _usable(members: Mapping[str, Group], config: CompareConfig) -> tuple[dict[str, Group], list[str]]:
    """Prompts with a frame, each wording once, and the models that have them all; and what that leaves out."""
    left_out, framed, asked = [], {}, {}
    for prompt, group in members.items():
        text = group.tables[0].identity.prompt_text
        if sign_of(prompt, config) is None:
            left_out.append(f"{prompt} (no frame; type +frames.{prompt}=1 or -1)")
        elif text is not None and text in asked:
            left_out.append(f"{prompt} (the same question as {asked[text]})")
        else:
            framed[prompt] = group
            asked[text] = prompt
    models = [{table.identity.model for table in group.tables} for group in framed.values()]
    several = not_in_one_mode(framed)
    if several:
        left_out.append(f"models scanned in several modes ({some(several)}; type mode=ids)")
    everywhere = (set.intersection(*models) if models else set()) - set(several)
    if fewer := sorted(set().union(*models) - everywhere - set(several)):
        left_out.append(f"models that lack some of the prompts ({', '.join(fewer)})")
    used = {
        prompt: Group(
            group.candidates, prompt, [table for table in group.tables if table.identity.model in everywhere]
        )
        for prompt, group in framed.items()
        if everywhere
    }
    return used, left_out


def _by_model(group: Group) -> dict[str, pd.Series]:
    """Rewards by text for each model, in its whole own candidate set."""
    return {
        table.identity.model: pd.Series(
            table.rows["reward"].to_numpy(), index=pd.Index(table.rows["text"], name="text")
        )
        for table in group.tables
    }


def _bases(group: Group) -> tuple[dict[str, str] | None, str]:
    """Base by model, where there are two or more and each model's is known; and what is said of them."""
    bases = group.descriptors()["base"]
    if bases.isna().any():
        unknown = ", ".join(bases.index[bases.isna()])
        return None, f"Without the base: it is not known for {unknown}."
    if bases.nunique() < 2:
        return None, f"Without the base: all models have {bases.iloc[0]}."
    return (
        bases.to_dict(),
        f"Models by base: {', '.join(f'{n} {b}' for b, n in bases.value_counts().items())}.",
    )


def _found(medians: pd.DataFrame, counts: pd.DataFrame) -> str:
    """How many words are ranked and what found them; `counts` are those of `words_found`."""
    used = counts[counts["used"] > 0]
    told = ", ".join(
        f"{r.used} {r.category} by {r.entries_found} of {r.words} entries"
        if r.wildcards
        else f"{r.used} of {r.words} {r.category}"
        for r in used.itertuples()
    )
    ranked = int(medians["words"].iloc[0])
    missing = counts.loc[counts["used"] == 0, "category"]
    lost = f" Categories with too few words: {', '.join(missing)}." if len(missing) else ""
    wildcards = int(counts["wildcards"].sum())
    wild = (
        f" {wildcards} entries are wildcards, each of which finds every word that begins as it does, whatever its ending "
        "makes of it; dictionary_words has the counts."
        if wildcards
        else ""
    )
    return f"{ranked:,} words that every model has as a candidate ({told}).{lost}{wild}"


def _means(means: pd.DataFrame) -> str:
    """Mean and standard deviation for each framing and category, over all bases."""
    rows = means[means["base"] == "all bases"]
    told = []
    for framing, part in rows.groupby("framing", sort=False):
        numbers = ", ".join(f"{r.category} {r.mean:.2f} (sd {r.sd:.2f})" for r in part.itertuples())
        told.append(f"{framing} ({part['n'].iloc[0]} median ranks): {numbers}")
    return "Mean median ranks, " + "; ".join(told) + "."


def _terms(terms: pd.DataFrame) -> str:
    """The highest interactions, which are what the model is for."""
    order = terms["term"].str.count(" × ")
    highest = terms[order == order.max()]
    told = "; ".join(
        f"{r.term} {_signed(r.estimate)} (SE {r.se:.2f}, p {_p(r.p_value)}; models as units: p {_p(r.permutation_p)} by "
        f"{r.relabellings:,} relabellings, at least {_p(r.smallest_p)})"
        for r in highest.head(6).itertuples()
    )
    more = f" and {len(highest) - 6} more" if len(highest) > 6 else ""
    first = terms.iloc[0]
    singular = " The intercepts of the models do not vary beyond chance." if first["singular"] else ""
    return f"Against {first['reference']}, {first['n']:,} median ranks of {first['models']} models: {told}{more}.{singular}"


def _p(value: float) -> str:
    return "< .001" if value < 0.001 else f"{value:.3f}"


def _signed(value: float) -> str:
    return f"{value:z.2f}".replace("-", "−")
