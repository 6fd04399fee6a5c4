"""From a ModelSpec to a Reward, by the file of its kind."""

from pathlib import Path

from pessimal.rewards.base import Reward
from pessimal.rewards.checkpoint_files import load_tokenizer, tokenizer_folder
from pessimal.rewards.spec import Kind, ModelSpec


def open_model(spec: ModelSpec, folder: Path | None) -> Reward:
    """The reward of a spec; `folder` has its checkpoint on this machine (None for a function or a
    server). Weights are digested, not yet loaded."""
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
        case Kind.judge:
            from pessimal.rewards.judge import open_judge

            return open_judge(spec, folder)
        case Kind.callable:
            from pessimal.rewards.callable import open_callable

            return open_callable(spec, _tokenizer_for_texts(spec))
        case Kind.endpoint:
            from pessimal.rewards.endpoint import open_endpoint

            return open_endpoint(spec, _tokenizer_for_texts(spec))


def _tokenizer_for_texts(spec: ModelSpec):
    """The tokenizer whose vocabulary is scanned with a function or a server; None where none is
    given."""
    return None if spec.tokenizer is None else load_tokenizer(spec, tokenizer_folder(spec))
