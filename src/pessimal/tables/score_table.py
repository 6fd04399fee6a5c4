"""The score table: every candidate's reward for one model and one prompt, and its provenance.

A language model's table is of the same form: its rewards are log-probabilities, and its provenance
records this.

Knows the columns, the provenance and the parquet file. Does not know how a reward is computed.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from pessimal.conversation import Asked, Context, Turn, prompt_of
from pessimal.errors import TableError
from pessimal.texts import literal, significant

KINDS = ("normal", "special", "byte", "unused", "item")
REWARD, LOG_PROBABILITY = "reward", "log_probability"
PLAIN_TEXT = "plain text"
"""Stands for a template's digest where a language model has no template."""
PLAIN_TEXT_ALL_THE_SAME = "plain text, though there is a chat template"
"""The same where it has one, and was asked without it."""
_UNUSED = re.compile(
    r"[\[<(|]*(unused|reserved_special_token|extra_id)[_-]?\d+[\]>)|]*", re.IGNORECASE
)
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
METADATA_KEY = b"pessimal.score_table"
FORMAT = 1

_COLUMNS = {
    "candidate_id": pa.int32(),
    "token": pa.string(),
    "text": pa.string(),
    "kind": pa.dictionary(pa.int8(), pa.string()),
    "survives": pa.bool_(),
    "reward": pa.float64(),
    "certified": pa.bool_(),
}
# Of items that people have rated; of answers that a policy wrote, how often.
_FURTHER = {"elo": pa.float64(), "elo_matches": pa.int32(), "drawn": pa.int32()}


def token_kind(token: str, text: str, *, special: bool = False) -> str:
    """`unused`, `special`, `byte` (no text of its own) or `normal`; `special` is the tokenizer's
    word for it."""
    if _UNUSED.fullmatch(token):
        return "unused"
    if special:
        return "special"
    if _BYTE.fullmatch(token) or "\N{REPLACEMENT CHARACTER}" in text:
        return "byte"
    return "normal"


def drawn_from(policy: str) -> str:
    """Name of the list of answers that a policy wrote."""
    return f"answers-of-{policy}"


@dataclass(frozen=True, kw_only=True)
class ModelProvenance:
    """The model's part of the provenance of a result; `key` covers the fields of the subclass
    too."""

    model: str
    """Short name of the model, as in `model=NAME`."""
    revision: str | None = None
    """Commit of the model repository; None for a local folder."""
    weights_digest: str | None = None
    """sha256 over the weight files; for imported scores over the scores' file."""
    config_digest: str | None = None
    """sha256 over the model's configuration, and over its own Python code where that was run."""
    tokenizer_digest: str | None = None
    """sha256 over vocabulary and tokenizer settings."""
    template_digest: str | None = None
    """sha256 over the chat template; PLAIN_TEXT or PLAIN_TEXT_ALL_THE_SAME where a language model
    was asked without."""
    dtype: str | None = None
    """Precision of the network, of the first pass where there are two: float32, bfloat16 or
    float16."""
    output: int | None = None
    """Number of the output that is the reward; None where it has one."""
    software: dict[str, str] = field(default_factory=dict)
    """Versions of what computes the rewards."""

    def fields(self) -> dict:
        """Every field that the key covers, by name."""
        return asdict(self)

    def key(self) -> str:
        """Cache key: sha256 over the fields, 64 hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.fields(), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class ScoreProvenance(ModelProvenance):
    """Everything that a score depends on: two tables with one key hold the same rewards, but for
    the last bits that another device or batch size may change."""

    prompt: str
    """Key of the prompt, as in `prompts=KEY`."""
    prompt_text: str | None
    """The user turn, verbatim, or all turns before the response, each behind its role; None where a
    published file does not state it."""
    candidates: str
    """Name of the candidate set: `vocabulary`, or that of an item list."""
    candidates_digest: str
    """sha256 over the candidates' ids and texts."""
    mode: str
    """`ids`, `text`, `paper`; `published` for imported scores."""
    source: str
    """`scan`, or the file name that the scores were imported from."""
    certain: int | None = None
    """k of the tails that were scored again in float32 after a low-precision pass; None after a
    float32 one."""
    kind: str = "head"
    """Kind of reward (`pessimal.rewards.spec.Kind`)."""
    score: str = REWARD
    """Kind of the rewards: `reward`, or `log_probability`, log p(candidate | prompt) in nats, of a
    language model."""
    step: int | None = None
    """Steps of training after which the model was taken, of a checkpoint; None for a finished
    model."""
    turns: list[dict[str, str]] | None = None
    """The messages before the response, where there are more than a user's; of a context all."""
    slot: dict[str, Any] | None = None
    """Slot of a context: `where` the candidates stand (after, before, inside), in which `turn`,
    `at` which character, and the `rejected` answer."""
    prefixed: dict[str, Any] | None = None
    """Persona of a prompt behind one or its control: the keys `prompt` and `prefix`, and whether it
    is the `control`."""
    attention: str | None = None
    """Path that computed them, `shared-prefix`, `full-forward` or `own-forward`. The trust check
    holds all to the model's own forward; so it is recorded, but two tables that differ in it alone
    have one key."""

    @property
    def question(self) -> Asked:
        """The prompt or context that the responses answer or stand in."""
        if self.slot is not None:
            turns = tuple(Turn(**turn) for turn in self.turns or ())
            return Context(turns, self.slot["turn"], self.slot["at"], self.slot["rejected"])
        return self.prompt_text or "" if self.turns is None else prompt_of(self.turns)

    def __post_init__(self):
        if self.score == LOG_PROBABILITY:  # which says the kind
            object.__setattr__(self, "kind", LOG_PROBABILITY)

    @property
    def label(self) -> str:
        """Model and prompt, for messages."""
        return f"{self.model} · {self.prompt}"

    @property
    def name(self) -> str:
        """The artifact name: model and prompt, and kind of score, `plain` for a chat model asked
        without its template, precision, candidate set or mode where they are not the default."""
        parts = [self.model, self.prompt]
        if self.slot is not None:
            parts.append(self.slot["where"])
        if self.score != REWARD:
            parts.append(self.score)
        if self.template_digest == PLAIN_TEXT_ALL_THE_SAME:
            parts.append("plain")
        if self.dtype not in (None, "float32"):
            parts.append(self.dtype)
        if self.candidates != "vocabulary":
            parts.append(self.candidates)
        if self.mode not in ("ids", "published"):
            parts.append(self.mode)
        return "--".join(parts)

    def fields(self) -> dict:
        """Every field by name; `kind`, `score`, `step`, `turns`, `slot` and `prefixed` only where
        they are not the default, so that other tables keep the keys and the bytes that they had
        before there were these fields."""
        fields = super().fields()
        if self.kind in ("head", LOG_PROBABILITY):  # the latter is said by `score`
            del fields["kind"]
        if self.score == REWARD:
            del fields["score"]
        for name in ("step", "turns", "slot", "prefixed"):
            if fields[name] is None:
                del fields[name]
        return fields

    def key(self) -> str:
        """The cache key of the table: sha256 over all fields but `attention`."""
        fields = self.fields()
        del fields["attention"]
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class ModelDescription:
    """Facts about a model besides its scores; the factors of a representational similarity
    analysis."""

    base: str | None = None
    """Pretrained model or family it was made from."""
    developer: str | None = None
    """Who trained the reward model."""
    parameters: float | None = None
    """Number of parameters, a count."""
    rank: float | None = None
    """Rank on RewardBench, 1 = best."""
    label: str | None = None
    """Short name for figures, where the model's own is long."""
    about: str | None = None
    """One line on what it is."""


STATES_SUFFIX = ".states.safetensors"
"""Suffix of the file beside a score table, in place of `.parquet`."""
BASE, ITSELF, TRAINED, MEANING = "base", "itself", "trained", "meaning"
"""Owners of states: the model that reward training began from; a language model that is asked as it
is; the trained reward model, which is too cautious a bound; or the vectors of MiniLM, where there
are no states."""


@dataclass(frozen=True)
class States:
    """Vectors of words or items in a network: the normalised last hidden state at the position that
    is read, and the mean input embedding of what follows the prompt, scaled to the states'
    spread."""

    of: str
    """BASE, ITSELF or TRAINED."""
    model: str
    """Model whose states they are."""
    width: int
    """Width of the network, before the projection."""
    spaces: int
    """Into which the columns are cut alike: that of the last states, that of the embeddings."""
    held: pd.DataFrame | None = None
    """(words, dimensions) float16, index = text: those in memory."""
    file: Path | None = None
    """Where they are otherwise."""

    @cached_property
    def rows(self) -> pd.DataFrame:
        """(words, dimensions) float16, index = text.

        Raises:
            TableError: the file cannot be read.
        """
        if self.held is not None:
            return self.held
        try:
            with safe_open(self.file, "np") as tensors:
                texts = json.loads(tensors.get_tensor("texts").tobytes())
                return pd.DataFrame(tensors.get_tensor("states"), pd.Index(texts, dtype=object))
        except (OSError, SafetensorError, ValueError) as error:
            raise TableError(f"{self.file} cannot be read: {error}. Scan again") from error

    @property
    def about(self) -> dict[str, str | int]:
        """Fields that a score table says of them."""
        words, dimensions = self.rows.shape
        about = {name: getattr(self, name) for name in ("of", "model", "width", "spaces")}
        return about | {"words": words, "dimensions": dimensions}

    def write(self, table: Path) -> None:
        """Write them beside the file of a score table; equal states give equal bytes."""
        about = {name: self.about[name] for name in ("of", "model", "width", "spaces")}
        # No metadata, whose order differs from process to process.
        arrays = {
            "about": _encoded(about),
            "states": np.ascontiguousarray(self.rows.to_numpy()),
            "texts": _encoded(self.rows.index.tolist()),
        }
        table.with_suffix(STATES_SUFFIX).write_bytes(save(arrays))


def _encoded(value: object) -> np.ndarray:
    return np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)


def states_beside(table: Path) -> States | None:
    """The states beside the file of a score table, not yet read; None where there are none.

    Raises:
        TableError: the file is damaged.
    """
    file = table.with_suffix(STATES_SUFFIX)
    if not file.is_file():
        return None
    try:
        with safe_open(file, "np") as tensors:
            about = json.loads(tensors.get_tensor("about").tobytes())
        sizes = int(about["width"]), int(about["spaces"])
        return States(about["of"], about["model"], *sizes, file=file)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise TableError(f"{file} cannot be read: {error}. Scan again") from error


@dataclass(frozen=True)
class ScoreTable:
    """Rewards of every candidate for one (model, prompt, candidate set).

    `rows` has, in this order: candidate_id int (token id, or row of the item list) · token str (raw
    vocabulary entry, null for items) · text str (decoded) · kind (one of KINDS) · survives bool or
    null (ids → text → template → ids gives the same ids; null where it was not tested) · reward
    float (never null) · certified bool (fp32, and no other candidate within twice the numerical
    error, so its rank is certain) · for items that people have rated, elo float and elo_matches int
    · for answers that a policy wrote, drawn int (how often).
    """

    provenance: ScoreProvenance
    rows: pd.DataFrame
    description: ModelDescription = field(default_factory=ModelDescription)
    measured: dict = field(default_factory=dict)
    """Measurements of the run's own accuracy (trust check, certification); no times, no host."""
    code: dict = field(default_factory=dict)
    """Git `commit` of the code that computed the rewards, and whether it was `dirty`. No part of
    the provenance: the same table from another commit has the same key."""
    states: States | None = None
    """Last hidden states of its words, where a network read them; in a file beside the table."""

    def __post_init__(self):
        missing = [c for c in _COLUMNS if c not in self.rows.columns]
        if missing:
            raise TableError(f"a score table needs the columns {missing}")
        rewards = self.rows["reward"].to_numpy(dtype=np.float64)
        bad = int((~np.isfinite(rewards)).sum())
        if bad:
            example = self.rows.loc[~np.isfinite(rewards), "text"].iloc[0]
            raise TableError(
                f"{bad} of {len(rewards)} rewards of {self.provenance.label} are not finite (first "
                f"{example!r}): try model.dtype=float32, or look at the model's weights"
            )
        if self.rows["candidate_id"].duplicated().any():
            raise TableError(f"candidate_id repeats in the table of {self.provenance.label}")

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        ends = pd.concat([self.top(1), self.top(-1)]).itertuples()
        ends = " to ".join(f"{literal(row.text)} {significant(row.reward)}" for row in ends)
        description = f"{self.model} on {self.provenance.prompt}, {len(self):,} candidates"
        return f"<ScoreTable: {description}, {ends}>"

    @property
    def df(self) -> pd.DataFrame:
        """The rows."""
        return self.rows

    def top(self, n: int = 10) -> pd.DataFrame:
        """The n candidates with the highest rewards, the best first; of a negative n those with the
        lowest, the worst first."""
        return self.rows.sort_values("reward", ascending=n < 0, kind="stable").head(abs(n))

    @property
    def name(self) -> str:
        """The artifact name."""
        return self.provenance.name

    @property
    def model(self) -> str:
        return self.provenance.model

    @property
    def rewards(self) -> np.ndarray:
        """(candidates,) float64, in the order of the rows."""
        return self.rows["reward"].to_numpy(dtype=float)

    @property
    def text_rewards(self) -> pd.Series:
        """Rewards, index = text, which may repeat."""
        return self.rows.set_index("text")["reward"]

    @property
    def has_elo(self) -> bool:
        return "elo" in self.rows.columns


def write_score_table(table: ScoreTable, path: Path) -> Path:
    """Write `table` as one parquet file, and its states beside it; equal tables give equal bytes.
    Returns the path."""
    columns = _COLUMNS | {name: kind for name, kind in _FURTHER.items() if name in table.rows}
    rows = table.rows[list(columns)].reset_index(drop=True)
    rows["kind"] = pd.Categorical(rows["kind"], categories=KINDS)
    document = {
        "format": FORMAT,
        "identity": table.provenance.fields(),
        # Others keep the bytes that they had before there was this field.
        "description": {
            k: v for k, v in asdict(table.description).items() if k != "about" or v is not None
        },
        "measured": table.measured,
        **({"code": table.code} if table.code else {}),
    }
    schema = pa.schema(
        columns.items(), metadata={METADATA_KEY: json.dumps(document, sort_keys=True)}
    )
    pq.write_table(
        pa.Table.from_pandas(rows, schema=schema, preserve_index=False), path, compression="zstd"
    )
    if table.states is not None:
        table.states.write(Path(path))
    return Path(path)


def read_score_table(path: Path) -> ScoreTable:
    """Read what `write_score_table` wrote; `path` is the file or the artifact folder that holds it.

    Raises TableError if there is no such file, or it is not a score table.
    """
    file, table, document = _read(path, pq.read_table)
    with _whole(file):
        rows = table.to_pandas()
        rows["survives"] = rows["survives"].astype("boolean")
        rows["kind"] = rows["kind"].astype(str)
        return ScoreTable(
            provenance=ScoreProvenance(**document["identity"]),
            rows=rows,
            description=ModelDescription(**document["description"]),
            measured=document["measured"],
            code=document.get("code", {}),
            states=states_beside(file),
        )


def read_provenance(path: Path) -> ScoreProvenance:
    """The provenance of a table that `write_score_table` wrote, without reading its rows; raises as
    `read_score_table`."""
    file, _, document = _read(path, pq.read_schema)
    with _whole(file):
        return ScoreProvenance(**document["identity"])


def items_digest(rows: pd.DataFrame) -> str:
    """sha256 over the candidates' ids and texts, in order."""
    pairs = list(zip(rows["candidate_id"].tolist(), rows["text"].tolist(), strict=True))
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()


def _read(path: Path, reader: Callable) -> tuple[Path, pa.Table | pa.Schema, dict]:
    """The file at a path, what `reader` reads of it, and what the file says of itself beside its
    rows."""
    path = Path(path)
    file = path / "scores.parquet" if path.is_dir() else path
    if not file.is_file():
        raise TableError(f"no score table at {path}: give a scores.parquet file or its folder")
    try:
        content = reader(file)
        metadata = (content if isinstance(content, pa.Schema) else content.schema).metadata
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: of column names
        raise TableError(f"{file} is no parquet file ({error}); scan or import again") from error
    document = (metadata or {}).get(METADATA_KEY)
    if document is None:
        how = "pessimal import format=eloeverything|factorial54|vocabulary|checkpoints path=FILE"
        raise TableError(f"{file} is not a score table. To make one of published scores: {how}")
    with _whole(file):
        document = json.loads(document)
        version = document["format"]
    if version != FORMAT:
        raise TableError(f"{file} has format {version}, this edition {FORMAT}: scan again")
    return file, content, document


@contextmanager
def _whole(file: Path) -> Iterator[None]:
    """TableError naming the file where what it says of itself is damaged."""
    try:
        yield
    except TableError as error:
        raise TableError(f"{file}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise TableError(f"{file} is no whole score table ({reason}); scan again") from error


COLUMNS = ("candidate_id", "token", "text", "kind")
"""Those that are the candidates' and not the scan's."""


class SharedColumns:
    """Remembers the candidates of every vocabulary that it has seen, so that their tables hold one
    copy of its texts: 540 scans of a Llama-sized vocabulary fit in memory."""

    def __init__(self):
        self._seen: dict[tuple[str | None, ...], pd.DataFrame] = {}

    def share(self, table: ScoreTable) -> ScoreTable:
        """The same table, its candidates' columns taken from the first table with exactly these
        candidates."""
        key = (table.provenance.candidates_digest, table.provenance.tokenizer_digest)
        first = self._seen.setdefault(key, table.rows[list(COLUMNS)])
        # Published scores state no tokenizer, so equal ids and texts do not prove equal raw tokens.
        if not all(first[c].equals(table.rows[c]) for c in COLUMNS):
            return table
        columns = [column for column in table.rows if column not in COLUMNS]
        rows = pd.concat([first, table.rows[columns]], axis="columns")[list(table.rows)]
        return replace(table, rows=rows)


def extremes(table: pd.DataFrame, *, k: int) -> pd.DataFrame:
    """The k highest and the k lowest rewards, best first and worst first.

    Equal rewards are taken in the order of `candidate_id`, at both ends. Where the cut falls among
    equals, the choice of those listed is arbitrary, and the table says so: `tied` marks the listed
    candidates that share their reward with one left out, `tied_left_out` counts those left out with
    it.

    Args:
        table: candidate_id, text, token, reward, and whatever else is to be carried along.
        k: candidates per end, at least 1; a table of fewer is given whole.

    Returns:
        2k rows: end ("top" or "bottom"), rank (1 = the most extreme), text, token, reward, tied,
        tied_left_out, then the table's other columns.

    Source: Christian et al. 2025, Tables 2 and A6.
    """
    parts = [_end(table, k=k, highest=highest) for highest in (True, False)]
    ends = pd.concat(parts, ignore_index=True)
    first = ["end", "rank", "text", "token", "reward", "tied", "tied_left_out"]
    return ends[[*first, *(name for name in table.columns if name not in first)]]


def _end(table: pd.DataFrame, *, k: int, highest: bool) -> pd.DataFrame:
    """The k most extreme rows at one end, most extreme first."""
    ordered = table.sort_values(["reward", "candidate_id"], ascending=[not highest, True])
    listed, left_out = ordered.iloc[:k], ordered.iloc[k:]
    equals = left_out["reward"].eq(listed["reward"].iloc[-1]).sum() if len(listed) else 0
    tied = listed["reward"].eq(listed["reward"].iloc[-1]) & (equals > 0) if len(listed) else False
    return listed.assign(
        end="top" if highest else "bottom",
        rank=range(1, len(listed) + 1),
        tied=tied,
        tied_left_out=equals * tied,
    )
