"""`pessimal check loop=… policy=…`: does a trainer's loop hand the reward model what its card's
template says? Without a server, and without the policy's weights."""

from typing import Any

from rich.console import Console
from rich.text import Text

from pessimal.api.check import compare_loop
from pessimal.api.store import Artifact, publish
from pessimal.checking.loop import LoopCheck, loop_results
from pessimal.config.schema import CheckConfig
from pessimal.errors import VerdictError
from pessimal.progress import quiet_libraries
from pessimal.rewards.base import require_network
from pessimal.rewards.obtain import open_reward
from pessimal.scoring.trainer import begin_process, make_trainer
from pessimal.verbs.common import in_sweep, registry_of, tracked
from pessimal.verbs.publish import print_path

WIDTH = 110


def run(config: CheckConfig) -> None:
    """Compare, publish a `conformance` artifact, print what differs.

    Raises VerdictError where anything does and `strict` is on; the artifact is published all the
    same.
    """
    quiet_libraries()
    begin_process(config.trainer)
    assert config.loop is not None
    assert config.policy is not None
    loop = config.loop.value
    cached: dict[str, Any] = {"cache": config.paths.cache, "progress": config.progress}
    model = require_network(open_reward(config.model, cache=config.paths.cache), "check")
    found = compare_loop(
        model,
        loop,
        config.policy,
        list(config.prompts.values()),
        sample=config.sample,
        seed=config.seed,
        device=make_trainer(config.trainer, root=config.paths.cache).strategy.root_device,
        **cached,
    )
    with tracked(config, name=f"check {model.name} in {loop}") as mirror:
        results = loop_results(found, loop=loop, model=model.name)
        what = {
            "model": model.name,
            "loop": loop,
            "policy": config.policy,
            "weights_digest": model.weights_digest,
        }
        name = f"{model.name}--in-{loop}"
        artifact = Artifact("conformance", name, summary=what | dict(results[0].summary))
        published, _ = publish(
            registry_of(config), mirror, artifact, results, progress=config.progress
        )
    if not in_sweep():
        show(found, title=results[0].headline)
    print_path(published)
    if config.strict and found.different:
        raise VerdictError(
            f"{model.name} reads something else in {len(found.different)} conversations: "
            f"{', '.join(found.counts)} (kept in {published}); without strict=true the exit code "
            "is 0"
        )


def show(found: LoopCheck, *, title: str) -> None:
    """Print on stdout: each fault, how often, by how much rewards move, and one difference."""
    console = Console(highlight=False, markup=False, emoji=False, width=WIDTH)
    console.print(Text(title, style="bold red" if found.different else "bold green"))
    for row in loop_results(found, loop="", model="")[0].table.itertuples():
        console.print(
            Text.assemble((f"{row.fault}", "bold"), f" in {row.conversations} of {row.of}. ")
        )
        console.print(f"  {row.what} {row.mend}.")
        if row.n_moved:
            console.print(
                f"  Rewards move by {row.moved:.2g} SD on average, {row.moved_most:.2g} at most "
                f"(n = {row.n_moved})."
            )
        console.print(Text(f"  {row.difference}", style="cyan"))
    if found.different:
        console.print("-[what the card's template writes] +[what the loop sends]")
