"""The mirror: what a run records while its task works, and that no fault costs a result or long
waits."""

import json
import time
from types import SimpleNamespace

import pandas as pd
import pytest

from pessimal.tracking import mirror as mirror_module
from pessimal.tracking.mirror import MAX_TABLE_ROWS


def items(record) -> dict:
    return {(one.key or one.nested_key[0]): json.loads(one.value_json) for one in record.item}


def test_run_is_open_while_its_task_works_and_each_series_has_its_own_axis(
    task, recorded, monkeypatch, tmp_path
):
    for variable in ("WANDB_NAME", "WANDB_JOB_TYPE", "WANDB_CONSOLE", "WANDB_DISABLE_GIT"):
        monkeypatch.delenv(variable, raising=False)
    with task(config={"code": {"commit": "c"}, "odd": "\ud800"}) as mirror:
        console = mirror._run.settings.console
        (tmp_path / "index.html").write_text("<html><head></head>page</html>")
        mirror.page("page", tmp_path / "index.html")
        for step in range(3):
            mirror.metrics({"train/step": step, "train/loss": 0.5 / (step + 1)})
        mirror.metrics({"search/evaluations": 7, "search/best": float("inf")})
        mirror.summary({"greatest/optimal": "\ud800<script>"})
    run = recorded(mirror.run_id)
    [begun] = run["run"]
    assert [begun.display_name, begun.job_type, begun.run_group, *begun.tags] == [
        "scan m",
        "scan",
        "study",
        "t",
    ]
    axes = {metric.glob_name: metric.step_metric for metric in run["metric"] if metric.glob_name}
    assert axes["train/*"] == "train/step"
    assert axes["search/*"] == "search/evaluations"
    assert {"scan/*", "search/*"} < set(axes)
    points = [items(point) for point in run["history"]]
    parts = [(list(one.nested_key), one.value_json) for p in run["history"] for one in p.item]
    [path] = [json.loads(value) for keys, value in parts if keys == ["page", "path"]]
    [file] = tmp_path.glob(f"wandb/**/{path}")
    assert file.read_bytes() == (tmp_path / "index.html").read_bytes(), "as it is"
    assert [p["train/loss"] for p in points if "train/loss" in p] == [0.5, 0.25, 0.5 / 3]
    assert points[-1]["search/best"] is None, "JSON has no infinity"
    times = [p["_timestamp"] for p in points]
    assert times == sorted(times)
    assert (console != "off", "environment" in run) == (True, True), (
        "console and machine, unless the user turns them off"
    )


def test_off_writes_nothing_and_a_table_that_wandb_would_cut_is_refused(task, target):
    with task(mode="off") as mirror:
        assert mirror.run_id is None
        mirror.summary({"n": 1})
        mirror.metrics({"train/loss": 1.0})
        with pytest.raises(ValueError, match="parquet"):
            mirror.table("all", pd.DataFrame({"a": range(MAX_TABLE_ROWS + 1)}))
    assert not target.folder.exists()


@pytest.fixture
def client(monkeypatch, target):
    """client(…): a client whose run has these attributes."""

    def make(**attributes):
        run = SimpleNamespace(
            id="one",
            offline=False,
            dir=str(target.folder / "run/files"),
            url="the run",
            define_metric=lambda *_, **__: None,
            finish=lambda exit_code: None,
            **attributes,
        )
        monkeypatch.setattr(mirror_module, "begin_run", lambda target, **about: run)
        monkeypatch.setattr(mirror_module, "release", lambda: None)

    return make


def test_a_client_that_fails_is_asked_no_more_and_costs_no_result(
    task, client, publish, registry, warnings
):
    calls = []

    def refuse(*arguments, **options):
        calls.append(arguments)
        raise OSError("the service is gone")

    client(log_artifact=refuse, summary=SimpleNamespace(update=refuse))
    with task(mode="online") as mirror:
        for name in ("a", "b", "c", "d"):
            mirror.summary({"n": 1})
            mirror.artifact(*publish(name=name), {})
    assert len(calls) == 1
    assert len(registry.manifests()) == 4, "results are there"
    [message] = warnings()
    assert "pessimal push" in message


def test_an_artifact_that_does_not_arrive_is_reported(task, client, publish, warnings):
    def refuse(timeout):
        raise ValueError("403")

    client(log_artifact=lambda artifact, aliases: SimpleNamespace(name=artifact.name, wait=refuse))
    with task(mode="online") as mirror:
        mirror.artifact(*publish(), {})
    [message] = warnings()
    assert "m--greatest did not arrive: 403" in message
    assert "wandb sync" in message


@pytest.mark.parametrize("fault", ["wrong key", "drips"])
@pytest.mark.slow
def test_fault_costs_no_result_nor_fifteen_seconds_and_the_run_is_recorded(
    server, registry, publish, task, warnings, recorded, fault
):
    if fault == "dead":
        server.stop()
    server.fault = {"wrong key": 401, "answers 500": 500, "drips": 0}.get(fault)
    begin = time.monotonic()
    with task(mode="online") as mirror:
        mirror.metrics({"train/step": 1, "train/loss": 0.5})
        for name in ("m--greatest", "m--worst"):
            mirror.artifact(*publish(name=name, run_id=mirror.run_id), {})
        if fault == "dies":
            server.stop()
    assert time.monotonic() - begin < 20, "twelve, and what a busy machine adds"
    [message] = warnings()
    assert "wandb sync" in message
    assert "pessimal push tracking.project=p" in message
    assert "history" in recorded(mirror.run_id)
    for folder, _ in registry.manifests():
        registry.verify(folder)


def test_lineage_goes_to_the_version_of_the_registry_and_a_missing_input_is_named(
    task, client, publish, warnings
):
    from wandb.errors import CommError

    used = []

    def use(name):
        if name.startswith("gone"):
            raise CommError("404")
        used.append(name)

    logged = SimpleNamespace(name="c", wait=lambda timeout: None)
    client(log_artifact=lambda artifact, aliases: logged, use_artifact=use)
    with task(mode="online") as mirror:
        inputs = ["score-table/m--greatest:v2", "score-table/gone:v0"]
        mirror.artifact(*publish("comparison", "c", inputs=inputs), {})
    assert used == ["m--greatest:registry-v2"]
    [message] = warnings()
    assert "score-table/gone:v0" in message
