"""A workspace and a report for the runs of a project, as objects of the package `wandb-workspaces`.

Knows the names under which verbs send their figures to W&B. Sends nothing by itself: `save()` of what is returned does.
"""

from collections.abc import Sequence

from pessimal.errors import ConfigError

SEARCH_OPTIONS = ("search.step_size", "search.top_k", "search.search_width", "search.momentum")
"""What `-m hparams_search=gcg` sweeps, as trials report it."""

_SECTIONS = ("Models and prompts", "Searches", "Explanations", "Comparisons")


def workspace(project: str, *, entity: str, prompts: Sequence[str], attributes: Sequence[str] = ()):
    """The project's saved workspace: a section a kind of question.

    Args:
        prompts: keys of the prompts whose figures are drawn (`greatest`).
        attributes: attributes of explanations whose flip rates are drawn; all together where empty.
    """
    import_workspaces()
    import wandb_workspaces.workspaces as ws

    panels = _panels(prompts, attributes)
    return ws.Workspace(
        entity=entity,
        project=project,
        name="pessimal",
        sections=[ws.Section(name=name, panels=panels[name], is_open=True) for name in _SECTIONS],
        settings=ws.WorkspaceSettings(max_runs=100),
    )


def report(project: str, *, entity: str, prompts: Sequence[str], attributes: Sequence[str] = ()):
    """A W&B report of the same panels, each section over the runs of its verbs."""
    import_workspaces()
    import wandb_workspaces.reports.v2 as wr

    verbs = dict(zip(_SECTIONS, (["scan", "train"], ["search"], ["explain"], ["compare"]), strict=True))
    blocks = []
    for name, panels in _panels(prompts, attributes).items():
        wanted = ", ".join(f"'{verb}'" for verb in verbs[name])
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


def import_workspaces() -> None:
    """ConfigError naming the package where it is not installed: only this file needs it."""
    try:
        import wandb_workspaces  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "a saved workspace needs the package wandb-workspaces; type: pip install wandb-workspaces==0.4.13"
        ) from error


def _panels(prompts: Sequence[str], attributes: Sequence[str]) -> dict[str, list]:
    """Panels by section. Figures of runs are `c::` (configuration) or summary keys, as the mirror sends them."""
    import wandb_workspaces.reports.v2 as wr

    scans = [
        wr.RunComparer(diff_only="split"),
        *(
            wr.ScatterPlot(
                title=f"{prompt}: mean and spread of rewards",
                x=wr.SummaryMetric(f"{prompt}/mean"),
                y=wr.SummaryMetric(f"{prompt}/standard_deviation"),
            )
            for prompt in prompts
        ),
        *(_table(f"{prompt}/extremes") for prompt in prompts),
    ]
    columns = [wr.ParallelCoordinatesPlotColumn(metric=wr.SummaryMetric(option)) for option in SEARCH_OPTIONS]
    searches = [
        wr.ParallelCoordinatesPlot(
            title="Options of the search against the median of its trials",
            columns=[*columns, wr.ParallelCoordinatesPlotColumn(metric=wr.SummaryMetric("value"))],
        ),
        wr.BarPlot(title="Best reward found", metrics=["best_value"], orientation="h"),
        _table("sequences"),
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
            title="Agreement of models", media_keys=[f"figures/{prompt}-agreement" for prompt in prompts]
        ),
        _table("agreement"),
    ]
    return dict(zip(_SECTIONS, (scans, searches, explanations, comparisons), strict=True))


def _table(name: str):
    """One table of all chosen runs under one another, with the run as a column."""
    import wandb_workspaces.reports.v2 as wr

    return wr.WeavePanelSummaryTable(table_name=name)
