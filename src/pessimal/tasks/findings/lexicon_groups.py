"""How well each model's rewards set a lexicon's positive words apart from its negative ones."""

from collections.abc import Mapping, Sequence

import pandas as pd

from pessimal.analysis.lexicon_groups import lexicon_groups
from pessimal.analysis.regression import holm
from pessimal.config.schema import CompareConfig
from pessimal.errors import TableError
from pessimal.figures.lexicon_groups import beeswarms
from pessimal.figures.words import literal
from pessimal.report.contents import Contents, Entry, Section
from pessimal.tasks.findings.model_words import LeftOut, ModelWords, keys_first, prefix, with_labels
from pessimal.tracking.registry import safe_name


def lexicon_groups_of(
    lexicon: str,
    valence: pd.Series,
    models: Sequence[ModelWords],
    words: Mapping[str, pd.DataFrame],
    config: CompareConfig,
    contents: Contents,
    section: Section,
    *,
    candidates: str,
) -> list[LeftOut]:
    """An entry on the two groups of one lexicon, with its figure and its rows of the table lexicon_groups.

    Args:
        lexicon: its name.
        valence: by word; only the signs are looked at.
        models: in order; their labels are shown.
        words: by model, its words × prompts (see `analysis.words`).
        config: confidence, and whether rows are tokens (`paper`).
        contents: gets the table, the figure and the summary.
        section: gets the entry.
        candidates: the candidate set.

    Returns:
        The models that could not be used, and why; where that is all of them, there is no entry.
    """
    separations, drawn, left_out = [], [], []
    for m in models:
        try:
            found = lexicon_groups(
                words[m.model], valence, repeated=config.paper, confidence=config.confidence
            )
        except TableError as error:
            left_out.append(LeftOut(m.label, f"with {lexicon}, positive against negative words", str(error)))
            continue
        separations.append(found.separation.assign(model=m.model, lexicon=lexicon))
        drawn.append(found.words.assign(model=m.label))
    if not separations:
        return left_out
    table = keys_first(pd.concat(separations, ignore_index=True))
    table["auc_p_holm"] = holm(table["auc_p"])
    contents.add_table("lexicon_groups", table, candidates=candidates)
    shown = with_labels(table, {m.model: m.label for m in models})
    stem = f"{prefix(candidates)}sentiment-{safe_name(lexicon)}-groups"
    contents.figures[stem] = beeswarms(
        pd.concat(drawn, ignore_index=True),
        shown,
        lexicon=lexicon,
        unit="tokens" if config.paper else "words",
        title=f"Positive against negative words: {literal(lexicon, limit=24)}",
    )
    section.entries.append(
        Entry(
            f"Positive against negative words: {lexicon}",
            _told(shown, config),
            figure=stem,
            table="lexicon_groups",
            where={"lexicon": lexicon, "candidates": candidates},
        )
    )
    for prompt, mean in table.groupby("prompt", sort=False)["auc"].mean().items():
        contents.summary[f"{prefix(candidates)}sentiment/{lexicon}/{prompt}/auc"] = float(mean)
    return left_out


def _told(table: pd.DataFrame, config: CompareConfig) -> str:
    found = "; ".join(
        _on_prompt(prompt, part, config) for prompt, part in table.groupby("prompt", sort=False)
    )
    unit = "token" if config.paper else "word"
    complete = int(table["auc_p"].isna().sum())
    return (
        f"The probability (AUC) that a {unit} which the lexicon calls positive earns more than one that it calls negative, "
        f"ties counting half; .50 where the two groups lie alike. {found}. A lexicon's degrees of valence play no part, and "
        f"neither do the frames: where bad words answer the prompt, a model is expected below .50. Intervals "
        f"({config.confidence:.0%}) are over words, {'spellings of a word and words' if config.paper else 'those'} of one stem taken for "
        "dependent (DeLong's with stems for units); p values against .50, corrected by Holm's method over the models and prompts of this lexicon. The table has the "
        "difference of the means as well, in standard deviations of the model's rewards."
        + (
            f" In {complete} of {len(table)} rows the groups do not overlap, and no interval is given."
            if complete
            else ""
        )
    )


def _on_prompt(prompt: str, part: pd.DataFrame, config: CompareConfig) -> str:
    low, high = part.loc[part["auc"].idxmin()], part.loc[part["auc"].idxmax()]
    if len(part) == 1:
        return f"{prompt}: {_with_interval(low)}, {_counted(part, config)}"
    apart = int((part["auc_p_holm"] < 1 - config.confidence).sum())
    return (
        f"{prompt}: from {_with_interval(low)} ({low['model']}) to {_with_interval(high)} ({high['model']}), "
        f"{apart} of {len(part)} models differ from .50, {_counted(part, config)}"
    )


def _with_interval(row: pd.Series) -> str:
    if pd.isna(row["auc_low"]):
        return f"{row['auc']:.2f}"
    return f"{row['auc']:.2f} [{row['auc_low']:.2f}, {row['auc_high']:.2f}]"


def _counted(part: pd.DataFrame, config: CompareConfig) -> str:
    told = []
    for group in ("positive", "negative"):
        low, high = part[group].min(), part[group].max()
        told.append(f"{low:,} {group}" if low == high else f"{low:,} to {high:,} {group}")
    return f"{' and '.join(told)} {'tokens' if config.paper else 'words'}"
