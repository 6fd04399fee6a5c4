"""`pessimal push`: the registry to W&B, every artifact asked back and compared with its manifest."""

import logging
from pathlib import Path

from pessimal.config.schema import PushConfig
from pessimal.errors import WorkError
from pessimal.tasks.common import registry_of
from pessimal.tracking.push import Target, choose, push

log = logging.getLogger(__name__)


def run(config: PushConfig) -> None:
    """Send what W&B does not have, print a line an artifact, and fail where one is not there whole."""
    registry = registry_of(config)
    published = choose(registry, types=config.type, names=config.name)
    tracking = config.tracking
    target = Target(
        project=tracking.project,
        entity=tracking.entity,
        group=tracking.group,
        tags=list(tracking.tags),
        folder=Path(config.paths.wandb),
    )
    pushed = push(published, target)
    for found in pushed.verdicts:
        how = "sent" if found.reference in pushed.sent else "was there"
        print(f"{found.state:<9}{found.reference}  {found.told or how}")
    if pushed.unknown_inputs:
        log.warning(
            "W&B does not have these inputs, so that what was made from them does not say so: %s. To send all there is: "
            "pessimal push",
            ", ".join(pushed.unknown_inputs[:8]),
        )
    bad = [found for found in pushed.verdicts if found.state != "ok"]
    if bad:
        raise WorkError(
            f"{len(bad)} of {len(published)} artifacts are not at {pushed.path} as they are in {registry.root}: "
            f"{', '.join(found.reference for found in bad[:8])}. What was missing may be sent by the same command"
        )
    log.info("%s: %d artifacts, all there and the same", pushed.path, len(published))
