"""What each model likes most and least, and how its rewards are distributed."""

import pandas as pd

from pessimal.analysis.extremes import extremes
from pessimal.analysis.moments import moments
from pessimal.figures.token_table import token_table
from pessimal.figures.violin import violin
from pessimal.tasks.findings.group import Group, Scene

DRAWN = 12
"""Tokens drawn at each end; the table has as many as were asked for."""


def best_and_worst(scene: Scene) -> None:
    """The optimal and pessimal candidates of each model, in its own whole candidate set."""
    group, config = scene.group, scene.config
    ends = pd.concat([extremes(t.rows, k=config.top).assign(model=t.identity.model) for t in group.tables])
    scene.keep("extremes", ends)
    shown = ends[ends["rank"] <= min(config.top, DRAWN)]
    sizes = " or ".join(f"{size:,}" for size in sorted({len(t.rows) for t in group.tables}))
    scene.tell(
        f"Optimal and pessimal {group.things}",
        f"The highest and the lowest rewards of each model among all {sizes} {group.things} that it was given as the "
        f"answer. {_certainty(group)}",
        name="extremes",
        figure=token_table(
            shown.assign(model=shown["model"].map(group.labels())),
            title=f"Optimal and pessimal {group.things}: {group.prompt}",
        ),
        table="extremes",
    )
    for model, rows in ends[ends["rank"] == 1].groupby("model"):
        texts = rows.set_index("end")["text"]
        scene.note(f"{model}/optimal", texts["top"])
        scene.note(f"{model}/pessimal", texts["bottom"])


def distribution(scene: Scene) -> None:
    """Violins and moments over the shared candidates."""
    table = moments(scene.rewards)
    scene.keep("moments", table)
    skewed = int((table["skewness"] > 2 * table["skewness_se"]).sum())
    scene.tell(
        "How rewards are distributed",
        f"Standardised rewards of the {scene.shared}; raw mean, standard deviation and skewness are printed beside. "
        f"{skewed} of {len(table)} models are skewed to the right by more than twice the standard error.",
        name="distribution",
        figure=violin(
            scene.rewards.rename(columns=scene.group.labels()),
            title=f"Distribution of rewards: {scene.group.prompt}",
        ),
        table="moments",
    )


def _certainty(group: Group) -> str:
    scans = [t for t in group.tables if t.identity.source == "scan"]
    if not scans:
        return "These are published scores; how certain the ranks are is not known."
    share = sum(int(t.rows["certified"].sum()) for t in scans) / sum(len(t.rows) for t in scans)
    told = (
        f"The rank of {share:.1%} of the scanned ones is certain: scored in float32, with no other candidate within "
        "twice the numerical error."
    )
    return told if len(scans) == len(group.tables) else told + " For published scores it is not known."
