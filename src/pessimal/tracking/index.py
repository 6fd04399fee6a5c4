"""The registry's index: one line an artifact, JSON, with a checksum of its own at the end.

The index copies every manifest when it is published. So a byte that changes later in a manifest shows as a difference
from its line, and one that changes in a line shows in the line's checksum: neither can vouch for itself alone.
Knows lines. Does not know folders, locks, nor what a manifest says.
"""

import hashlib
import json

PATH = "path"
"""Field of a line that a manifest does not have: where the artifact is, counted from the registry's root."""
_CHECKSUM = ', "checksum": "'


def line_of(path: str, manifest: dict) -> str:
    """The line of one artifact, without a line break: `path` and the manifest's fields, then the sha256 of those."""
    body = json.dumps({PATH: path, **manifest}, sort_keys=True)
    return f'{body[:-1]}{_CHECKSUM}{_sha256(body)}"}}'


def read_line(line: str) -> tuple[str, dict] | None:
    """Path and manifest of a line; None where the line is damaged, or older than checksums are."""
    head, found, tail = line.rpartition(_CHECKSUM)
    body = head + "}"
    if not found or tail != _sha256(body) + '"}':
        return None
    manifest = json.loads(body)
    return manifest.pop(PATH), manifest


def read_line_without_checksum(line: str) -> tuple[str, dict] | None:
    """Path and fields of a line as it was before there were checksums; None where it is none such."""
    try:
        fields = json.loads(line)
        return fields.pop(PATH), fields
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def manifest_text(manifest: dict) -> str:
    """What `manifest.json` holds, to the byte: from a line it can be made again."""
    return json.dumps(manifest, indent=2, sort_keys=True)


def as_json(value):
    """`value` as it is read back from JSON: keys are texts, tuples are lists."""
    return json.loads(json.dumps(value))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
