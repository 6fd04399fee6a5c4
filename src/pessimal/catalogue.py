"""The entries of `conf/`, read without Hydra: which models are known by which names, and the
wordings of prompts that are known by keys. Composes nothing and checks no options.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from omegaconf import DictConfig, OmegaConf

from pessimal.conversation import Given, Prompt, Turn, prompt_of
from pessimal.errors import ConfigError, InputError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

_PACKAGE = Path(__file__).resolve().parent
CONF = next(
    (folder for folder in (_PACKAGE / "conf", _PACKAGE.parents[1] / "conf") if folder.is_dir()),
    _PACKAGE / "conf",
)
"""The configuration files: inside the installed package, or at the top of a checkout."""
PROMPTS = ("greatest", "best", "worst", "greatest_concept", "humans_prefer")
"""The prompts of Christian et al. (2025), which may be named by their keys."""
STEP = re.compile(r"@step-\d+$")
"""Ends the name of a checkpoint (`tables.published.read_checkpoints`)."""
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def is_folder(path: str | None) -> TypeGuard[str]:
    """Whether a path is a folder on this machine."""
    try:
        return path is not None and Path(path).expanduser().is_dir()
    except (OSError, RuntimeError, ValueError):  # what no name can hold, ~ of nobody
        return False


def is_named(name: str) -> bool:
    """Whether a name stands for a file of conf/model: a folder of this name goes before it."""
    try:
        return not is_folder(name) and (CONF / "model" / f"{name}.yaml").is_file()
    except (OSError, ValueError):  # too long for a file, say
        return False


def model_entry(name: str) -> dict[str, Any]:
    """The entry of the file `conf/model/NAME.yaml`, with the files that its defaults name.

    Raises:
        ConfigError: there is none.
    """
    if not (CONF / "model" / f"{name}.yaml").is_file():
        names = [path.stem for path in (CONF / "model").glob("*.yaml")]
        guess = did_you_mean(name, names)
        kinds = "conf/model, a folder, ORG/NAME of the Hub, FILE.py:FUNCTION or http://…"
        raise ConfigError(f"{name!r} is no model: give a name of {kinds}.{guess}".removesuffix("."))
    entry = OmegaConf.to_container(_merge_defaults(f"model/{name}"), resolve=True)
    assert isinstance(entry, dict)
    return {str(key): value for key, value in entry.items()}


ANSWERS = "answers"
"""The list of conf/candidates that is asked of a reward without a vocabulary."""


def answers() -> list[str]:
    """The texts of that list."""
    return list(_read(f"candidates/{ANSWERS}")["texts"])


def _read(path: str) -> DictConfig:
    """A file of conf/ as it stands, by its path without `.yaml`."""
    loaded = OmegaConf.load(CONF / f"{path}.yaml")
    assert isinstance(loaded, DictConfig)
    return loaded


def _merge_defaults(path: str) -> DictConfig:
    """A file of conf/ merged with those of its `defaults`, as Hydra would."""
    file = _read(path)
    defaults = file.pop("defaults", None) or ["_self_"]
    group = path.rpartition("/")[0]
    parts = []
    for name in defaults if "_self_" in defaults else [*defaults, "_self_"]:
        if isinstance(name, Mapping):  # override /kind@_here_: KIND, the last
            parts.append(OmegaConf.create({"kind": next(iter(name.values()))}))
            continue
        other = str(name).partition("@")[0]
        where = other.removeprefix("/") if other.startswith("/") else f"{group}/{other}"
        parts.append(file if name == "_self_" else _merge_defaults(where))
    merged = OmegaConf.merge(*parts)
    assert isinstance(merged, DictConfig)
    return merged


@cache
def hub_entries() -> tuple[dict[Any, Any], ...]:
    """The files of `conf/model` that are of a Hub repository, as they stand, each with a name."""
    files = sorted((CONF / "model").glob("*.yaml"))
    entries = (
        {"name": file.stem, **cast(dict, OmegaConf.to_container(_read(f"model/{file.stem}")))}
        for file in files
    )
    return tuple(entry for entry in entries if HUB_ID.fullmatch(str(entry.get("path"))))


@cache
def models_table() -> "pd.DataFrame":
    """The Hub models that have a file in `conf/model`: label, repository, base, developer, size,
    rank.

    `size` is the nominal number of parameters in billions, `rank` the rank on RewardBench (1 =
    best; missing for language models). In order of rank, then of label.

    Source: Christian et al. 2025, Table 1, for the ten reward models.
    """
    import pandas as pd

    rows = [
        {
            "label": entry["name"],
            "repository": entry["path"],
            "base": entry.get("base"),
            "developer": entry.get("developer"),
            "size": float(entry["parameters"]) / 1e9 if entry.get("parameters") else None,
            "rank": entry.get("rank"),
        }
        for entry in hub_entries()
    ]
    columns = ["label", "repository", "base", "developer", "size", "rank"]
    table = pd.DataFrame(rows, columns=columns).astype({"size": float, "rank": float})
    return table.sort_values(["rank", "label"], kind="stable", ignore_index=True)


@cache
def published_models() -> tuple[str, ...]:
    """Repositories of the reward models whose scores Christian et al. (2025) published: those that
    have a rank on RewardBench."""
    table = models_table()
    return tuple(table["repository"][table["rank"].notna()])


def spellings(repository: str, label: str | None = None) -> tuple[str, ...]:
    """The names that a model goes by: its repository `OWNER/NAME`, as files are named after it
    (`OWNER--NAME`, `OWNER_NAME`), and where it has a label, that and the bare `NAME`."""
    names = [repository, repository.replace("/", "--"), repository.replace("/", "_")]
    if label is not None:
        names += [label, repository.split("/")[-1]]
    return tuple(dict.fromkeys(names))


@cache
def known_model(name: str) -> dict | None:
    """The row of `models_table` that a name is of, in any of its spellings; None where there is
    none."""
    rows = models_table().to_dict("records")
    return next((row for row in rows if name in spellings(row["repository"], row["label"])), None)


def described(model: str, fields: Mapping[str, object]) -> dict[str, object]:
    """The description of a model: base, developer, parameters (a count), rank. The values of
    `fields` come first, then what `conf/model` says of a model of this name."""
    row = known_model(model) or {}
    size = row.get("size")
    entries = {**row, "parameters": size * 1e9 if size else None}
    return {name: entries.get(name) if value is None else value for name, value in fields.items()}


def run_of(model: str) -> str:
    """A checkpoint's name without its step; any other name as it is."""
    return STEP.sub("", model)


def names_of(model: str) -> tuple[str, ...]:
    """Every name that finds the score tables of `model`, which stands there under one of them. A
    checkpoint is found by its own name and by that of its run."""
    step, run = STEP.search(model), run_of(model)
    row = known_model(run)
    names = spellings(row["repository"], row["label"]) if row else spellings(run)
    return (*names, *(name + step[0] for name in names)) if step else names


def match_names(queries: Sequence[str], models: Iterable[str]) -> list[str]:
    """The names in `models` of the models that are queried by any of their names; a query that
    fits no model stays as it is."""
    names = {model: names_of(model) for model in sorted(set(models))}
    matches = {name: [model for model in names if name in names[model]] for name in queries}
    return list(dict.fromkeys(model for name in queries for model in matches[name] or [name]))


def named_prompts(
    prompts: Given | Sequence[Given] | Mapping[str, Given],
) -> dict[str, Prompt]:
    """Prompts by key: a key of conf/prompts stands for its wording, another text for itself, a list
    of messages for a conversation, whose key is the user's last text.

    Raises:
        InputError: there is none, it is no prompt, two have one key, or a single word is all but a
            key: in a mapping it is a text.
    """
    by_key: dict[str, Any] = {}
    collection: Any = prompts
    if isinstance(collection, Mapping):
        by_key = dict(collection)
    else:
        listed = isinstance(collection, Sequence) and not isinstance(collection, str)
        is_single = not listed or (collection and isinstance(collection[0], Mapping | Turn))
        for number, prompt in enumerate([collection] if is_single else collection):
            entries: dict[str, Any]
            if isinstance(prompt, str):
                entries = dict(_wordings(prompt))
            else:
                entries = {_key_of(prompt) or f"prompt-{number}": prompt}
            if set(entries) & set(by_key):
                name = next(iter(entries))
                raise InputError(f"two prompts are called {name!r:.300}: give a mapping by key")
            by_key |= entries
    if wrong := [value for value in by_key.values() if not isinstance(value, Sequence)]:
        raise InputError(f"prompts: {wrong[0]!r:.300} is neither a text nor a list of messages")
    try:
        prompts_by_key = {
            key: prompt_of(value, name=f"prompts[{key!r}]") for key, value in by_key.items()
        }
    except ConfigError as error:
        raise InputError(str(error)) from error
    if not prompts_by_key:
        raise InputError(f"prompts={prompts!r:.300}: give user turns, or prompts by key")
    return prompts_by_key


def _key_of(prompt: object) -> str:
    """The user's last text; empty where that is no list of messages, which is refused below."""
    turn = prompt[-1] if isinstance(prompt, Sequence) and prompt else None
    if isinstance(turn, Turn):
        return turn.content
    return str(turn.get("content", "")) if isinstance(turn, Mapping) else ""


def _wordings(text: str) -> dict[str, str]:
    """The user turns that a key of conf/prompts stands for, or the text itself."""
    files = {path.stem for path in (CONF / "prompts").glob("*.yaml")}
    if text in files:
        wordings = OmegaConf.to_container(_merge_defaults(f"prompts/{text}"))
        assert isinstance(wordings, dict)
        return {str(key): wording for key, wording in wordings.items()}
    guess = did_you_mean(text, files)
    if re.fullmatch(r"\w+", text) and (guess or "_" in text):
        typed = f"prompts={{'mine': {text!r}}}"
        raise InputError(f"prompts={text!r} is no known key.{guess} To ask it: {typed}")
    return {text: text}
