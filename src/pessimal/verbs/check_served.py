"""`pessimal check url=…`: is a model served right? Names the fault, prints the numbers behind it,
publishes them."""

from dataclasses import replace

from rich.text import Text

from pessimal.api.check import diagnose_server
from pessimal.api.store import Artifact, publish
from pessimal.checking.results import served_result
from pessimal.checking.served import Diagnosis
from pessimal.checking.served_checks import checks_of
from pessimal.checking.served_faults import FAULTS
from pessimal.config.schema import CheckConfig
from pessimal.errors import VerdictError
from pessimal.progress import SafeConsole, quiet_libraries
from pessimal.rewards.base import NetworkReward, require_network
from pessimal.rewards.obtain import open_reward
from pessimal.rewards.spec import ModelSpec
from pessimal.rewards.wires import recognised
from pessimal.scoring.trainer import begin_process, make_trainer
from pessimal.verbs.common import in_sweep, registry_of, tracked
from pessimal.verbs.publish import print_path

WIDTH = 110
STYLES = {"pass": "green", "FAIL": "bold red", "info": "cyan", "n/a": "dim"}


def run(config: CheckConfig) -> None:
    """Ask the server, publish a `conformance` artifact, print the diagnosis.

    Raises VerdictError where the model is not served right and `strict` is on; the artifact is
    published all the same.
    """
    quiet_libraries()
    begin_process(config.trainer)
    endpoint = recognised(replace(config.endpoint, url=config.url))
    config.check_forms(endpoint.api)

    def open_network(spec: ModelSpec) -> NetworkReward:
        return require_network(open_reward(spec, cache=config.paths.cache), "check")

    model = open_network(config.model)
    base = config.base and ModelSpec(path=config.base, output=config.model.output)
    found, wire = diagnose_server(
        model,
        endpoint,
        next(iter(config.prompts.values())),
        forms=config.forms,
        raw=config.raw,
        base=open_network(base) if base else None,
        requests=config.requests,
        seed=config.seed,
        device=make_trainer(config.trainer, root=config.paths.cache).strategy.root_device,
        progress=config.progress,
    )
    with tracked(config, name=f"check {model.name} served") as mirror:
        result = served_result(found, model.name)
        what = {
            "model": model.name,
            "prompt": next(iter(config.prompts)),
            "weights_digest": model.weights_digest,
            "url": config.url,
        }
        artifact = Artifact(
            "conformance", f"{model.name}--served", summary=what | dict(result.summary)
        )
        folder, _ = publish(
            registry_of(config), mirror, artifact, [result], progress=config.progress
        )
    if not in_sweep():
        show(found, title=f"At {wire.address} {result.headline}")
    print_path(folder)
    if config.strict and not found.harmless:
        names = ", ".join(part.fault for part in found.faults)
        raise VerdictError(
            f"{model.name} is not served right: {names} (kept in {folder}); without strict=true "
            "the exit code is 0"
        )


def show(found: Diagnosis, *, title: str) -> None:
    """Print on stdout, at most 15 lines at its width."""
    console = SafeConsole(highlight=False, markup=False, emoji=False, width=WIDTH)
    console.print(Text(title, style="bold green" if found.harmless else "bold red"))
    for part in found.faults:
        what, mend = FAULTS[part.fault].values()
        console.print(f"{what} {mend}.")
    console.print(
        f"Largest difference from the model's own rewards {found.own_difference:.2g}; their "
        f"standard deviation is {found.spread:.2g}. {len(found.served)} inputs sent."
    )
    for check in checks_of(found):
        limit = "" if check.allowed is None else f"allowed {check.allowed:.2g}"
        measured = "–" if check.measured is None else f"{check.measured:.2g}"
        row = Text.assemble(
            (f"{check.result:5}", STYLES[check.result]),
            f" {check.check:16} {measured:>9}  {limit:17} n = {check.n}",
        )
        console.print(row)
