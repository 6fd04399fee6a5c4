"""What `conf/` says, read without Hydra: which models are known by which names, and the wordings of
prompts that are known by keys. Composes nothing and checks no options.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from omegaconf import DictConfig, OmegaConf

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
    except (OSError, RuntimeError):  # too long a name, or ~ of a user there is not
        return False


def is_named(name: str) -> bool:
    """Whether a name stands for a file of conf/model: a folder of this name goes before it."""
    return not is_folder(name) and (CONF / "model" / f"{name}.yaml").is_file()


def model_entry(name: str) -> dict[str, Any]:
    """What the file `conf/model/NAME.yaml` says, with the files that its defaults name.

    Raises:
        ConfigError: there is none.
    """
    if not (CONF / "model" / f"{name}.yaml").is_file():
        names = [path.stem for path in (CONF / "model").glob("*.yaml")]
        raise ConfigError(
            f"{name!r} is no model: give a name of conf/model, a folder on this machine, or a Hub "
            f"repository ORG/NAME.{did_you_mean(name, names)}".removesuffix(".")
        )
    entry = OmegaConf.to_container(_with_defaults(f"model/{name}"), resolve=True)
    assert isinstance(entry, dict)
    return {str(key): value for key, value in entry.items()}


def _read(path: str) -> DictConfig:
    """A file of conf/ as it stands, by its path without `.yaml`."""
    loaded = OmegaConf.load(CONF / f"{path}.yaml")
    assert isinstance(loaded, DictConfig)
    return loaded


def _with_defaults(path: str) -> DictConfig:
    """A file of conf/ merged with those of its `defaults`, as Hydra would."""
    file = _read(path)
    defaults = file.pop("defaults", None) or ["_self_"]
    group = path.rpartition("/")[0]
    parts = []
    for name in defaults if "_self_" in defaults else [*defaults, "_self_"]:
        other = str(name).partition("@")[0]
        where = other.removeprefix("/") if other.startswith("/") else f"{group}/{other}"
        parts.append(file if name == "_self_" else _with_defaults(where))
    merged = OmegaConf.merge(*parts)
    assert isinstance(merged, DictConfig)
    return merged


@cache
def models_table() -> "pd.DataFrame":
    """The Hub models that have a file in `conf/model`: label, repository, base, developer, size,
    rank.

    `size` is the nominal number of parameters in billions, `rank` the rank on RewardBench (1 =
    best; missing for language models). In order of rank, then of label.

    Source: Christian et al. 2025, Table 1, for the ten reward models.
    """
    import pandas as pd

    rows = []
    for file in sorted((CONF / "model").glob("*.yaml")):
        entry = _read(f"model/{file.stem}")
        if HUB_ID.fullmatch(str(entry.get("path"))):
            rows.append(
                {
                    "label": entry.get("name", file.stem),
                    "repository": entry["path"],
                    "base": entry.get("base"),
                    "developer": entry.get("developer"),
                    "size": float(entry["parameters"]) / 1e9 if entry.get("parameters") else None,
                    "rank": entry.get("rank"),
                }
            )
    columns = ["label", "repository", "base", "developer", "size", "rank"]
    table = pd.DataFrame(rows, columns=columns).astype({"size": float, "rank": float})
    return table.sort_values(["rank", "label"], kind="stable", ignore_index=True)


@cache
def published_models() -> tuple[str, ...]:
    """Repositories of the reward models whose scores Christian et al. (2025) published: those of
    `conf/published/paper` that have a rank."""
    defaults = _read("published/paper")["defaults"]
    files = [
        _read(next(iter(entry)).removeprefix("/").partition("@")[0] + "/" + name)
        for entry in defaults
        for name in entry.values()
    ]
    return tuple(file["path"] for file in files if file.get("rank"))


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


def described(model: str, given: Mapping[str, object]) -> dict[str, object]:
    """What is known of a model: base, developer, parameters (a count), rank. What is `given` comes
    first, then what `conf/model` says of a model of this name."""
    row = known_model(model) or {}
    size = row.get("size")
    known = {**row, "parameters": size * 1e9 if size else None}
    return {name: known.get(name) if value is None else value for name, value in given.items()}


TRAINED_FROM = {
    "nicolinho/QRM-Gemma-2-27B": "Skywork/Skywork-Reward-Gemma-2-27B",
    "Skywork/Skywork-Reward-Gemma-2-27B-v0.2": "Skywork/Skywork-Reward-Gemma-2-27B",
    "nicolinho/QRM-Llama3.1-8B": "Skywork/Skywork-Reward-Llama-3.1-8B",
    "Skywork/Skywork-Reward-Llama-3.1-8B-v0.2": "Skywork/Skywork-Reward-Llama-3.1-8B",
    "LxzGordon/URM-LLaMa-3.1-8B": "Skywork/Skywork-Reward-Llama-3.1-8B",
}
"""Reward models by what they were trained from, or (v0.2) repeat on cleaned data: they share more
than a base.

Source: the cards of QRM-Llama3.1-8B and URM; QRM-Gemma-2-27B is of the same recipe as the former.
"""


def lineage_of(model: str) -> str:
    """The reward model that a model was trained from, and so on to the first; itself where none is
    known."""
    row = known_model(model)
    name = row["repository"] if row else model
    while name in TRAINED_FROM:
        name = TRAINED_FROM[name]
    return name


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


def answering(asked: Sequence[str], there: Iterable[str]) -> list[str]:
    """Models `asked` for under any of their names, as the models that are `there` are called; a
    name that none answers to stays as it is."""
    names = {model: names_of(model) for model in sorted(set(there))}
    found = {name: [model for model in names if name in names[model]] for name in asked}
    return list(dict.fromkeys(model for name in asked for model in found[name] or [name]))


def named_prompts(prompts: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """User turns by key: a key of `PROMPTS` stands for its wording, another text for itself."""
    if isinstance(prompts, Mapping):
        by_key = dict(prompts)
    else:
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        by_key = {text: _wording(text) if text in PROMPTS else text for text in texts}
    if not by_key or not all(isinstance(text, str) and text.strip() for text in by_key.values()):
        raise InputError(
            f"prompts={prompts!r}: give a user turn, several, or a mapping of key to user turn"
        )
    return by_key


def _wording(key: str) -> str:
    """The user turn of conf/prompts."""
    return str(_read(f"prompts/{key}")[key])
