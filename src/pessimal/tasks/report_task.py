"""`pessimal report`: one self-contained HTML page over comparisons, searches, studies and explanations in the registry."""

import logging
from pathlib import Path

from pessimal.config.schema import ReportConfig
from pessimal.errors import InputError
from pessimal.report.page import Comparison, page
from pessimal.tasks.common import config_hash, registry_of, tracked
from pessimal.tracking.registry import Manifest, Registry

log = logging.getLogger(__name__)


SHOWN = ("comparison", "search-result", "study", "explanation")
"""Types of artifacts that a page can show."""


def run(config: ReportConfig) -> None:
    """Write the page, publish it as a `report` artifact, and print its path."""
    registry = registry_of(config)
    chosen = _chosen(config, registry)
    html = page([Comparison(m.reference, folder, m.created) for folder, m in chosen], title=config.title)
    inputs = [manifest.reference for _, manifest in chosen]
    with tracked(config, name=f"report {config.name}", inputs=inputs) as mirror:
        folder, manifest = registry.publish(
            "report",
            config.name,
            lambda staging: (staging / "index.html").write_text(html, encoding="utf-8"),
            inputs=inputs,
            config_hash=config_hash(config),
            run_id=mirror.run_id,
            summary={"bytes": len(html.encode())},
        )
        mirror.artifact(folder, manifest, {"inputs": inputs})
    print(folder / "index.html")


def _chosen(config: ReportConfig, registry: Registry) -> list[tuple[Path, Manifest]]:
    published = [pair for type in SHOWN for pair in registry.manifests(type)]
    if not published:
        raise InputError(
            f"there is nothing to show in {registry.root} yet; type: pessimal compare, pessimal search or pessimal explain"
        )
    chosen = [] if config.artifacts else _newest(published)
    for wanted in config.artifacts:
        matches = [
            pair for pair in published if wanted in (pair[1].reference, pair[1].reference.rpartition(":")[0])
        ]
        if not matches:
            known = ", ".join(manifest.reference for _, manifest in published)
            raise InputError(f"artifacts: there is no {wanted!r} in {registry.root}; there are: {known}")
        chosen.append(matches[-1])
    for folder, _ in chosen:
        registry.verify(folder)
    return chosen


def _newest(published: list[tuple[Path, Manifest]]) -> list[tuple[Path, Manifest]]:
    """The newest comparison; where there is none, the newest of all."""
    comparisons = [pair for pair in published if pair[1].type == "comparison"]
    return [max(comparisons or published, key=lambda pair: pair[1].created)]
