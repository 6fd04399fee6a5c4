"""`pessimal push`: the registry to W&B, every artifact's manifest asked back and compared."""

import logging

from pessimal.config.schema import PushConfig
from pessimal.errors import WorkError
from pessimal.tracking.push import choose, push
from pessimal.verbs.common import registry_of, target_of
from pessimal.verbs.printing import write_out

log = logging.getLogger(__name__)


def run(config: PushConfig) -> None:
    """Send what W&B does not have, print a line an artifact, and fail where one is not there
    whole."""
    registry = registry_of(config)
    published = choose(registry, types=config.type, names=config.name)
    pushed = push(published, target_of(config))
    for reference, verdict in pushed.verdicts.items():
        state, _, message = verdict.partition(": ")
        how = "sent" if reference in pushed.sent else "was there"
        write_out(f"{state:<9}{reference}  {message or how}")
    if pushed.unknown_inputs:
        log.warning(
            "W&B does not have these inputs, so that what was made from them does not say so: %s. "
            "To send all there is: pessimal push",
            ", ".join(pushed.unknown_inputs[:8]),
        )
    if pushed.wrong:
        raise WorkError(
            f"{len(pushed.wrong)} of {len(published)} artifacts are not at {pushed.path} as they "
            f"are in {registry.root}: {', '.join(pushed.wrong[:8])}. What was missing may be sent "
            "by the same command"
        )
    log.info("%s: %d artifacts, all there and the same", pushed.path, len(published))
