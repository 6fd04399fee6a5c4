"""Options of `pessimal report`."""

from dataclasses import dataclass, field

from pessimal.config.schema.shared import TaskConfig


@dataclass
class ReportConfig(TaskConfig):
    """`pessimal report`: one HTML page."""

    name: str = "report"
    """Name of the artifact."""
    title: str = "What these reward models want"
    """Heading of the page."""
    artifacts: list[str] = field(default_factory=list)
    """References such as comparison/quickstart, comparison/quickstart:v0, search-result/NAME, study/NAME or explanation/NAME; the newest
    comparison where empty."""
    explorer: bool = True
    """Carry every token's rewards and ranks, to be searched on the page: 0.5 MB a model and prompt at 128,000 tokens."""
    explorer_prompts: list[str] = field(default_factory=list)
    """Prompts in the explorer; those that the most models were asked where empty."""
