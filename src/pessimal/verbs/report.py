"""`pessimal report`: one self-contained HTML page over comparisons, searches, studies and
explanations in the registry, with every token's rewards where score tables are behind them."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path

from pessimal.config.schema import ReportConfig
from pessimal.errors import InputError, MissingExtraError, require
from pessimal.progress import steps
from pessimal.report.artifact import Artifact
from pessimal.report.explorer import Explorer, chosen_prompts, explorer
from pessimal.report.page import page
from pessimal.tables import read_score_table
from pessimal.tables.score_table import SharedColumns, read_provenance
from pessimal.tracking.registry import Manifest, Registry
from pessimal.verbs.common import print_path, registry_of, tracked

log = logging.getLogger(__name__)


SHOWN = ("comparison", "search-result", "study", "explanation", "census", "audit", "rollouts")
"""Types of artifacts that a page can show."""
LARGE = 30_000_000
"""Bytes above which a page is said to be large: browsers and mail take their time."""


def run(config: ReportConfig) -> None:
    """Write the page, publish it as a `report` artifact, and print its path."""
    print_path(write_page(config))


def write_page(config: ReportConfig) -> Path:
    """Write the page and publish it as a `report` artifact; returns its file."""
    registry = registry_of(config)
    artifacts, explores = _find_artifacts(config, registry), config.explorer and _has_explorer()
    html = page(
        [Artifact(m.reference, folder, m.created, m.commit, m.dirty) for folder, m in artifacts],
        title=config.title,
        explorer=_explorer(config, registry, [m for _, m in artifacts]) if explores else None,
        notes=config.notes,
    )
    if len(html) > LARGE:
        message = "the page has %d MB; smaller: explorer_prompts=[KEY], or explorer=false"
        log.warning(message, len(html) // 1_000_000)
    inputs = [manifest.reference for _, manifest in artifacts]
    with tracked(config, name=f"report {config.name}", inputs=inputs) as mirror:
        folder, _ = mirror.publish(
            registry,
            "report",
            config.name,
            lambda staging: (staging / "index.html").write_text(html, encoding="utf-8"),
            inputs=inputs,
            summary={"bytes": len(html.encode())},
        )
        mirror.page("page", folder / "index.html")
    if config.space is not None:
        write_space(Path(config.space).expanduser(), config.title, config.notes, html)
    return folder / "index.html"


def write_space(folder: Path, title: str, notes: Sequence[str], html: str) -> None:
    """A page as a static Space of Hugging Face: `index.html`, and `README.md` with the Space's
    front matter and the notes.

    Source: https://huggingface.co/docs/hub/spaces-config-reference
    """
    front = f"title: {json.dumps(title)}\nsdk: static\napp_file: index.html\npinned: false"
    text = "\n\n".join([f"---\n{front}\n---", f"# {title}", *notes])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(text + "\n", encoding="utf-8")
    (folder / "index.html").write_text(html, encoding="utf-8")


def _find_artifacts(config: ReportConfig, registry: Registry) -> list[tuple[Path, Manifest]]:
    artifacts = [registry.artifact(name, *SHOWN) for name in config.artifacts]
    if not artifacts:
        published = registry.manifests(*SHOWN)
        if not published:
            raise InputError(f"nothing to show is in {registry.root} yet: type pessimal compare")
        # The newest comparison; where there is none, the newest of all.
        newest = max(published, key=lambda pair: (pair[1].type == "comparison", pair[1].created))
        artifacts = [newest]
    for folder, _ in artifacts:
        registry.verify(folder)
    return artifacts


def _has_explorer() -> bool:
    """Whether its charting library is installed; where not, the page is written without it."""
    try:
        require("bokeh", purpose="the page's explorer")
    except MissingExtraError as missing:
        log.warning("%s", missing)
        return False
    return True


def _explorer(config: ReportConfig, registry: Registry, sources: list[Manifest]) -> Explorer | None:
    """The tokens of the score tables behind what is shown, and what was left out; None where there
    are none."""
    references = dict.fromkeys(
        name for manifest in sources for name in manifest.inputs if name.startswith("score-table/")
    )
    published = {m.reference: (folder, m) for folder, m in registry.manifests("score-table")}
    notes = []
    if missing := [reference for reference in references if reference not in published]:
        message = f"Not here: {len(missing)} of the {len(references)} score tables compared"
        notes.append(f"{message} are no longer in the registry ({missing[0]} …).")
        log.warning("%s", notes[-1])
    pairs = [published[reference] for reference in references if reference in published]
    newest = {m.name: folder for folder, m in sorted(pairs, key=lambda pair: pair[1].version)}
    # An older version of a table is a rescan, for the noise floor only.
    folders = [folder for folder, m in pairs if newest[m.name] == folder]
    provenances = {folder: read_provenance(folder) for folder in folders}
    prompts = chosen_prompts(list(provenances.values()), wanted=config.explorer_prompts)
    keys = list(dict.fromkeys(provenance.prompt for provenance in provenances.values()))
    if left_out := [prompt for prompt in keys if prompt not in prompts]:
        some = ", ".join(left_out[:5]) + " …" * (len(left_out) > 5)
        notes.append(
            f"In the explorer: {', '.join(prompts)}. Prompts not in it ({len(left_out)}): {some}. "
            "To choose: explorer_prompts=[KEY,KEY]"
        )
    shared, tables = SharedColumns(), []
    selection = [(p, folder) for folder, p in provenances.items() if p.prompt in prompts]
    with steps(f"reading {len(selection)} tables", len(selection), bar=config.progress) as step:
        for provenance, folder in sorted(selection, key=lambda pair: keys.index(pair[0].prompt)):
            step(f"{provenance.model} on {provenance.prompt}")
            registry.verify(folder)
            tables.append(shared.share(read_score_table(folder)))
    return explorer(tables, notes=notes)
