"""Where comparisons come from: the set that stands in this package, files, and data sets of the Hugging Face Hub.

Knows files, folders and the Hub. Does not know what the fields of a row mean (see `formats`), nor models.
"""

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pessimal.errors import ConfigError, InputError
from pessimal.explain.comparison import Comparison
from pessimal.explain.formats import Converted, from_row, helpsteer2, hh_rlhf
from pessimal.explain.source import Source
from pessimal.tables.kinds import storable

EMBEDDED = Path(__file__).with_name("embedded.jsonl")
SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")


_HUB: dict[Source, tuple[str, Callable[..., Converted]]] = {
    Source.helpsteer2: ("nvidia/HelpSteer2", helpsteer2),
    Source.hh_rlhf: ("Anthropic/hh-rlhf", hh_rlhf),
}


@dataclass(frozen=True)
class Loaded:
    """The comparisons of a source that can be explained, and how many could not be."""

    comparisons: tuple[Comparison, ...]
    """In the order of the source; keys are unique."""
    empty: int = 0
    """Comparisons left out because a response or the user's last turn is empty or only spaces."""
    identical: int = 0
    """Comparisons left out because their two responses are the same text."""
    duplicates: int = 0
    """Comparisons left out because an earlier one has the same conversation and the same two responses."""
    misfits: int = 0
    """Rows of a Hub data set that make no comparison (see `formats.Converted`)."""


def load(
    source: Source,
    *,
    path: Path | None = None,
    revision: str | None = None,
    split: str = "train",
    subset: str | None = None,
) -> Loaded:
    """The comparisons of a source.

    Args:
        path: the file of `jsonl` (.jsonl, .jsonl.gz, .parquet); of a Hub data set, a local file or folder to be read in its
            place, laid out as on the Hub: [subset/]train.jsonl.gz.
        revision: the Hub commit; None for the newest.
        split: train, validation, test.
        subset: the folder within the data set: helpful-base, harmless-base.

    Raises:
        ConfigError: `jsonl` without a path.
        InputError: something cannot be read as what it was said to be, or the Hub cannot be reached.
    """
    if source is Source.embedded:
        return usable(embedded())
    if source is Source.jsonl:
        if path is None:
            raise ConfigError("comparisons=jsonl needs comparisons.path=FILE")
        return usable(read_jsonl(path))
    name, convert = _HUB[source]
    if path is None:
        rows: Iterable[Mapping] = _hub_rows(name, revision=revision, split=split, subset=subset)
    else:
        rows = [row for file in _local_files(path, split=split, subset=subset) for _, row in _rows(file)]
        for row in rows:
            if not isinstance(row, Mapping):
                raise InputError(f"{path} holds a row that is not an object; rows of {name} were expected")
    converted = convert(rows, key="-".join([source.value, *([subset] if subset else []), split]))
    return replace(usable(converted.comparisons), misfits=converted.misfits)


def embedded() -> list[Comparison]:
    """Sixty comparisons of daily life, written for this package; harmless, for tries and tests, not for findings."""
    return read_jsonl(EMBEDDED)


def read_jsonl(path: Path) -> list[Comparison]:
    """All comparisons of a file, one a line (or row, of .parquet), in our format or TRL's (see `formats.from_row`).

    Without a "key", a comparison is called after the file and the line. Raises InputError, which names file and line.
    """
    path, comparisons = Path(path), []
    lines: dict[str, int] = {}
    stem = storable(path.name.split(".")[0])
    for line, row in _rows(path):
        comparison = from_row(row, where=f"{path}, line {line}", key=f"{stem}-{line}")
        if (first := lines.setdefault(comparison.key, line)) != line:
            raise InputError(
                f"{path}, line {line} has the key {comparison.key!r} of line {first}; give each comparison a key of its own"
            )
        comparisons.append(comparison)
    if not comparisons:
        raise InputError(f"{path} holds no comparisons; write one a line")
    return comparisons


def usable(comparisons: Iterable[Comparison]) -> Loaded:
    """Those that can be explained: of two different texts that are not empty, each pair once (in whatever order its
    responses stand)."""
    kept, counts = {}, {"empty": 0, "identical": 0, "duplicates": 0}
    for comparison in comparisons:
        pair = comparison.turns, frozenset(comparison.responses)
        if not all(text.strip() for text in (comparison.prompt, *comparison.responses)):
            counts["empty"] += 1
        elif len(pair[1]) < 2:
            counts["identical"] += 1
        elif pair in kept:
            counts["duplicates"] += 1
        else:
            kept[pair] = comparison
    return Loaded(tuple(kept.values()), **counts)


def choose(comparisons: Sequence[Comparison], *, n: int | None, seed: int) -> list[Comparison]:
    """A random sample without replacement, in the order it had; all of them for n = None.

    Each comparison's lot is drawn from its key and the seed alone. So samples of one seed lie within one another (10 of
    them are among the 30), and one more comparison in the source changes at most one of the sample.

    Raises:
        ConfigError: n is below 1, or there are fewer.
    """
    if n is None:
        return list(comparisons)
    if not 1 <= n <= len(comparisons):
        raise ConfigError(
            f"comparisons.n={n}: the source has {len(comparisons)} comparisons; give 1 … {len(comparisons)}, or null for all"
        )
    lots = [
        hashlib.sha256(json.dumps([seed, comparison.key]).encode()).digest() for comparison in comparisons
    ]
    drawn = set(sorted(range(len(comparisons)), key=lambda number: (lots[number], number))[:n])
    return [comparison for number, comparison in enumerate(comparisons) if number in drawn]


def digest(comparisons: Sequence[Comparison]) -> str:
    """sha256 over keys, conversations and responses, so that another revision of a source is distinguished."""
    said = [
        [one.key, [[turn.role, turn.content] for turn in one.turns], list(one.responses), one.preferred]
        for one in comparisons
    ]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def _hub_rows(name: str, *, revision: str | None, split: str, subset: str | None) -> list[Mapping]:
    import datasets  # half a second, and only these sources need it

    try:
        return datasets.load_dataset(name, data_dir=subset, split=split, revision=revision).to_list()
    except (
        Exception
    ) as error:  # the libraries underneath raise a dozen unrelated types for one absent network
        asked = [f"revision {revision}"] * (revision is not None) + [f"subset {subset}"] * (
            subset is not None
        )
        raise InputError(
            f"{name} ({', '.join([*asked, f'split {split}'])}) could not be had from the Hugging Face Hub: "
            f"{type(error).__name__}: {error}\nWithout the Hub, fetch the data set elsewhere (`hf download --repo-type "
            f"dataset {name} --local-dir FOLDER`) and type comparisons.path=FOLDER"
        ) from error


def _local_files(path: Path, *, split: str, subset: str | None) -> list[Path]:
    """The files of a split in a local copy of a data set, in order of name; `path` itself where it is a file."""
    if not path.is_dir():
        return [path]
    top = path / subset if subset else path
    for folder in (top, top / "data"):
        files = sorted(folder.glob("*")) if folder.is_dir() else []
        wanted = [
            file
            for file in files
            if file.name.startswith((f"{split}.", f"{split}-")) and file.name.endswith(SUFFIXES)
        ]
        if wanted:
            return wanted
    raise InputError(
        f"comparisons.path={str(path)!r} has no {split}.jsonl, {split}.jsonl.gz or {split}-….parquet in {top}; give the "
        "folder that holds the data set, with its subsets as folders"
    )


def _rows(path: Path) -> Iterable[tuple[int, object]]:
    """(line from 1, row) of a file."""
    if not path.name.endswith(SUFFIXES):
        raise InputError(
            f"comparisons.path={str(path)!r}: files that end in {', '.join(SUFFIXES)} can be read"
        )
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet as parquet

            return list(enumerate(parquet.read_table(path).to_pylist(), start=1))
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, ValueError, zlib.error) as error:  # pyarrow's are among them
        raise InputError(f"comparisons.path={str(path)!r} cannot be read: {error}") from error
    # At line feeds alone: JSON allows other line separators (U+2028) inside a text.
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [
        (number, _row(line, f"{path}, line {number}")) for number, line in enumerate(lines, 1) if line.strip()
    ]


def _row(line: bytes, where: str) -> object:
    try:
        return json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # of UTF-8, of JSON, of a million brackets
        raise InputError(
            f"{where} is not JSON: {error}; a file of comparisons has one JSON object a line"
        ) from error
