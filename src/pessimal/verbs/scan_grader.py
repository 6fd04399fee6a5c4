"""`pessimal scan FILE.py:FUNCTION tasks=FILE`: the census of a grader."""

from pessimal.api.store import Artifact, publish, reward_inputs
from pessimal.checking.grading import census, faults_of, tokens_of
from pessimal.config.schema import ScanConfig
from pessimal.errors import ConfigError
from pessimal.rewards.callable import CallableReward
from pessimal.rewards.obtain import open_reward
from pessimal.verbs.common import registry_of, tracked
from pessimal.verbs.publish import print_headlines, print_path


def run(config: ScanConfig) -> None:
    """Run every string through `config.model`, a function; publishes a `census`."""
    grader = open_reward(config.model, cache=config.paths.cache)
    if not isinstance(grader, CallableReward):
        raise ConfigError(f"{grader.name} is no function: candidates=census is for graders")
    registry = registry_of(config)
    inputs, source = reward_inputs(registry, grader)
    with tracked(config, name=f"census {grader.name}", inputs=inputs) as mirror:
        results = census(grader, tokens=tokens_of(grader), progress=config.progress)
        what = {"model": grader.name, "faults": faults_of(results)} | source
        artifact = Artifact("census", grader.name, inputs=inputs, summary=what)
        folder, _ = publish(registry, mirror, artifact, results, progress=config.progress)
    print_headlines(results, title=f"Census of {grader.name}")
    print_path(folder)
