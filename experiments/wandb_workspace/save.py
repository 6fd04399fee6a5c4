"""Save a W&B workspace, and a report of the same panels, over the runs of a project; prints their
addresses.

    python experiments/wandb_workspace/save.py ENTITY PROJECT [--prompts greatest,worst]
    [--attributes verbosity] [--report]

Needs `pip install wandb-workspaces==0.4.13` and `wandb login`. The objects were checked; no server
has drawn them.
"""

import argparse
from collections.abc import Sequence

import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws

SEARCH_OPTIONS = ("search.step_size", "search.top_k", "search.search_width", "search.momentum")
"""What `-m hparams_search=gcg` sweeps, as trials report it."""
SECTIONS = {
    "Models and prompts": ("scan", "train"),
    "Searches": ("search",),
    "Explanations": ("explain",),
    "Comparisons": ("compare",),
}
"""A section a kind of question, and the verbs whose runs answer it."""


def workspace(
    project: str, *, entity: str, prompts: Sequence[str], attributes: Sequence[str] = ()
) -> ws.Workspace:
    """The project's saved workspace.

    Args:
        prompts: keys of the prompts whose figures are drawn (`greatest`).
        attributes: attributes of explanations whose flip rates are drawn; all together where empty.
    """
    panels = panels_of(prompts, attributes)
    return ws.Workspace(
        entity=entity,
        project=project,
        name="pessimal",
        sections=[ws.Section(name=name, panels=panels[name], is_open=True) for name in SECTIONS],
        settings=ws.WorkspaceSettings(max_runs=100),
    )


def report(
    project: str, *, entity: str, prompts: Sequence[str], attributes: Sequence[str] = ()
) -> wr.Report:
    """A W&B report of the same panels, each section over the runs of its verbs."""
    blocks = []
    for name, panels in panels_of(prompts, attributes).items():
        wanted = ", ".join(f"'{verb}'" for verb in SECTIONS[name])
        runs = wr.Runset(
            entity=entity, project=project, name=name, filters=f"Metric('JobType') in [{wanted}]"
        )
        blocks += [wr.H2(text=name), wr.PanelGrid(runsets=[runs], panels=panels)]
    return wr.Report(
        entity=entity,
        project=project,
        title="What these reward models want",
        description="Made by pessimal from the runs of this project.",
        blocks=[wr.TableOfContents(), *blocks],
    )


def panels_of(prompts: Sequence[str], attributes: Sequence[str]) -> dict[str, list]:
    """Panels by section: figures of runs are summary keys, as the verbs send them."""
    scans = [
        wr.RunComparer(diff_only="split"),
        wr.LinePlot(title="Training", x="train/step", y=["train/loss", "train/held_out_accuracy"]),
        wr.LinePlot(title="Rate of scans", x="scan/candidates", y=["scan/candidates_per_second"]),
        *(
            wr.ScatterPlot(
                title=f"{prompt}: mean and spread of rewards",
                x=wr.SummaryMetric(f"{prompt}/mean"),
                y=wr.SummaryMetric(f"{prompt}/standard_deviation"),
            )
            for prompt in prompts
        ),
        *(table_of(f"{prompt}/extremes") for prompt in prompts),
    ]
    columns = [
        wr.ParallelCoordinatesPlotColumn(metric=wr.SummaryMetric(option))
        for option in SEARCH_OPTIONS
    ]
    searches = [
        wr.ParallelCoordinatesPlot(
            title="Options of the search against the value of its trials",
            columns=[*columns, wr.ParallelCoordinatesPlotColumn(metric=wr.SummaryMetric("value"))],
        ),
        wr.LinePlot(
            title="Best so far against evaluations", x="search/evaluations", y=["search/best"]
        ),
        wr.BarPlot(title="Best reward found", metrics=["best_value"], orientation="h"),
        table_of("result"),
    ]
    rates = [f"flip_rate/{attribute}" for attribute in attributes]
    explanations = [
        wr.BarPlot(
            title="Share of preferences that a change of one attribute turns round",
            metrics=[*rates, "placebo_flip_rate"],
            range_x=(0.0, 1.0),
        ),
        *(
            wr.ScatterPlot(
                title=f"{attribute}: flips against the placebo's",
                x=wr.SummaryMetric("placebo_flip_rate"),
                y=wr.SummaryMetric(f"flip_rate/{attribute}"),
                range_x=(0.0, 1.0),
                range_y=(0.0, 1.0),
            )
            for attribute in attributes
        ),
    ]
    comparisons = [
        wr.MediaBrowser(
            title="Agreement of models",
            media_keys=[f"figures/{prompt}-agreement" for prompt in prompts],
        ),
        table_of("agreement"),
    ]
    return dict(zip(SECTIONS, (scans, searches, explanations, comparisons), strict=True))


def table_of(name: str):
    """One table of all chosen runs under one another, with the run as a column."""
    return wr.WeavePanelSummaryTable(table_name=name)


def main() -> None:
    """Save them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("entity")
    parser.add_argument("project")
    parser.add_argument(
        "--prompts", type=lambda text: text.split(","), default=["greatest", "worst"]
    )
    parser.add_argument("--attributes", type=lambda text: text.split(","), default=[])
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    for make in (workspace, report) if given.report else (workspace,):
        made = make(
            given.project, entity=given.entity, prompts=given.prompts, attributes=given.attributes
        )
        made.save()
        print(made.url)


if __name__ == "__main__":
    main()
