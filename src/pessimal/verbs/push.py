"""`pessimal push`: the registry to W&B, every artifact asked back and compared with its manifest."""

import logging
from pathlib import Path

from pessimal.config.schema import PushConfig
from pessimal.errors import WorkError
from pessimal.tracking.client import Target
from pessimal.tracking.push import choose, push
from pessimal.verbs.common import registry_of

log = logging.getLogger(__name__)


def run(config: PushConfig) -> None:
    """Send what W&B does not have, print a line an artifact, and fail where one is not there whole."""
    registry = registry_of(config)
    published = choose(registry, types=config.type, names=config.name)
    tracking = config.tracking
    target = Target(
        project=tracking.project,
        folder=Path(config.paths.wandb),
        entity=tracking.entity,
        group=tracking.group,
        tags=tracking.tags,
    )
    pushed = push(published, target)
    for verdict in pushed.verdicts:
        how = "sent" if verdict.reference in pushed.sent else "was there"
        print(f"{verdict.state:<9}{verdict.reference}  {verdict.message or how}")
    if pushed.unknown_inputs:
        log.warning(
            "W&B does not have these inputs, so that what was made from them does not say so: %s. To send all there is: "
            "pessimal push",
            ", ".join(pushed.unknown_inputs[:8]),
        )
    bad = [verdict for verdict in pushed.verdicts if verdict.state != "ok"]
    if bad:
        raise WorkError(
            f"{len(bad)} of {len(published)} artifacts are not at {pushed.path} as they are in {registry.root}: "
            f"{', '.join(verdict.reference for verdict in bad[:8])}. What was missing may be sent by the same command"
        )
    log.info("%s: %d artifacts, all there and the same", pushed.path, len(published))
