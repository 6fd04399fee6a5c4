"""What a study found, as findings: tables, figures, and a sentence on each with its numbers.

Knows the study's tables and figures. Does not know Optuna, files or models.
"""

from dataclasses import dataclass

import pandas as pd

from pessimal.figures import tuning as figures
from pessimal.report.contents import Contents, Entry
from pessimal.tuning.held_out import ALL

TRIALS, SEARCHES, OPTIONS = "trials", "searches", "options"
IMPORTANCES, HELD_OUT, DIFFERENCES, PROVENANCE = (
    "importances",
    "held_out",
    "held_out_differences",
    "provenance",
)


@dataclass(frozen=True)
class Findings:
    """The tables of one study."""

    name: str
    about: str
    """Model, goal, length and budget in words."""
    logarithmic: list[str]
    """Options whose values are spread by their logarithm."""
    trials: pd.DataFrame
    searches: pd.DataFrame
    options: pd.DataFrame
    importances: pd.DataFrame | None
    """None where there are too few trials."""
    held_out: pd.DataFrame | None
    """None where no prompts were held out."""
    differences: pd.DataFrame | None
    """Likewise."""
    provenance: pd.DataFrame


def study_contents(found: Findings) -> Contents:
    """The findings of a study, ready to be published and shown."""
    contents = Contents()
    section = contents.section(
        f"Tuning the search: {found.name}",
        f"{found.about} A trial's value is the median over prompts and starts of the best reward found, in standard "
        "deviations (sd) of single tokens' rewards from their mean, towards the goal.",
    )
    section.entries.append(
        Entry("The best options and the defaults", _options_sentence(found), table=OPTIONS)
    )
    if found.differences is None:
        section.entries.append(
            Entry(
                "Held-out prompts",
                "No prompts were held out, so nothing says whether the tuned options are better where they were not tuned: "
                "the values of trials flatter the best of them. tuning.held_out=[KEY,…] compares them.",
            )
        )
    else:
        section.entries.append(
            Entry(
                "Held-out prompts",
                held_out_sentence(found.differences),
                figure=HELD_OUT,
                table=DIFFERENCES,
            )
        )
    columns = list(found.options["option"])
    looks = {"logarithmic": found.logarithmic}
    contents.figures["parallel_coordinates"] = figures.parallel_coordinates(found.trials, columns, **looks)
    contents.figures["slices"] = figures.slices(found.trials, columns, **looks)
    section.entries.append(
        Entry("All trials", _trials_sentence(found.trials), figure="parallel_coordinates", table=TRIALS)
    )
    section.entries.append(
        Entry("Each option by itself", "The same trials along one option at a time.", figure="slices")
    )
    section.entries.append(_importances_entry(found.importances))
    if found.importances is not None:
        contents.figures[IMPORTANCES] = figures.importances(found.importances)
    if found.differences is not None:
        contents.figures[HELD_OUT] = figures.held_out(found.differences)
    for name in (TRIALS, SEARCHES, OPTIONS, IMPORTANCES, HELD_OUT, PROVENANCE):
        if (table := getattr(found, name)) is not None:
            contents.add_table(name, table)
    if found.differences is not None:
        contents.add_table(DIFFERENCES, found.differences)
    contents.summary |= _summary(found)
    return contents


def held_out_sentence(differences: pd.DataFrame) -> str:
    """What the comparison on held-out prompts says, and what it does not."""
    own = differences[differences["prompt"] != ALL]
    overall = differences[differences["prompt"] == ALL].iloc[0]
    prompts, starts = len(own), int(overall["starts"])
    if (differences["ties"] == differences["starts"]).all():
        same = f"The tuned options and the defaults found equal values in all {starts} searches"
        return f"{same} on {prompts} held-out prompts: no difference."
    numbers = f"tuned − defaults = {overall['difference']:+.3f} sd".replace("-", "−")
    if overall["n"] < 2:
        return f"{numbers} from one start on one prompt, which says nothing of others."
    interval = f"95 % interval {overall['low']:+.3f} to {overall['high']:+.3f}".replace("-", "−")
    rests = (
        f"{prompts} held-out prompts, {starts // prompts} starts each" if prompts > 1 else f"{starts} starts"
    )
    verdict = (
        "the tuned options find more"
        if overall["low"] > 0
        else "the tuned options find LESS"
        if overall["high"] < 0
        else "no difference that chance would not make"
    )
    alone = "" if prompts > 1 else " On one prompt, which says nothing of others."
    return (
        f"{verdict[0].upper()}{verdict[1:]}: {numbers} ({interval}, sign-flip p = {overall['p']:.3g}; n = {rests}), at equal "
        f"budget, from starts that no trial saw; {int(overall['ties'])} of {starts} searches ended equal. Seconds a search: "
        f"{overall['tuned_seconds']:.2f} tuned, {overall['defaults_seconds']:.2f} defaults.{alone}"
    )


def _options_sentence(found: Findings) -> str:
    complete = found.trials[found.trials["state"] == "complete"]
    best = complete[complete["best"]].iloc[0]
    searches = int(best["searches"])
    if best["defaults"]:
        return (
            f"No trial of {len(complete)} that were complete had a higher value than the defaults' own, {best['value']:.3f} sd "
            f"(median over {searches} searches)."
        )
    defaults = complete[complete["defaults"]]
    against = f", the defaults {defaults['value'].iloc[0]:.3f} sd" if len(defaults) else ""
    return (
        f"Trial {best['trial']} has {best['value']:.3f} sd{against} (medians over {searches} searches). It is the best of "
        f"{len(complete)} complete trials and was chosen for that, so its own value flatters it: what counts is the "
        "comparison on held-out prompts."
    )


def _trials_sentence(trials: pd.DataFrame) -> str:
    counts = trials["state"].value_counts()
    told = f"{len(trials)} trials: {', '.join(f'{count} {state}' for state, count in counts.items())}."
    if "pruned" in counts:
        told += " A pruned trial was ended because its running median had fallen behind the others' at the same search."
    if "failed" in counts:
        again = int(trials["retry_of"].notna().sum())
        told += f" Failed ones have no value; the options of {again} whose worker died were tried again."
    return told


def _importances_entry(table: pd.DataFrame | None) -> Entry:
    heading = "How much each option matters"
    if table is None:
        return Entry(
            heading, "Not given: it takes at least 8 trials with a value, and values that are not all alike."
        )
    top = table.iloc[0]
    return Entry(
        heading,
        f"{top['option']} explains most: {top['importance']:.2f} ± {top['standard_error']:.2f} of the variance of values "
        f"(fANOVA, main effects, n = {top['n']} trials, ± one standard error), in the region that the study sampled.",
        figure=IMPORTANCES,
        table=IMPORTANCES,
    )


def _summary(found: Findings) -> dict[str, float | str | int]:
    complete = found.trials[found.trials["state"] == "complete"]
    summary: dict[str, float | str | int] = {
        "trials": int(found.trials["state"].isin(["complete", "pruned"]).sum()),
        "best_value": float(complete["value"].max()),
    }
    if (complete["defaults"]).any():
        summary["defaults_value"] = float(complete.loc[complete["defaults"], "value"].iloc[0])
    if found.differences is not None:
        overall = found.differences[found.differences["prompt"] == ALL].iloc[0]
        summary["held_out_prompts"] = len(found.differences) - 1
        for name in ("difference", "low", "high", "p"):
            if overall[name] == overall[name]:
                summary[f"held_out_{name}"] = float(overall[name])
    for row in found.options.itertuples():
        summary[f"tuned/{row.option}"] = row.tuned
    return summary
