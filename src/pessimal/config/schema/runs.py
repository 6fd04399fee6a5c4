"""Options of the verbs on the registry as it stands: runs and push."""

import re
from collections.abc import Sequence
from dataclasses import field
from enum import Enum

from pydantic.dataclasses import dataclass

from pessimal.config.schema.explain import as_text
from pessimal.config.schema.shared import TaskConfig
from pessimal.errors import ConfigError, did_you_mean
from pessimal.options import Texts


class RunsAction(Enum):
    """What is done with the registry; typed as a word after `runs`."""

    list = "list"
    """One line an artifact."""
    show = "show"
    """One artifact: manifest, files, what it was made from, what was made from it."""
    diff = "diff"
    """How two artifacts differ."""
    verify = "verify"
    """Is every byte as it was published? Exit code 1 where one is not."""


class RunsFormat(Enum):
    """How it is printed."""

    table = "table"
    """For people; cut to the width of the terminal."""
    json = "json"
    csv = "csv"
    """A list, a difference, or a table of one artifact; safe to open in a spreadsheet."""


NAMES = {
    RunsAction.list: (0, 0, "pessimal runs name='plain-*'"),
    RunsAction.show: (1, 1, "pessimal runs show score-table/plain-bpe-0--greatest"),
    RunsAction.diff: (2, 2, "pessimal runs diff plain-bpe-0--greatest plain-bpe-0--worst"),
    RunsAction.verify: (0, 1, "pessimal runs verify plain-bpe-0--greatest"),
}
"""The least and the largest number of names of each, and an example."""
FILTERS = ("type", "of_model", "prompt", "name")


@dataclass
class RunsConfig(TaskConfig):
    """`pessimal runs [show NAME | diff A B | verify [NAME]]`: what is in the registry."""

    action: RunsAction = RunsAction.list
    """list, show, diff or verify."""
    names: list[str] = field(default_factory=list)
    """Artifacts that are shown, compared or verified: name, name:v0, type/name, type/name:v0, or a
    W&B run's id."""
    type: str | None = None
    """Only artifacts of this type, such as score-table. Here and below * and ? stand for
    anything."""
    of_model: str | None = None
    """Only those of this model; typed as model=NAME, which Hydra alone would take for its group of
    that name."""
    prompt: str | None = None
    """Only those of this prompt."""
    name: str | None = None
    """Only those of this name, such as 'plain-*'."""
    where: str | None = None
    """A condition on fields and figures, as pandas' DataFrame.query reads it, such as 'n > 1000 and
    mean < 0'; a figure with a dot in its name stands in backticks."""
    all: bool = False
    """Older versions too."""
    sort: str = "name"
    """name (type, name, version), a field such as created, or a figure."""
    descending: bool = False
    """From the largest to the smallest, from the newest to the oldest."""
    format: RunsFormat = RunsFormat.table
    """table, json or csv."""
    table: str | None = None
    """Of show with format=csv: which table of the artifact, such as agreement; null where it has
    only one."""

    def check(self) -> None:
        lowest, highest, example = NAMES[self.action]
        if not lowest <= len(self.names) <= highest:
            wanted = (
                f"{lowest} name{'s' * (lowest > 1)}"
                if lowest == highest
                else f"up to {highest} name"
            )
            count = f"{len(self.names)} were given ({', '.join(self.names) or 'none'})"
            raise ConfigError(f"runs {self.action.value} takes {wanted}, and {count}: {example}")
        filters = [name for name in (*FILTERS, "where") if getattr(self, name) is not None]
        if filters and self.action is not RunsAction.list:
            typed = filters[0].removeprefix("of_")
            raise ConfigError(f"{typed}= chooses what is listed; type for example: {example}")
        if self.action is RunsAction.verify and self.format is RunsFormat.csv:
            raise ConfigError("runs verify has format=table or format=json; leave out format=csv")
        if self.table and (self.action is not RunsAction.show or self.format is not RunsFormat.csv):
            raise ConfigError("table= is for CSV: pessimal runs show NAME format=csv table=TABLE")


@dataclass
class PushConfig(TaskConfig):
    """`pessimal push`: the registry to W&B, asked back; where to is `tracking.project` and
    `tracking.entity`."""

    type: Texts = field(default_factory=list)
    """Only artifacts of this type, or of a list of types; all where null."""
    name: Texts = field(default_factory=list)
    """Only artifacts of this name, or of a list of names, every version; all where null."""


QUIET = (
    "hydra.run.dir=.",
    "hydra.output_subdir=null",
    "hydra.job_logging.root.handlers=[console]",
    "~hydra.job_logging.handlers.file",
)
"""Hydra keeps a folder of every run; looking at a registry leaves none, also where nothing can be
written."""
_NAME = re.compile(r"[A-Za-z0-9._:/-]+")
_FREE = {*FILTERS, "where", "sort", "table"}


def runs_overrides(
    words: Sequence[str], overrides: Sequence[str], options: Sequence[str]
) -> list[str]:
    """The overrides for `runs` and the bare words after it: an action, then names.

    Values that Hydra would stumble over (n>1000) are put into the quotes that it wants.

    Raises:
        ConfigError: the first word is no action, a name is none, or a sweep is asked for.
    """
    if {"-m", "--multirun"} & set(options):
        raise ConfigError("runs lists a registry, and has nothing to sweep; leave out -m")
    actions = [action.value for action in RunsAction]
    quoted = [_quoted(override) for override in overrides]
    if not words:
        return [*quoted, *QUIET]
    action, *names = words
    if action not in actions:
        hint = f" To list these: pessimal runs 'name={action}*'" * bool(_NAME.fullmatch(action))
        guess = did_you_mean(action, actions) or hint
        raise ConfigError(f"after runs comes show, diff or verify, not {action!r}.{guess}")
    if wrong := [name for name in names if not _NAME.fullmatch(name)]:
        raise ConfigError(f"runs {action}: {wrong[0]!r} is no artifact's name: type TYPE/NAME:v0")
    return [*quoted, f"action={action}", f"names=[{','.join(map(as_text, names))}]", *QUIET]


def _quoted(override: str) -> str:
    """The override as Hydra is to read it: its value in quotes where it is free text."""
    if override.startswith("model="):
        override = f"of_{override}"
    key, _, value = override.partition("=")
    if key not in _FREE or value == "null" or value[:1] in ("[", '"', "'"):
        return override
    return f"{key}={as_text(value)}"
