"""Which score table stands for a model where it was scanned several times, and what becomes of the others.

Scans in other modes get a section that compares modes; scans of one mode that were only computed otherwise (another
precision, another batch size, again) give the noise floor.
"""

from collections.abc import Mapping, Sequence

from pessimal.errors import TableError
from pessimal.tables import ScoreIdentity, ScoreTable

MODES = ("ids", "text", "paper", "published")
"""The first of these that a model was scanned in stands for it wherever modes are not compared."""
SAME = (
    "weights_digest",
    "config_digest",
    "tokenizer_digest",
    "template_digest",
    "output",
    "prompt_text",
    "candidates_digest",
)
"""What the scans of one model may not differ in, if it is the mode or the computing that makes their rewards differ."""

Key = tuple[str, str, str]
"""Candidate set, prompt, model."""
Modes = dict[str, ScoreTable]
"""One model's tables on one prompt and candidate set, by mode, the mode that stands for the model first."""

Rescans = dict[str, ScoreTable]
"""Further scans of one model in the mode that stands for it, by what tells them from the first: `bfloat16`, `again`."""


def by_mode(tables: Sequence[ScoreTable]) -> dict[Key, Modes]:
    """One table a mode; of several the one in float32, else the first given.

    Raises TableError where published scores stand beside others of the same model, or where something besides the
    mode differs.
    """
    chosen = {}
    for key, by_name in _all(tables).items():
        modes = {mode: min(by_name[mode], key=_precision) for mode in MODES if mode in by_name}
        if "published" in modes and (len(modes) > 1 or len(by_name["published"]) > 1):
            raise TableError(
                f"two score tables of model {key[2]!r} on prompt {key[1]!r} (mode {' and '.join(sorted(modes))}). "
                "Name the files: tables=[FILE,FILE]"
            )
        first, *others = modes.values()
        for other in others:
            _check_same(first.identity, other.identity, (*SAME, "dtype"), "the mode")
        chosen[key] = modes
    return chosen


def rescans(
    tables: Sequence[ScoreTable], chosen: Mapping[Key, Modes]
) -> tuple[dict[Key, Rescans], dict[Key, list[str]]]:
    """Every further scan in the mode that stands for a model; and which scans are none, and why. `chosen` is what
    `by_mode` made of the tables."""
    found: dict[Key, Rescans] = {}
    left_out: dict[Key, list[str]] = {}
    scans = _all(tables)
    for key, modes in chosen.items():
        mode, first = next(iter(modes.items()))
        for other in scans[key][mode]:
            if other is first:
                continue
            name = other.identity.dtype if other.identity.dtype != first.identity.dtype else "again"
            if differ := differing(first.identity, other.identity):
                told = f"{key[2]}, {name}: of another model under the same name ({', '.join(differ)})"
                left_out.setdefault(key, []).append(f"{told}; scan it again with force=true")
            elif first.rows["reward"].equals(other.rows["reward"]):  # a copy cannot be told from it
                left_out.setdefault(key, []).append(f"{key[2]}, {name}: the same to the last digit")
            else:
                named = found.setdefault(key, {})
                number = sum(known.split()[0] == name for known in named) + 1
                named[name if number == 1 else f"{name} {number}"] = other
    return found, left_out


def _all(tables: Sequence[ScoreTable]) -> dict[Key, dict[str, list[ScoreTable]]]:
    found: dict[Key, dict[str, list[ScoreTable]]] = {}
    for table in tables:
        identity = table.identity
        modes = found.setdefault((identity.candidates, identity.prompt, identity.model), {})
        modes.setdefault(identity.mode, []).append(table)
    return found


def _precision(table: ScoreTable) -> bool:
    """False, which comes first, for a scan in float32 and for scores of no stated precision."""
    return table.identity.dtype not in (None, "float32")


def differing(a: ScoreIdentity, b: ScoreIdentity, fields: Sequence[str] = SAME) -> list[str]:
    """Of some fields those in which two scans differ."""
    return [field for field in fields if getattr(a, field) != getattr(b, field)]


def _check_same(a: ScoreIdentity, b: ScoreIdentity, fields: Sequence[str], what: str) -> None:
    if differ := differing(a, b, fields):
        raise TableError(
            f"the scans of model {a.model!r} on prompt {a.prompt!r} (mode {' and '.join(dict.fromkeys((a.mode, b.mode)))}) "
            f"differ in more than {what} ({', '.join(differ)}). Scan again with force=true, take one of them: "
            f"mode={a.mode}, or name the files: tables=[FILE,FILE]"
        )
