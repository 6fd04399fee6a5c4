"""The options of a study; imports no torch, since a configuration names them."""

from dataclasses import field
from typing import ClassVar

from pydantic.dataclasses import dataclass

from pessimal.options import Count, Options


@dataclass
class TuningSpec(Options):
    """A sweep of the search's options by Optuna (`pessimal search -m hparams_search=gcg`)."""

    _prefix: ClassVar[str] = "tuning"

    study: str | None = None
    """Name of the study; named by the sweeper (gcg-MODEL-GOAL-LENGTH) where null."""
    storage: str | None = None
    """The SQLite file that the study is kept in (FILE.db or sqlite:///FILE.db);
    paths.root/studies/NAME.db where null."""
    trials: Count | None = None
    """Trials that the study is to have: filled in by the sweeper, for a job that runs one of them;
    null in the job that concludes a study."""
    prompts: list[str] = field(default_factory=list)
    """Keys of the prompts that options are tuned on."""
    held_out: list[str] = field(default_factory=list)
    """Keys of the prompts that the tuned options are compared with the defaults on."""
    seeds: Count = 3
    """Random starts of each prompt; a trial's value is the median over prompts and seeds."""
    held_out_seeds: Count = 8
    """Random starts of each held-out prompt, other ones than in the trials."""
    evaluations: Count = 5_000
    """Candidate evaluations of each search: the same for every trial and for the defaults."""
