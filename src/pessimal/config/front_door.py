"""From a command line to a typed configuration: Hydra's composition, our checks, our messages.

Knows Hydra and OmegaConf. What a verb does is the tasks' business.
"""

import difflib
import errno
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pessimal.config.schema import SCHEMAS, TASKS, TaskConfig
from pessimal.config.schema.runs import runs_overrides
from pessimal.errors import ConfigError, UserError, WorkError

CONF = Path(__file__).resolve().parents[3] / "conf"

# Hydra's options that are followed by a value; what comes after them is no verb.
_VALUED = {
    "--cfg",
    "-c",
    "--package",
    "-p",
    "--config-path",
    "-cp",
    "--config-name",
    "-cn",
    "--config-dir",
    "-cd",
    "--info",
    "-i",
}

LOOKS = "task=runs"
"""The verb that only looks at what there is: it makes no folder, and needs none that can be written."""


TAKES_ANY_PROMPT = ("task=compare",)
"""Verbs that choose among prompts of the registry, and need no wording of them."""
RENAMED = {"frames": "polarity"}
"""Options that had another name; the old one is understood for one release, with a notice."""


def with_task(arguments: Sequence[str]) -> list[str]:
    """The command line as Hydra wants it: a bare verb as the override `task=VERB`, options before overrides. Bare words
    after `runs` are what it does and with what.

    Raises ConfigError for a bare word that is no verb, naming the closest one.
    """
    options, overrides, words, previous = [], [], [], ""
    for argument in arguments:
        if argument.startswith("-") or previous in _VALUED:
            options.append(argument)
        elif "=" in argument or argument.startswith(("+", "~")):
            overrides.append(argument)
        elif LOOKS in overrides:
            words.append(argument)
        elif argument in TASKS:
            overrides.append(f"task={argument}")
        else:
            raise ConfigError(
                f"unknown verb {argument!r}.{_did_you_mean(argument, TASKS)} The verbs are: {', '.join(TASKS)}. "
                "See pessimal --help"
            )
        previous = argument
    overrides = [_present_name(override) for override in overrides]
    if LOOKS in overrides:
        overrides = runs_overrides(words, overrides, options)
    if any(verb in overrides for verb in TAKES_ANY_PROMPT):
        overrides = [part for override in overrides for part in _any_prompts(override)]
    return [*options, *overrides]


def _present_name(override: str) -> str:
    """The override with an option's present name, and a notice where the old one was given."""
    old = re.match(r"([+~]*)(\w+)(?=[.=]|$)", override)
    if old is None or old[2] not in RENAMED:
        return override
    new = RENAMED[old[2]]
    print(f"pessimal: {old[2]} is called {new} now; the old name goes with the next release", file=sys.stderr)
    return f"{old[1]}{new}{override[old.end() :]}"


def _any_prompts(override: str) -> list[str]:
    """prompts=[A,B] with keys that have no file in conf/prompts: score tables may know them all the same."""
    given = re.fullmatch(r"prompts=\[?([^\[\]{}()]*)\]?", override)
    keys = [key.strip() for key in given[1].split(",")] if given else []
    unknown = [
        key
        for key in keys
        if re.fullmatch(r"[\w-]+", key) and not (CONF / "prompts" / f"{key}.yaml").is_file()
    ]
    if not unknown:
        return [override]
    known = [key for key in keys if key not in unknown]
    return [f"prompts=[{','.join(known)}]", *(f"+prompts.{key}=''" for key in unknown)]


def composition_message(error: Exception) -> str | None:
    """What Hydra or OmegaConf has to say about a wrong configuration; None where the error is none of theirs."""
    if isinstance(error, ValueError) and "Config group override must be a string or a list" in str(error):
        return "a group of options was set to null; a list empties it (identity=[]), and ~GROUP leaves it out (~lexicons)"
    if isinstance(error, ValueError) and "Config group override deletion value must be a string" in str(
        error
    ):
        return "~ leaves a group of options out, and takes the name of an option or nothing: ~lexicons"
    if not isinstance(error, HydraException | OmegaConfBaseException):
        return None
    if isinstance(error, OverrideParseException):
        return (
            f"the override {error.override!r} cannot be read. A value with spaces, brackets, quotes or letters beyond "
            "ASCII goes in quotes of its own: 'key=\"value\"'"
        )
    message, cause = str(error).strip(), error.__cause__
    if cause is not None and str(cause).strip() not in message:
        message += "\n" + str(cause).strip()
    unknown = re.search(r"Key '([^']+)' not in '(\w+)'", message)
    if unknown:
        key, schema = unknown.groups()
        known = [field.name for field in fields(SCHEMAS[schema])] if schema in SCHEMAS else []
        full = re.search(r"full_key: (\S+)", message)
        return (
            f"there is no option {full.group(1) if full else key!r}.{_did_you_mean(key, known)} "
            f"Options here: {', '.join(known)}"
        )
    spec = re.search(r"\+(\w+)\.([\w-]+).*is not a subclass of (\w+)", message, re.DOTALL)
    if spec:
        group, name, _ = spec.groups()
        return (
            f"{group}.{name} cannot be put together on the command line. Write it into a file FOLDER/{group}/{name}.yaml, as those in "
            f"conf/{group} are written, and type: --config-dir FOLDER '{group}=[…,{name}]'"
        )
    # Where the configuration was searched, and which class was being filled, helps nobody who mistyped a name.
    lines = [
        line
        for line in message.splitlines()
        if line.strip() and "_type=" not in line and "full_key:" not in line
    ]
    end = next((i for i, line in enumerate(lines) if line.startswith("Config search path")), len(lines))
    kept, unlisted = lines[:end], re.search(r"Could not find 'prompts/(.+)'", message)
    if unlisted:
        kept.append(
            f"For one that has no file, or that only score tables know: +prompts.{unlisted[1]}='the user turn'"
        )
    return "\n".join(kept)


def disk_full_message(error: Exception) -> str | None:
    """What to do about a full disk; None where the error is another."""
    if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    return (
        f"the disk is full: {os.strerror(error.errno)} ({error.filename or 'paths.root'}). What was finished is kept. "
        "Free space, and the same command goes on from there"
    )


def _did_you_mean(given: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(given, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def register() -> None:
    """Register the schemas with Hydra: a key that is not in them, or of another type, is refused while composing."""
    store = ConfigStore.instance()
    for name, schema in TASKS.items():
        store.store(group="schema", name=name, node=schema, package="_global_")


def build(composed: DictConfig) -> TaskConfig:
    """The typed configuration of one job, checked; paths made absolute."""
    for key in ("root", "registry", "cache", "wandb"):
        composed.paths[key] = os.path.abspath(os.path.expanduser(composed.paths[key]))
    return OmegaConf.to_object(composed)


def _writable(name: str, folder: str) -> None:
    try:
        Path(folder).expanduser().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if disk_full_message(error):
            raise
        raise ConfigError(
            f"{name}={folder!r} cannot be written to: {error.strerror}; give another folder"
        ) from error
    except (RuntimeError, ValueError) as error:  # ~ of a user there is not; what no name of a folder can hold
        raise ConfigError(f"{name}={folder!r} is no folder: {error}; give another") from error
    if not os.access(Path(folder).expanduser(), os.W_OK):
        raise ConfigError(f"{name}={folder!r} is not writable; give another folder")


def _quiet_console() -> None:
    """In a job of a sweep only warnings stand on the console: its log file has the rest, and it prints one path."""
    for handler in logging.getLogger().handlers:
        if type(handler) is logging.StreamHandler:
            handler.setLevel(logging.WARNING)


def run_hydra(run: Callable[[TaskConfig], object]) -> None:
    """Let Hydra compose the configuration from `sys.argv` and call `run` with each job's, one or a sweep of them."""
    if not CONF.is_dir():
        raise ConfigError(
            f"the configuration folder {CONF} is missing: install pessimal from its checkout with `pip install -e .`"
        )
    register()
    # Hydra would print its own shortened errors and exit with 1; the front door wants the exceptions.
    os.environ["HYDRA_FULL_ERROR"] = "1"

    looks = LOOKS in sys.argv
    for argument in sys.argv[1:]:
        if argument.startswith("paths.root=") and not looks:  # Hydra writes there before we check anything
            _writable("paths.root", argument.split("=", 1)[1])
    mistakes: list[UserError | WorkError] = []

    @hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
    def job(composed: DictConfig):
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            _quiet_console()
        try:
            config = build(composed)
            for key in () if looks else ("registry", "cache", "wandb"):
                _writable(f"paths.{key}", getattr(config.paths, key))
            return run(config)
        except (UserError, WorkError) as mistake:
            if HydraConfig.get().mode == RunMode.MULTIRUN:
                raise  # Hydra then says which job of the sweep it was
            mistakes.append(mistake)
        except OSError as error:
            message = disk_full_message(error)
            if message is None or HydraConfig.get().mode == RunMode.MULTIRUN:
                raise
            mistakes.append(WorkError(message))

    job()
    if mistakes:
        raise mistakes[0]
