"""Where the functions publish what they compute: the registry, and the W&B run that mirrors it.

Knows artifacts of one reward. Without a store the functions give their results and write nothing.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pessimal.errors import ConfigError
from pessimal.rewards.base import Reward
from pessimal.rewards.named import spec_of
from pessimal.rewards.spec import ModelSpec
from pessimal.tables import ScoreTable, write_score_table
from pessimal.tables.result import Result, Results, finite_or_none
from pessimal.tracking.mirror import MAX_TABLE_ROWS, Mirror
from pessimal.tracking.registry import Manifest, Registry, checkout


def without_mirror(**_: Any) -> contextlib.AbstractContextManager[Mirror]:
    """A mirror that sends nothing."""
    return contextlib.nullcontext(Mirror())


@dataclass(frozen=True)
class Store:
    """A registry, and what opens the W&B run of a piece of work: called with its `name`, the
    references `inputs`, its `task`, the `group` of runs that it belongs to, and whether this is the
    `first` of several processes."""

    registry: Registry
    track: Callable[..., contextlib.AbstractContextManager[Mirror]] = without_mirror
    force: bool = False
    """Make anew what is published already."""

    def find(self, type: str, key: str) -> tuple[Path, Manifest] | None:
        """The published artifact of this very request; None where there is none, and where all is
        to be made anew."""
        return None if self.force else self.registry.find(type, key)


def store_at(place: Store | str | Path | None) -> Store | None:
    """The store that is given, or that of the registry in a folder."""
    return Store(Registry(Path(place))) if isinstance(place, str | Path) else place


def registered_spec(registry: Registry, name: str) -> ModelSpec:
    """The model of a name as it is typed, or else of one that was trained under it.

    Raises:
        ConfigError: it is neither.
    """
    try:
        return spec_of(name)
    except ConfigError:
        trained = {manifest.name: folder for folder, manifest in registry.latest("reward-model")}
        if name not in trained:
            raise
        return spec_of(str(trained[name]), name=name)


def reward_inputs(registry: Registry, model: Reward) -> tuple[list[str], dict[str, str]]:
    """The origin of a reward for artifacts that were made with it: its reference where it is one of
    the registry's, as inputs; and for the summary, `reward_model`: that reference, or where the
    model comes from (`Reward.origin`)."""
    files = model.files and model.files.resolve()
    for folder, manifest in reversed(registry.manifests("reward-model")) if files else ():
        if folder.resolve() == files:
            return [manifest.reference], {"reward_model": manifest.reference}
    return [], {"reward_model": model.origin}


def publish_table(
    registry: Registry,
    mirror: Mirror,
    table: ScoreTable,
    *,
    inputs: Sequence[str] = (),
    summary: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
) -> tuple[Path, Manifest]:
    """Publish a score table under its provenance's name and key, with the code that made it; the
    summary always says what it is a table of. `more` is said at W&B alone."""
    provenance = table.provenance
    table = replace(table, code=checkout()._asdict())
    about = {name: getattr(provenance, name) for name in ("model", "prompt", "candidates")}
    return mirror.publish(
        *(registry, "score-table", table.name),
        lambda staging: write_score_table(table, staging / "scores.parquet"),
        key=provenance.key(),
        inputs=inputs,
        summary={**about, "n": len(table.rows), **(summary or {})},
        more=more,
    )


@dataclass(frozen=True)
class Artifact:
    """The name and the facts under which results are published."""

    type: str
    name: str
    key: str | None = None
    inputs: Sequence[str] = ()
    summary: Mapping[str, object] = field(default_factory=dict)
    """Figures for a list of runs."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Names of models as figures show them."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Further texts of the artifact by their path in it."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Reasons by the names of analyses that could not be computed."""


def publish(
    registry: Registry,
    mirror: Mirror,
    artifact: Artifact,
    results: Sequence[Result],
    *,
    progress: bool = True,
) -> tuple[Path, Manifest]:
    """Write, register and mirror the results; returns the artifact's folder and manifest.

    The folder holds `tables/NAME.parquet`, `figures/NAME[--TAB].svg` (the first as `.png` too),
    `results.json`, the artifact's own files, and `shown/NAME.parquet` of tokens that the page shows
    and the table has otherwise.
    """
    from pessimal.report.write import write_results  # which loads Matplotlib

    files, about = (
        {name: getattr(artifact, name) for name in names}
        for names in (("labels", "skipped", "files"), ("key", "inputs", "summary"))
    )
    fill = functools.partial(write_results, results, progress=progress, **files)
    folder, manifest = mirror.publish(registry, artifact.type, artifact.name, fill, **about)
    for result in results:
        mirror.summary({key: finite_or_none(value) for key, value in result.summary.items()})
        if result.estimate is not None:
            mirror.summary({f"{result.name}/estimate": finite_or_none(result.estimate.value)})
        if len(result.table) <= MAX_TABLE_ROWS:
            mirror.table(result.name, result.table)
        for png in sorted((folder / "figures").glob(f"{result.name}*.png")):
            if png.stem.split("--")[0] == result.name:
                mirror.image(f"figures/{png.stem}", png, result.headline)
    return folder, manifest


@contextlib.contextmanager
def publishing(
    store: Store | None, *, name: str, inputs: Sequence[str] = (), progress: bool = True
) -> Iterator[Callable[[Artifact, Sequence[Result]], Results]]:
    """A function that publishes the results of a piece of work, in a W&B run of its own that is
    open while the work is done; without a store it gives them as they are."""
    with (store.track if store else without_mirror)(name=name, inputs=inputs) as mirror:

        def publish_results(artifact: Artifact, results: Sequence[Result]) -> Results:
            if store is None:
                return Results(results, artifact.skipped)
            folder, _ = publish(store.registry, mirror, artifact, results, progress=progress)
            return Results(results, artifact.skipped, folder)

        yield publish_results
