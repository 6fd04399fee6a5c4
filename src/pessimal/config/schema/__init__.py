"""One dataclass a verb, a file each: every option with its type, its unit and its default.

Hydra composes these from `conf/` and overrides; `build` turns the result into an instance, and `__post_init__`
says what does not fit together. Imports nothing heavy: `--help` and `--cfg` must answer at once.
"""

from pessimal.config.schema.check import CheckConfig
from pessimal.config.schema.compare import CompareConfig, IdentityAxis, Join, WordingSpec
from pessimal.config.schema.explain import (
    AttributeSpec,
    ComparisonsSpec,
    EditSpec,
    ExplainConfig,
    JudgeKind,
    PerturberKind,
    PerturberSpec,
    Source,
)
from pessimal.config.schema.import_ import ImportConfig, ImportFormat
from pessimal.config.schema.push import PushConfig
from pessimal.config.schema.report import ReportConfig
from pessimal.config.schema.runs import RunsAction, RunsConfig, RunsFormat
from pessimal.config.schema.scan import CandidatesSpec, ScanConfig
from pessimal.config.schema.search import Filter, Goal, Method, SearchConfig, SearchSpec, TuningSpec
from pessimal.config.schema.shared import (
    PathsSpec,
    Strategy,
    TaskConfig,
    TrackingMode,
    TrackingSpec,
    TrainerSpec,
    demo_recipe,
)
from pessimal.config.schema.train import TrainConfig
from pessimal.config.schema.workspace import WorkspaceConfig
from pessimal.models.spec import ModelSpec, RecipeSpec

TASKS: dict[str, type[TaskConfig]] = {
    "train": TrainConfig,
    "scan": ScanConfig,
    "compare": CompareConfig,
    "import": ImportConfig,
    "report": ReportConfig,
    "check": CheckConfig,
    "search": SearchConfig,
    "explain": ExplainConfig,
    "push": PushConfig,
    "runs": RunsConfig,
    "workspace": WorkspaceConfig,
}

SCHEMAS: dict[str, type] = {
    schema.__name__: schema
    for schema in (
        *TASKS.values(),
        ModelSpec,
        RecipeSpec,
        CandidatesSpec,
        IdentityAxis,
        WordingSpec,
        SearchSpec,
        TuningSpec,
        ComparisonsSpec,
        PerturberSpec,
        AttributeSpec,
        EditSpec,
        TrainerSpec,
        TrackingSpec,
        PathsSpec,
    )
}
"""Every schema by name, for messages about unknown options."""

__all__ = [
    "SCHEMAS",
    "TASKS",
    "AttributeSpec",
    "CheckConfig",
    "CompareConfig",
    "ComparisonsSpec",
    "EditSpec",
    "ExplainConfig",
    "Filter",
    "Goal",
    "IdentityAxis",
    "ImportConfig",
    "ImportFormat",
    "Join",
    "JudgeKind",
    "Method",
    "PerturberKind",
    "PerturberSpec",
    "PushConfig",
    "ReportConfig",
    "RunsAction",
    "RunsConfig",
    "RunsFormat",
    "ScanConfig",
    "SearchConfig",
    "SearchSpec",
    "Source",
    "Strategy",
    "TaskConfig",
    "TrackingMode",
    "TrainConfig",
    "TrainerSpec",
    "TuningSpec",
    "WordingSpec",
    "WorkspaceConfig",
    "demo_recipe",
]
