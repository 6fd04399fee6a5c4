"""Hydra's sweeper that tunes: `pessimal search -m hparams_search=gcg`.

Translates between Hydra and `pessimal.verbs.search_tuning`: command line → space, trial → job, job
→ error. Hydra imports every plugin at every start, so what is heavy is imported when a sweep
begins.
"""

from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf


@dataclass
class PessimalOptunaConf:
    """`hydra.sweeper` of a study."""

    _target_: str = "hydra_plugins.pessimal_optuna.optuna_sweeper.PessimalOptunaSweeper"
    n_trials: int = 30
    """Finished trials that the study is to have, over all workers and all starts of the command."""
    n_jobs: int = 1
    """Trials handed to the launcher at once; more than 1 wants hydra/launcher=joblib or
    submitit."""
    params: dict[str, str] = field(default_factory=dict)
    """The space: option and values, as they would be typed."""


ConfigStore.instance().store(
    group="hydra/sweeper", name="pessimal_optuna", node=PessimalOptunaConf, provider="pessimal"
)


class PessimalOptunaSweeper(Sweeper):
    """One worker of a study; the same command in another process is a second one."""

    config: DictConfig
    hydra_context: HydraContext

    def __init__(self, n_trials: int, n_jobs: int, params: dict[str, str]):
        self.n_trials, self.n_jobs, self.params = n_trials, n_jobs, params
        self.launched = 0
        """Jobs so far, each with a folder of its own."""

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self.hydra_context, self.config = hydra_context, config
        self.launcher: Launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        """Run trials until the study has them all, then what concludes it; print the folder of what
        was published."""
        from pessimal.config.compose import build
        from pessimal.verbs.search_tuning import tune

        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        space = [f"{name}={values}" for name, values in self.params.items()]
        folder = Path(self.config.hydra.sweep.dir)
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, folder / "multirun.yaml")
        tune(
            parser.parse_overrides([*space, *arguments]),
            compose=lambda fixed: build(self._composed(fixed)),
            run=self._run,
            total=self.n_trials,
            at_once=self.n_jobs,
        )

    def _composed(self, overrides: Sequence[str]) -> DictConfig:
        composed = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
        OmegaConf.set_struct(composed, False)
        del composed["hydra"]
        return composed

    def _run(self, jobs: Sequence[Sequence[str]]) -> list[Exception | None]:
        """Run jobs by whatever launcher was chosen; each one's error, or None."""
        first, self.launched = self.launched, self.launched + len(jobs)
        results = self.launcher.launch([list(job) for job in jobs], initial_job_idx=first)
        return [_error(result) for result in results]


def _error(result: JobReturn) -> Exception | None:
    # The error's message says enough: Hydra's line, the job's overrides, is not printed.
    with redirect_stderr(StringIO()):
        try:
            _ = result.return_value
        except Exception as error:
            return error
    return None
