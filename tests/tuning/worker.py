"""One worker of a study, as a process that can be killed; a script for `test_workers.py`, never imported by it.

`python worker.py NAME STORAGE TOTAL [hang=TRIAL]` runs trials in its own process, as the basic launcher does. Each trial's
start is a line of `started.txt`. In the trial that it is to hang in, it writes `hanging` after its first search, and waits.
"""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser

from pessimal.config.schema import SearchConfig, TuningSpec
from pessimal.models.spec import ModelSpec, RecipeSpec
from pessimal.tuning import storage as study_storage
from pessimal.tuning.space import parse_space, with_options
from pessimal.tuning.study import Trials, options_tried
from pessimal.tuning.sweep import work
from pessimal.tuning.trial import run_trial

DIMENSIONS = ["search.momentum=interval(0,0.95)", "search.search_width=tag(log,interval(64,1024))"]


class Context:
    provenance = {"weights_digest": "a"}  # noqa: RUF012

    def __init__(self, config, *, hang):
        self.config, self.hang = config, hang

    def search(self, prompt, *, seed, budget):
        if self.hang and prompt == "dusk":
            Path("hanging").touch()
            time.sleep(600)
        time.sleep(0.01)
        return -self.config.search.momentum


def main(name: str, storage: str, total: int, hang: int | None) -> None:
    study_storage.HEARTBEAT, study_storage.GRACE = 1, 2
    config = SearchConfig(
        task="search",
        model=ModelSpec(name="toy", recipe=RecipeSpec()),
        prompts={"dawn": "Dawn?", "dusk": "Dusk?"},
        prompt="dawn",
        tuning=TuningSpec(study="shared", storage=storage, prompts=["dawn", "dusk"], seeds=2),
    )
    trials = Trials(config, parse_space(OverridesParser.create().parse_overrides(DIMENSIONS)))
    log = os.open("started.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def launch(batch):
        for trial in batch:
            os.write(log, f"{name} {trial.number}\n".encode())
            own = with_options(config, options_tried(trial))
            own = replace(own, tuning=replace(own.tuning, trial=trial.number))
            run_trial(own, lambda job, _: Context(job, hang=job.tuning.trial == hang))
        return [None] * len(batch)

    work(trials, launch, total=total, at_once=1)


if __name__ == "__main__":
    name, storage, total, *hang = sys.argv[1:]
    main(name, storage, int(total), int(hang[0].removeprefix("hang=")) if hang else None)
