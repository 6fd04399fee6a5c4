"""What an artifact was made from, and what was made from it.

Knows references. Does not know files. Only what a manifest records is here: `inputs` of a comparison are score tables;
a score table names its model in its provenance, not among its inputs.
"""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass

from pessimal.tracking.registry import Manifest


@dataclass(frozen=True)
class Node:
    """An artifact in a tree of artifacts."""

    reference: str
    """`type/name:vN`."""
    known: bool
    """Whether it is in the registry; what was removed is still named by what was made from it."""
    repeated: bool
    """Whether it stands in the tree already; what is below it is then there only."""
    below: tuple["Node", ...]


def upwards(reference: str, manifests: Iterable[Manifest]) -> Node:
    """The artifact and what it was made from, what that was made from, and so on."""
    inputs = {m.reference: m.inputs for m in manifests}
    return _tree(reference, lambda one: inputs.get(one, []), inputs.keys(), set())


def downwards(reference: str, manifests: Iterable[Manifest]) -> Node:
    """The artifact and what was made from it, what was made from that, and so on."""
    made: dict[str, list[str]] = {}
    known = set()
    for manifest in manifests:
        known.add(manifest.reference)
        for one in dict.fromkeys(manifest.inputs):
            made.setdefault(one, []).append(manifest.reference)
    return _tree(reference, lambda one: made.get(one, []), known, set())


def _tree(
    reference: str, below_of: Callable[[str], Iterable[str]], known: Container[str], seen: set[str]
) -> Node:
    below = list(dict.fromkeys(below_of(reference)))
    repeated = reference in seen and bool(below)
    seen.add(reference)
    nodes = () if repeated else tuple(_tree(one, below_of, known, seen) for one in below)
    return Node(reference, reference in known, repeated, nodes)
