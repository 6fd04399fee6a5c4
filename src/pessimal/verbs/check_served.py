"""`pessimal check url=…`: is a model served right? Names the fault, prints the numbers behind it,
publishes them."""

from dataclasses import replace

import numpy as np
from rich.text import Text

from pessimal.checking.results import served_result
from pessimal.checking.served import Diagnosis, diagnose
from pessimal.checking.served_checks import checks_of
from pessimal.checking.served_faults import FAULTS
from pessimal.config.schema import CheckConfig
from pessimal.errors import VerdictError
from pessimal.progress import Counter, SafeConsole, counted, quiet_libraries
from pessimal.rewards.base import NetworkReward, require_network
from pessimal.rewards.frame import messages_of
from pessimal.rewards.obtain import open_reward
from pessimal.rewards.spec import ModelSpec
from pessimal.rewards.wires import PAIRS, RAW, Wire, recognised
from pessimal.scoring.trainer import begin_process, make_trainer
from pessimal.verbs.common import in_sweep, registry_of, tracked
from pessimal.verbs.publish import Artifact, print_path, publish

WIDTH = 110
STYLES = {"pass": "green", "FAIL": "bold red", "info": "cyan", "n/a": "dim"}


def run(config: CheckConfig) -> None:
    """Ask the server, publish a `conformance` artifact, print the diagnosis.

    Raises VerdictError where the model is not served right and `strict` is on; the artifact is
    published all the same.
    """
    found, model, wire = served(config)
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
        folder, _ = publish(config, registry_of(config), mirror, artifact, [result])
    if not in_sweep():
        show(found, title=f"At {wire.address} {result.headline}")
    print_path(folder)
    if config.strict and not found.harmless:
        names = ", ".join(part.fault for part in found.faults)
        raise VerdictError(
            f"{model.name} is not served right: {names} (kept in {folder}); without strict=true "
            "the exit code is 0"
        )


def served(config: CheckConfig) -> tuple[Diagnosis, NetworkReward, Wire]:
    """What the server at `config.url` does to the rewards of `config.model`; the model, and how the
    server was asked."""
    quiet_libraries()
    begin_process(config.trainer)
    config.endpoint = recognised(replace(config.endpoint, url=config.url))
    forms = config.sent()
    wire = Wire(config.endpoint, fields=RAW if config.raw else {})
    model = _opened(config.model, config)
    base = _base(config)
    device = make_trainer(config.trainer, root=config.paths.cache).strategy.root_device
    with counted(
        f"asking {config.url}", unit="inputs", total=config.requests, bar=config.progress
    ) as counter:
        found = diagnose(
            _scores(wire, counter),
            model,
            base=base,
            prompt=next(iter(config.prompts.values())),
            forms=forms,
            device=device,
            seed=config.seed,
            budget=config.requests,
        )
    return found, model, wire


def _opened(spec: ModelSpec, config: CheckConfig) -> NetworkReward:
    model = open_reward(spec, cache=config.paths.cache)
    return require_network(model, "check")


def _base(config: CheckConfig) -> NetworkReward | None:
    if config.base is None:
        return None
    return _opened(ModelSpec(path=config.base, output=config.model.output), config)


def _scores(wire: Wire, counter: Counter):
    """What `diagnose` asks: one request; messages go one by one."""

    def scores(inputs) -> np.ndarray:
        counter.advance(len(inputs))
        if isinstance(inputs[0], tuple):
            if wire.api in (*PAIRS, "tei-predict"):
                return wire.rows([tuple(turn.content for turn in one) for one in inputs])
            return np.concatenate([wire.rows([messages_of(one)]) for one in inputs])
        return wire.rows(inputs)

    return scores


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
