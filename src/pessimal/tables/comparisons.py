"""Comparisons to explain: a conversation and two responses to it; and where such comparisons come
from.

Reads the set of this package, files in several formats, and data sets of the Hugging Face Hub. Does
not know which response a model prefers.
"""

import gzip
import hashlib
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from pathlib import Path
from typing import Any, TypeGuard

from pessimal.conversation import Turn, check_unread, read_messages
from pessimal.errors import ConfigError, InputError, missing_extra
from pessimal.options import check_ends
from pessimal.texts import storable

EMBEDDED = Path(__file__).with_name("embedded.jsonl")
PAIRS = Path(__file__).with_name("pairs.jsonl")
SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet", ".json")
EXPECTED = (
    'a row has "prompt" and "responses" (two texts; "preferred" 0 or 1 and "key" may be added), or '
    'TRL\'s "prompt", "chosen" and "rejected" as texts or as lists of messages, or the fields of '
    "HelpSteer2, HelpSteer3, HH-RLHF, RewardBench, RM-Bench, JudgeBench or EvalBiasBench"
)
CATEGORIES = ("category", "subset", "domain", "source", "bias")
"""Fields that say which kind of comparison a row is; the first that is a text is taken."""
PROMPTS = ("prompt", "context", "question", "instruction")
RESPONSES = (
    ("response_1", "response_2"),  # HelpSteer2
    ("response1", "response2"),  # HelpSteer3, EvalBiasBench
    ("response_A", "response_B"),  # JudgeBench
    ("response_a", "response_b"),
)
STRENGTHS = ("preference_strength", "overall_preference")
"""HelpSteer's fields from -3 (the first response is much better) to 3 (the second is)."""
LABELS = {"A>B": 0, "B>A": 1, "A=B": None, "1": 0, "2": 1}
"""The preferred response by JudgeBench's labels and by EvalBiasBench's, which count from 1."""
EMPTY, EQUAL, TWICE = "with an empty text", "of two equal responses", "given twice"
BROKEN = "in rows that cannot be read"
MISFITS = "that are no comparison"
"""Rows of a Hub data set that make no comparison: no partner for their prompt, transcripts that
share no beginning, or turns that do not alternate."""
HUB = {"helpsteer2": "nvidia/HelpSteer2", "hh_rlhf": "Anthropic/hh-rlhf"}
"""Data sets of the Hub by source."""
Row = Mapping[str, Any]
_HH_TURN = re.compile(r"\n\n(Human|Assistant):")
_HH_ROLES = {"Human": "user", "Assistant": "assistant"}
_HELPSTEER_TURN = re.compile(r"\n?<extra_id_1>(User|Assistant)(?:\n|$)")


@dataclass(frozen=True)
class Comparison:
    """Two responses to one conversation."""

    key: str  # names it within its set
    turns: tuple[Turn, ...]  # the conversation so far; the last turn is the user's
    responses: tuple[str, str]  # two different texts, in the order of their source
    preferred: int | None = None  # which response (0 or 1) people preferred, where the source says
    category: str | None = None  # which kind of comparison it is, where the source says
    scores: Mapping[str, tuple[float, float]] = field(default_factory=dict, compare=False)
    """Rewards of both responses by model, where the source has them."""

    def conversation(self, response: str) -> tuple[Turn, ...]:
        """The whole conversation with this response at its end."""
        return (*self.turns, Turn("assistant", response))

    @property
    def prompt(self) -> str:
        """The user's last turn."""
        return self.turns[-1].content

    def as_line(self) -> str:
        """One line of JSON that `read_jsonl` reads."""
        turns = [{"role": turn.role, "content": turn.content} for turn in self.turns]
        row = {"key": self.key, "prompt": turns, "responses": list(self.responses)}
        labels = {"preferred": self.preferred, "category": self.category}
        return json.dumps(row | {field: it for field, it in labels.items() if it is not None})


@dataclass(frozen=True)
class Loaded:
    """The comparisons of a source that can be explained, and how many could not be."""

    comparisons: tuple[Comparison, ...]  # in the order of the source; keys are unique
    left_out: dict[str, int]  # how many were left out, by what they are


def load(
    source: str,
    *,
    path: Path | None = None,
    revision: str | None = None,
    split: str = "train",
    subset: str | None = None,
    skip_bad: bool = False,
    option: str = "comparisons.path",
) -> Loaded:
    """The comparisons of a source: embedded, pairs, jsonl, helpsteer2 or hh_rlhf.

    Args:
        path: the file of `jsonl` (one of SUFFIXES); of a Hub data set, a local file or folder to be
            read in its place, laid out as on the Hub: [subset/]train.jsonl.gz.
        revision: the Hub commit; None for the newest.
        split: train, validation, test.
        subset: the folder within the data set: helpful-base, harmless-base.
        skip_bad: leave out the rows of `jsonl` that cannot be read, and count them.
        option: the option that gave `path`, for messages.

    Raises:
        ConfigError: `jsonl` without a path.
        InputError: something cannot be read as what it was said to be, or the Hub cannot be
            reached.
    """
    if source in ("embedded", "pairs"):
        return usable(read_jsonl(EMBEDDED if source == "embedded" else PAIRS))
    if source == "jsonl":
        if path is None:
            raise ConfigError(f"comparisons=jsonl needs {option}=FILE")
        broken: list[str] = []
        loaded = usable(read_jsonl(path, broken=broken if skip_bad else None, option=option))
        return replace(loaded, left_out=loaded.left_out | ({BROKEN: len(broken)} if broken else {}))
    if path is None:
        rows: list[Any] = _hub_rows(HUB[source], revision=revision, split=split, subset=subset)
    else:
        files = _local_files(path, split=split, subset=subset)
        rows = [_read(row) for file in files for _, row in numbered_rows(file)]
        if not all(isinstance(row, Mapping) for row in rows):
            raise InputError(f"{path} holds a row that is not an object, unlike {HUB[source]}")
    name, misfits = "-".join(filter(None, (source, subset, split))), list[str]()
    pairs = read_rows(enumerate(rows), where=f"{name}, row", name=name, broken=misfits)
    talks = [pair for pair in pairs if _alternate(pair.turns)]
    return usable(talks, misfits=len(misfits) + len(pairs) - len(talks))


def read_jsonl(
    path: Path, *, broken: list[str] | None = None, option: str = "comparisons.path"
) -> list[Comparison]:
    """All comparisons of a file: JSON objects one a line, rows of .parquet or of a list in .json.

    Rows are recognised by their fields (see `from_row`), without which kind being said. Two
    neighbouring rows of HelpSteer2 ("prompt", "response", "helpfulness") with one prompt are one
    comparison; a row of RM-Bench, whose "chosen" and "rejected" are lists of texts, is one for each
    chosen text (number i) with each rejected one (j), called KEY-i-j. A comparison without a key in
    its row is called after the file and the line.

    Raises InputError, which names file and line, for a row that cannot be read and for a key given
    twice; with a list `broken` such rows are left out, and what is wrong with each is put there.
    `option`: the option that gave the path, for messages.
    """
    path = Path(path)
    hint = ". To leave such rows out, type skip_bad=true" if option == "comparisons.path" else ""
    options: dict[str, Any] = {"name": storable(path.name.split(".")[0]), "hint": hint}
    rows = numbered_rows(path, option)
    comparisons = read_rows(rows, where=f"{path}, line", broken=broken, **options)
    if not comparisons:
        reason = f"; the first of {len(broken):,} broken rows: {broken[0]}" if broken else ""
        raise InputError(f"{path} holds no comparisons; write one a line{reason}")
    return comparisons


def read_rows(
    rows: Iterable[tuple[int, object]],
    *,
    where: str,
    name: str,
    broken: list[str] | None = None,
    hint: str = "",
) -> list[Comparison]:
    """All comparisons of numbered rows; of `where`, before the number, messages speak, and keys
    begin with `name`. InputError, which ends with the hint, and `broken` as `read_jsonl` has
    them."""
    comparisons, lines = list[Comparison](), dict[str, int]()
    for line, row in _join_ratings(rows):
        at, parts = f"{where} {line}", list[Comparison]()
        try:
            for ending, part in _expand(_read(row)):
                comparison = from_row(part, where=at, key=f"{name}-{line}")
                scores = read_scores(part, where=at, name=name)
                parts.append(replace(comparison, key=comparison.key + ending, scores=scores))
            for part in parts:
                if (first := lines.setdefault(part.key, line)) != line:
                    raise InputError(f"{at} has the key {part.key!r} of row {first}")
        except InputError as error:
            if broken is None:
                raise InputError(f"{error}{hint}") from error
            broken.append(str(error))
            continue
        comparisons += parts
    return comparisons


def usable(comparisons: Iterable[Comparison], *, misfits: int = 0) -> Loaded:
    """Those that can be explained: of two different texts that are not empty, each pair once (in
    whatever order its responses stand). `misfits`: how many rows made no comparison."""
    pairs: dict[tuple[tuple[Turn, ...], frozenset[str]], Comparison] = {}
    left_out = Counter({MISFITS: misfits} if misfits else {})
    for comparison in comparisons:
        pair = comparison.turns, frozenset(comparison.responses)
        if not all(text.strip() for text in (comparison.prompt, *comparison.responses)):
            left_out[EMPTY] += 1
        elif len(pair[1]) < 2:
            left_out[EQUAL] += 1
        elif pair in pairs:
            left_out[TWICE] += 1
        else:
            pairs[pair] = comparison
    return Loaded(tuple(pairs.values()), dict(left_out))


def choose(comparisons: Sequence[Comparison], *, n: int | None, seed: int) -> list[Comparison]:
    """A random sample without replacement, in the order it had; all of them for n = None.

    Each comparison's lot is drawn from its key and the seed alone. So samples of one seed lie
    within one another (10 of them are among the 30), and one more comparison in the source changes
    at most one of the sample.
    """
    if n is None or n >= len(comparisons):
        return list(comparisons)
    lots = [
        hashlib.sha256(json.dumps([seed, comparison.key]).encode()).digest()
        for comparison in comparisons
    ]
    sample = set(sorted(range(len(comparisons)), key=lambda number: (lots[number], number))[:n])
    return [comparison for number, comparison in enumerate(comparisons) if number in sample]


def digest(comparisons: Sequence[Comparison]) -> str:
    """sha256 over keys, conversations, responses, preferences and the categories there are: another
    revision of a source has another."""
    rows = []
    for comparison in comparisons:
        turns = [[turn.role, turn.content] for turn in comparison.turns]
        labels = (
            [comparison.preferred]
            if comparison.category is None
            else [comparison.preferred, comparison.category]
        )
        rows.append([comparison.key, turns, list(comparison.responses), *labels])
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def from_row(row: object, *, where: str, key: str) -> Comparison:
    """A row of our format, of TRL's preference formats or of two responses with a label.

    Ours: "prompt" (a text or a list of messages), "responses", and maybe "preferred" and "key"
    (else the row's "id" or "pair_id", else `key`). TRL's, where "chosen" is response 0 and
    preferred: all three texts; lists of messages with the prompt apart; or with the prompt inside
    "chosen" and "rejected", which then are the same up to their last message. With a label: a
    prompt under one of PROMPTS, responses under one of RESPONSES, and a number under one of
    STRENGTHS or one of LABELS as "label"; without a label or with a tie nothing is preferred. The
    category is the first text under CATEGORIES. Other fields are let be. A lone surrogate becomes
    its escape, as no tokenizer takes it. InputError, which begins with `where`, for another row.
    """
    if not isinstance(row, Mapping):
        raise InputError(f"{where} is not an object but {_quote(row)}; {EXPECTED}")
    check_unread(row, where=where)
    ids = (str(row[field]) for field in ("id", "pair_id") if isinstance(row.get(field), str | int))
    key = row["key"] if row.get("key") is not None else next(ids, key)
    key = _text(key, where=where, field="key")
    texts = (storable(row[field]) for field in CATEGORIES if isinstance(row.get(field), str))
    category = next(texts, None)
    prompt: object = row.get("prompt")
    preferred: int | None = 0
    sides: Any = [row.get("chosen"), row.get("rejected")]
    if row.get("responses") is not None:
        sides, preferred = row["responses"], row.get("preferred")
        if not isinstance(sides, list | tuple) or len(sides) != 2:
            raise InputError(f'{where} has "responses" {_quote(sides)}; expected two texts')
        if preferred is not None and (isinstance(preferred, bool) or preferred not in (0, 1)):
            raise InputError(f'{where} has "preferred" {_quote(preferred)}; expected 0, 1 or null')
    elif None in sides and (fields := next((p for p in RESPONSES if {*p} <= row.keys()), None)):
        sides, preferred = [row[field] for field in fields], _label(row, where=where)
        prompt = next((row[field] for field in PROMPTS if row.get(field) is not None), None)
        if isinstance(prompt, str):
            turns = _helpsteer_turns(prompt)
            prompt = [{"role": turn.role, "content": turn.content} for turn in turns]
    elif None in sides:
        raise InputError(f"{where} has the fields {', '.join(map(str, row)) or 'none'}; {EXPECTED}")
    elif prompt is None and all(isinstance(side, str) for side in sides):
        if comparison := _from_transcripts(*sides, key=key):
            return replace(comparison, category=category)
        raise InputError(f"{where} has texts without a prompt; {EXPECTED}")
    first, second = (
        _messages(side, where=where, field="response", role="assistant") for side in sides
    )
    turns = first[:-1]
    if turns != second[:-1]:
        raise InputError(f"{where}: the responses differ before their last message")
    if not turns or prompt is not None:
        prompt_turns = _messages(prompt, where=where, field="prompt", role="user")
        # Some write the prompt (or its first question) twice: then the two have to agree.
        agree = prompt_turns == turns or (isinstance(prompt, str) and prompt_turns[0] in turns)
        if turns and not agree:
            raise InputError(f'{where}: "prompt" is not what "chosen" begins with; give it once')
        turns = turns or prompt_turns
    if turns[-1].role != "user":
        raise InputError(f"{where}: the prompt ends with {turns[-1].role}'s turn, not the user's")
    return Comparison(key, turns, (first[-1].content, second[-1].content), preferred, category)


def read_scores(row: object, *, where: str, name: str) -> dict[str, tuple[float, float]]:
    """Rewards that a row has of both its responses, by model, in their order; not a number for one
    that is missing.

    Four layouts: "scores" by model; columns `MODEL:a` and `MODEL:b`; JudgeBench's "judgments", of
    which the first has the responses in the row's order; RewardBench's "scores_chosen" and
    "scores_rejected", of the row's "model" or else `name`. InputError, which begins with `where`,
    where two numbers were expected.
    """
    if not isinstance(row, Mapping):
        return {}
    scores = dict(row["scores"]) if isinstance(row.get("scores"), Mapping) else {}
    stems = [column[:-2] for column in row if column.endswith(":a") and f"{column[:-1]}b" in row]
    scores |= {stem: [row[f"{stem}:a"], row[f"{stem}:b"]] for stem in stems}
    if row.get("scores_chosen") is not None:
        model = row["model"] if isinstance(row.get("model"), str) else name
        scores[model] = [row["scores_chosen"], row.get("scores_rejected")]
    judgments = row.get("judgments")
    judgment = judgments[0].get("judgment") if isinstance(judgments, list) and judgments else None
    if isinstance(judgment, Mapping) and judgment.get("scores") is not None:
        scores[str(judgment.get("judge_model") or name)] = judgment["scores"]
    return {model: _two_numbers(pair, model, where) for model, pair in scores.items() if pair}


def _two_numbers(pair: Any, model: str, where: str) -> tuple[float, float]:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise InputError(f"{where} has {_quote(pair)} as the scores of {model!r}, not two numbers")
    options = {"where": where, "field": f"score of {model}"}
    first, second = (math.nan if value is None else _number(value, **options) for value in pair)
    return first, second


def _join_ratings(rows: Iterable[tuple[int, object]]) -> list[tuple[int, object]]:
    """(line, row) with two neighbouring ratings of one prompt, as in HelpSteer2, joined into one
    row of two responses, whose "helpfulness" is the pair of theirs."""
    joined = list[tuple[int, object]]()
    for line, row in rows:
        first = joined[-1][1] if joined else None
        if _is_rating(first) and _is_rating(row) and first["prompt"] == row["prompt"]:
            pair = {"response_1": first["response"], "response_2": row["response"]}
            scores = first["helpfulness"], row["helpfulness"]
            pair |= {"prompt": row["prompt"], "helpfulness": scores}
            joined[-1] = joined[-1][0], pair
        else:
            joined.append((line, row))
    return joined


def _is_rating(row: object) -> TypeGuard[Row]:
    return isinstance(row, Mapping) and {"prompt", "response", "helpfulness"} <= row.keys()


def _expand(row: object) -> list[tuple[str, object]]:
    """(end of its key, row) for each comparison of a row: as a rule the row alone; of lists of
    texts, as in RM-Bench and RewardBench 2, each chosen text with each rejected one, and with the
    scores of both."""
    if not isinstance(row, Mapping):
        return [("", row)]
    sides: Any = (row.get("chosen"), row.get("rejected"))
    lists = (isinstance(side, list) and {*map(type, side)} == {str} for side in sides)
    if not all(lists):
        return [("", row)]
    rows = list[tuple[str, object]]()
    for (i, a), (j, b) in product(*map(enumerate, sides)):
        pair = {**row, "chosen": a, "rejected": b}
        for name, place in (("scores_chosen", i), ("scores_rejected", j)):
            if isinstance(scores := row.get(name), list) and place < len(scores):
                pair[name] = scores[place]
        rows.append((f"-{i}-{j}", pair))
    return rows


def _label(row: Row, *, where: str) -> int | None:
    """The response, 0 or 1, that a row of two responses prefers by its label; None without one."""
    field = next((field for field in STRENGTHS if row.get(field) is not None), None)
    if isinstance(row.get("helpfulness"), tuple):  # of `_join_ratings`
        scores = [_number(score, where=where, field="helpfulness") for score in row["helpfulness"]]
        strength = scores[1] - scores[0]
    elif field is not None:
        strength = _number(row[field], where=where, field=field)
    elif (label := row.get("label")) is None or str(label) in LABELS:
        return LABELS.get(str(label))
    else:
        raise InputError(f'{where} has "label" {_quote(label)}; expected {", ".join(LABELS)}')
    return 1 if strength > 0 else 0 if strength < 0 else None


def _number(value: object, *, where: str, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where} has {field}={_quote(value)}; a number was expected")
    return value


def _messages(value: object, *, where: str, field: str, role: str) -> tuple[Turn, ...]:
    """Messages, the last of them of this role; a text is one of these."""
    if isinstance(value, str):
        return (Turn(role, storable(value)),)
    if not isinstance(value, list | tuple):
        raise InputError(f'{where} has {_quote(value)} for "{field}"; {EXPECTED}')
    turns = read_messages(value, where=f'{where}, "{field}"')
    if turns[-1].role != role:
        raise InputError(f"{where}: a {field} ends with the {role}'s turn, not {_quote(value)}")
    return tuple(replace(turn, content=storable(turn.content)) for turn in turns)


def _from_transcripts(chosen: str, rejected: str, *, key: str) -> Comparison | None:
    """Two "\\n\\nHuman: … \\n\\nAssistant: …" transcripts, or None where they are not a
    comparison."""
    first, second = _transcript(storable(chosen)), _transcript(storable(rejected))
    ends = all(len(side) > 1 and side[-1].role == "assistant" for side in (first, second))
    if not ends or first[:-1] != second[:-1] or not _alternate(first[:-1]):
        return None
    return Comparison(key, first[:-1], (first[-1].content, second[-1].content), 0)


def _transcript(text: str) -> tuple[Turn, ...]:
    head, *parts = _HH_TURN.split(text)
    if head.strip():
        return ()
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return tuple(Turn(_HH_ROLES[speaker], content.strip()) for speaker, content in pairs)


def _helpsteer_turns(prompt: str) -> tuple[Turn, ...]:
    first, *parts = _HELPSTEER_TURN.split(prompt)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    turns = [Turn(role.lower(), content) for role, content in pairs]
    if first or not turns:
        turns.insert(0, Turn("user", first))
    if turns[-1] == Turn("assistant", ""):  # opened for the response
        turns.pop()
    return tuple(turns)


def _alternate(turns: tuple[Turn, ...]) -> bool:
    """Whether user and assistant take turns, the user first and last; chat templates refuse
    others."""
    roles = [turn.role for turn in turns]
    return roles == [*["user", "assistant"] * (len(turns) // 2), "user"]


def _text(value: object, *, where: str, field: str) -> str:
    if not isinstance(value, str):
        raise InputError(f'{where} has {_quote(value)} for "{field}"; a text was expected')
    return storable(value)


def _quote(value: object) -> str:
    text = "nothing" if value is None else ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _hub_rows(name: str, *, revision: str | None, split: str, subset: str | None) -> list[Row]:
    try:
        import datasets  # half a second, and only these sources need it
    except ModuleNotFoundError:
        raise missing_extra("datasets", purpose="a data set of the Hub") from None

    try:
        rows = datasets.load_dataset(name, data_dir=subset, split=split, revision=revision)
        return rows.to_list()
    # The libraries underneath raise a dozen unrelated types for one absent network.
    except Exception as error:
        raise InputError(
            f"{name} ({split}) is not to be had: {type(error).__name__}: {error}\nFetch it "
            f"elsewhere (hf download --repo-type dataset {name} --local-dir FOLDER), and type "
            "comparisons.path=FOLDER"
        ) from error


def _local_files(path: Path, *, split: str, subset: str | None) -> list[Path]:
    """The files of a split in a local copy of a data set, in order of name; `path` itself where it
    is a file."""
    if not path.is_dir():
        return [path]
    top = path / (subset or "")
    files = sorted(file for folder in (top, top / "data") for file in folder.glob(f"{split}[.-]*"))
    if files := [file for file in files if file.name.endswith(SUFFIXES)]:
        return files
    names = f"{split}.jsonl, {split}.jsonl.gz or {split}-….parquet"
    raise InputError(f"comparisons.path={str(path)!r} has no {names} in {top}")


def _read(row: object) -> object:
    """A row of `numbered_rows`; the InputError of one that is not JSON."""
    if isinstance(row, InputError):
        raise row
    return row


def numbered_rows(path: Path, option: str = "comparisons.path") -> list[tuple[int, object]]:
    """(line or row from 1, row) of a file; of a line that is not JSON the InputError that says
    so."""
    if not path.name.endswith(SUFFIXES):
        raise InputError(f"{option}={str(path)!r} does not end in {', '.join(SUFFIXES)}")
    check_ends(option, path)
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet as parquet

            with parquet.ParquetFile(path) as file:  # in parts, which bounds the memory
                parts = (batch.to_pylist() for batch in file.iter_batches(1024))
                return list(enumerate(chain.from_iterable(parts), start=1))
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        content = content.removeprefix(b"\xef\xbb\xbf")
        document = json.loads(content.decode("utf-8")) if path.suffix == ".json" else []
    # pyarrow's are among them; the last is of a million brackets
    except (OSError, EOFError, ValueError, zlib.error, RecursionError) as error:
        raise InputError(f"{option}={str(path)!r} cannot be read: {error}") from error
    lists = list(document.values()) if isinstance(document, dict) else [document]
    if not all(isinstance(part, list) for part in lists):
        raise InputError(f"{path} holds {_quote(document)}, not a list of rows, or lists by name")
    if path.suffix == ".json":
        return list(enumerate(chain.from_iterable(lists), start=1))
    # At line feeds alone: JSON allows other line separators (U+2028) inside a text.
    lines = content.split(b"\n")
    rows: list[tuple[int, object]] = []
    for number, line in enumerate(lines, 1):
        try:
            rows += [(number, json.loads(line.decode("utf-8")))] if line.strip() else []
        except (ValueError, RecursionError) as error:  # of UTF-8, of JSON, of a million brackets
            rows.append((number, InputError(f"{path}, line {number} is not JSON: {error}")))
    return rows
