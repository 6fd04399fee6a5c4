"""`pessimal check loop=… policy=…`: does a trainer's loop hand the reward model what its card's
template says? Without a server, and without the policy's weights."""

import torch
from rich.console import Console
from rich.text import Text
from transformers import PreTrainedTokenizerBase

from pessimal.catalogue import is_named
from pessimal.checking.loop import LOOPS, LoopCheck, check_loop, loop_results
from pessimal.config.schema import CheckConfig
from pessimal.errors import VerdictError
from pessimal.progress import counted, quiet_libraries
from pessimal.rewards.base import NetworkReward, require_network
from pessimal.rewards.checkpoint_files import load_tokenizer
from pessimal.rewards.hub import local_folder
from pessimal.rewards.named import spec_of
from pessimal.rewards.obtain import fetch_files, open_reward
from pessimal.rewards.spec import ModelSpec
from pessimal.scoring.engine import own_rewards
from pessimal.scoring.trainer import begin_process, make_trainer
from pessimal.verbs.common import in_sweep, registry_of, tracked
from pessimal.verbs.publish import Artifact, print_path, publish

WIDTH = 110
TOKENIZER = ("*.json", "*.txt", "*.model", "*.jinja")
"""Files of a repository that a tokenizer is made of."""


def run(config: CheckConfig) -> None:
    """Compare, publish a `conformance` artifact, print what differs.

    Raises VerdictError where anything does and `strict` is on; the artifact is published all the
    same.
    """
    found, model = looped(config)
    assert config.loop is not None
    loop = config.loop.value
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
        published, _ = publish(config, registry_of(config), mirror, artifact, results)
    if not in_sweep():
        show(found, title=results[0].headline)
    print_path(published)
    if config.strict and found.different:
        raise VerdictError(
            f"{model.name} reads something else in {len(found.different)} conversations: "
            f"{', '.join(found.counts)} (kept in {published}); without strict=true the exit code "
            "is 0"
        )


def looped(config: CheckConfig) -> tuple[LoopCheck, NetworkReward]:
    """What the trainer's loop hands `config.model`, beside what its template writes; the model."""
    assert config.loop is not None
    quiet_libraries()
    begin_process(config.trainer)
    policy = _policy(config)
    model = open_reward(config.model, cache=config.paths.cache)
    model = require_network(model, "check")
    device = make_trainer(config.trainer, root=config.paths.cache).strategy.root_device
    network = model.network().to(device)
    with (
        counted("rewards", unit="inputs", total=2 * config.sample, bar=config.progress) as counter,
        torch.no_grad(),
    ):

        def reward(ids: list[int]) -> float:
            counter.advance(1)
            return own_rewards(network, torch.tensor([ids], device=device)).item()

        found = check_loop(
            LOOPS[config.loop.value],
            policy,
            model.parts[0].conversations,
            model.tokenizer,
            prompts=list(config.prompts.values()),
            context=getattr(network.config.get_text_config(), "max_position_embeddings", None),
            reward=reward,
            sample=config.sample,
            seed=config.seed,
        )
    return found, model


def _policy(config: CheckConfig) -> PreTrainedTokenizerBase:
    """Its tokenizer; of a repository of the Hub no weights are fetched."""
    assert config.policy is not None
    if is_named(config.policy):
        spec = spec_of(config.policy)
        return load_tokenizer(spec, fetch_files(spec, cache=config.paths.cache))
    folder = local_folder(config.policy, files=TOKENIZER, local="policy=DIR")
    return load_tokenizer(ModelSpec(name="policy", path=config.policy), folder)


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
