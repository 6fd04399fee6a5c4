"""From a ModelSpec to a Reward, by the file of its kind."""

from pathlib import Path

from pessimal.rewards.base import Reward
from pessimal.rewards.checkpoint_files import load_tokenizer
from pessimal.rewards.spec import Kind, ModelSpec


def open_model(spec: ModelSpec, folder: Path | None) -> Reward:
    """The reward of a spec; `folder` has its checkpoint on this machine (None for a function or a
    server). Weights are digested, not yet loaded."""
    if spec.kind in (Kind.callable, Kind.endpoint):
        # The tokenizer whose vocabulary is scanned; none is needed for lists of items.
        tokenizer = None if spec.tokenizer is None else load_tokenizer(spec)
        if spec.kind is Kind.callable:
            from pessimal.rewards.callable import open_callable

            return open_callable(spec, tokenizer)
        from pessimal.rewards.endpoint import open_endpoint

        return open_endpoint(spec, tokenizer)
    assert folder is not None
    match spec.kind:
        case Kind.head:
            from pessimal.rewards.head import open_head

            return open_head(spec, folder)
        case Kind.log_probability:
            from pessimal.rewards.log_probability import open_log_probability

            return open_log_probability(spec, folder)
        case Kind.implicit:
            from pessimal.rewards.implicit import open_implicit

            return open_implicit(spec, folder)
        case _:
            from pessimal.rewards.judge import open_judge

            return open_judge(spec, folder)
