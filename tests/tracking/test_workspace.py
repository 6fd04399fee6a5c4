"""The saved workspace and the report, by what would be sent: no server is at hand that could draw them."""

import builtins

import pytest

from pessimal.errors import ConfigError
from pessimal.tracking.workspace import report, workspace

pytest.importorskip("wandb_workspaces", reason="an extra: pip install wandb-workspaces==0.4.13")


def _serialised(made) -> str:
    return made._to_model().model_dump_json(by_alias=True, exclude_none=True)


def test_workspace_draws_the_figures_that_verbs_log():
    text = _serialised(workspace("p", entity="lab", prompts=["greatest", "worst"], attributes=["length"]))
    for part in ("Parallel Coordinates Plot", "Scatter Plot", "Bar Chart", "Run Comparer", "Media Browser"):
        assert f'"viewType":"{part}"' in text, part
    for figure in (
        "greatest/mean",
        "worst/extremes",
        "search.step_size",
        "best_value",
        "flip_rate/length",
        "placebo_flip_rate",
    ):
        assert figure in text, figure
    assert "figures/greatest-agreement" in text
    assert "flip_rate/length" not in _serialised(workspace("p", entity="lab", prompts=[]))


def test_report_has_a_section_for_each_kind_of_run(fake):
    text = _serialised(report("p", entity="lab", prompts=["greatest"], attributes=["length"]))
    for verb in ("scan", "search", "explain", "compare"):
        assert verb in text
    assert "Parallel Coordinates Plot" in text


def test_missing_package_is_reported_with_the_command(monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name.startswith("wandb_workspaces"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match="pip install wandb-workspaces"):
        workspace("p", entity="lab", prompts=[])
