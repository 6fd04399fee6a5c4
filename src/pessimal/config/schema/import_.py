"""Options of `pessimal import`."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pessimal.config.schema.shared import TaskConfig
from pessimal.config.schema.values import matching
from pessimal.errors import ConfigError
from pessimal.models.spec import ModelSpec


class ImportFormat(Enum):
    """Layouts of published score files."""

    eloeverything = "eloeverything"
    """elo_rank, elo_score, name, elo_matches, then one column a model."""
    factorial54 = "factorial54"
    """response, then one column for each of 54 prompts; one file a model."""
    vocabulary = "vocabulary"
    """token_id, token_name, token_decoded, then one column a prompt; one file a model."""


@dataclass
class ImportConfig(TaskConfig):
    """`pessimal import`: published score files into score tables."""

    format: ImportFormat | None = None
    path: Any = None
    """The file; for formats with one file a model also a folder, a pattern or a list."""
    prompt: str | None = None
    """Key of the prompt an EloEverything file was scored with; greatest where not given."""
    prompts: dict[str, str] = field(default_factory=dict)
    """Wordings by key, where they are known."""
    model_name: str | None = None
    """Name of the model that a vocabulary file is of; by default taken from the file's name."""
    published: dict[str, ModelSpec] = field(default_factory=dict)
    """What is known about published models, by Hub repository."""

    def __post_init__(self):
        if self.format is None or self.path is None:
            raise ConfigError(
                "import needs a format and a path; type for example: "
                "pessimal import format=eloeverything path=greatest_one_word.csv"
            )
        if self.prompt is not None and self.format is not ImportFormat.eloeverything:
            raise ConfigError(
                f"prompt={self.prompt!r}: files of format={self.format.value} name a prompt in each column; leave prompt out"
            )
        self.path = matching("path", self.path)
