"""What a verb reads before its work and needs no torch for: looked at first, since importing torch may take half a minute."""

from pathlib import Path

from pessimal.config.schema import ExplainConfig, ScanConfig, TaskConfig


def check_inputs(config: TaskConfig) -> None:
    """InputError or ModelError for files that cannot be what they are said to be. A Hub model is fetched."""
    if isinstance(config, ScanConfig) and config.candidates.path is not None:
        from pessimal.scoring.candidates import items

        items(Path(config.candidates.path).expanduser(), name=config.candidates.name)
    if isinstance(config, ExplainConfig) and config.comparisons.source.value == "jsonl":
        from pessimal.explain.comparison import read_jsonl

        read_jsonl(Path(config.comparisons.path).expanduser())
    model = getattr(config, "model", None)
    if model is not None and model.recipe is None:
        from pessimal.models.hub import files_of

        files_of(model)
