"""One dataclass a verb: every option with its type, its range, its unit, its default and its
meaning.

Hydra composes these from `conf/` and overrides; the instance that comes out is what the verb works
with. Imports nothing heavy: help and the refusal of a mistake must not wait for torch.
"""

# ruff: noqa: F401 the classes of the other files are to be had from here

import typing
from dataclasses import is_dataclass

from pessimal.config.schema.explain import ExplainConfig, JudgeKind
from pessimal.config.schema.scan import (
    AuditConfig,
    CheckConfig,
    ScanConfig,
    SearchConfig,
    ServeConfig,
    TrainConfig,
)
from pessimal.config.schema.shared import PathsSpec, TaskConfig, TrackingMode
from pessimal.config.schema.tables import (
    CompareConfig,
    ImportConfig,
    ImportFormat,
    Join,
    PushConfig,
    ReportConfig,
    RolloutsConfig,
    RunsAction,
    RunsConfig,
    RunsFormat,
)
from pessimal.rewards.named import load_kinds
from pessimal.scoring.spec import Strategy, TrainerSpec
from pessimal.training.spec import PreferenceRecipe

TASKS: dict[str, type[TaskConfig]] = {
    "audit": AuditConfig,
    "train": TrainConfig,
    "scan": ScanConfig,
    "compare": CompareConfig,
    "rollouts": RolloutsConfig,
    "import": ImportConfig,
    "report": ReportConfig,
    "check": CheckConfig,
    "serve": ServeConfig,
    "search": SearchConfig,
    "explain": ExplainConfig,
    "push": PushConfig,
    "runs": RunsConfig,
}


def _option_classes(hint: object) -> set[type]:
    """The classes of options that an annotation, or a field of one of them, names."""
    if isinstance(hint, type) and is_dataclass(hint):
        return {hint}.union(*map(_option_classes, typing.get_type_hints(hint).values()))
    return set[type]().union(*map(_option_classes, typing.get_args(hint)))


SCHEMAS: dict[str, type] = {
    schema.__name__: schema
    for options in (*TASKS.values(), *load_kinds().values())
    for schema in _option_classes(options)
}
"""Every class of options by name, for messages about unknown options."""
