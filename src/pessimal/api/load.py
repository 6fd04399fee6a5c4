"""Rewards of a name, a folder, a network or a function: `pessimal.load` and `pessimal.reward`; of
people's preferences: `pessimal.train`; and results on disk."""

import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from pessimal.api.store import Store
from pessimal.errors import ConfigError, InputError, did_you_mean, require
from pessimal.rewards.base import Reward
from pessimal.rewards.callable import is_rubric, rubric_terms, wrap_callable
from pessimal.rewards.named import language_model_of, spec_of
from pessimal.rewards.obtain import open_reward
from pessimal.rewards.spec import Dtype
from pessimal.rewards.sum import sum_of
from pessimal.scoring.spec import TrainerSpec
from pessimal.tables import ScoreTable, read_score_table
from pessimal.tables.result import Result
from pessimal.tables.score_table import write_score_table
from pessimal.training.spec import PreferenceRecipe

if TYPE_CHECKING:
    from pessimal.training.preference_model import PreferenceTraining

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Enum)


def load(
    path: str | Path | None = None,
    *,
    kind: str | None = None,
    dtype: str | None = None,
    cache: str = "runs/cache",
    tasks: str | Path | None = None,
    **options,
) -> Reward:
    """A reward by what one types for it: a local folder, the Hub's `org/name`, `FILE.py:FUNCTION`,
    `http://…`, or a name of conf/model: of the demo family (`plain-bpe-0`; trained on first use and
    kept in `cache`), or a real model that a package carries (`smollm2`). None for a kind without a
    path, such as a sum.

    Args:
        kind: head, log_probability, implicit, judge, or another of
            `pessimal.rewards.named.load_kinds`; by default what conf/model says of a name, and head
            of any other model.
        dtype: by default float32, or what conf/model says.
        tasks: JSONL file of prompts with their columns, which functions are given.
        options: further options of a model (the kind's class of options), such as
            revision="…", implicit={"reference": "org/name"}, judge={"template": "…", "positive":
            ["Yes"], "negative": ["No"]}, or of a function shape="trl".

    Raises:
        ConfigError, ModelError: there is none, or it is no scalar reward model.
    """
    choices = {"kind": kind, "dtype": parse_choice("dtype", dtype, Dtype)}
    typed = None if path is None else str(path)
    spec = spec_of(typed, **{name: value for name, value in choices.items() if value}, **options)
    if tasks is not None and spec.takes_tasks:
        spec = replace(spec, tasks=str(tasks))
    return open_reward(spec, cache=cache)


def reward(
    network,
    tokenizer=None,
    *,
    name: str | None = None,
    output: int | str | None = None,
    weights: Sequence[float] | None = None,
    **options,
) -> Reward:
    """A reward of what is in memory.

    Args:
        network: a network (see `pessimal.rewards.head.wrap`); a function in any shape that a
            trainer calls, or an object with `score` (`pessimal.rewards.callable.wrap_callable`); or
            a list of rewards, functions and names of models, or a Rubric of verifiers, which is
            their weighted sum.
        tokenizer: the network's; of a function, the one whose vocabulary is scanned, as texts.
        name: by default the function's own; `model` for a network.
        output: of a network with several: a number, a label, or "all".
        weights: of a list; 1 each by default.
        options: of a network: read, step_token, reduce, one_text, template_options; of a function:
            shape, messages, tasks.

    Raises:
        ConfigError: it is none of these.
    """
    if is_rubric(network):
        refuse_options({**options, "tasks": None}, output=output, weights=weights)
        terms = rubric_terms(network, tasks=options.get("tasks"))
        return sum_of(terms, name=name, tokenizer=tokenizer)
    if isinstance(network, list | tuple):
        refuse_options({**options, "tasks": None}, output=output)
        weights = [1.0] * len(network) if weights is None else list(weights)
        if len(weights) != len(network) or not network:
            raise ConfigError(f"{len(network)} rewards have {len(weights)} weights: give one each")
        rewards = [to_reward(term, tasks=options.get("tasks")) for term in network]
        weighted = list(zip(weights, rewards, strict=True))
        return sum_of(weighted, name=name, tokenizer=tokenizer)
    if isinstance(network, nn.Module):
        from pessimal.rewards.reward_model import wrap

        refuse_options({}, weights=weights)
        choices = ("read", "step_token", "reduce", "one_text", "template_options")
        check_options("a network in memory", options, *choices)
        if tokenizer is None:
            raise ConfigError("a network in memory needs its tokenizer: tokenizer=…")
        return wrap(network, tokenizer, name=name or "model", output=output, **options)
    refuse_options({}, output=output, weights=weights)
    check_options("a function", options, "shape", "messages", "tasks")
    return wrap_callable(network, name=name, tokenizer=tokenizer, **options)


def parse_choice(name: str, value: str | None, choices: type[T]) -> T | None:
    if value not in {None, *(choice.value for choice in choices)}:
        raise ConfigError(f"{name}={value!r}: give {', '.join(choice.value for choice in choices)}")
    return None if value is None else choices(value)


def check_options(noun: str, options: Mapping[str, object], *names: str) -> None:
    if unknown := sorted(set(options) - set(names)):
        guess = did_you_mean(unknown[0], names)
        raise ConfigError(f"{noun} has no option {unknown[0]!r}.{guess}".removesuffix("."))


def refuse_options(options: Mapping[str, object], **more: object) -> None:
    values = {name: value for name, value in {**options, **more}.items() if value is not None}
    if values:
        raise ConfigError(f"{next(iter(values))}= says nothing of this reward; leave it out")


def open_policy(policy) -> Reward:
    """A language model by its name, or one that is open already."""
    is_name = isinstance(policy, str | Path)
    return load(str(policy), kind="log_probability") if is_name else to_reward(policy)


def to_reward(model, *, tasks: str | Path | None = None, **options) -> Reward:
    """The reward that a verb was given: one already, a model by its name, or one in memory.
    Functions in it are given the columns of `tasks`."""
    if isinstance(model, Reward):
        refuse_options(options)
        if tasks is not None and model.spec.takes_tasks and model.spec.tasks != str(tasks):
            raise ConfigError(f"{model.name} is made already: say tasks={str(tasks)!r} where it is")
        return model
    if isinstance(model, str | Path):
        return load(str(model), tasks=tasks, **options)
    if tasks is not None and not isinstance(model, nn.Module):
        options["tasks"] = tasks
    return reward(model, **options)


def trainer_for(model: Reward):
    """One device: the one that a network in memory is on, else the CPU."""
    return TrainerSpec(accelerator="cpu" if device_of(model).type == "cpu" else "auto")


def device_of(model: Reward):

    held = getattr(model, "held", None)
    return torch.device("cpu") if held is None else next(held.parameters()).device


def read(path: str | Path) -> ScoreTable:
    """A score table of a file or an artifact's folder."""
    return read_score_table(Path(path).expanduser())


def save(results: Sequence[Result] | ScoreTable, folder: str | Path) -> Path:
    """Write `tables/*.parquet`, `figures/*.svg` and `results.json`, as artifacts have them, or a
    score table's `scores.parquet`, which `read` reads; returns the folder.

    Raises:
        InputError: there is something in the folder already.
    """
    from pessimal.report.write import write_results  # which loads Matplotlib

    folder = Path(folder).expanduser()
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty; give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(results, ScoreTable):
        write_score_table(results, folder / "scores.parquet")
    else:
        write_results(results, folder, skipped=getattr(results, "skipped", {}))
    return folder


def train(
    base: str,
    data: str | Path,
    folder: str | Path,
    *,
    seed: int = 0,
    cache: str = "runs/cache",
    accelerator: str = "cpu",
    progress: bool = True,
    **recipe,
) -> Reward:
    """Train a reward model of people's preferences between items, from a language model.

    Args:
        base: the language model: a local folder, `org/name`, or a name of conf/model.
        data: CSV file with the columns name, elo_score and elo_matches.
        folder: where its checkpoint is written, which is new; transformers and `load` read it.
        seed: of the head's first weights and of the order of the items.
        recipe: options of the training (`pessimal.training.spec.PreferenceRecipe`), such as
            steps=150, layers=12, question="…".

    Raises:
        ConfigError, InputError, ModelError: an option, the data, or the base cannot be taken.
    """
    require("peft", purpose="training on people's preferences")
    from pessimal.training.preference_model import train_preferences  # which loads peft

    check_options("a training", recipe, *(field.name for field in fields(PreferenceRecipe)))
    folder = Path(folder).expanduser()
    train_preferences(
        language_model_of(base),
        Path(data).expanduser(),
        PreferenceRecipe(**recipe),
        folder=folder,
        cache=cache,
        seed=seed,
        accelerator=accelerator,
        progress=progress,
    )
    return load(str(folder), cache=cache)


REWARD_MODEL = "reward-model"


def train_published(
    training: "PreferenceTraining", *, store: Store, accelerator: str, progress: bool = True
) -> tuple[Path, dict[str, Any]]:
    """The folder of a training's `reward-model` in the registry and what its report says; one that
    is trained already is read, and one that was cut off goes on."""
    from pessimal.training.preference_model import REPORT

    if published := store.find(REWARD_MODEL, training.key):
        folder, _ = published
        log.info("%s is trained already: %s (force=true trains it again)", training.name, folder)
        return folder, json.loads((folder / REPORT).read_text(encoding="utf-8"))
    training.load()
    if store.force:
        shutil.rmtree(training.work, ignore_errors=True)
    with store.track(name=f"train {training.name}") as mirror:
        trained = training.run(accelerator=accelerator, progress=progress, report=mirror.metrics)
        mirror.summary(trained.summary)
        folder, _ = mirror.publish(
            *(store.registry, REWARD_MODEL, training.name, trained.write),
            key=training.key,
            summary=trained.summary,
        )
    shutil.rmtree(training.work, ignore_errors=True)
    return folder, trained.report
