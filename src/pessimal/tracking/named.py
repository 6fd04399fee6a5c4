"""Which artifact a person means: by reference, by name, or by the W&B run that made it.

Pure: takes manifests, gives manifests.
"""

import re
from collections.abc import Sequence

from pessimal.errors import InputError
from pessimal.tracking.conditions import closest
from pessimal.tracking.registry import Manifest


def find_artifact(given: str, manifests: Sequence[Manifest]) -> Manifest:
    """The one artifact that `given` names: `type/name:vN`, as a folder `type/name/vN`, `type/name`, `name:vN` or `name`;
    the newest version where none is named.

    Raises:
        InputError: there is none such, or the name is that of artifacts of several types.
    """
    as_reference = re.sub(r"(.+/.+)/(v\d+)", r"\1:\2", given)
    path, colon, version = as_reference.rpartition(":") if ":" in as_reference else (given, "", "")
    type, slash, name = path.rpartition("/")
    matching = [
        m
        for m in manifests
        if m.name == name and (not slash or m.type == type) and (not colon or version == f"v{m.version}")
    ]
    if not matching:
        raise InputError(_none_such(given, name, manifests))
    if len({m.type for m in matching}) > 1:
        several = ", ".join(sorted({f"{m.type}/{m.name}" for m in matching}))
        raise InputError(f"{given!r} is the name of several artifacts: {several}. Type one of these")
    return max(matching, key=lambda m: m.version)


def of_run(given: str, manifests: Sequence[Manifest]) -> list[Manifest]:
    """What the W&B run of this id published; nothing where it is no run's."""
    return [m for m in manifests if m.run_id == given]


def find_artifacts(given: str, manifests: Sequence[Manifest]) -> list[Manifest]:
    """The artifact of this name, or everything that the W&B run of this id published. A name goes before a run's id.

    Raises:
        InputError: as `find_artifact`.
    """
    if any(given == m.name for m in manifests):
        return [find_artifact(given, manifests)]
    return of_run(given, manifests) or [find_artifact(given, manifests)]


def _none_such(given: str, name: str, manifests: Sequence[Manifest]) -> str:
    versions = [f"v{m.version}" for m in manifests if m.name == name]
    if versions:
        there = ", ".join(sorted({f"{m.type}/{m.name}:v{m.version}" for m in manifests if m.name == name}))
        return f"there is no artifact {given!r}; there are: {there}"
    known = sorted({m.name for m in manifests})
    return (
        f"there is no artifact {given!r}, and no W&B run of this id published one.{closest(name, known)} "
        "To list them: pessimal runs"
    )
